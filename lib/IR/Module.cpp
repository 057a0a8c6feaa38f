//===- Module.cpp - Operations, blocks, functions, modules ----------------===//

#include "hp/IR/Module.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Operand, Operation, Block
//===----------------------------------------------------------------------===//

Type Operand::type(Module &module) const {
  if (!param) {
    return value ? value->type : Type();
  }
  AxisSet idle = module.mesh.all() - module.axesInForce();
  AxisSet placed =
      param->type.shardedAxes() | param->type->repl | param->type->partial;
  if (!param->type->store && (placed & idle).empty()) {
    return param->type;
  }
  TypeData data = *param->type;
  data.store.reset();
  data.repl = data.repl - idle;
  data.partial = data.partial - idle;
  for (Dim &dim : data.dims) {
    llvm::erase_if(dim.axes, [&](AxisId axis) { return idle.contains(axis); });
  }
  return module.type(data);
}

std::string Operation::spelling() const {
  std::string text = info().spelling.str();
  return backward ? text + ".bwd" : text;
}

unsigned Operation::numForwardOperands() const {
  const OpInfo &row = info();
  if (!backward) {
    return operands.size();
  }
  if (row.variants.size() == 1) {
    return std::min<unsigned>(row.variants[0].operands.size(), operands.size());
  }
  unsigned known = row.savedResults().size();
  if (row.variants.empty()) {
    // Views and collectives: all operands but the differentiated ones' count is
    // fixed, save for concat, whose one result has one cotangent.
    if (kind == OpKind::Concat) {
      return operands.empty() ? 0 : operands.size() - 1;
    }
    unsigned fixed =
        kind == OpKind::CrossEntropyVp || kind == OpKind::CpScan ? 2 : 1;
    return std::min<unsigned>(fixed, operands.size());
  }
  known += 1; // several variants: one result, one cotangent
  return operands.size() > known ? operands.size() - known : 0;
}

const Operand *Operation::sharesStorageWith(unsigned index) const {
  const OpInfo &row = info();
  std::optional<unsigned> position;
  if (!backward) {
    position = row.viewOf(index);
  } else if (row.passesCotangent(index) &&
             (index >= acc.size() || acc[index].isNone())) {
    position = numForwardOperands() + row.savedResults().size();
  }
  return position && *position < operands.size() ? &operands[*position]
                                                 : nullptr;
}

Operation *Block::terminator() {
  return !ops.empty() && ops.back().is(OpKind::Return) ? &ops.back() : nullptr;
}

//===----------------------------------------------------------------------===//
// Stack
//===----------------------------------------------------------------------===//

int64_t Stack::numLayers() const {
  int64_t total = 0;
  for (const StackGroup &group : groups) {
    int64_t period = 0;
    for (const StackRun &run : group.runs) {
      period += run.count;
    }
    total += period * group.count;
  }
  return total;
}

std::vector<StringRef> Stack::layers() const {
  std::vector<StringRef> list;
  for (const StackGroup &group : groups) {
    for (int64_t i = 0; i < group.count; ++i) {
      for (const StackRun &run : group.runs) {
        list.insert(list.end(), run.count, run.block);
      }
    }
  }
  return list;
}

/// Runs of equal neighbours.
static llvm::SmallVector<StackRun, 2> runsOf(llvm::ArrayRef<StringRef> layers) {
  llvm::SmallVector<StackRun, 2> runs;
  for (StringRef layer : layers) {
    if (!runs.empty() && runs.back().block == layer) {
      ++runs.back().count;
    } else {
      runs.push_back({layer, 1});
    }
  }
  return runs;
}

llvm::SmallVector<StackGroup, 2> Stack::fold(llvm::ArrayRef<StringRef> layers) {
  // The period that covers most layers from the front with at least two repeats
  // and more than one run; the shortest such period wins.
  constexpr size_t maxPeriod = 256;
  size_t bestPeriod = 0, bestCount = 0;
  bool differs = false; // two layers of the period
  for (size_t period = 2; period <= std::min(layers.size() / 2, maxPeriod) &&
                          bestPeriod * bestCount < layers.size();
       ++period) {
    differs |= layers[period - 1] != layers[0];
    size_t count = 1;
    while (differs && (count + 1) * period <= layers.size() &&
           layers.slice(count * period, period) == layers.take_front(period)) {
      ++count;
    }
    if (count >= 2 && count * period > bestCount * bestPeriod) {
      bestPeriod = period;
      bestCount = count;
    }
  }
  llvm::SmallVector<StackGroup, 2> groups;
  if (bestCount) {
    groups.push_back(
        {runsOf(layers.take_front(bestPeriod)), int64_t(bestCount)});
    layers = layers.drop_front(bestPeriod * bestCount);
  }
  if (!layers.empty()) {
    groups.push_back({runsOf(layers), 1});
  }
  return groups;
}

