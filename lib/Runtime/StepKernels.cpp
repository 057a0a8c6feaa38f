//===- StepKernels.cpp - What follows the last gradient -------------------===//

#include "StepKernels.h"
#include <ATen/ATen.h>
#include <cmath>

using namespace hp;

at::Tensor hp::sumSquares(const at::Tensor &gradient) {
  at::Tensor wide = gradient.contiguous().to(at::kDouble);
  return (wide * wide).sum();
}

at::Tensor hp::sumScalars(llvm::ArrayRef<at::Tensor> terms) {
  double total = 0;
  for (const at::Tensor &term : terms) {
    total += term.item<double>();
  }
  return at::scalar_tensor(total, at::kDouble);
}

at::Tensor hp::gradNorm(llvm::ArrayRef<at::Tensor> totals) {
  return at::scalar_tensor(std::sqrt(sumScalars(totals).item<double>()),
                           at::kDouble);
}

at::Tensor hp::clipCoefficient(const at::Tensor &norm, double maxNorm) {
  return at::scalar_tensor(
      std::min(1.0, maxNorm / (norm.item<double>() + 1e-6)), at::kDouble);
}

at::Tensor hp::isFinite(llvm::ArrayRef<at::Tensor> operands) {
  bool ok = std::isfinite(operands[0].item<double>());
  if (operands.size() > 1) {
    ok &= operands[1].item<int64_t>() > 0;
  }
  return at::scalar_tensor(ok, at::kBool);
}

void hp::adamw(StoredParameter &parameter, at::Tensor gradient,
               double coefficient, double learningRate, int64_t count,
               const AdamWConstants &constants) {
  at::Tensor &value = parameter.value;
  if (!parameter.expAvg.defined()) {
    parameter.expAvg = at::zeros_like(value);
    parameter.expAvgSq = at::zeros_like(value);
  }
  gradient = gradient.contiguous();
  gradient.mul_(coefficient);
  if (constants.weightDecay != 0) {
    value.mul_(1 - learningRate * constants.weightDecay);
  }
  double correction1 = 1 - std::pow(constants.beta1, count);
  double correction2 = 1 - std::pow(constants.beta2, count);
  parameter.expAvg.mul_(constants.beta1).add_(gradient, 1 - constants.beta1);
  parameter.expAvgSq.mul_(constants.beta2)
      .addcmul_(gradient, gradient, 1 - constants.beta2);
  at::Tensor denominator =
      (parameter.expAvgSq.sqrt() / std::sqrt(correction2)).add_(constants.eps);
  value.addcdiv_(parameter.expAvg, denominator, -learningRate / correction1);
}
