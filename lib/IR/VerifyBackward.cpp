//===- VerifyBackward.cpp - Proof 8: gradients ----------------------------===//
//
// A gradient is made once and used once. The walk knows of each what it is the
// gradient of, so that it can ask of each adjoint whether the forward operation
// is there, whether the cotangents are those of its results, and whether what
// it makes goes on to where the operand came from. With one use each, nothing
// that reaches the loss can be lost on the way back.
//
// Forward operations are numbered by what they compute: the same operation on
// the same values is the same value, so that a recomputed one stands for the
// first.
//
//===----------------------------------------------------------------------===//

#include "GradientProof.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

void hp::verifyBackward(VerifierState &state, const BlockPlace &place) {
  GradientProof(state, place).run();
}

void GradientProof::run() {
  for (const Operation &op : place.body.ops) {
    visit(op);
  }
  finish();
}

void GradientProof::visit(const Operation &op) {
  checkReadAfterUpdate(op);
  if (op.backward) {
    visitBackward(op);
    return;
  }
  switch (op.kind) {
  case OpKind::Free:
  case OpKind::FsdpUnshard:
  case OpKind::FsdpReshard:
  case OpKind::Wait:
    return;
  case OpKind::Ones:
    visitOnes(op);
    return;
  case OpKind::ReduceGrad:
    visitReduceGrad(op);
    return;
  case OpKind::SumSquares:
    visitSumSquares(op);
    return;
  case OpKind::AdamW:
    visitAdamW(op);
    return;
  default:
    break;
  }
  if (visitNorm(op)) {
    return;
  }
  if (!readsGradient(op)) {
    numberForward(op);
    return;
  }
  if (op.kind == OpKind::Add) {
    visitGradientSum(op);
  } else if (op.info().category == OpCategory::Collective) {
    visitCollective(op);
  } else {
    for (const Operand &operand : op.operands) {
      if (isGradient(operand)) {
        state.error(op.loc)
            << "gradient '%" << operand.value->name << "' enters '"
            << op.spelling()
            << "'; a gradient goes only into an adjoint, a collective, "
               "reduce_grad, sum_squares or adamw";
        useGradient(op, operand, "operand");
      }
    }
  }
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

GradientProof::Target GradientProof::targetOf(const Operand &operand) {
  if (operand.param) {
    return {nullptr, operand.param};
  }
  if (!operand.value) {
    return {};
  }
  const Value *canonical = state.facts(operand.value).canonical;
  return {canonical ? canonical : operand.value, nullptr};
}

std::string GradientProof::describe(const Target &target) const {
  return target.param   ? ("'@" + target.param->name + "'").str()
         : target.value ? ("'%" + target.value->name + "'").str()
                        : "the loss";
}

bool GradientProof::needsGradient(const Operand &operand) {
  return operand.param ||
         (operand.value && state.facts(operand.value).needsGradient);
}

/// The first forward operation of `op`'s kind that reads what its first
/// `numOperands` operands are; others alike follow by `nextAlike`. -1 if there
/// is none; `hash` then is where it would be found.
int GradientProof::findAlike(const Operation &op, unsigned numOperands,
                             uint64_t &hash) {
  llvm::SmallVector<const void *, 8> keys;
  for (const Operand &operand :
       llvm::ArrayRef<Operand>(op.operands).take_front(numOperands)) {
    keys.push_back(targetOf(operand).key());
  }
  hash = llvm::hash_combine(unsigned(op.kind),
                            llvm::hash_combine_range(keys.begin(), keys.end()));
  // Another operation may have the hash: look further. Two keys of the map are
  // never given out as hashes.
  for (hash >>= 2;; ++hash) {
    auto it = forwardIndex.find(hash);
    if (it == forwardIndex.end()) {
      return -1;
    }
    const Operation &other = *forwardOps[it->second].op;
    bool alike = other.kind == op.kind && other.operands.size() == numOperands;
    for (unsigned i = 0; alike && i < numOperands; ++i) {
      alike = targetOf(other.operands[i]).key() == keys[i];
    }
    if (alike) {
      return it->second;
    }
  }
}

static bool sameAttributes(const Operation &lhs, const Operation &rhs) {
  return lhs.attrs == rhs.attrs && lhs.axes == rhs.axes && lhs.dim == rhs.dim &&
         lhs.toDim == rhs.toDim;
}

void GradientProof::numberForward(const Operation &op) {
  bool needs = false;
  for (unsigned i : op.info().diffOperands(op.operands.size())) {
    needs |= i < op.operands.size() && needsGradient(op.operands[i]);
  }
  uint64_t hash = 0;
  int first = findAlike(op, op.operands.size(), hash), number = first;
  while (number >= 0 && !sameAttributes(op, *forwardOps[number].op)) {
    number = forwardOps[number].nextAlike;
  }
  if (number >= 0) {
    forwardOps[number].instances += ones == nullptr;
  } else {
    number = forwardOps.size();
    forwardOps.push_back({&op});
    if (first < 0) {
      forwardIndex[hash] = number;
    } else {
      forwardOps[number].nextAlike =
          std::exchange(forwardOps[first].nextAlike, number);
    }
  }
  const Operation &canonical = *forwardOps[number].op;
  for (unsigned i = 0; i < op.results.size(); ++i) {
    if (!op.results[i]) {
      continue;
    }
    ValueFacts &facts = state.facts(op.results[i]);
    facts.needsGradient = needs;
    facts.forwardOp = number;
    facts.canonical = i < canonical.results.size() && canonical.results[i]
                          ? canonical.results[i]
                          : op.results[i];
  }
}

/// The step reads parameters as they were before it.
void GradientProof::checkReadAfterUpdate(const Operation &op) {
  if (op.is(OpKind::AdamW)) {
    return;
  }
  for (const Operand &operand : op.operands) {
    const Operation *updated = operand.param && !operand.typeOnly
                                   ? state.facts(operand.param).updated
                                   : nullptr;
    if (updated) {
      state.error(op.loc).note(updated->loc, "updated here")
          << "'" << op.spelling() << "' reads '@" << operand.param->name
          << "' after its update";
    }
  }
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

void GradientProof::makeGradient(const Value *value, Target target,
                                 const Operation &op) {
  state.facts(value).gradient = gradients.size();
  if (target.key()) {
    auto [it, isNew] = running.try_emplace(target.key(), gradients.size());
    if (!isNew) {
      Gradient &before = gradients[it->second];
      if (before.uses == 0 && before.maker != &op) {
        before.leftOutBy = value;
      }
      it->second = gradients.size();
    }
  }
  gradients.push_back({value, target, &op});
}

GradientProof::Gradient *GradientProof::useGradient(const Operation &op,
                                                    const Operand &operand,
                                                    StringRef role) {
  if (!isGradient(operand)) {
    auto report = state.error(op.loc);
    report << "'" << op.spelling() << "': " << role << " '" << str(operand)
           << "' is no gradient";
    state.note(report, operand);
    return nullptr;
  }
  Gradient &gradient = gradients[state.facts(operand.value).gradient];
  if (++gradient.uses == 1) {
    gradient.firstUse = &op;
  } else {
    state.error(op.loc)
            .note(gradient.firstUse->loc, "used first here")
            .note(gradient.maker->loc, "made here")
        << "gradient '%" << operand.value->name << "' of "
        << describe(gradient.target) << " is used again by '" << op.spelling()
        << "'; a gradient is used exactly once";
  }
  return &gradient;
}

/// Where backward begins.
void GradientProof::visitOnes(const Operation &op) {
  if (ones) {
    state.error(op.loc).note(ones->loc, "the first is here")
        << "a second 'ones'; there is one loss, and one gradient of it";
  }
  ones = &op;
  for (const Value *result : op.results) {
    if (result) {
      makeGradient(result, {}, op);
    }
  }
}

//===----------------------------------------------------------------------===//
// Adjoints
//===----------------------------------------------------------------------===//

void GradientProof::checkTypeMarks(const Operation &op, unsigned numForward) {
  for (unsigned i = 0; i < numForward; ++i) {
    const Operand &operand = op.operands[i];
    bool needsValue = op.info().needsValue(i);
    if (operand.isNone() || operand.typeOnly != needsValue) {
      continue;
    }
    Operand plain = operand;
    plain.typeOnly = false;
    std::string name = str(plain);
    state.error(op.loc) << "'" << op.spelling() << "' reads "
                        << (needsValue ? "the value" : "only the type")
                        << " of operand " << i << "; write '"
                        << (needsValue ? name : "type(" + name + ")") << "'";
  }
  for (unsigned i = numForward; i < op.operands.size(); ++i) {
    if (op.operands[i].typeOnly) {
      state.error(op.loc) << "'" << op.spelling() << "' reads the value of "
                          << "operand " << i << ", not only its type";
    }
  }
}

/// The forward operation that `op` is the adjoint of; reports and gives null if
/// it is not there.
GradientProof::ForwardOp *GradientProof::matchForward(const Operation &op,
                                                      unsigned numForward) {
  uint64_t hash = 0;
  int first = findAlike(op, numForward, hash), number = first;
  while (number >= 0 && !sameAttributes(op, *forwardOps[number].op)) {
    number = forwardOps[number].nextAlike;
  }
  if (number >= 0) {
    return &forwardOps[number];
  }
  if (first >= 0) {
    state.error(op.loc).note(forwardOps[first].op->loc,
                             "the forward operation is here")
        << "'" << op.spelling() << "' differs from its forward operation in "
        << "attributes or axes";
    return nullptr;
  }
  auto report = state.error(op.loc);
  report << "no '" << op.info().spelling << "' above reads the operands of '"
         << op.spelling() << "'; an adjoint names those of its forward "
         << "operation, in order";
  for (unsigned i = 0; i < numForward; ++i) {
    state.note(report, op.operands[i]);
  }
  return nullptr;
}

void GradientProof::checkCotangents(const Operation &op, unsigned numForward,
                                    const ForwardOp *forward) {
  const OpInfo &info = op.info();
  auto saved = info.savedResults();
  unsigned firstCotangent = numForward + saved.size();
  auto resultOf = [&](unsigned index) -> const Value * {
    return forward && index < forward->op->results.size()
               ? forward->op->results[index]
               : nullptr;
  };
  for (unsigned i = 0; i < saved.size(); ++i) {
    unsigned position = numForward + i;
    const Value *result = resultOf(saved[i]);
    if (forward && position < op.operands.size() &&
        targetOf(op.operands[position]).value != result) {
      state.error(op.loc).note(forward->op->loc,
                               "the forward operation is here")
          << "'" << op.spelling() << "': operand " << position
          << " must be result " << saved[i] << " of the forward operation"
          << (result ? ", '%" + result->name.str() + "'" : ", dropped there");
    }
  }
  llvm::SmallVector<unsigned, 3> cotangents;
  if (op.operands.size() > firstCotangent) {
    cotangents = info.cotangentResults(op.operands.size() - firstCotangent);
  }
  for (unsigned i = 0; i < cotangents.size(); ++i) {
    if (firstCotangent + i >= op.operands.size()) {
      return; // the types said so
    }
    const Operand &operand = op.operands[firstCotangent + i];
    if (operand.isNone()) {
      continue;
    }
    const Gradient *gradient = useGradient(op, operand, "cotangent");
    const Value *result = resultOf(cotangents[i]);
    if (!forward || !gradient || !gradient->target.key() ||
        gradient->target.value == result) {
      continue;
    }
    auto report = state.error(op.loc);
    report << "'" << op.spelling() << "': cotangent '%" << operand.value->name
           << "' is the gradient of " << describe(gradient->target)
           << ", not of the forward result"
           << (result ? " '%" + result->name.str() + "'" : "");
    report.note(gradient->maker->loc, "made here");
    report.note(forward->op->loc, "the forward operation is here");
  }
}

void GradientProof::visitBackward(const Operation &op) {
  const OpInfo &info = op.info();
  unsigned numForward =
      std::min<unsigned>(op.numForwardOperands(), op.operands.size());
  checkTypeMarks(op, numForward);
  ForwardOp *forward = matchForward(op, numForward);
  if (forward && ++forward->numAdjoints > forward->instances) {
    state.error(op.loc)
            .note(forward->adjoint->loc, "the first one is here")
            .note(forward->op->loc, "the forward operation is here")
        << "'" << op.spelling()
        << "' is a second adjoint of one operation; its gradient would count "
           "twice";
  }
  if (forward) {
    forward->adjoint = &op;
  }
  checkCotangents(op, numForward, forward);

  auto positions = info.diffOperands(numForward);
  for (unsigned i = 0; i < op.results.size(); ++i) {
    const Operand *operand = i < positions.size() && positions[i] < numForward
                                 ? &op.operands[positions[i]]
                                 : nullptr;
    Target target = operand ? targetOf(*operand) : Target();
    if (i < op.acc.size() && !op.acc[i].isNone()) {
      Gradient *gradient = useGradient(op, op.acc[i], "running gradient");
      if (gradient && operand && gradient->target != target) {
        state.error(op.loc).note(gradient->maker->loc, "made here")
            << "'" << op.spelling() << "': running gradient '%"
            << gradient->value->name << "' is one of "
            << describe(gradient->target) << ", but joins the gradient of "
            << describe(target);
      }
    }
    if (op.results[i]) {
      makeGradient(op.results[i], target, op);
    } else if (operand && needsGradient(*operand)) {
      auto report = state.error(op.loc);
      report << "'" << op.spelling() << "' drops the gradient of "
             << describe(target) << ", which depends on parameters";
      state.note(report, *operand);
    }
  }
}

//===----------------------------------------------------------------------===//
// Collectives and sums of gradients
//===----------------------------------------------------------------------===//

/// Whether collective `op` on a gradient is the adjoint of `forward`;
/// `expected` says what would be.
static bool isAdjoint(const Operation &op, const Operation &forward,
                      std::string &expected, const Module &module) {
  auto isInvariant = [](const Operation &gather) {
    return gather.attrs.getText("to") == "invariant";
  };
  OpKind kind = OpKind::CopyTo;
  bool hasDim = true, toInvariant = false;
  StringRef dim = forward.dim, toDim;
  switch (forward.kind) {
  case OpKind::CopyTo:
    kind = OpKind::AllReduce;
    hasDim = false;
    break;
  case OpKind::AllReduce:
    kind = OpKind::CopyTo;
    hasDim = false;
    break;
  case OpKind::AllGather:
    kind = isInvariant(forward) ? OpKind::Shard : OpKind::ReduceScatter;
    break;
  case OpKind::ReduceScatter:
    kind = OpKind::AllGather;
    break;
  case OpKind::Shard:
    kind = OpKind::AllGather;
    toInvariant = true;
    break;
  case OpKind::AllToAll:
    kind = OpKind::AllToAll;
    dim = forward.toDim;
    toDim = forward.dim;
    break;
  default:
    return false;
  }
  llvm::raw_string_ostream os(expected);
  os << opInfo(kind).spelling << " {";
  module.mesh.printGroup(os, forward.axes);
  os << (hasDim ? ": " + dim.str() : "")
     << (toDim.empty() ? "" : "->" + toDim.str())
     << (toInvariant ? ", to=invariant" : "") << "}";
  return op.kind == kind && op.axes == forward.axes &&
         (!hasDim || (op.dim == dim && op.toDim == toDim)) &&
         (kind != OpKind::AllGather || isInvariant(op) == toInvariant);
}

/// A gradient that goes back through a collective.
void GradientProof::visitCollective(const Operation &op) {
  if (op.info().hasBackwardOp() || op.operands.size() != 1) {
    state.error(op.loc) << "a gradient enters '" << op.spelling()
                        << "', which is the adjoint of no collective";
    return;
  }
  Gradient *gradient = useGradient(op, op.operands[0], "operand");
  Target target = gradient->target, result;
  if (target.key()) {
    int number = target.value ? state.facts(target.value).forwardOp : -1;
    ForwardOp *forward = number >= 0 ? &forwardOps[number] : nullptr;
    std::string expected;
    if (!forward || forward->op->info().category != OpCategory::Collective ||
        forward->op->info().hasBackwardOp() || forward->op->operands.empty()) {
      auto report = state.error(op.loc);
      report << "'" << op.spelling() << "' of gradient '%"
             << op.operands[0].value->name << "', but " << describe(target)
             << " does not come from a collective";
      report.note(forward ? forward->op->loc : gradient->maker->loc,
                  forward ? "it is made here" : "the gradient is made here");
    } else {
      if (!isAdjoint(op, *forward->op, expected, module)) {
        state.error(op.loc).note(forward->op->loc,
                                 "the forward operation is here")
            << "'" << op.spelling() << "' is not the adjoint of '"
            << forward->op->spelling() << "'; that is '" << expected << "'";
      }
      if (++forward->numAdjoints > forward->instances) {
        state.error(op.loc).note(forward->op->loc,
                                 "the forward operation is here")
            << "'" << op.spelling() << "' is a second adjoint of one '"
            << forward->op->spelling() << "'";
      }
      result = targetOf(forward->op->operands[0]);
    }
  }
  if (!op.results.empty() && op.results[0]) {
    makeGradient(op.results[0], result, op);
  }
}

/// Two gradients of one value, from one operation that reads it twice.
void GradientProof::visitGradientSum(const Operation &op) {
  llvm::SmallVector<Target, 2> targets;
  for (const Operand &operand : op.operands) {
    if (const Gradient *gradient = useGradient(op, operand, "operand")) {
      targets.push_back(gradient->target);
    }
  }
  if (targets.size() == 2 && targets[0] != targets[1]) {
    state.error(op.loc) << "'" << op.spelling() << "' adds a gradient of "
                        << describe(targets[0]) << " to one of "
                        << describe(targets[1]);
  }
  if (!op.results.empty() && op.results[0]) {
    makeGradient(op.results[0], targets.empty() ? Target() : targets[0], op);
  }
}
