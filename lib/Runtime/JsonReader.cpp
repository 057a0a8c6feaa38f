//===- JsonReader.cpp - A strict pull reader for untrusted JSON -----------===//

#include "hp/Runtime/JsonReader.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include "llvm/Support/JSON.h"
#include <algorithm>

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

JsonReader::JsonReader(StringRef text) : text(text) {
  size_t bad = 0;
  if (!llvm::json::isUTF8(text, &bad)) {
    failAt(bad, "not UTF-8 text");
  }
}

bool JsonReader::failAt(size_t where, const Twine &what) {
  if (!failed()) {
    error = what.str();
    errorOffset = where;
  }
  return false;
}

std::pair<unsigned, unsigned> JsonReader::lineAndColumn(size_t offset) const {
  StringRef before = text.take_front(offset);
  size_t lineStart = before.rfind('\n') + 1; // npos + 1 is 0
  return {unsigned(before.count('\n') + 1), unsigned(offset - lineStart + 1)};
}

char JsonReader::peek() {
  while (position < text.size() &&
         (text[position] == ' ' || text[position] == '\t' ||
          text[position] == '\n' || text[position] == '\r')) {
    ++position;
  }
  tokenStart = position;
  return position < text.size() ? text[position] : '\0';
}

//===----------------------------------------------------------------------===//
// Objects and arrays
//===----------------------------------------------------------------------===//

bool JsonReader::enter(char bracket, bool isObject) {
  if (failed()) {
    return false;
  }
  if (peek() != bracket) {
    return fail(isObject ? "expected an object" : "expected an array");
  }
  if (levels.size() == maxDepth) {
    return fail("nested more than " + Twine(maxDepth) + " deep");
  }
  ++position;
  levels.push_back({isObject, true, {}});
  return true;
}

bool JsonReader::beginObject() { return enter('{', true); }
bool JsonReader::beginArray() { return enter('[', false); }

bool JsonReader::advance(bool isObject) {
  if (failed()) {
    return false;
  }
  char close = isObject ? '}' : ']';
  char next = peek();
  if (next == close) {
    ++position;
    levels.pop_back();
    return false;
  }
  if (levels.back().isFirst) {
    levels.back().isFirst = false;
    return true;
  }
  if (next != ',') {
    return fail(Twine("expected ',' or '") + Twine(close) + "'");
  }
  ++position;
  return true;
}

bool JsonReader::nextElement() { return advance(/*isObject=*/false); }

bool JsonReader::nextKey(std::string &key) {
  if (!advance(/*isObject=*/true)) {
    return false;
  }
  if (peek() != '"') {
    return fail("expected a key in double quotes");
  }
  size_t keyStart = position;
  if (!readString(key)) {
    return false;
  }
  if (!levels.back().keys.insert(key).second) {
    return failAt(keyStart, "duplicate key " + quoteForMessage(key));
  }
  if (peek() != ':') {
    return fail("expected ':' after key " + quoteForMessage(key));
  }
  ++position;
  peek();
  return true;
}

//===----------------------------------------------------------------------===//
// Strings and numbers
//===----------------------------------------------------------------------===//

bool JsonReader::readString(std::string &value) {
  value.clear();
  if (failed()) {
    return false;
  }
  if (peek() != '"') {
    return fail("expected a string");
  }
  ++position;
  while (position < text.size()) {
    size_t run = position;
    while (run < text.size() && text[run] != '"' && text[run] != '\\' &&
           (unsigned char)text[run] >= 0x20) {
      ++run;
    }
    value.append(text.data() + position, run - position);
    position = run;
    if (position == text.size()) {
      break;
    }
    if (text[position] == '"') {
      ++position;
      return true;
    }
    if (text[position] != '\\') {
      return failAt(position, "control character in a string");
    }
    if (!readEscape(value)) {
      return false;
    }
  }
  return fail("string without an end");
}

