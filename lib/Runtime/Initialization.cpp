//===- Initialization.cpp - How weights start -----------------------------===//

#include "hp/Runtime/ParameterStore.h"
#include "llvm/Support/xxhash.h"
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/core/GradMode.h>
#include <cmath>
#include <numbers>

using namespace hp;
using llvm::StringRef;

/// Inputs of one output of a linear or convolution weight.
static int64_t fanIn(const at::Tensor &weight) {
  return weight.numel() / weight.size(0);
}

/// Copies a float32 draw into the parameter, whose dtype may be wider.
static void assign(StoredParameter &parameter, const at::Tensor &drawn) {
  parameter.value.copy_(drawn);
}

/// Starts that need no draw. False for the others.
static bool setConstant(StoredParameter &parameter) {
  if (parameter.init == "ones") {
    parameter.value.fill_(1);
  } else if (parameter.init == "zeros") {
    parameter.value.zero_();
  } else {
    return false;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// init: torch
//===----------------------------------------------------------------------===//

/// torch::nn::init::kaiming_uniform_ with a = sqrt(5), as Linear and Conv1d
/// start; a bias has the bound 1/sqrt(fan_in) of its weight.
static void initTorch(ParameterStore &store, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  int64_t weightFanIn = 1;
  for (StoredParameter &parameter : store.all()) {
    if (setConstant(parameter)) {
      continue;
    }
    at::Tensor drawn = at::empty(parameter.value.sizes(), at::kFloat);
    if (parameter.init == "embedding") {
      drawn.normal_(0, 1, generator);
    } else if (parameter.init == "log_uniform") {
      drawn.uniform_(0, 16, generator).log_();
    } else if (parameter.init == "bias") {
      double bound = 1 / std::sqrt(double(weightFanIn));
      drawn.uniform_(-bound, bound, generator);
    } else {
      weightFanIn = fanIn(drawn);
      double gain = std::sqrt(2.0 / (1 + 5));
      double bound = std::sqrt(3.0) * (gain / std::sqrt(double(weightFanIn)));
      drawn.uniform_(-bound, bound, generator);
    }
    assign(parameter, drawn);
  }
}

//===----------------------------------------------------------------------===//
// init: normal
//===----------------------------------------------------------------------===//

static void initNormal(ParameterStore &store, uint64_t seed, double range) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (unsigned index : store.registration()) {
    StoredParameter &parameter = store.all()[index];
    if (setConstant(parameter)) {
      continue;
    }
    at::Tensor drawn = at::empty(parameter.value.sizes(), at::kFloat);
    if (parameter.init == "log_uniform") {
      drawn.uniform_(0, 16, generator).log_();
    } else if (parameter.init == "bias") {
      drawn.zero_();
    } else {
      drawn.normal_(0, range, generator);
    }
    assign(parameter, drawn);
  }
}

//===----------------------------------------------------------------------===//
// init: philox
//===----------------------------------------------------------------------===//

namespace {
/// Element i of a parameter takes word i % 4 of block i / 4, so any slice can
/// be drawn by itself.
class ElementStream {
public:
  ElementStream(uint64_t seed, StringRef name)
      : seed(seed), stream(llvm::xxh3_64bits(name)) {}

  /// Four words in (0, 1).
  std::array<double, 4> uniforms(uint64_t block) const {
    at::Philox4_32 engine(seed, stream, block);
    std::array<double, 4> words;
    for (double &word : words) {
      word = (engine() + 0.5) * 0x1p-32;
    }
    return words;
  }

  /// Four independent standard normals, by Box and Muller.
  std::array<double, 4> normals(uint64_t block) const {
    std::array<double, 4> u = uniforms(block);
    for (unsigned i = 0; i < 4; i += 2) {
      double radius = std::sqrt(-2 * std::log(u[i]));
      double angle = 2 * std::numbers::pi * u[i + 1];
      u[i] = radius * std::cos(angle);
      u[i + 1] = radius * std::sin(angle);
    }
    return u;
  }

private:
  uint64_t seed, stream;
};
} // namespace

static void initPhilox(ParameterStore &store, uint64_t seed, double range) {
  for (StoredParameter &parameter : store.all()) {
    if (setConstant(parameter)) {
      continue;
    }
    if (parameter.init == "bias") {
      parameter.value.zero_();
      continue;
    }
    bool isLog = parameter.init == "log_uniform";
    ElementStream stream(seed, parameter.name);
    at::Tensor drawn = at::empty(parameter.value.sizes(), at::kFloat);
    float *out = drawn.data_ptr<float>();
    int64_t count = drawn.numel();
    for (int64_t begin = 0; begin < count; begin += 4) {
      std::array<double, 4> words =
          isLog ? stream.uniforms(begin / 4) : stream.normals(begin / 4);
      for (int64_t i = begin; i < std::min(begin + 4, count); ++i) {
        double word = words[i - begin];
        out[i] = float(isLog ? std::log(16 * word) : range * word);
      }
    }
    assign(parameter, drawn);
  }
}

void hp::initialize(ParameterStore &store, InitKind kind, uint64_t seed,
                    double range) {
  c10::NoGradGuard noGrad;
  switch (kind) {
  case InitKind::Philox:
    return initPhilox(store, seed, range);
  case InitKind::Torch:
    return initTorch(store, seed);
  case InitKind::Normal:
    return initNormal(store, seed, range);
  }
}
