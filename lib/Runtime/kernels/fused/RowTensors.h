//===- RowTensors.h - Tensors as rows ---------------------------*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_ROWTENSORS_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_ROWTENSORS_H

#include "Fused.h"
#include "Rows.h"

namespace hp::fused {

/// `x` with dims that two levels of rows reach: a copy where it has others.
/// The last `dims` dims are a row.
at::Tensor inRows(const at::Tensor &x, int64_t dims);

/// Rows of a tensor that inRows() gave; none of an undefined one.
template <typename T> Rows<T> rowsOf(const at::Tensor &x, int64_t dims) {
  if (!x.defined()) {
    return {};
  }
  // Const, too: who makes a tensor may write it.
  Rows<T> rows{static_cast<T *>(const_cast<void *>(x.const_data_ptr()))};
  int level = 0;
  int64_t outer = 1;
  for (int64_t i = x.dim() - dims - 1; i >= 0; --i) {
    if (x.size(i) == 1) {
      continue;
    }
    if (level == 0) {
      level = 1;
      rows.innerStride = x.stride(i);
      rows.inner = x.size(i);
    } else if (level == 1 && x.stride(i) == rows.inner * rows.innerStride) {
      rows.inner *= x.size(i);
    } else {
      level = 2;
      rows.outerStride = outer == 1 ? x.stride(i) : rows.outerStride;
      outer *= x.size(i);
    }
  }
  return rows;
}

/// Sums [blocks, elements of `like`] over the blocks, in float64 and from the
/// first to the last, and adds `running` if it is defined.
at::Tensor sumOfBlocks(const at::Tensor &partial, const at::Tensor &like,
                       const at::Tensor &running);

/// Blocks of rows for which parts of a parameter's gradient are summed apart:
/// at most 64, whatever the number of threads.
class RowBlocks {
public:
  explicit RowBlocks(int64_t rows)
      : rows(rows), each(std::max<int64_t>(16, (rows + 63) / 64)) {}
  int64_t count() const { return (rows + each - 1) / each; }
  int64_t first(int64_t block) const { return block * each; }
  int64_t last(int64_t block) const {
    return std::min(rows, (block + 1) * each);
  }

private:
  int64_t rows, each;
};

/// Rows that are worth a thread of their own.
inline int64_t grainOfRows(int64_t width) {
  return std::max<int64_t>(1, 16384 / width);
}

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_ROWTENSORS_H
