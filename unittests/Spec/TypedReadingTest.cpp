//===- TypedReadingTest.cpp - What is a number, a word, a list ------------===//

#include "hp/Spec/TypedReading.h"
#include "DiagnosticLog.h"
#include <cmath>

using namespace hp;
using llvm::StringRef;

namespace {

class TypedReadingTest : public testing::Test {
protected:
  Node node(StringRef text) {
    std::optional<Node> parsed =
        parseDocument(text, log.diag.location("t", 1, 1), log.diag);
    EXPECT_TRUE(parsed) << log.text();
    return parsed ? *parsed : Node();
  }
  std::string message() {
    std::string all;
    for (const std::string &line : log.lines) {
      all += (all.empty() ? "" : "\n") + line;
    }
    log.lines.clear();
    return all;
  }
  std::string intError(StringRef text, IntRange range = {}) {
    EXPECT_FALSE(readInt(node(text), "n", log.diag, range)) << text.str();
    return message();
  }
  std::string floatError(StringRef text, FloatRange range = {}) {
    EXPECT_FALSE(readFloat(node(text), "x", log.diag, range)) << text.str();
    return message();
  }
  std::string boolError(StringRef text) {
    EXPECT_FALSE(readBool(node(text), "b", log.diag)) << text.str();
    return message();
  }
  DiagnosticLog log;
};

} // namespace

TEST_F(TypedReadingTest, integers) {
  EXPECT_EQ(readInt(node("0"), "n", log.diag), 0);
  EXPECT_EQ(readInt(node("-1"), "n", log.diag), -1);
  EXPECT_EQ(readInt(node("+12"), "n", log.diag), 12);
  EXPECT_EQ(readInt(node("9223372036854775807"), "n", log.diag), INT64_MAX);
  EXPECT_EQ(readInt(node("-9223372036854775808"), "n", log.diag), INT64_MIN);
  EXPECT_EQ(message(), "");
}

TEST_F(TypedReadingTest, integers_in_other_conventions_are_refused) {
  const std::string must = "t:1:1: error: 'n' must be a decimal integer, not ";
  EXPECT_EQ(intError("010"), must + "'010'; write 10");
  EXPECT_EQ(intError("0x10"), must + "'0x10'; write 16");
  EXPECT_EQ(intError("0o10"), must + "'0o10'; write 8");
  EXPECT_EQ(intError("0b11"), must + "'0b11'; write 3");
  EXPECT_EQ(intError("4_096"), must + "'4_096'; write 4096");
  EXPECT_EQ(intError("2.0"), must + "'2.0'; write 2");
  EXPECT_EQ(intError("1e3"), must + "'1e3'; write 1000");
  EXPECT_EQ(intError("2.5"), must + "'2.5'");
  EXPECT_EQ(intError("-010"), must + "'-010'; write -10");
  EXPECT_EQ(intError("00"), must + "'00'; write 0");
  EXPECT_EQ(intError("\"5\""), must + "the quoted text '5'; write 5");
  EXPECT_EQ(intError("abc"), must + "'abc'");
  EXPECT_EQ(intError("true"), must + "'true'");
  EXPECT_EQ(intError(".nan"), must + "'.nan'");
  EXPECT_EQ(intError("1e400"), must + "'1e400'");
  EXPECT_EQ(intError("- 1"), must + "a list");
  EXPECT_EQ(intError("{a: 1}"), must + "a map");
  EXPECT_EQ(intError("12# twelve"), must + "'12# twelve'");
  EXPECT_EQ(intError("null"),
            "t:1:1: error: 'n' has no value; it must be a decimal integer");
  EXPECT_EQ(intError("99999999999999999999"),
            "t:1:1: error: 'n' is out of range: '99999999999999999999' does "
            "not fit 64 bits");
  EXPECT_EQ(intError("9223372036854775808") == "", false);
}

TEST_F(TypedReadingTest, integer_ranges) {
  EXPECT_EQ(intError("0", {1, 10}),
            "t:1:1: error: 'n' must be at least 1, not 0");
  EXPECT_EQ(intError("11", {1, 10}),
            "t:1:1: error: 'n' must be at most 10, not 11");
  EXPECT_EQ(intError("-2", {1, 10, true}),
            "t:1:1: error: 'n' must be at least 1 or -1, not -2");
  EXPECT_EQ(intError("3", {2, 2}), "t:1:1: error: 'n' must be 2, not 3");
  EXPECT_EQ(readInt(node("-1"), "n", log.diag, {1, 10, true}), -1);
  EXPECT_EQ(readInt(node("10"), "n", log.diag, {1, 10}), 10);
}

