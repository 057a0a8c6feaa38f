//===- JsonReaderTest.cpp - Strictness of the JSON reader -----------------===//

#include "hp/Runtime/JsonReader.h"
#include "FormatsTesting.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include <random>

using namespace hp;
using namespace hp::testing;

/// "" if `text` is one JSON value, else "offset: message".
static std::string problemOf(llvm::StringRef text) {
  JsonReader json(text);
  json.skipValue();
  if (json.expectEnd()) {
    return "";
  }
  return std::to_string(json.offset()) + ": " + json.message().str();
}

static std::string stringOf(llvm::StringRef text) {
  JsonReader json(text);
  std::string value;
  bool valid = json.readString(value) && json.expectEnd();
  return valid ? value : "error: " + json.message().str();
}

TEST(JsonReader, reads_an_object_in_order) {
  JsonReader json(" { \"b\" : 1 , \"a\":[2,\"x\\n\"], \"c\":{} } ");
  std::string key, keys, text;
  uint64_t number = 0;
  ASSERT_TRUE(json.beginObject());
  while (json.nextKey(key)) {
    keys += key;
    if (key == "b") {
      EXPECT_TRUE(json.readUnsigned(number));
      EXPECT_EQ(number, 1u);
    } else if (key == "a") {
      EXPECT_TRUE(json.beginArray() && json.nextElement());
      EXPECT_TRUE(json.readUnsigned(number));
      EXPECT_TRUE(json.nextElement() && json.readString(text));
      EXPECT_FALSE(json.nextElement());
      EXPECT_EQ(text, "x\n");
    } else {
      EXPECT_TRUE(json.skipValue());
    }
  }
  EXPECT_TRUE(json.expectEnd());
  EXPECT_EQ(keys, "bac");
}

TEST(JsonReader, refuses_what_is_not_json) {
  EXPECT_EQ(problemOf(""), "0: expected a value");
  EXPECT_EQ(problemOf("{"), "1: expected a key in double quotes");
  EXPECT_EQ(problemOf("{\"a\"}"), "4: expected ':' after key 'a'");
  EXPECT_EQ(problemOf("{\"a\":1,}"), "7: expected a key in double quotes");
  EXPECT_EQ(problemOf("{\"a\":1 \"b\":2}"), "7: expected ',' or '}'");
  EXPECT_EQ(problemOf("[1,]"), "3: expected a value");
  EXPECT_EQ(problemOf("[1 2]"), "3: expected ',' or ']'");
  EXPECT_EQ(problemOf("[1}"), "2: expected ',' or ']'");
  EXPECT_EQ(problemOf("nul"), "0: expected a value");
  EXPECT_EQ(problemOf("1 1"), "2: more text after the end");
  EXPECT_EQ(problemOf("{'a':1}"), "1: expected a key in double quotes");
  EXPECT_EQ(problemOf("\"abc"), "0: string without an end");
  EXPECT_EQ(problemOf("\"a\nc\""), "2: control character in a string");
  EXPECT_EQ(problemOf(llvm::StringRef("1\0", 2)), "1: more text after the end");
  EXPECT_EQ(problemOf("\"a\xff\""), "2: not UTF-8 text");
  EXPECT_EQ(problemOf("\"a\\x\""), "2: invalid escape in a string");
  EXPECT_EQ(problemOf("\"a\\u12\""), "2: invalid escape in a string");
  for (const char *number : {"01", "-", "1.", ".5", "+1", "1e", "1e+", "0x1",
                             "1.5.", "1a", "NaN", "Infinity"}) {
    EXPECT_NE(problemOf(number), "") << number;
  }
  for (const char *value :
       {"0", "-0", "-1.5e+10", "1E5", "true", "false", "null", "[]", "{}",
        "[[],{}]", "\"\"", " 1\r\n\t"}) {
    EXPECT_EQ(problemOf(value), "") << value;
  }
}

TEST(JsonReader, refuses_duplicate_keys_however_they_are_spelled) {
  EXPECT_EQ(problemOf("{\"a\":1,\"b\":{\"a\":2},\"a\":3}"),
            "19: duplicate key 'a'");
  EXPECT_EQ(problemOf("{\"a\":1,\"\\u0061\":3}"), "7: duplicate key 'a'");
  EXPECT_EQ(problemOf("[{\"a\":1},{\"a\":1}]"), "");
}

