//===- Convolution.h - The causal convolution on plain memory ---*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_CONVOLUTION_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_CONVOLUTION_H

#include <cstdint>

namespace hp::fused {

/// [batch, tokens, channels] in memory; the last dim has stride 1.
template <typename T> struct Tokens {
  T *data = nullptr;
  int64_t batchStride = 0, tokenStride = 0;

  explicit operator bool() const { return data != nullptr; }
  T *at(int64_t batch, int64_t token) const {
    return data + batch * batchStride + token * tokenStride;
  }
};

/// y = silu(s), s_t = sum over j of w_j x_(t - taps + 1 + j), by channel; what
/// is before the tokens is the halo, or zero.
template <typename T> struct Convolution {
  int64_t batch, tokens, channels, taps;
  Tokens<const T> x, halo; ///< of the halo, taps - 1 tokens
  const T *weight;         ///< dense [channels, taps]
  Tokens<T> y;

  /// Gradients, and the running ones to add, absent or not.
  Tokens<const T> yGradient, xRunning, haloRunning;
  const T *weightRunning = nullptr; ///< dense
  Tokens<T> xGradient, haloGradient;
  T *weightGradient = nullptr; ///< dense
};

/// Elements of scratch memory that a call needs, and the channels of a block:
/// no result depends on how channels are divided.
constexpr int64_t convolutionBlock = 256;
template <typename T>
int64_t convolutionScratch(const Convolution<T> &convolution);

/// One batch entry, channels [first, first + count) with count at most
/// convolutionBlock.
void convolutionForward(const Convolution<float> &convolution, int64_t batch,
                        int64_t first, int64_t count, float *scratch);
void convolutionForward(const Convolution<double> &convolution, int64_t batch,
                        int64_t first, int64_t count, double *scratch);
/// All batch entries.
void convolutionBackward(const Convolution<float> &convolution, int64_t first,
                         int64_t count, float *scratch);
void convolutionBackward(const Convolution<double> &convolution, int64_t first,
                         int64_t count, double *scratch);

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_CONVOLUTION_H
