//===- TensorParallel.cpp - What tensor parallelism asks of values --------===//

#include "TensorParallel.h"
#include "ParallelChoices.h"
#include "Retype.h"

using namespace hp;
using llvm::StringRef;

TensorParallel::TensorParallel(Module &module, bool sequence)
    : module(module), tensorAxes(axesCalled(module, "tp")),
      tensorSet(tensorAxes) {
  for (const DeclaredCut &cut : declaredCuts(module, "sequence_parallel")) {
    if (cut.axis == "tp") {
      dim = cut.dim;
      this->sequence = sequence && !tensorAxes.empty();
    }
  }
}

Type TensorParallel::residual(Type type) const {
  return sequence && isFloat(type.dtype())
             ? withCut(module, type, dim, tensorAxes)
             : type;
}

/// Whether a dim other than by sequence parallelism is cut, or the value used
/// differently by each rank.
bool TensorParallel::meets(Type type) const {
  if (!(type->repl & tensorSet).empty()) {
    return true;
  }
  for (const Dim &candidate : type.dims()) {
    bool bySequence = sequence && candidate.name() == dim;
    if (!bySequence && !(AxisSet(candidate.axes) & tensorSet).empty()) {
      return true;
    }
  }
  return false;
}

bool TensorParallel::isResidual(Type type) const {
  return isFloat(type.dtype()) && (type->partial & tensorSet).empty() &&
         !meets(type);
}

Type TensorParallel::replicated(Type type) const {
  TypeData data = *type;
  for (Dim &candidate : data.dims) {
    llvm::erase_if(candidate.axes,
                   [&](AxisId axis) { return tensorSet.contains(axis); });
  }
  data.repl = data.repl | tensorSet;
  return module.type(data);
}

Type TensorParallel::reduced(Type type) const {
  TypeData data = *type;
  data.partial = data.partial - tensorSet;
  return residual(module.type(data));
}

Type TensorParallel::sharded(Type type) const {
  return withCut(module, type, dim, tensorAxes);
}

llvm::SmallVector<TensorParallel::Fix, 4>
TensorParallel::fixes(const Operation &op, llvm::ArrayRef<Type> types) const {
  llvm::SmallVector<Fix, 4> result(types.size(), Fix::None);
  if (tensorAxes.empty() || op.info().category == OpCategory::Structure) {
    return result;
  }
  // A whole parameter goes with what it meets; see met().
  bool busy = false, bySequence = false;
  for (unsigned i = 0; i < types.size(); ++i) {
    if (op.operands[i].param) {
      AxisSet cut = types[i].shardedAxes() & tensorSet;
      // A kv head that all ranks share is used by each for its own heads.
      bool shared = !sequence && !(types[i]->repl & tensorSet).empty();
      busy |= !cut.empty() || shared;
      continue;
    }
    busy |= meets(types[i]) || !(types[i]->partial & tensorSet).empty();
    bySequence |= isFloat(types[i].dtype()) &&
                  !(types[i].shardedAxes() & tensorSet).empty();
  }
  for (unsigned i = 0; i < types.size(); ++i) {
    if (op.operands[i].param) {
      continue;
    }
    if (busy && isResidual(types[i])) {
      result[i] = Fix::Replicate;
    } else if (!busy && bySequence && !isFloat(types[i].dtype()) &&
               types[i].findDim(dim) >= 0 &&
               (types[i].shardedAxes() & tensorSet).empty()) {
      result[i] = Fix::Shard;
    }
  }
  return result;
}

AxisSet TensorParallel::met(const Operation &op, llvm::ArrayRef<Type> types,
                            unsigned index) const {
  AxisSet axes;
  for (unsigned i = 0; i < types.size(); ++i) {
    if (i != index && isFloat(types[i].dtype())) {
      axes = axes | ((types[i].shardedAxes() | types[i]->repl) & tensorSet);
    }
  }
  return axes;
}
