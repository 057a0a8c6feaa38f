//===- Run.h - A run, ready to start ----------------------------*- C++ -*-===//
//
// From a configuration, and perhaps a plan, to a verified module at stage step
// with everything beside it that a run needs.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_RUN_H
#define HP_RUNTIME_RUN_H

#include "hp/IR/Module.h"
#include "hp/Spec/CheckpointKeys.h"
#include "hp/Spec/RunConfig.h"
#include <memory>

namespace hp {

struct Run {
  RunConfig config;
  CheckpointKeys keys;
  std::vector<TiedKey> ties;
  std::unique_ptr<Module> step; ///< at stage step, verified
};

/// Reads the configuration at `configPath` with `overrides`, imports its model
/// and compiles it to a step. With a `planPath`, the plan there is run as it
/// stands (compiled to a step if it is at an earlier stage); it is refused,
/// with both values, where it says otherwise than the configuration.
/// `worldSize` is the number of ranks that run; without it, as many as the
/// parallel degrees ask for.
std::optional<Run> prepareRun(llvm::StringRef configPath,
                              llvm::ArrayRef<std::string> overrides,
                              llvm::StringRef planPath,
                              std::optional<int64_t> worldSize,
                              DiagnosticEngine &diag);

/// Reports every difference between a plan and what the configuration makes of
/// the same model: configuration, training and optimizer lines, mesh, dims,
/// parameters, and the constants of clip and optimizer. True if there is none.
bool checkPlanFits(Module &plan, Module &configured, const RunConfig &config,
                   DiagnosticEngine &diag);

/// Refuses `path` as a file to write if it is one that the run reads: the
/// configuration or the data. `loc` is where the path was given.
bool checkOutputPath(const RunConfig &config, llvm::StringRef path,
                     Location loc, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_RUN_H
