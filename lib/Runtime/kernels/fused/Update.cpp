//===- Update.cpp - Sums of squares and AdamW in one pass -----------------===//

#include "Update.h"
#include "RowTensors.h"
#include <cmath>

using namespace hp;
using namespace hp::fused;

/// Elements whose squares are summed together, whatever the number of threads.
static constexpr int64_t summedTogether = 16384;

template <typename T> static double sumOf(const at::Tensor &dense) {
  const T *x = dense.const_data_ptr<T>();
  int64_t blocks = (dense.numel() + summedTogether - 1) / summedTogether;
  std::vector<double> sums(blocks);
  forEachRange(blocks, 4, [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      int64_t begin = block * summedTogether;
      sums[block] = sumOfSquares(
          x + begin, std::min(summedTogether, dense.numel() - begin));
    }
  });
  double sum = 0;
  for (double part : sums) {
    sum += part;
  }
  return sum;
}

at::Tensor fused::sumSquares(const at::Tensor &gradient) {
  at::Tensor dense = gradient.contiguous();
  switch (dense.scalar_type()) {
  case at::kFloat:
    return at::scalar_tensor(sumOf<float>(dense), at::kDouble);
  case at::kDouble:
    return at::scalar_tensor(sumOf<double>(dense), at::kDouble);
  default:
    return hp::sumSquares(gradient);
  }
}

template <typename T>
static void updateAll(StoredParameter &parameter, const at::Tensor &gradient,
                      Update<T> all) {
  all.value = parameter.value.data_ptr<T>();
  all.expAvg = parameter.expAvg.data_ptr<T>();
  all.expAvgSq = parameter.expAvgSq.data_ptr<T>();
  all.gradient = gradient.const_data_ptr<T>();
  forEachRange(gradient.numel(), 16384,
               [&](int64_t first, int64_t last) { update(all, first, last); });
}

template <typename T>
static Update<T> updateOf(double coefficient, double learningRate,
                          int64_t count, const AdamWConstants &constants) {
  Update<T> all{};
  all.coefficient = coefficient;
  all.decay = 1 - learningRate * constants.weightDecay;
  all.beta1 = constants.beta1;
  all.beta2 = constants.beta2;
  all.eps = constants.eps;
  all.rootOfCorrection2 = std::sqrt(1 - std::pow(constants.beta2, count));
  all.stepSize = learningRate / (1 - std::pow(constants.beta1, count));
  return all;
}

void fused::adamw(StoredParameter &parameter, at::Tensor gradient,
                  double coefficient, double learningRate, int64_t count,
                  const AdamWConstants &constants) {
  at::Tensor &value = parameter.value;
  at::ScalarType dtype = value.scalar_type();
  if (!parameter.expAvg.defined()) {
    parameter.expAvg = at::zeros_like(value);
    parameter.expAvgSq = at::zeros_like(value);
  }
  bool fits = (dtype == at::kFloat || dtype == at::kDouble) &&
              gradient.scalar_type() == dtype && value.is_contiguous() &&
              parameter.expAvg.is_contiguous() &&
              parameter.expAvgSq.is_contiguous();
  if (!fits) {
    hp::adamw(parameter, gradient, coefficient, learningRate, count, constants);
  } else if (dtype == at::kDouble) {
    updateAll(parameter, gradient.contiguous(),
              updateOf<double>(coefficient, learningRate, count, constants));
  } else {
    updateAll(parameter, gradient.contiguous(),
              updateOf<float>(coefficient, learningRate, count, constants));
  }
}
