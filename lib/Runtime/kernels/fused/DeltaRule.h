//===- DeltaRule.h - The gated delta rule on plain memory -------*- C++ -*-===//
//
// What stands between the tensors and the vectorized code: pointers, sizes and
// strides, without LibTorch.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULE_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULE_H

#include <cstdint>

namespace hp::fused {

/// [batch, tokens, heads, width] in memory; the last dim has stride 1. Null
/// where absent.
template <typename T> struct Heads {
  T *data = nullptr;
  int64_t batchStride = 0, tokenStride = 0, headStride = 0;

  explicit operator bool() const { return data != nullptr; }
  T *at(int64_t batch, int64_t head) const {
    return data + batch * batchStride + head * headStride;
  }
};

/// The operands, results and gradients of gated_delta_rule, or of gdr.summary:
/// that one has no queries, and its state is the map beside the term,
/// [keyWidth, keyWidth + valueWidth], which starts as (1, 0).
///
/// States are dense [batch, valueHeads, keyWidth, width]. Gradients are added
/// to what is there.
template <typename T> struct DeltaRule {
  int64_t batch, tokens, keyHeads, valueHeads, keyWidth, valueWidth;
  int64_t chunk; ///< at most `tokens`, unless there are none
  bool isSummary = false;

  Heads<const T> query, key, value;
  Heads<const T> decay, beta;        ///< of width 1
  const T *stateBefore = nullptr;    ///< null: zero
  Heads<T> out;                      ///< of gated_delta_rule
  T *map = nullptr, *term = nullptr; ///< of gdr.summary

  Heads<const T> outGradient;
  const T *mapGradient = nullptr, *termGradient = nullptr; ///< null: zero
  Heads<T> queryGradient, keyGradient, valueGradient;
  Heads<T> decayGradient, betaGradient;
  T *stateGradient = nullptr;

  /// Tasks are independent of each other: a batch entry and a key head each,
  /// with all its value heads.
  int64_t numTasks() const { return batch * keyHeads; }
};

/// Elements of scratch memory that a thread needs, aligned to 64 bytes.
template <typename T>
int64_t deltaRuleScratch(const DeltaRule<T> &rule, bool backward);

void deltaRuleForward(const DeltaRule<float> &rule, int64_t firstTask,
                      int64_t lastTask, float *scratch);
void deltaRuleForward(const DeltaRule<double> &rule, int64_t firstTask,
                      int64_t lastTask, double *scratch);
void deltaRuleBackward(const DeltaRule<float> &rule, int64_t firstTask,
                       int64_t lastTask, float *scratch);
void deltaRuleBackward(const DeltaRule<double> &rule, int64_t firstTask,
                       int64_t lastTask, double *scratch);

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULE_H
