//===- DocumentTest.cpp - Trees and refusals of YAML and JSON -------------===//

#include "hp/Spec/Document.h"
#include "DiagnosticLog.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include <chrono>

using namespace hp;
using llvm::StringRef;

namespace {

class DocumentTest : public testing::Test {
protected:
  std::optional<Node> parse(StringRef text) {
    return parseDocument(text, log.diag.location("t", 1, 1), log.diag);
  }
  /// The tree as one line of flow YAML.
  std::string flow(StringRef text) {
    std::optional<Node> node = parse(text);
    if (!node) {
      return "refused: " + log.text();
    }
    std::string out;
    llvm::raw_string_ostream os(out);
    printFlow(*node, os);
    return out;
  }
  /// The first line reported for a text that must be refused.
  std::string refusal(StringRef text) {
    DiagnosticLog fresh;
    std::optional<Node> node =
        parseDocument(text, fresh.diag.location("t", 1, 1), fresh.diag);
    EXPECT_FALSE(node) << text.take_front(80).str();
    EXPECT_EQ(fresh.diag.errorCount(), 1u) << fresh.text();
    EXPECT_TRUE(fresh.everythingLocated);
    log.lines = fresh.lines;
    return fresh.lines.empty() ? "" : fresh.lines.front();
  }
  static std::string at(Location loc) {
    return std::to_string(loc.line) + ":" + std::to_string(loc.column);
  }
  DiagnosticLog log;
};

} // namespace

TEST_F(DocumentTest, places_count_from_one) {
  std::optional<Node> root = parse("a: 1\nlong:\n  - x\n  - {b: 'q'}\nnone:\n");
  ASSERT_TRUE(root) << log.text();
  ASSERT_EQ(root->entries.size(), 3u);
  EXPECT_EQ(at(root->loc), "1:1");
  EXPECT_EQ(at(root->entries[0].keyLoc), "1:1");
  EXPECT_EQ(at(root->entries[0].value.loc), "1:4");
  const Node &list = root->entries[1].value;
  EXPECT_EQ(at(list.loc), "3:3");
  EXPECT_EQ(at(list.items[0].loc), "3:5");
  EXPECT_EQ(at(list.items[1].loc), "4:5");
  EXPECT_EQ(at(list.items[1].entries[0].keyLoc), "4:6");
  EXPECT_EQ(at(list.items[1].entries[0].value.loc), "4:9");
  EXPECT_TRUE(list.items[1].entries[0].value.quoted);
  EXPECT_FALSE(root->entries[0].value.quoted);
  EXPECT_TRUE(root->entries[2].value.isNull());
  EXPECT_EQ(at(root->entries[2].value.loc), "5:1"); // its key's place
}

TEST_F(DocumentTest, a_null_that_is_written_has_its_own_place) {
  std::optional<Node> root = parse("a: ~\nb: null\nc:\nnulls: 1\n");
  ASSERT_TRUE(root);
  EXPECT_EQ(at(root->entries[0].value.loc), "1:4");
  EXPECT_EQ(at(root->entries[1].value.loc), "2:4");
  EXPECT_EQ(at(root->entries[2].value.loc), "3:1");
}

TEST_F(DocumentTest, start_shifts_the_first_line_alone) {
  std::optional<Node> root =
      parseDocument("[a,\n b]", log.diag.location("t", 7, 20), log.diag);
  ASSERT_TRUE(root);
  EXPECT_EQ(at(root->items[0].loc), "7:21");
  EXPECT_EQ(at(root->items[1].loc), "8:2");
}

TEST_F(DocumentTest, json_is_accepted) {
  EXPECT_EQ(flow("{\"a\": [1, 2.5, true, null], \"b\":{\"c\":\"x\\ny\"},\n"
                 "\t\"d\": {}, \"e\": []\n}\n"),
            "{a: [1, 2.5, true, null], b: {c: \"x\\ny\"}, d: {}, e: []}");
}

TEST_F(DocumentTest, line_ends_and_byte_order_mark) {
  EXPECT_EQ(flow("\xef\xbb\xbf"
                 "a: 1\r\nb:\r\n  - x\r\n  - |\r\n    t\r\n"),
            "{a: 1, b: [x, \"t\\n\"]}");
  std::optional<Node> root = parse("\xef\xbb\xbf"
                                   "a: 1\r\nb: 2\r\n");
  EXPECT_EQ(at(root->entries[1].value.loc), "2:4");
}

