//===- DiagnosticLog.h - Diagnostics as lines a test can compare *- C++ -*-===//
//
// Collects what an engine reports, one line each:
//
//   run.yaml:3:5: error: unknown key 'step' in section 'training'
//   run.yaml:3:5: note: did you mean 'steps'?
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_SPEC_DIAGNOSTICLOG_H
#define HP_UNITTESTS_SPEC_DIAGNOSTICLOG_H

#include "hp/Support/Diagnostics.h"
#include <gtest/gtest.h>

namespace hp {

class DiagnosticLog {
public:
  DiagnosticLog() {
    diag.setHandler([this](const Diagnostic &d) {
      everythingLocated &= bool(d.loc);
      diag.print(d, llvm::nulls()); // carets must not trip over any text
      write(d);
    });
  }

  DiagnosticEngine diag;
  std::vector<std::string> lines;
  /// Whether every error and warning named a file.
  bool everythingLocated = true;

  bool has(const std::string &line) const {
    return std::find(lines.begin(), lines.end(), line) != lines.end();
  }
  std::string text() const {
    std::string all;
    for (const std::string &line : lines) {
      all += line + "\n";
    }
    return all;
  }

private:
  void write(const Diagnostic &d) {
    static const char *names[] = {"error", "warning", "remark", "note"};
    std::string line;
    llvm::raw_string_ostream os(line);
    if (d.loc) {
      os << d.loc.fileName() << ':' << d.loc.line << ':' << d.loc.column
         << ": ";
    }
    os << names[int(d.severity)] << ": " << d.message;
    lines.push_back(line);
    for (const Diagnostic &note : d.notes) {
      write(note);
    }
  }
};

} // namespace hp

#endif // HP_UNITTESTS_SPEC_DIAGNOSTICLOG_H
