//===- ConfigDocsTest.cpp - docs/Config.md says what the program does -----===//
//
// Every key is in the tables with its default, and every error that the page
// shows is what the program prints for the text above it.
//
//===----------------------------------------------------------------------===//

#include "DiagnosticLog.h"
#include "hp/Spec/RunConfig.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace hp;
using llvm::StringRef;

static std::string readDocs() {
  auto buffer = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR "/docs/Config.md");
  return buffer ? (*buffer)->getBuffer().str() : "";
}

TEST(ConfigDocsTest, every_key_stands_with_its_default) {
  std::string docs = readDocs();
  DiagnosticLog log;
  std::optional<RunConfig> config =
      parseRunConfig("model: {spec: m}", "t", {}, log.diag);
  ASSERT_TRUE(config);
  std::string printed;
  llvm::raw_string_ostream os(printed);
  printRunConfig(*config, os);
  llvm::SmallVector<StringRef> lines;
  StringRef(printed).split(lines, '\n', -1, false);
  StringRef rest = docs;
  unsigned keys = 0;
  for (StringRef line : lines) {
    std::string wanted;
    if (!line.starts_with(" ")) {
      wanted = llvm::formatv("### {0}\n", line.drop_back());
    } else {
      auto [key, value] = line.trim().split(": ");
      wanted = llvm::formatv("| `{0}` | ", key);
      wanted += key == "spec"     ? "required"
                : value == "null" ? "none"
                                  : "`" + value.str() + "`";
      wanted += " | ";
      ++keys;
    }
    // In the order of printing, so that a key is found in its own section.
    size_t at = rest.find(wanted);
    ASSERT_NE(at, StringRef::npos) << "docs/Config.md lacks: " << wanted;
    rest = rest.drop_front(at);
  }
  EXPECT_EQ(keys, runConfigKeys().size());
}

/// The fenced blocks of the page: their info string and text.
static std::vector<std::pair<StringRef, StringRef>> blocksOf(StringRef docs) {
  std::vector<std::pair<StringRef, StringRef>> blocks;
  while (true) {
    size_t open = docs.find("\n```");
    if (open == StringRef::npos) {
      return blocks;
    }
    docs = docs.drop_front(open + 4);
    auto [info, body] = docs.split('\n');
    size_t close = body.find("```");
    blocks.push_back({info, body.take_front(close)});
    docs = body.drop_front(close + 2);
  }
}

TEST(ConfigDocsTest, the_errors_shown_are_real) {
  std::string docs = readDocs();
  auto blocks = blocksOf(docs);
  unsigned checked = 0;
  for (size_t i = 0; i + 1 < blocks.size(); ++i) {
    if (blocks[i].first != "yaml" || blocks[i + 1].first != "text") {
      continue;
    }
    std::string printed;
    llvm::raw_string_ostream os(printed);
    DiagnosticEngine diag(os);
    std::vector<std::string> overrides;
    StringRef firstLine = blocks[i + 1].second.split('\n').first;
    StringRef body = blocks[i + 1].second;
    if (firstLine.consume_front("$ hp-opt run.yaml --set ")) {
      overrides.push_back(firstLine.str());
      body = body.split('\n').second;
    }
    parseRunConfig(blocks[i].second, "run.yaml", overrides, diag);
    EXPECT_EQ(printed, body.str());
    ++checked;
  }
  EXPECT_GE(checked, 4u);
}

TEST(ConfigDocsTest, the_examples_are_accepted) {
  std::string docs = readDocs();
  auto blocks = blocksOf(docs);
  unsigned checked = 0;
  for (size_t i = 0; i < blocks.size(); ++i) {
    bool showsErrors = i + 1 < blocks.size() && blocks[i + 1].first == "text";
    if (blocks[i].first != "yaml" || showsErrors) {
      continue;
    }
    DiagnosticLog log;
    EXPECT_TRUE(parseRunConfig(blocks[i].second, "t", {}, log.diag))
        << log.text();
    EXPECT_TRUE(log.lines.empty()) << log.text();
    ++checked;
  }
  EXPECT_GE(checked, 1u);
}
