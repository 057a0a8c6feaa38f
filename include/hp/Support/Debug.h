//===- Debug.h - Messages of --debug-only -----------------------*- C++ -*-===//
//
//   HP_DEBUG("pass-manager", debugStream() << "running " << name << '\n');
//
// The statement runs where --debug-only names its type; otherwise it costs one
// test of a global. Unlike LLVM's, these are in every build, Release too. A new
// type is added to the list in Debug.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SUPPORT_DEBUG_H
#define HP_SUPPORT_DEBUG_H

#include "hp/Support/Diagnostics.h"

namespace hp {

/// Every type of debug messages, with what it tells.
struct DebugType {
  llvm::StringRef name, summary;
};
llvm::ArrayRef<DebugType> debugTypes();

/// Whether any type is on. Read through isDebugging.
extern bool anyDebugType;

/// Turns on the types of `names`, separated by commas; `all` is every type.
/// False after an error.
bool enableDebugTypes(llvm::StringRef names, DiagnosticEngine &diag);
bool isDebugTypeEnabled(llvm::StringRef name);
inline bool isDebugging(llvm::StringRef name) {
  return anyDebugType && isDebugTypeEnabled(name);
}

/// Where debug messages go: standard error.
llvm::raw_ostream &debugStream();

} // namespace hp

#define HP_DEBUG(TYPE, STATEMENT)                                              \
  do {                                                                         \
    if (::hp::isDebugging(TYPE)) {                                             \
      STATEMENT;                                                               \
    }                                                                          \
  } while (false)

#endif // HP_SUPPORT_DEBUG_H
