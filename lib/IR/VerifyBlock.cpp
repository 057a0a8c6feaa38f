//===- VerifyBlock.cpp - Proofs 1, 2, 3 and 5 of one block ----------------===//
//
// One walk over the operations of a block: what they read is defined, of the
// right kind and still there; the types printed are the types inferred, which
// proves the states as well; and nothing partial leaves.
//
//===----------------------------------------------------------------------===//

#include "VerifierState.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

namespace {
class BlockProof {
public:
  BlockProof(VerifierState &state, const BlockPlace &place)
      : state(state), module(state.module), place(place) {}

  void run();

private:
  void defineArguments();
  void visit(Operation &op);

  //--- What is read -----------------------------------------------------------
  bool verifyOperands(const Operation &op);
  bool verifyOperand(const Operation &op, const Operand &operand,
                     unsigned position, bool isAcc);
  bool verifyParamOperand(const Operation &op, const Operand &operand,
                          unsigned position);
  bool mayBeNone(const Operation &op, unsigned position) const;
  bool mayBeParam(const Operation &op, unsigned position) const;
  void countRead(const Operation &op, const Param *param);

  //--- Storage and bundles ----------------------------------------------------
  void verifyFree(const Operation &op);
  void verifyUnshard(const Operation &op);
  void verifyReshard(const Operation &op);
  const Value *rootOf(const Operand &operand);

  //--- Types and results ------------------------------------------------------
  void verifyCallOrder(const Operation &op);
  void verifyTypes(const Operation &op);
  void verifyRotary(const Operation &op);
  void define(Value *value, const Operation *op, unsigned index);
  void defineResults(const Operation &op);

  //--- What leaves ------------------------------------------------------------
  void verifyReturn(const Operation &op);
  void verifyLeaving(const Operation &op, const Operand &operand);

  VerifierState &state;
  Module &module;
  const BlockPlace &place;
  llvm::DenseMap<const char *, const Value *> names;
  llvm::SmallVector<const Value *, 8> bundles;
  bool returned = false;
};
} // namespace

void BlockProof::run() {
  state.enter(place.body);
  defineArguments();
  for (Operation &op : place.body.ops) {
    visit(op);
  }
  if (!returned) {
    state.error(place.loc) << place.name << " does not end in 'return'";
  }
  for (const Value *bundle : bundles) {
    if (!state.facts(bundle).resharded) {
      state.error(bundle->loc) << "bundle '%" << bundle->name
                               << "' is never given back; fsdp.reshard it "
                                  "after its last use";
    }
  }
}

void BlockProof::visit(Operation &op) {
  if (returned) {
    state.error(op.loc) << "'" << op.spelling() << "' stands after 'return'";
    returned = true;
  }
  bool formed = verifyOperationForm(state, op);
  formed &= verifyOperands(op);
  if (op.is(OpKind::Call)) {
    verifyCallOrder(op);
  }
  if (op.is(OpKind::FsdpUnshard)) {
    verifyUnshard(op);
  }
  if (formed && op.is(OpKind::Free)) {
    verifyFree(op);
  } else if (formed && op.is(OpKind::FsdpReshard)) {
    verifyReshard(op);
  } else if (formed && op.is(OpKind::Return)) {
    verifyReturn(op);
  }
  if (formed && state.readsLegalTypes(op)) {
    verifyTypes(op);
  }
  returned |= op.is(OpKind::Return);
  defineResults(op);
}

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
    if (!operand.param && operand.value->isBundle() != readsBundle) {
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
    if (!rest.consume_front(prefix) || !rest.starts_with(".")) {
      state.error(op.loc).note(bundle->loc, "unsharded here")
          << "'@" << param->name << "' is not in bundle '%" << bundle->name
          << "' of '@" << prefix << ".*'";
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
// Storage and bundles
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
    facts.freed = &op;
  }
}

