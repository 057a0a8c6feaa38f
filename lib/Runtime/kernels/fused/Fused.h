//===- Fused.h - What the fused kernels share -------------------*- C++ -*-===//
//
// A fused kernel is one row of Ops.def in one or few passes over memory,
// forward and backward written out. Tensors stop here: files named *Simd.cpp
// work on plain memory and are compiled for several sets of instructions.
//
// Results and gradients are new tensors, dense in the order of their type. A
// running gradient is read and not written to. Work is cut so that no result
// depends on the number of threads.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_FUSED_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_FUSED_H

#include "../reference/Reference.h"
#include "Threads.h"

namespace hp::fused {

using reference::Call;
using reference::Operands;

/// What the adjoint of an operation is given; see KernelSet::backward.
struct Adjoint {
  Operands operands, saved, cotangents, acc;

  /// The running gradient of the `index`-th gradient; undefined: none.
  at::Tensor running(size_t index) const {
    return index < acc.size() ? acc[index] : at::Tensor();
  }
};

/// A row of the table. The kernels may assume that every operand has elements,
/// that the floating ones are all float32 or all float64, that at least one
/// cotangent is there.
struct Row {
  Tensors (*forward)(const Call &call, Operands operands);
  Tensors (*backward)(const Call &call, const Adjoint &adjoint);
};

//--- Layout.cpp --------------------------------------------------------------
/// `x`, copied if its last dim does not have stride 1.
at::Tensor withUnitStride(const at::Tensor &x);
/// A dense tensor of the shape of `x`, in the order of its dims.
at::Tensor emptyOf(const at::Tensor &x);
/// A dense gradient of the shape of `x` to add to: a copy of the running one,
/// or zeros.
at::Tensor gradientToAddTo(const at::Tensor &x, const at::Tensor &running);

//--- The rows
//------------------------------------------------------------------
extern const Row gatedDeltaRule, gdrSummary; // DeltaRule.cpp
extern const Row causalConv1d;               // Convolution.cpp
extern const Row rmsNorm;                    // Norms.cpp: gated or not
extern const Row sigmoidMul, siluMul, decay; // Gates.cpp
extern const Row rope;                       // Rope.cpp
extern const Row crossEntropy, embedding;    // Loss.cpp

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_FUSED_H
