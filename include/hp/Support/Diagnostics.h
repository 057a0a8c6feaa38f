//===- Diagnostics.h - Located errors with caret and notes ------*- C++ -*-===//
//
// Every complaint of hp goes through one DiagnosticEngine: a severity, a place
// in a file (or none), one sentence in lower case without a full stop, and
// notes. The engine prints them as compilers do,
//
//   tiny.yaml:31:7: error: unknown key 'hiden_size' in 'config'
//         hiden_size: 256
//         ^
//   tiny.yaml:31:7: note: did you mean 'hidden_size'?
//
// or hands them to a handler (--verify-diagnostics, tests). Nothing in hp
// aborts on bad input: a function that fails reports here and returns false,
// an empty value, or llvm::Error.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SUPPORT_DIAGNOSTICS_H
#define HP_SUPPORT_DIAGNOSTICS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hp {

/// A place in a file: `file` is interned in the engine that made it, so that
/// a Location is three words and is copied freely. Lines and columns count
/// from 1; line 0 means "the file as a whole", a null file "nowhere".
struct Location {
  const char *file = nullptr;
  unsigned line = 0;
  unsigned column = 0;

  explicit operator bool() const { return file != nullptr; }
  llvm::StringRef fileName() const {
    return file ? llvm::StringRef(file) : llvm::StringRef();
  }
  bool operator==(const Location &other) const = default;
};

enum class Severity { Error, Warning, Remark, Note };

/// One diagnostic with the notes that hang on it.
struct Diagnostic {
  Severity severity;
  Location loc;
  std::string message;
  std::vector<Diagnostic> notes;
};

class DiagnosticEngine;

/// A diagnostic under construction; reported when it goes out of scope.
/// Converts to `false`, so that `return diag.error(loc) << "...";` reads well
/// in functions that return success as a bool.
class InFlightDiagnostic {
public:
  InFlightDiagnostic(DiagnosticEngine *engine, Severity severity, Location loc);
  InFlightDiagnostic(InFlightDiagnostic &&other);
  InFlightDiagnostic(const InFlightDiagnostic &) = delete;
  ~InFlightDiagnostic();

  template <typename T> InFlightDiagnostic &operator<<(const T &value) & {
    append(value);
    return *this;
  }
  template <typename T> InFlightDiagnostic &&operator<<(const T &value) && {
    append(value);
    return std::move(*this);
  }

  /// Adds a note; `loc` may be empty, the note then has the diagnostic's place.
  InFlightDiagnostic &note(Location loc, const llvm::Twine &message) &;
  InFlightDiagnostic &&note(Location loc, const llvm::Twine &message) && {
    note(loc, message);
    return std::move(*this);
  }

  operator bool() const { return false; }

private:
  template <typename T> void append(const T &value) {
    llvm::raw_string_ostream os(diagnostic.message);
    os << value;
  }
  DiagnosticEngine *engine;
  Diagnostic diagnostic;
};

class DiagnosticEngine {
public:
  using Handler = std::function<void(const Diagnostic &)>;

  explicit DiagnosticEngine(llvm::raw_ostream &os = llvm::errs()) : os(os) {}
  DiagnosticEngine(const DiagnosticEngine &) = delete;
  DiagnosticEngine &operator=(const DiagnosticEngine &) = delete;

  InFlightDiagnostic error(Location loc = {}) {
    return InFlightDiagnostic(this, Severity::Error, loc);
  }
  InFlightDiagnostic warning(Location loc = {}) {
    return InFlightDiagnostic(this, Severity::Warning, loc);
  }
  InFlightDiagnostic remark(Location loc = {}) {
    return InFlightDiagnostic(this, Severity::Remark, loc);
  }

  /// Interns `file` and makes a Location in it.
  Location location(llvm::StringRef file, unsigned line, unsigned column);

  /// Keeps the text of `file`, so that carets can show the line. A file that
  /// was not given is not read from disk.
  void addBuffer(llvm::StringRef file, llvm::StringRef text);

  /// The text of line `line` (from 1) of `file`; empty when unknown.
  llvm::StringRef lineText(Location loc) const;

  /// Reports a finished diagnostic: to the handler if there is one, else
  /// printed.
  void report(const Diagnostic &diagnostic);

  /// Replaces printing. An empty handler restores it.
  void setHandler(Handler newHandler) { handler = std::move(newHandler); }

  /// Prints in the compiler style shown at the top of this file.
  void print(const Diagnostic &diagnostic, llvm::raw_ostream &os) const;

  unsigned errorCount() const { return errors; }
  /// The first error that was reported, for callers that throw or exit.
  const std::string &firstError() const { return first; }

private:
  llvm::raw_ostream &os;
  Handler handler;
  llvm::StringMap<std::string> buffers; ///< file name → text
  unsigned errors = 0;
  std::string first;
};

/// The nearest of `candidates` to `word` if it is near enough to be a typing
/// error; empty otherwise. The first of equals wins.
llvm::StringRef didYouMean(llvm::StringRef word,
                           llvm::ArrayRef<llvm::StringRef> candidates);

} // namespace hp

#endif // HP_SUPPORT_DIAGNOSTICS_H
