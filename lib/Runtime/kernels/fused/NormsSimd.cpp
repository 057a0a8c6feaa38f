//===- NormsSimd.cpp - Root mean square norms, row by row -----------------===//

#include "Rows.h"
#include "SimdTargets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "NormsSimd.cpp"
#include "hwy/foreach_target.h" // this file again, for each target

#include "Simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

/// 1 / sqrt(mean(x^2) + eps).
template <typename T>
HWY_INLINE T inverseRms(const T *x, int64_t width, T eps) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d), other = hn::Zero(d);
  int64_t i = 0;
  for (; i + 2 * lanes<T>() <= width; i += 2 * lanes<T>()) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes<T>());
    sum = hn::MulAdd(a, a, sum);
    other = hn::MulAdd(b, b, other);
  }
  for (; i < width; i += lanes<T>()) {
    const auto a = loadSome(x + i, width - i);
    sum = hn::MulAdd(a, a, sum);
  }
  return 1 / std::sqrt(sumOf<T>(hn::Add(sum, other)) / T(width) + eps);
}

/// What a normalized element is multiplied by, without a gate.
template <typename T>
HWY_INLINE Vec<T> weightAt(const Norm<T> &norm, int64_t i) {
  const auto weight = loadSome(norm.weight + i, norm.width - i);
  return norm.unitOffset ? hn::Add(weight, hn::Set(Tag<T>(), T(1))) : weight;
}

template <bool Gated, typename T>
HWY_INLINE void normRows(const Norm<T> &norm, int64_t first, int64_t last) {
  const Tag<T> d;
  for (int64_t row = first; row < last; ++row) {
    const T *x = norm.x.at(row);
    const T *gate = Gated ? norm.gate.at(row) : nullptr;
    T *y = norm.y.at(row);
    const auto inverse = hn::Set(d, inverseRms(x, norm.width, norm.eps));
    for (int64_t i = 0; i < norm.width; i += lanes<T>()) {
      const int64_t rest = norm.width - i;
      auto made =
          hn::Mul(hn::Mul(loadSome(x + i, rest), inverse), weightAt(norm, i));
      if constexpr (Gated) {
        const auto z = loadSome(gate + i, rest);
        made = hn::Mul(made, hn::Mul(z, sigmoidOf<T>(z)));
      }
      storeSome<T>(made, y + i, rest);
    }
  }
}

template <bool Gated, typename T>
HWY_INLINE void differentiateRows(const Norm<T> &norm, int64_t first,
                                  int64_t last, T *partial) {
  const Tag<T> d;
  const auto one = hn::Set(d, T(1));
  std::memset(partial, 0, size_t(norm.width) * sizeof(T));
  for (int64_t row = first; row < last; ++row) {
    const T *x = norm.x.at(row);
    const T *yGradient = norm.yGradient.at(row);
    const T *gate = Gated ? norm.gate.at(row) : nullptr;
    const T *running = norm.xRunning ? norm.xRunning.at(row) : nullptr;
    T *gradient = norm.xGradient.at(row);
    const T scale = inverseRms(x, norm.width, norm.eps);
    const auto inverse = hn::Set(d, scale);
    Vec<T> along = hn::Zero(d);
    for (int64_t i = 0; i < norm.width; i += lanes<T>()) {
      const int64_t rest = norm.width - i;
      const auto dy = loadSome(yGradient + i, rest);
      const auto normed = hn::Mul(loadSome(x + i, rest), inverse);
      const auto weight = weightAt(norm, i);
      auto ofScaled = dy;
      if constexpr (Gated) {
        const auto z = loadSome(gate + i, rest);
        const auto s = sigmoidOf<T>(z);
        ofScaled = hn::Mul(dy, hn::Mul(z, s));
        const auto slope = hn::Mul(s, hn::MulAdd(z, hn::Sub(one, s), one));
        auto made = hn::Mul(hn::Mul(dy, slope), hn::Mul(normed, weight));
        if (norm.gateRunning) {
          made = hn::Add(made, loadSome(norm.gateRunning.at(row) + i, rest));
        }
        storeSome<T>(made, norm.gateGradient.at(row) + i, rest);
      }
      const auto part = hn::Mul(ofScaled, normed);
      storeSome<T>(hn::Add(loadSome(partial + i, rest), part), partial + i,
                   rest);
      along = hn::MulAdd(part, weight, along);
      storeSome<T>(hn::Mul(ofScaled, weight), gradient + i, rest);
    }
    const auto mean = hn::Set(d, sumOf<T>(along) / T(norm.width));
    for (int64_t i = 0; i < norm.width; i += lanes<T>()) {
      const int64_t rest = norm.width - i;
      const auto normed = hn::Mul(loadSome(x + i, rest), inverse);
      auto made = hn::Mul(
          inverse, hn::NegMulAdd(normed, mean, loadSome(gradient + i, rest)));
      if (running) {
        made = hn::Add(made, loadSome(running + i, rest));
      }
      storeSome<T>(made, gradient + i, rest);
    }
  }
}

template <typename T>
HWY_INLINE void forward(const Norm<T> &norm, int64_t first, int64_t last) {
  norm.gate ? normRows<true>(norm, first, last)
            : normRows<false>(norm, first, last);
}
template <typename T>
HWY_INLINE void backward(const Norm<T> &norm, int64_t first, int64_t last,
                         T *partial) {
  norm.gate ? differentiateRows<true>(norm, first, last, partial)
            : differentiateRows<false>(norm, first, last, partial);
}

void forward32(const Norm<float> &norm, int64_t first, int64_t last) {
  forward(norm, first, last);
}
void forward64(const Norm<double> &norm, int64_t first, int64_t last) {
  forward(norm, first, last);
}
void backward32(const Norm<float> &norm, int64_t first, int64_t last,
                float *partial) {
  backward(norm, first, last, partial);
}
void backward64(const Norm<double> &norm, int64_t first, int64_t last,
                double *partial) {
  backward(norm, first, last, partial);
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hp::fused {
HWY_EXPORT(forward32);
HWY_EXPORT(forward64);
HWY_EXPORT(backward32);
HWY_EXPORT(backward64);

void normForward(const Norm<float> &norm, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(forward32)(norm, first, last);
}
void normForward(const Norm<double> &norm, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(forward64)(norm, first, last);
}
void normBackward(const Norm<float> &norm, int64_t first, int64_t last,
                  float *partial) {
  HWY_DYNAMIC_DISPATCH(backward32)(norm, first, last, partial);
}
void normBackward(const Norm<double> &norm, int64_t first, int64_t last,
                  double *partial) {
  HWY_DYNAMIC_DISPATCH(backward64)(norm, first, last, partial);
}

} // namespace hp::fused
#endif // HWY_ONCE
