//===- Norms.cpp - Root mean square norms ---------------------------------===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

/// 1 / sqrt(mean(x^2) + eps) over the last dim.
static at::Tensor inverseRms(const at::Tensor &x, double eps) {
  at::Tensor variance = x.pow(2).mean(-1, /*keepdim=*/true);
  return at::rsqrt(variance + eps);
}

Tensors reference::rmsNorm(const Call &call, Operands x) {
  at::Tensor wide = widen(x[0]);
  at::Tensor normed =
      wide * inverseRms(wide, call.attrs().getFloat("eps", 1e-6));
  at::Tensor weight = widen(x[1]);
  if (call.attrs().getFlag("unit_offset")) {
    weight = weight + 1.0;
  }
  return {(normed * weight).to(x[0].scalar_type())};
}

Tensors reference::rmsNormGated(const Call &call, Operands x) {
  const at::Tensor &value = x[0], &weight = x[2];
  // All heads of all tokens as rows.
  at::Tensor rows = value.reshape({-1, value.size(-1)});
  at::Tensor gate = x[1].reshape({-1, value.size(-1)});
  at::Tensor wide = widen(rows);
  at::Tensor normed =
      wide * inverseRms(wide, call.attrs().getFloat("eps", 1e-6));
  at::Tensor scaled = weight * normed.to(value.scalar_type());
  at::Tensor gated = scaled * at::silu(widen(gate));
  return {gated.to(value.scalar_type()).reshape(value.sizes())};
}
