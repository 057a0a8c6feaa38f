//===- WorkedTest.cpp - The worked steps read and print
//--------------------===//

#include "TextTesting.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace hp;
using namespace hp::texttest;
using llvm::StringRef;

namespace {
class Worked : public testing::TestWithParam<const char *> {};
} // namespace

/// `text` without comments and blank lines.
static std::string bare(StringRef text) {
  std::string result;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    if (!line.trim().empty() && !line.trim().starts_with("//")) {
      result += line.str() + "\n";
    }
    text = rest;
  }
  return result;
}

TEST_P(Worked, StepPrintsAsWritten) {
  std::string path =
      std::string(HP_SOURCE_DIR "/test/IR/worked/") + GetParam() + ".hp";
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(buffer) << path;
  DiagnosticLog log;
  auto module = parse((*buffer)->getBuffer(), log);
  ASSERT_TRUE(module) << log.text();
  EXPECT_EQ(str(*module), bare((*buffer)->getBuffer()));
  EXPECT_EQ(faultOf((*buffer)->getBuffer()), "");
}

INSTANTIATE_TEST_SUITE_P(Steps, Worked,
                         testing::Values("allgather", "alltoall",
                                         "alltoall_sp_off", "bias",
                                         "bias_sp_off", "kv_replicated",
                                         "kv_replicated_sp_off", "lp_off",
                                         "sp_off", "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });
