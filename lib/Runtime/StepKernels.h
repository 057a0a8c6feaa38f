//===- StepKernels.h - What follows the last gradient -----------*- C++ -*-===//
//
// Norm, clip and optimizer, the same for every kernel set. Sums of squares and
// the norm are float64, since fp32 norms change with the sharding; AdamW is
// the arithmetic of LibTorch's C++ optimizer.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_STEPKERNELS_H
#define HP_LIB_RUNTIME_STEPKERNELS_H

#include "hp/Runtime/ParameterStore.h"
#include "llvm/ADT/ArrayRef.h"

namespace hp {

/// Sum of the squares of `gradient` in float64, elements in row-major order.
at::Tensor sumSquares(const at::Tensor &gradient);
/// Scalars added from the first to the last.
at::Tensor sumScalars(llvm::ArrayRef<at::Tensor> terms);
/// sqrt(total).
at::Tensor gradNorm(llvm::ArrayRef<at::Tensor> totals);
/// min(1, maxNorm / (norm + 1e-6)).
at::Tensor clipCoefficient(const at::Tensor &norm, double maxNorm);
/// Whether the norm is finite and, if given, the number of targets positive.
at::Tensor isFinite(llvm::ArrayRef<at::Tensor> operands);

struct AdamWConstants {
  double beta1, beta2, eps, weightDecay;
};

/// One update with gradient * coefficient, the `count`-th from 1. Scales
/// `gradient` in place, which is dead afterwards.
void adamw(StoredParameter &parameter, at::Tensor gradient, double coefficient,
           double learningRate, int64_t count, const AdamWConstants &constants);

} // namespace hp

#endif // HP_LIB_RUNTIME_STEPKERNELS_H
