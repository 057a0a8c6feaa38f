//===- ConvolutionSimd.cpp - Convolution and silu in one pass -------------===//
//
// By blocks of channels, token by token: the tokens a filter reaches back to
// are still in cache. The backward computes the filter's sums again and walks
// from the last token, with the gradients of the last few sums in a ring.
//
//===----------------------------------------------------------------------===//

#include "Convolution.h"
#include "SimdTargets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ConvolutionSimd.cpp"
#include "hwy/foreach_target.h" // this file again, for each target

#include "Simd-inl.h"
#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

/// Tokens whose gradients of the weight are summed before they are added to the
/// sum of all: it keeps rounding small.
constexpr int64_t tokensOfASum = 64;

/// One block of channels. `Taps` is the filter's length, or 0 for any.
template <int Taps, typename T> class ChannelBlock {
public:
  ChannelBlock(const Convolution<T> &all, int64_t first, int64_t count,
               T *scratch)
      : all(all), first(first), count(count), weight(scratch),
        zero(weight + taps() * convolutionBlock), ring(zero + convolutionBlock),
        partial(ring + taps() * convolutionBlock),
        sum(partial + taps() * convolutionBlock) {
    for (int64_t tap = 0; tap < taps(); ++tap) {
      for (int64_t c = 0; c < count; ++c) {
        weight[tap * convolutionBlock + c] =
            all.weight[(first + c) * taps() + tap];
      }
    }
    std::fill_n(zero, convolutionBlock, T(0));
    if constexpr (Taps == 0) {
      sources.resize(taps());
      later.resize(taps());
    }
  }

  void forward(int64_t batch) {
    for (int64_t t = 0; t < all.tokens; ++t) {
      findSources(batch, t);
      T *y = all.y.at(batch, t) + first;
      for (int64_t c = 0; c < count; c += lanes<T>()) {
        const auto s = filtered(c);
        storeSome<T>(hn::Mul(s, sigmoidOf<T>(s)), y + c, count - c);
      }
    }
  }

  void backward() {
    std::fill_n(sum, taps() * convolutionBlock, T(0));
    for (int64_t batch = 0; batch < all.batch; ++batch) {
      std::fill_n(ring, taps() * convolutionBlock, T(0));
      std::fill_n(partial, taps() * convolutionBlock, T(0));
      for (int64_t t = all.tokens - 1; t >= 0; --t) {
        differentiateToken(batch, t);
        if (t % tokensOfASum == 0) {
          gather();
        }
      }
      for (int64_t t = -1; all.haloGradient && t > -taps(); --t) {
        differentiateHalo(batch, t);
      }
    }
    for (int64_t tap = 0; tap < taps(); ++tap) {
      for (int64_t c = 0; c < count; ++c) {
        const int64_t at = (first + c) * taps() + tap;
        const T made = sum[tap * convolutionBlock + c];
        all.weightGradient[at] =
            all.weightRunning ? all.weightRunning[at] + made : made;
      }
    }
  }

private:
  HWY_INLINE int64_t taps() const { return Taps ? Taps : all.taps; }

  /// Points `sources` at the tokens that the filter reaches from token `t`,
  /// which may lie before the first.
  HWY_INLINE void findSources(int64_t batch, int64_t t) {
    for (int64_t tap = 0; tap < taps(); ++tap) {
      const int64_t from = t - taps() + 1 + tap;
      sources[tap] = from >= 0  ? all.x.at(batch, from) + first
                     : all.halo ? all.halo.at(batch, from + taps() - 1) + first
                                : zero;
    }
  }

  /// Points `later` at the gradients of the sums that token `t` is in: by tap.
  HWY_INLINE void findLater(int64_t t) {
    for (int64_t tap = 0; tap < taps(); ++tap) {
      const int64_t slot = (t + 2 * taps() - 1 - tap) % taps();
      later[tap] = ring + slot * convolutionBlock;
    }
  }

  /// The sum that the filter makes of `sources`, of the channels from `c` on.
  HWY_INLINE Vec<T> filtered(int64_t c) const {
    const Tag<T> d;
    Vec<T> s = hn::Zero(d);
    for (int64_t tap = 0; tap < taps(); ++tap) {
      s = hn::MulAdd(hn::LoadU(d, weight + tap * convolutionBlock + c),
                     loadSome(sources[tap] + c, count - c), s);
    }
    return s;
  }

  /// The gradient of the sum at a token, into the ring; those of the weight and
  /// of the token.
  HWY_INLINE void differentiateToken(int64_t batch, int64_t t) {
    const Tag<T> d;
    const auto one = hn::Set(d, T(1));
    findSources(batch, t);
    findLater(t);
    const T *yGradient = all.yGradient.at(batch, t) + first;
    const T *running =
        all.xRunning ? all.xRunning.at(batch, t) + first : nullptr;
    T *gradient = all.xGradient.at(batch, t) + first;
    T *own = ring + t % taps() * convolutionBlock;
    for (int64_t c = 0; c < count; c += lanes<T>()) {
      const int64_t rest = count - c;
      const auto s = filtered(c);
      const auto gate = sigmoidOf<T>(s);
      const auto slope = hn::Mul(gate, hn::MulAdd(s, hn::Sub(one, gate), one));
      const auto ofSum = hn::Mul(loadSome(yGradient + c, rest), slope);
      hn::StoreU(ofSum, d, own + c);
      for (int64_t tap = 0; tap < taps(); ++tap) {
        T *of = partial + tap * convolutionBlock + c;
        const auto x = loadSome(sources[tap] + c, rest);
        hn::StoreU(hn::MulAdd(ofSum, x, hn::LoadU(d, of)), d, of);
      }
      auto made = hn::Mul(
          hn::LoadU(d, weight + (taps() - 1) * convolutionBlock + c), ofSum);
      for (int64_t tap = 0; tap < taps() - 1; ++tap) {
        made = hn::MulAdd(hn::LoadU(d, weight + tap * convolutionBlock + c),
                          hn::LoadU(d, later[tap] + c), made);
      }
      if (running) {
        made = hn::Add(made, loadSome(running + c, rest));
      }
      storeSome<T>(made, gradient + c, rest);
    }
  }

  /// The gradient of token `t` before the first.
  void differentiateHalo(int64_t batch, int64_t t) {
    const Tag<T> d;
    const int64_t i = t + taps() - 1;
    findLater(t);
    const T *running =
        all.haloRunning ? all.haloRunning.at(batch, i) + first : nullptr;
    T *gradient = all.haloGradient.at(batch, i) + first;
    for (int64_t c = 0; c < count; c += lanes<T>()) {
      Vec<T> made = running ? loadSome(running + c, count - c) : hn::Zero(d);
      for (int64_t tap = 0; tap <= i; ++tap) {
        made = hn::MulAdd(hn::LoadU(d, weight + tap * convolutionBlock + c),
                          hn::LoadU(d, later[tap] + c), made);
      }
      storeSome<T>(made, gradient + c, count - c);
    }
  }

  /// Adds the partial sums to those of all tokens.
  void gather() {
    for (int64_t i = 0; i < taps() * convolutionBlock; ++i) {
      sum[i] += partial[i];
      partial[i] = 0;
    }
  }

  const Convolution<T> &all;
  const int64_t first, count;
  /// One a tap.
  using Pointers = std::conditional_t<Taps != 0, std::array<const T *, Taps>,
                                      std::vector<const T *>>;
  Pointers sources{}, later{};
  T *const weight;  ///< [taps, block]
  T *const zero;    ///< what is before the tokens without a halo
  T *const ring;    ///< gradients of sums, by token modulo taps
  T *const partial; ///< of the weight, of a few tokens
  T *const sum;     ///< of the weight
};

