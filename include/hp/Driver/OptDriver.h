//===- OptDriver.h - What hp-opt does with its input ------------*- C++ -*-===//
//
// For each module of the input: read or import, verify, run passes, print. The
// options are those of the command line, which tools/hp-opt reads.
//
//===----------------------------------------------------------------------===//

#ifndef HP_DRIVER_OPTDRIVER_H
#define HP_DRIVER_OPTDRIVER_H

#include "hp/Driver/Input.h"
#include "hp/Passes/IRPrinting.h"
#include "hp/Support/Timing.h"

namespace hp {

struct OptOptions {
  InputOptions input;
  bool splitInput = false;

  // What is run.
  std::string pipeline; ///< text that parsePipeline reads; may be empty
  std::optional<Stage> compileTo; ///< excludes a pipeline
  bool dumpPipeline = false;

  // What is checked.
  bool verifyEach = true;
  bool verifyDiagnostics = false;
  bool verifyRoundTrip = false;

  // What is told on the way.
  IRPrintingOptions irPrinting;
  bool statistics = false;

  // What is printed: the module, or in its place one or more views.
  PrintOptions print;
  std::vector<int64_t> expandLayers;
  bool foldRepeats = false;
  bool planStats = false, planStatsJson = false;
  bool parameters = false;
  bool gradReductions = false, shardingOrigins = false;
  std::string shardMap; ///< of which parameter; empty: of none
  bool schedule = false;
  std::optional<int64_t> scheduleRank;

  bool hasView() const {
    return !expandLayers.empty() || foldRepeats || planStats || planStatsJson ||
           parameters || gradReductions || shardingOrigins ||
           !shardMap.empty() || schedule;
  }
};

/// Runs on `text`, which is called `file`. What is to be printed goes to `out`,
/// all else to standard error. False after an error.
bool runOpt(llvm::StringRef text, llvm::StringRef file,
            const OptOptions &options, llvm::raw_ostream &out, Timing &timing);

//===----------------------------------------------------------------------===//
// Listings.cpp
//===----------------------------------------------------------------------===//

/// Every pass, its options and what it needs and makes.
void listPasses(llvm::raw_ostream &os);
/// Every row of the table of operations.
void listOps(llvm::raw_ostream &os);
/// Every model spec that can be named, its flavors and their parameters. False
/// after an error in a spec.
bool listModels(llvm::raw_ostream &os, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_DRIVER_OPTDRIVER_H
