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

/// Told what the manager does. `after` sees the module whether or not the pass
/// failed.
class PassObserver {
public:
  virtual ~PassObserver() = default;
  virtual void before(const Pass &pass, Module &module) {}
  virtual void after(const Pass &pass, Module &module, bool failed,
                     double seconds) {}
};

class PassManager {
public:
  void add(std::unique_ptr<Pass> pass) { passes.push_back(std::move(pass)); }
  /// Verifies after every pass; on unless switched off.
  void verifyEach(bool on) { verifies = on; }
  void observe(PassObserver *newObserver) { observer = newObserver; }

  /// Runs all passes. False after the first error.
  bool run(Module &module, DiagnosticEngine &diag);

  llvm::ArrayRef<std::unique_ptr<Pass>> list() const { return passes; }
  /// The pipeline as text that parsePipeline reads.
  std::string spelling() const;

private:
  std::vector<std::unique_ptr<Pass>> passes;
  PassObserver *observer = nullptr;
  bool verifies = true;
};

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
