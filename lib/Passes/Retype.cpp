//===- Retype.cpp - Types after an edit -----------------------------------===//

#include "Retype.h"
#include "hp/IR/InferTypes.h"

using namespace hp;
using llvm::StringRef;

std::vector<Block *> hp::allBodies(Module &module) {
  std::vector<Block *> bodies;
  for (const auto &block : module.blocks) {
    bodies.push_back(block->body.get());
  }
  for (const auto &function : module.functions) {
    bodies.push_back(function->body.get());
  }
  return bodies;
}

bool hp::retype(Operation &op, StringRef pass, DiagnosticEngine &diag) {
  auto types = inferTypes(op.parent->module, op);
  if (!types) {
    return diag.error(op.loc)
           << "pass '" << pass << "': " << llvm::toString(types.takeError());
  }
  for (auto [value, type] : llvm::zip(op.results, *types)) {
    if (value) {
      value->type = type;
    }
  }
  return true;
}

Type hp::withCut(Module &module, Type type, StringRef dim,
                 llvm::ArrayRef<AxisId> axes) {
  TypeData data = *type;
  bool changed = false;
  for (Dim &candidate : data.dims) {
    if (candidate.name() == dim && !axes.empty()) {
      llvm::append_range(candidate.axes, axes);
      changed = true;
    }
  }
  return changed ? module.type(data) : type;
}

static Operation *make(Operation &beside, OpKind kind) {
  Operation *op = beside.parent->module.makeOp(kind, beside.loc);
  op->parent = beside.parent;
  return op;
}

Operation *hp::insertBefore(Operation &before, OpKind kind) {
  Operation *op = make(before, kind);
  before.parent->ops.insert(before.getIterator(), op);
  return op;
}

Operation *hp::insertAfter(Operation &after, OpKind kind) {
  Operation *op = make(after, kind);
  after.parent->ops.insertAfter(after.getIterator(), op);
  return op;
}

BlockNames::BlockNames(Block &block) : module(block.module) {
  for (const Value *argument : block.arguments) {
    taken.insert(argument->name);
  }
  for (const Operation &op : block.ops) {
    for (const Value *result : op.results) {
      if (result) {
        taken.insert(result->name);
      }
    }
  }
}

std::string BlockNames::unique(StringRef base) {
  std::string name = base.str();
  for (unsigned i = 2; !taken.insert(module.intern(name)).second; ++i) {
    name = (base + "." + llvm::Twine(i)).str();
  }
  return name;
}

void hp::replaceUsesAfter(Operation &after, Value *from, Value *to) {
  for (auto it = std::next(after.getIterator()), end = after.parent->ops.end();
       it != end; ++it) {
    for (Operand &operand : it->operands) {
      if (operand.value == from) {
        operand.value = to;
      }
    }
  }
}
