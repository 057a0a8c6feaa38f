//===- LossSimd.cpp - Cross entropy, and what follows the gradients -------===//

#include "Rows.h"
#include "SimdTargets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "LossSimd.cpp"
#include "hwy/foreach_target.h" // this file again, for each target

#include "Simd-inl.h"
#include <algorithm>
#include <limits>

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

//===----------------------------------------------------------------------===//
// cross_entropy
//===----------------------------------------------------------------------===//

/// Logits that are read while they are in the first cache.
constexpr int64_t loadedTogether = 2048;

/// The largest logit of a row, and the sum of e to the others' distance.
template <typename T> struct Normalizer { T largest, sum; };

template <typename T>
HWY_INLINE Normalizer<T> normalize(const T *row, int64_t width) {
  const Tag<T> d;
  const T lowest = std::numeric_limits<T>::lowest();
  Normalizer<T> all = {lowest, 0};
  Vec<T> sum = hn::Zero(d);
  for (int64_t begin = 0; begin < width; begin += loadedTogether) {
    const int64_t end = std::min(width, begin + loadedTogether);
    Vec<T> most = hn::Set(d, all.largest);
    int64_t i = begin;
    for (; i + lanes<T>() <= end; i += lanes<T>()) {
      most = hn::Max(most, hn::LoadU(d, row + i));
    }
    T largest = hn::GetLane(hn::MaxOfLanes(d, most));
    for (int64_t j = i; j < end; ++j) {
      largest = std::max(largest, row[j]);
    }
    const auto to = hn::Set(d, largest);
    sum = hn::Mul(sum, decayExp<T>(hn::Sub(hn::Set(d, all.largest), to)));
    for (i = begin; i < end; i += lanes<T>()) {
      const int64_t rest = end - i;
      const auto term = decayExp<T>(hn::Sub(loadSome(row + i, rest), to));
      sum = hn::Add(sum, hn::IfThenElseZero(firstOf<T>(rest), term));
    }
    all.largest = largest;
  }
  all.sum = sumOf<T>(sum);
  return all;
}

template <typename T>
HWY_INLINE void forward(const Loss<T> &loss, int64_t first, int64_t last) {
  for (int64_t i = first; i < last; ++i) {
    const int64_t label = *loss.labels.at(i);
    if (label < 0) {
      loss.losses[i] = 0;
      continue;
    }
    const T *row = loss.logits.at(i);
    const Normalizer<T> all = normalize(row, loss.width);
    loss.losses[i] =
        std::log(double(all.sum)) + (double(all.largest) - double(row[label]));
  }
}

template <typename T>
HWY_INLINE void backward(const Loss<T> &loss, int64_t first, int64_t last) {
  const Tag<T> d;
  for (int64_t i = first; i < last; ++i) {
    const int64_t label = *loss.labels.at(i);
    const T *running = loss.running ? loss.running.at(i) : nullptr;
    T *gradient = loss.gradient.at(i);
    if (label < 0) {
      if (running) {
        std::memcpy(gradient, running, size_t(loss.width) * sizeof(T));
      } else {
        std::memset(gradient, 0, size_t(loss.width) * sizeof(T));
      }
      continue;
    }
    const T *row = loss.logits.at(i);
    const Normalizer<T> all = normalize(row, loss.width);
    const auto largest = hn::Set(d, all.largest);
    const T one = loss.lossGradient / all.sum;
    const auto factor = hn::Set(d, one);
    for (int64_t j = 0; j < loss.width; j += lanes<T>()) {
      const int64_t rest = loss.width - j;
      auto made = hn::Mul(
          factor, decayExp<T>(hn::Sub(loadSome(row + j, rest), largest)));
      if (running) {
        made = hn::Add(made, loadSome(running + j, rest));
      }
      storeSome<T>(made, gradient + j, rest);
    }
    gradient[label] -= loss.lossGradient;
  }
}

void forward32(const Loss<float> &loss, int64_t first, int64_t last) {
  forward(loss, first, last);
}
void forward64(const Loss<double> &loss, int64_t first, int64_t last) {
  forward(loss, first, last);
}
void backward32(const Loss<float> &loss, int64_t first, int64_t last) {
  backward(loss, first, last);
}
void backward64(const Loss<double> &loss, int64_t first, int64_t last) {
  backward(loss, first, last);
}

