//===- ReferenceDeltaRuleTest.cpp - Recurrence and convolution ------------===//
//
// The chunked delta rule and the convolution against their definitions, token
// by token in float64 and differentiated by LibTorch, over sequence lengths
// that are no multiple of a chunk or shorter than the convolution.
//
//===----------------------------------------------------------------------===//

#include "KernelRows.h"
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

using namespace hp;
using namespace hp::testing;
using at::Tensor;
using torch::autograd::variable_list;

namespace {

constexpr int64_t lengths[] = {1, 2, 3, 4, 63, 64, 65, 127, 129};

/// Outputs, and gradients of all operands for a cotangent of the first output.
struct Outcome {
  Tensors results, gradients;
};

/// By LibTorch, of a function that returns one tensor.
template <typename Function>
Outcome differentiated(Function function, llvm::ArrayRef<Tensor> operands,
                       const Tensor &cotangent) {
  variable_list leaves;
  for (const Tensor &operand : operands) {
    leaves.push_back(operand.to(at::kDouble).detach().requires_grad_());
  }
  Tensor result = function(leaves);
  variable_list gradients =
      torch::autograd::grad({result}, leaves, {cotangent.to(at::kDouble)});
  Outcome outcome;
  outcome.results.push_back(result.detach());
  llvm::append_range(outcome.gradients, gradients);
  return outcome;
}

/// By the kernels.
Outcome computed(OpKind kind, llvm::ArrayRef<Tensor> operands,
                 const Tensor &cotangent, llvm::ArrayRef<TestAttribute> attrs) {
  std::unique_ptr<KernelSet> kernels = makeReferenceKernels();
  KernelTape tape(*kernels);
  llvm::SmallVector<KernelTape::Variable, 6> variables;
  for (const Tensor &operand : operands) {
    variables.push_back(tape.leaf(operand));
  }
  KernelTape::Variable result = tape.run(kind, variables, attrs);
  tape.backward(result, cotangent);
  Outcome outcome;
  outcome.results.push_back(tape.value(result));
  for (KernelTape::Variable variable : variables) {
    outcome.gradients.push_back(tape.gradient(variable));
  }
  return outcome;
}

/// Largest difference, relative to the largest element.
double difference(const Tensor &x, const Tensor &wanted) {
  Tensor wide = x.to(at::kDouble);
  double scale = wanted.abs().max().item<double>() + 1e-30;
  return (wide - wanted).abs().max().item<double>() / scale;
}

void expectClose(const Outcome &made, const Outcome &wanted, double tolerance) {
  EXPECT_TRUE(made.results[0].isfinite().all().item<bool>());
  EXPECT_LT(difference(made.results[0], wanted.results[0]), tolerance);
  ASSERT_EQ(made.gradients.size(), wanted.gradients.size());
  for (size_t i = 0; i < made.gradients.size(); ++i) {
    EXPECT_TRUE(made.gradients[i].isfinite().all().item<bool>());
    EXPECT_LT(difference(made.gradients[i], wanted.gradients[i]), tolerance)
        << "gradient " << i;
  }
}

//===----------------------------------------------------------------------===//
// The recurrence
//===----------------------------------------------------------------------===//

/// q, k, v, g, beta and, of a later shard, the state before it.
struct RuleShape {
  int64_t batch = 2, tokens = 1, keyHeads = 2, valueHeads = 2;
  int64_t keyWidth = 8, valueWidth = 6;
  bool state = false;
};

Tensors ruleOperands(const RuleShape &shape, at::ScalarType dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(8);
  auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::dtype(at::kDouble));
  };
  int64_t b = shape.batch, t = shape.tokens, h = shape.valueHeads;
  Tensors operands{random({b, t, shape.keyHeads, shape.keyWidth}),
                   random({b, t, shape.keyHeads, shape.keyWidth}),
                   random({b, t, h, shape.valueWidth}),
                   random({b, t, h}).abs().neg().mul(0.3),
                   random({b, t, h}).sigmoid()};
  if (shape.state) {
    operands.push_back(random({b, 1, h, shape.keyWidth, shape.valueWidth}));
  }
  for (Tensor &operand : operands) {
    operand = operand.to(dtype);
  }
  return operands;
}

