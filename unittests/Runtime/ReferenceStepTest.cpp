//===- ReferenceStepTest.cpp - Kernels against whole-model autograd -------===//
//
// The two-layer model of PublishedModel.h, operation by operation through the
// reference kernels and back with running gradients, gives the same bits as
// one LibTorch program that is differentiated as a whole.
//
//===----------------------------------------------------------------------===//

#include "KernelTape.h"
#include "PublishedModel.h"
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

using namespace hp;
using namespace hp::testing;
using Variable = KernelTape::Variable;

namespace {

/// One shape of the model.
struct Shape {
  const char *name;
  int64_t batch, tokens;
  at::ScalarType dtype;
  PublishedSizes sizes;
};
void PrintTo(const Shape &shape, std::ostream *os) { *os << shape.name; }

/// The model as operations of the table.
class Step {
public:
  Step(KernelSet &kernels, const PublishedSizes &sizes, const Parameters &p)
      : tape(kernels), s(sizes) {
    for (const auto &[name, value] : p) {
      weights[name] = tape.leaf(value);
    }
  }

  void run(const at::Tensor &tokens, const at::Tensor &labels,
           const at::Tensor &positions) {
    Variable tok = tape.leaf(tokens), lab = tape.leaf(labels);
    pos = tape.leaf(positions);
    Variable h = tape.run(OpKind::Embedding, {tok, weights["embed"]});
    h = layer(h, "linear.");
    h = layer(h, "full.");
    h = norm(h, "norm");
    logits = linear(h, "embed");
    Variable sum = tape.run(OpKind::CrossEntropy, {logits, lab});
    Variable count = tape.run(OpKind::CountValid, {lab});
    loss = tape.run(OpKind::Div, {sum, count});
    tape.backward(loss, at::ones({}, tape.value(loss).options()));
  }

  KernelTape tape;
  std::map<std::string, Variable> weights;
  Variable logits = 0, loss = 0;

private:
  Variable linear(Variable x, const std::string &name) {
    return tape.run(OpKind::Linear, {x, weights.at(name)});
  }
  Variable norm(Variable x, const std::string &name) {
    return tape.run(OpKind::RmsNorm, {x, weights.at(name)},
                    {floatAttr("eps", s.eps), flagAttr("unit_offset")});
  }
  Variable unflatten(Variable x, int64_t heads, int64_t width) {
    tape.setLastDim(x, Dim("h", {heads, width}));
    return tape.run(OpKind::Unflatten, {x});
  }
  Variable rope(Variable x) {
    return tape.run(OpKind::Rope, {x, pos},
                    {intAttr("rotary", s.rotary), floatAttr("theta", s.theta)});
  }

  Variable layer(Variable h, const std::string &name) {
    Variable n = norm(h, name + "norm1");
    n = name == "linear." ? deltaNet(n) : attention(n);
    h = tape.run(OpKind::Add, {h, n});
    n = norm(h, name + "norm2");
    Variable gate = linear(n, name + "gate");
    Variable up = linear(n, name + "up");
    n = linear(tape.run(OpKind::SiluMul, {gate, up}), name + "down");
    return tape.run(OpKind::Add, {h, n});
  }

  Variable deltaNet(Variable x) {
    Variable mixed = linear(x, "linear.qkv");
    Variable z = linear(x, "linear.z");
    Variable b = linear(x, "linear.b");
    Variable a = linear(x, "linear.a");
    z = unflatten(z, s.valueHeads, s.valueDim);
    mixed = tape.run(OpKind::CausalConv1d, {mixed, weights["linear.conv"]});
    Dim dim;
    dim.segments = {{"q", {s.keyHeads, s.keyDim}},
                    {"k", {s.keyHeads, s.keyDim}},
                    {"v", {s.valueHeads, s.valueDim}}};
    tape.setLastDim(mixed, dim);
    Variable parts = tape.run(OpKind::Split, {mixed});
    Variable q = unflatten(parts, s.keyHeads, s.keyDim);
    Variable k = unflatten(parts + 1, s.keyHeads, s.keyDim);
    Variable v = unflatten(parts + 2, s.valueHeads, s.valueDim);
    Variable beta = tape.run(OpKind::Sigmoid, {b});
    Variable g = tape.run(
        OpKind::Decay, {a, weights["linear.A_log"], weights["linear.dt_bias"]});
    Variable o = tape.run(OpKind::GatedDeltaRule, {q, k, v, g, beta},
                          {intAttr("chunk", s.chunk)});
    o = tape.run(OpKind::RmsNormGated, {o, z, weights["linear.norm"]},
                 {floatAttr("eps", s.eps)});
    return linear(tape.run(OpKind::Flatten, {o}), "linear.out");
  }

