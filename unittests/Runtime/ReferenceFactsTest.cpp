//===- ReferenceFactsTest.cpp - What the operations must get right --------===//
//
// Facts of the model that other implementations got wrong, each on its own,
// against plain arithmetic.
//
//===----------------------------------------------------------------------===//

#include "KernelTape.h"
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

using namespace hp;
using namespace hp::testing;

namespace {

class ReferenceFacts : public ::testing::Test {
protected:
  at::Tensor random(at::IntArrayRef sizes, at::ScalarType dtype = at::kDouble) {
    return at::randn(sizes, generator, at::dtype(at::kDouble)).to(dtype);
  }

  /// Runs one operation; all its `numResults` results.
  Tensors run(OpKind kind, llvm::ArrayRef<at::Tensor> operands,
              llvm::ArrayRef<TestAttribute> attrs = {}, const Dim &lastDim = {},
              size_t numResults = 1) {
    KernelTape tape(*kernels);
    llvm::SmallVector<KernelTape::Variable, 6> variables;
    for (const at::Tensor &operand : operands) {
      variables.push_back(tape.leaf(operand, lastDim));
    }
    KernelTape::Variable first = tape.run(kind, variables, attrs);
    Tensors results;
    for (size_t i = 0; i < numResults; ++i) {
      results.push_back(tape.value(first + i));
    }
    return results;
  }

  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(1);
  std::unique_ptr<KernelSet> kernels = makeReferenceKernels();
};

TEST_F(ReferenceFacts, NameIsReference) {
  EXPECT_EQ(kernels->name(), "reference");
}

// A residual stream: h is read by the norm and, later, by the sum. The gradient
// that the sum gives h comes first, then the norm's two terms, one by one.
TEST_F(ReferenceFacts, RunningGradientIsTheFirstTermOfTheSum) {
  at::Tensor h = random({3, 17, 64}, at::kFloat);
  at::Tensor w = random({64}, at::kFloat);
  at::Tensor later = random({3, 17, 64}, at::kFloat);
  at::Tensor cotangent = random({3, 17, 64}, at::kFloat);

  at::Tensor leaf = h.detach().requires_grad_();
  at::Tensor value = leaf * 1.0; // no leaf, as in a model
  at::Tensor inverse = at::rsqrt(value.pow(2).mean(-1, true) + 1e-6);
  at::Tensor normed = (value * inverse) * (w + 1.0);
  at::Tensor sum = value + normed.detach();
  at::Tensor wanted =
      torch::autograd::grad({sum, normed}, {leaf}, {later, cotangent})[0];

  OperationMaker maker;
  Type rows = maker.plainType(at::kFloat, h.sizes());
  Operation *norm =
      maker.make(OpKind::RmsNorm, {rows, maker.plainType(at::kFloat, {64})},
                 {floatAttr("eps", 1e-6), flagAttr("unit_offset")});
  Operation *adjoint = maker.makeAdjoint(*norm, {rows});
  Tensors inside =
      kernels->backward(*adjoint, {h, w}, {}, {cotangent}, {later, {}});
  Tensors alone = kernels->backward(*adjoint, {h, w}, {}, {cotangent}, {});
  EXPECT_TRUE(inside[0].equal(wanted));
  EXPECT_FALSE((later + alone[0]).equal(wanted))
      << "the order of the sum does not show in these numbers";
}

TEST_F(ReferenceFacts, NormConventionsDiffer) {
  at::Tensor x = random({2, 3, 8}), w = random({8});
  at::Tensor normed = x / (x * x).mean(-1, true).add(1e-2).sqrt();
  Tensors plain = run(OpKind::RmsNorm, {x, w}, {floatAttr("eps", 1e-2)});
  EXPECT_TRUE(plain[0].allclose(normed * w, 1e-13, 1e-13));
  Tensors offset = run(OpKind::RmsNorm, {x, w},
                       {floatAttr("eps", 1e-2), flagAttr("unit_offset")});
  EXPECT_TRUE(offset[0].allclose(normed * (1 + w), 1e-13, 1e-13));
  at::Tensor z = random({2, 3, 2, 8}), y = random({2, 3, 2, 8});
  at::Tensor inverse = (y * y).mean(-1, true).add(1e-2).rsqrt();
  Tensors gated =
      run(OpKind::RmsNormGated, {y, z, w}, {floatAttr("eps", 1e-2)});
  EXPECT_TRUE(
      gated[0].allclose(w * y * inverse * z / (1 + (-z).exp()), 1e-13, 1e-13));
}

// Per head first the query's rows, then the gate's; one head cannot show it.
TEST_F(ReferenceFacts, UnpackTakesQueryAndGateOfEachHead) {
  at::Tensor x = at::arange(24, at::kDouble).view({1, 2, 12});
  Dim heads("h", {2, 2, 3});
  Tensors parts = run(OpKind::Unpack, {x}, {}, heads, 2);
  for (int64_t token : {0, 1}) {
    for (int64_t head : {0, 1}) {
      for (int64_t channel : {0, 1, 2}) {
        double first = 12 * token + 6 * head + channel;
        auto at = [&](const at::Tensor &part) {
          return part[0][token][head][channel].item<double>();
        };
        EXPECT_EQ(at(parts[0]), first);
        EXPECT_EQ(at(parts[1]), first + 3);
      }
    }
  }
}

TEST_F(ReferenceFacts, RopeTurnsTheFirstChannelsByHalvesAndLeavesTheRest) {
  const int64_t rotary = 6, width = 16;
  const double theta = 1e3;
  at::Tensor x = random({2, 4, 3, width}, at::kFloat);
  at::Tensor positions = at::arange(4) * 7 + 2;
  at::Tensor y = run(OpKind::Rope, {x, positions},
                     {intAttr("rotary", rotary), floatAttr("theta", theta)})[0];
  EXPECT_TRUE(y.narrow(-1, rotary, width - rotary)
                  .equal(x.narrow(-1, rotary, width - rotary)));
  at::Tensor wide = x.to(at::kDouble);
  for (int64_t token = 0; token < 4; ++token) {
    double position = positions[token].item<double>();
    for (int64_t i = 0; i < rotary / 2; ++i) {
      double angle = position * std::pow(theta, -2.0 * i / rotary);
      at::Tensor a = wide.select(1, token).select(-1, i);
      at::Tensor b = wide.select(1, token).select(-1, i + rotary / 2);
      at::Tensor turned = y.select(1, token).to(at::kDouble);
      EXPECT_TRUE(turned.select(-1, i).allclose(
          a * std::cos(angle) - b * std::sin(angle), 1e-5, 1e-5));
      EXPECT_TRUE(
          turned.select(-1, i + rotary / 2)
              .allclose(b * std::cos(angle) + a * std::sin(angle), 1e-5, 1e-5));
    }
  }
}

// Query head i reads key head i / (heads / groups), keys up to its own
// position, scores scaled by width^-0.5.
TEST_F(ReferenceFacts, AttentionIsCausalAndGrouped) {
  const int64_t tokens = 5, heads = 6, groups = 2, width = 4;
  at::Tensor q = random({2, tokens, heads, width});
  at::Tensor k = random({2, tokens, groups, width});
  at::Tensor v = random({2, tokens, groups, width});
  at::Tensor o = run(OpKind::Sdpa, {q, k, v})[0];
  for (int64_t head = 0; head < heads; ++head) {
    int64_t group = head / (heads / groups);
    for (int64_t t = 0; t < tokens; ++t) {
      at::Tensor seen = k.narrow(1, 0, t + 1).select(2, group);
      at::Tensor query = q.select(1, t).select(1, head).unsqueeze(1);
      at::Tensor weights = ((query * seen).sum(-1) / 2.0).softmax(-1);
      at::Tensor wanted =
          (weights.unsqueeze(-1) * v.narrow(1, 0, t + 1).select(2, group))
              .sum(1);
      EXPECT_TRUE(
          o.select(1, t).select(1, head).allclose(wanted, 1e-12, 1e-12));
    }
  }
}

// The key head of value head i is i / r, and not i modulo the key heads.
TEST_F(ReferenceFacts, ValueHeadsTakeTheKeyHeadOfTheirGroup) {
  at::Tensor q = random({1, 7, 2, 4}), k = random({1, 7, 2, 4});
  at::Tensor v = random({1, 7, 6, 5});
  at::Tensor g = -random({1, 7, 6}).abs(), beta = random({1, 7, 6}).sigmoid();
  TestAttribute chunk = intAttr("chunk", 64);
  at::Tensor all = run(OpKind::GatedDeltaRule, {q, k, v, g, beta}, {chunk})[0];
  for (int64_t head = 0; head < 6; ++head) {
    auto one = [&](const at::Tensor &x, int64_t index) {
      return x.narrow(2, index, 1);
    };
    at::Tensor alone = run(OpKind::GatedDeltaRule,
                           {one(q, head / 3), one(k, head / 3), one(v, head),
                            one(g, head), one(beta, head)},
                           {chunk})[0];
    EXPECT_TRUE(one(all, head).allclose(alone, 1e-12, 1e-12)) << head;
  }
}

// One token: o = beta v (k . q) / (|k| |q| sqrt(dk)), by the sum of squares and
// not by their mean.
TEST_F(ReferenceFacts, KeysAndQueriesHaveLengthOneAndTheScale) {
  const int64_t width = 9;
  at::Tensor q = random({1, 1, 1, width}) * 5, k = random({1, 1, 1, width}) * 5;
  at::Tensor v = random({1, 1, 1, 3});
  at::Tensor g = at::full({1, 1, 1}, -0.3, at::kDouble);
  at::Tensor beta = at::full({1, 1, 1}, 0.7, at::kDouble);
  at::Tensor o = run(OpKind::GatedDeltaRule, {q, k, v, g, beta},
                     {intAttr("chunk", 64)})[0];
  at::Tensor cosine = (q * k).sum() / (q.norm() * k.norm());
  EXPECT_TRUE(o.allclose(0.7 * v * cosine / 3.0, 1e-6, 1e-6));
}

TEST_F(ReferenceFacts, LossIgnoresAndDivides) {
  at::Tensor logits = random({2, 3, 5});
  at::Tensor labels =
      at::tensor({1, -100, 4, -100, -100, 0}, at::kLong).view({2, 3});
  at::Tensor sum = run(OpKind::CrossEntropy, {logits, labels})[0];
  at::Tensor logProbability = logits.log_softmax(-1);
  at::Tensor wanted = -(logProbability[0][0][1] + logProbability[0][2][4] +
                        logProbability[1][2][0]);
  EXPECT_TRUE(sum.allclose(wanted, 1e-13, 1e-13));
  at::Tensor count = run(OpKind::CountValid, {labels})[0];
  EXPECT_EQ(count.scalar_type(), at::kLong);
  EXPECT_EQ(count.item<int64_t>(), 3);
  EXPECT_TRUE(run(OpKind::Div, {sum, count})[0].allclose(sum / 3.0));

  at::Tensor none = at::full({2, 3}, -100);
  sum = run(OpKind::CrossEntropy, {logits, none})[0];
  count = run(OpKind::CountValid, {none})[0];
  EXPECT_EQ(count.item<int64_t>(), 0);
  EXPECT_EQ(run(OpKind::Div, {sum, count})[0].item<double>(), 0);
}

TEST_F(ReferenceFacts, NamesThatDoNotExistAreErrors) {
  at::Tensor table = random({5, 4});
  for (int64_t token : {5, -1}) {
    EXPECT_THROW(run(OpKind::Embedding, {at::full({1, 2}, token), table}),
                 c10::Error);
  }
  for (int64_t label : {5, -1}) {
    EXPECT_THROW(
        run(OpKind::CrossEntropy, {random({1, 2, 5}), at::full({1, 2}, label)}),
        c10::Error);
  }
}

// A shard of a vocabulary gives zero rows for the tokens of other shards, and a
// token of no shard is an error on all of them.
TEST_F(ReferenceFacts, EmbeddingKnowsItsShardOfTheVocabulary) {
  OperationMaker maker;
  maker.module.mesh.addAxis("dp", 2);
  maker.module.mesh.addAxis("tp", 2);
  at::Tensor table = random({6, 4});
  at::Tensor tokens = at::tensor({0, 5, 2, 3}, at::kLong).view({2, 2});
  TypeData data;
  data.dtype = DType::F64;
  data.dims = {Dim("V", {6}, AxisId(1)), Dim("", {4})};
  Operation *op = maker.make(
      OpKind::Embedding,
      {maker.plainType(at::kLong, tokens.sizes()), maker.module.type(data)},
      {});
  for (int64_t rank = 0; rank < 4; ++rank) {
    at::Tensor shard = table.narrow(0, 3 * (rank % 2), 3);
    std::unique_ptr<KernelSet> set = makeReferenceKernels(rank);
    at::Tensor rows = set->forward(*op, {tokens, shard})[0];
    at::Tensor mine = tokens.div(3, "floor").eq(rank % 2).unsqueeze(-1);
    EXPECT_TRUE(rows.equal(at::embedding(table, tokens) * mine));
    EXPECT_THROW(set->forward(*op, {tokens + 1, shard}), c10::Error);
  }
}

TEST_F(ReferenceFacts, OnesHasTheTypeOfTheLoss) {
  OperationMaker maker;
  for (DType dtype : {DType::F32, DType::F64}) {
    Operation *op = maker.make(OpKind::Ones, {}, {});
    maker.module.addResult(op, "d", maker.module.scalar(dtype));
    at::Tensor one = kernels->forward(*op, {})[0];
    EXPECT_EQ(one.dim(), 0);
    EXPECT_EQ(dtypeOf(one.scalar_type()), dtype);
    EXPECT_EQ(one.item<double>(), 1);
  }
}

} // namespace
