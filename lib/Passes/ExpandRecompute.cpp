//===- ExpandRecompute.cpp - What was not kept, computed again ------------===//
//
// Results of operations that ac-mark marked are not kept for the backward half.
// Where an adjoint reads one, the operation is written again before it, and so
// are marked ones that it reads in turn, in program order. Each is written once
// more at most, and what no adjoint reads not at all.
//
//===----------------------------------------------------------------------===//

#include "StepBuilder.h"

using namespace hp;

/// Makes `values` of the forward half readable for the adjoint that comes next.
void StepBuilder::recompute(llvm::ArrayRef<Value *> values) {
  if (marked.empty()) {
    return;
  }
  llvm::SmallVector<Value *, 8> pending(values);
  llvm::SmallVector<unsigned, 8> needed;
  llvm::DenseSet<const Operation *> seen;
  while (!pending.empty()) {
    Value *value = pending.pop_back_val();
    auto it = marked.find(value->owner);
    if (it == marked.end() || copies.contains(value) ||
        !seen.insert(value->owner).second) {
      continue;
    }
    needed.push_back(it->second);
    for (const Operand &operand : value->owner->operands) {
      if (operand.value && !operand.param) {
        pending.push_back(operand.value);
      }
    }
  }
  llvm::sort(needed);
  for (unsigned index : needed) {
    appendCopy(*forwardOps[index]);
  }
}

void StepBuilder::appendCopy(const Operation &forward) {
  llvm::SmallVector<Operand, 4> operands;
  for (const Operand &operand : forward.operands) {
    operands.push_back(readInBackward(operand, /*needsValue=*/true));
  }
  Operation *copy = append(forward.kind, forward.loc);
  copy->attrs = forward.attrs;
  copy->axes = forward.axes;
  copy->dim = forward.dim;
  copy->toDim = forward.toDim;
  copy->operands.assign(operands.begin(), operands.end());
  for (Value *result : forward.results) {
    if (!result) {
      copy->results.push_back(nullptr);
      continue;
    }
    copies[result] = module.addResult(
        copy, uniqueName(("r." + result->name).str()), result->type);
  }
  closeTemporaryBundles();
  ++written.recomputed;
}
