//===- FusedDeltaRuleTest.cpp - The fused gated delta rule ----------------===//
//
// Lengths, heads, chunks and strides that do not fit vectors or tiles; decays
// that leave the range of numbers.
//
//===----------------------------------------------------------------------===//

#include "FusedTesting.h"
#include <gtest/gtest.h>
#include <limits>

using namespace hp;
using namespace hp::testing;

namespace {

struct RuleShape {
  int64_t batch = 1, tokens = 1, keyHeads = 1, valueHeads = 1;
  int64_t keyWidth = 16, valueWidth = 16, chunk = 64;
  bool state = false, summary = false;
};

KernelRow ruleRow(const RuleShape &shape) {
  Dim b = dim("B", shape.batch), s = dim("S", shape.tokens);
  Dim g = dim("g", shape.keyHeads), h = dim("h", shape.valueHeads);
  Dim k = dim("k", shape.keyWidth), v = dim("v", shape.valueWidth);
  KernelRow row{"rule",
                OpKind::GatedDeltaRule,
                {{Fill::Normal, {b, s, g, k}},
                 {Fill::Normal, {b, s, g, k}},
                 {Fill::Normal, {b, s, h, v}},
                 {Fill::Negative, {b, s, h}},
                 {Fill::Unit, {b, s, h}}},
                {intAttr("chunk", shape.chunk)}};
  if (shape.summary) {
    row.kind = OpKind::GdrSummary;
    row.operands.erase(row.operands.begin());
  } else if (shape.state) {
    row.operands.push_back({Fill::Normal, {b, dim("n", 1), h, k, v}});
  }
  row.name =
      (llvm::Twine("tokens ") + llvm::Twine(shape.tokens) + ", heads " +
       llvm::Twine(shape.keyHeads) + "/" + llvm::Twine(shape.valueHeads) +
       " of " + llvm::Twine(shape.keyWidth) + "/" +
       llvm::Twine(shape.valueWidth) + ", chunk " + llvm::Twine(shape.chunk) +
       (shape.state ? ", state" : "") + (shape.summary ? ", summary" : ""))
          .str();
  return row;
}

/// A rule, the same with a state before it, and a summary.
void checkRules(RuleShape shape) {
  for (int variant = 0; variant < 3; ++variant) {
    shape.state = variant == 1;
    shape.summary = variant == 2;
    Comparison comparison(ruleRow(shape));
    comparison.check(Layout::Dense, shape.tokens % 2);
  }
}

TEST(FusedDeltaRule, TakesAnyLength) {
  for (int64_t tokens = 1; tokens <= 130; ++tokens) {
    RuleShape shape;
    shape.tokens = tokens;
    shape.chunk = tokens % 3 == 0 ? 64 : tokens % 3 == 1 ? 32 : 17;
    checkRules(shape);
  }
}

TEST(FusedDeltaRule, TakesAnyHeads) {
  for (auto [keyWidth, valueWidth] :
       std::initializer_list<std::pair<int64_t, int64_t>>{{16, 16},
                                                          {17, 33},
                                                          {32, 64},
                                                          {64, 64},
                                                          {4, 6},
                                                          {3, 130},
                                                          {100, 20},
                                                          {128, 128},
                                                          {256, 256}}) {
    for (auto [keyHeads, valueHeads] :
         std::initializer_list<std::pair<int64_t, int64_t>>{
             {1, 1}, {1, 3}, {2, 4}}) {
      RuleShape shape;
      shape.batch = 2;
      shape.tokens = 70;
      shape.keyWidth = keyWidth;
      shape.valueWidth = valueWidth;
      shape.keyHeads = keyHeads;
      shape.valueHeads = valueHeads;
      checkRules(shape);
    }
  }
}

TEST(FusedDeltaRule, TakesStrangeStrides) {
  RuleShape shape;
  shape.batch = 2;
  shape.tokens = 67;
  shape.keyHeads = 2;
  shape.valueHeads = 4;
  shape.keyWidth = 20;
  shape.valueWidth = 24;
  checkRow(ruleRow(shape));
  shape.state = true;
  checkRow(ruleRow(shape));
  shape.summary = true;
  checkRow(ruleRow(shape));
}

// A_log = log 16 and softplus of 10: e^-160 a token. Decays formed as quotients
// of exponentials, or masked after exp, overflow.
TEST(FusedDeltaRule, SurvivesExtremeDecay) {
  for (int64_t tokens : {1, 63, 64, 65, 129}) {
    for (double rate : {-160.0, -16.0, -1.0}) {
      for (bool summary : {false, true}) {
        RuleShape shape;
        shape.tokens = tokens;
        shape.keyHeads = shape.valueHeads = 2;
        shape.summary = summary;
        Comparison comparison(ruleRow(shape));
        at::Tensor decay = comparison.operands[summary ? 2 : 3];
        decay.fill_(rate);
        decay.select(2, 0).fill_(-1e-4); // beside a head that hardly forgets
        comparison.check(Layout::Dense, false);
        if (tokens > 1) {
          decay.select(1, tokens / 2).fill_(-300); // and forgets all at once
        }
        comparison.check(Layout::Dense, false);
      }
    }
  }
}

TEST(FusedDeltaRule, IsDeterminate) {
  for (bool summary : {false, true}) {
    RuleShape shape;
    shape.batch = 3;
    shape.tokens = 130;
    shape.keyHeads = 2;
    shape.valueHeads = 4;
    shape.summary = summary;
    expectDeterminate(ruleRow(shape));
  }
}

TEST(FusedDeltaRule, PassesNaNsOn) {
  RuleShape shape;
  shape.tokens = 66;
  for (size_t operand = 0; operand < 5; ++operand) {
    Comparison comparison(ruleRow(shape));
    comparison.operands[operand].select(1, 40).fill_(
        std::numeric_limits<double>::quiet_NaN());
    Made made =
        comparison.compute(*comparison.fused, false, Layout::Dense, false);
    EXPECT_FALSE(made.results[0].select(1, 40).isfinite().any().item<bool>())
        << "operand " << operand;
    EXPECT_TRUE(made.results[0].narrow(1, 0, 40).isfinite().all().item<bool>());
  }
}

} // namespace
