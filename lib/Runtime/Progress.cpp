//===- Progress.cpp - What a person and a program see of a run ------------===//

#include "Progress.h"
#include "hp/Runtime/AtomicFile.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include <cmath>
#include <sys/ioctl.h>
#include <unistd.h>

using namespace hp;
using llvm::format;
using llvm::StringRef;

std::string hp::bytesText(int64_t bytes) {
  static constexpr const char *units[] = {"B", "kB", "MB", "GB", "TB"};
  double value = double(bytes);
  unsigned unit = 0;
  while (value >= 1000 && unit + 1 < std::size(units)) {
    value /= 1000;
    ++unit;
  }
  std::string text;
  llvm::raw_string_ostream(text)
      << format(unit ? "%.1f" : "%.0f", value) << ' ' << units[unit];
  return text;
}

/// `loss 6.9775  grad_norm 2.059  lr 1.000e-03  5210 tokens/s`
static void printFigures(const StepMetrics &metrics, llvm::raw_ostream &out) {
  out << format("loss %.4f  grad_norm %.4f  lr %.3e  %.0f tokens/s",
                metrics.result.loss, metrics.result.gradNorm,
                metrics.learningRate, metrics.tokens / metrics.seconds);
  if (!metrics.result.updated) {
    out << "  skipped";
  }
}

/// Columns of the terminal that standard output is; a large number if it does
/// not say.
static int terminalColumns() {
  winsize size;
  bool known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col;
  return known ? size.ws_col : 1000;
}

void Progress::show(const StepMetrics &metrics, bool line) {
  secondsPerStep = secondsPerStep == 0
                       ? metrics.seconds
                       : 0.9 * secondsPerStep + 0.1 * metrics.seconds;
  if (!bar) {
    if (line) {
      out << "step " << metrics.step << '/' << metrics.steps << "  ";
      printFigures(metrics, out);
      out << '\n';
      out.flush();
    }
    return;
  }
  long remaining =
      std::lround(secondsPerStep * double(metrics.steps - metrics.step));
  std::string text;
  llvm::raw_string_ostream os(text);
  os << metrics.step << '/' << metrics.steps << "  ";
  printFigures(metrics, os);
  os << format("  %ld:%02ld left", remaining / 60, remaining % 60);

  // A line that wraps could not be drawn over: the bar gives way, then the
  // text.
  constexpr int fullWidth = 24, brackets = 3, smallest = 4;
  int columns = terminalColumns();
  int width = std::min(fullWidth, columns - 1 - brackets - int(text.size()));
  out << "\r\x1b[K";
  if (width >= smallest) {
    int filled =
        int(width * metrics.step / std::max<int64_t>(metrics.steps, 1));
    out << '[' << std::string(filled, '=') << std::string(width - filled, ' ')
        << "] ";
  }
  out << StringRef(text).take_front(columns - 1);
  out.flush();
  drawn = true;
}

void Progress::finish() {
  if (drawn) {
    out << '\n';
    out.flush();
    drawn = false;
  }
}

/// Removes the lines of later steps, and a last one that was cut, from the
/// metrics at `path`.
static bool keepSteps(StringRef path, int64_t last, DiagnosticEngine &diag) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) {
    return true; // there are none
  }
  std::string kept;
  StringRef text = (*buffer)->getBuffer();
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    int64_t step;
    StringRef number = line;
    if (number.consume_front("{\"step\":") &&
        !number.consumeInteger(10, step) && step <= last &&
        line.ends_with("}")) {
      kept += (line + "\n").str();
    }
    text = rest;
  }
  return kept == (*buffer)->getBuffer() || writeAtomically(path, kept, diag);
}

bool MetricsFile::open(StringRef name, int64_t stepsToKeep, Location loc,
                       DiagnosticEngine &diag) {
  path = name.str();
  bool append = stepsToKeep > 0;
  if (append && llvm::sys::fs::is_regular_file(name) &&
      !keepSteps(name, stepsToKeep, diag)) {
    return false;
  }
  std::error_code failure;
  StringRef folder = llvm::sys::path::parent_path(name);
  if (!folder.empty()) {
    failure = llvm::sys::fs::create_directories(folder);
  }
  if (!failure) {
    stream = std::make_unique<llvm::raw_fd_ostream>(
        name, failure,
        append ? llvm::sys::fs::CD_OpenAlways : llvm::sys::fs::CD_CreateAlways,
        llvm::sys::fs::FA_Write,
        append ? llvm::sys::fs::OF_Append : llvm::sys::fs::OF_None);
  }
  if (failure) {
    return diag.error(loc) << "cannot write metrics to '" << name
                           << "': " << failure.message();
  }
  return true;
}

bool MetricsFile::write(const StepMetrics &metrics, DiagnosticEngine &diag) {
  if (!stream) {
    return true;
  }
  llvm::json::OStream json(*stream);
  auto number = [&](StringRef key, double value) {
    if (std::isfinite(value)) {
      json.attribute(key, value);
    } else {
      json.attribute(key, nullptr);
    }
  };
  json.object([&] {
    json.attribute("step", metrics.step);
    number("loss", metrics.result.loss);
    number("grad_norm", metrics.result.gradNorm);
    number("lr", metrics.learningRate);
    number("tokens_per_second", metrics.tokens / metrics.seconds);
    json.attribute("tokens_seen", metrics.tokensSeen);
    json.attribute("peak_bytes", metrics.peakBytes);
    number("seconds", metrics.seconds);
    json.attribute("updated", metrics.result.updated);
  });
  *stream << '\n';
  stream->flush();
  if (stream->has_error()) {
    diag.error(diag.location(path, 0, 0))
        << "cannot write metrics: " << stream->error().message();
    stream->clear_error();
    stream.reset();
    return false;
  }
  return true;
}
