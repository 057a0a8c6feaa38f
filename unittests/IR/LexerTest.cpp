//===- LexerTest.cpp - Tokens, escapes, places ----------------------------===//

#include "Lexer.h"
#include "../Spec/DiagnosticLog.h"

using namespace hp;
using llvm::StringRef;

namespace {
using K = TokenKind;

struct Lexed {
  DiagnosticLog log;
  std::vector<Token> tokens; ///< without End

  explicit Lexed(StringRef text) {
    Lexer lexer(text, "t", log.diag);
    for (Token token = lexer.next(); !token.is(K::End); token = lexer.next()) {
      tokens.push_back(token);
    }
  }
  std::vector<K> kinds() const {
    std::vector<K> list;
    for (const Token &token : tokens) {
      list.push_back(token.kind);
    }
    return list;
  }
  std::vector<std::string> texts() const {
    std::vector<std::string> list;
    for (const Token &token : tokens) {
      list.push_back(token.text.str());
    }
    return list;
  }
};

std::string onlyError(StringRef text) { return Lexed(text).log.text(); }

using Texts = std::vector<std::string>;
} // namespace

TEST(Lexer, NamesKeepTheirDotsAndLoseTheirSigils) {
  Lexed lexed("%12.qkv @layers.0.w @layers.0.* rms_norm.bwd _ _x");
  EXPECT_EQ(lexed.kinds(), (std::vector<K>{K::Value, K::Symbol, K::Bundle,
                                           K::Word, K::Underscore, K::Word}));
  EXPECT_EQ(lexed.texts(), (Texts{"12.qkv", "layers.0.w", "layers.0",
                                  "rms_norm.bwd", "_", "_x"}));
}

TEST(Lexer, APlaceholderBundleKeepsNameAndParameterApart) {
  Lexed lexed("%L0@q.weight S@(cp,tp) 8@tp");
  EXPECT_EQ(
      lexed.kinds(),
      (std::vector<K>{K::Value, K::Symbol, K::Word, K::At, K::LParen, K::Word,
                      K::Comma, K::Word, K::RParen, K::Integer, K::Symbol}));
}

TEST(Lexer, NumbersAreIntegersUnlessTheyShowAPointOrExponent) {
  Lexed lexed("0 -7 1.0 1e-06 2E+3 -0.0 -inf -nan S->h");
  EXPECT_EQ(lexed.kinds(),
            (std::vector<K>{K::Integer, K::Integer, K::Float, K::Float,
                            K::Float, K::Float, K::Float, K::Float, K::Word,
                            K::Arrow, K::Word}));
  EXPECT_TRUE(lexed.log.lines.empty());
}

TEST(Lexer, MalformedNumbersAreRefusedWhole) {
  EXPECT_EQ(onlyError("1."), "t:1:1: error: '1.' is not a number\n");
  EXPECT_EQ(onlyError("1.5.3"), "t:1:1: error: '1.5.3' is not a number\n");
  EXPECT_EQ(onlyError("1e"), "t:1:1: error: '1e' is not a number\n");
  EXPECT_EQ(onlyError("1e-"), "t:1:1: error: '1e-' is not a number\n");
  EXPECT_EQ(onlyError("4_096"), "t:1:1: error: '4_096' is not a number\n");
  EXPECT_EQ(onlyError("12abc"), "t:1:1: error: '12abc' is not a number\n");
  EXPECT_EQ(onlyError("010"),
            "t:1:1: error: '010' is not a number: it starts with a zero\n");
  EXPECT_EQ(onlyError("-x"),
            "t:1:1: error: expected a number or '>' after '-'\n");
  EXPECT_EQ(onlyError(".5"), "t:1:1: error: unexpected character '.'\n");
}

TEST(Lexer, CommentsBlankLinesAndCarriageReturnsSeparate) {
  Lexed lexed("a // b %c \"\r\n\r\n\t d//\n//\0\xff\ne");
  EXPECT_EQ(lexed.texts(), (Texts{"a", "d"}));
  EXPECT_EQ(lexed.tokens[1].line, 3u);
  EXPECT_EQ(lexed.tokens[1].column, 3u);
  EXPECT_TRUE(lexed.tokens[0].startsLine);
  EXPECT_TRUE(lexed.tokens[1].startsLine);
  Lexed rest(StringRef("d//\n//\0\xff\ne f", 12));
  EXPECT_EQ(rest.texts(), (Texts{"d", "e", "f"}));
  EXPECT_EQ(rest.tokens[1].line, 3u);
  EXPECT_FALSE(rest.tokens[2].startsLine);
}

