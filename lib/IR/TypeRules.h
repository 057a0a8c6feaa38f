//===- TypeRules.h - Inside the type engine ---------------------*- C++ -*-===//
//
// What the files of the engine share: the question put to them, and the fault
// they answer with. Private to lib/IR.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_TYPERULES_H
#define HP_LIB_IR_TYPERULES_H

#include "hp/IR/InferTypes.h"

namespace hp {

using TypeList = llvm::SmallVector<Type, 4>;

/// Why an operation has no type: one sentence, and the operand that broke it.
class TypeFault : public llvm::ErrorInfo<TypeFault> {
public:
  static char ID;

  TypeFault(std::string message, int operand)
      : message(std::move(message)), operand(operand) {}

  void log(llvm::raw_ostream &os) const override { os << message; }
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }

  const std::string message;
  const int operand; ///< position among the operands; -1: none in particular
};

/// The question: what does the operation of row `info` make of `operands`?
struct TypeQuery {
  Module &module;
  const OpInfo &info;
  llvm::ArrayRef<Type> operands;
  const Operation &like; ///< for its attributes, axes and dims

  /// A fault that begins with the quoted name of the operation.
  llvm::Error refuse(const llvm::Twine &what, int operand = -1) const;
  /// Refuses a number of operands other than `count`.
  llvm::Error expectOperands(unsigned count) const;

  const Mesh &mesh() const { return module.mesh; }
  /// `'tp'`.
  std::string quoted(AxisId axis) const;
  /// `tp`, `(cp,tp)`, or `no axis`.
  std::string group(llvm::ArrayRef<AxisId> axes) const;
  std::string text(Type type) const;
};

/// `'spelling': what`, for faults of operations that have no TypeQuery.
llvm::Error typeFault(llvm::StringRef spelling, const llvm::Twine &what,
                      int operand = -1);

/// `invariant`, `replicated`, `partial`, `sharded`.
llvm::StringRef stateName(State state);

/// Local operations and cp.ring, by the rule of the table (LocalTypes.cpp).
llvm::Expected<TypeList> inferByRule(const TypeQuery &query);
/// Views (ViewTypes.cpp).
llvm::Expected<TypeList> inferView(const TypeQuery &query);
/// Collectives (CollectiveTypes.cpp).
llvm::Expected<TypeList> inferCollective(const TypeQuery &query);
/// What follows the last gradient reduction; reads `like`'s operands for
/// parameters (StepTypes.cpp).
llvm::Expected<TypeList> inferStep(const TypeQuery &query);
/// Calls, stacks and bundles (StepTypes.cpp).
llvm::Expected<TypeList> inferStructure(const TypeQuery &query);
/// Backward operations (BackwardTypes.cpp).
llvm::Expected<TypeList> inferBackward(Module &module, const Operation &op,
                                       llvm::ArrayRef<Type> operands,
                                       llvm::ArrayRef<Type> acc);

/// `inferTypes` with the types of operands and running gradients at hand; null
/// types stand for `_` and for bundles.
llvm::Expected<TypeList> inferWithTypes(Module &module, const Operation &op,
                                        llvm::ArrayRef<Type> operands,
                                        llvm::ArrayRef<Type> acc);

} // namespace hp

#endif // HP_LIB_IR_TYPERULES_H
