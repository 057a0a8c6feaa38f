//===- TpInsert.cpp - The collectives of tensor parallelism ---------------===//

#include "hp/Passes/TpInsert.h"
#include "ParallelChoices.h"
#include "Retype.h"
#include "TensorParallel.h"
#include "hp/IR/Verifier.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

namespace {
class Inserter {
public:
  Inserter(Module &module, bool sequence, bool loss, DiagnosticEngine &diag)
      : module(module), tensor(module, sequence), loss(loss), diag(diag),
        tensorSet(tensor.axes()) {}

  bool run();
  unsigned gathered = 0, reduced = 0;

private:
  InFlightDiagnostic error(Location loc) {
    InFlightDiagnostic report = diag.error(loc);
    report << "pass 'tp-insert': ";
    return report;
  }
  bool placeArguments(Block &body);
  bool rewrite(Block &body);
  bool convertOperands(Operation &op, BlockNames &names);
  Value *convert(Operation &before, Value *value, TensorParallel::Fix fix,
                 BlockNames &names);
  bool rewriteLoss(Operation &op, BlockNames &names);
  bool reduceResults(Operation &op, BlockNames &names);
  Operation *collective(Operation *op, Value *value, StringRef dim);

  Module &module;
  TensorParallel tensor;
  bool loss;
  DiagnosticEngine &diag;
  AxisSet tensorSet;
  /// Values of the current body in another state, made once.
  llvm::DenseMap<Value *, Value *> converted;
};
} // namespace

bool Inserter::placeArguments(Block &body) {
  for (Value *argument : body.arguments) {
    Type type = tensor.residual(argument->type);
    std::string fault = checkType(*type, module.mesh);
    if (!fault.empty()) {
      const DimDecl *dim = module.findDim(tensor.sequenceDim());
      return error(dim && dim->loc ? dim->loc : argument->loc)
             << "with sequence parallelism '%" << argument->name
             << "' is cut over '" << module.mesh.str(tensorSet)
             << "' as well: " << fault;
    }
    argument->type = type;
  }
  return true;
}

Operation *Inserter::collective(Operation *op, Value *value, StringRef dim) {
  op->operands.push_back({value});
  op->axes = tensor.axes();
  op->dim = dim;
  return op;
}

Value *Inserter::convert(Operation &before, Value *value,
                         TensorParallel::Fix fix, BlockNames &names) {
  Value *&made = converted[value];
  if (made) {
    return made;
  }
  bool cut = !(value->type.shardedAxes() & tensorSet).empty();
  OpKind kind = fix == TensorParallel::Fix::Shard ? OpKind::Shard
                : cut                             ? OpKind::AllGather
                                                  : OpKind::CopyTo;
  StringRef dim = kind == OpKind::CopyTo ? StringRef() : tensor.sequenceDim();
  Operation *op = collective(insertBefore(before, kind), value, dim);
  ++gathered;
  std::string suffix = kind == OpKind::Shard ? ".own" : ".all";
  return made = module.addResult(op, names.unique(value->name.str() + suffix),
                                 value->type);
}

bool Inserter::convertOperands(Operation &op, BlockNames &names) {
  llvm::SmallVector<Type, 6> types;
  for (const Operand &operand : op.operands) {
    types.push_back(operand.type(module));
  }
  auto fixes = tensor.fixes(op, types);
  // A message along the sequence moves whole pieces of context parallelism.
  if (op.info().category == OpCategory::Collective && !op.dim.empty() &&
      op.dim == tensor.sequenceDim() && tensor.isResidual(types[0]) &&
      !(types[0].shardedAxes() & tensorSet).empty()) {
    fixes[0] = TensorParallel::Fix::Replicate;
  }
  for (unsigned i = 0; i < fixes.size(); ++i) {
    if (fixes[i] == TensorParallel::Fix::None) {
      continue;
    }
    Value *value = convert(op, op.operands[i].value, fixes[i], names);
    if (!retype(*value->owner, "tp-insert", diag)) {
      return false;
    }
    op.operands[i].value = value;
  }
  return true;
}

