//===- DeltaRule.cpp - Tensors of the gated delta rule --------------------===//

#include "DeltaRule.h"
#include "Fused.h"

using namespace hp;
using namespace hp::fused;

/// [batch, tokens, heads, width], or without width; the last dim must have
/// stride 1 where there is one.
template <typename T> static Heads<T> heads(const at::Tensor &x) {
  return {static_cast<T *>(x.data_ptr()), x.stride(0), x.stride(1),
          x.stride(2)};
}
template <typename T> static Heads<const T> read(const at::Tensor &x) {
  return {static_cast<const T *>(x.const_data_ptr()), x.stride(0), x.stride(1),
          x.stride(2)};
}

namespace {
/// The operands of either row, by name, with strides as wanted.
struct Given {
  at::Tensor query, key, value, decay, beta, state;

  Given(Operands x, bool isSummary) {
    if (!isSummary) {
      query = withUnitStride(x[0]);
      x = x.drop_front();
    }
    key = withUnitStride(x[0]);
    value = withUnitStride(x[1]);
    decay = x[2];
    beta = x[3];
    if (x.size() == 5) {
      state = x[4].contiguous();
    }
  }

  /// [batch, 1, heads, keyWidth, width], as the table has it.
  at::Tensor emptyState(int64_t width) const {
    return at::empty({value.size(0), 1, value.size(2), key.size(3), width},
                     value.options());
  }
};
} // namespace

template <typename T>
static DeltaRule<T> ruleOf(const Call &call, const Given &given) {
  int64_t chunk = call.attrs().getInt("chunk", 64);
  TORCH_CHECK_VALUE(chunk > 0, "'chunk' is ", chunk, "; it must be positive");
  DeltaRule<T> rule;
  rule.batch = given.value.size(0);
  rule.tokens = given.value.size(1);
  rule.keyHeads = given.key.size(2);
  rule.valueHeads = given.value.size(2);
  rule.keyWidth = given.key.size(3);
  rule.valueWidth = given.value.size(3);
  rule.chunk = std::min(chunk, rule.tokens);
  rule.isSummary = !given.query.defined();
  if (!rule.isSummary) {
    rule.query = read<T>(given.query);
  }
  rule.key = read<T>(given.key);
  rule.value = read<T>(given.value);
  rule.decay = read<T>(given.decay);
  rule.beta = read<T>(given.beta);
  if (given.state.defined()) {
    rule.stateBefore = given.state.template const_data_ptr<T>();
  }
  return rule;
}

/// Runs all tasks over the threads, each with its own piece of scratch memory.
template <typename T>
static void runTasks(const DeltaRule<T> &rule, bool backward,
                     const at::TensorOptions &options) {
  int64_t threads = std::min<int64_t>(numThreads(), rule.numTasks());
  // From thread to thread: whole cache lines, and not the same ones.
  int64_t size = deltaRuleScratch(rule, backward) + 64;
  at::Tensor scratch = at::empty({threads * size}, options);
  T *memory = scratch.data_ptr<T>();
  int64_t grain = (rule.numTasks() + threads - 1) / threads;
  forEachRange(rule.numTasks(), grain, [&](int64_t first, int64_t last) {
    T *own = memory + first / grain * size;
    if (backward) {
      deltaRuleBackward(rule, first, last, own);
    } else {
      deltaRuleForward(rule, first, last, own);
    }
  });
}

//===----------------------------------------------------------------------===//
// gated_delta_rule
//===----------------------------------------------------------------------===//

template <typename T>
static Tensors forward(const Call &call, const Given &given) {
  DeltaRule<T> rule = ruleOf<T>(call, given);
  at::Tensor out = emptyOf(given.value);
  rule.out = heads<T>(out);
  runTasks(rule, /*backward=*/false, out.options());
  return {out};
}

template <typename T>
static Tensors backward(const Call &call, const Adjoint &adjoint) {
  Given given(adjoint.operands, /*isSummary=*/false);
  DeltaRule<T> rule = ruleOf<T>(call, given);
  at::Tensor outGradient = withUnitStride(adjoint.cotangents[0]);
  rule.outGradient = read<T>(outGradient);
  Tensors gradients;
  for (auto [index, operand] : llvm::enumerate(adjoint.operands)) {
    gradients.push_back(gradientToAddTo(operand, adjoint.running(index)));
  }
  rule.queryGradient = heads<T>(gradients[0]);
  rule.keyGradient = heads<T>(gradients[1]);
  rule.valueGradient = heads<T>(gradients[2]);
  rule.decayGradient = heads<T>(gradients[3]);
  rule.betaGradient = heads<T>(gradients[4]);
  if (gradients.size() == 6) {
    rule.stateGradient = gradients[5].template data_ptr<T>();
  }
  runTasks(rule, /*backward=*/true, given.value.options());
  return gradients;
}

const Row fused::gatedDeltaRule = {
    [](const Call &call, Operands x) {
      Given given(x, /*isSummary=*/false);
      return given.value.scalar_type() == at::kDouble
                 ? forward<double>(call, given)
                 : forward<float>(call, given);
    },
    [](const Call &call, const Adjoint &adjoint) {
      return adjoint.operands[2].scalar_type() == at::kDouble
                 ? backward<double>(call, adjoint)
                 : backward<float>(call, adjoint);
    }};

//===----------------------------------------------------------------------===//
// gdr.summary
//===----------------------------------------------------------------------===//

template <typename T>
static Tensors summarize(const Call &call, const Given &given) {
  DeltaRule<T> rule = ruleOf<T>(call, given);
  at::Tensor map = given.emptyState(rule.keyWidth);
  at::Tensor term = given.emptyState(rule.valueWidth);
  rule.map = map.data_ptr<T>();
  rule.term = term.data_ptr<T>();
  runTasks(rule, /*backward=*/false, term.options());
  return {map, term};
}

template <typename T>
static Tensors differentiateSummary(const Call &call, const Adjoint &adjoint) {
  Given given(adjoint.operands, /*isSummary=*/true);
  DeltaRule<T> rule = ruleOf<T>(call, given);
  Tensors cotangents;
  for (const at::Tensor &cotangent : adjoint.cotangents) {
    cotangents.push_back(cotangent.defined() ? cotangent.contiguous()
                                             : cotangent);
  }
  rule.mapGradient =
      cotangents[0].defined() ? cotangents[0].const_data_ptr<T>() : nullptr;
  rule.termGradient =
      cotangents[1].defined() ? cotangents[1].const_data_ptr<T>() : nullptr;
  Tensors gradients;
  for (auto [index, operand] : llvm::enumerate(adjoint.operands)) {
    gradients.push_back(gradientToAddTo(operand, adjoint.running(index)));
  }
  rule.keyGradient = heads<T>(gradients[0]);
  rule.valueGradient = heads<T>(gradients[1]);
  rule.decayGradient = heads<T>(gradients[2]);
  rule.betaGradient = heads<T>(gradients[3]);
  runTasks(rule, /*backward=*/true, given.value.options());
  return gradients;
}

const Row fused::gdrSummary = {
    [](const Call &call, Operands x) {
      Given given(x, /*isSummary=*/true);
      return given.value.scalar_type() == at::kDouble
                 ? summarize<double>(call, given)
                 : summarize<float>(call, given);
    },
    [](const Call &call, const Adjoint &adjoint) {
      return adjoint.operands[1].scalar_type() == at::kDouble
                 ? differentiateSummary<double>(call, adjoint)
                 : differentiateSummary<float>(call, adjoint);
    }};
