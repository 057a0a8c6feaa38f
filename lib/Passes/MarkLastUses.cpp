//===- MarkLastUses.cpp - Where each storage ends -------------------------===//
//
// A storage begins with a fresh result, the root, and is shared by the views
// made of it and the gradients it is passed on to. It ends after the last
// operation that reads one of them; reading only a type does not count. What a
// reduction that is started async reads, it reads until its wait. `free` names
// the root.
//
//===----------------------------------------------------------------------===//

#include "hp/Passes/ExpandStep.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"

using namespace hp;

namespace {
/// Root of each value's storage; null for arguments, parameters and bundles,
/// which the step does not own.
class Roots {
public:
  Value *of(const Operand &operand) const {
    if (operand.param || !operand.value) {
      return nullptr;
    }
    return roots.lookup(operand.value);
  }
  void define(const Operation &op, unsigned index) {
    Value *result = op.results[index];
    const Operand *source = op.sharesStorageWith(index);
    roots[result] = source ? of(*source) : result;
  }
  Value *of(Value *value) const { return roots.lookup(value); }

private:
  llvm::DenseMap<Value *, Value *> roots;
};
} // namespace

void hp::markLastUses(Module &module, Block &block) {
  Roots roots;
  // Roots in definition order → the operation after which they end.
  llvm::MapVector<Value *, Operation *> lastUse;
  for (Operation &op : block.ops) {
    for (const Operand &operand :
         llvm::concat<const Operand>(op.operands, op.acc)) {
      if (Value *root = operand.typeOnly ? nullptr : roots.of(operand)) {
        lastUse[root] = &op;
      }
      if (!op.is(OpKind::Wait)) {
        continue;
      }
      for (const Operand &sent : operand.value->owner->operands) {
        if (Value *root = roots.of(sent)) {
          lastUse[root] = &op;
        }
      }
    }
    for (unsigned index = 0; index < op.results.size(); ++index) {
      Value *result = op.results[index];
      if (!result || result->isBundle()) {
        continue;
      }
      roots.define(op, index);
      if (Value *root = roots.of(result)) {
        lastUse[root] = &op;
      }
    }
  }

  llvm::DenseMap<Operation *, Operation *> frees;
  for (auto &[root, op] : lastUse) {
    if (op->is(OpKind::Return)) {
      continue;
    }
    Operation *&free = frees[op];
    if (!free) {
      free = module.makeOp(OpKind::Free, op->loc);
      free->parent = &block;
      block.ops.insertAfter(op->getIterator(), free);
    }
    free->operands.push_back({root});
  }
}
