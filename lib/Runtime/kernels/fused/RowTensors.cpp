//===- RowTensors.cpp - Tensors as rows -----------------------------------===//

#include "RowTensors.h"

using namespace hp;
using namespace hp::fused;

/// Whether the last `dims` dims are dense, and those before them have no more
/// than two levels of strides.
static bool isInRows(const at::Tensor &x, int64_t dims) {
  int64_t dense = 1;
  int64_t lead = x.dim() - dims;
  for (int64_t i = x.dim() - 1; i >= lead; --i) {
    if (x.size(i) != 1 && x.stride(i) != dense) {
      return false;
    }
    dense *= x.size(i);
  }
  int levels = 0;
  int64_t next = -1; // the stride that would go on with the level
  for (int64_t i = lead - 1; i >= 0; --i) {
    if (x.size(i) == 1) {
      continue;
    }
    levels += x.stride(i) != next;
    next = x.stride(i) * x.size(i);
  }
  return levels <= 2;
}

at::Tensor fused::inRows(const at::Tensor &x, int64_t dims) {
  return !x.defined() || isInRows(x, dims) ? x : x.contiguous();
}

template <typename T>
static at::Tensor sumOf(const at::Tensor &partial, const at::Tensor &like,
                        const at::Tensor &running) {
  int64_t width = like.numel();
  std::vector<double> sums(width);
  for (int64_t block = 0; block < partial.size(0); ++block) {
    const T *row = partial.const_data_ptr<T>() + block * partial.stride(0);
    for (int64_t i = 0; i < width; ++i) {
      sums[i] += row[i];
    }
  }
  at::Tensor dense = running.defined() ? running.contiguous() : running;
  const T *more = dense.defined() ? dense.const_data_ptr<T>() : nullptr;
  at::Tensor sum = emptyOf(like);
  T *out = sum.data_ptr<T>();
  for (int64_t i = 0; i < width; ++i) {
    out[i] = T(more ? sums[i] + more[i] : sums[i]);
  }
  return sum;
}

at::Tensor fused::sumOfBlocks(const at::Tensor &partial, const at::Tensor &like,
                              const at::Tensor &running) {
  return like.scalar_type() == at::kDouble
             ? sumOf<double>(partial, like, running)
             : sumOf<float>(partial, like, running);
}
