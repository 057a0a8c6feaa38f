//===- GatedDeltaRuleTest.cpp - Chunks against the recurrence -------------===//
//
// The chunked form against the recurrence, token by token in float64, forward
// and all five gradients, at lengths around the chunk and the convolution, with
// mild and with extreme decay; and the recurrence against values worked by
// hand.
//
//===----------------------------------------------------------------------===//
#include "Qwen35Reference.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

using at::Tensor;
using namespace reference;

namespace {

constexpr int64_t Lengths[] = {1, 2, 3, 4, 63, 64, 65, 127, 129};
constexpr int64_t Batch = 2, KeyHeads = 2, ValueHeads = 4, KeyDim = 8,
                  ValueDim = 6;
const char *const Names[] = {"query", "key", "value", "g", "beta"};

/// The five operands, in the order of Names.
using Operands = std::vector<Tensor>;

/// Random operands in float64. With `extreme`, each token decays the state by
/// exp(-16 softplus(~10)).
Operands makeOperands(int64_t length, bool extreme) {
  at::Generator generator =
      at::detail::createCPUGenerator(static_cast<uint64_t>(17 + length));
  auto normal = [&](at::IntArrayRef shape) {
    return at::empty(shape, at::dtype(at::kDouble)).normal_(0, 1, generator);
  };
  Tensor query = normal({Batch, length, KeyHeads, KeyDim});
  Tensor key = normal({Batch, length, KeyHeads, KeyDim});
  Tensor value = normal({Batch, length, ValueHeads, ValueDim});
  Tensor a = normal({Batch, length, ValueHeads});
  Tensor g =
      extreme ? at::softplus(a + 10.0) * -16.0 : at::softplus(a - 2.0) * -1.0;
  Tensor beta = normal({Batch, length, ValueHeads}).sigmoid();
  return {query, key, value, g, beta};
}

using Rule = Tensor (*)(Tensor, Tensor, Tensor, Tensor, Tensor);

struct Outcome {
  Tensor output;
  std::vector<Tensor> grads;
};

/// Output and gradients in float64, of `rule` run in `dtype` with a fixed
/// random gradient of the output.
Outcome run(Rule rule, const Operands &operands, at::ScalarType dtype) {
  Operands leaves;
  for (const Tensor &operand : operands) {
    leaves.push_back(operand.to(dtype).clone().set_requires_grad(true));
  }
  Tensor output = rule(leaves[0], leaves[1], leaves[2], leaves[3], leaves[4]);
  at::Generator generator = at::detail::createCPUGenerator(5);
  Tensor gradient = at::empty(output.sizes(), at::dtype(at::kDouble))
                        .normal_(0, 1, generator);
  output.backward(gradient.to(dtype));
  Outcome outcome{output.detach().to(at::kDouble), {}};
  for (const Tensor &leaf : leaves) {
    outcome.grads.push_back(leaf.grad().to(at::kDouble));
  }
  return outcome;
}

/// Largest difference, relative to the largest magnitude wanted or to `floor`,
/// whichever is more. NaN if either is.
double deviation(const Tensor &got, const Tensor &want, double floor = 1e-12) {
  if (!got.isfinite().all().item<bool>() || got.sizes() != want.sizes()) {
    return std::nan("");
  }
  return (got - want).abs().max().item<double>() /
         std::max(want.abs().max().item<double>(), floor);
}

void expectChunkedEqualsRecurrent(at::ScalarType dtype, bool extreme,
                                  double tolerance) {
  double worst = 0.0;
  for (int64_t length : Lengths) {
    SCOPED_TRACE("length " + std::to_string(length));
    Operands operands = makeOperands(length, extreme);
    Outcome want = run(recurrentGatedDeltaRule, operands, at::kDouble);
    Outcome got = run(chunkGatedDeltaRule, operands, dtype);
    double d = deviation(got.output, want.output);
    EXPECT_LE(d, tolerance) << "output";
    worst = std::max(worst, d);
    for (size_t i = 0; i < want.grads.size(); ++i) {
      // A decay that leaves nothing of the state has no gradient to speak of:
      // hold it against the other gradients.
      d = deviation(got.grads[i], want.grads[i],
                    /*floor=*/i == 3 ? 1.0 : 1e-12);
      EXPECT_LE(d, tolerance) << "gradient of " << Names[i];
      worst = std::max(worst, d);
    }
  }
  printf("worst deviation %.2e\n", worst);
}

TEST(GatedDeltaRule, chunksGiveTheRecurrence) {
  expectChunkedEqualsRecurrent(at::kDouble, /*extreme=*/false, 1e-12);
}

TEST(GatedDeltaRule, chunksGiveTheRecurrenceUnderExtremeDecay) {
  expectChunkedEqualsRecurrent(at::kDouble, /*extreme=*/true, 1e-12);
}

TEST(GatedDeltaRule, chunksInFloat32GiveTheRecurrence) {
  expectChunkedEqualsRecurrent(at::kFloat, /*extreme=*/false, 1e-5);
}

TEST(GatedDeltaRule, chunksInFloat32GiveTheRecurrenceUnderExtremeDecay) {
  expectChunkedEqualsRecurrent(at::kFloat, /*extreme=*/true, 1e-5);
}

/// One key head of two channels, one value head of one channel, two tokens
/// whose keys are equal and queries too. With k = q = (1,0), S1 = b1 v1 and S2
/// = e^g S1 + b2 (v2 - e^g S1) in the first channel.
TEST(GatedDeltaRule, recurrenceOfTwoTokensByHand) {
  auto tensor = [](std::vector<double> values, at::IntArrayRef shape) {
    return at::tensor(values, at::dtype(at::kDouble)).reshape(shape);
  };
  Tensor unit = tensor({3, 0, 3, 0},
                       {1, 2, 1, 2}); // of length three: the rule makes it one
  Tensor value = tensor({5, 7}, {1, 2, 1, 1});
  Tensor g = tensor({-0.25, -0.5}, {1, 2, 1});
  Tensor beta = tensor({0.5, 0.25}, {1, 2, 1});
  double first = 0.5 * 5, kept = std::exp(-0.5) * first,
         second = kept + 0.25 * (7 - kept);
  for (Rule rule : {recurrentGatedDeltaRule, chunkGatedDeltaRule}) {
    Tensor output = rule(unit, unit, value, g, beta).flatten();
    EXPECT_NEAR(output[0].item<double>(), first / std::sqrt(2.0), 1e-6);
    EXPECT_NEAR(output[1].item<double>(), second / std::sqrt(2.0), 1e-6);
  }
}

/// Value heads 0 and 1 read key head 0, heads 2 and 3 key head 1.
TEST(GatedDeltaRule, valueHeadsShareKeyHeadsInGroups) {
  Operands x = makeOperands(5, /*extreme=*/false);
  for (Rule rule : {recurrentGatedDeltaRule, chunkGatedDeltaRule}) {
    Tensor before = rule(x[0], x[1], x[2], x[3], x[4]);
    Tensor key = x[1].clone();
    key.select(2, 0).add_(1.0);
    Tensor after = rule(x[0], key, x[2], x[3], x[4]);
    EXPECT_TRUE(before.slice(2, 2).equal(after.slice(2, 2)));
    EXPECT_FALSE(before.select(2, 0).equal(after.select(2, 0)));
    EXPECT_FALSE(before.select(2, 1).equal(after.select(2, 1)));
  }
}

} // namespace
