//===- VerifyBlock.cpp - Proofs 1, 2, 3 and 5 of one block ----------------===//
//
// One walk over the operations of a block: what they read is there (see
// VerifyOperands.cpp); the types printed are the types inferred, which proves
// the states as well; and nothing partial leaves.
//
//===----------------------------------------------------------------------===//

#include "BlockProof.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

bool BlockProof::run() {
  state.enter(place.body);
  defineArguments();
  bool holds = true;
  for (Operation &op : place.body.ops) {
    unsigned before = state.faults;
    visit(op);
    holds &= state.faults == before || op.info().category == OpCategory::Step;
  }
  if (!returned) {
    state.error(place.loc) << place.name << " does not end in 'return'";
  }
  finishMessages();
  for (const Value *bundle : bundles) {
    if (!state.facts(bundle).resharded) {
      state.error(bundle->loc) << "bundle '%" << bundle->name
                               << "' is never given back; fsdp.reshard it "
                                  "after its last use";
    }
  }
  return holds;
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
  visitMessages(op);
  if (formed && op.is(OpKind::Free)) {
    verifyFree(op);
  } else if (formed && op.is(OpKind::FsdpReshard)) {
    verifyReshard(op);
  } else if (formed && op.is(OpKind::Return)) {
    verifyReturn(op);
  }
  if (formed && state.readsLegalTypes(op) &&
      !(op.backward && !wrong.empty() &&
        llvm::is_contained(wrong, identity(op)))) {
    verifyTypes(op);
  }
  returned |= op.is(OpKind::Return);
  defineResults(op);
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

llvm::SmallVector<const void *, 8> BlockProof::identity(const Operation &op) {
  llvm::SmallVector<const void *, 8> keys = {&op.info()};
  unsigned count =
      std::min<unsigned>(op.numForwardOperands(), op.operands.size());
  for (unsigned i = 0; i < count; ++i) {
    // Whatever bundle a parameter is read from.
    const Operand &operand = op.operands[i];
    keys.push_back(operand.param ? static_cast<const void *>(operand.param)
                                 : operand.value);
  }
  return keys;
}

bool BlockProof::inferredAsPrinted(const Operation &op) {
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
    return false;
  }
  if (types->size() != op.results.size()) {
    state.error(op.loc) << "'" << op.spelling() << "' has " << types->size()
                        << (types->size() == 1 ? " result" : " results")
                        << ", not " << op.results.size();
    return false;
  }
  bool same = true;
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
    same = false;
    auto report = state.error(op.loc);
    report << "'" << op.spelling() << "': result '%" << result->name << "' is "
           << text(inferred) << ", not " << text(result->type);
    for (const Operand &operand : op.operands) {
      state.note(report, operand);
    }
  }
  return same;
}

void BlockProof::verifyTypes(const Operation &op) {
  bool same = inferredAsPrinted(op);
  if (op.backward) {
    return;
  }
  if (!same) {
    wrong.push_back(identity(op));
    return;
  }
  verifyGradientAxes(op);
  if (op.is(OpKind::Rope)) {
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
  } else if (value->type &&
             state.checkType(value->type, value->loc ? value->loc : loc,
                             "'%" + value->name + "'")) {
    checkInForce(*value, value->loc ? value->loc : loc);
  }
  const Value *root = op ? value : nullptr;
  if (const Operand *source = op ? op->sharesStorageWith(index) : nullptr) {
    root = rootOf(*source);
  }
  ValueFacts &facts = state.facts(value);
  facts.defined = true;
  facts.root = root;
}

/// Values mention only axes that a pass has brought into force.
void BlockProof::checkInForce(const Value &value, Location loc) {
  const Module &module = state.module;
  AxisSet placed =
      value.type.shardedAxes() | value.type->repl | value.type->partial;
  AxisSet idle = placed - module.axesInForce();
  if (!idle.empty()) {
    state.error(loc) << "'%" << value.name << "' mentions '"
                     << module.mesh.str(idle) << "', which "
                     << (idle.size() == 1 ? "is" : "are")
                     << " not in force at stage '" << name(module.stage) << "'";
  }
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
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    verifyLeaving(op, op.operands[i], i);
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

/// Nothing partial leaves, but for the loss of a model that is not yet a step:
/// there the sum is taken by who knows what it is for.
void BlockProof::verifyLeaving(const Operation &op, const Operand &operand,
                               unsigned position) {
  Type type = state.typeOf(operand);
  if (!type) {
    return;
  }
  bool isLoss = place.function && place.function->name == "train" &&
                position == 0 && type.rank() == 0 && isFloat(type.dtype());
  if (isLoss) {
    verifyLoss(op, operand);
    return;
  }
  if (type->partial.empty()) {
    return;
  }
  auto report = state.error(op.loc);
  report << "partial '%" << (operand.value ? operand.value->name : "")
         << "' leaves " << place.name
         << "; reduce it first with all_reduce or reduce_scatter";
  state.note(report, operand);
}

/// A loss has one term for each rank that has tokens of its own, and is else
/// the same everywhere. Replicated, it would count once for each rank.
void BlockProof::verifyLoss(const Operation &op, const Operand &operand) {
  // Tokens and labels are integers, as they come in and as they are cut.
  AxisSet tokens;
  auto addCuts = [&](const Value *value) {
    if (value && value->type && !isFloat(value->type.dtype())) {
      tokens = tokens | value->type.shardedAxes();
    }
  };
  llvm::for_each(place.body.arguments, addCuts);
  for (const Operation &other : place.body.ops) {
    llvm::for_each(other.results, addCuts);
  }
  Type type = state.typeOf(operand);
  if (!type->repl.empty()) {
    auto report = state.error(op.loc);
    report << "the loss is replicated over '" << module.mesh.str(type->repl)
           << "': it would count once for each rank, and gradients come out "
           << module.mesh.size(type->repl)
           << " times too large; it must be invariant there, as with logits "
              "that are gathered with to=invariant";
    state.note(report, operand);
  }
  AxisSet rest = type->partial - tokens;
  if (!rest.empty()) {
    auto report = state.error(op.loc);
    report << "the loss is partial over '" << module.mesh.str(rest)
           << "', which cuts no tokens; reduce it there first with all_reduce";
    state.note(report, operand);
  }
}

bool hp::verifyBlock(VerifierState &state, const BlockPlace &place) {
  return BlockProof(state, place).run();
}
