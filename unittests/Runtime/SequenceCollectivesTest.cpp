//===- SequenceCollectivesTest.cpp - Ring, halo, scan, sharded loss -------===//
//
// Collectives with kernels of their own, between four ranks in lockstep,
// against the whole computation and LibTorch's autograd of it: results,
// gradients, and running gradients taken along.
//
//===----------------------------------------------------------------------===//

#include "../../lib/Runtime/comm/Exchange.h"
#include "KernelTape.h"
#include "hp/IR/InferTypes.h"
#include "hp/Runtime/Interpreter.h"
#include "hp/Runtime/Pieces.h"
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

using namespace hp;
using namespace hp::testing;

namespace {

constexpr AxisId cp = 0;

class SequenceCollectivesTest : public ::testing::TestWithParam<int64_t> {
protected:
  SequenceCollectivesTest() {
    maker.module.mesh.addAxis("cp", GetParam());
    comm = makeLockstepCommunicator(maker.module.mesh);
    kernels = makeReferenceKernels(*comm);
    generator = at::make_generator<at::CPUGeneratorImpl>(9);
  }

  at::Tensor random(at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::dtype(at::kDouble));
  }

  /// A type with dim `cut` cut over cp.
  Type typeOf(const at::Tensor &x, unsigned cut, const char *name = "S") {
    TypeData data;
    data.dtype = dtypeOf(x.scalar_type());
    for (int64_t dim = 0; dim < x.dim(); ++dim) {
      data.dims.push_back(Dim(dim == cut ? name : "", {x.size(dim)}));
    }
    data.dims[cut].axes = {cp};
    return maker.module.type(data);
  }

  Ranked deal(const at::Tensor &x, unsigned cut) {
    Ranked held;
    for (const at::Tensor &piece : x.chunk(GetParam(), cut)) {
      held.push_back(piece.contiguous());
    }
    return held;
  }

  Operation *make(OpKind kind, llvm::ArrayRef<Type> operands,
                  llvm::ArrayRef<TestAttribute> attrs = {},
                  const char *dim = "") {
    Operation *op = maker.make(kind, operands, attrs);
    op->axes = {cp};
    op->dim = dim;
    return op;
  }

  /// The adjoint of `op`.
  Operation *adjointOf(const Operation &op) {
    auto types = inferTypes(maker.module, op);
    EXPECT_TRUE(bool(types)) << llvm::toString(types.takeError());
    Operation *adjoint = maker.makeAdjoint(op, *types);
    adjoint->axes = op.axes;
    adjoint->dim = op.dim;
    return adjoint;
  }

  std::vector<Ranked> run(const Operation &op, llvm::ArrayRef<Ranked> operands,
                          llvm::ArrayRef<Ranked> acc = {}) {
    return runCollective({op, *comm, kernels, operands, acc});
  }

  static void expectNear(const Ranked &have, const Ranked &want,
                         const char *what) {
    ASSERT_EQ(have.size(), want.size());
    for (size_t rank = 0; rank < have.size(); ++rank) {
      ASSERT_EQ(have[rank].sizes(), want[rank].sizes()) << what;
      EXPECT_LT((have[rank] - want[rank]).abs().max().item<double>(), 1e-11)
          << what << " on rank " << rank;
    }
  }

  OperationMaker maker;
  std::unique_ptr<Communicator> comm;
  KernelSets kernels;
  at::Generator generator;
};

/// Softmax attention by its definition, heads in groups: o and lse.
std::pair<at::Tensor, at::Tensor> attention(const at::Tensor &query,
                                            at::Tensor key, at::Tensor value) {
  int64_t times = query.size(2) / key.size(2), tokens = query.size(1);
  key = key.repeat_interleave(times, 2);
  value = value.repeat_interleave(times, 2);
  at::Tensor scores = at::einsum("bshd,bthd->bhst", {query, key}) /
                      std::sqrt(double(query.size(3)));
  at::Tensor later = at::ones({tokens, tokens}, at::kBool).triu(1);
  scores = scores.masked_fill(later, -INFINITY);
  return {at::einsum("bhst,bthd->bshd", {scores.softmax(-1), value}),
          scores.logsumexp(-1).transpose(1, 2)};
}

