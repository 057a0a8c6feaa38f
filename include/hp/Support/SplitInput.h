//===- SplitInput.h - Several inputs in one file ----------------*- C++ -*-===//
//
// Cuts a file at lines that hold `// -----` alone, for --split-input-file.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SUPPORT_SPLITINPUT_H
#define HP_SUPPORT_SPLITINPUT_H

#include "hp/Support/Diagnostics.h"
#include <optional>

namespace hp {

/// The line between two pieces.
constexpr llvm::StringLiteral splitMarker = "// -----";

/// The pieces of `text`, each with one empty line before it for every line of
/// `text` above it: lines count as in the whole file. Nothing, after an error,
/// for more than a thousand pieces.
std::optional<std::vector<std::string>>
splitInput(llvm::StringRef text, llvm::StringRef file, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_SUPPORT_SPLITINPUT_H
