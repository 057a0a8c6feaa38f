//===- Views.cpp - Splitting, joining and repeating dims ------------------===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

/// The sizes of `x` without its last `drop` dims, then `tail`.
static llvm::SmallVector<int64_t, 6> reshaped(const at::Tensor &x, int64_t drop,
                                              llvm::ArrayRef<int64_t> tail) {
  at::IntArrayRef head = x.sizes().slice(0, x.dim() - drop);
  llvm::SmallVector<int64_t, 6> sizes(head.begin(), head.end());
  llvm::append_range(sizes, tail);
  return sizes;
}

/// View of `x` with the dims `sizes`.
static at::Tensor viewed(const at::Tensor &x, llvm::ArrayRef<int64_t> sizes) {
  return x.view(at::IntArrayRef(sizes.data(), sizes.size()));
}

/// The factors of the last dim of operand 0, of which an axis may cut the
/// first: `(h=4*2*8)@tp`.
static llvm::ArrayRef<int64_t> lastFactors(const Call &call) {
  return call.dims(0).back().segments[0].factors;
}

Tensors reference::split(const Call &call, Operands x) {
  const Dim &dim = call.dims(0).back();
  llvm::SmallVector<int64_t, 4> sizes;
  for (const Segment &segment : dim.segments) {
    sizes.push_back(segment.size() / call.numRanks(dim.axes));
  }
  Tensors pieces;
  llvm::append_range(
      pieces, x[0].split_with_sizes(at::IntArrayRef(sizes.data(), sizes.size()),
                                    /*dim=*/-1));
  return pieces;
}

Tensors reference::concat(const Call &call, Operands x) {
  return {at::cat(at::TensorList(x.data(), x.size()), -1)};
}

Tensors reference::unflatten(const Call &call, Operands x) {
  int64_t inner = 1;
  for (int64_t factor : lastFactors(call).drop_front()) {
    inner *= factor;
  }
  return {viewed(x[0], reshaped(x[0], 1, {x[0].size(-1) / inner, inner}))};
}

Tensors reference::flatten(const Call &call, Operands x) {
  return {viewed(x[0], reshaped(x[0], 2, {x[0].size(-2) * x[0].size(-1)}))};
}

Tensors reference::unpack(const Call &call, Operands x) {
  llvm::ArrayRef<int64_t> factors = lastFactors(call);
  int64_t count = factors[1], inner = 1;
  for (int64_t factor : factors.drop_front()) {
    inner *= factor;
  }
  at::Tensor heads =
      viewed(x[0], reshaped(x[0], 1, {x[0].size(-1) / inner, inner}));
  Tensors pieces;
  llvm::append_range(pieces, heads.chunk(count, -1));
  return pieces;
}

Tensors reference::repeatHeads(const Call &call, Operands x) {
  // With the strides that the published model's attention gives them, so that
  // heads repeated before it are heads repeated in it.
  return {repeatedHeads(x[0].transpose(1, 2), call.attrs().getInt("r", 1))
              .transpose(1, 2)};
}
