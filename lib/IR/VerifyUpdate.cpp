//===- VerifyUpdate.cpp - Proof 8: each parameter once --------------------===//
//
// After the last adjoint: the gradient of a parameter is reduced once over the
// axes it is replicated on, counted once in the norm, and used for one update;
// and norm and update see the same, final gradient.
//
//===----------------------------------------------------------------------===//

#include "GradientProof.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;

/// Reports, and gives false, if `before` shows that `op` is not the first of
/// its kind for `param`.
static bool expectFirst(VerifierState &state, const Operation &op,
                        const Operation *before, const Param *param,
                        StringRef what) {
  if (!before) {
    return true;
  }
  state.error(op.loc).note(before->loc, "first here")
      << "'@" << param->name << "' is " << what << " twice";
  return false;
}

void GradientProof::visitReduceGrad(const Operation &op) {
  Param *param = module.findParam(op.symbol);
  Target target{nullptr, param};
  for (const Operand &operand : op.operands) {
    const Gradient *gradient = useGradient(op, operand, "operand");
    if (gradient && param && gradient->target != target) {
      state.error(op.loc).note(gradient->maker->loc, "made here")
          << "'reduce_grad' of '@" << param->name << "' takes '%"
          << operand.value->name << "', a gradient of "
          << describe(gradient->target);
    }
  }
  if (param) {
    ParamFacts &facts = state.facts(param);
    expectFirst(state, op, facts.reduced, param, "reduced");
    facts.reduced = &op;
  }
  if (!op.results.empty() && op.results[0]) {
    makeGradient(op.results[0], target, op);
  }
}

void GradientProof::makeNormTerm(const Value *value) {
  if (value) {
    state.facts(value).normTerm = normTerms.size();
    normTerms.push_back({value});
  }
}

/// Reads a gradient without using it up.
void GradientProof::visitSumSquares(const Operation &op) {
  for (const Operand &operand : op.operands) {
    const Param *param = nullptr;
    if (isGradient(operand)) {
      param = gradients[state.facts(operand.value).gradient].target.param;
    }
    if (!param) {
      auto report = state.error(op.loc);
      report << "'sum_squares' counts '" << str(operand)
             << "', which is not the gradient of a parameter";
      state.note(report, operand);
      continue;
    }
    ParamFacts &facts = state.facts(param);
    expectFirst(state, op, facts.counted, param, "counted in the norm");
    facts.counted = &op;
    counted[param] = operand.value;
  }
  if (!op.results.empty()) {
    makeNormTerm(op.results[0]);
  }
}

/// sum, all_reduce and grad_norm of what the norm is made of. False if `op` has
/// nothing to do with it.
bool GradientProof::visitNorm(const Operation &op) {
  auto isTerm = [&](const Operand &operand) {
    return operand.value && !operand.param &&
           state.facts(operand.value).normTerm >= 0;
  };
  bool sums = op.kind == OpKind::Sum || op.kind == OpKind::AllReduce;
  if (op.kind == OpKind::GradNorm) {
    norm = &op;
  } else if (!sums || llvm::none_of(op.operands, isTerm)) {
    return op.info().category == OpCategory::Step;
  }
  for (const Operand &operand : op.operands) {
    if (!isTerm(operand)) {
      auto report = state.error(op.loc);
      report << "'" << op.spelling() << "': '" << str(operand)
             << "' is no sum of squares of gradients";
      state.note(report, operand);
      continue;
    }
    NormTerm &term = normTerms[state.facts(operand.value).normTerm];
    if (++term.uses == 2) {
      state.error(op.loc).note(term.value->loc, "made here")
          << "'%" << term.value->name << "' is counted in the norm twice";
    }
  }
  if (sums && !op.results.empty()) {
    makeNormTerm(op.results[0]);
  }
  return true;
}

void GradientProof::visitAdamW(const Operation &op) {
  if (op.operands.size() < 2 || !op.operands[0].param) {
    return; // the types said so
  }
  Param *param = op.operands[0].param;
  const Gradient *gradient = useGradient(op, op.operands[1], "the gradient");
  if (gradient && gradient->target != Target{nullptr, param}) {
    state.error(op.loc).note(gradient->maker->loc, "made here")
        << "'@" << param->name << "' is updated by '%" << gradient->value->name
        << "', a gradient of " << describe(gradient->target);
  }
  ParamFacts &facts = state.facts(param);
  expectFirst(state, op, facts.updated, param, "updated");
  facts.updated = &op;
  const Value *inNorm = counted.lookup(param);
  if (gradient && inNorm && inNorm != gradient->value) {
    state.error(op.loc).note(facts.counted->loc, "counted here")
        << "'@" << param->name << "' is updated by '%" << gradient->value->name
        << "', but the norm counts '%" << inNorm->name << "'";
  }
}

//===----------------------------------------------------------------------===//
// At the end
//===----------------------------------------------------------------------===//

void GradientProof::finishParameters() {
  for (const Member &member : module.members) {
    if (!member.param || !member.param->type) {
      continue;
    }
    const Param &param = *member.param;
    const ParamFacts &facts = state.facts(&param);
    if (!facts.reduced && !param.type->repl.empty()) {
      state.error(param.loc) << "the gradient of '@" << param.name
                             << "' is never reduced; it must be summed over '"
                             << module.mesh.str(param.type->repl)
                             << "', where the parameter is replicated";
    }
    if (norm && !facts.counted) {
      state.error(param.loc).note(norm->loc, "the norm is here")
          << "the norm leaves out '@" << param.name << "'";
    }
    if (!facts.updated) {
      state.error(param.loc) << "'@" << param.name << "' is never updated";
    }
  }
}

void GradientProof::finish() {
  for (const Gradient &gradient : gradients) {
    if (gradient.uses > 0) {
      continue;
    }
    auto report = state.error(gradient.value->loc);
    report << "gradient '%" << gradient.value->name << "' of "
           << describe(gradient.target)
           << " is never used; a gradient is used exactly once, or a path to "
              "the loss is lost";
    if (gradient.leftOutBy) {
      report.note(gradient.leftOutBy->loc,
                  "'%" + gradient.leftOutBy->name +
                      "', another gradient of it, leaves this one out; name "
                      "it in acc[..] there");
    }
  }
  for (const NormTerm &term : normTerms) {
    if (term.uses == 0) {
      state.error(term.value->loc)
          << "'%" << term.value->name << "' is not counted in the norm";
    }
  }
  bool trains = ones || llvm::any_of(place.body.ops, [](const Operation &op) {
                  return op.is(OpKind::AdamW);
                });
  if (trains) {
    finishParameters();
  }
}
