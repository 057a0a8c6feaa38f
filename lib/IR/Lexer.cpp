//===- Lexer.cpp - Tokens of the text form --------------------------------===//

#include "Lexer.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"
#include <array>
#include <cstring>

using namespace hp;
using llvm::StringRef;

/// Longer names are refused: no message, table or suggestion has to cope with a
/// name of ten megabytes.
static constexpr size_t maxNameLength = 1024;

//===----------------------------------------------------------------------===//
// Characters
//===----------------------------------------------------------------------===//

enum : uint8_t { NameChar = 1, WordStart = 2, Digit = 4 };

static constexpr std::array<uint8_t, 256> characterClasses = [] {
  std::array<uint8_t, 256> table{};
  for (int c = 'a'; c <= 'z'; ++c) {
    table[c] = table[c - 'a' + 'A'] = NameChar | WordStart;
  }
  for (int c = '0'; c <= '9'; ++c) {
    table[c] = NameChar | Digit;
  }
  table['_'] = NameChar | WordStart;
  table['.'] = NameChar;
  return table;
}();

static bool isClass(char c, uint8_t mask) {
  return characterClasses[uint8_t(c)] & mask;
}

static const char *skipClass(const char *cursor, const char *end,
                             uint8_t mask) {
  while (cursor != end && isClass(*cursor, mask)) {
    ++cursor;
  }
  return cursor;
}

bool hp::isWord(StringRef text) {
  return !text.empty() && text != "_" && text.size() <= maxNameLength &&
         isClass(text.front(), WordStart) &&
         skipClass(text.begin(), text.end(), NameChar) == text.end();
}

//===----------------------------------------------------------------------===//
// Strings
//===----------------------------------------------------------------------===//

std::string hp::unescape(StringRef text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      result += text[i];
      continue;
    }
    char c = text[++i];
    if (c == '"' || c == '\\') {
      result += c;
    } else if (c == 'n') {
      result += '\n';
    } else if (c == 't') {
      result += '\t';
    } else {
      result +=
          char(llvm::hexDigitValue(c) * 16 + llvm::hexDigitValue(text[++i]));
    }
  }
  return result;
}

void hp::printQuoted(StringRef text, llvm::raw_ostream &os) {
  const auto *begin = reinterpret_cast<const llvm::UTF8 *>(text.begin());
  const auto *end = reinterpret_cast<const llvm::UTF8 *>(text.end());
  bool isUtf8 = llvm::isLegalUTF8String(&begin, end);
  os << '"';
  for (char c : text) {
    auto byte = uint8_t(c);
    if (c == '"' || c == '\\') {
      os << '\\' << c;
    } else if (c == '\n') {
      os << "\\n";
    } else if (c == '\t') {
      os << "\\t";
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !isUtf8)) {
      os << '\\' << llvm::hexdigit(byte >> 4) << llvm::hexdigit(byte & 15);
    } else {
      os << c;
    }
  }
  os << '"';
}

//===----------------------------------------------------------------------===//
// Lexer
//===----------------------------------------------------------------------===//

Lexer::Lexer(StringRef text, const char *file, DiagnosticEngine &diag)
    : cursor(text.begin()), end(text.end()), lineStart(text.begin()),
      file(file), diag(diag) {}

Token Lexer::make(TokenKind kind, const char *tokenEnd) {
  cursor = tokenEnd;
  Token token;
  token.kind = kind;
  token.startsLine = std::exchange(atLineStart, false);
  token.line = line;
  token.column = unsigned(tokenStart - lineStart) + 1;
  token.begin = tokenStart;
  token.end = tokenEnd;
  token.text = StringRef(tokenStart, tokenEnd - tokenStart);
  return token;
}

Token Lexer::fail(const char *tokenEnd, const llvm::Twine &message) {
  Token token = make(TokenKind::Error, tokenEnd);
  ++errors;
  diag.error(location(token)) << message.str();
  return token;
}

void Lexer::skipLine() {
  const void *newline = std::memchr(cursor, '\n', end - cursor);
  cursor = newline ? static_cast<const char *>(newline) : end;
}

void Lexer::skipSpace() {
  while (cursor != end) {
    char c = *cursor;
    if (c == '\n') {
      lineStart = ++cursor;
      ++line;
      atLineStart = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++cursor;
    } else if (c == '/' && end - cursor > 1 && cursor[1] == '/') {
      skipLine();
    } else {
      return;
    }
  }
}

Token Lexer::lexNumber() {
  const char *p = tokenStart + (*tokenStart == '-');
  const char *digits = p;
  p = skipClass(p, end, Digit);
  bool leadingZero = *digits == '0' && p - digits > 1;
  bool isFloat = false, valid = true;
  if (p != end && *p == '.') {
    const char *fraction = ++p;
    p = skipClass(p, end, Digit);
    valid &= p != fraction;
    isFloat = true;
  }
  if (p != end && (*p == 'e' || *p == 'E')) {
    ++p;
    p += p != end && (*p == '+' || *p == '-');
    const char *exponent = p;
    p = skipClass(p, end, Digit);
    valid &= p != exponent;
    isFloat = true;
  }
  const char *rest = skipClass(p, end, NameChar);
  StringRef text(tokenStart, rest - tokenStart);
  if (!valid || rest != p || leadingZero) {
    return fail(rest, "'" + text.take_front(40) + "' is not a number" +
                          (leadingZero ? ": it starts with a zero" : ""));
  }
  return make(isFloat ? TokenKind::Float : TokenKind::Integer, p);
}

