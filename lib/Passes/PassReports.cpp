//===- PassReports.cpp - Time and counts of passes ------------------------===//

#include "hp/Passes/PassReports.h"

using namespace hp;
using llvm::StringRef;

bool PassTimer::after(const Pass &pass, Module &module,
                      const PassOutcome &outcome) {
  timing.add(pass.name(), outcome.passSeconds);
  timing.add("Verifier", outcome.verifySeconds);
  return true;
}

void hp::printStatistics(const PassManager &manager, llvm::raw_ostream &os) {
  std::string ruler = "===" + std::string(73, '-') + "===\n";
  StringRef title = "... Pass statistics report ...";
  os << ruler;
  os.indent((80 - title.size()) / 2) << title << '\n';
  os << ruler;
  for (const auto &pass : manager.list()) {
    os << '\'' << pass->name() << "' pass\n";
    for (const PassStatistic &stat : pass->statistics()) {
      os << "  (S) " << stat.value << ' ' << stat.name << " - " << stat.summary
         << '\n';
    }
  }
}
