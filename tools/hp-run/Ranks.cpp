//===- Ranks.cpp - The ranks of a run, as hp-run has them -----------------===//

#include "Ranks.h"
#include "hp/IR/Text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"
#include <ATen/Parallel.h>

using namespace hp;
using llvm::StringRef;

bool hp::takeRanks(RankOptions &options, int64_t simulatedRanks,
                   DiagnosticEngine &diag) {
  if (options.threadsPerRank < 0) {
    return diag.error() << "--threads-per-rank is at least 1, not "
                        << options.threadsPerRank;
  }
  if (options.processes < 0 || options.processes > maxLocalRanks) {
    return diag.error() << "--nproc is from 1 to " << maxLocalRanks << ", not "
                        << options.processes;
  }
  if (!readRankPlace(options.place, diag)) {
    return false;
  }
  if (options.place && options.processes > 0) {
    return diag.error() << "--nproc starts ranks, but RANK is set: this "
                           "process is a rank that another launcher started; "
                           "leave --nproc out, or unset RANK";
  }
  if (simulatedRanks > 1 && (options.place || options.processes > 0)) {
    return diag.error() << "--simulate-ranks computes all ranks in one "
                           "process, which excludes "
                        << (options.place ? "RANK" : "--nproc");
  }
  if (options.gpu && simulatedRanks > 1) {
    return diag.error() << "--device=cuda excludes --simulate-ranks";
  }
  return true;
}

/// `arguments` without --nproc and its value.
static std::vector<std::string>
withoutNproc(llvm::ArrayRef<const char *> arguments) {
  std::vector<std::string> kept;
  for (size_t i = 0; i < arguments.size(); ++i) {
    StringRef argument = arguments[i], name = argument;
    if (name.consume_front("-")) {
      name.consume_front("-");
    }
    if (name == "nproc" && name != argument) {
      ++i; // the value is the next
    } else if (!name.starts_with("nproc=") || name == argument) {
      kept.push_back(argument.str());
    }
  }
  return kept;
}

int hp::launchRanks(const ConfigArguments &config, const RankOptions &options,
                    llvm::ArrayRef<const char *> arguments,
                    DiagnosticEngine &diag) {
  // The plan is made, verified and dropped: what is wrong with it is said once
  // and not by every rank.
  if (!prepareRun(config.config, config.overrides, config.plan,
                  options.processes, diag) ||
      (options.gpu && !checkNccl(diag))) {
    return 1;
  }
  MasterSocket socket;
  if (!socket.open(diag)) {
    return 1;
  }
  LaunchOptions launchOptions;
  launchOptions.arguments = withoutNproc(arguments);
  launchOptions.ranks = options.processes;
  launchOptions.threadsPerRank = options.threadsPerRank;
  return launch(launchOptions, socket, diag);
}

/// The exit code of a rank whose first failure this was.
static int codeOf(MessageFailure failure) {
  switch (failure) {
  case MessageFailure::None:
    return 1;
  case MessageFailure::Lost:
    return lostRankStatus;
  case MessageFailure::Late:
    return lateRankStatus;
  }
  return 1;
}

std::unique_ptr<Communicator> hp::makeCommunicator(const Run &run,
                                                   const RankOptions &options,
                                                   int &code,
                                                   DiagnosticEngine &diag) {
  if (options.place || options.threadsPerRank > 0) {
    at::set_num_threads(
        int(threadsForRank(options.threadsPerRank,
                           options.place ? options.place->localWorldSize : 1)));
  }
  if (!options.place && !options.gpu) {
    return makeLockstepCommunicator(run.step->mesh);
  }
  ProcessOptions how;
  if (options.place) {
    how.place = *options.place;
  }
  how.library = options.gpu ? MessageLibrary::Nccl : MessageLibrary::Gloo;
  how.initTimeout = std::chrono::seconds(*run.config.comm.initTimeoutSeconds);
  how.trainTimeout = std::chrono::seconds(*run.config.comm.trainTimeoutSeconds);
  // What a step is, and how many there are.
  std::string plan;
  llvm::raw_string_ostream os(plan);
  print(*run.step, os);
  os << "steps " << *run.config.training.steps << " seed "
     << *run.config.training.seed << " checkpoints every "
     << *run.config.checkpoint.interval;
  how.agreement = llvm::utohexstr(llvm::xxh3_64bits(plan));
  MessageFailure failure;
  auto comm = makeProcessCommunicator(run.step->mesh, how, failure, diag);
  code = codeOf(failure);
  return comm;
}

int hp::failureCode(const Communicator &comm, const DiagnosticEngine &diag) {
  auto *processes = dynamic_cast<const ProcessCommunicator *>(&comm);
  if (!processes) {
    return 1;
  }
  return processes->failure() == MessageFailure::None && diag.errorCount() == 0
             ? lostRankStatus
             : codeOf(processes->failure());
}
