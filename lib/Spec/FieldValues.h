//===- FieldValues.h - Values of config fields and options ------*- C++ -*-===//
//
// Internal to lib/Spec: reading a node as a value of a FieldKind.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_SPEC_FIELDVALUES_H
#define HP_LIB_SPEC_FIELDVALUES_H

#include "hp/Spec/ModelSpec.h"
#include "hp/Spec/TypedReading.h"

namespace hp {

/// What a value has to be.
struct ValueRange {
  IntRange integers = {};
  FloatRange floats = {};
  llvm::ArrayRef<std::string> words = {}; ///< empty: any
};

/// The kind that a default stands for: `24`, `1.0e7`, `true`, `silu`, `[1, 2]`.
/// An empty list is one of integers. Reports a value that is none.
std::optional<FieldKind> kindOfDefault(const Node &node, llvm::StringRef what,
                                       DiagnosticEngine &diag);

/// Reads `node` as a value of `kind`; `what` is its name in messages.
std::optional<Attribute> readValue(const Node &node, FieldKind kind,
                                   llvm::StringRef what, DiagnosticEngine &diag,
                                   const ValueRange &range = {});

/// Whether a value of kind `from` serves where `to` is asked for.
bool isConvertible(FieldKind from, FieldKind to);

/// Adds `did you mean` or, failing that, a list of `candidates` as a note.
void suggest(InFlightDiagnostic &error, llvm::StringRef word,
             llvm::ArrayRef<llvm::StringRef> candidates, llvm::StringRef title);

} // namespace hp

#endif // HP_LIB_SPEC_FIELDVALUES_H
