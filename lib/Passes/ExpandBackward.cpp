//===- ExpandBackward.cpp - Adjoints in reverse order ---------------------===//
//
// The walk that makes the backward half. A value's running gradient enters the
// next adjoint of one of its readers through acc, so that a sum has the order
// of the program text and of nothing else.
//
//===----------------------------------------------------------------------===//

#include "StepBuilder.h"
#include "hp/IR/Text.h"
#include "hp/Support/Debug.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace hp;

/// Whether a gradient of `operand` is of use.
bool StepBuilder::isTrained(const Operand &operand) const {
  return operand.param || (operand.value && trained.contains(operand.value));
}

void StepBuilder::markTrained(const Operation &forward) {
  for (unsigned index : forward.info().diffOperands(forward.operands.size())) {
    if (isTrained(forward.operands[index])) {
      trained.insert(forward.results.begin(), forward.results.end());
      return;
    }
  }
}

/// The loss over all ranks, which is returned, and the gradient of each rank's
/// part of it, with which the backward half begins.
void StepBuilder::appendLossGradient() {
  lossOfAll = loss;
  if (!loss->type->partial.empty()) {
    Operation *sum = append(OpKind::AllReduce, loss->loc);
    sum->axes = loss->type->partial.list();
    sum->operands.push_back({loss});
    lossOfAll = module.addResult(sum, uniqueName((loss->name + ".all").str()),
                                 module.scalar(loss->type.dtype()));
  }
  Operation *ones = append(OpKind::Ones, loss->loc);
  valueGradients[loss] = module.addResult(
      ones, uniqueName(("d." + loss->name).str()), module.dual(loss->type));
}

bool StepBuilder::expandBackward() {
  appendLossGradient();
  scheduleReductions();
  for (unsigned index = forwardOps.size(); index-- > 0;) {
    Operation &forward = *forwardOps[index];
    if (forward.is(OpKind::FsdpReshard)) {
      reachReshard(forward);
    } else if (forward.is(OpKind::FsdpUnshard)) {
      reachUnshard(forward);
    } else if (!appendAdjoint(forward)) {
      return false;
    }
    appendReductions(index);
  }
  bool complete = true;
  for (Param *param : parameters) {
    if (!paramGradients.contains(param)) {
      complete =
          diag.error(param->loc)
          << "pass 'expand-step': the loss does not depend on parameter '@"
          << param->name << "', it would never be trained";
    }
  }
  return complete;
}

/// `d.x` for a value, `g.p` for a parameter.
static std::string gradientName(const Operand &operand) {
  return operand.param ? ("g." + operand.param->name).str()
                       : ("d." + operand.value->name).str();
}

/// What a gradient belongs to. The same parameter read through two bundles is
/// one.
static void *gradientKey(const Operand &operand) {
  return operand.param ? (void *)operand.param : operand.value;
}

Value *&StepBuilder::runningGradient(const Operand &operand) {
  return operand.param ? paramGradients[operand.param]
                       : valueGradients[operand.value];
}

/// What an operation of the backward half names where the forward one read
/// `operand`: a value computed again, a bundle gathered again.
Operand StepBuilder::readInBackward(Operand operand, bool needsValue) {
  operand.typeOnly = !needsValue;
  if (operand.param && operand.value) {
    operand.value =
        needsValue ? openBundle(operand.value) : bundleForType(operand.value);
  } else if (operand.value && needsValue) {
    if (Value *copy = copies.lookup(operand.value)) {
      operand.value = copy;
    }
  }
  return operand;
}

/// Appends the adjoint of `forward` if a gradient reaches one of its results
/// and is wanted of one of its operands.
bool StepBuilder::appendAdjoint(Operation &forward) {
  const OpInfo &row = forward.info();
  llvm::SmallVector<Operand, 3> cotangents;
  bool reached = false;
  for (unsigned index : row.cotangentResults(forward.results.size())) {
    Value *gradient = valueGradients.lookup(forward.results[index]);
    cotangents.push_back({gradient});
    reached |= gradient != nullptr;
  }
  auto diffOperands = row.diffOperands(forward.operands.size());
  bool wanted = llvm::any_of(diffOperands, [&](unsigned index) {
    return isTrained(forward.operands[index]);
  });
  if (!reached || !wanted) {
    return true;
  }
  return row.hasBackwardOp()
             ? appendBackwardOp(forward, cotangents)
             : appendCollectiveAdjoint(forward, cotangents[0].value);
}