void BlockProof::verifyUnshard(const Operation &op) {
  std::string prefix = op.symbol.str() + ".";
  auto isIn = [&](const Param *param) {
    return param->name.starts_with(prefix);
  };
  bool any = place.owner && llvm::any_of(place.owner->params, isIn);
  for (const Member &member : module.members) {
    any |= member.param && isIn(member.param);
  }
  if (!any) {
    state.error(op.loc) << "no parameter is in bundle '@" << op.symbol << ".*'";
  }
}

void BlockProof::verifyReshard(const Operation &op) {
  for (const Operand &operand : op.operands) {
    if (!operand.value) {
      continue;
    }
    ValueFacts &facts = state.facts(operand.value);
    if (facts.resharded) {
      state.error(op.loc).note(facts.resharded->loc, "resharded first here")
          << "bundle '%" << operand.value->name << "' is resharded twice";
    }
    facts.resharded = &op;
  }
}

//===----------------------------------------------------------------------===//
// Types and results
//===----------------------------------------------------------------------===//

/// Functions call only what stands above them, so that there is no recursion.
void BlockProof::verifyCallOrder(const Operation &op) {
  for (const auto &function : module.functions) {
    if (function.get() == place.function) {
      break;
    }
    if (function->name == op.symbol) {
      return;
    }
  }
  state.error(op.loc) << "'call' of '@" << op.symbol << "' in " << place.name
                      << "; a function calls only what stands above it";
}

void BlockProof::verifyTypes(const Operation &op) {
  auto types = state.infer(op);
  if (!types) {
    llvm::handleAllErrors(
        types.takeError(),
        [&](const TypeFault &fault) {
          auto report = state.error(op.loc);
          report << fault.message;
          if (fault.operand >= 0 &&
              unsigned(fault.operand) < op.operands.size()) {
            state.note(report, op.operands[fault.operand]);
          }
        },
        [&](const llvm::ErrorInfoBase &other) {
          state.error(op.loc) << other.message();
        });
    return;
  }
  if (types->size() != op.results.size()) {
    state.error(op.loc) << "'" << op.spelling() << "' has " << types->size()
                        << (types->size() == 1 ? " result" : " results")
                        << ", not " << op.results.size();
    return;
  }
  for (unsigned i = 0; i < types->size(); ++i) {
    const Value *result = op.results[i];
    Type inferred = (*types)[i];
    if (!result || result->type == inferred) {
      continue;
    }
    if (result->type && inferred && result->type.matches(inferred)) {
      continue;
    }
    auto text = [&](Type type) {
      return type ? str(type, module) : std::string("a bundle");
    };
    auto report = state.error(op.loc);
    report << "'" << op.spelling() << "': result '%" << result->name << "' is "
           << text(inferred) << ", not " << text(result->type);
    for (const Operand &operand : op.operands) {
      state.note(report, operand);
    }
  }
  if (op.kind == OpKind::Rope) {
    verifyRotary(op);
  }
}

/// rope turns channels in pairs, and only channels that are there.
void BlockProof::verifyRotary(const Operation &op) {
  int64_t rotary = op.attrs.getInt("rotary", 0);
  int64_t channels = state.typeOf(op.operands[0]).dims().back().size();
  if (rotary % 2 != 0 || rotary > channels) {
    state.error(op.loc) << "'" << op.spelling() << "': 'rotary' is " << rotary
                        << "; it must be even and at most the " << channels
                        << " channels of a head";
  }
}

