//===- Elementwise.cpp - Operations on one element at a time --------------===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

Tensors reference::biasAdd(const Call &call, Operands x) {
  return {x[0] + x[1]};
}

Tensors reference::add(const Call &call, Operands x) { return {x[0] + x[1]}; }

Tensors reference::cast(const Call &call, Operands x) {
  DType to = parseDType(call.attrs().getText("to")).value_or(DType::F32);
  return {x[0].to(scalarType(to))};
}

Tensors reference::sigmoid(const Call &call, Operands x) {
  return {at::sigmoid(x[0])};
}

Tensors reference::sigmoidMul(const Call &call, Operands x) {
  // The published model flattens the heads of both before it multiplies, which
  // copies the gate: it is every other half of a head's rows.
  at::Tensor gate = x[1].contiguous();
  at::Tensor value = x[0].contiguous();
  return {value * at::sigmoid(gate)};
}

Tensors reference::siluMul(const Call &call, Operands x) {
  at::Tensor gate = at::silu(x[0]);
  return {gate * x[1]};
}

Tensors reference::decay(const Call &call, Operands x) {
  const at::Tensor &a = x[0], &logA = x[1], &bias = x[2];
  at::Tensor rate = widen(logA).exp().neg();
  at::Tensor step = at::softplus(widen(a) + bias);
  return {rate * step};
}