/// Cross entropy of logits whose vocabulary is cut.
bool Inserter::rewriteLoss(Operation &op, BlockNames &names) {
  Value *logits = op.operands[0].value;
  const Dim &vocabulary = logits->type.dims().back();
  if (!op.is(OpKind::CrossEntropy) ||
      (AxisSet(vocabulary.axes) & tensorSet).empty()) {
    return true;
  }
  StringRef dim = vocabulary.name();
  if (dim.empty()) {
    return error(op.loc) << "the vocabulary of '%" << logits->name
                         << "' is cut and has no name to call it by; label the "
                            "dim of the head's weight";
  }
  bool declared = llvm::any_of(declaredCuts(module, "loss_parallel"),
                               [&](const DeclaredCut &cut) {
                                 return cut.dim == dim && cut.axis == "tp";
                               });
  if (loss && (declared || module.sharding.empty())) {
    op.kind = OpKind::CrossEntropyVp;
    op.axes = tensor.axes();
    op.dim = dim;
    module.addResult(&op, names.unique("lse"), logits->type);
    return true;
  }
  Operation *gather =
      collective(insertBefore(op, OpKind::AllGather), logits, dim);
  gather->attrs.set(module.intern("to"), {Word{"invariant"}});
  ++gathered;
  op.operands[0].value = module.addResult(
      gather, names.unique((logits->name + ".all").str()), logits->type);
  return retype(*gather, "tp-insert", diag);
}

/// A result with a sum over tp pending becomes residual.
bool Inserter::reduceResults(Operation &op, BlockNames &names) {
  if (op.results.size() != 1 || !op.results[0]) {
    return true;
  }
  Value *value = op.results[0];
  AxisSet pending = value->type->partial & tensorSet;
  // Scalars of tokens cut by sequence parallelism are summed with the loss.
  if (pending.empty() || value->type.rank() == 0) {
    return true;
  }
  bool scatter = tensor.sequenceParallel() &&
                 value->type.findDim(tensor.sequenceDim()) >= 0;
  Operation *sum = collective(
      insertAfter(op, scatter ? OpKind::ReduceScatter : OpKind::AllReduce),
      value, scatter ? tensor.sequenceDim() : StringRef());
  sum->axes = pending == tensorSet ? tensor.axes() : pending.list();
  ++reduced;
  Value *total = module.addResult(
      sum, names.unique((value->name + ".sum").str()), value->type);
  replaceUsesAfter(*sum, value, total);
  return true;
}

bool Inserter::rewrite(Block &body) {
  BlockNames names(body);
  converted.clear();
  for (Operation &op : body.ops) {
    if (op.is(OpKind::Return)) {
      continue;
    }
    if (!convertOperands(op, names) || !rewriteLoss(op, names)) {
      return false;
    }
    if (!retype(op, "tp-insert", diag)) {
      return false;
    }
    bool isSum = op.is(OpKind::AllReduce) || op.is(OpKind::ReduceScatter);
    if (!isSum && !reduceResults(op, names)) {
      return false;
    }
  }
  return true;
}

bool Inserter::run() {
  module.stage = Stage::TP;
  if (tensor.axes().empty()) {
    return true;
  }
  for (Block *body : allBodies(module)) {
    if (!placeArguments(*body)) {
      return false;
    }
  }
  for (Block *body : allBodies(module)) {
    if (!rewrite(*body)) {
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class TpInsert : public Pass {
public:
  StringRef name() const override { return "tp-insert"; }
  StringRef summary() const override {
    return "write the collectives of tensor, sequence and loss parallelism";
  }
  StringRef needs() const override { return "stage cp"; }
  Stage produces() const override { return Stage::TP; }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"sequence-parallel",
         "auto",
         "cut residual values over tp along the sequence; as shard-annotate "
         "was "
         "told",
         {"auto", "true", "false"}},
        {"loss-parallel",
         "auto",
         "cross entropy on a cut vocabulary, without gathering logits",
         {"auto", "true", "false"}}};
    return list;
  }

  std::string refusal(Module &module) const override {
    return stageRefusal(module, Stage::CP);
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    auto flag = [&](StringRef name, StringRef key) {
      return chosen(*this, name, module, key, "true") == "true";
    };
    Inserter inserter(module, flag("sequence-parallel", "sequence_parallel"),
                      flag("loss-parallel", "loss_parallel"), diag);
    if (!inserter.run()) {
      return false;
    }
    count("gathered", "values replicated or gathered for cut weights",
          inserter.gathered);
    count("reduced", "partial results summed", inserter.reduced);
    return true;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeTpInsert() {
  return std::make_unique<TpInsert>();
}