void BlockProof::define(Value *value, const Operation *op, unsigned index) {
  std::string kind = op ? "result" : "argument";
  Location loc = op ? op->loc : value->loc;
  if (value->owner != op || value->index != index) {
    state.error(loc) << kind << " '%" << value->name
                     << "' does not belong where it stands";
  }
  auto [it, isNew] = names.try_emplace(value->name.data(), value);
  if (!isNew) {
    // A bundle's name is free again after its fsdp.reshard.
    bool reopened = value->isBundle() && it->second->isBundle() &&
                    state.facts(it->second).resharded;
    if (!reopened) {
      state.error(value->loc ? value->loc : loc)
              .note(it->second->loc, "first here")
          << "'%" << value->name << "' is defined twice in " << place.name;
    }
    it->second = value;
  }
  bool isBundle = op && op->is(OpKind::FsdpUnshard);
  if (value->isBundle() != isBundle) {
    state.error(loc) << kind << " '%" << value->name
                     << (isBundle ? "' has a type, but is a bundle"
                                  : "' has no type");
  }
  if (isBundle) {
    bundles.push_back(value);
  } else if (value->type) {
    state.checkType(value->type, value->loc ? value->loc : loc,
                    "'%" + value->name + "'");
  }
  const Value *root = op ? value : nullptr;
  if (const Operand *source = op ? op->sharesStorageWith(index) : nullptr) {
    root = rootOf(*source);
  }
  ValueFacts &facts = state.facts(value);
  facts.defined = true;
  facts.root = root;
}

void BlockProof::defineResults(const Operation &op) {
  for (unsigned i = 0; i < op.results.size(); ++i) {
    if (op.results[i]) {
      define(op.results[i], &op, i);
    } else if (op.is(OpKind::FsdpUnshard)) {
      state.error(op.loc) << "'fsdp.unshard' drops its bundle";
    }
  }
}

void BlockProof::defineArguments() {
  for (unsigned i = 0; i < place.body.arguments.size(); ++i) {
    Value *argument = place.body.arguments[i];
    if (!argument) {
      state.error(place.loc)
          << "argument " << i << " of " << place.name << " is missing";
      continue;
    }
    define(argument, nullptr, i);
    if (!argument->type) {
      continue;
    }
    if (argument->type->store) {
      state.error(argument->loc)
          << "argument '%" << argument->name
          << "' is stored in pieces; only parameters and their reduced "
             "gradients are";
    }
    if (!argument->type->partial.empty()) {
      state.error(argument->loc)
          << "argument '%" << argument->name << "' of " << place.name
          << " is partial; reduce it before it enters";
    }
  }
}

//===----------------------------------------------------------------------===//
// What leaves
//===----------------------------------------------------------------------===//

void BlockProof::verifyReturn(const Operation &op) {
  for (const Operand &operand : op.operands) {
    verifyLeaving(op, operand);
  }
  if (!place.owner) {
    return;
  }
  if (op.operands.size() != 1 || place.body.arguments.empty()) {
    state.error(op.loc) << place.name << " returns " << op.operands.size()
                        << " values; a layer takes the value that goes through "
                           "the stack first and returns it, and only it";
    return;
  }
  const Value *first = place.body.arguments[0];
  Type given = state.typeOf(op.operands[0]);
  if (first && first->type && given && !given.matches(first->type)) {
    auto report = state.error(op.loc);
    report << place.name << " returns " << str(given, module) << " but takes "
           << str(first->type, module)
           << "; layers in a stack hand on one type";
    report.note(first->loc, "'%" + first->name + "' is taken here");
  }
}

/// Nothing partial leaves, but for the loss: the sum is taken by who knows what
/// it is for.
void BlockProof::verifyLeaving(const Operation &op, const Operand &operand) {
  Type type = state.typeOf(operand);
  if (!type || type->partial.empty()) {
    return;
  }
  bool isLoss =
      place.function && type.rank() == 0 && isFloat(type.dtype()) &&
      (place.function->name == "train" || place.function->name == "step");
  if (isLoss) {
    return;
  }
  auto report = state.error(op.loc);
  report << "partial '%" << (operand.value ? operand.value->name : "")
         << "' leaves " << place.name
         << "; reduce it first with all_reduce or reduce_scatter";
  state.note(report, operand);
}

void hp::verifyBlock(VerifierState &state, const BlockPlace &place) {
  BlockProof(state, place).run();
}
