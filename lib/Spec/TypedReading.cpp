//===- TypedReading.cpp - Numbers, words and maps from a document ---------===//

#include "hp/Spec/TypedReading.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include <charconv>
#include <cmath>

using namespace hp;
using llvm::StringRef;

std::string hp::formatFloat(double value) {
  char buffer[40];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

//===----------------------------------------------------------------------===//
// Numbers
//===----------------------------------------------------------------------===//

static bool allDigits(StringRef text) {
  return !text.empty() && llvm::all_of(text, llvm::isDigit);
}

/// integer ::= [+-]? ("0" | [1-9] [0-9]*)
static bool isInteger(StringRef text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    text = text.drop_front();
  }
  return allDigits(text) && (text.size() == 1 || text[0] != '0');
}

/// float ::= [+-]? (whole ("." [0-9]*)? | "." [0-9]+) ([eE] [+-]? [0-9]+)?
/// whole ::= "0" | [1-9] [0-9]*
static bool isFloat(StringRef text) {
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    text = text.drop_front();
  }
  size_t e = text.find_first_of("eE");
  if (e != StringRef::npos) {
    StringRef exponent = text.substr(e + 1);
    if (!exponent.empty() && (exponent[0] == '+' || exponent[0] == '-')) {
      exponent = exponent.drop_front();
    }
    if (!allDigits(exponent)) {
      return false;
    }
    text = text.take_front(e);
  }
  auto [whole, fraction] = text.split('.');
  bool hasPoint = text.contains('.');
  if (whole.empty()) {
    return hasPoint && allDigits(fraction);
  }
  return isInteger(whole) && llvm::isDigit(whole[0]) &&
         (fraction.empty() || allDigits(fraction));
}

/// The double that `text`, a float of the grammar above, names.
static std::optional<double> parseFloat(StringRef text) {
  text.consume_front("+");
  double value = 0;
  auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc() || end != text.end()) {
    return std::nullopt;
  }
  return value;
}

/// `text` without underscores and leading zeros: what a number that was
/// written in another convention most likely means.
static std::string withoutDecoration(StringRef text) {
  std::string result;
  StringRef sign =
      text.starts_with("-") || text.starts_with("+") ? text.take_front(1) : "";
  text = text.drop_front(sign.size());
  bool atStart = true;
  for (size_t i = 0; i < text.size(); ++i) {
    bool isLeadingZero = atStart && text[i] == '0' && i + 1 < text.size() &&
                         (llvm::isDigit(text[i + 1]) || text[i + 1] == '_');
    if (text[i] != '_' && !isLeadingZero) {
      result += text[i];
      atStart = false;
    }
  }
  return (sign == "-" ? "-" : "") + result;
}

/// What to write instead of `text` where an integer is wanted; empty if there
/// is no good guess.
static std::string suggestInteger(StringRef text) {
  StringRef digits = text;
  bool negative = digits.consume_front("-");
  unsigned long long value;
  bool isPrefixed = digits.size() > 2 && digits[0] == '0' &&
                    StringRef("xXoObB").contains(digits[1]);
  if (isPrefixed && !digits.getAsInteger(0, value)) {
    return (llvm::Twine(negative ? "-" : "") + llvm::Twine(value)).str();
  }
  std::string plain = withoutDecoration(text);
  if (isInteger(plain)) {
    return plain;
  }
  if (isFloat(plain)) {
    std::optional<double> number = parseFloat(plain);
    if (number && std::abs(*number) < 1e15 && *number == std::trunc(*number)) {
      return std::to_string((long long)*number);
    }
  }
  return "";
}

/// Reports that `node` is not `wanted`, with `suggestion` unless empty.
static std::nullopt_t wrongKind(const Node &node, StringRef what,
                                StringRef wanted, StringRef suggestion,
                                DiagnosticEngine &diag) {
  auto error = diag.error(node.loc);
  if (node.isNull()) {
    error << "'" << what << "' has no value; it must be " << wanted;
    return std::nullopt;
  }
  error << "'" << what << "' must be " << wanted << ", not "
        << (node.quoted ? "the quoted text " : "") << describe(node);
  if (!suggestion.empty()) {
    error << "; write " << suggestion;
  }
  return std::nullopt;
}

std::optional<int64_t> hp::readInt(const Node &node, StringRef what,
                                   DiagnosticEngine &diag, IntRange range) {
  if (!node.isScalar() || node.quoted || !isInteger(node.text)) {
    return wrongKind(node, what, "a decimal integer",
                     node.isScalar() ? suggestInteger(node.text) : "", diag);
  }
  StringRef text = node.text;
  text.consume_front("+");
  int64_t value;
  if (text.getAsInteger(10, value)) {
    diag.error(node.loc) << "'" << what
                         << "' is out of range: " << quoteForMessage(node.text)
                         << " does not fit 64 bits";
    return std::nullopt;
  }
  if ((value >= range.min && value <= range.max) ||
      (range.orMinusOne && value == -1)) {
    return value;
  }
  auto error = diag.error(node.loc);
  error << "'" << what << "' must be ";
  if (range.min == range.max) {
    error << range.min;
  } else if (value < range.min) {
    error << "at least " << range.min;
  } else {
    error << "at most " << range.max;
  }
  error << (range.orMinusOne ? " or -1" : "") << ", not " << value;
  return std::nullopt;
}

