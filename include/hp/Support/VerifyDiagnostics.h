//===- VerifyDiagnostics.h - Expected diagnostics in an input ---*- C++ -*-===//
//
// Compares the diagnostics of a run with what the input says to expect, for
// --verify-diagnostics:
//
//   %y = add %x, %z : f32[4]  // expected-error {{operand shapes differ}}
//   // expected-note@-1 {{while}}
//   // expected-error-re@below {{dim {{[0-9]+}} is cut}}
//   # expected-error@+1 {{unknown key}}
//
//   expectation ::= `expected-` severity `-re`? (`@` place)? `{{` text `}}`
//   severity    ::= `error` | `warning` | `remark` | `note`
//   place       ::= `+` integer | `-` integer | `above` | `below` | `unknown`
//
// The place is a line: this one, one by distance, the nearest one above or
// below that holds no expectation, or none, for a diagnostic without a line.
// The text is part of the message; with `-re`, what stands in inner braces is a
// regular expression. Each expectation stands for one diagnostic.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SUPPORT_VERIFYDIAGNOSTICS_H
#define HP_SUPPORT_VERIFYDIAGNOSTICS_H

#include "hp/Support/Diagnostics.h"
#include "llvm/Support/Regex.h"

namespace hp {

class DiagnosticVerifier {
public:
  /// Reads the expectations of `text`, named `file` in diagnostics. What is
  /// wrong goes to `os`.
  DiagnosticVerifier(llvm::StringRef text, llvm::StringRef file,
                     llvm::raw_ostream &os);

  /// Takes a diagnostic with its notes; prints those that nobody expects.
  void check(const Diagnostic &diagnostic);
  /// Prints the expectations that were not met. True if all were, and nothing
  /// else came.
  bool finish();

private:
  struct Expectation {
    Severity severity;
    unsigned line;    ///< expected here; 0: without a line
    unsigned ownLine; ///< where the expectation stands
    unsigned column;
    std::string text;    ///< as written
    std::string pattern; ///< a regular expression, or empty
    bool met = false;

    bool matches(llvm::StringRef message) const;
  };

  void read(llvm::StringRef text);
  bool readOne(llvm::StringRef line, size_t at, unsigned number);
  void fail(unsigned line, unsigned column, const llvm::Twine &message);

  std::string file;
  llvm::raw_ostream &os;
  std::vector<Expectation> expectations;
  /// Positions in `expectations` that wait for the next line without one.
  std::vector<unsigned> waiting;
  unsigned lastPlainLine = 0;
  bool ok = true;
};

} // namespace hp

#endif // HP_SUPPORT_VERIFYDIAGNOSTICS_H
