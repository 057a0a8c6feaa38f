//===- Memory.cpp - Bytes of values over a step ---------------------------===//

#include "hp/Analysis/Memory.h"
#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Placement.h"
#include "llvm/ADT/DenseMap.h"

using namespace hp;

/// Bytes of the parameters that `unshard` gathers.
static int64_t bundleBytes(Module &module, const Operation &unshard) {
  int64_t bytes = 0;
  for (const Param *param : bundleParams(module, unshard)) {
    if (param->type->store) {
      bytes += param->type.localBytes(module.mesh);
    }
  }
  return bytes;
}

void hp::walkMemory(
    Module &module, Function &function, int64_t rank,
    llvm::function_ref<void(const Operation &, int64_t)> visit) {
  llvm::DenseMap<const Value *, int64_t> roots; // live, with their bytes
  int64_t live = 0;
  auto end = [&](const Value *root) {
    live -= roots.lookup(root);
    roots.erase(root);
  };
  for (const Value *argument : function.body->arguments) {
    live += heldBytes(argument->type, module.mesh, rank);
  }
  for (const Operation &op : function.body->ops) {
    for (unsigned index = 0; index < op.results.size(); ++index) {
      const Value *result = op.results[index];
      if (!result || op.sharesStorageWith(index)) {
        continue;
      }
      live += roots[result] = result->isBundle()
                                  ? bundleBytes(module, op)
                                  : heldBytes(result->type, module.mesh, rank);
    }
    if (op.is(OpKind::Free) || op.is(OpKind::FsdpReshard)) {
      for (const Operand &operand : op.operands) {
        end(operand.value);
      }
    }
    visit(op, live);
  }
}

MemoryPeak hp::peakOfValues(Module &module, Function &function, int64_t rank) {
  MemoryPeak peak;
  for (const Value *argument : function.body->arguments) {
    peak.argumentBytes += heldBytes(argument->type, module.mesh, rank);
  }
  walkMemory(module, function, rank, [&](const Operation &op, int64_t bytes) {
    if (bytes > peak.bytes) {
      peak.bytes = bytes;
      peak.at = &op;
    }
  });
  return peak;
}