TEST_P(SequenceCollectivesTest, ringIsAttentionOfTheWholeSequence) {
  for (auto [heads, groups] : {std::pair{4, 2}, {3, 3}, {4, 1}}) {
    at::Tensor query = random({2, 24, heads, 8}).mul(3).requires_grad_();
    at::Tensor key = random({2, 24, groups, 8}).mul(3).requires_grad_();
    at::Tensor value = random({2, 24, groups, 8}).requires_grad_();
    auto [out, lse] = attention(query, key, value);
    at::Tensor cotangent = random(out.sizes());
    auto gradients =
        torch::autograd::grad({out}, {query, key, value}, {cotangent});

    c10::NoGradGuard noGrad;
    Operation *op = make(OpKind::CpRing,
                         {typeOf(query, 1), typeOf(key, 1), typeOf(value, 1)});
    op->results.push_back(maker.module.makeValue("o", typeOf(out, 1)));
    op->results.push_back(maker.module.makeValue("lse", typeOf(lse, 1)));
    std::vector<Ranked> operands = {deal(query, 1), deal(key, 1),
                                    deal(value, 1)};
    std::vector<Ranked> results = run(*op, operands);
    expectNear(results[0], deal(out, 1), "o");
    expectNear(results[1], deal(lse, 1), "lse");

    operands.push_back(results[0]);
    operands.push_back(results[1]);
    operands.push_back(deal(cotangent, 1));
    Operation *adjoint = adjointOf(*op);
    results = run(*adjoint, operands);
    std::vector<Ranked> acc, sums;
    for (unsigned i = 0; i < 3; ++i) {
      expectNear(results[i], deal(gradients[i], 1), "gradient");
      at::Tensor running = random(gradients[i].sizes());
      acc.push_back(deal(running, 1));
      sums.push_back(deal(running + gradients[i], 1));
    }
    results = run(*adjoint, operands, acc);
    for (unsigned i = 0; i < 3; ++i) {
      expectNear(results[i], sums[i], "running gradient");
    }
  }
}

TEST_P(SequenceCollectivesTest, ringOfLargeScoresIsFinite) {
  at::Tensor query = random({1, 12, 2, 4}).mul(300);
  at::Tensor key = random({1, 12, 2, 4}).mul(300);
  at::Tensor value = random({1, 12, 2, 4});
  auto [out, lse] = attention(query, key, value);
  Operation *op = make(OpKind::CpRing,
                       {typeOf(query, 1), typeOf(key, 1), typeOf(value, 1)});
  op->results.push_back(maker.module.makeValue("o", typeOf(out, 1)));
  op->results.push_back(maker.module.makeValue("lse", typeOf(lse, 1)));
  std::vector<Ranked> results =
      run(*op, {deal(query, 1), deal(key, 1), deal(value, 1)});
  for (const at::Tensor &piece : results[0]) {
    EXPECT_TRUE(piece.isfinite().all().item<bool>());
  }
  expectNear(results[0], deal(out, 1), "o");
}

TEST_P(SequenceCollectivesTest, haloIsTheTokensBefore) {
  for (int64_t window : {1, 3}) {
    at::Tensor x = random({2, 24, 5});
    Operation *op =
        make(OpKind::CpHalo, {typeOf(x, 1)}, {intAttr("k", window)}, "S");
    int64_t ranks = GetParam(), shard = 24 / ranks;
    Ranked want;
    at::Tensor padded = at::cat({at::zeros({2, window, 5}, x.options()), x}, 1);
    for (int64_t rank = 0; rank < ranks; ++rank) {
      want.push_back(padded.narrow(1, rank * shard, window));
    }
    expectNear(run(*op, deal(x, 1))[0], want, "halo");

    // Each token that was sent gets its gradient; the padding's is dropped.
    at::Tensor gradient = at::zeros({2, window + 24, 5}, x.options());
    Ranked given;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      given.push_back(random({2, window, 5}));
      gradient.narrow(1, rank * shard, window).add_(given.back());
    }
    gradient = gradient.slice(1, window);
    Operation *adjoint = adjointOf(*op);
    expectNear(run(*adjoint, {deal(x, 1), given})[0], deal(gradient, 1),
               "gradient");
    at::Tensor running = random(x.sizes());
    std::vector<Ranked> acc = {deal(running, 1)};
    expectNear(run(*adjoint, {deal(x, 1), given}, acc)[0],
               deal(gradient + running, 1), "running gradient");
  }
}

