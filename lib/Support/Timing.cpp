//===- Timing.cpp - The table of --timing ---------------------------------===//

#include "hp/Support/Timing.h"
#include "llvm/Support/Format.h"

using namespace hp;
using llvm::StringRef;

void Timing::add(StringRef name, double seconds) {
  for (Share &share : shares) {
    if (share.name == name) {
      share.seconds += seconds;
      return;
    }
  }
  shares.push_back({name.str(), seconds});
}

void Timing::print(llvm::raw_ostream &os) const {
  double total = std::chrono::duration<double>(Clock::now() - start).count();
  double rest = total;
  for (const Share &share : shares) {
    rest -= share.seconds;
  }
  std::string ruler = "===" + std::string(73, '-') + "===\n";
  StringRef title = "... Execution time report ...";
  os << ruler;
  os.indent((80 - title.size()) / 2) << title << '\n';
  os << ruler << llvm::format("  Total Execution Time: %.4f seconds\n\n", total)
     << "  ----Wall Time----  ----Name----\n";
  auto line = [&](StringRef name, double seconds) {
    os << llvm::format("  %8.4f (%5.1f%%)  ", seconds,
                       total > 0 ? 100 * seconds / total : 0.0)
       << name << '\n';
  };
  for (const Share &share : shares) {
    line(share.name, share.seconds);
  }
  line("Rest", rest);
  line("Total", total);
}
