//===- TextMutationTest.cpp - Broken text is refused, never fatal
//----------===//
//
// Whatever the text, reading it ends with a module that prints to a fixpoint or
// with a located error.
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"
#include "TextTesting.h"
#include <random>

using namespace hp;
using namespace hp::texttest;
using llvm::StringRef;

namespace {
const StringRef modules[] = {templates, step};

std::vector<Token> tokensOf(StringRef text) {
  DiagnosticLog log;
  Lexer lexer(text, "t", log.diag);
  std::vector<Token> tokens;
  for (Token token = lexer.next(); !token.is(TokenKind::End);
       token = lexer.next()) {
    tokens.push_back(token);
  }
  return tokens;
}

/// Reads `text` and expects a refusal.
void expectRefused(const std::string &text) {
  DiagnosticLog log;
  EXPECT_FALSE(parse(text, log));
  EXPECT_FALSE(log.lines.empty());
  EXPECT_TRUE(log.everythingLocated);
}
} // namespace

TEST(TextMutation, TruncatedAtEveryByte) {
  for (StringRef text : modules) {
    for (size_t length = 0; length < text.size() - 2; ++length) {
      DiagnosticLog log;
      ASSERT_FALSE(parse(text.take_front(length), log)) << length;
      ASSERT_EQ(faultOf(text.take_front(length)), "") << length;
    }
  }
}

TEST(TextMutation, EachTokenDeletedDoubledOrExchanged) {
  for (StringRef text : modules) {
    std::vector<Token> tokens = tokensOf(text);
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string before(text.begin(), tokens[i].begin);
      std::string token(tokens[i].begin, tokens[i].end);
      std::string after(tokens[i].end, text.end());
      ASSERT_EQ(faultOf(before + after), "") << "deleted " << i << " " << token;
      ASSERT_EQ(faultOf(before + token + " " + token + after), "")
          << "doubled " << i << " " << token;
      if (i + 1 < tokens.size()) {
        std::string between(tokens[i].end, tokens[i + 1].begin);
        std::string next(tokens[i + 1].begin, tokens[i + 1].end);
        std::string rest(tokens[i + 1].end, text.end());
        ASSERT_EQ(faultOf(before + next + between + " " + token + rest), "")
            << "exchanged " << i << " " << token << " and " << next;
      }
    }
  }
}

