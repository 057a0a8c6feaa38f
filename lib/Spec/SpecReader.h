//===- SpecReader.h - Reading a model spec ----------------------*- C++ -*-===//
//
// Internal to lib/Spec. ModelSpec.cpp reads the sections of a spec,
// ModuleTree.cpp its modules.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_SPEC_SPECREADER_H
#define HP_LIB_SPEC_SPECREADER_H

#include "FieldValues.h"
#include "hp/Spec/Components.h"

namespace hp {

/// Fills a ModelSpec from a document. Each function reports what it finds wrong
/// and goes on; `failed` then tells.
class SpecReader {
public:
  explicit SpecReader(DiagnosticEngine &diag) : diag(diag) {}

  std::optional<ModelSpec> read(const Node &root);

private:
  // ModelSpec.cpp
  void readConfig(const Node &node);
  void readDerived(const Node &node);
  void readFlavors(const Node &node);
  void readValueSharding(const Node &node);
  std::vector<ValueSharding> readCuts(const Node &node, llvm::StringRef what);
  void readTies(const Node &node);
  void readCheckpoint(const Node &node);
  void readSpelling(const MapEntry &entry);
  void checkFieldsAreUsed();

  // ModuleTree.cpp
  void readModules(const Node &node);
  void readModule(const MapEntry &entry, ComponentRole expected, bool atTop,
                  ModuleSpec &module);
  const ComponentInfo *readKind(const Node &node, ComponentRole expected,
                                bool atTop);
  void readOptions(MapReader &map, ModuleSpec &module);
  void readOption(const Node &node, const OptionInfo &info, ModuleSpec &module);
  void readSharding(const Node &node, ModuleSpec &module);
  void readInit(const Node &node, ModuleSpec &module);
  void readLayer(MapReader &map, ModuleSpec &module);
  void readResiduals(const Node &node, ModuleSpec &module);
  void readTemplates(const Node *node, ModuleSpec &module);
  const ParamInfo *findParam(const MapEntry &entry, const ModuleSpec &module);

  /// The name behind `$`, if `node` is `$name`.
  static std::optional<llvm::StringRef> fieldReference(const Node &node);
  /// The field that `node` refers to as `$name`, of kind `kind`; empty after an
  /// error.
  std::string readReference(const Node &node, llvm::StringRef what,
                            FieldKind kind);
  /// The kind of a declared or derived field.
  std::optional<FieldKind> kindOf(llvm::StringRef field) const;
  std::vector<llvm::StringRef> fieldNames() const;
  /// Whether `name` is made of letters, digits, `_` and the characters of
  /// `more`.
  bool checkName(llvm::StringRef name, Location loc, llvm::StringRef what,
                 llvm::StringRef more = "");
  bool fail(InFlightDiagnostic &&) {
    failed = true;
    return false;
  }

  DiagnosticEngine &diag;
  ModelSpec spec;
  llvm::StringSet<> usedFields;
  bool failed = false;
};

} // namespace hp

#endif // HP_LIB_SPEC_SPECREADER_H
