//===- Verifier.cpp - What is proved of a module --------------------------===//
//
// Runs the proofs, and holds what they share:
//
//   VerifyForm.cpp           1, symbols and their uses
//   VerifyOperation.cpp      1, stages and attributes
//   VerifyBlock.cpp          1, 2, 3, 5, one walk over each block
//   VerifyOperands.cpp       1 and 7, what may be read
//   VerifyBundles.cpp        7, buckets
//   VerifyMessages.cpp       4, what is started early and waited for late
//   VerifyGradientAxes.cpp   6, the axes of each gradient
//   VerifyCommunicators.cpp  4, one order of issue
//   VerifyBackward.cpp       8
//   VerifyUpdate.cpp         6, each parameter reduced, counted, updated once
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Verifier.h"
#include "VerifierState.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

bool hp::verify(Module &module, DiagnosticEngine &diag) {
  VerifierState state(module, diag);
  verifySymbols(state);
  for (const auto &block : module.blocks) {
    if (block && block->body) {
      verifyBlock(state, {*block->body, block->loc,
                          ("block '@" + block->name + "'").str(), block.get(),
                          nullptr});
    }
  }
  for (const auto &function : module.functions) {
    if (!function || !function->body) {
      continue;
    }
    BlockPlace place{*function->body, function->loc,
                     ("function '@" + function->name + "'").str(), nullptr,
                     function.get()};
    // Of a model that does not hold nothing can be said of its gradients that
    // was not said already.
    if (verifyBlock(state, place) && module.stage == Stage::Step) {
      verifyBackward(state, place);
    }
  }
  verifyCommunicators(state);
  verifyUses(state);
  if (state.faults > VerifierState::maxFaults) {
    diag.error(module.loc) << state.faults - VerifierState::maxFaults
                           << " more errors are not shown";
  }
  return state.faults == 0;
}

//===----------------------------------------------------------------------===//
// Reports
//===----------------------------------------------------------------------===//

InFlightDiagnostic VerifierState::error(Location loc) {
  ++faults;
  return InFlightDiagnostic(faults <= maxFaults ? &diag : nullptr,
                            Severity::Error, loc);
}

void VerifierState::note(InFlightDiagnostic &report, const Operand &operand) {
  if (operand.param) {
    report.note(operand.param->loc, "'@" + operand.param->name + "' is " +
                                        str(operand.param->type, module));
    return;
  }
  const Value *value = operand.value;
  if (!value || value->isBundle()) {
    return;
  }
  std::string origin = value->owner ? "from '" + value->owner->spelling() + "'"
                                    : std::string("an argument");
  report.note(value->loc, "'%" + value->name + "' is " +
                              str(value->type, module) + ", " + origin);
}

//===----------------------------------------------------------------------===//
// Facts
//===----------------------------------------------------------------------===//

void VerifierState::enter(Block &body) {
  unsigned count = body.arguments.size();
  for (const Operation &op : body.ops) {
    count += op.results.size();
  }
  valueIndex.clear();
  values.clear();
  valueIndex.reserve(count);
  values.reserve(count + 1);
}

ValueFacts &VerifierState::facts(const Value *value) {
  auto [it, isNew] = valueIndex.try_emplace(value, values.size());
  if (isNew) {
    values.emplace_back();
  }
  return values[it->second];
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

Type VerifierState::typeOf(const Operand &operand) {
  if (operand.param) {
    auto it = params.find(operand.param);
    return it != params.end() ? it->second.computeType : Type();
  }
  return operand.value ? operand.value->type : Type();
}

bool VerifierState::checkType(Type type, Location loc, const Twine &what) {
  auto [it, isNew] = legal.try_emplace(&*type, true);
  if (isNew) {
    std::string faults = hp::checkType(*type, module.mesh);
    if (!faults.empty()) {
      it->second = false;
      error(loc) << "the type of " << what.str() << " is not legal: " << faults;
    }
  }
  return it->second;
}

bool VerifierState::readsLegalTypes(const Operation &op) {
  auto isLegal = [&](const Operand &operand) {
    if (operand.param) {
      return isKnown(operand.param) && facts(operand.param).usable;
    }
    if (!operand.value || operand.value->isBundle()) {
      return true;
    }
    auto it = legal.find(&*operand.value->type);
    return it != legal.end() && it->second;
  };
  return llvm::all_of(op.operands, isLegal) && llvm::all_of(op.acc, isLegal);
}

/// What of an operation's attributes its types depend on; none if the answer is
/// not worth keeping.
static std::optional<uint64_t> typeAttributes(const Operation &op) {
  switch (op.kind) {
  case OpKind::RepeatHeads:
    return op.attrs.getInt("r", 0);
  case OpKind::CpHalo:
    return op.attrs.getInt("k", 0);
  case OpKind::AllGather:
  case OpKind::Cast:
    return op.attrs.empty() ? std::optional<uint64_t>(0) : std::nullopt;
  case OpKind::Ones:
    return std::nullopt;
  default:
    OpCategory category = op.info().category;
    if (category == OpCategory::Structure || category == OpCategory::Step) {
      return std::nullopt; // depend on symbols and parameters
    }
    return 0;
  }
}

bool VerifierState::makeKey(const Operation &op, llvm::ArrayRef<Type> operands,
                            llvm::ArrayRef<Type> acc, Key &key) const {
  std::optional<uint64_t> attributes = typeAttributes(op);
  if (!attributes) {
    return false;
  }
  key = {uint64_t(op.kind) << 1 | op.backward, *attributes, operands.size(),
         op.axes.size()};
  for (Type type : operands) {
    key.push_back(type ? uint64_t(&*type) : 0);
  }
  for (Type type : acc) {
    key.push_back(type ? uint64_t(&*type) : 0);
  }
  for (AxisId axis : op.axes) {
    key.push_back(axis);
  }
  for (StringRef dim : {op.dim, op.toDim}) {
    key.push_back(uint64_t(dim.data()));
    key.push_back(dim.size());
  }
  return true;
}

llvm::Expected<llvm::ArrayRef<Type>> VerifierState::infer(const Operation &op) {
  TypeList operands, acc;
  for (const Operand &operand : op.operands) {
    operands.push_back(typeOf(operand));
  }
  for (const Operand &operand : op.acc) {
    acc.push_back(typeOf(operand));
  }
  Key key;
  bool keep = makeKey(op, operands, acc, key);
  if (keep) {
    auto it = answers.find(key);
    if (it != answers.end()) {
      return it->second;
    }
  }
  auto types = inferWithTypes(module, op, operands, acc);
  if (!types) {
    return types.takeError();
  }
  if (!keep) {
    scratch = std::move(*types);
    return llvm::ArrayRef<Type>(scratch);
  }
  auto copy = [&](auto list) {
    using T = std::remove_const_t<typename decltype(list)::value_type>;
    T *data = allocator.Allocate<T>(list.size());
    std::uninitialized_copy(list.begin(), list.end(), data);
    return llvm::ArrayRef<T>(data, list.size());
  };
  llvm::ArrayRef<Type> answer = copy(llvm::ArrayRef<Type>(*types));
  answers[copy(llvm::ArrayRef<uint64_t>(key))] = answer;
  return answer;
}
