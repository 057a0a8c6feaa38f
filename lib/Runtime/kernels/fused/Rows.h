//===- Rows.h - What is computed row by row, on plain memory ----*- C++ -*-===//
//
// Norms, gates, decay and loss work on rows, the last dims of a tensor. Running
// gradients are added to what is made, and may be absent.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_ROWS_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_ROWS_H

#include <cstdint>

namespace hp::fused {

/// Rows in two levels of strides; the elements of a row are dense. Null where
/// absent.
template <typename T> struct Rows {
  T *data = nullptr;
  int64_t inner = 1; ///< rows to one step of the outer level
  int64_t outerStride = 0, innerStride = 0;

  explicit operator bool() const { return data != nullptr; }
  T *at(int64_t row) const {
    return data + row / inner * outerStride + row % inner * innerStride;
  }
};

/// y = x * rsqrt(mean(x^2) + eps) * w, or * (1 + w), and * silu(gate) if there
/// is one.
template <typename T> struct Norm {
  int64_t width;
  T eps;
  bool unitOffset = false;
  const T *weight;
  Rows<const T> x, gate;
  Rows<T> y;

  Rows<const T> yGradient, xRunning, gateRunning;
  Rows<T> xGradient, gateGradient;
};

/// y = value * sigmoid(gate), or value * silu(gate).
template <typename T> struct Gate {
  int64_t width;
  bool isSilu;
  Rows<const T> gate, value;
  Rows<T> y;

  Rows<const T> yGradient, gateRunning, valueRunning;
  Rows<T> gateGradient, valueGradient;
};

/// y = -exp(logA) * softplus(a + bias).
template <typename T> struct Decay {
  int64_t width;
  const T *logA, *bias;
  Rows<const T> a;
  Rows<T> y;

  Rows<const T> yGradient, aRunning;
  Rows<T> aGradient;
};

/// The sum of -log softmax(logits)[label], and its gradient.
template <typename T> struct Loss {
  int64_t width;
  Rows<const T> logits;
  Rows<const int64_t> labels; ///< one a row; negative: ignored
  double *losses = nullptr;   ///< of each row

  T lossGradient = 0;
  Rows<const T> running;
  Rows<T> gradient;
};

/// One update of AdamW; see StepKernels.h.
template <typename T> struct Update {
  T *value, *expAvg, *expAvgSq;
  const T *gradient;
  double coefficient, decay, beta1, beta2, eps;
  double rootOfCorrection2, stepSize;
};

// Rows [first, last). The backward of a block of rows writes that block's part
// of the gradients of parameters to `partial`: [width], of decay [2, width].
#define HP_FUSED_ROWS(T)                                                       \
  void normForward(const Norm<T> &, int64_t first, int64_t last);              \
  void normBackward(const Norm<T> &, int64_t first, int64_t last, T *partial); \
  void gateForward(const Gate<T> &, int64_t first, int64_t last);              \
  void gateBackward(const Gate<T> &, int64_t first, int64_t last);             \
  void decayForward(const Decay<T> &, int64_t first, int64_t last);            \
  void decayBackward(const Decay<T> &, int64_t first, int64_t last,            \
                     T *partial);                                              \
  void lossForward(const Loss<T> &, int64_t first, int64_t last);              \
  void lossBackward(const Loss<T> &, int64_t first, int64_t last);             \
  void update(const Update<T> &, int64_t first, int64_t last);                 \
  double sumOfSquares(const T *x, int64_t count);
HP_FUSED_ROWS(float)
HP_FUSED_ROWS(double)
#undef HP_FUSED_ROWS

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_ROWS_H
