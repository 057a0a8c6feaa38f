//===- Tiles-inl.h - Small matrix products and solves ------------*- C++
//-*-===//
//
// Products of matrices that lie in cache, by tiles of four rows and a few
// vectors of columns that stay in registers. The left factor may be transposed;
// the right one is read along its rows. Where half of the left factor or of the
// result is known to be zero or not wanted, that half is skipped.
//
// Rows of right factors and results are padded: whole vectors are read and
// written, up to the next multiple of `padding` elements.
//
//===----------------------------------------------------------------------===//

#if defined(HP_LIB_RUNTIME_KERNELS_FUSED_TILES_INL_H) ==                       \
    defined(HWY_TARGET_TOGGLE)
#ifdef HP_LIB_RUNTIME_KERNELS_FUSED_TILES_INL_H
#undef HP_LIB_RUNTIME_KERNELS_FUSED_TILES_INL_H
#else
#define HP_LIB_RUNTIME_KERNELS_FUSED_TILES_INL_H
#endif

#include "Simd-inl.h"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

constexpr int64_t tileRows = 4;
#if HWY_TARGET == HWY_AVX3
constexpr int64_t tileVectors = 4; // 32 registers
#else
constexpr int64_t tileVectors = 2; // 16 registers
#endif

/// A matrix in memory, read as it is or transposed.
template <typename T> struct Left {
  const T *data;
  int64_t rowStride, columnStride;
};
template <typename T> HWY_INLINE Left<T> plain(const T *data, int64_t stride) {
  return {data, stride, 1};
}
template <typename T>
HWY_INLINE Left<T> transposed(const T *data, int64_t stride) {
  return {data, 1, stride};
}

/// What a product does with the result.
enum class Into { Set, Add, Subtract };

/// Which half may be skipped. A zero half is stored as zeros as far as the next
/// multiple of `tileRows` columns from the diagonal.
enum class Half {
  None,
  LeftIsLower, ///< left[i][k] = 0 for k > i
  LeftIsUpper, ///< left[i][k] = 0 for k < i
  WantLower,   ///< result[i][j] is wanted for j <= i
};

/// c[i][j] <- or += or -= sum over first <= k < last of a[i][k] b[k][j], of
/// `Rows` rows and `Vectors` vectors.
template <int Rows, int Vectors, Into into, typename T>
HWY_INLINE void tile(Left<T> a, const T *HWY_RESTRICT b, int64_t bStride, T *c,
                     int64_t cStride, int64_t first, int64_t last) {
  const Tag<T> d;
  const int64_t n = lanes<T>();
  Vec<T> sums[Rows][Vectors];
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      sums[i][j] = into == Into::Set ? hn::Zero(d)
                                     : hn::LoadU(d, c + i * cStride + j * n);
    }
  }
  const T *left = a.data + first * a.columnStride;
  const T *right = b + first * bStride;
  for (int64_t k = first; k < last; ++k) {
    Vec<T> row[Vectors];
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      row[j] = hn::LoadU(d, right + j * n);
    }
#pragma GCC unroll 4
    for (int i = 0; i < Rows; ++i) {
      const auto factor = hn::Set(d, left[i * a.rowStride]);
#pragma GCC unroll 4
      for (int j = 0; j < Vectors; ++j) {
        sums[i][j] = into == Into::Subtract
                         ? hn::NegMulAdd(factor, row[j], sums[i][j])
                         : hn::MulAdd(factor, row[j], sums[i][j]);
      }
    }
    left += a.columnStride;
    right += bStride;
  }
#pragma GCC unroll 4
  for (int i = 0; i < Rows; ++i) {
#pragma GCC unroll 4
    for (int j = 0; j < Vectors; ++j) {
      hn::StoreU(sums[i][j], d, c + i * cStride + j * n);
    }
  }
}

/// tile() of `rows` rows, at most tileRows.
template <int Vectors, Into into, typename T>
HWY_INLINE void tileOf(int64_t rows, Left<T> a, const T *b, int64_t bStride,
                       T *c, int64_t cStride, int64_t first, int64_t last) {
  switch (rows) {
  case 1:
    return tile<1, Vectors, into>(a, b, bStride, c, cStride, first, last);
  case 2:
    return tile<2, Vectors, into>(a, b, bStride, c, cStride, first, last);
  case 3:
    return tile<3, Vectors, into>(a, b, bStride, c, cStride, first, last);
  default:
    return tile<4, Vectors, into>(a, b, bStride, c, cStride, first, last);
  }
}

/// Calls `body` with a constant number of vectors and the first column, panel
/// by panel over `columns` columns.
template <typename T, typename Body>
HWY_INLINE void forEachPanel(int64_t columns, Body body) {
  const int64_t n = lanes<T>();
  int64_t column = 0;
  for (; column + (tileVectors - 1) * n < columns; column += tileVectors * n) {
    body(std::integral_constant<int, tileVectors>(), column);
  }
  for (; column + n < columns; column += 2 * n) {
    body(std::integral_constant<int, 2>(), column);
  }
  if (column < columns) {
    body(std::integral_constant<int, 1>(), column);
  }
}

