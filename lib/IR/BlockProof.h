//===- BlockProof.h - Inside proofs 1 to 3 and 5 to 7 -----------*- C++ -*-===//
//
// The walk over one block. Its parts:
//
//   VerifyBlock.cpp         order, types, results, what leaves
//   VerifyOperands.cpp      what is read, storage
//   VerifyBundles.cpp       buckets
//   VerifyMessages.cpp      what is started early and waited for late
//   VerifyGradientAxes.cpp  over which axes a parameter's gradient is summed
//
// Private to lib/IR.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_BLOCKPROOF_H
#define HP_LIB_IR_BLOCKPROOF_H

#include "VerifierState.h"

namespace hp {

class BlockProof {
public:
  BlockProof(VerifierState &state, const BlockPlace &place)
      : state(state), module(state.module), place(place) {}

  /// False if the model's part has faults, adjoints included; those of norm and
  /// update do not count.
  bool run();

private:
  void defineArguments();
  void visit(Operation &op);

  //--- What is read -----------------------------------------------------------
  bool verifyOperands(const Operation &op);
  bool verifyOperand(const Operation &op, const Operand &operand,
                     unsigned position, bool isAcc);
  bool verifyParamOperand(const Operation &op, const Operand &operand,
                          unsigned position);
  bool mayBeNone(const Operation &op, unsigned position) const;
  bool mayBeParam(const Operation &op, unsigned position) const;
  void countRead(const Operation &op, const Param *param);

  //--- Storage and bundles ----------------------------------------------------
  void verifyFree(const Operation &op);
  llvm::SmallVector<Param *, 16> bucketOf(const Operation &op);
  void verifyUnshard(const Operation &op);
  void verifyReshard(const Operation &op);
  const Value *rootOf(const Operand &operand);

  //--- Messages ---------------------------------------------------------------
  void visitMessages(const Operation &op);
  void startMessage(const Operation &op);
  void visitReduction(const Operation &op);
  void verifyWait(const Operation &op);
  void verifyComplete(const Operation &op, const Operand &operand);
  void verifyNotSent(const Operation &op, const Value &root);
  void verifyNotGathered(const Operation &adamW);
  void finishMessages();

  //--- Types and results ------------------------------------------------------
  void verifyCallOrder(const Operation &op);
  /// What an operation computes, by kind and forward operands: a fault of it is
  /// one of its adjoint as well, and is told once.
  static llvm::SmallVector<const void *, 8> identity(const Operation &op);
  void verifyTypes(const Operation &op);
  bool inferredAsPrinted(const Operation &op);
  void verifyGradientAxes(const Operation &op);
  void verifyRotary(const Operation &op);
  void define(Value *value, const Operation *op, unsigned index);
  void checkInForce(const Value &value, Location loc);
  void defineResults(const Operation &op);

  //--- What leaves ------------------------------------------------------------
  void verifyReturn(const Operation &op);
  void verifyLeaving(const Operation &op, const Operand &operand,
                     unsigned position);
  void verifyLoss(const Operation &op, const Operand &operand);

  VerifierState &state;
  Module &module;
  const BlockPlace &place;
  llvm::DenseMap<const char *, const Value *> names;
  llvm::SmallVector<const Value *, 8> bundles;
  /// Messages started and not complete, in order.
  llvm::SmallVector<const Value *, 8> underWay;
  /// The reductions of each run, the last one being open while only frees
  /// follow it; and the run of each.
  std::vector<llvm::SmallVector<const Operation *, 8>> runs;
  llvm::DenseMap<const Operation *, unsigned> runOf;
  bool runOpen = false;
  /// Identities of forward operations with wrong types.
  std::vector<llvm::SmallVector<const void *, 8>> wrong;
  bool returned = false;
};

} // namespace hp

#endif // HP_LIB_IR_BLOCKPROOF_H