//===----------------------------------------------------------------------===//
// sum_squares and adamw
//===----------------------------------------------------------------------===//

template <typename T> HWY_INLINE double squares(const T *x, int64_t count) {
  const Tag<double> d;
  const hn::Rebind<T, Tag<double>> narrow;
  const int64_t n = lanes<double>();
  auto sum = hn::Zero(d), other = hn::Zero(d);
  const auto at = [&](int64_t i) {
    if constexpr (sizeof(T) == sizeof(double)) {
      return hn::LoadU(d, x + i);
    } else {
      return hn::PromoteTo(d, hn::LoadU(narrow, x + i));
    }
  };
  int64_t i = 0;
  for (; i + 2 * n <= count; i += 2 * n) {
    const auto a = at(i), b = at(i + n);
    sum = hn::MulAdd(a, a, sum);
    other = hn::MulAdd(b, b, other);
  }
  double rest = 0;
  for (; i < count; ++i) {
    rest += double(x[i]) * double(x[i]);
  }
  return sumOf<double>(hn::Add(sum, other)) + rest;
}

double squares32(const float *x, int64_t count) { return squares(x, count); }
double squares64(const double *x, int64_t count) { return squares(x, count); }

template <typename T>
HWY_INLINE void updateSome(const Update<T> &all, int64_t first, int64_t last) {
  const Tag<T> d;
  const auto set = [&](double x) { return hn::Set(d, T(x)); };
  const auto coefficient = set(all.coefficient), decay = set(all.decay);
  const auto beta1 = set(all.beta1), rest1 = set(1 - all.beta1);
  const auto beta2 = set(all.beta2), rest2 = set(1 - all.beta2);
  const auto root = set(all.rootOfCorrection2), eps = set(all.eps);
  const auto stepSize = set(all.stepSize);
  for (int64_t i = first; i < last; i += lanes<T>()) {
    const int64_t rest = last - i;
    const auto gradient =
        hn::Mul(loadSome(all.gradient + i, rest), coefficient);
    const auto average = hn::MulAdd(
        gradient, rest1, hn::Mul(loadSome(all.expAvg + i, rest), beta1));
    const auto square =
        hn::MulAdd(hn::Mul(gradient, gradient), rest2,
                   hn::Mul(loadSome(all.expAvgSq + i, rest), beta2));
    const auto denominator = hn::Add(hn::Div(hn::Sqrt(square), root), eps);
    const auto value =
        hn::NegMulAdd(stepSize, hn::Div(average, denominator),
                      hn::Mul(loadSome(all.value + i, rest), decay));
    storeSome<T>(average, all.expAvg + i, rest);
    storeSome<T>(square, all.expAvgSq + i, rest);
    storeSome<T>(value, all.value + i, rest);
  }
}

void update32(const Update<float> &all, int64_t first, int64_t last) {
  updateSome(all, first, last);
}
void update64(const Update<double> &all, int64_t first, int64_t last) {
  updateSome(all, first, last);
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hp::fused {
HWY_EXPORT(forward32);
HWY_EXPORT(forward64);
HWY_EXPORT(backward32);
HWY_EXPORT(backward64);
HWY_EXPORT(squares32);
HWY_EXPORT(squares64);
HWY_EXPORT(update32);
HWY_EXPORT(update64);

void lossForward(const Loss<float> &loss, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(forward32)(loss, first, last);
}
void lossForward(const Loss<double> &loss, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(forward64)(loss, first, last);
}
void lossBackward(const Loss<float> &loss, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(backward32)(loss, first, last);
}
void lossBackward(const Loss<double> &loss, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(backward64)(loss, first, last);
}
double sumOfSquares(const float *x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(squares32)(x, count);
}
double sumOfSquares(const double *x, int64_t count) {
  return HWY_DYNAMIC_DISPATCH(squares64)(x, count);
}
void update(const Update<float> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(update32)(all, first, last);
}
void update(const Update<double> &all, int64_t first, int64_t last) {
  HWY_DYNAMIC_DISPATCH(update64)(all, first, last);
}

} // namespace hp::fused
#endif // HWY_ONCE