Token Lexer::lexString() {
  const char *p = tokenStart + 1;
  const char *badEscape = nullptr;
  while (p != end && *p != '"' && *p != '\n') {
    if (*p == '\\') {
      const char *escape = p++;
      if (p == end || *p == '\n') {
        break;
      }
      bool isHex =
          end - p > 1 && llvm::isHexDigit(p[0]) && llvm::isHexDigit(p[1]);
      if (StringRef("\"\\nt").contains(*p)) {
        ++p;
      } else if (isHex) {
        p += 2;
      } else {
        badEscape = badEscape ? badEscape : escape;
      }
    } else if (uint8_t(*p) < 0x20 && *p != '\t') {
      return fail(p + 1, "control character in a string; write it as \\" +
                             llvm::Twine(llvm::hexdigit(uint8_t(*p) >> 4)) +
                             llvm::Twine(llvm::hexdigit(uint8_t(*p) & 15)));
    } else {
      ++p;
    }
  }
  if (p == end || *p == '\n') {
    return fail(p, "string without closing '\"'");
  }
  if (badEscape) {
    return fail(p + 1, "unknown escape in a string; \\\", \\\\, \\n, \\t and "
                       "two hex digits are known");
  }
  Token token = make(TokenKind::String, p + 1);
  token.text = token.text.drop_front().drop_back();
  return token;
}

Token Lexer::lexName(TokenKind kind) {
  const char *p = skipClass(tokenStart + 1, end, NameChar);
  size_t length = p - tokenStart - 1;
  if (length > maxNameLength) {
    return fail(p, "name of " + llvm::Twine(length) +
                       " characters; at most 1024 are allowed");
  }
  if (length == 0) {
    if (kind == TokenKind::Symbol && p != end && *p == '*') {
      Token token = make(TokenKind::Bundle, p + 1);
      token.text = StringRef();
      return token;
    }
    if (kind == TokenKind::Symbol) {
      return make(TokenKind::At, p);
    }
    return fail(p, "expected a name after '%'");
  }
  if (kind == TokenKind::Symbol && p != end && *p == '*' && p[-1] == '.' &&
      length > 1) {
    Token token = make(TokenKind::Bundle, p + 1);
    token.text = token.text.drop_front().drop_back(2);
    return token;
  }
  Token token = make(kind, p);
  token.text = token.text.drop_front();
  return token;
}

/// The token of one character; End where there is none.
static TokenKind punctuation(char c) {
  switch (c) {
  case '{':
    return TokenKind::LBrace;
  case '}':
    return TokenKind::RBrace;
  case '(':
    return TokenKind::LParen;
  case ')':
    return TokenKind::RParen;
  case '[':
    return TokenKind::LSquare;
  case ']':
    return TokenKind::RSquare;
  case '<':
    return TokenKind::Less;
  case '>':
    return TokenKind::Greater;
  case ',':
    return TokenKind::Comma;
  case ':':
    return TokenKind::Colon;
  case ';':
    return TokenKind::Semicolon;
  case '=':
    return TokenKind::Equal;
  case '|':
    return TokenKind::Pipe;
  case '*':
    return TokenKind::Star;
  case '~':
    return TokenKind::Tilde;
  default:
    return TokenKind::End;
  }
}

Token Lexer::next() {
  skipSpace();
  tokenStart = cursor;
  if (cursor == end) {
    return make(TokenKind::End, end);
  }
  char c = *cursor;
  if (isClass(c, WordStart)) {
    const char *p = skipClass(cursor, end, NameChar);
    if (size_t(p - cursor) > maxNameLength) {
      return fail(p, "word of " + llvm::Twine(size_t(p - cursor)) +
                         " characters; at most 1024 are allowed");
    }
    bool underscore = c == '_' && p - cursor == 1;
    return make(underscore ? TokenKind::Underscore : TokenKind::Word, p);
  }
  if (isClass(c, Digit)) {
    return lexNumber();
  }
  switch (c) {
  case '%':
    return lexName(TokenKind::Value);
  case '@':
    return lexName(TokenKind::Symbol);
  case '"':
    return lexString();
  case '-': {
    StringRef rest(cursor + 1, end - cursor - 1);
    if (rest.starts_with(">")) {
      return make(TokenKind::Arrow, cursor + 2);
    }
    if (!rest.empty() && isClass(rest.front(), Digit)) {
      return lexNumber();
    }
    StringRef word =
        rest.take_while([](char c) { return isClass(c, NameChar); });
    if (word == "inf" || word == "nan") {
      return make(TokenKind::Float, word.end());
    }
    return fail(cursor + 1, "expected a number or '>' after '-'");
  }
  case '\0':
    return fail(cursor + 1, "unexpected NUL byte");
  default:
    break;
  }
  TokenKind kind = punctuation(c);
  if (kind != TokenKind::End) {
    return make(kind, cursor + 1);
  }
  if (llvm::isPrint(c)) {
    return fail(cursor + 1, "unexpected character '" + llvm::Twine(c) + "'");
  }
  return fail(cursor + 1,
              "unexpected byte 0x" + llvm::Twine::utohexstr(uint8_t(c)));
}
