//===- Norms.cpp - Tensors of the norms -----------------------------------===//

#include "RowTensors.h"

using namespace hp;
using namespace hp::fused;

namespace {
/// The operands of rms_norm, or of rms_norm_gated, with strides as wanted.
struct Given {
  at::Tensor x, gate, weight;

  explicit Given(Operands operands)
      : x(inRows(operands[0], 1)), weight(operands.back().contiguous()) {
    if (operands.size() == 3) {
      gate = inRows(operands[1], 1);
    }
  }
  int64_t numRows() const { return x.numel() / x.size(-1); }
};
} // namespace

template <typename T>
static Norm<T> normOf(const Call &call, const Given &given) {
  Norm<T> norm;
  norm.width = given.x.size(-1);
  norm.eps = T(call.attrs().getFloat("eps", 1e-6));
  norm.unitOffset = call.attrs().getFlag("unit_offset");
  norm.weight = given.weight.template const_data_ptr<T>();
  norm.x = rowsOf<const T>(given.x, 1);
  norm.gate = rowsOf<const T>(given.gate, 1);
  return norm;
}

template <typename T>
static Tensors forward(const Call &call, Operands operands) {
  Given given(operands);
  Norm<T> norm = normOf<T>(call, given);
  at::Tensor y = emptyOf(given.x);
  norm.y = rowsOf<T>(y, 1);
  forEachRange(
      given.numRows(), grainOfRows(norm.width),
      [&](int64_t first, int64_t last) { normForward(norm, first, last); });
  return {y};
}

template <typename T>
static Tensors backward(const Call &call, const Adjoint &adjoint) {
  Given given(adjoint.operands);
  Norm<T> norm = normOf<T>(call, given);
  bool gated = given.gate.defined();
  at::Tensor yGradient = inRows(adjoint.cotangents[0], 1);
  at::Tensor xRunning = inRows(adjoint.running(0), 1);
  at::Tensor gateRunning = gated ? inRows(adjoint.running(1), 1) : at::Tensor();
  at::Tensor xGradient = emptyOf(given.x);
  at::Tensor gateGradient = gated ? emptyOf(given.gate) : at::Tensor();
  norm.yGradient = rowsOf<const T>(yGradient, 1);
  norm.xRunning = rowsOf<const T>(xRunning, 1);
  norm.gateRunning = rowsOf<const T>(gateRunning, 1);
  norm.xGradient = rowsOf<T>(xGradient, 1);
  norm.gateGradient = rowsOf<T>(gateGradient, 1);

  RowBlocks blocks(given.numRows());
  at::Tensor partial =
      at::empty({blocks.count(), norm.width}, given.x.options());
  T *parts = partial.data_ptr<T>();
  forEachRange(blocks.count(), 1, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      normBackward(norm, blocks.first(block), blocks.last(block),
                   parts + block * norm.width);
    }
  });
  Tensors gradients{xGradient};
  if (gated) {
    gradients.push_back(gateGradient);
  }
  gradients.push_back(
      sumOfBlocks(partial, given.weight, adjoint.running(gated ? 2 : 1)));
  return gradients;
}

const Row fused::rmsNorm = {[](const Call &call, Operands x) {
                              return x[0].scalar_type() == at::kDouble
                                         ? forward<double>(call, x)
                                         : forward<float>(call, x);
                            },
                            [](const Call &call, const Adjoint &adjoint) {
                              return adjoint.operands[0].scalar_type() ==
                                             at::kDouble
                                         ? backward<double>(call, adjoint)
                                         : backward<float>(call, adjoint);
                            }};
