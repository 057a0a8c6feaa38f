//===- OverlapCommunicationTest.cpp - What prefetch changes ---------------===//
//
// The plans of the worked steps, expanded with every depth of prefetch. What
// is asked of a step is read off its text: apart from the places of unshards
// and frees it is the step without prefetch, line by line; and what is under
// way at any place stays within bounds.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/ExpandStep.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"
#include <set>

using namespace hp;
using llvm::StringRef;

namespace {

/// The step of a plan, as text. `plan` is a file of worked-plans.
std::string expand(StringRef plan, StringRef prefetch) {
  std::string path =
      (HP_SOURCE_DIR "/test/Passes/Inputs/worked-plans/" + plan).str();
  auto buffer = llvm::MemoryBuffer::getFile(path);
  EXPECT_TRUE(bool(buffer)) << path;
  std::string messages;
  llvm::raw_string_ostream stream(messages);
  DiagnosticEngine diag{stream};
  auto module = parseModule((*buffer)->getBuffer(), path, diag);
  EXPECT_TRUE(module && verify(*module, diag)) << messages;
  auto pass = makeExpandStep();
  std::string message;
  EXPECT_TRUE(pass->setOption("prefetch", prefetch, message)) << message;
  EXPECT_TRUE(pass->run(*module, diag) && verify(*module, diag)) << messages;
  return str(*module);
}

llvm::SmallVector<StringRef, 0> linesOf(StringRef text) {
  llvm::SmallVector<StringRef, 0> lines;
  text.split(lines, '\n');
  return lines;
}

bool isUnshard(StringRef line) { return line.contains(" = fsdp.unshard "); }
bool isWait(StringRef line) { return line.ltrim().starts_with("wait "); }
bool isFree(StringRef line) { return line.ltrim().starts_with("free "); }
bool isAsync(StringRef line) {
  return line.contains("{async}") || line.contains(", async}");
}

std::string withoutFlag(StringRef line) {
  std::string text = line.str();
  for (StringRef flag : {" {async}", ", async"}) {
    size_t at = text.find(flag);
    if (at != std::string::npos) {
      text.erase(at, flag.size());
    }
  }
  return text;
}

/// The names that `wait %a, %b` or `free %a, %b` lists.
llvm::SmallVector<StringRef, 8> listed(StringRef line) {
  llvm::SmallVector<StringRef, 8> names;
  line.ltrim().split(' ').second.split(names, ", ");
  return names;
}

StringRef resultOf(StringRef line) { return line.ltrim().split(' ').first; }

class Prefetch : public testing::TestWithParam<const char *> {
protected:
  std::string plan() const { return std::string(GetParam()) + ".hp"; }
};

TEST_P(Prefetch, zeroStartsNothingEarly) {
  std::string text = expand(plan(), "0");
  EXPECT_EQ(StringRef(text).count("async"), 0u);
  EXPECT_EQ(StringRef(text).count("wait %"), 0u);
}

TEST_P(Prefetch, whatComputesKeepsItsPlace) {
  auto kept = [](StringRef text) {
    std::vector<std::string> lines;
    for (StringRef line : linesOf(text)) {
      if (!isUnshard(line) && !isWait(line) && !isFree(line)) {
        lines.push_back(withoutFlag(line));
      }
    }
    return lines;
  };
  auto gathered = [](StringRef text) {
    std::multiset<std::string> lines;
    for (StringRef line : linesOf(text)) {
      if (isUnshard(line)) {
        lines.insert(withoutFlag(line));
      }
    }
    return lines;
  };
  auto freed = [](StringRef text) {
    std::multiset<std::string> names;
    for (StringRef line : linesOf(text)) {
      if (isFree(line)) {
        for (StringRef name : listed(line)) {
          names.insert(name.str());
        }
      }
    }
    return names;
  };
  std::string plain = expand(plan(), "0");
  for (StringRef depth : {"1", "2", "3", "100"}) {
    std::string text = expand(plan(), depth);
    EXPECT_EQ(kept(text), kept(plain)) << depth.str();
    EXPECT_EQ(gathered(text), gathered(plain)) << depth.str();
    EXPECT_EQ(freed(text), freed(plain)) << depth.str();
    EXPECT_NE(text, plain);
  }
}

/// At most `depth` bundles are started that nothing has read yet while another
/// is in use, and one of them is the next to be read.
TEST_P(Prefetch, bundlesAreStartedSoFarAhead) {
  for (unsigned depth : {1u, 2u, 3u}) {
    std::string text = expand(plan(), std::to_string(depth));
    llvm::SetVector<StringRef> ahead;
    unsigned most = 0, waited = 0;
    for (StringRef line : linesOf(text)) {
      if (isUnshard(line) && isAsync(line)) {
        ahead.insert(resultOf(line));
        most = std::max<unsigned>(most, ahead.size());
      }
      if (isWait(line) && listed(line).size() == 1 &&
          ahead.contains(listed(line)[0])) {
        ahead.remove(listed(line)[0]);
        ++waited;
      }
      for (StringRef name : ahead) { // unless there is nothing to compute
        EXPECT_FALSE(line.contains((name + "@").str()) &&
                     !line.contains(("type(" + name + "@").str()))
            << line.str();
      }
    }
    EXPECT_TRUE(ahead.empty());
    EXPECT_EQ(most, depth);
    EXPECT_GT(waited, 3u);
  }
}

TEST_P(Prefetch, twoBucketsOfGradientsAreUnderWayAtMost) {
  std::string text = expand(plan(), "1");
  llvm::StringMap<unsigned> bucketOf;
  std::set<unsigned> underWay;
  unsigned bucket = 0, waits = 0;
  size_t most = 0;
  bool inRun = false;
  for (StringRef line : linesOf(text)) {
    if (line.contains(" = reduce_grad ")) {
      bucket += !inRun;
      inRun = true;
      if (isAsync(line)) {
        bucketOf[resultOf(line)] = bucket;
        underWay.insert(bucket);
        most = std::max(most, underWay.size());
      }
      continue;
    }
    inRun &= isFree(line);
    if (isWait(line) && bucketOf.contains(listed(line)[0])) {
      underWay.erase(bucketOf[listed(line)[0]]);
      ++waits;
    }
    EXPECT_TRUE(underWay.empty() || !line.contains("sum_squares"));
  }
  EXPECT_EQ(most, 2u);
  EXPECT_GE(bucket, 4u);
  EXPECT_EQ(waits, bucket);
}

INSTANTIATE_TEST_SUITE_P(Steps, Prefetch,
                         testing::Values("allgather", "alltoall",
                                         "alltoall_sp_off", "bias",
                                         "bias_sp_off", "kv_replicated",
                                         "kv_replicated_sp_off", "lp_off",
                                         "sp_off", "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });

} // namespace
