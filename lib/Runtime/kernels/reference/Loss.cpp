//===- Loss.cpp - Cross entropy and its divisor ---------------------------===//

#include "Reference.h"
#include <ATen/core/Reduction.h>

using namespace hp;
using namespace hp::reference;

/// The target of a position that does not count.
static constexpr int64_t ignored = -100;

Tensors reference::crossEntropy(const Call &call, Operands x) {
  at::Tensor logits = widen(x[0]);
  logits = logits.reshape({-1, logits.size(-1)});
  at::Tensor labels = x[1].reshape({-1});
  return {at::cross_entropy_loss(logits, labels, /*weight=*/{},
                                 at::Reduction::Sum, ignored)};
}

Tensors reference::crossEntropyOfOne(const Call &call, Operands x) {
  at::Tensor lse = widen(x[0].detach()).logsumexp(-1).to(x[0].scalar_type());
  return {crossEntropy(call, x)[0], lse};
}

Tensors reference::countValid(const Call &call, Operands x) {
  return {x[0].ne(ignored).sum()};
}

Tensors reference::div(const Call &call, Operands x) {
  return {x[0] / x[1].clamp_min(1)};
}

Tensors reference::ones(const Call &call, Operands x) {
  return {at::ones({}, scalarType(call.resultDType(0)))};
}
