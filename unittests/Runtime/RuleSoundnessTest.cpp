//===- RuleSoundnessTest.cpp - What the rules accept is right -------------===//
//
// For every local and view row, every combination of states of its operands on
// an axis of two ranks is put to the type engine; what it accepts must be what
// two ranks compute. Planted mistakes show that the test can fail, and known
// good layouts that the engine does not refuse everything.
//
//===----------------------------------------------------------------------===//

#include "Soundness.h"
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

class RuleSoundness : public ::testing::TestWithParam<KernelRow> {};

TEST_P(RuleSoundness, AcceptsOnlyWhatTwoRanksComputeRight) {
  Soundness soundness(GetParam());
  int accepted = 0;
  soundness.enumerate([&](const TypeList &types) {
    if (auto results = soundness.infer(types)) {
      ++accepted;
      EXPECT_EQ(soundness.judge(types, *results), "")
          << soundness.describe(types);
    }
  });
  RecordProperty("accepted", accepted);
  EXPECT_GT(accepted, 0);
}

INSTANTIATE_TEST_SUITE_P(Rows, RuleSoundness, ::testing::ValuesIn(kernelRows()),
                         [](const auto &info) { return info.param.name; });

/// A row with its operands and results in named states: I, R, P, or the number
/// of the dim that is cut.
struct Layout {
  const char *name;
  const char *row;
  std::vector<const char *> operands;
  std::vector<const char *> results;
  /// What the judge must say; nothing of a good layout.
  const char *fault = "";
};
void PrintTo(const Layout &layout, std::ostream *os) { *os << layout.name; }

/// The typing of a layout, ready to be judged.
struct TypedLayout {
  explicit TypedLayout(const Layout &layout)
      : soundness(*llvm::find_if(
            kernelRows(),
            [&](const KernelRow &row) { return row.name == layout.row; })),
        operands(
            soundness.inNamedStates(soundness.operandTypes(), layout.operands)),
        results(
            soundness.inNamedStates(soundness.resultTypes(), layout.results)) {}

  Soundness soundness;
  TypeList operands, results;
};

//===----------------------------------------------------------------------===//
// Layouts in use
//===----------------------------------------------------------------------===//

const Layout goodLayouts[] = {
    {"VocabularyParallelTable", "embedding", {"I", "0"}, {"P"}},
    {"ColumnParallel", "linear", {"R", "0"}, {"2"}},
    {"ColumnParallelOfSegments", "linear_fused", {"R", "0"}, {"2"}},
    {"RowParallel", "linear", {"2", "1"}, {"P"}},
    {"RowParallelOfHeads", "linear_heads", {"2", "1"}, {"P"}},
    {"TokensCut", "linear", {"1", "R"}, {"1"}},
    {"BiasAfterReduction", "bias_add", {"I", "I"}, {"I"}},
    {"BiasOfColumns", "bias_add", {"2", "0"}, {"2"}},
    {"NormOfASequenceShard", "rms_norm", {"1", "R"}, {"1"}},
    {"NormOfEachHead", "rms_norm_unit_offset", {"2", "R"}, {"2"}},
    {"GatedNormOfEachHead", "rms_norm_gated", {"2", "2", "R"}, {"2"}},
    {"RopeOfHeads", "rope", {"2", "I"}, {"2"}},
    {"RopeOfASequenceShard", "rope", {"1", "0"}, {"1"}},
    {"ConvolutionOfChannels", "causal_conv1d", {"2", "0"}, {"2"}},
    {"ConvolutionWithHalo",
     "causal_conv1d_halo_blocks_2",
     {"1", "1", "R"},
     {"1"}},
    {"DecayOfHeads", "decay", {"2", "0", "0"}, {"2"}},
    {"DecayOfASequenceShard", "decay", {"1", "R", "R"}, {"1"}},
    {"DeltaRuleOfHeads",
     "gated_delta_rule_groups_2",
     {"2", "2", "2", "2", "2"},
     {"2"}},
    {"DeltaRuleOfOneGroup",
     "gated_delta_rule_groups_1",
     {"R", "R", "2", "2", "2"},
     {"2"}},
    {"DeltaRuleWithState",
     "gated_delta_rule_state_blocks_2",
     {"1", "1", "1", "1", "1", "1"},
     {"1"}},
    {"AttentionOfHeads", "sdpa_groups_2", {"2", "2", "2"}, {"2"}},
    {"AttentionOfOneGroup", "sdpa_groups_1", {"2", "R", "R"}, {"2"}},
    {"AttentionOfAQueryShard", "sdpa_groups_2", {"1", "R", "R"}, {"1"}},
    {"GateOfHeads", "sigmoid_mul", {"2", "2"}, {"2"}},
    {"MlpOfColumns", "silu_mul", {"2", "2"}, {"2"}},
    {"SumOfPartials", "add", {"P", "P"}, {"P"}},
    {"LossOfTokens", "cross_entropy", {"1", "1"}, {"P"}},
    {"LossOfRows", "cross_entropy", {"0", "0"}, {"P"}},
    {"LossOnEveryRank", "cross_entropy", {"I", "I"}, {"I"}},
    {"CountOfTokens", "count_valid", {"1"}, {"P"}},
    {"MeanOfPartials", "div", {"P", "I"}, {"P"}},
    {"SplitOfSegments", "split", {"2"}, {"2", "2", "2"}},
    {"HeadsOfAProjection", "unflatten", {"2"}, {"2"}},
    {"HeadsToAProjection", "flatten", {"2"}, {"2"}},
    {"QueryAndGateOfHeads", "unpack", {"2"}, {"2", "2"}},
    {"RepeatedHeads", "repeat_heads", {"2"}, {"2"}},
};

class GoodLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(GoodLayout, IsAccepted) {
  TypedLayout layout(GetParam());
  auto inferred = layout.soundness.infer(layout.operands);
  ASSERT_TRUE(inferred);
  ASSERT_EQ(inferred->size(), layout.results.size());
  for (auto [made, wanted] : llvm::zip(*inferred, layout.results)) {
    EXPECT_TRUE(made.matches(wanted));
  }
  EXPECT_EQ(layout.soundness.judge(layout.operands, layout.results), "");
}

INSTANTIATE_TEST_SUITE_P(Layouts, GoodLayout, ::testing::ValuesIn(goodLayouts),
                         [](const auto &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// Planted faults
//===----------------------------------------------------------------------===//

const Layout plantedFaults[] = {
    {"SummedFactorTakenForInvariant", "linear", {"2", "1"}, {"I"}, "result 0"},
    {"SummedFactorTakenForReplicated", "linear", {"2", "1"}, {"R"}, "result 0"},
    {"ColumnsOfAnInvariant", "linear", {"I", "0"}, {"2"}, "operand 0"},
    {"RowsWithAnInvariantWeight", "linear", {"1", "I"}, {"1"}, "operand 1"},
    {"ProductOfTwoSums", "linear", {"P", "P"}, {"P"}, "result 0"},
    {"SumTimesAnInvariant", "linear", {"P", "I"}, {"P"}, "operand 1"},
    {"BiasOnAPartial", "bias_add", {"P", "R"}, {"P"}, "result 0"},
    {"PartialPlusReplicated", "add", {"P", "R"}, {"P"}, "result 0"},
    {"InvariantPlusReplicated", "add", {"I", "R"}, {"R"}, "operand 0"},
    {"InvariantPlusReplicatedInvariant", "add", {"I", "R"}, {"I"}, "operand 1"},
    {"NormOfAPartial", "rms_norm", {"P", "R"}, {"P"}, "result 0"},
    {"NormOverACutDim", "rms_norm", {"2", "0"}, {"2"}, "result 0"},
    {"NormWeightInvariantBesideHeads",
     "rms_norm_unit_offset",
     {"2", "I"},
     {"2"},
     "operand 1"},
    {"GatedNormWeightInvariantBesideHeads",
     "rms_norm_gated",
     {"2", "2", "I"},
     {"2"},
     "operand 2"},
    {"ActivationOfAPartial", "silu_mul", {"P", "R"}, {"P"}, "result 0"},
    {"SigmoidOfAPartial", "sigmoid", {"P"}, {"P"}, "result 0"},
    {"PositionsOfAllTokens", "rope", {"1", "I"}, {"1"}, "a kernel fails"},
    {"KeysCutWithTheQueries",
     "sdpa_groups_2",
     {"1", "1", "1"},
     {"1"},
     "result 0"},
    {"KeysCutAlone", "sdpa_groups_2", {"R", "1", "1"}, {"P"}, "result 0"},
    {"HeadsCutAndGroupsWhole",
     "sdpa_groups_2",
     {"2", "R", "R"},
     {"2"},
     "result 0"},
    {"OneGroupInvariant", "sdpa_groups_1", {"2", "I", "I"}, {"2"}, "operand 1"},
    {"ValueHeadsCutAndKeyHeadsWhole",
     "gated_delta_rule_groups_2",
     {"R", "R", "2", "2", "2"},
     {"2"},
     "result 0"},
    {"SequenceCutWithoutAState",
     "gated_delta_rule_groups_2",
     {"1", "1", "1", "1", "1"},
     {"1"},
     "result 0"},
    {"SummaryOfTheWholeFromAShard",
     "gdr_summary_groups_2",
     {"1", "1", "1", "1"},
     {"P", "P"},
     "result 0"},
    {"SequenceCutWithoutAHalo", "causal_conv1d", {"1", "R"}, {"1"}, "result 0"},
    {"ChannelsWithAReplicatedFilter",
     "causal_conv1d",
     {"2", "R"},
     {"2"},
     "result 0"},
    {"LossOverAShardOfTheVocabulary",
     "cross_entropy",
     {"2", "I"},
     {"P"},
     "a kernel fails"},
    {"LossOfTokensTakenForInvariant",
     "cross_entropy",
     {"1", "1"},
     {"I"},
     "result 0"},
    {"CountOfASum", "count_valid", {"P"}, {"P"}, "result 0"},
    {"DividedByATermOfTheCount", "div", {"R", "P"}, {"P"}, "result 0"},
    {"RowsOfOneShardAlone", "embedding", {"I", "0"}, {"I"}, "result 0"},
    {"TokensThatAreTerms", "embedding", {"P", "R"}, {"P"}, "a kernel fails"},
    {"SegmentsInvariant", "split", {"2"}, {"I", "2", "2"}, "result 0"},
};

class PlantedFault : public ::testing::TestWithParam<Layout> {};

TEST_P(PlantedFault, IsRefusedAndWouldBeFound) {
  TypedLayout layout(GetParam());
  auto inferred = layout.soundness.infer(layout.operands);
  EXPECT_TRUE(!inferred || *inferred != layout.results)
      << "the engine accepts this";
  std::string fault = layout.soundness.judge(layout.operands, layout.results);
  EXPECT_NE(fault.find(GetParam().fault), std::string::npos) << fault;
}

INSTANTIATE_TEST_SUITE_P(Faults, PlantedFault,
                         ::testing::ValuesIn(plantedFaults),
                         [](const auto &info) { return info.param.name; });

// A fused q|k|v weight cut across its sections has the right shape on each
// rank; read by its segments it is another weight.
TEST(SegmentedDims, CutEachSegmentByItself) {
  Dim fused;
  fused.segments = {{"q", {2}}, {"k", {2}}, {"v", {4}}};
  at::Tensor x = at::arange(8, at::kDouble);
  EXPECT_TRUE(halfOf(x, fused, 0, 0).equal(at::tensor({0., 2., 4., 5.})));
  EXPECT_TRUE(halfOf(x, fused, 0, 1).equal(at::tensor({1., 3., 6., 7.})));
  Pair halves{halfOf(x, fused, 0, 0), halfOf(x, fused, 0, 1)};
  EXPECT_TRUE(joined(halves, fused, 0).equal(x));
  Pair contiguous{x.narrow(0, 0, 4), x.narrow(0, 4, 4)};
  EXPECT_FALSE(joined(contiguous, fused, 0).equal(x));
}

} // namespace