Tensor unitLength(const Tensor &x) {
  return x / (x * x).sum(-1, true).add(1e-6).sqrt();
}

/// The definition, one token after the other.
Tensor tokenByToken(const variable_list &x) {
  int64_t tokens = x[2].size(1), heads = x[2].size(2);
  int64_t width = x[0].size(3);
  Tensor index = at::arange(heads).div(heads / x[0].size(2), "floor");
  Tensor q = unitLength(x[0].index_select(2, index)) / std::sqrt(double(width));
  Tensor k = unitLength(x[1].index_select(2, index));
  Tensor state =
      x.size() == 6
          ? x[5].select(1, 0)
          : at::zeros({x[2].size(0), heads, width, x[2].size(3)}, at::kDouble);
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < tokens; ++t) {
    Tensor key = k.select(1, t).unsqueeze(-1);
    Tensor query = q.select(1, t).unsqueeze(-1);
    state = state * x[3].select(1, t).exp().unsqueeze(-1).unsqueeze(-1);
    Tensor read = (state * key).sum(-2);
    Tensor write = (x[2].select(1, t) - read) * x[4].select(1, t).unsqueeze(-1);
    state = state + key * write.unsqueeze(-2);
    rows.push_back((state * query).sum(-2));
  }
  return at::stack(rows, 1);
}

const TestAttribute chunk64 = intAttr("chunk", 64);

class DeltaRule : public ::testing::TestWithParam<int64_t> {};

TEST_P(DeltaRule, EqualsTheRecurrence) {
  RuleShape shape;
  shape.tokens = GetParam();
  for (int64_t keyHeads : {1, 2, 4}) {
    shape.keyHeads = keyHeads;
    shape.valueHeads = 4;
    for (bool state : {false, true}) {
      shape.state = state;
      Tensors operands = ruleOperands(shape, at::kDouble);
      at::Tensor cotangent = randomLike(operands[2], 6);
      Outcome wanted = differentiated(tokenByToken, operands, cotangent);
      expectClose(
          computed(OpKind::GatedDeltaRule, operands, cotangent, {chunk64}),
          wanted, 1e-11);
      Tensors narrow = ruleOperands(shape, at::kFloat);
      expectClose(computed(OpKind::GatedDeltaRule, narrow,
                           cotangent.to(at::kFloat), {chunk64}),
                  wanted, 2e-4);
    }
  }
}

// A_log = log 16 and softplus of 10: e^-160 a token. Decays formed as quotients
// of exponentials, or masked after exp, overflow.
TEST_P(DeltaRule, SurvivesExtremeDecay) {
  RuleShape shape;
  shape.tokens = GetParam();
  for (double rate : {-160.0, -16.0, -1.0}) {
    Tensors operands = ruleOperands(shape, at::kFloat);
    operands[3].fill_(rate);
    operands[3].select(2, 0).fill_(-1e-4); // beside a head that hardly forgets
    at::Tensor cotangent = randomLike(operands[2], 6);
    expectClose(
        computed(OpKind::GatedDeltaRule, operands, cotangent, {chunk64}),
        differentiated(tokenByToken, operands, cotangent), 5e-4);
  }
}