TEST_F(TypedReadingTest, floats_are_exact) {
  auto value = [&](StringRef text) {
    return readFloat(node(text), "x", log.diag).value_or(-999);
  };
  EXPECT_EQ(value("1e-6"), 1e-6);
  EXPECT_EQ(value("1E-6"), 1e-6);
  EXPECT_EQ(value(".5"), 0.5);
  EXPECT_EQ(value("2"), 2.0);
  EXPECT_EQ(value("1."), 1.0);
  EXPECT_EQ(value("+3e+2"), 300.0);
  EXPECT_EQ(value("0.1"), 0.1);
  EXPECT_EQ(value("10000000"), 1e7);
  EXPECT_EQ(value("1e7"), 1e7);
  EXPECT_EQ(value("0.30000000000000004"), 0.1 + 0.2);
  EXPECT_EQ(value("5e-324"), 5e-324);
  EXPECT_EQ(value("1e-05"), 1e-5);
  EXPECT_TRUE(std::signbit(value("-0.0")));
  EXPECT_EQ(message(), "");
}

TEST_F(TypedReadingTest, floats_that_are_refused) {
  const std::string must = "t:1:1: error: 'x' must be a number, not ";
  EXPECT_EQ(floatError("010"), must + "'010'; write 10");
  EXPECT_EQ(floatError("00.5"), must + "'00.5'; write 0.5");
  EXPECT_EQ(floatError("1_000.5"), must + "'1_000.5'; write 1000.5");
  EXPECT_EQ(floatError("'1e-6'"), must + "the quoted text '1e-6'; write 1e-6");
  EXPECT_EQ(floatError("1e"), must + "'1e'");
  EXPECT_EQ(floatError("."), must + "'.'");
  EXPECT_EQ(floatError("1e-6x"), must + "'1e-6x'");
  EXPECT_EQ(floatError("1,5"), must + "'1,5'");
  EXPECT_EQ(floatError("0x1p-3"), must + "'0x1p-3'");
  EXPECT_EQ(floatError("1.5.2"), must + "'1.5.2'");
  EXPECT_EQ(floatError("--1"), must + "'--1'");
  for (const char *text : {".nan", ".inf", "-.inf", "+.Inf", "nan", "NaN",
                           "inf", "-inf", "Infinity"}) {
    EXPECT_EQ(floatError(text), "t:1:1: error: 'x' must be finite, not '" +
                                    std::string(text) + "'");
  }
  EXPECT_EQ(floatError("1e400"),
            "t:1:1: error: 'x' is out of range: '1e400' is too large or too "
            "small for a double");
  EXPECT_EQ(floatError("1e-400") == "", false);
}

TEST_F(TypedReadingTest, float_ranges) {
  const double inf = INFINITY;
  EXPECT_EQ(floatError("1", {0, 1, false, true}),
            "t:1:1: error: 'x' must be at least 0 and below 1, not 1");
  EXPECT_EQ(floatError("0", {0, inf, true}),
            "t:1:1: error: 'x' must be above 0, not 0");
  EXPECT_EQ(floatError("-1e-9", {0, inf}),
            "t:1:1: error: 'x' must be at least 0, not -1e-9");
  EXPECT_EQ(floatError("1.5", {-inf, 1}),
            "t:1:1: error: 'x' must be at most 1, not 1.5");
}

TEST_F(TypedReadingTest, booleans) {
  EXPECT_EQ(readBool(node("true"), "b", log.diag), true);
  EXPECT_EQ(readBool(node("false"), "b", log.diag), false);
  const std::string must = "t:1:1: error: 'b' must be true or false, not ";
  EXPECT_EQ(boolError("yes"), must + "'yes'; write true");
  EXPECT_EQ(boolError("on"), must + "'on'; write true");
  EXPECT_EQ(boolError("True"), must + "'True'; write true");
  EXPECT_EQ(boolError("OFF"), must + "'OFF'; write false");
  EXPECT_EQ(boolError("no"), must + "'no'; write false");
  EXPECT_EQ(boolError("0"), must + "'0'; write false");
  EXPECT_EQ(boolError("\"true\""), must + "the quoted text 'true'; write true");
  EXPECT_EQ(boolError("maybe"), must + "'maybe'");
}

