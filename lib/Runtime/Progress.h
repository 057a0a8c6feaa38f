//===- Progress.h - What a person and a program see of a run ----*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_PROGRESS_H
#define HP_LIB_RUNTIME_PROGRESS_H

#include "hp/Runtime/Interpreter.h"
#include "hp/Support/Diagnostics.h"
#include <chrono>

namespace hp {

/// The figures of one step.
struct StepMetrics {
  int64_t step = 0; ///< from 1
  int64_t steps = 0;
  StepResult result;
  double learningRate = 0;
  double seconds = 0;
  int64_t tokens = 0;     ///< of this step
  int64_t tokensSeen = 0; ///< since the first step of the run
  int64_t peakBytes = 0;
};

/// A bar on a terminal, lines elsewhere.
class Progress {
public:
  Progress(llvm::raw_ostream &out, bool bar) : out(out), bar(bar) {}
  void show(const StepMetrics &metrics, bool line);
  /// Ends a bar, so that other output starts on a line of its own.
  void finish();

private:
  llvm::raw_ostream &out;
  bool bar;
  bool drawn = false;
  double secondsPerStep = 0; ///< smoothed, for the time that remains
};

/// JSON lines: step, loss, grad_norm, lr, tokens_per_second, tokens_seen,
/// peak_bytes, seconds, updated. Numbers that are not finite are null.
class MetricsFile {
public:
  /// Opens `path`, making its folder. A run that is resumed after step
  /// `stepsToKeep` keeps the lines up to it; those after it come again. False,
  /// with an error, if it cannot be written.
  bool open(llvm::StringRef path, int64_t stepsToKeep, Location loc,
            DiagnosticEngine &diag);
  /// Writes one line and flushes it. False, with an error, if that fails.
  bool write(const StepMetrics &metrics, DiagnosticEngine &diag);

private:
  std::string path;
  std::unique_ptr<llvm::raw_fd_ostream> stream;
};

/// `12.3 MB`, with a decimal unit.
std::string bytesText(int64_t bytes);

} // namespace hp

#endif // HP_LIB_RUNTIME_PROGRESS_H
