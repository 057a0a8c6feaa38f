//===- PassManager.h - Running passes in order ------------------*- C++ -*-===//
//
// A pipeline is a list of passes. The manager checks each pass's stage, runs
// it, verifies the result, and tells an observer before and after; printing,
// timing and statistics are observers' work.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_PASSMANAGER_H
#define HP_PASSES_PASSMANAGER_H

#include "hp/Passes/Pass.h"

namespace hp {

/// How a pass went.
struct PassOutcome {
  bool failed = false; ///< the pass, or the verifier after it
  double passSeconds = 0, verifySeconds = 0;
};

/// Told what the manager does.
class PassObserver {
public:
  virtual ~PassObserver() = default;
  virtual void before(const Pass &pass, Module &module) {}
  /// Sees the module whether or not the pass failed. False, after an error,
  /// ends the pipeline.
  virtual bool after(const Pass &pass, Module &module,
                     const PassOutcome &outcome) {
    return true;
  }
};

class PassManager {
public:
  void add(std::unique_ptr<Pass> pass) { passes.push_back(std::move(pass)); }
  /// Verifies after every pass; on unless switched off.
  void verifyEach(bool on) { verifies = on; }
  /// Observers are told in the order in which they were added.
  void observe(PassObserver *observer) { observers.push_back(observer); }

  /// Runs all passes. False after the first error.
  bool run(Module &module, DiagnosticEngine &diag);

  llvm::ArrayRef<std::unique_ptr<Pass>> list() const { return passes; }
  /// The pipeline as text that parsePipeline reads.
  std::string spelling() const;

private:
  std::vector<std::unique_ptr<Pass>> passes;
  std::vector<PassObserver *> observers;
  bool verifies = true;
};

/// Completes `report` as an error about an unknown pass, with the name that may
/// have been meant. Returns false.
bool reportUnknownPass(llvm::StringRef name, InFlightDiagnostic report);

/// pipeline ::= pass (`,` pass)*
/// pass     ::= name (`{` option (`,` | ` `) ... `}`)?
/// option   ::= name `=` value
/// Appends to `manager`. False after an error at its column in `text`.
bool parsePipeline(llvm::StringRef text, PassManager &manager,
                   DiagnosticEngine &diag);

/// Appends the passes that take a module of stage `from` to stage `to`. False,
/// with an error, if there is no way.
bool addPassesTo(Stage to, Module &module, PassManager &manager,
                 DiagnosticEngine &diag);

} // namespace hp

#endif // HP_PASSES_PASSMANAGER_H
