//===- GatesSimd.cpp - Gates and decay, row by row ------------------------===//

#include "Rows.h"
#include "SimdTargets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "GatesSimd.cpp"
#include "hwy/foreach_target.h" // this file again, for each target

#include "Simd-inl.h"
#include <algorithm>

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

//===----------------------------------------------------------------------===//
// sigmoid_mul and silu_mul
//===----------------------------------------------------------------------===//

template <bool Silu, typename T>
HWY_INLINE void gateRows(const Gate<T> &all, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const T *gate = all.gate.at(row), *value = all.value.at(row);
    T *y = all.y.at(row);
    for (int64_t i = 0; i < all.width; i += lanes<T>()) {
      const int64_t rest = all.width - i;
      const auto z = loadSome(gate + i, rest);
      auto factor = sigmoidOf<T>(z);
      if constexpr (Silu) {
        factor = hn::Mul(z, factor);
      }
      storeSome<T>(hn::Mul(factor, loadSome(value + i, rest)), y + i, rest);
    }
  }
}

template <bool Silu, typename T>
HWY_INLINE void differentiateGates(const Gate<T> &all, int64_t first,
                                   int64_t last) {
  const auto one = hn::Set(Tag<T>(), T(1));
  const auto stored = [&](Vec<T> made, const Rows<const T> &running,
                          const Rows<T> &to, int64_t row, int64_t i) {
    const int64_t rest = all.width - i;
    if (running) {
      made = hn::Add(made, loadSome(running.at(row) + i, rest));
    }
    storeSome<T>(made, to.at(row) + i, rest);
  };
  for (int64_t row = first; row < last; ++row) {
    const T *gate = all.gate.at(row), *value = all.value.at(row);
    const T *yGradient = all.yGradient.at(row);
    for (int64_t i = 0; i < all.width; i += lanes<T>()) {
      const int64_t rest = all.width - i;
      const auto z = loadSome(gate + i, rest);
      const auto dy = loadSome(yGradient + i, rest);
      const auto s = sigmoidOf<T>(z);
      const auto factor = Silu ? hn::Mul(z, s) : s;
      const auto slope = Silu ? hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one))
                              : hn::Mul(s, hn::Sub(one, s));
      const auto ofFactor = hn::Mul(dy, loadSome(value + i, rest));
      stored(hn::Mul(ofFactor, slope), all.gateRunning, all.gateGradient, row,
             i);
      stored(hn::Mul(dy, factor), all.valueRunning, all.valueGradient, row, i);
    }
  }
}

template <typename T>
HWY_INLINE void forward(const Gate<T> &all, int64_t first, int64_t last) {
  all.isSilu ? gateRows<true>(all, first, last)
             : gateRows<false>(all, first, last);
}
template <typename T>
HWY_INLINE void backward(const Gate<T> &all, int64_t first, int64_t last) {
  all.isSilu ? differentiateGates<true>(all, first, last)
             : differentiateGates<false>(all, first, last);
}

void gate32(const Gate<float> &all, int64_t first, int64_t last) {
  forward(all, first, last);
}
void gate64(const Gate<double> &all, int64_t first, int64_t last) {
  forward(all, first, last);
}
void gateAdjoint32(const Gate<float> &all, int64_t first, int64_t last) {
  backward(all, first, last);
}
void gateAdjoint64(const Gate<double> &all, int64_t first, int64_t last) {
  backward(all, first, last);
}

//===----------------------------------------------------------------------===//
// decay
//===----------------------------------------------------------------------===//

/// Where softplus(x) is taken for x, as LibTorch does.
template <typename T> HWY_INLINE hn::Mask<Tag<T>> isLinear(Vec<T> x) {
  return hn::Gt(x, hn::Set(Tag<T>(), T(20)));
}

/// log(1 + e^x).
template <typename T> HWY_INLINE Vec<T> softplusOf(Vec<T> x) {
  const Tag<T> d;
  const auto curved = hn::Add(hn::Max(x, hn::Zero(d)),
                              hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(x)))));
  const auto y = hn::IfThenElse(isLinear<T>(x), x, curved);
  return hn::IfThenElse(hn::Eq(x, x), y, x);
}

