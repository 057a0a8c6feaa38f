//===- PassReports.h - Time and counts of passes ----------------*- C++ -*-===//
//
// Observers behind --timing and --pass-statistics.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_PASSREPORTS_H
#define HP_PASSES_PASSREPORTS_H

#include "hp/Passes/PassManager.h"
#include "hp/Support/Timing.h"

namespace hp {

/// Adds what each pass and the verifier took to a Timing.
class PassTimer : public PassObserver {
public:
  explicit PassTimer(Timing &timing) : timing(timing) {}
  bool after(const Pass &pass, Module &module,
             const PassOutcome &outcome) override;

private:
  Timing &timing;
};

/// Prints what the passes of `manager` counted:
///
///   'expand-step' pass
///     (S) 334 instructions - operations written, without frees
void printStatistics(const PassManager &manager, llvm::raw_ostream &os);

} // namespace hp

#endif // HP_PASSES_PASSREPORTS_H