  Variable attention(Variable x) {
    Variable both = linear(x, "full.q");
    tape.setLastDim(both, Dim("h", {s.heads, 2, s.headDim}));
    Variable q = tape.run(OpKind::Unpack, {both});
    Variable gate = q + 1;
    q = norm(q, "full.q_norm");
    Variable k = unflatten(linear(x, "full.k"), s.groups, s.headDim);
    k = norm(k, "full.k_norm");
    Variable v = unflatten(linear(x, "full.v"), s.groups, s.headDim);
    q = rope(q);
    k = rope(k);
    Variable o = tape.run(OpKind::Sdpa, {q, k, v});
    o = tape.run(OpKind::SigmoidMul, {o, gate});
    return linear(tape.run(OpKind::Flatten, {o}), "full.o");
  }

  PublishedSizes s;
  Variable pos = 0;
};

class ReferenceStep : public ::testing::TestWithParam<Shape> {};

TEST_P(ReferenceStep, EqualsWholeModelAutogradBitForBit) {
  const Shape &shape = GetParam();
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(3);
  Parameters p = publishedParameters(shape.sizes, 5, shape.dtype);
  at::Tensor tokens =
      at::randint(0, shape.sizes.vocabulary, {shape.batch, shape.tokens},
                  generator, at::dtype(at::kLong));
  at::Tensor labels = tokens.roll(-1, 1).contiguous();
  labels.select(1, shape.tokens - 1).fill_(-100);
  if (shape.tokens > 4) {
    labels.select(1, shape.tokens / 2).fill_(-100);
  }
  at::Tensor positions = at::arange(shape.tokens);

  for (auto &[name, value] : p) {
    value.requires_grad_();
  }
  at::Tensor logits = publishedLogits(shape.sizes, p, tokens, positions);
  at::Tensor loss = publishedLoss(logits, labels);
  torch::autograd::variable_list inputs;
  for (const auto &[name, value] : p) {
    inputs.push_back(value);
  }
  torch::autograd::variable_list gradients =
      torch::autograd::grad({loss}, inputs);
  for (auto &[name, value] : p) {
    value = value.detach();
  }

  std::unique_ptr<KernelSet> kernels = makeReferenceKernels();
  Step step(*kernels, shape.sizes, p);
  step.run(tokens, labels, positions);
  EXPECT_TRUE(step.tape.value(step.logits).equal(logits.detach()));
  EXPECT_TRUE(step.tape.value(step.loss).equal(loss.detach()));
  EXPECT_TRUE(loss.isfinite().item<bool>());
  EXPECT_EQ(step.tape.storageFaults, std::vector<std::string>());
  size_t index = 0;
  for (const auto &[name, value] : p) {
    const at::Tensor &made = step.tape.gradient(step.weights.at(name));
    const at::Tensor &wanted = gradients[index++];
    ASSERT_TRUE(made.defined()) << name;
    EXPECT_GT(wanted.abs().max().item<double>(), 0) << name;
    EXPECT_TRUE(made.equal(wanted))
        << name << ": largest difference "
        << (made - wanted).abs().max().item<double>();
  }
}

PublishedSizes equalHeads() {
  PublishedSizes sizes;
  sizes.groups = sizes.heads;
  sizes.keyHeads = sizes.valueHeads;
  return sizes;
}
PublishedSizes oneGroup() {
  PublishedSizes sizes;
  sizes.groups = 1;
  sizes.keyHeads = 1;
  return sizes;
}
/// Large enough for the blocked paths of matrix product and threads.
PublishedSizes larger() {
  PublishedSizes sizes;
  sizes.hidden = 192;
  sizes.intermediate = 320;
  sizes.vocabulary = 500;
  sizes.headDim = 32;
  sizes.keyDim = sizes.valueDim = 32;
  return sizes;
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ReferenceStep,
    ::testing::Values(Shape{"OneRowShort", 1, 5, at::kFloat, {}},
                      Shape{"OneRowThree", 1, 3, at::kFloat, {}},
                      Shape{"OneRowChunk", 1, 64, at::kFloat, {}},
                      Shape{"TwoRows", 2, 65, at::kFloat, {}},
                      Shape{"ThreeRowsChunks", 3, 128, at::kFloat, {}},
                      Shape{"EqualHeads", 2, 70, at::kFloat, equalHeads()},
                      Shape{"OneGroup", 2, 70, at::kFloat, oneGroup()},
                      Shape{"Larger", 4, 129, at::kFloat, larger()},
                      Shape{"LargerOneRow", 1, 130, at::kFloat, larger()},
                      Shape{"Double", 2, 67, at::kDouble, {}}),
    [](const auto &info) { return std::string(info.param.name); });

} // namespace
