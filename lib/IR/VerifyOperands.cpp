//===- VerifyOperands.cpp - What an operation may read --------------------===//
//
// What is read is defined, of the right kind and still there: its storage not
// freed, its bundle not resharded.
//
//===----------------------------------------------------------------------===//

#include "BlockProof.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// What is read
//===----------------------------------------------------------------------===//

/// A cotangent or running gradient may be absent, and AdamW's coefficient.
bool BlockProof::mayBeNone(const Operation &op, unsigned position) const {
  if (op.backward) {
    return position >=
           op.numForwardOperands() + op.info().savedResults().size();
  }
  return op.kind == OpKind::AdamW && position == 2;
}

/// Parameters are read by the model and its adjoints, and updated by AdamW.
bool BlockProof::mayBeParam(const Operation &op, unsigned position) const {
  if (op.backward) {
    return position < op.numForwardOperands();
  }
  OpCategory category = op.info().category;
  return category == OpCategory::Local || category == OpCategory::View ||
         category == OpCategory::Collective ||
         (op.kind == OpKind::AdamW && position == 0);
}

bool BlockProof::verifyOperands(const Operation &op) {
  bool ok = true;
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    ok &= verifyOperand(op, op.operands[i], i, /*isAcc=*/false);
  }
  for (unsigned i = 0; i < op.acc.size(); ++i) {
    ok &= verifyOperand(op, op.acc[i], i, /*isAcc=*/true);
  }
  return ok;
}

/// `operand 2` or `running gradient 0`.
static std::string positionName(unsigned position, bool isAcc) {
  return (isAcc ? "running gradient " : "operand ") + std::to_string(position);
}

bool BlockProof::verifyOperand(const Operation &op, const Operand &operand,
                               unsigned position, bool isAcc) {
  std::string where;
  if (operand.isNone()) {
    if (isAcc || mayBeNone(op, position)) {
      return true;
    }
    state.error(op.loc) << "'" << op.spelling()
                        << "': " << positionName(position, isAcc)
                        << " is '_'; only a cotangent or a running gradient "
                           "can be absent";
    return false;
  }
  if (operand.typeOnly && (!op.backward || isAcc)) {
    state.error(op.loc) << "'" << op.spelling()
                        << "': " << positionName(position, isAcc)
                        << " is type(..), but its value is read; only a "
                           "backward operation may read a type alone";
    return false;
  }
  if (operand.value) {
    const ValueFacts &facts = state.facts(operand.value);
    if (!facts.defined) {
      state.error(op.loc).note(operand.value->loc, "defined here")
          << "'" << op.spelling() << "' reads '%" << operand.value->name
          << "', which is not defined before it in " << place.name;
      return false;
    }
    bool readsBundle = op.is(OpKind::FsdpReshard);
    if (!operand.param && operand.value->isBundle() != readsBundle &&
        !op.is(OpKind::Wait)) {
      state.error(op.loc).note(operand.value->loc, "defined here")
          << "'" << op.spelling() << "': '%" << operand.value->name
          << (readsBundle ? "' is a value, not a bundle of fsdp.unshard"
                          : "' is a bundle; name one of its parameters, as %" +
                                operand.value->name.str() + "@weight");
      return false;
    }
  }
  if (operand.param) {
    if (isAcc || !mayBeParam(op, position)) {
      state.error(op.loc) << "'" << op.spelling()
                          << "': " << positionName(position, isAcc)
                          << " must be a value, not parameter '@"
                          << operand.param->name << "'";
      return false;
    }
    return verifyParamOperand(op, operand, position);
  }
  verifyComplete(op, operand);
  const Value *root = operand.typeOnly ? nullptr : rootOf(operand);
  const Operation *freed = root ? state.facts(root).freed : nullptr;
  if (freed && !op.is(OpKind::Free)) {
    std::string shared = root == operand.value ? ""
                                               : ", which it shares with '%" +
                                                     root->name.str() + "',";
    state.error(op.loc).note(freed->loc, "freed here")
        << "'" << op.spelling() << "' reads '%" << operand.value->name
        << "' after its storage" << shared << " was freed";
    return false;
  }
  return true;
}

bool BlockProof::verifyParamOperand(const Operation &op, const Operand &operand,
                                    unsigned position) {
  const Param *param = operand.param;
  if (!state.isKnown(param) ||
      (state.facts(param).owner && state.facts(param).owner != place.owner)) {
    state.error(op.loc) << "'" << op.spelling() << "': '@" << param->name
                        << "' is no parameter of " << place.name
                        << " or of the module";
    return false;
  }
  if (!operand.typeOnly && !op.backward && op.kind != OpKind::AdamW) {
    countRead(op, param);
  }
  if (const Value *bundle = operand.value) {
    if (!bundle->isBundle()) {
      state.error(op.loc).note(bundle->loc, "defined here")
          << "'" << op.spelling() << "': '%" << bundle->name
          << "' is a value, not a bundle of fsdp.unshard";
      return false;
    }
    StringRef prefix = bundle->owner ? bundle->owner->symbol : StringRef();
    StringRef rest = param->name;
    bool isInside = prefix.empty()
                        ? state.facts(param).owner != nullptr
                        : rest.consume_front(prefix) && rest.starts_with(".");
    if (!isInside) {
      state.error(op.loc).note(bundle->loc, "unsharded here")
          << "'@" << param->name << "' is not in bundle '%" << bundle->name
          << "' of '@" << prefix << (prefix.empty() ? "*'" : ".*'");
      return false;
    }
    const Operation *resharded = state.facts(bundle).resharded;
    if (resharded && !operand.typeOnly) {
      state.error(op.loc).note(resharded->loc, "resharded here")
          << "'" << op.spelling() << "' reads '@" << param->name
          << "' after its bundle '%" << bundle->name
          << "' was resharded; unshard it again before";
      return false;
    }
    verifyComplete(op, operand);
    return true;
  }
  if (module.stage >= Stage::Plan && param->type && param->type->store &&
      !operand.typeOnly && op.kind != OpKind::AdamW) {
    state.error(op.loc).note(param->loc, "declared here")
        << "'" << op.spelling() << "': operand " << position << ", '@"
        << param->name
        << "', is stored in pieces; read it from a bundle of fsdp.unshard";
    return false;
  }
  return true;
}

void BlockProof::countRead(const Operation &op, const Param *param) {
  ParamFacts &facts = state.facts(param);
  ++facts.reads;
  facts.embeds |= op.kind == OpKind::Embedding;
  facts.projects |= op.kind == OpKind::Linear;
}

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

const Value *BlockProof::rootOf(const Operand &operand) {
  return operand.param || !operand.value ? nullptr
                                         : state.facts(operand.value).root;
}

void BlockProof::verifyFree(const Operation &op) {
  if (op.operands.empty()) {
    state.error(op.loc) << "'free' names nothing to free";
  }
  for (const Operand &operand : op.operands) {
    if (operand.isNone()) {
      continue;
    }
    const Value *root = rootOf(operand);
    if (root != operand.value) {
      auto report = state.error(op.loc);
      report << "'free' of '%" << operand.value->name << "', which ";
      if (root) {
        report << "shares the storage of '%" << root->name
               << "'; free that one";
        report.note(root->loc, "'%" + root->name + "' is made here");
      } else {
        report << "the step does not own; it comes from outside";
      }
      continue;
    }
    ValueFacts &facts = state.facts(root);
    if (facts.freed) {
      state.error(op.loc).note(facts.freed->loc, "freed first here")
          << "'%" << root->name << "' is freed twice";
    }
    verifyNotSent(op, *root);
    facts.freed = &op;
  }
}
