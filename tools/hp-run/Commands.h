//===- Commands.h - The subcommands of hp-run -------------------*- C++ -*-===//

#ifndef HP_TOOLS_HP_RUN_COMMANDS_H
#define HP_TOOLS_HP_RUN_COMMANDS_H

#include "hp/Support/Diagnostics.h"
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace hp {

struct RankOptions;

/// A configuration as the command line names it.
struct ConfigArguments {
  std::string config;
  std::string plan; ///< empty: what the configuration makes
  std::vector<std::string> overrides;
  /// All ranks in this process, in lockstep; 1 without --simulate-ranks.
  int64_t simulatedRanks = 1;
  bool checkReplicas = false; ///< of train; see TrainOptions
};

/// Each runs one subcommand and gives the exit code. A failure has been
/// reported to `diag`.
int runTrain(const ConfigArguments &arguments, const RankOptions &ranks,
             bool resume, const std::atomic<int> &stopSignal,
             DiagnosticEngine &diag);
/// Writes loss and logits of the first batch to the safetensors file `out`;
/// with `gradients`, each parameter's gradient too. The process of rank 0
/// writes.
int runForward(const ConfigArguments &arguments, const RankOptions &ranks,
               const std::string &out, bool gradients, DiagnosticEngine &diag);
/// Turns a Hugging Face checkpoint into a checkpoint of hp's.
int runImport(const ConfigArguments &arguments, const std::string &source,
              const std::string &folder, DiagnosticEngine &diag);

/// How runExport writes.
struct ExportArguments {
  std::string checkpoint; ///< a step folder, or checkpoint.folder
  std::string folder;
  std::string dtype; ///< source, float32 or bfloat16
  std::string keys;  ///< a spelling of the spec; empty: as it was imported
  uint64_t maxShardBytes = 0;
};
int runExport(const ConfigArguments &arguments, const ExportArguments &how,
              DiagnosticEngine &diag);

} // namespace hp

#endif // HP_TOOLS_HP_RUN_COMMANDS_H
