//===- LearningRate.cpp - The optimizer's settings, step by step ----------===//

#include "hp/Spec/RunConfig.h"
#include <algorithm>
#include <cmath>
#include <numbers>

using namespace hp;
using llvm::StringRef;

double hp::learningRate(const RunConfig &config, int64_t step) {
  const LRSchedulerConfig &scheduler = config.lrScheduler;
  double lr = config.optimizer.lr;
  int64_t total = config.training.steps;
  int64_t warmup = std::min<int64_t>(scheduler.warmupSteps, total);
  if (step < warmup) {
    return lr * (double(step + 1) / double(warmup));
  }
  if (scheduler.decayType == Decay::None) {
    return lr;
  }
  int64_t decay = total - warmup;
  if (*scheduler.decayRatio) {
    // nearbyint rounds half to even, as Python's round does.
    double steps = std::nearbyint(double(total) * **scheduler.decayRatio);
    decay = std::min<int64_t>(decay, int64_t(steps));
  }
  int64_t stableEnd = total + 1 - decay;
  if (step < stableEnd || decay == 0) {
    return lr;
  }
  double progress = double(step + 1 - stableEnd) / double(decay);
  progress = std::min(progress, 1.0);
  double factor = scheduler.decayType == Decay::Linear
                      ? 1.0 - progress
                      : 0.5 * (1.0 + std::cos(std::numbers::pi * progress));
  double floor = scheduler.minLRFactor;
  return lr * (floor + (1.0 - floor) * factor);
}

/// Whether `name` matches `pattern`, in which `*` is any text and `?` one
/// character. Time is at most the product of the lengths.
static bool matches(StringRef pattern, StringRef name) {
  size_t p = 0, n = 0;
  size_t star = StringRef::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() &&
               (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != StringRef::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.drop_front(p).ltrim('*').empty();
}

bool hp::isExemptFromDecay(const OptimizerConfig &optimizer, StringRef name) {
  for (const std::string &pattern : *optimizer.noDecay) {
    if (matches(pattern, name)) {
      return true;
    }
  }
  return false;
}