/// c [rows, columns] <- or += or -= a [rows, depth] b [depth, columns].
template <Into into, typename T>
HWY_NOINLINE void multiply(int64_t rows, int64_t columns, int64_t depth,
                           Left<T> a, const T *b, int64_t bStride, T *c,
                           int64_t cStride, Half half = Half::None) {
  forEachPanel<T>(columns, [&](auto vectors, int64_t column) {
    for (int64_t i = 0; i < rows; i += tileRows) {
      const int64_t count = std::min(tileRows, rows - i);
      if (half == Half::WantLower && column >= i + count) {
        continue;
      }
      const int64_t first = half == Half::LeftIsUpper ? i : 0;
      const int64_t last =
          half == Half::LeftIsLower ? std::min(depth, i + count) : depth;
      Left<T> block = {a.data + i * a.rowStride, a.rowStride, a.columnStride};
      tileOf<decltype(vectors)::value, into>(count, block, b + column, bStride,
                                             c + i * cStride + column, cStride,
                                             first, last);
    }
  });
}

/// x[to] -= factor * x[from], rows of `Vectors` vectors.
template <int Vectors, typename T>
HWY_INLINE void subtractRow(T factor, const T *from, T *to) {
  const Tag<T> d;
#pragma GCC unroll 4
  for (int j = 0; j < Vectors; ++j) {
    const int64_t at = j * lanes<T>();
    hn::StoreU(hn::NegMulAdd(hn::Set(d, factor), hn::LoadU(d, from + at),
                             hn::LoadU(d, to + at)),
               d, to + at);
  }
}

/// Solves (1 + l) y = x for y in the place of x [rows, columns], where l is
/// strictly lower: by blocks of rows, what is solved first taken off the rest.
template <typename T>
HWY_NOINLINE void solveLower(int64_t rows, int64_t columns, const T *l,
                             int64_t lStride, T *x, int64_t xStride) {
  forEachPanel<T>(columns, [&](auto vectors, int64_t column) {
    constexpr int width = decltype(vectors)::value;
    T *panel = x + column;
    for (int64_t i = 0; i < rows; i += tileRows) {
      const int64_t count = std::min(tileRows, rows - i);
      tileOf<width, Into::Subtract>(count, plain(l + i * lStride, lStride),
                                    panel, xStride, panel + i * xStride,
                                    xStride, 0, i);
      for (int64_t row = i + 1; row < i + count; ++row) {
        for (int64_t known = i; known < row; ++known) {
          subtractRow<width>(l[row * lStride + known], panel + known * xStride,
                             panel + row * xStride);
        }
      }
    }
  });
}

/// Solves (1 + l)^T y = x for y in the place of x, from the last rows up.
template <typename T>
HWY_NOINLINE void solveLowerTransposed(int64_t rows, int64_t columns,
                                       const T *l, int64_t lStride, T *x,
                                       int64_t xStride) {
  forEachPanel<T>(columns, [&](auto vectors, int64_t column) {
    constexpr int width = decltype(vectors)::value;
    T *panel = x + column;
    for (int64_t i = (rows - 1) / tileRows * tileRows; i >= 0; i -= tileRows) {
      const int64_t count = std::min(tileRows, rows - i);
      tileOf<width, Into::Subtract>(count, transposed(l + i, lStride), panel,
                                    xStride, panel + i * xStride, xStride,
                                    i + count, rows);
      for (int64_t row = i + count - 2; row >= i; --row) {
        for (int64_t known = row + 1; known < i + count; ++known) {
          subtractRow<width>(l[known * lStride + row], panel + known * xStride,
                             panel + row * xStride);
        }
      }
    }
  });
}

/// to [columns, rows] <- from [rows, columns] transposed, with both counts
/// rounded up to a multiple of 4.
template <typename T>
HWY_NOINLINE void transpose(int64_t rows, int64_t columns, const T *from,
                            int64_t fromStride, T *to, int64_t toStride) {
  for (int64_t i = 0; i < rows; i += 4) {
    for (int64_t j = 0; j < columns; j += 4) {
      const T *block = from + i * fromStride + j;
      T *turned = to + j * toStride + i;
#if HWY_TARGET != HWY_SCALAR
      if constexpr (sizeof(T) == 4) {
        const hn::FixedTag<T, 4> d;
        const hn::Repartition<double, decltype(d)> pairs;
        const auto a = hn::LoadU(d, block);
        const auto b = hn::LoadU(d, block + fromStride);
        const auto c = hn::LoadU(d, block + 2 * fromStride);
        const auto e = hn::LoadU(d, block + 3 * fromStride);
        const auto ab0 = hn::BitCast(pairs, hn::InterleaveLower(d, a, b));
        const auto ab1 = hn::BitCast(pairs, hn::InterleaveUpper(d, a, b));
        const auto ce0 = hn::BitCast(pairs, hn::InterleaveLower(d, c, e));
        const auto ce1 = hn::BitCast(pairs, hn::InterleaveUpper(d, c, e));
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab0, ce0)), d,
                   turned);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab0, ce0)), d,
                   turned + toStride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, ab1, ce1)), d,
                   turned + 2 * toStride);
        hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, ab1, ce1)), d,
                   turned + 3 * toStride);
        continue;
      }
#endif
      for (int64_t row = 0; row < 4; ++row) {
        for (int64_t column = 0; column < 4; ++column) {
          turned[column * toStride + row] = block[row * fromStride + column];
        }
      }
    }
  }
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_TILES_INL_H
