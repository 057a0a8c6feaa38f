//===- Qwen35Training.cpp - One training step of the reference model ------===//
//
// Backward through the whole model by LibTorch's autograd, clipping, and
// LibTorch's own AdamW.
//
//===----------------------------------------------------------------------===//
#include "Qwen35Reference.h"

#include <torch/optim/adamw.h>

#include <algorithm>
#include <cmath>
#include <tuple>

using at::Tensor;

namespace reference {

double gradientNorm(const NamedTensors &grads) {
  double total = 0.0;
  for (const NamedTensor &grad : grads) {
    Tensor wide = grad.tensor.contiguous().to(at::kDouble);
    total += (wide * wide).sum().item<double>();
  }
  return std::sqrt(total);
}

struct Trainer::Optimizer {
  torch::optim::AdamW adamw;
};

static torch::optim::AdamW makeAdamW(const Qwen35Model &model,
                                     const AdamWSettings &settings) {
  auto options = [&](double weightDecay) {
    return torch::optim::AdamWOptions(settings.lr)
        .betas(std::make_tuple(settings.beta1, settings.beta2))
        .eps(settings.eps)
        .weight_decay(weightDecay);
  };
  std::vector<Tensor> decayed, kept;
  for (const NamedTensor &p : model.parameters) {
    (settings.noDecay.count(p.name) ? kept : decayed).push_back(p.tensor);
  }
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(decayed, std::make_unique<torch::optim::AdamWOptions>(
                                   options(settings.weightDecay)));
  groups.emplace_back(
      kept, std::make_unique<torch::optim::AdamWOptions>(options(0.0)));
  return torch::optim::AdamW(groups, options(settings.weightDecay));
}

Trainer::Trainer(Qwen35Model &model, const AdamWSettings &settings,
                 double maxNorm)
    : model(model), maxNorm(maxNorm),
      optimizer(new Optimizer{makeAdamW(model, settings)}) {}

Trainer::~Trainer() = default;

void Trainer::setLearningRate(double lr) {
  for (torch::optim::OptimizerParamGroup &group :
       optimizer->adamw.param_groups()) {
    group.options().set_lr(lr);
  }
}

StepResult Trainer::step(const Tensor &tokens, const Tensor &labels) {
  StepResult result;
  optimizer->adamw.zero_grad();
  Tensor mean = loss(model.forward(tokens), labels);
  mean.backward();
  result.loss = mean.detach();

  for (const NamedTensor &p : model.parameters) {
    result.grads.push_back({p.name, p.tensor.grad().clone()});
  }
  result.gradNorm = gradientNorm(result.grads);
  result.clipCoef = std::min(1.0, maxNorm / (result.gradNorm + 1e-6));
  for (const NamedTensor &p : model.parameters) {
    p.tensor.mutable_grad().mul_(result.clipCoef);
  }

  optimizer->adamw.step();
  for (const NamedTensor &p : model.parameters) {
    result.params.push_back({p.name, p.tensor.detach().clone()});
  }
  return result;
}

} // namespace reference
