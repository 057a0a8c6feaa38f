//===- Convolution.cpp - Tensors of the causal convolution ----------------===//

#include "Convolution.h"
#include "Fused.h"

using namespace hp;
using namespace hp::fused;

template <typename T> static Tokens<T> tokens(const at::Tensor &x) {
  return {static_cast<T *>(x.data_ptr()), x.stride(0), x.stride(1)};
}
template <typename T> static Tokens<const T> read(const at::Tensor &x) {
  return {static_cast<const T *>(x.const_data_ptr()), x.stride(0), x.stride(1)};
}

/// Whether the halo takes the place of the padding: before the only shard of a
/// sequence is nothing but the padding.
static bool hasHalo(const Call &call, Operands x) {
  llvm::ArrayRef<AxisId> axes = call.dims(0)[1].axes;
  return x.size() == 3 && (axes.empty() || call.numRanks(axes) != 1);
}

namespace {
/// The operands with strides as wanted.
struct Given {
  at::Tensor x, halo, weight;

  Given(const Call &call, Operands operands)
      : x(withUnitStride(operands[0])), weight(operands.back().contiguous()) {
    if (hasHalo(call, operands)) {
      halo = withUnitStride(operands[1]);
    }
  }
};
} // namespace

template <typename T> static Convolution<T> convolutionOf(const Given &given) {
  Convolution<T> all;
  all.batch = given.x.size(0);
  all.tokens = given.x.size(1);
  all.channels = given.x.size(2);
  all.taps = given.weight.size(2);
  all.x = read<T>(given.x);
  if (given.halo.defined()) {
    all.halo = read<T>(given.halo);
  }
  all.weight = given.weight.template const_data_ptr<T>();
  return all;
}

/// Calls `body` for each of `count` tasks over the threads, each with scratch
/// memory of its own.
template <typename T, typename Body>
static void runTasks(const Convolution<T> &all, const at::Tensor &like,
                     int64_t count, Body body) {
  int64_t size = convolutionScratch(all);
  at::Tensor scratch = at::empty(
      {std::min<int64_t>(count, numThreads()) * size}, like.options());
  T *memory = scratch.data_ptr<T>();
  int64_t grain = (count + numThreads() - 1) / numThreads();
  forEachRange(count, grain, [&](int64_t first, int64_t last) {
    for (int64_t task = first; task < last; ++task) {
      body(task, memory + first / grain * size);
    }
  });
}

static int64_t numBlocks(int64_t channels) {
  return (channels + convolutionBlock - 1) / convolutionBlock;
}

template <typename T>
static Tensors forward(const Call &call, Operands operands) {
  Given given(call, operands);
  Convolution<T> all = convolutionOf<T>(given);
  at::Tensor y = emptyOf(given.x);
  all.y = tokens<T>(y);
  int64_t blocks = numBlocks(all.channels);
  runTasks(all, y, all.batch * blocks, [&](int64_t task, T *scratch) {
    int64_t first = task % blocks * convolutionBlock;
    int64_t count = std::min(convolutionBlock, all.channels - first);
    convolutionForward(all, task / blocks, first, count, scratch);
  });
  return {y};
}

template <typename T>
static Tensors backward(const Call &call, const Adjoint &adjoint) {
  Given given(call, adjoint.operands);
  Convolution<T> all = convolutionOf<T>(given);
  bool threeOperands = adjoint.operands.size() == 3;
  at::Tensor yGradient = withUnitStride(adjoint.cotangents[0]);
  all.yGradient = read<T>(yGradient);
  at::Tensor running = adjoint.running(0);
  if (running.defined()) {
    running = withUnitStride(running);
    all.xRunning = read<T>(running);
  }
  at::Tensor weightRunning = adjoint.running(threeOperands ? 2 : 1);
  if (weightRunning.defined()) {
    weightRunning = weightRunning.contiguous();
    all.weightRunning = weightRunning.const_data_ptr<T>();
  }

  Tensors gradients{emptyOf(given.x)};
  all.xGradient = tokens<T>(gradients[0]);
  at::Tensor haloRunning;
  if (threeOperands && given.halo.defined()) {
    gradients.push_back(emptyOf(given.halo));
    all.haloGradient = tokens<T>(gradients[1]);
    haloRunning = adjoint.running(1);
    if (haloRunning.defined()) {
      haloRunning = withUnitStride(haloRunning);
      all.haloRunning = read<T>(haloRunning);
    }
  } else if (threeOperands) {
    gradients.push_back(
        gradientToAddTo(adjoint.operands[1], adjoint.running(1)));
  }
  gradients.push_back(emptyOf(given.weight));
  all.weightGradient = gradients.back().template data_ptr<T>();

  runTasks(all, yGradient, numBlocks(all.channels),
           [&](int64_t task, T *scratch) {
             int64_t first = task * convolutionBlock;
             int64_t count = std::min(convolutionBlock, all.channels - first);
             convolutionBackward(all, first, count, scratch);
           });
  return gradients;
}

const Row fused::causalConv1d = {[](const Call &call, Operands x) {
                                   return x[0].scalar_type() == at::kDouble
                                              ? forward<double>(call, x)
                                              : forward<float>(call, x);
                                 },
                                 [](const Call &call, const Adjoint &adjoint) {
                                   return adjoint.operands[0].scalar_type() ==
                                                  at::kDouble
                                              ? backward<double>(call, adjoint)
                                              : backward<float>(call, adjoint);
                                 }};
