//===- Layout.cpp - Tensors as the vectorized code wants them -------------===//

#include "Fused.h"

using namespace hp;

at::Tensor fused::withUnitStride(const at::Tensor &x) {
  return x.dim() == 0 || x.stride(-1) == 1 ? x : x.contiguous();
}

at::Tensor fused::emptyOf(const at::Tensor &x) {
  return at::empty(x.sizes(), x.options());
}

at::Tensor fused::gradientToAddTo(const at::Tensor &x,
                                  const at::Tensor &running) {
  if (!running.defined()) {
    return at::zeros(x.sizes(), x.options());
  }
  return running.clone(at::MemoryFormat::Contiguous);
}
