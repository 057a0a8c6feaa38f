//===- Storage.cpp - The storage marks of Ops.def, kept -------------------===//
//
// LibTorch operations may return an operand itself, a slice of something
// larger, or one tensor twice. The step program counts bytes by the table's
// marks, so what the table calls fresh is made fresh here.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"

using namespace hp;

bool reference::ownsStorage(const at::Tensor &x) {
  return int64_t(x.storage().nbytes()) == x.numel() * x.element_size();
}

bool reference::sharesStorage(const at::Tensor &x, const at::Tensor &y) {
  return x.defined() && y.defined() && x.numel() != 0 &&
         x.storage().is_alias_of(y.storage());
}

at::Tensor reference::fresh(const at::Tensor &x, Operands others) {
  bool shared = llvm::any_of(
      others, [&](const at::Tensor &other) { return sharesStorage(x, other); });
  return shared || !ownsStorage(x) ? x.clone() : x;
}
