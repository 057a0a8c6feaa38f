//===- Timing.h - The table of --timing -------------------------*- C++ -*-===//
//
// Named shares of the wall clock, in the order in which they first occur.
//
//   ===----------------------------------------------------------------===
//                     ... Execution time report ...
//   ===----------------------------------------------------------------===
//     Total Execution Time: 0.0213 seconds
//
//     ----Wall Time----  ----Name----
//       0.0051 ( 23.9%)  Import
//       0.0102 ( 47.9%)  expand-step
//       0.0060 ( 28.2%)  Rest
//       0.0213 (100.0%)  Total
//
//===----------------------------------------------------------------------===//

#ifndef HP_SUPPORT_TIMING_H
#define HP_SUPPORT_TIMING_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <string>
#include <vector>

namespace hp {

class Timing {
public:
  using Clock = std::chrono::steady_clock;

  /// Adds to the share of `name`.
  void add(llvm::StringRef name, double seconds);
  /// The table; the total is the time since this object was made.
  void print(llvm::raw_ostream &os) const;

private:
  struct Share {
    std::string name;
    double seconds;
  };
  std::vector<Share> shares;
  Clock::time_point start = Clock::now();
};

/// Adds the time of a scope to a share.
class TimedScope {
public:
  TimedScope(Timing &timing, llvm::StringRef name)
      : timing(timing), name(name) {}
  ~TimedScope() { timing.add(name, seconds()); }
  TimedScope(const TimedScope &) = delete;

  double seconds() const {
    return std::chrono::duration<double>(Timing::Clock::now() - start).count();
  }

private:
  Timing &timing;
  llvm::StringRef name;
  Timing::Clock::time_point start = Timing::Clock::now();
};

} // namespace hp

#endif // HP_SUPPORT_TIMING_H
