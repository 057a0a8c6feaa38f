//===- IRPrinting.h - Text before and after passes --------------*- C++ -*-===//
//
// The observer behind --print-ir-before, --print-ir-after and their kin:
//
//   // -----// IR Dump After expand-step //----- //
//   model "qwen3_5_v2" ...
//
// or, with a folder, one numbered file for each dump:
//
//   DIR/qwen3_5_v2_tiny/0_expand-step.hp
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_IRPRINTING_H
#define HP_PASSES_IRPRINTING_H

#include "hp/IR/Text.h"
#include "hp/Passes/PassManager.h"

namespace hp {

struct IRPrintingOptions {
  bool beforeAll = false, afterAll = false;
  std::vector<std::string> before = {}, after = {}; ///< names of passes
  bool afterChange = false;    ///< after those that change the text
  bool afterFailure = false;   ///< after those that fail
  std::string treeFolder = {}; ///< files instead of a stream
  PrintOptions print = {};

  bool any() const {
    return beforeAll || afterAll || !before.empty() || !after.empty() ||
           afterChange || afterFailure || !treeFolder.empty();
  }
};

/// Refuses names in `before` and `after` that are no passes.
bool checkPassNames(const IRPrintingOptions &options, DiagnosticEngine &diag);

class IRPrinter : public PassObserver {
public:
  IRPrinter(IRPrintingOptions options, llvm::raw_ostream &os,
            DiagnosticEngine &diag)
      : options(std::move(options)), os(os), diag(diag) {}

  void before(const Pass &pass, Module &module) override;
  bool after(const Pass &pass, Module &module,
             const PassOutcome &outcome) override;

private:
  bool prints(const Pass &pass, bool all,
              const std::vector<std::string> &names) const;
  bool dump(Module &module, const Pass &pass, llvm::StringRef when,
            llvm::StringRef suffix);

  IRPrintingOptions options;
  llvm::raw_ostream &os;
  DiagnosticEngine &diag;
  uint64_t hashBefore = 0;
  unsigned passesRun = 0;
  bool filesFailed = false;
};

} // namespace hp

#endif // HP_PASSES_IRPRINTING_H