std::optional<double> hp::readFloat(const Node &node, StringRef what,
                                    DiagnosticEngine &diag, FloatRange range) {
  std::string lower = StringRef(node.text).lower();
  StringRef unsignedText = StringRef(lower).ltrim("+-").ltrim('.');
  if (node.isScalar() && !node.quoted &&
      (unsignedText == "nan" || unsignedText == "inf" ||
       unsignedText == "infinity")) {
    diag.error(node.loc) << "'" << what << "' must be finite, not "
                         << describe(node);
    return std::nullopt;
  }
  if (!node.isScalar() || node.quoted || !isFloat(node.text)) {
    std::string suggestion =
        node.isScalar() ? withoutDecoration(node.text) : "";
    return wrongKind(node, what, "a number",
                     isFloat(suggestion) ? suggestion : "", diag);
  }
  std::optional<double> value = parseFloat(node.text);
  if (!value) {
    diag.error(node.loc) << "'" << what
                         << "' is out of range: " << quoteForMessage(node.text)
                         << " is too large or too small for a double";
    return std::nullopt;
  }
  bool aboveMin = range.minOpen ? *value > range.min : *value >= range.min;
  bool belowMax = range.maxOpen ? *value < range.max : *value <= range.max;
  if (aboveMin && belowMax) {
    return value;
  }
  auto error = diag.error(node.loc);
  error << "'" << what << "' must be ";
  if (std::isfinite(range.min)) {
    error << (range.minOpen ? "above " : "at least ") << formatFloat(range.min);
  }
  if (std::isfinite(range.max)) {
    error << (std::isfinite(range.min) ? " and " : "")
          << (range.maxOpen ? "below " : "at most ") << formatFloat(range.max);
  }
  error << ", not " << node.text;
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Words and lists
//===----------------------------------------------------------------------===//

std::optional<bool> hp::readBool(const Node &node, StringRef what,
                                 DiagnosticEngine &diag) {
  if (node.isScalar() && !node.quoted) {
    if (node.text == "true" || node.text == "false") {
      return node.text == "true";
    }
  }
  std::string lower = StringRef(node.text).lower();
  StringRef suggestion;
  if (llvm::is_contained({"true", "yes", "on", "y", "1"}, lower)) {
    suggestion = "true";
  } else if (llvm::is_contained({"false", "no", "off", "n", "0"}, lower)) {
    suggestion = "false";
  }
  return wrongKind(node, what, "true or false", suggestion, diag);
}

std::optional<std::string> hp::readString(const Node &node, StringRef what,
                                          DiagnosticEngine &diag) {
  if (!node.isScalar()) {
    return wrongKind(node, what, "a word", "", diag);
  }
  if (node.text.empty()) {
    diag.error(node.loc) << "'" << what << "' must not be empty";
    return std::nullopt;
  }
  return node.text;
}

int hp::readWord(const Node &node, StringRef what,
                 llvm::ArrayRef<StringRef> names, DiagnosticEngine &diag) {
  if (node.isScalar()) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (node.text == names[i]) {
        return int(i);
      }
    }
  }
  std::string list;
  for (size_t i = 0; i < names.size(); ++i) {
    list += i == 0 ? "'" : i + 1 == names.size() ? " or '" : ", '";
    list += names[i].str() + "'";
  }
  StringRef meant;
  for (StringRef name : names) {
    if (meant.empty() && name.equals_insensitive(node.text)) {
      meant = name;
    }
  }
  if (meant.empty() && node.isScalar()) {
    meant = didYouMean(node.text, names);
  }
  auto error = diag.error(node.loc);
  error << "'" << what << "' must be " << list << ", not " << describe(node);
  if (!meant.empty() && names.size() > 1) {
    error.note({}, "did you mean '" + meant + "'?");
  }
  return -1;
}

std::optional<std::vector<int64_t>> hp::readIntList(const Node &node,
                                                    StringRef what,
                                                    DiagnosticEngine &diag,
                                                    IntRange range) {
  return readList<int64_t>(
      node, what, diag,
      [&](const Node &item, StringRef what, DiagnosticEngine &diag) {
        return readInt(item, what, diag, range);
      });
}

std::optional<std::vector<std::string>>
hp::readStringList(const Node &node, StringRef what, DiagnosticEngine &diag) {
  return readList<std::string>(node, what, diag, readString);
}

//===----------------------------------------------------------------------===//
// MapReader
//===----------------------------------------------------------------------===//

MapReader::MapReader(const Node &map, StringRef what, DiagnosticEngine &diag)
    : map(map), what(what.str()), diag(diag) {
  if (!map.isMap() && !map.isNull()) {
    ok = diag.error(map.loc)
         << what << " must be a map of keys and values, not " << describe(map);
  }
}

const Node *MapReader::optional(StringRef key) {
  expected.push_back(key.str());
  return map.find(key);
}

const Node *MapReader::required(StringRef key) {
  const Node *value = optional(key);
  if (!value && (map.isMap() || map.isNull())) {
    ok = diag.error(map.loc) << what << " lacks the key '" << key << "'";
  }
  return value;
}

bool MapReader::finish(llvm::function_ref<std::string(StringRef)> owner) {
  llvm::StringSet<> known;
  std::vector<StringRef> candidates;
  for (const std::string &key : expected) {
    if (known.insert(key).second) {
      candidates.push_back(key);
    }
  }
  for (const MapEntry &entry : map.entries) {
    if (known.contains(entry.key)) {
      continue;
    }
    ok = false;
    auto error = diag.error(entry.keyLoc);
    error << "unknown key " << quoteForMessage(entry.key) << " in " << what;
    std::string home = owner ? owner(entry.key) : "";
    if (!home.empty()) {
      error.note({}, "'" + entry.key + "' belongs to " + home);
      continue;
    }
    StringRef meant = didYouMean(entry.key, candidates);
    if (!meant.empty()) {
      error.note({}, "did you mean '" + meant + "'?");
    } else {
      error.note({}, "known keys: " + llvm::join(candidates, ", "));
    }
  }
  return ok;
}
