//===- Lexer.h - Tokens of the text form ------------------------*- C++ -*-===//
//
// Cuts IR text into tokens, on demand and without copying. Whitespace, line
// ends of either kind and `//` comments separate tokens and are not kept.
//
//   word    ::= [A-Za-z_][A-Za-z0-9_.]*           rms_norm.bwd, S, x3
//   integer ::= `-`? digit+                       no leading zero
//   float   ::= `-`? digit+ (`.` digit+)? ([eE] [+-]? digit+)? | `-`? (inf|nan)
//   string  ::= `"` (char | `\"` | `\\` | `\n` | `\t` | `\` hex hex)* `"`
//   value   ::= `%` name                          %12.qkv
//   symbol  ::= `@` name                          @layers.0.norm.weight, @tp
//   bundle  ::= `@` name `.*` | `@*`              @layers.0.*
//   name    ::= [A-Za-z0-9_.]+
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_LEXER_H
#define HP_LIB_IR_LEXER_H

#include "hp/Support/Diagnostics.h"

namespace hp {

enum class TokenKind : uint8_t {
  End,
  Error, ///< reported by the lexer already
  Word,
  Integer,
  Float,
  String,
  Value,
  Symbol,
  Bundle,
  LBrace,
  RBrace,
  LParen,
  RParen,
  LSquare,
  RSquare,
  Less,
  Greater,
  Comma,
  Colon,
  Semicolon,
  Equal,
  Pipe,
  Star,
  Arrow,
  At,
  Tilde,
  Underscore,
};

/// One token. `text` leaves out the sigil of values and symbols, the `.*` of
/// bundles, and the quotes of strings (whose escapes stay as written).
struct Token {
  TokenKind kind = TokenKind::End;
  bool startsLine = false; ///< nothing but space before it on its line
  unsigned line = 1;
  unsigned column = 1; ///< in bytes
  const char *begin = nullptr;
  const char *end = nullptr;
  llvm::StringRef text;

  bool is(TokenKind other) const { return kind == other; }
  bool isWord(llvm::StringRef word) const {
    return kind == TokenKind::Word && text == word;
  }
};

/// Whether `text` lexes as one word.
bool isWord(llvm::StringRef text);
/// Replaces the escapes of a string token. The lexer has checked them.
std::string unescape(llvm::StringRef text);
/// Writes `text` in quotes, such that unescape() gives it back: bytes beyond
/// ASCII as they are where `text` is UTF-8, as hex where it is not.
void printQuoted(llvm::StringRef text, llvm::raw_ostream &os);

class Lexer {
public:
  /// `file` must outlive the lexer and every Location made from it.
  Lexer(llvm::StringRef text, const char *file, DiagnosticEngine &diag);

  /// The next token. After an Error the text goes on behind the culprit.
  Token next();
  /// Goes on at `position`, on the line of the last token.
  void jumpTo(const char *position) { cursor = position; }
  /// Goes on at the start of the next line.
  void skipLine();

  Location location(const Token &token) const {
    return {file, token.line, token.column};
  }
  const char *textEnd() const { return end; }
  /// Number of errors reported here.
  unsigned errorCount() const { return errors; }

private:
  Token make(TokenKind kind, const char *tokenEnd);
  /// Reports a malformed token that ends at `tokenEnd`.
  Token fail(const char *tokenEnd, const llvm::Twine &message);
  void skipSpace();
  Token lexNumber();
  Token lexString();
  /// A value, symbol or bundle.
  Token lexName(TokenKind kind);

  const char *cursor, *end;
  const char *lineStart;
  const char *tokenStart = nullptr;
  unsigned line = 1;
  bool atLineStart = true;
  const char *file;
  DiagnosticEngine &diag;
  unsigned errors = 0;
};

} // namespace hp

#endif // HP_LIB_IR_LEXER_H