/// Calls `body` with a block compiled for the usual filter, or for any.
template <typename T, typename Body>
HWY_INLINE void withBlock(const Convolution<T> &all, int64_t first,
                          int64_t count, T *scratch, Body body) {
  if (all.taps == 4) {
    body(ChannelBlock<4, T>(all, first, count, scratch));
  } else {
    body(ChannelBlock<0, T>(all, first, count, scratch));
  }
}

void forward32(const Convolution<float> &all, int64_t batch, int64_t first,
               int64_t count, float *scratch) {
  withBlock(all, first, count, scratch,
            [&](auto block) { block.forward(batch); });
}
void forward64(const Convolution<double> &all, int64_t batch, int64_t first,
               int64_t count, double *scratch) {
  withBlock(all, first, count, scratch,
            [&](auto block) { block.forward(batch); });
}
void backward32(const Convolution<float> &all, int64_t first, int64_t count,
                float *scratch) {
  withBlock(all, first, count, scratch, [](auto block) { block.backward(); });
}
void backward64(const Convolution<double> &all, int64_t first, int64_t count,
                double *scratch) {
  withBlock(all, first, count, scratch, [](auto block) { block.backward(); });
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hp::fused {
HWY_EXPORT(forward32);
HWY_EXPORT(forward64);
HWY_EXPORT(backward32);
HWY_EXPORT(backward64);

template <typename T> int64_t convolutionScratch(const Convolution<T> &all) {
  return (4 * all.taps + 1) * convolutionBlock;
}
template int64_t convolutionScratch(const Convolution<float> &);
template int64_t convolutionScratch(const Convolution<double> &);

void convolutionForward(const Convolution<float> &all, int64_t batch,
                        int64_t first, int64_t count, float *scratch) {
  HWY_DYNAMIC_DISPATCH(forward32)(all, batch, first, count, scratch);
}
void convolutionForward(const Convolution<double> &all, int64_t batch,
                        int64_t first, int64_t count, double *scratch) {
  HWY_DYNAMIC_DISPATCH(forward64)(all, batch, first, count, scratch);
}
void convolutionBackward(const Convolution<float> &all, int64_t first,
                         int64_t count, float *scratch) {
  HWY_DYNAMIC_DISPATCH(backward32)(all, first, count, scratch);
}
void convolutionBackward(const Convolution<double> &all, int64_t first,
                         int64_t count, double *scratch) {
  HWY_DYNAMIC_DISPATCH(backward64)(all, first, count, scratch);
}

} // namespace hp::fused
#endif // HWY_ONCE
