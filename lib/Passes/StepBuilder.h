//===- StepBuilder.h - The state of one expansion ---------------*- C++ -*-===//
//
// expand-step's three parts share this: forward (ExpandForward.cpp) appends the
// instances, backward (ExpandBackward.cpp) walks them in reverse, optimizer
// (ExpandOptimizer.cpp) ends the step.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_STEPBUILDER_H
#define HP_LIB_PASSES_STEPBUILDER_H

#include "hp/IR/Module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace hp {

class StepBuilder {
public:
  StepBuilder(Module &module, DiagnosticEngine &diag)
      : module(module), diag(diag) {}

  /// Fills the body of @step and replaces functions, blocks and stacks.
  bool build();

private:
  using ValueMap = llvm::DenseMap<Value *, Value *>;
  using ParamMap = llvm::DenseMap<Param *, Param *>;

  //--- ExpandForward.cpp ------------------------------------------------------
  bool expandForward();
  void flattenParameters();
  bool inlineBlock(Block &source, llvm::ArrayRef<Value *> arguments,
                   llvm::StringRef prefix, const ParamMap &params,
                   llvm::SmallVectorImpl<Value *> &returned);
  bool inlineStack(const Operation &op, ValueMap &values);
  bool inlineCall(const Operation &op, ValueMap &values, llvm::StringRef prefix,
                  const ParamMap &params);
  static Operand mapped(Operand operand, const ValueMap &values,
                        const ParamMap &params);
  bool countVisit(Location loc);

  //--- ExpandBackward.cpp -----------------------------------------------------
  bool expandBackward();
  bool appendAdjoint(Operation &forward);
  void markTrained(const Operation &forward);
  bool isTrained(const Operand &operand) const;
  Value *&runningGradient(const Operand &operand);

  //--- ExpandOptimizer.cpp ----------------------------------------------------
  bool expandOptimizer();

  Operation *append(OpKind kind, Location loc);
  /// `base`, or `base.2`, `base.3`, ... if taken.
  std::string uniqueName(llvm::StringRef base);

  Module &module;
  DiagnosticEngine &diag;
  Block *body = nullptr; ///< of @step
  Value *loss = nullptr;
  Value *validTargets = nullptr; ///< the divisor of the loss; may be null
  std::vector<Operation *> forwardOps;
  /// Values that depend on a parameter: the others need no gradient.
  llvm::DenseSet<const Value *> trained;
  unsigned visits = 0, callDepth = 0;
  std::vector<Param *> parameters; ///< flat, in construction order
  /// For each layer of each stack, template parameter → instance.
  llvm::StringMap<std::vector<ParamMap>> instances;
  /// For each stack, the template of each layer.
  llvm::StringMap<std::vector<llvm::StringRef>> stackLayers;
  llvm::DenseMap<Value *, Value *> valueGradients;
  llvm::DenseMap<Param *, Value *> paramGradients;
  llvm::StringMap<unsigned> names;
};

} // namespace hp

#endif // HP_LIB_PASSES_STEPBUILDER_H
