//===- VerifierState.h - What the proofs share ------------------*- C++ -*-===//
//
// One verification: the module, what was found of its values and parameters so
// far, and the way to report. Private to lib/IR.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_VERIFIERSTATE_H
#define HP_LIB_IR_VERIFIERSTATE_H

#include "TypeRules.h"
#include "hp/IR/Verifier.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"

namespace hp {

/// What is known of one value while its block is walked.
struct ValueFacts {
  //--- VerifyBlock.cpp --------------------------------------------------------
  bool defined = false;
  const Value *root = nullptr; ///< of its storage; null: not the block's own
  const Operation *freed = nullptr;     ///< of a root
  const Operation *resharded = nullptr; ///< of a bundle
  //--- VerifyMessages.cpp -----------------------------------------------------
  const Operation *started = nullptr; ///< with async, and not complete
  const Operation *waited = nullptr;  ///< complete since then
  /// Of a root: the message that is made of it and not complete.
  const Operation *sentBy = nullptr;
  //--- VerifyBackward.cpp -----------------------------------------------------
  const Value *canonical = nullptr; ///< the first value computed alike
  int forwardOp = -1;               ///< position among the forward operations
  int gradient = -1;                ///< position among the gradients
  int normTerm = -1;                ///< position among the terms of the norm
  bool needsGradient = false;       ///< depends on a parameter
};

/// What is known of one parameter.
struct ParamFacts {
  const BlockTemplate *owner = nullptr;  ///< null: the module's own
  Type computeType;                      ///< without storage
  bool usable = true;                    ///< its type is legal
  unsigned reads = 0;                    ///< by forward operations
  bool embeds = false, projects = false; ///< read by embedding, by linear
  const Operation *bucket = nullptr;     ///< the first that gathers it
  //--- VerifyBackward.cpp -----------------------------------------------------
  const Operation *reduced = nullptr, *counted = nullptr, *updated = nullptr;
};

/// Where a block stands.
struct BlockPlace {
  Block &body;
  Location loc;
  std::string name; ///< `block '@linear'`, `function '@train'`
  BlockTemplate *owner = nullptr;
  Function *function = nullptr;
};

class VerifierState {
public:
  VerifierState(Module &module, DiagnosticEngine &diag)
      : module(module), diag(diag) {}

  Module &module;
  DiagnosticEngine &diag;
  /// Further faults are counted and not shown.
  static constexpr unsigned maxFaults = 50;
  unsigned faults = 0;

  InFlightDiagnostic error(Location loc);

  /// Says of `operand` what type it has and where it comes from.
  void note(InFlightDiagnostic &report, const Operand &operand);

  //--- Values and parameters --------------------------------------------------
  /// Forgets the values of the block before; makes room for those of `body`.
  void enter(Block &body);
  ValueFacts &facts(const Value *value);
  ParamFacts &facts(const Param *param) { return params[param]; }
  bool isKnown(const Param *param) const { return params.contains(param); }

  //--- Types ------------------------------------------------------------------
  Type typeOf(const Operand &operand);
  /// Whether `type` is legal on the mesh; reports at `loc` the first time.
  bool checkType(Type type, Location loc, const llvm::Twine &what);
  /// Whether all types that `op` reads are legal.
  bool readsLegalTypes(const Operation &op);
  /// inferTypes, with the answer kept for operations alike.
  llvm::Expected<llvm::ArrayRef<Type>> infer(const Operation &op);

  //--- What is used -----------------------------------------------------------
  llvm::DenseSet<const Stack *> usedStacks;
  llvm::DenseSet<const BlockTemplate *> usedBlocks;
  /// Buckets looked at: the template they stand in, and their symbol, interned.
  llvm::DenseSet<std::pair<const BlockTemplate *, const char *>> buckets;

private:
  llvm::DenseMap<const Value *, unsigned> valueIndex;
  std::vector<ValueFacts> values;
  llvm::DenseMap<const Param *, ParamFacts> params;
  llvm::DenseMap<const TypeData *, bool> legal;
  //--- The memory of infer() --------------------------------------------------
  using Key = llvm::SmallVector<uint64_t, 16>;
  bool makeKey(const Operation &op, llvm::ArrayRef<Type> operands,
               llvm::ArrayRef<Type> acc, Key &key) const;
  llvm::BumpPtrAllocator allocator;
  llvm::DenseMap<llvm::ArrayRef<uint64_t>, llvm::ArrayRef<Type>> answers;
  TypeList scratch;
};

/// Symbols of the module: parameters, stacks, blocks, functions, ties.
void verifySymbols(VerifierState &state);
/// That all of them are used; call after the blocks were walked.
void verifyUses(VerifierState &state);
/// That a group of ranks has one communicator.
void verifyCommunicators(VerifierState &state);
/// Stage, attributes and symbol of one operation.
bool verifyOperationForm(VerifierState &state, const Operation &op);
/// Form, types, states, storage and bundles of one block. False if its
/// gradients cannot be spoken of.
bool verifyBlock(VerifierState &state, const BlockPlace &place);
/// Gradients, reductions, norm and update of a step.
void verifyBackward(VerifierState &state, const BlockPlace &place);

} // namespace hp

#endif // HP_LIB_IR_VERIFIERSTATE_H
