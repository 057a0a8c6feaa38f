//===- Pass.h - What a pass is ----------------------------------*- C++ -*-===//
//
// A pass has a name, a one-line summary, options, the stages it accepts, the
// stage it makes, and one `run`. It edits the module in place and reports what
// it refuses. A module of another stage is refused before `run`.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_PASS_H
#define HP_PASSES_PASS_H

#include "hp/IR/Module.h"
#include <memory>
#include <string>
#include <vector>

namespace hp {

/// `name=value` in `--pass-pipeline='pass{name=value}'`.
struct PassOption {
  std::string name;
  std::string defaultValue;
  std::string summary;
  /// The words it accepts; empty if any.
  std::vector<std::string> choices;
};

/// A count a pass keeps for --pass-statistics.
struct PassStatistic {
  std::string name;
  std::string summary;
  uint64_t value = 0;
};

class Pass {
public:
  virtual ~Pass() = default;

  virtual llvm::StringRef name() const = 0;
  virtual llvm::StringRef summary() const = 0;
  virtual llvm::ArrayRef<PassOption> options() const { return {}; }

  /// What a module must be for this pass, for --list-passes.
  virtual llvm::StringRef needs() const = 0;
  /// The stage the pass makes.
  virtual Stage produces() const = 0;
  /// Why `module` cannot be given to this pass: one sentence, or empty.
  virtual std::string refusal(Module &module) const = 0;

  /// Edits `module` and sets its stage. False after an error, the module is
  /// then of no further use.
  virtual bool run(Module &module, DiagnosticEngine &diag) = 0;

  /// Sets an option. False, with a message, for a name or a value the pass does
  /// not know.
  bool setOption(llvm::StringRef name, llvm::StringRef value,
                 std::string &message);
  /// The value of an option, or its default.
  llvm::StringRef option(llvm::StringRef name) const;
  /// `pass{a=1,b=2}` with every option, as --dump-pass-pipeline shows it.
  std::string spelling() const;

  const std::vector<PassStatistic> &statistics() const { return stats; }

protected:
  void count(llvm::StringRef name, llvm::StringRef summary, uint64_t value);

private:
  std::vector<std::pair<std::string, std::string>> values;
  std::vector<PassStatistic> stats;
};

/// A pass as the registry knows it.
struct PassInfo {
  std::string name;
  std::unique_ptr<Pass> (*make)();
};

/// Every pass, in pipeline order.
llvm::ArrayRef<PassInfo> allPasses();
/// Null for an unknown name.
std::unique_ptr<Pass> makePass(llvm::StringRef name);

} // namespace hp

#endif // HP_PASSES_PASS_H