//===----------------------------------------------------------------------===//
// Module
//===----------------------------------------------------------------------===//

const TypeData *Module::TypeKey::getEmptyKey() {
  return llvm::DenseMapInfo<const TypeData *>::getEmptyKey();
}
const TypeData *Module::TypeKey::getTombstoneKey() {
  return llvm::DenseMapInfo<const TypeData *>::getTombstoneKey();
}
unsigned Module::TypeKey::getHashValue(const TypeData *data) {
  return hash_value(*data);
}
bool Module::TypeKey::isEqual(const TypeData *lhs, const TypeData *rhs) {
  if (lhs == rhs) {
    return true;
  }
  auto special = [](const TypeData *data) {
    return data == getEmptyKey() || data == getTombstoneKey();
  };
  return !special(lhs) && !special(rhs) && *lhs == *rhs;
}

Type Module::type(const TypeData &data) {
  auto it = typeSet.find(&data);
  if (it != typeSet.end()) {
    return Type(*it);
  }
  types.push_back(data);
  for (Dim &dim : types.back().dims) {
    for (Segment &segment : dim.segments) {
      segment.name = segment.name.empty() ? StringRef() : intern(segment.name);
    }
  }
  typeSet.insert(&types.back());
  return Type(&types.back());
}

Value *Module::makeValue(StringRef name, Type type, Location loc) {
  values.push_back({intern(name), type, nullptr, 0, loc});
  return &values.back();
}

Operation *Module::makeOp(OpKind kind, Location loc) {
  auto *op = new Operation(kind);
  op->loc = loc;
  return op;
}

Param *Module::makeParam(StringRef name, Type type, StringRef init,
                         Location loc) {
  params.push_back({intern(name), type, intern(init), loc});
  return &params.back();
}

Stack *Module::makeStack(StringRef name, Location loc) {
  stacks.push_back({intern(name), loc, {}});
  return &stacks.back();
}

Value *Module::addResult(Operation *op, StringRef name, Type type) {
  Value *value = makeValue(name, type, op->loc);
  value->owner = op;
  value->index = op->results.size();
  op->results.push_back(value);
  return value;
}

void Module::addParam(Param *param) {
  members.push_back({param, nullptr});
  paramIndex.try_emplace(param->name, param);
}

void Module::addStack(Stack *stack) { members.push_back({nullptr, stack}); }

Param *Module::findParam(StringRef name) { return paramIndex.lookup(name); }

Stack *Module::findStack(StringRef name) {
  for (const Member &member : members) {
    if (member.stack && member.stack->name == name) {
      return member.stack;
    }
  }
  return nullptr;
}

BlockTemplate *Module::findBlock(StringRef name) {
  for (const auto &block : blocks) {
    if (block->name == name) {
      return block.get();
    }
  }
  return nullptr;
}

Function *Module::findFunction(StringRef name) {
  for (const auto &function : functions) {
    if (function->name == name) {
      return function.get();
    }
  }
  return nullptr;
}

const DimDecl *Module::findDim(StringRef name) const {
  for (const DimDecl &dim : dims) {
    if (dim.name == name) {
      return &dim;
    }
  }
  return nullptr;
}

Dim Module::namedDim(StringRef name) const {
  const DimDecl *decl = findDim(name);
  return Dim(decl->name, {decl->size});
}

Type Module::dual(Type type) {
  TypeData data = *type;
  std::swap(data.repl, data.partial);
  data.store.reset();
  return this->type(data);
}

static AxisSet namedAxes(const Mesh &mesh, StringRef name) {
  std::optional<AxisList> axes = mesh.lookup(name);
  return axes ? AxisSet(*axes) : AxisSet();
}

AxisSet Module::contextAxes() const { return namedAxes(mesh, "cp"); }

AxisSet Module::tensorAxes() const { return namedAxes(mesh, "tp"); }

AxisSet Module::axesInForce() const {
  switch (stage) {
  case Stage::Spec:
    return AxisSet();
  case Stage::Annotated:
    return mesh.all() - contextAxes() - tensorAxes();
  case Stage::CP:
    return mesh.all() - tensorAxes();
  default:
    return mesh.all();
  }
}

Type Module::scalar(DType dtype) {
  TypeData data;
  data.dtype = dtype;
  return type(data);
}