TEST(TextMutation, TenThousandRandomChanges) {
  std::mt19937 random(20240229);
  auto below = [&](size_t bound) { return size_t(random() % bound); };
  unsigned accepted = 0;
  for (unsigned round = 0; round < 10000; ++round) {
    StringRef source = modules[round % 2];
    std::string text = source.str();
    std::vector<Token> tokens = tokensOf(source);
    for (size_t changes = 1 + below(3); changes > 0; --changes) {
      switch (below(6)) {
      case 0: // another byte
        text[below(text.size())] = char(random());
        break;
      case 1: // a bit
        text[below(text.size())] ^= char(1 << below(8));
        break;
      case 2: // a piece gone
        text.erase(below(text.size()), 1 + below(20));
        break;
      case 3: { // a piece twice
        size_t at = below(text.size());
        text.insert(below(text.size()), text.substr(at, 1 + below(40)));
        break;
      }
      case 4: { // a token of the module elsewhere
        const Token &token = tokens[below(tokens.size())];
        text.insert(below(text.size()), std::string(token.begin, token.end));
        break;
      }
      default: { // a line elsewhere
        size_t from = text.find('\n', below(text.size()));
        size_t to = text.find('\n', below(text.size()));
        if (from != std::string::npos && to != std::string::npos) {
          size_t end = text.find('\n', from + 1);
          text.insert(to, text.substr(from, end == std::string::npos
                                                ? std::string::npos
                                                : end - from));
        }
      }
      }
      if (text.empty()) {
        text = "x";
      }
    }
    std::string fault = faultOf(text);
    ASSERT_EQ(fault, "") << "round " << round << ":\n" << text;
    DiagnosticLog log;
    accepted += parse(text, log) != nullptr;
  }
  // The changes must not all be alike: some leave a legal module.
  EXPECT_GT(accepted, 100u);
  EXPECT_LT(accepted, 5000u);
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// A step whose body is `line`.
static std::string withLine(const std::string &line) {
  return "model \"m\" stage(step) {\nmesh <tp=2>\nfunc @f(%x: f32[8]) {\n" +
         line + "\nreturn %x\n}\n}\n";
}

TEST(TextMutation, NothingNests) {
  for (char open : StringRef("([{<\"%@=,:;|*~_-\\")) {
    std::string many(100000, open);
    expectRefused(many);
    expectRefused("model \"m\" stage(step) {" + many);
    expectRefused(withLine(many));
    expectRefused(withLine("%y = " + many));
    expectRefused(withLine("%y = add " + many));
    expectRefused(withLine("%y = all_reduce %x {" + many));
    expectRefused(withLine("%y = add %x, %x : f32[" + many));
    expectRefused("model \"m\" stage(step) {\nconfig {a=" + many);
    expectRefused("model \"m\" stage(step) {\nstack @s = [" + many);
  }
}

TEST(TextMutation, ListsNestThirtyTwoDeep) {
  auto nested = [](unsigned depth) {
    return "model \"m\" stage(step) {\n  config {a=" + std::string(depth, '[') +
           std::string(depth, ']') + "}\n  mesh <>\n}\n";
  };
  EXPECT_EQ(faultOf(nested(32)), "");
  DiagnosticLog log;
  EXPECT_TRUE(parse(nested(32), log));
  EXPECT_FALSE(parse(nested(33), log));
  EXPECT_EQ(log.text(), "t.hp:2:45: error: lists nested deeper than 32\n");
}

TEST(TextMutation, LinesOfTenMegabytes) {
  const size_t size = 10 << 20;
  expectRefused(std::string(size, 'a'));
  expectRefused(std::string(size, '\0'));
  expectRefused(std::string(size, '\xff'));
  expectRefused("model \"" + std::string(size, 'a'));
  expectRefused(withLine("%" + std::string(size, 'y') + " = add %x, %x"));
  expectRefused(withLine("%y = " + std::string(size, 'a')));
  std::string operands = "%y = sum %x";
  std::string results = "%r0";
  std::string attributes = "%y = rms_norm %x, %x {a";
  std::string dims = "%y = add %x, %x : f32[1";
  std::string axes = "%y = all_reduce %x {(tp";
  for (unsigned i = 1; operands.size() < size / 2; ++i) {
    operands += ", %x";
    results += ", %r" + std::to_string(i);
    attributes += ", a" + std::to_string(i);
    dims += ", 1";
    axes += ",tp";
  }
  EXPECT_EQ(faultOf(withLine(operands + " : f32[8]")), "");
  expectRefused(withLine(results + " = ones : f32[]"));
  expectRefused(withLine(attributes + "} : f32[8]"));
  expectRefused(withLine(dims + "]"));
  expectRefused(withLine(axes + ")} : f32[8]"));
  std::string comment = withLine("//" + std::string(size, '"'));
  EXPECT_EQ(faultOf(comment), "");
}

// Each of these would take minutes if a name were searched for in a list.
TEST(TextMutation, TensOfThousandsOfNames) {
  std::string body, params, blocks, bundles;
  for (unsigned i = 0; i < 50000; ++i) {
    std::string name = std::to_string(i);
    body += "%" + name + " = add %x, %x : f32[" + std::to_string(i % 999 + 1) +
            "]\n";
    params += "param @p." + name + " : f32[8]\n";
    blocks += "block @b" + name + "() {\nreturn\n}\n";
    bundles += "%u" + name + " = fsdp.unshard @p.*\n";
  }
  EXPECT_EQ(faultOf(withLine(body)), "");
  std::string head = "model \"m\" stage(spec) {\n" + params;
  EXPECT_EQ(faultOf(head + blocks + "}\n"), "");
  EXPECT_EQ(faultOf(head + "func @f() {\n" + bundles + "return\n}\n}\n"), "");
}
