//===- VerifyMessages.cpp - Proof 4: started early, waited for late -------===//
//
// A message that is started with async is complete after its wait, and until
// then nobody touches what it fills or is made of:
//
//   %L0 = fsdp.unshard @layers.0.* {async}      starts
//   ...                                         no use of %L0, no update of
//   wait %L0                                    @layers.0.*; complete
//
//   %s.w = reduce_grad %g.w {param=w, async}    starts
//   ...                                         no use of %s.w; %g.w stays
//   wait %s.w                                   complete
//
// Reductions that follow one another travel together, so that they are all
// started async or none, and waited for together.
//
//===----------------------------------------------------------------------===//

#include "BlockProof.h"
#include "hp/IR/Text.h"

using namespace hp;

/// Whether `value` is made by a message that is started and waited for.
static bool isStartedAsync(const Value &value) {
  const Operation *op = value.owner;
  return op && (op->is(OpKind::FsdpUnshard) || op->is(OpKind::ReduceGrad)) &&
         op->attrs.getFlag("async");
}

void BlockProof::visitMessages(const Operation &op) {
  if (op.is(OpKind::ReduceGrad)) {
    visitReduction(op);
    return;
  }
  runOpen &= op.is(OpKind::Free);
  if (op.is(OpKind::FsdpUnshard)) {
    startMessage(op);
  } else if (op.is(OpKind::Wait)) {
    verifyWait(op);
  } else if (op.is(OpKind::AdamW)) {
    verifyNotGathered(op);
  }
}

//===----------------------------------------------------------------------===//
// Starts
//===----------------------------------------------------------------------===//

void BlockProof::startMessage(const Operation &op) {
  if (!op.attrs.getFlag("async") || op.results.empty()) {
    return;
  }
  const Value *result = op.results[0];
  if (!result) {
    state.error(op.loc) << "'" << op.spelling()
                        << "' is async and drops its result, which must be "
                           "waited for";
    return;
  }
  state.facts(result).started = &op;
  underWay.push_back(result);
  for (const Operand &operand : op.operands) {
    if (const Value *root = rootOf(operand)) {
      state.facts(root).sentBy = &op;
    }
  }
}

/// The axes over which a reduction is cut: those of one run have the same.
static const AxisList *scatterOf(const Operation &op) {
  const Attribute *scatter = op.attrs.find("scatter");
  return scatter ? scatter->get<AxisList>() : nullptr;
}

void BlockProof::visitReduction(const Operation &op) {
  const Operation *first = runOpen ? runs.back().front() : nullptr;
  if (first) {
    const AxisList *own = scatterOf(op), *others = scatterOf(*first);
    first = own && others ? (*own == *others ? first : nullptr)
                          : (own == others ? first : nullptr);
  }
  if (!first) {
    runs.emplace_back();
  } else if (op.attrs.getFlag("async") != first->attrs.getFlag("async")) {
    state.error(op.loc).note(first->loc, "the run begins here")
        << "'reduce_grad' of '@" << op.symbol << "' travels with that of '@"
        << first->symbol << "'; both are async or neither";
  }
  runOpen = true;
  runOf[&op] = runs.size() - 1;
  runs.back().push_back(&op);
  startMessage(op);
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

void BlockProof::verifyWait(const Operation &op) {
  if (op.operands.empty()) {
    state.error(op.loc) << "'wait' names nothing to wait for";
  }
  llvm::SmallVector<unsigned, 2> waitedRuns;
  for (const Operand &operand : op.operands) {
    const Value *value = operand.value;
    if (!value || operand.param || !state.facts(value).defined) {
      continue; // said before
    }
    ValueFacts &facts = state.facts(value);
    if (!isStartedAsync(*value)) {
      state.error(op.loc).note(value->loc, "defined here")
          << "'wait' for '%" << value->name
          << "', which no message is under way to; only what fsdp.unshard or "
             "reduce_grad starts with async is waited for";
      continue;
    }
    if (facts.waited) {
      state.error(op.loc).note(facts.waited->loc, "waited for first here")
          << "'%" << value->name << "' is waited for twice";
      continue;
    }
    facts.started = nullptr;
    facts.waited = &op;
    llvm::erase(underWay, value);
    for (const Operand &sent : value->owner->operands) {
      if (const Value *root = rootOf(sent)) {
        state.facts(root).sentBy = nullptr;
      }
    }
    auto run = runOf.find(value->owner);
    if (run != runOf.end() && !llvm::is_contained(waitedRuns, run->second)) {
      waitedRuns.push_back(run->second);
    }
  }
  for (unsigned run : waitedRuns) {
    for (const Operation *member : runs[run]) {
      const Value *result =
          member->results.empty() ? nullptr : member->results[0];
      if (result && isStartedAsync(*result) &&
          state.facts(result).waited != &op) {
        state.error(op.loc).note(member->loc, "started here")
            << "'wait' leaves out '%" << result->name
            << "', which travels with what it waits for";
        break;
      }
    }
  }
}

/// That `operand` is not read, given back or freed while its message is under
/// way. Said once of each message.
void BlockProof::verifyComplete(const Operation &op, const Operand &operand) {
  if (!operand.value || operand.typeOnly || op.is(OpKind::Wait)) {
    return;
  }
  ValueFacts &facts = state.facts(operand.value);
  if (!facts.started) {
    return;
  }
  state.error(op.loc).note(facts.started->loc, "started here")
      << "'" << op.spelling() << "' takes '" << str(operand)
      << "' while its message is under way; wait for '%" << operand.value->name
      << "' before";
  facts.started = nullptr;
}

/// What a message is made of stays until its wait.
void BlockProof::verifyNotSent(const Operation &op, const Value &root) {
  ValueFacts &facts = state.facts(&root);
  if (!facts.sentBy) {
    return;
  }
  const Operation &sender = *facts.sentBy;
  std::string waitedFor =
      sender.results.empty() || !sender.results[0]
          ? ""
          : "; wait for '%" + sender.results[0]->name.str() + "' before";
  state.error(op.loc).note(sender.loc, "started here")
      << "'free' of '%" << root.name << "' while '" << sender.spelling()
      << "' of it is under way" << waitedFor;
  facts.sentBy = nullptr;
}

/// An update while the parameter is being gathered: some ranks would get the
/// old one.
void BlockProof::verifyNotGathered(const Operation &adamW) {
  const Param *param =
      adamW.operands.empty() ? nullptr : adamW.operands[0].param;
  for (const Value *value : underWay) {
    if (!param || !value->owner->is(OpKind::FsdpUnshard)) {
      continue;
    }
    llvm::StringRef name = param->name;
    if (name.consume_front(value->owner->symbol) && name.starts_with(".")) {
      state.error(adamW.loc).note(value->loc, "started here")
          << "'adamw' updates '@" << param->name << "' while bundle '%"
          << value->name << "' of it is under way";
      return;
    }
  }
}

void BlockProof::finishMessages() {
  for (const Value *value : underWay) {
    if (state.facts(value).started) { // else used before, and said then
      state.error(value->loc)
          << "'%" << value->name << "' is started async and never waited for";
    }
  }
}
