//===- Text.h - Reading and writing modules ---------------------*- C++ -*-===//
//
// The text form is the IR: printing and parsing are inverse, byte for byte, at
// every stage. The grammar is in docs/IR.md and above each function of the
// parser.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_TEXT_H
#define HP_IR_TEXT_H

#include "hp/IR/Module.h"

namespace hp {

/// Reads one module from `text`, named `file` in messages. Null after an error.
/// Symbols are resolved and types checked for form (checkType); call verify()
/// for the proofs.
std::unique_ptr<Module> parseModule(llvm::StringRef text, llvm::StringRef file,
                                    DiagnosticEngine &diag);

struct PrintOptions {
  /// `loc("models/qwen3_5_v2.yaml":31:7)` after each operation and parameter.
  bool debugInfo = false;
  /// `// local f32[8, 64, 256]` after each operation.
  bool localShapes = false;
};

void print(Module &module, llvm::raw_ostream &os, PrintOptions options = {});
void print(const Operation &op, llvm::raw_ostream &os,
           PrintOptions options = {});
std::string str(Module &module, PrintOptions options = {});
/// A type as text, with the names of `module`'s axes and dims.
std::string str(Type type, const Module &module);
/// `%x`, `@p`, `%L0@p`, `type(%x)`, `_`.
std::string str(const Operand &operand);
/// An attribute's value.
std::string str(const Attribute &attribute, const Module &module);

} // namespace hp

#endif // HP_IR_TEXT_H
