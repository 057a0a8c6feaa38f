//===- Initialization.cpp - How weights start -----------------------------===//

#include "hp/Runtime/ParameterStore.h"
#include "hp/Runtime/Pieces.h"
#include "llvm/Support/xxhash.h"
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/PhiloxRNGEngine.h>
#include <c10/core/GradMode.h>
#include <cmath>
#include <numbers>

using namespace hp;
using llvm::StringRef;

using Stores = llvm::MutableArrayRef<ParameterStore>;

/// Inputs of one output of a linear or convolution weight.
static int64_t fanIn(const at::Tensor &weight) {
  return weight.numel() / weight.size(0);
}

/// A tensor for a draw of the whole parameter. Draws are float32; a parameter's
/// dtype may be wider.
static at::Tensor wholeTensor(const StoredParameter &parameter) {
  const Extents &shape = parameter.placement.wholeShape;
  return at::empty(at::IntArrayRef(shape.data(), shape.size()), at::kFloat);
}

/// Gives every store its piece of parameter `index`.
static void assign(Stores stores, unsigned index, const at::Tensor &drawn) {
  for (ParameterStore &store : stores) {
    StoredParameter &parameter = store.all()[index];
    parameter.value.copy_(cutPiece(drawn, parameter.placement));
  }
}

/// Starts that need no draw. False for the others.
static bool setConstant(Stores stores, unsigned index) {
  llvm::StringRef init = stores[0].all()[index].init;
  if (init != "ones" && init != "zeros") {
    return false;
  }
  for (ParameterStore &store : stores) {
    store.all()[index].value.fill_(init == "ones" ? 1 : 0);
  }
  return true;
}

//===----------------------------------------------------------------------===//
// init: torch
//===----------------------------------------------------------------------===//

/// torch::nn::init::kaiming_uniform_ with a = sqrt(5), as Linear and Conv1d
/// start; a bias has the bound 1/sqrt(fan_in) of its weight.
static void initTorch(Stores stores, uint64_t seed) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  int64_t weightFanIn = 1;
  for (auto [index, parameter] : llvm::enumerate(stores[0].all())) {
    if (setConstant(stores, index)) {
      continue;
    }
    at::Tensor drawn = wholeTensor(parameter);
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
    assign(stores, index, drawn);
  }
}

//===----------------------------------------------------------------------===//
// init: normal
//===----------------------------------------------------------------------===//

static void initNormal(Stores stores, uint64_t seed, double range) {
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (unsigned index : stores[0].registration()) {
    const StoredParameter &parameter = stores[0].all()[index];
    if (setConstant(stores, index)) {
      continue;
    }
    at::Tensor drawn = wholeTensor(parameter);
    if (parameter.init == "log_uniform") {
      drawn.uniform_(0, 16, generator).log_();
    } else if (parameter.init == "bias") {
      drawn.zero_();
    } else {
      drawn.normal_(0, range, generator);
    }
    assign(stores, index, drawn);
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

/// Elements `first` to `first + count` of the parameter, in row-major order.
static void drawElements(const ElementStream &stream, bool isLog, double range,
                         int64_t first, int64_t count, float *out) {
  std::array<double, 4> words;
  for (int64_t i = first; i < first + count; ++i) {
    if (i == first || i % 4 == 0) {
      words = isLog ? stream.uniforms(i / 4) : stream.normals(i / 4);
    }
    double word = words[i % 4];
    *out++ = float(isLog ? std::log(16 * word) : range * word);
  }
}

/// Draws a rank's piece: region by region, a run of the last dim at a time.
static at::Tensor drawPiece(const ElementStream &stream, bool isLog,
                            double range, const Placement &placement) {
  const Extents &shape = placement.shape;
  at::Tensor piece =
      at::empty(at::IntArrayRef(shape.data(), shape.size()), at::kFloat);
  float *out = piece.data_ptr<float>();
  for (const Region &region : placement.regions) {
    unsigned rank = region.size.size();
    int64_t runs = 1, length = rank ? region.size.back() : 1;
    for (unsigned dim = 0; dim + 1 < rank; ++dim) {
      runs *= region.size[dim];
    }
    for (int64_t run = 0; run < runs && length > 0; ++run) {
      // The run's place, with the coordinates of `run` as digits.
      int64_t whole = 0, local = 0, rest = run, left = runs;
      for (unsigned dim = 0; dim < rank; ++dim) {
        int64_t at = 0;
        if (dim + 1 < rank) {
          left /= region.size[dim];
          at = rest / left;
          rest %= left;
        }
        whole = whole * placement.wholeShape[dim] + region.whole[dim] + at;
        local = local * shape[dim] + region.piece[dim] + at;
      }
      drawElements(stream, isLog, range, whole, length, out + local);
    }
  }
  return piece;
}

static void initPhilox(Stores stores, uint64_t seed, double range) {
  for (auto [index, first] : llvm::enumerate(stores[0].all())) {
    if (setConstant(stores, index)) {
      continue;
    }
    bool isLog = first.init == "log_uniform";
    ElementStream stream(seed, first.name);
    for (ParameterStore &store : stores) {
      StoredParameter &parameter = store.all()[index];
      if (parameter.init == "bias") {
        parameter.value.zero_();
      } else {
        parameter.value.copy_(
            drawPiece(stream, isLog, range, parameter.placement));
      }
    }
  }
}

void hp::initialize(Stores stores, InitKind kind, uint64_t seed, double range) {
  c10::NoGradGuard noGrad;
  switch (kind) {
  case InitKind::Philox:
    return initPhilox(stores, seed, range);
  case InitKind::Torch:
    return initTorch(stores, seed);
  case InitKind::Normal:
    return initNormal(stores, seed, range);
  }
}
