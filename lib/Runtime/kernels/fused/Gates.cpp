//===- Gates.cpp - Tensors of the gates and of the decay ------------------===//

#include "RowTensors.h"

using namespace hp;
using namespace hp::fused;

//===----------------------------------------------------------------------===//
// sigmoid_mul and silu_mul
//===----------------------------------------------------------------------===//

/// How many of the last dims are a row: two where the last is short and all of
/// `tensors` are dense in both.
static int64_t dimsOfARow(std::initializer_list<at::Tensor> tensors) {
  for (const at::Tensor &x : tensors) {
    if (!x.defined()) {
      continue;
    }
    if (x.dim() < 2 || x.size(-1) >= 256 || x.stride(-1) != 1 ||
        x.stride(-2) != x.size(-1)) {
      return std::min<int64_t>(1, x.dim());
    }
  }
  return 2;
}

/// Rows of `dims` dims, of tensors that may have been copied for it.
template <typename T> class GateTensors {
public:
  GateTensors(bool isSilu, int64_t dims, at::Tensor gate, at::Tensor value)
      : dims(dims), gate(inRows(gate, dims)), value(inRows(value, dims)) {
    all.isSilu = isSilu;
    all.width = 1;
    for (int64_t i = gate.dim() - dims; i < gate.dim(); ++i) {
      all.width *= gate.size(i);
    }
    numRows = gate.numel() / all.width;
    all.gate = rowsOf<const T>(this->gate, dims);
    all.value = rowsOf<const T>(this->value, dims);
  }

  template <typename Body> void forEachRow(Body body) const {
    forEachRange(numRows, grainOfRows(all.width), body);
  }

  int64_t dims, numRows;
  at::Tensor gate, value;
  Gate<T> all;
};

template <typename T, bool isSilu> static Tensors computeGate(Operands x) {
  const at::Tensor &gate = x[isSilu ? 0 : 1], &value = x[isSilu ? 1 : 0];
  GateTensors<T> tensors(isSilu, dimsOfARow({gate, value}), gate, value);
  at::Tensor y = emptyOf(value);
  tensors.all.y = rowsOf<T>(y, tensors.dims);
  tensors.forEachRow([&](int64_t first, int64_t last) {
    gateForward(tensors.all, first, last);
  });
  return {y};
}

template <typename T, bool isSilu>
static Tensors differentiateGate(const Adjoint &adjoint) {
  constexpr size_t gateAt = isSilu ? 0 : 1, valueAt = 1 - gateAt;
  const at::Tensor &gate = adjoint.operands[gateAt];
  const at::Tensor &value = adjoint.operands[valueAt];
  at::Tensor dy = adjoint.cotangents[0];
  at::Tensor gateRunning = adjoint.running(gateAt);
  at::Tensor valueRunning = adjoint.running(valueAt);
  int64_t dims = dimsOfARow({gate, value, dy, gateRunning, valueRunning});
  GateTensors<T> tensors(isSilu, dims, gate, value);
  dy = inRows(dy, dims);
  gateRunning = inRows(gateRunning, dims);
  valueRunning = inRows(valueRunning, dims);
  Tensors gradients{emptyOf(gate), emptyOf(gate)};
  tensors.all.yGradient = rowsOf<const T>(dy, dims);
  tensors.all.gateRunning = rowsOf<const T>(gateRunning, dims);
  tensors.all.valueRunning = rowsOf<const T>(valueRunning, dims);
  tensors.all.gateGradient = rowsOf<T>(gradients[gateAt], dims);
  tensors.all.valueGradient = rowsOf<T>(gradients[valueAt], dims);
  tensors.forEachRow([&](int64_t first, int64_t last) {
    gateBackward(tensors.all, first, last);
  });
  return gradients;
}

template <bool isSilu> static Row gateRow() {
  return {[](const Call &call, Operands x) {
            return x[0].scalar_type() == at::kDouble
                       ? computeGate<double, isSilu>(x)
                       : computeGate<float, isSilu>(x);
          },
          [](const Call &call, const Adjoint &adjoint) {
            return adjoint.operands[0].scalar_type() == at::kDouble
                       ? differentiateGate<double, isSilu>(adjoint)
                       : differentiateGate<float, isSilu>(adjoint);
          }};
}

const Row fused::sigmoidMul = gateRow<false>();
const Row fused::siluMul = gateRow<true>();

//===----------------------------------------------------------------------===//
// decay
//===----------------------------------------------------------------------===//

namespace {
/// The operands with strides as wanted.
struct DecayGiven {
  at::Tensor a, logA, bias;
  explicit DecayGiven(Operands x)
      : a(inRows(x[0], 1)), logA(x[1].contiguous()), bias(x[2].contiguous()) {}
  int64_t numRows() const { return a.numel() / a.size(-1); }
};
} // namespace

template <typename T> static Decay<T> decayOf(const DecayGiven &given) {
  Decay<T> all;
  all.width = given.a.size(-1);
  all.logA = given.logA.template const_data_ptr<T>();
  all.bias = given.bias.template const_data_ptr<T>();
  all.a = rowsOf<const T>(given.a, 1);
  return all;
}

template <typename T> static Tensors computeDecay(Operands x) {
  DecayGiven given(x);
  Decay<T> all = decayOf<T>(given);
  at::Tensor y = emptyOf(given.a);
  all.y = rowsOf<T>(y, 1);
  forEachRange(
      given.numRows(), grainOfRows(all.width),
      [&](int64_t first, int64_t last) { decayForward(all, first, last); });
  return {y};
}

template <typename T>
static Tensors differentiateDecay(const Adjoint &adjoint) {
  DecayGiven given(adjoint.operands);
  Decay<T> all = decayOf<T>(given);
  at::Tensor dy = inRows(adjoint.cotangents[0], 1);
  at::Tensor running = inRows(adjoint.running(0), 1);
  at::Tensor gradient = emptyOf(given.a);
  all.yGradient = rowsOf<const T>(dy, 1);
  all.aRunning = rowsOf<const T>(running, 1);
  all.aGradient = rowsOf<T>(gradient, 1);

  RowBlocks blocks(given.numRows());
  at::Tensor partial =
      at::empty({blocks.count(), 2, all.width}, given.a.options());
  T *parts = partial.data_ptr<T>();
  forEachRange(blocks.count(), 8, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      decayBackward(all, blocks.first(block), blocks.last(block),
                    parts + block * 2 * all.width);
    }
  });
  return {gradient,
          sumOfBlocks(partial.select(1, 0), given.logA, adjoint.running(1)),
          sumOfBlocks(partial.select(1, 1), given.bias, adjoint.running(2))};
}

const Row fused::decay = {[](const Call &call, Operands x) {
                            return x[0].scalar_type() == at::kDouble
                                       ? computeDecay<double>(x)
                                       : computeDecay<float>(x);
                          },
                          [](const Call &call, const Adjoint &adjoint) {
                            return adjoint.operands[0].scalar_type() ==
                                           at::kDouble
                                       ? differentiateDecay<double>(adjoint)
                                       : differentiateDecay<float>(adjoint);
                          }};