// The sequence in two parts, with the state handed over by the summary of the
// first, is the sequence in one.
TEST_P(DeltaRule, SummaryHandsTheStateOver) {
  RuleShape shape;
  shape.tokens = GetParam() + 70;
  shape.valueHeads = 4;
  Tensors x = ruleOperands(shape, at::kDouble);
  int64_t first = GetParam();
  auto part = [&](size_t i, bool second) {
    return second ? x[i].narrow(1, first, shape.tokens - first)
                  : x[i].narrow(1, 0, first);
  };
  std::unique_ptr<KernelSet> kernels = makeReferenceKernels();
  KernelTape tape(*kernels);
  llvm::SmallVector<KernelTape::Variable, 6> head, tail;
  for (size_t i = 0; i < 5; ++i) {
    head.push_back(tape.leaf(part(i, false)));
    tail.push_back(tape.leaf(part(i, true)));
  }
  KernelTape::Variable map = tape.run(
      OpKind::GdrSummary, llvm::ArrayRef(head).drop_front(), {chunk64});
  KernelTape::Variable term = map + 1;
  tail.push_back(term);
  KernelTape::Variable before =
      tape.run(OpKind::GatedDeltaRule, llvm::ArrayRef(head), {chunk64});
  KernelTape::Variable after =
      tape.run(OpKind::GatedDeltaRule, tail, {chunk64});
  Tensor whole = tokenByToken({x[0], x[1], x[2], x[3], x[4]});
  Tensor made = at::cat({tape.value(before), tape.value(after)}, 1);
  EXPECT_LT(difference(made, whole), 1e-11);

  // From another state, the map says what is left of it.
  Tensor state = randomLike(tape.value(term), 7);
  Tensor handed = at::matmul(tape.value(map), state) + tape.value(term);
  Tensor wanted = tokenByToken({x[0], x[1], x[2], x[3], x[4], state});
  Tensors late;
  for (size_t i = 0; i < 5; ++i) {
    late.push_back(part(i, true));
  }
  late.push_back(handed);
  Tensor end = tokenByToken(variable_list(late.begin(), late.end()));
  EXPECT_LT(difference(end, wanted.narrow(1, first, shape.tokens - first)),
            1e-11);

  // Gradients through the state, as well.
  Tensor cotangent = randomLike(whole, 6);
  Outcome autograd =
      differentiated(tokenByToken, llvm::ArrayRef(x).take_front(5), cotangent);
  tape.backward(after, cotangent.narrow(1, first, shape.tokens - first));
  for (size_t i = 1; i < 5; ++i) {
    Outcome early =
        differentiated(tokenByToken,
                       {part(0, false), part(1, false), part(2, false),
                        part(3, false), part(4, false)},
                       cotangent.narrow(1, 0, first));
    Tensor sum = tape.gradient(head[i]) + early.gradients[i];
    EXPECT_LT(difference(at::cat({sum, tape.gradient(tail[i])}, 1),
                         autograd.gradients[i]),
              1e-10)
        << "gradient " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, DeltaRule, ::testing::ValuesIn(lengths));

//===----------------------------------------------------------------------===//
// The convolution
//===----------------------------------------------------------------------===//

/// silu of y_t = sum over j of w_j x_(t - 3 + j); what is before the sequence
/// is the halo, or zero.
Tensor tapByTap(const variable_list &x) {
  Tensor w = x.back();
  int64_t taps = w.size(2);
  Tensor before =
      x.size() == 3
          ? x[1]
          : at::zeros({x[0].size(0), taps - 1, x[0].size(2)}, at::kDouble);
  std::vector<Tensor> rows;
  for (int64_t t = 0; t < x[0].size(1); ++t) {
    Tensor sum = at::zeros({x[0].size(0), x[0].size(2)}, at::kDouble);
    for (int64_t tap = 0; tap < taps; ++tap) {
      int64_t source = t - (taps - 1) + tap;
      Tensor token = source < 0 ? before.select(1, source + taps - 1)
                                : x[0].select(1, source);
      sum = sum + token * w.select(2, tap).select(1, 0);
    }
    rows.push_back(sum / (1 + (-sum).exp()));
  }
  return at::stack(rows, 1);
}

class Convolution : public ::testing::TestWithParam<int64_t> {};

TEST_P(Convolution, EqualsItsDefinition) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(9);
  auto random = [&](at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::dtype(at::kDouble));
  };
  Tensor x = random({2, GetParam(), 10}), halo = random({2, 3, 10});
  Tensor w = random({10, 1, 4}), cotangent = random({2, GetParam(), 10});
  for (const Tensors &operands : {Tensors{x, w}, Tensors{x, halo, w}}) {
    Outcome wanted = differentiated(tapByTap, operands, cotangent);
    expectClose(computed(OpKind::CausalConv1d, operands, cotangent, {}), wanted,
                1e-12);
    Tensors narrow;
    for (const Tensor &operand : operands) {
      narrow.push_back(operand.to(at::kFloat));
    }
    expectClose(
        computed(OpKind::CausalConv1d, narrow, cotangent.to(at::kFloat), {}),
        wanted, 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Lengths, Convolution, ::testing::ValuesIn(lengths));

} // namespace
