//===- Memory.cpp - Bytes of values over a step ---------------------------===//

#include "hp/Analysis/Memory.h"
#include "llvm/ADT/DenseMap.h"

using namespace hp;

void hp::walkMemory(
    Module &module, Function &function,
    llvm::function_ref<void(const Operation &, int64_t)> visit) {
  llvm::DenseMap<const Value *, int64_t> roots; // live, with their bytes
  int64_t live = 0;
  for (const Value *argument : function.body->arguments) {
    live += argument->type.localBytes(module.mesh);
  }
  for (const Operation &op : function.body->ops) {
    if (op.is(OpKind::Free)) {
      for (const Operand &operand : op.operands) {
        live -= roots.lookup(operand.value);
        roots.erase(operand.value);
      }
    }
    for (unsigned index = 0; index < op.results.size(); ++index) {
      const Value *result = op.results[index];
      if (!result || result->isBundle() || op.sharesStorageWith(index)) {
        continue;
      }
      live += roots[result] = result->type.localBytes(module.mesh);
    }
    visit(op, live);
  }
}

MemoryPeak hp::peakOfValues(Module &module, Function &function) {
  MemoryPeak peak;
  for (const Value *argument : function.body->arguments) {
    peak.argumentBytes += argument->type.localBytes(module.mesh);
  }
  walkMemory(module, function, [&](const Operation &op, int64_t bytes) {
    if (bytes > peak.bytes) {
      peak.bytes = bytes;
      peak.at = &op;
    }
  });
  return peak;
}