TEST_P(SequenceCollectivesTest, scanHandsTheStateOn) {
  int64_t ranks = GetParam();
  at::Tensor map = random({2, ranks, 3, 4, 4}).requires_grad_();
  at::Tensor term = random({2, ranks, 3, 4, 5}).requires_grad_();
  std::vector<at::Tensor> states = {at::zeros({2, 3, 4, 5}, term.options())};
  for (int64_t rank = 0; rank + 1 < ranks; ++rank) {
    states.push_back(at::matmul(map.select(1, rank), states.back()) +
                     term.select(1, rank));
  }
  at::Tensor entering = at::stack(states, 1);
  at::Tensor cotangent = random(entering.sizes());
  std::vector<at::Tensor> gradients = {at::zeros_like(map),
                                       at::zeros_like(term)};
  if (ranks > 1) {
    gradients = torch::autograd::grad({entering}, {map, term}, {cotangent});
  }
  c10::NoGradGuard noGrad;
  Operation *op =
      make(OpKind::CpScan, {typeOf(map, 1, "n"), typeOf(term, 1, "n")});
  std::vector<Ranked> operands = {deal(map, 1), deal(term, 1)};
  std::vector<Ranked> results = run(*op, operands);
  expectNear(results[0], deal(entering, 1), "state");
  operands.push_back(results[0]);
  operands.push_back(deal(cotangent, 1));
  Operation *adjoint = adjointOf(*op);
  results = run(*adjoint, operands);
  std::vector<Ranked> acc;
  for (unsigned i = 0; i < 2; ++i) {
    expectNear(results[i], deal(gradients[i], 1), "gradient");
    acc.push_back(deal(random(gradients[i].sizes()), 1));
  }
  results = run(*adjoint, operands, acc);
  for (unsigned i = 0; i < 2; ++i) {
    Ranked want;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      want.push_back(acc[i][rank] + deal(gradients[i], 1)[rank]);
    }
    expectNear(results[i], want, "running gradient");
  }
}

TEST_P(SequenceCollectivesTest, lossOverAShardedVocabulary) {
  int64_t ranks = GetParam();
  at::Tensor logits = random({2, 6, 24}).mul(20).requires_grad_();
  at::Tensor labels = at::randint(0, 24, {2, 6}, generator, at::kLong);
  labels[0][1] = -100;
  labels[1].fill_(-100);
  labels[0][2] = 0;
  labels[0][3] = 23;
  at::Tensor loss = at::cross_entropy_loss(
      logits.view({-1, 24}), labels.view({-1}), {}, at::Reduction::Sum, -100);
  at::Tensor scale = at::scalar_tensor(0.7, at::kDouble);
  at::Tensor gradient = torch::autograd::grad({loss}, {logits}, {scale})[0];
  c10::NoGradGuard noGrad;
  TypeData labelType;
  labelType.dtype = DType::I64;
  labelType.dims = {Dim("", {2}), Dim("", {6})};
  Operation *op =
      make(OpKind::CrossEntropyVp,
           {typeOf(logits, 2, "V"), maker.module.type(labelType)}, {}, "V");
  auto types = inferTypes(maker.module, *op);
  ASSERT_TRUE(bool(types)) << llvm::toString(types.takeError());
  for (Type type : *types) {
    op->results.push_back(maker.module.makeValue("r", type));
  }
  std::vector<Ranked> operands = {deal(logits, 2), Ranked(ranks, labels)};
  std::vector<Ranked> results = run(*op, operands);
  expectNear(results[0], Ranked(ranks, loss), "loss");
  expectNear(results[1], Ranked(ranks, logits.logsumexp(-1)), "lse");
  operands.push_back(results[1]);
  operands.push_back(Ranked(ranks, scale));
  expectNear(run(*adjointOf(*op), operands)[0], deal(gradient, 2), "gradient");

  // A target that no rank has is an error, and not a loss without it.
  labels[0][0] = 24;
  EXPECT_THROW(run(*op, {operands[0], Ranked(ranks, labels)}), std::exception);
}

INSTANTIATE_TEST_SUITE_P(Ranks, SequenceCollectivesTest,
                         ::testing::Values(1, 2, 3, 4));

} // namespace
