//===- BlockProof.h - Inside proofs 1, 2, 3 and 5 ----------------*- C++
//-*-===//
//
// The walk over one block. Its parts:
//
//   VerifyBlock.cpp     order, types, results, what leaves
//   VerifyOperands.cpp  what is read, storage, bundles
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

  void run();

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
  void verifyUnshard(const Operation &op);
  void verifyReshard(const Operation &op);
  const Value *rootOf(const Operand &operand);

  //--- Types and results ------------------------------------------------------
  void verifyCallOrder(const Operation &op);
  void verifyTypes(const Operation &op);
  void verifyRotary(const Operation &op);
  void define(Value *value, const Operation *op, unsigned index);
  void checkInForce(const Value &value, Location loc);
  void defineResults(const Operation &op);

  //--- What leaves ------------------------------------------------------------
  void verifyReturn(const Operation &op);
  void verifyLeaving(const Operation &op, const Operand &operand);

  VerifierState &state;
  Module &module;
  const BlockPlace &place;
  llvm::DenseMap<const char *, const Value *> names;
  llvm::SmallVector<const Value *, 8> bundles;
  bool returned = false;
};

} // namespace hp

#endif // HP_LIB_IR_BLOCKPROOF_H
