//===- Diagnostics.cpp - Located errors with caret and notes --------------===//

#include "hp/Support/Diagnostics.h"

using namespace hp;
using llvm::StringRef;

InFlightDiagnostic::InFlightDiagnostic(DiagnosticEngine *engine,
                                       Severity severity, Location loc)
    : engine(engine), diagnostic{severity, loc, {}, {}} {}

InFlightDiagnostic::InFlightDiagnostic(InFlightDiagnostic &&other)
    : engine(other.engine), diagnostic(std::move(other.diagnostic)) {
  other.engine = nullptr;
}

InFlightDiagnostic::~InFlightDiagnostic() {
  if (engine) {
    engine->report(diagnostic);
  }
}

InFlightDiagnostic &InFlightDiagnostic::note(Location loc,
                                             const llvm::Twine &message) & {
  diagnostic.notes.push_back(
      {Severity::Note, loc ? loc : diagnostic.loc, message.str(), {}});
  return *this;
}

Location DiagnosticEngine::location(StringRef file, unsigned line,
                                    unsigned column) {
  // StringMap entries do not move, so the key is a stable C string.
  return {buffers.try_emplace(file).first->getKeyData(), line, column};
}

void DiagnosticEngine::addBuffer(StringRef file, StringRef text) {
  buffers[file] = text.str();
}

StringRef DiagnosticEngine::lineText(Location loc) const {
  auto it = loc ? buffers.find(loc.fileName()) : buffers.end();
  if (it == buffers.end() || loc.line == 0) {
    return {};
  }
  StringRef rest = it->second;
  for (unsigned line = 1; line < loc.line; ++line) {
    size_t newline = rest.find('\n');
    if (newline == StringRef::npos) {
      return {};
    }
    rest = rest.drop_front(newline + 1);
  }
  return rest.take_until([](char c) { return c == '\n' || c == '\r'; });
}

void DiagnosticEngine::report(const Diagnostic &diagnostic) {
  if (diagnostic.severity == Severity::Error) {
    if (errors++ == 0) {
      first = diagnostic.message;
    }
  }
  if (handler) {
    handler(diagnostic);
  } else {
    print(diagnostic, os);
  }
}

static StringRef severityName(Severity severity) {
  switch (severity) {
  case Severity::Error:
    return "error";
  case Severity::Warning:
    return "warning";
  case Severity::Remark:
    return "remark";
  case Severity::Note:
    return "note";
  }
  return "error";
}

/// Prints the line of `loc` and a caret. Long lines are cut to a window around
/// the column, and control characters shown as '?', so that a 10 MB line or a
/// NUL in the input stays a readable message.
static void printCaret(StringRef line, unsigned column, llvm::raw_ostream &os) {
  constexpr unsigned before = 60, width = 120;
  unsigned start =
      column > before + 1 && line.size() > width ? column - 1 - before : 0;
  for (char c : line.substr(start, width)) {
    os << (c == '\t' ? ' ' : (unsigned char)c < 0x20 || c == 0x7f ? '?' : c);
  }
  os << '\n';
  if (column > 0) {
    os.indent(column - 1 - start) << "^\n";
  }
}

void DiagnosticEngine::print(const Diagnostic &diagnostic,
                             llvm::raw_ostream &os) const {
  const Location &loc = diagnostic.loc;
  if (loc) {
    os << loc.fileName() << ':';
    if (loc.line) {
      os << loc.line << ':' << loc.column << ':';
    }
    os << ' ';
  }
  os << severityName(diagnostic.severity) << ": " << diagnostic.message << '\n';
  StringRef line = lineText(loc);
  if (!line.trim().empty() && loc.column <= line.size() + 1) {
    printCaret(line, loc.column, os);
  }
  for (const Diagnostic &note : diagnostic.notes) {
    print(note, os);
  }
}

StringRef hp::didYouMean(StringRef word, llvm::ArrayRef<StringRef> candidates) {
  StringRef best;
  unsigned bestDistance = 1 + (word.size() + 2) / 3;
  for (StringRef candidate : candidates) {
    unsigned distance =
        word.edit_distance(candidate, /*AllowReplacements=*/true, bestDistance);
    if (distance < bestDistance) {
      bestDistance = distance;
      best = candidate;
    }
  }
  return best;
}
