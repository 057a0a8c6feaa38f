//===- RoundTrip.cpp - Text reads back to the same module -----------------===//

#include "hp/Passes/RoundTrip.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;

/// Reports the first line in which the texts differ.
static bool reportDifference(StringRef before, StringRef after, StringRef what,
                             DiagnosticEngine &diag) {
  for (unsigned line = 1; !before.empty() || !after.empty(); ++line) {
    auto [lineBefore, restBefore] = before.split('\n');
    auto [lineAfter, restAfter] = after.split('\n');
    if (lineBefore != lineAfter) {
      return diag.error() << what << " does not read back: line " << line
                          << " of its text is '" << lineBefore
                          << "' and, printed again, '" << lineAfter << "'";
    }
    before = restBefore;
    after = restAfter;
  }
  return diag.error() << what << " does not read back to the same bytes";
}

bool hp::checkRoundTrip(Module &module, StringRef when,
                        DiagnosticEngine &diag) {
  for (bool debugInfo : {false, true}) {
    PrintOptions options;
    options.debugInfo = debugInfo;
    std::string text = str(module, options);
    std::string what = (when + (debugInfo ? ", with locations," : "")).str();

    std::string messages;
    llvm::raw_string_ostream stream(messages);
    DiagnosticEngine inner(stream);
    std::unique_ptr<Module> again = parseModule(text, "<round trip>", inner);
    if (!again) {
      return diag.error() << what << " does not read back:\n" << messages;
    }
    std::string second = str(*again, options);
    if (second != text) {
      return reportDifference(text, second, what, diag);
    }
  }
  return true;
}

bool RoundTripChecker::after(const Pass &pass, Module &module,
                             const PassOutcome &outcome) {
  if (outcome.failed) {
    return true;
  }
  std::string when = ("the module after pass '" + pass.name() + "'").str();
  return checkRoundTrip(module, when, diag);
}
