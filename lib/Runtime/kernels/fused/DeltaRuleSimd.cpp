//===- DeltaRuleSimd.cpp - The gated delta rule, head by head -------------===//

#include "SimdTargets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "DeltaRuleSimd.cpp"
#include "hwy/foreach_target.h" // this file again, for each target

#include "DeltaRuleAdjoint-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

/// Calls `body` with the batch entry and value head of each head of the tasks.
template <typename T, typename Body>
HWY_INLINE void forEachHead(const DeltaRule<T> &rule, int64_t firstTask,
                            int64_t lastTask, Body body) {
  const int64_t group = rule.valueHeads / rule.keyHeads;
  for (int64_t task = firstTask; task < lastTask; ++task) {
    const int64_t firstHead = task % rule.keyHeads * group;
    for (int64_t i = 0; i < group; ++i) {
      body(task / rule.keyHeads, firstHead + i);
    }
  }
}

template <typename T>
void forward(const DeltaRule<T> &rule, int64_t firstTask, int64_t lastTask,
             T *scratch) {
  Chunk<T> chunk(rule, /*backward=*/false, scratch);
  const int64_t numChunks = (rule.tokens + rule.chunk - 1) / rule.chunk;
  forEachHead(rule, firstTask, lastTask, [&](int64_t batch, int64_t head) {
    chunk.start(batch, head);
    for (int64_t i = 0; i < numChunks; ++i) {
      chunk.load(i, /*queries=*/!rule.isSummary);
      chunk.solve();
      if (!rule.isSummary) {
        chunk.read();
      }
      if (rule.isSummary || i + 1 < numChunks) {
        chunk.advance();
      }
    }
    if (rule.isSummary) {
      chunk.finishSummary();
    }
  });
}

template <typename T>
void backward(const DeltaRule<T> &rule, int64_t firstTask, int64_t lastTask,
              T *scratch) {
  ChunkAdjoint<T> adjoint(rule, scratch);
  forEachHead(rule, firstTask, lastTask,
              [&](int64_t batch, int64_t head) { adjoint.run(batch, head); });
}

void forward32(const DeltaRule<float> &rule, int64_t firstTask,
               int64_t lastTask, float *scratch) {
  forward(rule, firstTask, lastTask, scratch);
}
void forward64(const DeltaRule<double> &rule, int64_t firstTask,
               int64_t lastTask, double *scratch) {
  forward(rule, firstTask, lastTask, scratch);
}
void backward32(const DeltaRule<float> &rule, int64_t firstTask,
                int64_t lastTask, float *scratch) {
  backward(rule, firstTask, lastTask, scratch);
}
void backward64(const DeltaRule<double> &rule, int64_t firstTask,
                int64_t lastTask, double *scratch) {
  backward(rule, firstTask, lastTask, scratch);
}

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hp::fused {
HWY_EXPORT(forward32);
HWY_EXPORT(forward64);
HWY_EXPORT(backward32);
HWY_EXPORT(backward64);

template <typename T>
int64_t deltaRuleScratch(const DeltaRule<T> &rule, bool backward) {
  return DeltaRuleScratch<T>(rule, backward, nullptr).size;
}
template int64_t deltaRuleScratch(const DeltaRule<float> &, bool);
template int64_t deltaRuleScratch(const DeltaRule<double> &, bool);

void deltaRuleForward(const DeltaRule<float> &rule, int64_t firstTask,
                      int64_t lastTask, float *scratch) {
  HWY_DYNAMIC_DISPATCH(forward32)(rule, firstTask, lastTask, scratch);
}
void deltaRuleForward(const DeltaRule<double> &rule, int64_t firstTask,
                      int64_t lastTask, double *scratch) {
  HWY_DYNAMIC_DISPATCH(forward64)(rule, firstTask, lastTask, scratch);
}
void deltaRuleBackward(const DeltaRule<float> &rule, int64_t firstTask,
                       int64_t lastTask, float *scratch) {
  HWY_DYNAMIC_DISPATCH(backward32)(rule, firstTask, lastTask, scratch);
}
void deltaRuleBackward(const DeltaRule<double> &rule, int64_t firstTask,
                       int64_t lastTask, double *scratch) {
  HWY_DYNAMIC_DISPATCH(backward64)(rule, firstTask, lastTask, scratch);
}

} // namespace hp::fused
#endif // HWY_ONCE
