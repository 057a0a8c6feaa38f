//===- GradientProof.h - Inside proof 8 -------------------------*- C++ -*-===//
//
// The walk over a step that follows each gradient from the loss to the update.
// Its parts:
//
//   VerifyBackward.cpp   forward operations, backward ones, collectives
//   VerifyUpdate.cpp     reduction, norm, clip, update
//
// Private to lib/IR.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_GRADIENTPROOF_H
#define HP_LIB_IR_GRADIENTPROOF_H

#include "VerifierState.h"

namespace hp {

class GradientProof {
public:
  GradientProof(VerifierState &state, const BlockPlace &place)
      : state(state), module(state.module), place(place) {}

  void run();

private:
  /// What a gradient is the gradient of. Neither: the loss, not yet known.
  struct Target {
    const Value *value = nullptr; ///< the canonical one
    Param *param = nullptr;

    const void *key() const {
      return param ? static_cast<const void *>(param) : value;
    }
    bool operator==(const Target &) const = default;
  };

  /// One gradient value.
  struct Gradient {
    const Value *value;
    Target target;
    const Operation *maker;
    const Operation *firstUse = nullptr;
    unsigned uses = 0;
    /// A later gradient of the same target that did not take this one along.
    const Value *leftOutBy = nullptr;
  };

  /// A forward operation, and all that compute the same.
  struct ForwardOp {
    const Operation *op;
    unsigned instances = 1; ///< before the first gradient; later: recomputed
    int nextAlike = -1;     ///< same kind and operands, other attributes
    unsigned numAdjoints = 0;
    const Operation *adjoint = nullptr;
  };

  /// A term of the norm: a sum of squares, or sums of such.
  struct NormTerm {
    const Value *value;
    unsigned uses = 0;
  };

  void visit(const Operation &op);

  //--- Forward (VerifyBackward.cpp) -------------------------------------------
  Target targetOf(const Operand &operand);
  std::string describe(const Target &target) const;
  bool needsGradient(const Operand &operand);
  int findAlike(const Operation &op, unsigned numOperands, uint64_t &hash);
  void numberForward(const Operation &op);
  void checkReadAfterUpdate(const Operation &op);

  //--- Backward (VerifyBackward.cpp) ------------------------------------------
  bool isGradient(const Operand &operand) {
    return operand.value && !operand.param &&
           state.facts(operand.value).gradient >= 0;
  }
  bool readsGradient(const Operation &op) {
    return llvm::any_of(op.operands, [&](const Operand &operand) {
      return isGradient(operand);
    });
  }
  void makeGradient(const Value *value, Target target, const Operation &op);
  /// Counts one use of a gradient; null if the operand is none.
  Gradient *useGradient(const Operation &op, const Operand &operand,
                        llvm::StringRef role);
  void visitOnes(const Operation &op);
  void visitBackward(const Operation &op);
  void checkTypeMarks(const Operation &op, unsigned numForward);
  ForwardOp *matchForward(const Operation &op, unsigned numForward);
  void checkCotangents(const Operation &op, unsigned numForward,
                       const ForwardOp *forward);
  void visitCollective(const Operation &op);
  void visitGradientSum(const Operation &op);

  //--- Update (VerifyUpdate.cpp) ----------------------------------------------
  void visitReduceGrad(const Operation &op);
  void visitSumSquares(const Operation &op);
  void visitAdamW(const Operation &op);
  bool visitNorm(const Operation &op);
  void makeNormTerm(const Value *value);
  void finish();
  void finishParameters();

  VerifierState &state;
  Module &module;
  const BlockPlace &place;
  std::vector<ForwardOp> forwardOps;
  llvm::DenseMap<uint64_t, unsigned> forwardIndex;
  std::vector<Gradient> gradients;
  /// The latest gradient of each target.
  llvm::DenseMap<const void *, unsigned> running;
  std::vector<NormTerm> normTerms;
  const Operation *ones = nullptr;
  const Operation *norm = nullptr;
  /// What the norm counted of each parameter.
  llvm::DenseMap<const Param *, const Value *> counted;
};

} // namespace hp

#endif // HP_LIB_IR_GRADIENTPROOF_H