TEST(Lexer, StringsEscapeAndUnescape) {
  Lexed lexed(R"("a\"b\\c\n\t\7f\C3\a9")");
  ASSERT_EQ(lexed.tokens.size(), 1u);
  EXPECT_EQ(unescape(lexed.tokens[0].text), "a\"b\\c\n\t\x7f\xc3\xa9");
}

TEST(Lexer, EveryByteStringPrintsAndReadsBack) {
  auto roundTrip = [](const std::string &bytes) {
    std::string quoted;
    llvm::raw_string_ostream os(quoted);
    printQuoted(bytes, os);
    Lexed lexed(quoted);
    ASSERT_EQ(lexed.kinds(), std::vector<K>{K::String}) << quoted;
    EXPECT_EQ(unescape(lexed.tokens[0].text), bytes);
  };
  for (int a = 0; a < 256; ++a) {
    roundTrip(std::string(1, char(a)));
    roundTrip({'\\', char(a)});
    roundTrip({char(a), '0'});
    roundTrip({'\xc3', char(a)});
  }
  std::string quoted;
  llvm::raw_string_ostream os(quoted);
  printQuoted("é\x01", os);
  EXPECT_EQ(quoted, "\"é\\01\""); // UTF-8 stays readable
  quoted.clear();
  printQuoted("\xe9", os);
  EXPECT_EQ(quoted, "\"\\E9\"");
}

TEST(Lexer, BadStringsAreLocated) {
  EXPECT_EQ(onlyError("\"abc"), "t:1:1: error: string without closing '\"'\n");
  EXPECT_EQ(onlyError("\"abc\\"),
            "t:1:1: error: string without closing '\"'\n");
  EXPECT_EQ(onlyError("  \"abc\nx"),
            "t:1:3: error: string without closing '\"'\n");
  EXPECT_EQ(onlyError("\"\\q\""),
            "t:1:1: error: unknown escape in a string; \\\", \\\\, \\n, \\t "
            "and two hex digits are known\n");
  EXPECT_EQ(onlyError(StringRef("\"a\0b\"", 5)),
            "t:1:1: error: control character in a string; write it as \\00\n"
            "t:1:5: error: string without closing '\"'\n");
}

TEST(Lexer, StrangeBytesAreLocated) {
  EXPECT_EQ(onlyError(StringRef("a\n \0", 4)),
            "t:2:2: error: unexpected NUL byte\n");
  EXPECT_EQ(onlyError("\xff"), "t:1:1: error: unexpected byte 0xff\n");
  EXPECT_EQ(onlyError("a ! b"), "t:1:3: error: unexpected character '!'\n");
  EXPECT_EQ(onlyError("% x"), "t:1:1: error: expected a name after '%'\n");
  EXPECT_EQ(onlyError("/ x"), "t:1:1: error: unexpected character '/'\n");
}

TEST(Lexer, NamesAreBounded) {
  std::string name(1024, 'a');
  EXPECT_EQ(onlyError("%" + name + " " + name), "");
  EXPECT_EQ(
      onlyError("%" + name + "a"),
      "t:1:1: error: name of 1025 characters; at most 1024 are allowed\n");
  EXPECT_EQ(
      onlyError(name + "a"),
      "t:1:1: error: word of 1025 characters; at most 1024 are allowed\n");
}

TEST(Lexer, WordsAreWhatLexesAsOneWord) {
  for (StringRef word : {"a", "_a", "a.b", "x3", "full_attention"}) {
    EXPECT_TRUE(isWord(word)) << word.str();
  }
  for (StringRef other : {"", "_", "3x", ".a", "a b", "a-b", "a\n", "é"}) {
    EXPECT_FALSE(isWord(other)) << other.str();
  }
}
