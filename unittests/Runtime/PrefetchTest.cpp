//===- PrefetchTest.cpp - Early messages change no number -----------------===//
//
// Plans of sixteen ranks, expanded with and without prefetch, run on the same
// parameters and batch: every gradient, the norm, and all that each rank stores
// after two steps have the same bits. What was sent is the same, and the bytes
// held are those that the text predicts, with what arrives early in them.
//
//===----------------------------------------------------------------------===//

#include "StepTesting.h"
#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Memory.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/ExpandStep.h"
#include "hp/Runtime/Pieces.h"
#include "llvm/Support/MemoryBuffer.h"
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

/// What two steps came to.
struct Outcome {
  std::map<std::string, at::Tensor> gradients;
  std::vector<double> numbers; ///< losses and norms
  std::vector<at::Tensor> stored;
  std::string traffic;
  int64_t peak = 0; ///< of values on rank 0
  unsigned waits = 0;
};

class PrefetchedStep {
public:
  PrefetchedStep(const std::string &plan, const std::string &prefetch) {
    std::string path =
        HP_SOURCE_DIR "/test/Passes/Inputs/worked-plans/" + plan + ".hp";
    auto buffer = llvm::MemoryBuffer::getFile(path);
    module = buffer ? parseModule((*buffer)->getBuffer(), path, diag) : nullptr;
    std::string message;
    auto pass = makeExpandStep();
    if (!module || !pass->setOption("prefetch", prefetch, message) ||
        !pass->run(*module, diag) || !verify(*module, diag)) {
      throw std::runtime_error(diag.firstError() + message);
    }
    comm = makeLockstepCommunicator(module->mesh);
    stores = makeStores(*module, comm->localRanks());
    kernels = makeReferenceKernels(*comm);
    interpreter = Interpreter::create(*module, *comm, kernels, stores, diag);
    if (!interpreter) {
      throw std::runtime_error(diag.firstError());
    }
    draw();
  }

  Outcome train() {
    Outcome outcome;
    std::vector<StepInputs> cut = inputs();
    auto check = [&](bool ok) {
      if (!ok) {
        throw std::runtime_error(diag.firstError());
      }
    };
    check(interpreter->gradients(
        cut,
        [&](llvm::StringRef name, const at::Tensor &gradient) {
          outcome.gradients[name.str()] = gradient.clone();
        },
        diag));
    check(interpreter->forward(cut, diag).has_value());
    for (int i = 0; i < 2; ++i) {
      std::optional<StepResult> result = interpreter->step(cut, diag);
      check(result.has_value());
      outcome.numbers.push_back(result->loss);
      outcome.numbers.push_back(result->gradNorm);
    }
    for (ParameterStore &store : stores) {
      for (StoredParameter &parameter : store.all()) {
        outcome.stored.push_back(parameter.value);
        outcome.stored.push_back(parameter.expAvg);
      }
    }
    llvm::raw_string_ostream stream(outcome.traffic);
    print(interpreter->traffic(), module->mesh, stream);
    outcome.peak = interpreter->peakBytes();
    outcome.waits =
        llvm::count_if(module->findFunction("step")->body->ops,
                       [](const Operation &op) { return op.is(OpKind::Wait); });
    return outcome;
  }

  DiagnosticEngine diag;
  std::unique_ptr<Module> module;
  std::unique_ptr<Communicator> comm;
  ParameterStores stores;
  KernelSets kernels;
  std::unique_ptr<Interpreter> interpreter;

private:
  void draw() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(11);
    ParameterStore whole = ParameterStore::whole(*module);
    for (StoredParameter &parameter : whole.all()) {
      at::Tensor value = at::randn(parameter.value.sizes(), generator,
                                   parameter.value.options()) *
                         0.3;
      for (ParameterStore &store : stores) {
        StoredParameter &piece = *store.find(parameter.name);
        piece.value.copy_(cutPiece(value, piece.placement));
      }
    }
  }

  std::vector<StepInputs> inputs() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(12);
    int64_t rows = module->findDim("B")->size;
    int64_t length = module->findDim("S")->size;
    at::Tensor tokens =
        at::randint(0, 32, {rows, length + 1}, generator, at::dtype(at::kLong));
    StepInputs whole{tokens.slice(1, 0, length).contiguous(),
                     tokens.slice(1, 1).contiguous(), at::arange(length), 1e-2};
    return cutInputs(whole, *module, comm->localRanks());
  }
};

class Prefetch : public ::testing::TestWithParam<const char *> {};

TEST_P(Prefetch, changesNoBitAndNoMessage) {
  Outcome plain = PrefetchedStep(GetParam(), "0").train();
  EXPECT_EQ(plain.waits, 0u);
  EXPECT_GT(plain.gradients.size(), 25u);
  for (const char *depth : {"1", "2"}) {
    Outcome early = PrefetchedStep(GetParam(), depth).train();
    EXPECT_GT(early.waits, 8u);
    ASSERT_EQ(early.gradients.size(), plain.gradients.size());
    for (auto &[name, gradient] : plain.gradients) {
      EXPECT_GT(gradient.abs().max().item<double>(), 0) << name;
      EXPECT_TRUE(sameBits(early.gradients.at(name), gradient)) << name;
    }
    EXPECT_EQ(early.numbers, plain.numbers);
    ASSERT_EQ(early.stored.size(), plain.stored.size());
    for (size_t i = 0; i < plain.stored.size(); ++i) {
      EXPECT_TRUE(sameBits(early.stored[i], plain.stored[i])) << i;
    }
    EXPECT_EQ(early.traffic, plain.traffic);
    EXPECT_GT(early.peak, plain.peak) << "what comes early takes room";
  }
}

TEST_P(Prefetch, bytesAreThoseThatTheTextPredicts) {
  for (const char *depth : {"1", "3"}) {
    PrefetchedStep step(GetParam(), depth);
    step.train();
    Function &function = *step.module->findFunction("step");
    for (int64_t rank : step.comm->localRanks()) {
      EXPECT_EQ(step.interpreter->peakBytes(rank),
                peakOfValues(*step.module, function, rank).bytes)
          << "rank " << rank;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, Prefetch,
                         ::testing::Values("alltoall", "bias_sp_off",
                                           "kv_replicated", "sp_on"),
                         [](const auto &info) { return info.param; });

} // namespace