bool StepBuilder::appendBackwardOp(Operation &forward,
                                   llvm::ArrayRef<Operand> cotangents) {
  const OpInfo &row = forward.info();
  llvm::SmallVector<Value *, 8> values; // that it reads of the forward half
  for (auto [index, operand] : llvm::enumerate(forward.operands)) {
    if (row.needsValue(index) && operand.value && !operand.param) {
      values.push_back(operand.value);
    }
  }
  for (unsigned index : row.savedResults()) {
    if (!forward.results[index]) {
      return diag.error(forward.loc)
             << "pass 'expand-step': the adjoint of '" << row.spelling
             << "' reads result " << index << ", which is dropped here";
    }
    values.push_back(forward.results[index]);
  }
  recompute(values);

  Operation *adjoint = append(forward.kind, forward.loc);
  adjoint->backward = true;
  adjoint->attrs = forward.attrs;
  adjoint->axes = forward.axes;
  adjoint->dim = forward.dim;
  adjoint->toDim = forward.toDim;
  for (auto [index, operand] : llvm::enumerate(forward.operands)) {
    adjoint->operands.push_back(readInBackward(operand, row.needsValue(index)));
  }
  for (unsigned index : row.savedResults()) {
    adjoint->operands.push_back(
        readInBackward({forward.results[index]}, /*needsValue=*/true));
  }
  llvm::append_range(adjoint->operands, cotangents);

  // Gradients of one value read twice by this operation: only the first goes on
  // from the running gradient, the others are added after.
  llvm::SmallVector<std::pair<const Operand *, Value *>, 1> toAdd;
  llvm::SmallPtrSet<void *, 4> seen;
  bool anyAcc = false;
  for (unsigned index : row.diffOperands(forward.operands.size())) {
    const Operand &operand = forward.operands[index];
    if (!isTrained(operand)) {
      adjoint->results.push_back(nullptr);
      adjoint->acc.push_back({});
      continue;
    }
    Value *gradient =
        module.addResult(adjoint, uniqueName(gradientName(operand)),
                         module.dual(operand.type(module)));
    Value *&running = runningGradient(operand);
    if (!seen.insert(gradientKey(operand)).second) {
      adjoint->acc.push_back({});
      toAdd.push_back({&operand, gradient});
      continue;
    }
    adjoint->acc.push_back({running});
    anyAcc |= running != nullptr;
    running = gradient;
  }
  if (!anyAcc) {
    adjoint->acc.clear();
  }
  HP_DEBUG("expand-step", {
    debugStream() << "expand-step: ";
    print(*adjoint, debugStream());
    debugStream() << '\n';
  });
  for (auto [operand, gradient] : toAdd) {
    joinGradient(*operand, gradient, forward.loc);
  }
  return true;
}

/// Adds `gradient` to the running gradient of `operand`, where there is one.
void StepBuilder::joinGradient(const Operand &operand, Value *gradient,
                               Location loc) {
  Value *&running = runningGradient(operand);
  if (!running) {
    running = gradient;
    return;
  }
  Operation *add = append(OpKind::Add, loc);
  add->operands.push_back({running});
  add->operands.push_back({gradient});
  running =
      module.addResult(add, uniqueName(gradientName(operand)), gradient->type);
}

//===----------------------------------------------------------------------===//
// Collectives
//===----------------------------------------------------------------------===//

/// Makes `adjoint` the collective that takes a gradient back through `forward`.
///
///   copy_to                   all_reduce
///   all_reduce                copy_to
///   all_gather                reduce_scatter
///   all_gather to=invariant   shard
///   shard                     all_gather to=invariant
///   reduce_scatter            all_gather
///   all_to_all                all_to_all back
///
/// False if that is none of these.
static bool makeCollectiveAdjoint(const Operation &forward, Operation &adjoint,
                                  Module &module) {
  adjoint.axes = forward.axes;
  adjoint.dim = forward.dim;
  switch (forward.kind) {
  case OpKind::CopyTo:
    adjoint.kind = OpKind::AllReduce;
    return true;
  case OpKind::AllReduce:
    adjoint.kind = OpKind::CopyTo;
    return true;
  case OpKind::AllGather:
    adjoint.kind = forward.attrs.getText("to") == "invariant"
                       ? OpKind::Shard
                       : OpKind::ReduceScatter;
    return true;
  case OpKind::Shard:
    adjoint.kind = OpKind::AllGather;
    adjoint.attrs.set(module.intern("to"), {Word{"invariant"}});
    return true;
  case OpKind::ReduceScatter:
    adjoint.kind = OpKind::AllGather;
    return true;
  case OpKind::AllToAll:
    adjoint.dim = forward.toDim;
    adjoint.toDim = forward.dim;
    return true;
  default:
    return false;
  }
}

/// A collective has no place for a running gradient: it is added after.
bool StepBuilder::appendCollectiveAdjoint(Operation &forward,
                                          Value *cotangent) {
  Operation *adjoint = append(forward.kind, forward.loc);
  if (!makeCollectiveAdjoint(forward, *adjoint, module)) {
    return diag.error(forward.loc)
           << "pass 'expand-step': '" << forward.info().spelling
           << "' has no adjoint";
  }
  const Operand &operand = forward.operands[0];
  adjoint->operands.push_back({cotangent});
  Value *gradient = module.addResult(adjoint, uniqueName(gradientName(operand)),
                                     module.dual(operand.type(module)));
  joinGradient(operand, gradient, forward.loc);
  return true;
}
