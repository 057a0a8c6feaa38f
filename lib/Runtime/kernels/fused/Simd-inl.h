//===- Simd-inl.h - Vectors of what the processor has ------------*- C++
//-*-===//
//
// What the vectorized kernels share. Highway compiles each file that includes
// this once for every set of instructions, and picks one when the program runs.
//
// Vectors know nothing of the end of a row: rows that are not padded are read
// and written with loadSome and storeSome.
//
//===----------------------------------------------------------------------===//

// Once for each target.
#if defined(HP_LIB_RUNTIME_KERNELS_FUSED_SIMD_INL_H) ==                        \
    defined(HWY_TARGET_TOGGLE)
#ifdef HP_LIB_RUNTIME_KERNELS_FUSED_SIMD_INL_H
#undef HP_LIB_RUNTIME_KERNELS_FUSED_SIMD_INL_H
#else
#define HP_LIB_RUNTIME_KERNELS_FUSED_SIMD_INL_H
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include <cmath>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <typename T> using Tag = hn::ScalableTag<T>;
template <typename T> using Vec = hn::Vec<Tag<T>>;

template <typename T> HWY_INLINE int64_t lanes() {
  return int64_t(hn::Lanes(Tag<T>()));
}

/// The mask of the first `count` lanes, which may exceed a vector.
template <typename T> HWY_INLINE hn::Mask<Tag<T>> firstOf(int64_t count) {
  return hn::FirstN(Tag<T>(), size_t(count < lanes<T>() ? count : lanes<T>()));
}

/// The first `count` elements at `from`, then zeros; `count` may exceed a
/// vector.
template <typename T> HWY_INLINE Vec<T> loadSome(const T *from, int64_t count) {
  const Tag<T> d;
  if (count >= lanes<T>()) {
    return hn::LoadU(d, from);
  }
#if HWY_TARGET == HWY_AVX3
  return hn::MaskedLoad(hn::FirstN(d, size_t(count)), d, from);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)] = {};
  for (int64_t i = 0; i < count; ++i) {
    buffer[i] = from[i];
  }
  return hn::Load(d, buffer);
#endif
}

/// Stores the first `count` elements.
template <typename T>
HWY_INLINE void storeSome(Vec<T> v, T *to, int64_t count) {
  const Tag<T> d;
  if (count >= lanes<T>()) {
    hn::StoreU(v, d, to);
    return;
  }
#if HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, size_t(count)), d, to);
#else
  HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; ++i) {
    to[i] = buffer[i];
  }
#endif
}

/// The sum of all elements, in one order on every processor with as many lanes.
template <typename T> HWY_INLINE T sumOf(Vec<T> v) {
  const Tag<T> d;
  return hn::GetLane(hn::SumOfLanes(d, v));
}

/// e^x for x <= 0, and 0 where the result would be so small that products with
/// it are denormal, which processors are slow at. A NaN stays one.
template <typename T> HWY_INLINE Vec<T> decayExp(Vec<T> x) {
  const Tag<T> d;
  const auto isGone = hn::Lt(x, hn::Set(d, sizeof(T) == 4 ? T(-80) : T(-690)));
  const auto y = hn::IfThenZeroElse(isGone, hn::Exp(d, x));
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// 1 / (1 + e^-x); a NaN stays one.
template <typename T> HWY_INLINE Vec<T> sigmoidOf(Vec<T> x) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  // e^-|x| does not overflow.
  const auto small = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const auto positive = hn::Div(one, hn::Add(one, small));
  const auto y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)),
                                hn::Mul(small, positive), positive);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_SIMD_INL_H
