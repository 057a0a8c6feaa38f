//===- Reference.h - What the reference kernels share -----------*- C++ -*-===//
//
// A reference kernel is the forward of one row of Ops.def as the published
// model writes it, one LibTorch call after the other. It runs twice: without
// gradients for the forward operation, and on leaves for the backward one,
// where LibTorch differentiates it. Gradients of a tensor that is used twice
// are summed in reverse order of the calls that use it, so the order of calls
// is part of the result: one statement a call where it matters.
//
// "In fp32" means at least fp32: float64 operands stay float64.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_REFERENCE_REFERENCE_H
#define HP_LIB_RUNTIME_KERNELS_REFERENCE_REFERENCE_H

#include "hp/Runtime/Kernels.h"
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

namespace hp::reference {

/// What a kernel may ask besides its operands: the operation, forward or
/// backward, and where this rank stands.
class Call {
public:
  Call(const Operation &op, int64_t rank) : op(op), rank(rank) {}

  const AttributeList &attrs() const { return op.attrs; }
  /// The global dims of forward operand `index`.
  llvm::ArrayRef<Dim> dims(unsigned index) const;
  /// The dtype of result `index` of a forward operation; fp32 if it is dropped.
  DType resultDType(unsigned index) const;
  /// Number of ranks over `axes`.
  int64_t numRanks(llvm::ArrayRef<AxisId> axes) const;
  /// Position of this rank among them; the last axis runs fastest.
  int64_t position(llvm::ArrayRef<AxisId> axes) const;

private:
  const Mesh &mesh() const;
  const Operation &op;
  int64_t rank;
};

using Operands = llvm::ArrayRef<at::Tensor>;
using Kernel = Tensors (*)(const Call &, Operands);

/// LibTorch's name of a dtype.
at::ScalarType scalarType(DType dtype);

/// `x.float()` of the published model: fp32, or fp64 where `x` is.
inline at::ScalarType wideType(const at::Tensor &x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}
inline at::Tensor widen(const at::Tensor &x) { return x.to(wideType(x)); }

//--- Linear.cpp --------------------------------------------------------------
Tensors embedding(const Call &call, Operands x);
Tensors linear(const Call &call, Operands x);

//--- Elementwise.cpp ---------------------------------------------------------
Tensors biasAdd(const Call &call, Operands x);
Tensors add(const Call &call, Operands x);
Tensors cast(const Call &call, Operands x);
Tensors sigmoid(const Call &call, Operands x);
Tensors sigmoidMul(const Call &call, Operands x);
Tensors siluMul(const Call &call, Operands x);
Tensors decay(const Call &call, Operands x);

//--- Norms.cpp ---------------------------------------------------------------
Tensors rmsNorm(const Call &call, Operands x);
Tensors rmsNormGated(const Call &call, Operands x);

//--- Attention.cpp -----------------------------------------------------------
Tensors rope(const Call &call, Operands x);
Tensors sdpa(const Call &call, Operands x);
/// cp.ring where the ring is one rank: sdpa, and the log-sum-exp.
Tensors ringOfOne(const Call &call, Operands x);

//--- Convolution.cpp, DeltaRule.cpp ------------------------------------------
Tensors causalConv1d(const Call &call, Operands x);
Tensors gatedDeltaRule(const Call &call, Operands x);
Tensors gdrSummary(const Call &call, Operands x);

//--- Loss.cpp ----------------------------------------------------------------
Tensors crossEntropy(const Call &call, Operands x);
/// cross_entropy.vp where one rank has the whole vocabulary.
Tensors crossEntropyOfOne(const Call &call, Operands x);
Tensors countValid(const Call &call, Operands x);
Tensors div(const Call &call, Operands x);
Tensors ones(const Call &call, Operands x);

/// Each head of [batch, heads, tokens, channels] `times` times in a row.
at::Tensor repeatedHeads(const at::Tensor &x, int64_t times);

//--- Views.cpp ---------------------------------------------------------------
Tensors split(const Call &call, Operands x);
Tensors concat(const Call &call, Operands x);
Tensors unflatten(const Call &call, Operands x);
Tensors flatten(const Call &call, Operands x);
Tensors unpack(const Call &call, Operands x);
Tensors repeatHeads(const Call &call, Operands x);

//--- Adjoint.cpp -------------------------------------------------------------
/// The gradients of the differentiable operands of `kernel`; see Kernels.h.
Tensors differentiate(const Call &call, const OpInfo &row, Kernel kernel,
                      Operands operands, Operands cotangents, Operands acc);

//--- Storage.cpp -------------------------------------------------------------
/// Whether `x` fills its storage: no byte of it belongs to no element.
bool ownsStorage(const at::Tensor &x);
bool sharesStorage(const at::Tensor &x, const at::Tensor &y);
/// `x`, or a copy with the same order of strides where `x` has bytes to spare
/// or lies in the storage of one of `others`.
at::Tensor fresh(const at::Tensor &x, Operands others);

} // namespace hp::reference

#endif // HP_LIB_RUNTIME_KERNELS_REFERENCE_REFERENCE_H
