//===- Manifest.h - manifest.json -------------------------------*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_MANIFEST_H
#define HP_LIB_RUNTIME_MANIFEST_H

#include "hp/Runtime/Checkpoint.h"

namespace hp {

std::string manifestText(const Manifest &manifest);
/// Nothing, with an error in `file`, if `text` is not a manifest of this
/// version.
std::optional<Manifest> parseManifest(llvm::StringRef text,
                                      llvm::StringRef file,
                                      DiagnosticEngine &diag);

} // namespace hp

#endif // HP_LIB_RUNTIME_MANIFEST_H