TEST_F(DocumentTest, quoted_and_block_scalars_are_marked) {
  std::optional<Node> root = parse("[\"1\", '1', 1, \"\"]");
  ASSERT_TRUE(root);
  EXPECT_TRUE(root->items[0].quoted);
  EXPECT_TRUE(root->items[1].quoted);
  EXPECT_FALSE(root->items[2].quoted);
  EXPECT_TRUE(root->items[3].isScalar());
  EXPECT_EQ(root->items[3].text, "");
}

TEST_F(DocumentTest, duplicate_keys) {
  EXPECT_EQ(refusal("a: 1\nb:\n  c: 1\n  d: 2\n  'c': 3\n"),
            "t:5:3: error: duplicate key 'c'");
  EXPECT_EQ(log.lines[1], "t:3:3: note: first given here");
  EXPECT_EQ(refusal("{\"x\": 1, \"x\": 2}"),
            "t:1:10: error: duplicate key 'x'");
}

TEST_F(DocumentTest, what_yaml_allows_and_a_config_should_not_hold) {
  EXPECT_EQ(refusal("a: {x: 1}\n<<: {y: 2}\n"),
            "t:2:1: error: merge keys ('<<') are not supported; write the "
            "keys out");
  EXPECT_EQ(refusal("a: &x 1\nb: 2\n"),
            "t:1:4: error: anchors are not supported; write the value where "
            "it is needed, or quote the text if '&' is meant");
  EXPECT_EQ(refusal("a: *x\n"),
            "t:1:4: error: aliases are not supported; quote the text if '*' "
            "is meant");
  EXPECT_EQ(refusal("no_decay: [*norm.weight]\n"),
            "t:1:12: error: aliases are not supported; quote the text if '*' "
            "is meant");
  EXPECT_EQ(refusal("a: !!str 5\n"),
            "t:1:4: error: tags are not supported: 'tag:yaml.org,2002:str'");
  EXPECT_EQ(refusal("a: !mine {b: 1}\n"),
            "t:1:4: error: tags are not supported: '!mine'");
  EXPECT_EQ(refusal("a: 1\n---\nb: 2\n"),
            "t:2:1: error: more than one document in the text");
  EXPECT_EQ(refusal("{a: 1}\n}\n").substr(0, 13), "t:2:1: error:");
  EXPECT_EQ(refusal("? [a, b]\n: 1\n"),
            "t:1:3: error: a key must be a word, not a list or map");
  EXPECT_EQ(refusal("~: 1\n"),
            "t:1:1: error: a key must be a word, not empty or null");
  EXPECT_EQ(refusal(": 1\n"),
            "t:1:1: error: a key must be a word, not empty or null");
}

TEST_F(DocumentTest, a_quoted_merge_key_is_a_word) {
  EXPECT_EQ(flow("\"<<\": 1"), "{\"<<\": 1}");
}

TEST_F(DocumentTest, texts_that_are_no_yaml) {
  for (const char *text :
       {"", "\n\n", "# only a comment\n", "\xef\xbb\xbf", "a: [1, 2", "{a: 1",
        "a: 'open", "a: \"open", "a: \"\\q\"", "]", "a: b: c", "a:\n\t- 1\n",
        "@x", "`x", "%YAML 3.0\n---\na: 1\n", "a: \"\\ud800\""}) {
    EXPECT_EQ(refusal(text).substr(0, 2), "t:") << text;
  }
  EXPECT_EQ(refusal(""), "t:1:1: error: there is nothing in the text");
}

TEST_F(DocumentTest, a_bracket_without_end_is_named) {
  const std::string message = "error: this bracket is never closed";
  EXPECT_EQ(refusal("a: [1, 2\nb: 3\n"), "t:1:4: " + message);
  EXPECT_EQ(refusal("{\"a\": \"]}\", \"b\": [\"\\\"]\", {}\n"),
            "t:1:1: " + message);
  EXPECT_EQ(refusal("a: {b: 1\n"), "t:1:4: " + message);
  EXPECT_EQ(refusal("[\n \"a\" \"b\"]\n"),
            "t:2:6: error: ',' or a closing bracket is missing here");
  EXPECT_EQ(log.lines[1], "t:1:1: note: the bracket opened here");
}