TEST_F(TypedReadingTest, strings) {
  EXPECT_EQ(readString(node("0.8B"), "s", log.diag), "0.8B");
  EXPECT_EQ(readString(node("\"null\""), "s", log.diag), "null");
  EXPECT_FALSE(readString(node("null"), "s", log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 's' has no value; it must be a word");
  EXPECT_FALSE(readString(node("[a]"), "s", log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 's' must be a word, not a list");
  EXPECT_FALSE(readString(node("''"), "s", log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 's' must not be empty");
}

TEST_F(TypedReadingTest, lists_report_every_bad_item) {
  EXPECT_EQ(readIntList(node("[3, 3, 2]"), "l", log.diag),
            (std::vector<int64_t>{3, 3, 2}));
  EXPECT_EQ(readStringList(node("[]"), "l", log.diag),
            std::vector<std::string>());
  EXPECT_FALSE(readIntList(node("[3, x, 2.0]"), "l", log.diag));
  EXPECT_EQ(message(),
            "t:1:5: error: 'l' must be a decimal integer, not 'x'\n"
            "t:1:8: error: 'l' must be a decimal integer, not '2.0'; write 2");
  EXPECT_FALSE(readIntList(node("3"), "l", log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 'l' must be a list, not '3'; write [3]");
}

TEST_F(TypedReadingTest, choices) {
  const Choice<int> choices[] = {
      {"none", 0}, {"full", 1}, {"bf16", 2, "bf16 is not there yet"}};
  EXPECT_EQ(readChoice<int>(node("full"), "c", choices, log.diag), 1);
  EXPECT_EQ(readChoice<int>(node("'full'"), "c", choices, log.diag), 1);
  EXPECT_FALSE(readChoice<int>(node("fulll"), "c", choices, log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 'c' must be 'none' or 'full', not "
                       "'fulll'\nt:1:1: note: did you mean 'full'?");
  EXPECT_FALSE(readChoice<int>(node("NONE"), "c", choices, log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 'c' must be 'none' or 'full', not "
                       "'NONE'\nt:1:1: note: did you mean 'none'?");
  EXPECT_FALSE(readChoice<int>(node("bf16"), "c", choices, log.diag));
  EXPECT_EQ(message(), "t:1:1: error: 'c': bf16 is not there yet");
  EXPECT_FALSE(readChoice<int>(node("[full]"), "c", choices, log.diag));
  EXPECT_EQ(message(),
            "t:1:1: error: 'c' must be 'none' or 'full', not a list");
}

TEST_F(TypedReadingTest, maps) {
  Node map = node("{steps: 1, sqe_len: 2, lr: 3, zzzzzzzz: 4}");
  MapReader reader(map, "section 'training'", log.diag);
  EXPECT_EQ(reader.required("steps")->text, "1");
  EXPECT_EQ(reader.optional("seq_len"), nullptr);
  EXPECT_EQ(reader.required("seed"), nullptr);
  EXPECT_FALSE(reader.finish([](StringRef key) -> std::string {
    return key == "lr" ? "section 'optimizer'" : "";
  }));
  EXPECT_EQ(message(),
            "t:1:1: error: section 'training' lacks the key 'seed'\n"
            "t:1:12: error: unknown key 'sqe_len' in section 'training'\n"
            "t:1:12: note: did you mean 'seq_len'?\n"
            "t:1:24: error: unknown key 'lr' in section 'training'\n"
            "t:1:24: note: 'lr' belongs to section 'optimizer'\n"
            "t:1:31: error: unknown key 'zzzzzzzz' in section 'training'\n"
            "t:1:31: note: known keys: steps, seq_len, seed");
}

TEST_F(TypedReadingTest, a_map_reader_refuses_what_is_no_map) {
  Node list = node("[1]");
  MapReader reader(list, "section 'data'", log.diag);
  EXPECT_EQ(reader.required("path"), nullptr);
  EXPECT_FALSE(reader.finish());
  EXPECT_EQ(message(), "t:1:1: error: section 'data' must be a map of keys and "
                       "values, not a list");
  Node null = node("null");
  EXPECT_TRUE(MapReader(null, "section 'data'", log.diag).finish());
}

TEST_F(TypedReadingTest, floats_print_in_the_shortest_form_that_reads_back) {
  for (double value : {1e-8, 1e7, 0.1, -0.0, 1.0 / 3, 5e-324,
                       1.7976931348623157e308, double(0.1f), 8e-4, 0.95}) {
    std::string text = formatFloat(value);
    std::optional<double> back = readFloat(node(text), "x", log.diag);
    ASSERT_TRUE(back) << text;
    EXPECT_EQ(std::signbit(*back), std::signbit(value));
    EXPECT_EQ(*back, value);
  }
  EXPECT_EQ(formatFloat(0.1), "0.1");
  EXPECT_EQ(formatFloat(1e-8), "1e-08");
}
