//===- Trainer.h - The training loop ----------------------------*- C++ -*-===//
//
// Gives the step program one batch after the other, with the learning rate of
// each step; reports, saves, and stops cleanly when asked to.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_TRAINER_H
#define HP_RUNTIME_TRAINER_H

#include "hp/Runtime/Dataset.h"
#include "hp/Runtime/Interpreter.h"
#include "hp/Runtime/Run.h"
#include "hp/Runtime/Weights.h"
#include <atomic>

namespace hp {

struct TrainOptions {
  /// Goes on from the latest checkpoint of checkpoint.folder.
  bool resume = false;
  /// Fails at the end if ranks that hold the same parameter differ in a bit.
  bool checkReplicas = false;
  /// A bar that is redrawn, for a terminal; else lines.
  bool progressBar = false;
  /// Becomes true when the run should end after the current step.
  const std::atomic<int> *stopSignal = nullptr;
};

enum class TrainEnd { Finished, Interrupted, Failed };

/// Trains as `run` says, on the ranks of `comm`. The process of rank 0 reports
/// progress to `out` and writes files; errors go to `diag` where they arise.
TrainEnd train(Run &run, Communicator &comm, const TrainOptions &options,
               llvm::raw_ostream &out, DiagnosticEngine &diag);

/// The data set of the configuration.
std::unique_ptr<Dataset> openDataset(const Run &run, DiagnosticEngine &diag);

/// Tokens, labels and positions of the global batch that begins at a global
/// sample index. Empty after an error.
std::optional<StepInputs> readBatch(const Dataset &data, uint64_t firstSample,
                                    Module &step, DiagnosticEngine &diag);
/// What each of `ranks` takes of it: its rows and its part of the sequence, by
/// the types of @step's arguments. Only those rows are read.
std::optional<std::vector<StepInputs>>
readBatch(const Dataset &data, uint64_t firstSample, Module &step,
          llvm::ArrayRef<int64_t> ranks, DiagnosticEngine &diag);

/// Allocates the parameters of the run and gives them their first values: from
/// checkpoint.initial_load_path, or drawn as training.init says. `format`
/// receives what the loaded file looked like. `stores` are of the local ranks.
bool startingWeights(Run &run, ParameterStores &stores, WeightFormat &format,
                     DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_TRAINER_H
