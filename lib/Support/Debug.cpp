//===- Debug.cpp - Messages of --debug-only -------------------------------===//

#include "hp/Support/Debug.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

static constexpr DebugType types[] = {
    {"expand-step", "adjoints as they are written"},
    {"infer-types", "types of operands and results"},
    {"pass-manager", "passes as they begin and end"},
};

bool hp::anyDebugType = false;
/// Which of `types` are on.
static bool enabled[std::size(types)];

llvm::ArrayRef<DebugType> hp::debugTypes() { return types; }

bool hp::enableDebugTypes(StringRef names, DiagnosticEngine &diag) {
  llvm::SmallVector<StringRef> known = {"all"};
  for (const DebugType &type : types) {
    known.push_back(type.name);
  }
  llvm::SmallVector<StringRef> parts;
  names.split(parts, ',', /*MaxSplit=*/-1, /*KeepEmpty=*/false);
  for (StringRef part : parts) {
    part = part.trim();
    bool found = false;
    for (size_t i = 0; i < std::size(types); ++i) {
      if (part == "all" || part == types[i].name) {
        enabled[i] = anyDebugType = found = true;
      }
    }
    if (found) {
      continue;
    }
    InFlightDiagnostic report = diag.error();
    report << "unknown debug type '" << part << "'";
    if (StringRef near = didYouMean(part, known); !near.empty()) {
      report.note({}, "did you mean '" + near + "'?");
    } else {
      report.note({}, "types are " + llvm::join(known, ", "));
    }
    return report;
  }
  return true;
}

bool hp::isDebugTypeEnabled(StringRef name) {
  for (size_t i = 0; i < std::size(types); ++i) {
    if (types[i].name == name) {
      return enabled[i];
    }
  }
  return false;
}

llvm::raw_ostream &hp::debugStream() { return llvm::errs(); }
