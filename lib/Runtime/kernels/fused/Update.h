//===- Update.h - Sums of squares and AdamW in one pass ---------*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_UPDATE_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_UPDATE_H

#include "../../StepKernels.h"

namespace hp::fused {

/// hp::sumSquares in one pass; the same on any number of threads.
at::Tensor sumSquares(const at::Tensor &gradient);

/// hp::adamw in one pass that reads the gradient and does not write to it.
void adamw(StoredParameter &parameter, at::Tensor gradient, double coefficient,
           double learningRate, int64_t count, const AdamWConstants &constants);

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_UPDATE_H
