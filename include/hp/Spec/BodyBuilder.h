//===- BodyBuilder.h - Writing parameters and operations --------*- C++ -*-===//
//
// What components write with. ParamMaker makes the parameters of one module of
// the tree under their full or template-relative names; BodyBuilder appends
// operations to a block and asks inferTypes for the types of their results.
// Both report what goes wrong and then go on: a null Value in, a null Value
// out.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_BODYBUILDER_H
#define HP_SPEC_BODYBUILDER_H

#include "hp/IR/Module.h"
#include "hp/Spec/ModelSpec.h"
#include "llvm/ADT/StringSet.h"

namespace hp {

/// The most elements a parameter or a value may have: what a sum over all
/// layers still counts without overflow.
constexpr int64_t maxElements = int64_t(1) << 44;

class ParamMaker {
public:
  /// Parameters of `spec` are called `prefix` and their name. They join
  /// `block`, or the members of `module` where it is null. `tied` maps names to
  /// the parameter that stands for them.
  ParamMaker(Module &module, BlockTemplate *block, const ModuleSpec &spec,
             std::string prefix, DType dtype,
             const llvm::StringMap<Param *> &tied, DiagnosticEngine &diag)
      : module(module), block(block), spec(spec), prefix(std::move(prefix)),
        dtype(dtype), tied(tied), diag(diag) {}

  /// Makes a parameter. `init` is how it starts unless the spec says otherwise.
  Param *make(llvm::StringRef name, llvm::ArrayRef<Dim> dims,
              llvm::StringRef init);
  bool hadError() const { return failed; }

private:
  Module &module;
  BlockTemplate *block;
  const ModuleSpec &spec;
  std::string prefix;
  DType dtype;
  const llvm::StringMap<Param *> &tied;
  DiagnosticEngine &diag;
  bool failed = false;
};

class BodyBuilder {
public:
  using Attributes = llvm::ArrayRef<std::pair<llvm::StringRef, Attribute>>;

  BodyBuilder(Module &module, Block &block, DiagnosticEngine &diag)
      : module(module), block(block), diag(diag) {}

  Module &module;
  Value *positions = nullptr; ///< `%pos: i64[S]`
  Location loc;               ///< of the operations that follow

  Value *argument(llvm::StringRef name, Type type);
  /// Appends an operation with one result.
  Value *op(llvm::StringRef name, OpKind kind, llvm::ArrayRef<Operand> operands,
            Attributes attributes = {});
  /// Appends an operation with several results.
  llvm::SmallVector<Value *, 3> ops(llvm::ArrayRef<llvm::StringRef> names,
                                    OpKind kind,
                                    llvm::ArrayRef<Operand> operands,
                                    Attributes attributes = {});
  /// Appends an rms_norm.
  Value *rmsNorm(llvm::StringRef name, Value *input, Param *weight, double eps,
                 bool unitOffset);
  /// Appends a stack or call, whose result is of type `type`.
  Value *run(llvm::StringRef name, OpKind kind, llvm::StringRef symbol,
             llvm::ArrayRef<Operand> operands, Type type);
  void ret(Value *value);
  bool hadError() const { return failed; }

private:
  Operation *append(OpKind kind, llvm::ArrayRef<Operand> operands);
  /// `name`, or `name_2` and so on if a value has it.
  std::string unique(llvm::StringRef name);
  bool checkSize(const Operation &op, Type type);

  Block &block;
  DiagnosticEngine &diag;
  llvm::StringSet<> names;
  bool failed = false;
};

/// Operands from values and parameters.
inline Operand use(Value *value) { return {.value = value}; }
inline Operand use(Param *param) { return {.param = param}; }

} // namespace hp

#endif // HP_SPEC_BODYBUILDER_H
