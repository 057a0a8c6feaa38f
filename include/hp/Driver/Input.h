//===- Input.h - From what a user names to a module -------------*- C++ -*-===//
//
// hp-opt takes three kinds of input, told apart by content:
//
//   IR          begins with `model "name"`, comments aside
//   model spec  YAML or JSON with `modules` or `flavors`
//   run config  YAML or JSON whose `model` is a map, or that has other sections
//               of a run
//
//===----------------------------------------------------------------------===//

#ifndef HP_DRIVER_INPUT_H
#define HP_DRIVER_INPUT_H

#include "hp/IR/Module.h"
#include "hp/Spec/ModelSpec.h"

namespace hp {

enum class InputKind { IR, ModelSpec, RunConfig };

/// What `text` is. `file` must have been given to `diag` with its text. Nothing
/// after an error.
std::optional<InputKind> classifyInput(llvm::StringRef text,
                                       llvm::StringRef file,
                                       DiagnosticEngine &diag);

/// What the command line says beside the input.
struct InputOptions {
  std::string flavor; ///< empty: not given
  /// `section.key=value`; of a model spec also `field=value`,
  /// `config.field=...`
  std::vector<std::string> overrides;
  /// Whether the spec is wanted beside the module.
  bool wantsSpec = false;
};

struct LoadedModule {
  std::unique_ptr<Module> module;
  /// What the module was imported from, if wanted; none for IR.
  std::optional<ModelSpec> spec;
};

/// Reads or imports the module that `text` is or describes.
std::optional<LoadedModule> loadModule(llvm::StringRef text,
                                       llvm::StringRef file, InputKind kind,
                                       const InputOptions &options,
                                       DiagnosticEngine &diag);

/// The bytes of `path`, or of standard input for `-`. Null after an error.
std::unique_ptr<llvm::MemoryBuffer> readInput(llvm::StringRef path,
                                              DiagnosticEngine &diag);

} // namespace hp

#endif // HP_DRIVER_INPUT_H
