//===- StepTesting.h - A step program beside the reference ------*- C++ -*-===//
//
// Compiles a run configuration to a step and makes the independent reference
// model of the same configuration, so that tests can compare the two.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_STEPTESTING_H
#define HP_UNITTESTS_RUNTIME_STEPTESTING_H

#include "Qwen35Reference.h"
#include "hp/Runtime/Interpreter.h"
#include "hp/Spec/RunConfig.h"

namespace hp::testing {

/// A configuration of the tiny or micro flavor with overrides.
struct StepOptions {
  std::string flavor = "tiny";
  std::string config; ///< of model.config, as YAML flow: `{a: 1}`
  std::string parallelism = "{}"; ///< the section, as YAML flow
  std::string init = "torch";
  std::string dtype = "float32";
  int64_t batch = 2;
  int64_t seqLen = 70;
  double maxNorm = 1.0;
  std::string noDecay = "[]";
  uint64_t seed = 0;
};

/// hp's side: a module at stage step and what runs it.
struct StepProgram {
  RunConfig config;
  std::unique_ptr<Module> module;
  std::unique_ptr<Communicator> comm; ///< all ranks, in lockstep
  ParameterStores stores;
  ParameterStore *store = nullptr; ///< of rank 0
  KernelSets kernels;
  std::unique_ptr<Interpreter> interpreter;
  DiagnosticEngine diag;
};

/// Throws std::runtime_error with the first error if the configuration does
/// not compile.
std::unique_ptr<StepProgram> makeStep(const StepOptions &options);

/// The reference model of the same configuration, parameters not set.
reference::Qwen35Model makeReference(const StepProgram &program);

/// hp's name of a reference parameter: without `model.`.
std::string hpName(const std::string &referenceName);

/// Copies hp's parameters, put together from all ranks, into the reference.
void copyToReference(const StepProgram &program, reference::Qwen35Model &model);

/// The golden files' generator; labels are the next ids of the row, -100 last.
StepInputs makeInputs(const StepProgram &program, uint64_t firstState,
                      double learningRate);

/// Whether two tensors hold the same bits, in logical order.
bool sameBits(const at::Tensor &lhs, const at::Tensor &rhs);

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_STEPTESTING_H