/// -e^logA, of any logA.
template <typename T> HWY_INLINE Vec<T> rateAt(const Decay<T> &all, int64_t i) {
  const Tag<T> d;
  HWY_ALIGN T rates[HWY_MAX_BYTES / sizeof(T)] = {};
  const int64_t count = std::min(lanes<T>(), all.width - i);
  for (int64_t j = 0; j < count; ++j) {
    rates[j] = -std::exp(all.logA[i + j]);
  }
  return hn::Load(d, rates);
}

template <typename T>
HWY_INLINE void decayRows(const Decay<T> &all, int64_t first, int64_t last) {
  for (int64_t i = 0; i < all.width; i += lanes<T>()) {
    const int64_t rest = all.width - i;
    const auto rate = rateAt(all, i), bias = loadSome(all.bias + i, rest);
    for (int64_t row = first; row < last; ++row) {
      const auto x = hn::Add(loadSome(all.a.at(row) + i, rest), bias);
      storeSome<T>(hn::Mul(rate, softplusOf<T>(x)), all.y.at(row) + i, rest);
    }
  }
}

template <typename T>
HWY_INLINE void differentiateDecay(const Decay<T> &all, int64_t first,
                                   int64_t last, T *partial) {
  const Tag<T> d;
  for (int64_t i = 0; i < all.width; i += lanes<T>()) {
    const int64_t rest = all.width - i;
    const auto rate = rateAt(all, i), bias = loadSome(all.bias + i, rest);
    Vec<T> ofLogA = hn::Zero(d), ofBias = hn::Zero(d);
    for (int64_t row = first; row < last; ++row) {
      const auto x = hn::Add(loadSome(all.a.at(row) + i, rest), bias);
      const auto ofStep =
          hn::Mul(loadSome(all.yGradient.at(row) + i, rest), rate);
      ofLogA = hn::MulAdd(ofStep, softplusOf<T>(x), ofLogA);
      auto ofA = hn::IfThenElse(isLinear<T>(x), ofStep,
                                hn::Mul(ofStep, sigmoidOf<T>(x)));
      ofBias = hn::Add(ofBias, ofA);
      if (all.aRunning) {
        ofA = hn::Add(ofA, loadSome(all.aRunning.at(row) + i, rest));
      }
      storeSome<T>(ofA, all.aGradient.at(row) + i, rest);
    }
    storeSome<T>(ofLogA, partial + i, rest);
    storeSome<T>(ofBias, partial + all.width + i, rest);
  }
}

void decay32(const Decay<float> &all, int64_t first, int64_t last) {
  decayRows(all, first, last);
}
void decay64(const Decay<double> &all, int64_t first, int64_t last) {
  decayRows(all, first, last);
}
void decayAdjoint32(const Decay<float> &all, int64_t first, int64_t last,
                    float *partial) {
  differentiateDecay(all, first, last, partial);
}
void decayAdjoint64(const Decay<double> &all, int64_t first, int64_t last,
                    double *partial) {
  differentiateDecay(all, first, last, partial);
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hp::fused {
HWY_EXPORT(gate32);
HWY_EXPORT(gate64);
HWY_EXPORT(gateAdjoint32);
HWY_EXPORT(gateAdjoint64);
HWY_EXPORT(decay32);
HWY_EXPORT(decay64);
HWY_EXPORT(decayAdjoint32);
HWY_EXPORT(decayAdjoint64);

void gateForward(const Gate<float> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gate32)(all, first, last);
}
void gateForward(const Gate<double> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gate64)(all, first, last);
}
void gateBackward(const Gate<float> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gateAdjoint32)(all, first, last);
}
void gateBackward(const Gate<double> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(gateAdjoint64)(all, first, last);
}
void decayForward(const Decay<float> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(decay32)(all, first, last);
}
void decayForward(const Decay<double> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(decay64)(all, first, last);
}
void decayBackward(const Decay<float> &all, int64_t first, int64_t last,
                   float *partial) {
  HWY_DYNAMIC_DISPATCH(decayAdjoint32)(all, first, last, partial);
}
void decayBackward(const Decay<double> &all, int64_t first, int64_t last,
                   double *partial) {
  HWY_DYNAMIC_DISPATCH(decayAdjoint64)(all, first, last, partial);
}

} // namespace hp::fused
#endif // HWY_ONCE
