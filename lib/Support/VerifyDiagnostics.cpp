//===- VerifyDiagnostics.cpp - Expected diagnostics in an input -----------===//

#include "hp/Support/VerifyDiagnostics.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

static constexpr StringRef prefix = "expected-";

static StringRef severityName(Severity severity) {
  static constexpr StringRef names[] = {"error", "warning", "remark", "note"};
  return names[unsigned(severity)];
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

DiagnosticVerifier::DiagnosticVerifier(StringRef text, StringRef file,
                                       llvm::raw_ostream &os)
    : file(file), os(os) {
  read(text);
}

void DiagnosticVerifier::fail(unsigned line, unsigned column,
                              const llvm::Twine &message) {
  os << file << ':';
  if (line) {
    os << line << ':' << column << ':';
  }
  os << " error: " << message << '\n';
  ok = false;
}

void DiagnosticVerifier::read(StringRef text) {
  for (unsigned number = 1; !text.empty(); ++number) {
    auto [line, rest] = text.split('\n');
    text = rest;
    bool any = false;
    size_t at = line.find(prefix);
    while (at != StringRef::npos) {
      any |= readOne(line, at, number);
      at = line.find(prefix, at + prefix.size());
    }
    if (!any) {
      lastPlainLine = number;
      for (unsigned index : waiting) {
        expectations[index].line = number;
      }
      waiting.clear();
    }
  }
  for (unsigned index : waiting) {
    const Expectation &expectation = expectations[index];
    fail(expectation.ownLine, expectation.column,
         "there is no line below for '@below'");
  }
  waiting.clear();
}

/// The end of `{{...}}` whose text begins at `begin`: inner braces pair up.
static size_t closingBraces(StringRef line, size_t begin) {
  unsigned depth = 1;
  for (size_t at = begin; at + 1 < line.size();) {
    StringRef two = line.substr(at, 2);
    if (two == "{{") {
      ++depth;
      at += 2;
    } else if (two == "}}" && --depth == 0) {
      // `}}}`: the last two close, as in {{mesh {a}}}.
      while (line.substr(at + 2).starts_with("}")) {
        ++at;
      }
      return at;
    } else {
      at += two == "}}" ? 2 : 1;
    }
  }
  return StringRef::npos;
}

/// `dim {{[0-9]+}} is cut` as one regular expression.
static std::string regexOf(StringRef text) {
  std::string pattern;
  while (!text.empty()) {
    auto [literal, rest] = text.split("{{");
    pattern += llvm::Regex::escape(literal);
    auto [inner, after] = rest.split("}}");
    if (!inner.empty()) {
      pattern += "(" + inner.str() + ")";
    }
    text = after;
  }
  return pattern;
}

/// Reads the expectation at column `at` of `line`. False if the words there are
/// none, or a bad one.
bool DiagnosticVerifier::readOne(StringRef line, size_t at, unsigned number) {
  StringRef rest = line.drop_front(at + prefix.size());
  Expectation expectation;
  expectation.ownLine = expectation.line = number;
  expectation.column = at + 1;
  bool known = false;
  for (Severity severity :
       {Severity::Error, Severity::Warning, Severity::Remark, Severity::Note}) {
    if (!known && rest.consume_front(severityName(severity))) {
      expectation.severity = severity;
      known = true;
    }
  }
  if (!known) {
    return false;
  }
  bool isRegex = rest.consume_front("-re");
  auto bad = [&](const llvm::Twine &message) {
    fail(number, expectation.column, message);
    return false;
  };
  bool isBelow = false;
  if (rest.consume_front("@")) {
    bool up = rest.starts_with("-");
    unsigned distance = 0;
    if (rest.consume_front("above")) {
      expectation.line = lastPlainLine;
    } else if (rest.consume_front("below")) {
      isBelow = true;
    } else if (rest.consume_front("unknown")) {
      expectation.line = 0;
    } else if ((rest.consume_front("+") || rest.consume_front("-")) &&
               !rest.consumeInteger(10, distance) &&
               (!up || distance < number)) {
      expectation.line = up ? number - distance : number + distance;
    } else {
      return bad(
          "expected '+N', '-N', 'above', 'below' or 'unknown' after '@'");
    }
  }
  rest = rest.ltrim(' ');
  if (!rest.starts_with("{{")) {
    return bad("expected '{{' and the text of the diagnostic");
  }
  size_t begin = rest.begin() + 2 - line.begin();
  size_t end = closingBraces(line, begin);
  if (end == StringRef::npos) {
    return bad("expected '}}' after the text of the diagnostic");
  }
  expectation.text = line.slice(begin, end).str();
  if (isRegex) {
    expectation.pattern = regexOf(expectation.text);
    std::string message;
    if (!llvm::Regex(expectation.pattern).isValid(message)) {
      return bad("bad regular expression: " + llvm::Twine(message));
    }
  }
  if (isBelow) {
    waiting.push_back(expectations.size());
  }
  expectations.push_back(std::move(expectation));
  return true;
}

//===----------------------------------------------------------------------===//
// Comparing
//===----------------------------------------------------------------------===//

bool DiagnosticVerifier::Expectation::matches(StringRef message) const {
  return pattern.empty() ? message.contains(text)
                         : llvm::Regex(pattern).match(message);
}

void DiagnosticVerifier::check(const Diagnostic &diagnostic) {
  Location loc = diagnostic.loc;
  bool isHere = !loc || loc.fileName() == file;
  const Expectation *nearMiss = nullptr;
  bool found = false;
  for (Expectation &expectation : expectations) {
    if (found || expectation.met || !isHere || expectation.line != loc.line ||
        !expectation.matches(diagnostic.message)) {
      continue;
    }
    if (expectation.severity != diagnostic.severity) {
      nearMiss = &expectation;
      continue;
    }
    expectation.met = found = true;
  }
  StringRef severity = severityName(diagnostic.severity);
  if (!found) {
    os << (loc ? loc.fileName() : StringRef(file)) << ':';
    if (loc.line) {
      os << loc.line << ':' << loc.column << ':';
    }
    os << " error: ";
    if (nearMiss) {
      os << "'" << severity << "' diagnostic where a '"
         << severityName(nearMiss->severity)
         << "' is expected: " << diagnostic.message << '\n';
    } else {
      os << "unexpected " << severity << ": " << diagnostic.message << '\n';
    }
    ok = false;
  }
  for (const Diagnostic &note : diagnostic.notes) {
    check(note);
  }
}

bool DiagnosticVerifier::finish() {
  for (const Expectation &expectation : expectations) {
    if (!expectation.met) {
      fail(expectation.ownLine, expectation.column,
           "expected " + severityName(expectation.severity) + " \"" +
               expectation.text + "\" was not produced");
    }
  }
  return ok;
}
