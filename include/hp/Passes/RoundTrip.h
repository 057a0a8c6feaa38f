//===- RoundTrip.h - Text reads back to the same module ---------*- C++ -*-===//
//
// The text form is the IR. This holds it to that: a module is printed, read and
// printed again, with and without locations, and both texts must be equal, byte
// for byte. --verify-roundtrip and HP_OPT_CHECK_IR_ROUNDTRIP do so with the
// input and after every pass.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_ROUNDTRIP_H
#define HP_PASSES_ROUNDTRIP_H

#include "hp/Passes/PassManager.h"

namespace hp {

/// False, with an error that shows the first line that differs, if `module`
/// does not read back. `when` says in messages what it is: `the input`.
bool checkRoundTrip(Module &module, llvm::StringRef when,
                    DiagnosticEngine &diag);

/// Checks after every pass.
class RoundTripChecker : public PassObserver {
public:
  explicit RoundTripChecker(DiagnosticEngine &diag) : diag(diag) {}
  bool after(const Pass &pass, Module &module,
             const PassOutcome &outcome) override;

private:
  DiagnosticEngine &diag;
};

} // namespace hp

#endif // HP_PASSES_ROUNDTRIP_H