TEST(JsonReader, decodes_escapes) {
  EXPECT_EQ(stringOf(R"("\"\\\/\b\f\n\r\t")"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(stringOf(R"("\u0041\u00e9\u20AC")"), "A\xc3\xa9\xe2\x82\xac");
  EXPECT_EQ(stringOf(R"("\ud83d\ude00")"), "\xf0\x9f\x98\x80");
  EXPECT_EQ(stringOf(R"("\u0000")"), std::string(1, '\0'));
  for (const char *half :
       {R"("\ud83d")", R"("\ud83dx")", R"("\ude00")", R"("\ud83d\u0041")",
        R"("\ud83d\ud83d")", R"("\ud83d\n")"}) {
    EXPECT_EQ(stringOf(half), "error: half a surrogate pair in a string");
  }
}

TEST(JsonReader, reads_integers_only) {
  auto problem = [](llvm::StringRef text) {
    JsonReader json(text);
    uint64_t value = 0;
    return json.readUnsigned(value) && json.expectEnd() ? std::to_string(value)
                                                        : json.message().str();
  };
  EXPECT_EQ(problem("0"), "0");
  EXPECT_EQ(problem("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(problem("18446744073709551616"),
            "integer '18446744073709551616' does not fit in 64 bits");
  EXPECT_EQ(problem("-1"), "expected a non-negative integer, not '-1'");
  EXPECT_EQ(problem("1.0"), "expected a non-negative integer, not '1.0'");
  EXPECT_EQ(problem("1e3"), "expected a non-negative integer, not '1e3'");
  EXPECT_EQ(problem("\"1\""), "expected a non-negative integer");
  EXPECT_EQ(problem("007"), "invalid number");
}

TEST(JsonReader, nests_to_its_limit_and_no_deeper) {
  auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  EXPECT_EQ(problemOf(nested(JsonReader::maxDepth)), "");
  EXPECT_EQ(problemOf(nested(JsonReader::maxDepth + 1)),
            "64: nested more than 64 deep");
  EXPECT_EQ(problemOf(std::string(10'000'000, '[')),
            "64: nested more than 64 deep");
}

TEST(JsonReader, counts_lines_and_columns) {
  JsonReader json("{\n \"a\": x}");
  json.skipValue();
  EXPECT_EQ(json.lineAndColumn(json.offset()), std::make_pair(2u, 7u));
}

TEST(JsonReader, quotes_names_for_messages) {
  EXPECT_EQ(quoteForMessage("a.b"), "'a.b'");
  EXPECT_EQ(quoteForMessage("\xc3\xa9"), "'\xc3\xa9'");
  EXPECT_EQ(quoteForMessage(llvm::StringRef("a\0\n", 3)), "'a\\x00\\x0A'");
  EXPECT_EQ(quoteForMessage("\xff"), "'\\xFF'");
  EXPECT_EQ(quoteForMessage(std::string(500, 'n')),
            "'" + std::string(120, 'n') + "...'");
  // Cut before the character that passes the limit.
  EXPECT_EQ(quoteForMessage(std::string(119, 'n') + "\xc3\xa9"),
            "'" + std::string(119, 'n') + "...'");
}

/// LLVM's parser is the oracle. It takes numbers of any form, duplicate keys,
/// half surrogate pairs and deeper nesting, and nothing else that we do not.
TEST(JsonReader, agrees_with_llvm_on_mutated_text) {
  const std::string seed =
      R"({"a":[1,-2.5e3,{"b":"x\u00e9\"\\"}],"c":{"d":null,"e":[true,false]},)"
      R"("long key":"text","f":[[],{}, 7 ]})";
  ASSERT_EQ(problemOf(seed), "");
  const char alphabet[] = "{}[]:,\"\\u0123eE+-. tfn\x01\x7f\xc3";
  std::mt19937 random(20240607);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text = seed;
    for (int edits = 1 + int(random() % 2); edits > 0; --edits) {
      size_t at = random() % text.size();
      char c = alphabet[random() % (sizeof(alphabet) - 1)];
      switch (random() % 3) {
      case 0:
        text[at] = c;
        break;
      case 1:
        text.insert(at, 1, c);
        break;
      default:
        text.erase(at, 1);
      }
    }
    auto parsed = llvm::json::parse(text);
    bool oracle = bool(parsed);
    if (!parsed) {
      llvm::consumeError(parsed.takeError());
    }
    std::string problem = problemOf(text);
    if (problem.empty()) {
      EXPECT_TRUE(oracle) << text;
      ++accepted;
    } else {
      ++refused;
      size_t at = std::stoul(problem);
      bool known = llvm::StringRef(problem).contains("number") ||
                   (at < text.size() && (text[at] == '+' || text[at] == '.')) ||
                   llvm::StringRef(problem).contains("duplicate") ||
                   llvm::StringRef(problem).contains("surrogate");
      EXPECT_TRUE(!oracle || known) << problem << " in " << text;
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_GT(refused, 1000);
}
