//===- Ranks.h - The ranks of a run, as hp-run has them ---------*- C++ -*-===//
//
// All in this process, in lockstep; started by this process (--nproc); or
// started by others, this process being one of them (RANK and the like are
// set).
//
//===----------------------------------------------------------------------===//

#ifndef HP_TOOLS_HP_RUN_RANKS_H
#define HP_TOOLS_HP_RUN_RANKS_H

#include "Commands.h"
#include "hp/Runtime/ProcessCommunicator.h"
#include "hp/Runtime/Run.h"

namespace hp {

/// Where the ranks of a run are, as command line and environment say.
struct RankOptions {
  /// Processes to start; 0: none, this process computes.
  int64_t processes = 0;
  int64_t threadsPerRank = 0; ///< 0: a share of the processors
  bool gpu = false;           ///< --device=cuda
  /// Of this process, if others started it.
  std::optional<RankPlace> place;

  /// The number of ranks that run.
  int64_t worldSize(int64_t simulated) const {
    return processes ? processes : place ? place->worldSize : simulated;
  }
};

/// Completes `options` from the environment, and checks what the command line
/// gave. False after an error.
bool takeRanks(RankOptions &options, int64_t simulatedRanks,
               DiagnosticEngine &diag);

/// Starts the ranks and waits for them; gives the exit code. Everything that
/// one process can tell is checked before. The ranks' command line is
/// `arguments` without --nproc.
int launchRanks(const ConfigArguments &config, const RankOptions &options,
                llvm::ArrayRef<const char *> arguments, DiagnosticEngine &diag);

/// The communicator of this process. Null after an error, with the exit code
/// in `code`.
std::unique_ptr<Communicator> makeCommunicator(const Run &run,
                                               const RankOptions &options,
                                               int &code,
                                               DiagnosticEngine &diag);

/// The exit code of a rank that failed: one whose messages failed, or that ends
/// without an error of its own because all agreed to, leaves the blame to
/// another.
int failureCode(const Communicator &comm, const DiagnosticEngine &diag);

} // namespace hp

#endif // HP_TOOLS_HP_RUN_RANKS_H