TEST_F(DocumentTest, bytes_that_are_no_text) {
  EXPECT_EQ(refusal(StringRef("a: 1\nb: x\0y\n", 12)),
            "t:2:5: error: control character 0x00 in the text");
  EXPECT_EQ(refusal("a: \x04 b: 2"),
            "t:1:4: error: control character 0x04 in the text");
  EXPECT_EQ(refusal("a: 1\rb: 2\n"),
            "t:1:5: error: control character 0x0d in the text");
  EXPECT_EQ(refusal("a: 1\nb: \xc3(\n"),
            "t:2:4: error: the text is not valid UTF-8");
  EXPECT_EQ(refusal("\xff\xfe"
                    "a"),
            "t:1:1: error: the text is not valid UTF-8");
}

TEST_F(DocumentTest, nesting_is_bounded) {
  auto repeat = [](StringRef piece, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) {
      text += piece;
    }
    return text;
  };
  EXPECT_TRUE(parse(repeat("[", 64) + repeat("]", 64)));
  EXPECT_EQ(refusal(repeat("[", 65) + repeat("]", 65)),
            "t:1:65: error: nested deeper than 64 levels");
  std::string indented;
  for (int i = 0; i < 70; ++i) {
    indented += std::string(i, ' ') + "a:\n";
  }
  EXPECT_EQ(refusal(indented), "t:65:65: error: nested deeper than 64 levels");
  for (const char *piece :
       {"[", "{", "[{", "{a: ", "- ", "? ", "- ? ", ": ", "[[a]: ", "!x ",
        "&a ", "a:\n ", "'x", "\"x", "*"}) {
    auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(refusal(repeat(piece, 100000)).substr(0, 2), "t:") << piece;
    std::chrono::duration<double> time =
        std::chrono::steady_clock::now() - begin;
    EXPECT_LT(time.count(), 20) << piece;
  }
}

TEST_F(DocumentTest, size_is_bounded) {
  std::string text = "a: " + std::string(maxDocumentBytes, 'x');
  EXPECT_EQ(refusal(text),
            "t:0:0: error: the text is larger than 1048576 bytes");
  text.resize(maxDocumentBytes);
  EXPECT_TRUE(parse(text));
}

TEST_F(DocumentTest, large_documents_take_linear_time) {
  std::string list = "[";
  std::string map;
  for (int i = 0; i < 50000; ++i) {
    list += "1,";
    map += ("k" + llvm::Twine(i) + ": 1\n").str();
  }
  list += "1]";
  auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(parse(list));
  EXPECT_TRUE(parse(map));
  std::chrono::duration<double> time = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(time.count(), 20);
}

TEST_F(DocumentTest, files_that_cannot_be_read) {
  EXPECT_FALSE(readDocument("/no/such/file.yaml", log.diag));
  EXPECT_TRUE(log.has("error: cannot read '/no/such/file.yaml': No such file "
                      "or directory"))
      << log.text();
  EXPECT_FALSE(readDocument("/", log.diag));
  EXPECT_FALSE(readDocument("/dev/zero", log.diag));
  EXPECT_TRUE(
      log.has("/dev/zero:0:0: error: the text is larger than 1048576 bytes"));
  EXPECT_FALSE(readDocument("/dev/null", log.diag));
  EXPECT_TRUE(log.has("/dev/null:1:1: error: there is nothing in the text"));
}

TEST_F(DocumentTest, flow_printing_reads_back) {
  for (const char *text :
       {"{a: 1, b: [-1, .5, 1e-6, \"true\", true, null, \"null\", \"~\"]}",
        "[\"a, b\", \"x: y\", \"- z\", \"*glob\", \"#c\", \"\\\"\\\\\", \"\"]",
        "{\"-\": 1, \"---\": 2, \"null\": 3, \"- a\": 4}",
        "{\"a b\": {\"<<\": [[]]}, c: \"\\n\\t\\x01 \xc3\xa4\"}", "-1", "\"-\"",
        "\"---\"", "a-b", "\"null\"", "[\"1\"]"}) {
    std::string once = flow(text);
    EXPECT_EQ(flow(once), once) << text;
    EXPECT_EQ(once.substr(0, 7) == "refused", false) << once;
  }
  std::optional<Node> node = parse(flow("[\"\\x01\\n\"]"));
  ASSERT_TRUE(node) << log.text();
  EXPECT_EQ(node->items[0].text, "\x01\n");
}