/// escape ::= '\' ( '"' | '\' | '/' | 'b' | 'f' | 'n' | 'r' | 't' | 'u' hex4 )
bool JsonReader::readEscape(std::string &value) {
  size_t start = position;
  if (position + 1 >= text.size()) {
    return failAt(start, "string without an end");
  }
  char kind = text[position + 1];
  position += 2;
  constexpr StringRef plain = "\"\\/bfnrt", decoded = "\"\\/\b\f\n\r\t";
  if (size_t at = plain.find(kind); at != StringRef::npos) {
    value.push_back(decoded[at]);
    return true;
  }
  unsigned unit = 0;
  if (kind != 'u' || !readHex4(unit)) {
    return failAt(start, "invalid escape in a string");
  }
  if (unit >= 0xD800 && unit <= 0xDFFF) {
    unsigned low = 0;
    bool paired = unit < 0xDC00 && text.substr(position).starts_with("\\u");
    if (paired) {
      position += 2;
      paired = readHex4(low) && low >= 0xDC00 && low <= 0xDFFF;
    }
    if (!paired) {
      return failAt(start, "half a surrogate pair in a string");
    }
    unit = 0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
  }
  char bytes[UNI_MAX_UTF8_BYTES_PER_CODE_POINT];
  char *end = bytes;
  llvm::ConvertCodePointToUTF8(unit, end);
  value.append(bytes, end);
  return true;
}

bool JsonReader::readHex4(unsigned &unit) {
  unit = 0;
  for (int i = 0; i < 4; ++i, ++position) {
    if (position >= text.size() || !llvm::isHexDigit(text[position])) {
      return false;
    }
    unit = unit * 16 + llvm::hexDigitValue(text[position]);
  }
  return true;
}

bool JsonReader::readUnsigned(uint64_t &value) {
  value = 0;
  if (failed()) {
    return false;
  }
  char first = peek();
  size_t start = position;
  if (!llvm::isDigit(first) && first != '-') {
    return fail("expected a non-negative integer");
  }
  if (!skipNumber()) {
    return false;
  }
  StringRef number = text.slice(start, position);
  if (number.find_first_not_of("0123456789") != StringRef::npos) {
    return failAt(start, "expected a non-negative integer, not " +
                             quoteForMessage(number));
  }
  if (number.getAsInteger(10, value)) {
    return failAt(start, "integer " + quoteForMessage(number) +
                             " does not fit in 64 bits");
  }
  return true;
}

/// number ::= '-'? ( '0' | [1-9][0-9]* ) ( '.' [0-9]+ )? ( [eE] [+-]? [0-9]+ )?
bool JsonReader::skipNumber() {
  size_t start = position;
  auto take = [&](StringRef set) {
    bool found = position < text.size() && set.contains(text[position]);
    position += found;
    return found;
  };
  auto digits = [&] {
    size_t before = position;
    while (take("0123456789")) {
    }
    return position != before;
  };
  take("-");
  bool valid = take("0") || digits();
  if (valid && take(".")) {
    valid = digits();
  }
  if (valid && take("eE")) {
    take("+-");
    valid = digits();
  }
  if (valid && position < text.size() &&
      (llvm::isAlnum(text[position]) || text[position] == '.')) {
    valid = false;
  }
  return valid || failAt(start, "invalid number");
}

bool JsonReader::skipWord(StringRef word) {
  if (!text.substr(position).starts_with(word)) {
    return fail("expected a value");
  }
  position += word.size();
  return true;
}

bool JsonReader::skipValue() {
  if (failed()) {
    return false;
  }
  const size_t outside = levels.size();
  std::string ignored;
  do {
    char next = peek();
    bool read = next == '{'                          ? beginObject()
                : next == '['                        ? beginArray()
                : next == '"'                        ? readString(ignored)
                : next == 't'                        ? skipWord("true")
                : next == 'f'                        ? skipWord("false")
                : next == 'n'                        ? skipWord("null")
                : llvm::isDigit(next) || next == '-' ? skipNumber()
                                                     : fail("expected a value");
    if (!read) {
      return false;
    }
    // Up to the next value: out of every level that ends here.
    while (levels.size() > outside &&
           !(levels.back().isObject ? nextKey(ignored) : nextElement())) {
      if (failed()) {
        return false;
      }
    }
  } while (levels.size() > outside);
  return true;
}

bool JsonReader::expectEnd() {
  if (failed()) {
    return false;
  }
  peek();
  return position == text.size() || fail("more text after the end");
}
