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

bool StepBuilder::expandBackward() {
  Operation *ones = append(OpKind::Ones, loss->loc);
  valueGradients[loss] = module.addResult(
      ones, uniqueName(("d." + loss->name).str()), module.dual(loss->type));
  for (Operation *forward : llvm::reverse(forwardOps)) {
    if (!appendAdjoint(*forward)) {
      return false;
    }
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
  if (!row.hasBackwardOp()) {
    return diag.error(forward.loc) << "pass 'expand-step': '" << row.spelling
                                   << "' has no adjoint on one rank";
  }

  Operation *adjoint = append(forward.kind, forward.loc);
  adjoint->backward = true;
  adjoint->attrs = forward.attrs;
  adjoint->axes = forward.axes;
  adjoint->dim = forward.dim;
  adjoint->toDim = forward.toDim;
  for (auto [index, operand] : llvm::enumerate(forward.operands)) {
    adjoint->operands.push_back(operand);
    adjoint->operands.back().typeOnly = !row.needsValue(index);
  }
  for (unsigned index : row.savedResults()) {
    if (!forward.results[index]) {
      return diag.error(forward.loc)
             << "pass 'expand-step': the adjoint of '" << row.spelling
             << "' reads result " << index << ", which is dropped here";
    }
    adjoint->operands.push_back({forward.results[index]});
  }
  llvm::append_range(adjoint->operands, cotangents);

  // Gradients of one value read twice by this operation: only the first goes on
  // from the running gradient, the others are added after.
  llvm::SmallVector<std::pair<const Operand *, Value *>, 1> toAdd;
  llvm::SmallPtrSet<void *, 4> seen;
  bool anyAcc = false;
  for (unsigned index : diffOperands) {
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
    Operation *add = append(OpKind::Add, forward.loc);
    Value *&running = runningGradient(*operand);
    add->operands.push_back({running});
    add->operands.push_back({gradient});
    running = module.addResult(add, uniqueName(gradientName(*operand)),
                               gradient->type);
  }
  return true;
}
