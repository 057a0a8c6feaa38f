//===- PipelineMutationTest.cpp - Broken modules through the pipeline -----===//
//
// Text that is damaged but still parses reaches the verifier, the expansion and
// the analyses. None of them may crash: what verifies expands or is refused,
// and what expands verifies again and prints to a fixpoint.
//
//===----------------------------------------------------------------------===//

#include "hp/Analysis/PlanStats.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassManager.h"
#include "hp/Spec/Import.h"
#include "gtest/gtest.h"
#include <random>

using namespace hp;

namespace {

/// The micro flavor as text at `stage`, on one rank or on two of each axis but
/// dp_replicate, with everything computed again.
std::string microText(Stage stage, bool manyRanks = false) {
  DiagnosticEngine diag;
  const char *layout =
      manyRanks ? "parallelism: {data_parallel_shard_degree: 2, "
                  "context_parallel_degree: 2, tensor_parallel_degree: 2}\n"
                  "activation_checkpoint: {mode: full}\n"
                : "";
  std::optional<RunConfig> config =
      parseRunConfig(std::string("model: {spec: qwen3_5_v2, flavor: micro}\n"
                                 "training: {seq_len: 16, "
                                 "local_batch_size: 2}\n") +
                         layout,
                     "micro.yaml", {}, diag);
  std::unique_ptr<Module> module =
      importRun(*config, modelFolders(), diag, manyRanks ? 8 : 1);
  PassManager manager;
  EXPECT_TRUE(addPassesTo(stage, *module, manager, diag));
  EXPECT_TRUE(manager.run(*module, diag));
  return str(*module);
}

struct Counts {
  int parsed = 0, verified = 0, expanded = 0;
};

/// Takes `text` as far as it goes.
void drive(llvm::StringRef text, Counts &counts) {
  DiagnosticEngine diag;
  unsigned reported = 0;
  diag.setHandler([&](const Diagnostic &diagnostic) {
    reported += diagnostic.severity == Severity::Error;
    EXPECT_FALSE(diagnostic.message.empty());
  });
  std::unique_ptr<Module> module = parseModule(text, "mutant.hp", diag);
  if (!module) {
    EXPECT_GT(reported, 0u);
    return;
  }
  ++counts.parsed;
  std::string printed = str(*module);
  if (!verify(*module, diag)) {
    EXPECT_GT(reported, 0u);
    return;
  }
  ++counts.verified;
  EXPECT_EQ(reported, 0u);
  planStats(*module);
  if (module->stage == Stage::Step) {
    return;
  }
  PassManager manager;
  if (!addPassesTo(Stage::Step, *module, manager, diag) ||
      !manager.run(*module, diag)) {
    EXPECT_GT(reported, 0u);
    return;
  }
  ++counts.expanded;
  planStats(*module);
  std::string step = str(*module);
  std::unique_ptr<Module> again = parseModule(step, "step.hp", diag);
  ASSERT_TRUE(again);
  EXPECT_EQ(str(*again), step);
}

/// Words between blanks and brackets, with the place of each.
std::vector<std::pair<size_t, size_t>> wordsOf(llvm::StringRef text) {
  std::vector<std::pair<size_t, size_t>> words;
  constexpr llvm::StringLiteral ends = " \n,()[]{}:";
  for (size_t begin = 0; begin < text.size();) {
    size_t end = text.find_first_of(ends, begin);
    end = end == llvm::StringRef::npos ? text.size() : end;
    if (end > begin) {
      words.push_back({begin, end - begin});
    }
    begin = end + 1;
  }
  return words;
}

/// One or two words exchanged for others of the same text, or lines dropped,
/// doubled or swapped: damage that often still parses.
std::string mutate(const std::string &text, std::mt19937 &random) {
  auto below = [&](size_t bound) { return size_t(random() % bound); };
  std::string mutant = text;
  for (size_t edits = 1 + below(2); edits > 0; --edits) {
    if (below(3) != 0) {
      auto words = wordsOf(mutant);
      auto [at, length] = words[below(words.size())];
      auto [from, fromLength] = words[below(words.size())];
      mutant.replace(at, length, mutant.substr(from, fromLength));
      continue;
    }
    std::vector<std::string> lines;
    llvm::StringRef rest = mutant;
    while (!rest.empty()) {
      auto [line, after] = rest.split('\n');
      lines.push_back(line.str());
      rest = after;
    }
    size_t a = below(lines.size()), b = below(lines.size());
    switch (below(3)) {
    case 0:
      lines.erase(lines.begin() + a);
      break;
    case 1:
      lines.insert(lines.begin() + a, lines[b]);
      break;
    default:
      std::swap(lines[a], lines[b]);
    }
    mutant.clear();
    for (const std::string &line : lines) {
      mutant += line + "\n";
    }
  }
  return mutant;
}

void driveMutants(Stage stage, int count, Counts &counts,
                  bool manyRanks = false) {
  std::string text = microText(stage, manyRanks);
  std::mt19937 random(20240901);
  for (int i = 0; i < count; ++i) {
    drive(mutate(text, random), counts);
  }
}

TEST(PipelineMutation, specsNeverCrashVerifierExpansionOrAnalysis) {
  Counts counts;
  driveMutants(Stage::Spec, 6000, counts);
  // The mutants get far enough to mean something.
  EXPECT_GT(counts.parsed, 300);
  EXPECT_GT(counts.verified, 60);
  EXPECT_GT(counts.expanded, 30);
}

TEST(PipelineMutation, parallelPlansNeverCrashPassesOrExpansion) {
  for (Stage stage : {Stage::Spec, Stage::TP, Stage::AC, Stage::Plan}) {
    Counts counts;
    driveMutants(stage, 1500, counts, /*manyRanks=*/true);
    EXPECT_GT(counts.parsed, 40) << name(stage).str();
    EXPECT_GT(counts.verified, 5) << name(stage).str();
    EXPECT_GT(counts.expanded, 2) << name(stage).str();
  }
}

TEST(PipelineMutation, stepsNeverCrashVerifierOrAnalysis) {
  for (bool manyRanks : {false, true}) {
    Counts counts;
    driveMutants(Stage::Step, manyRanks ? 1500 : 4000, counts, manyRanks);
    EXPECT_GT(counts.parsed, manyRanks ? 50 : 200);
    EXPECT_GT(counts.verified, manyRanks ? 0 : 5);
  }
}

TEST(PipelineMutation, microSpecTruncatedAtEveryByteIsALocatedError) {
  std::string text = microText(Stage::Spec);
  text = llvm::StringRef(text).rtrim().str(); // the last byte closes the module
  for (size_t length = 0; length < text.size(); ++length) {
    DiagnosticEngine diag;
    Location first;
    diag.setHandler([&](const Diagnostic &diagnostic) {
      if (!first) {
        first = diagnostic.loc;
      }
    });
    EXPECT_FALSE(
        parseModule(llvm::StringRef(text).take_front(length), "cut.hp", diag))
        << length;
    EXPECT_GT(first.line, 0u) << length;
  }
}

} // namespace
