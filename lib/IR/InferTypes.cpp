//===- InferTypes.cpp - Types of results from types of operands -----------===//
//
// The entry of the type engine: hands each operation to the file that knows its
// category.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/InferTypes.h"
#include "TypeRules.h"
#include "hp/IR/Text.h"
#include "hp/Support/Debug.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Faults
//===----------------------------------------------------------------------===//

char TypeFault::ID = 0;

llvm::Error hp::typeFault(StringRef spelling, const Twine &what, int operand) {
  return llvm::make_error<TypeFault>(("'" + spelling + "': " + what).str(),
                                     operand);
}

llvm::Error TypeQuery::refuse(const Twine &what, int operand) const {
  bool adjoint = like.backward && like.kind == info.kind;
  return typeFault((info.spelling + (adjoint ? ".bwd" : "")).str(), what,
                   operand);
}

llvm::Error TypeQuery::expectOperands(unsigned count) const {
  if (operands.size() == count) {
    return llvm::Error::success();
  }
  return refuse("takes " + Twine(count) +
                (count == 1 ? " operand" : " operands") + ", not " +
                Twine(operands.size()));
}

std::string TypeQuery::quoted(AxisId axis) const {
  return ("'" + mesh().name(axis) + "'").str();
}

std::string TypeQuery::group(llvm::ArrayRef<AxisId> axes) const {
  if (axes.empty()) {
    return "no axis";
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "'";
  mesh().printGroup(os, axes);
  os << "'";
  return text;
}

std::string TypeQuery::text(Type type) const { return str(type, module); }

StringRef hp::stateName(State state) {
  switch (state) {
  case State::Invariant:
    return "invariant";
  case State::Replicated:
    return "replicated";
  case State::Partial:
    return "partial";
  case State::Sharded:
    return "sharded";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// Dispatch
//===----------------------------------------------------------------------===//

llvm::Expected<TypeList> hp::inferForward(Module &module, OpKind kind,
                                          llvm::ArrayRef<Type> operands,
                                          const Operation &like) {
  TypeQuery query{module, opInfo(kind), operands, like};
  OpCategory category = query.info.category;
  if (category != OpCategory::Structure) {
    for (unsigned i = 0; i < operands.size(); ++i) {
      // AdamW may go without a coefficient; all else reads what it names.
      if (!operands[i] && kind != OpKind::AdamW) {
        return query.refuse(
            "operand " + Twine(i) + " is not a value with a type", i);
      }
    }
  }
  switch (category) {
  case OpCategory::Local:
    return inferByRule(query);
  case OpCategory::View:
    return inferView(query);
  case OpCategory::Collective:
    return inferCollective(query);
  case OpCategory::Structure:
    return inferStructure(query);
  case OpCategory::Step:
    return inferStep(query);
  }
  return query.refuse("has no rule");
}

/// Forward or backward.
static llvm::Expected<TypeList> inferEither(Module &module, const Operation &op,
                                            llvm::ArrayRef<Type> operands,
                                            llvm::ArrayRef<Type> acc) {
  if (op.backward) {
    return inferBackward(module, op, operands, acc);
  }
  if (!acc.empty()) {
    return typeFault(op.spelling(), "takes no running gradients; only a "
                                    "backward operation does");
  }
  return inferForward(module, op.kind, operands, op);
}

/// `infer-types: linear f32[B, S, 64], f32[96, 64] -> f32[B, S, 96]`
static void traceInference(Module &module, const Operation &op,
                           llvm::ArrayRef<Type> operands,
                           llvm::Expected<TypeList> &results) {
  auto print = [&](llvm::ArrayRef<Type> types) {
    llvm::ListSeparator comma;
    for (Type type : types) {
      debugStream() << comma << (type ? str(type, module) : "_");
    }
  };
  debugStream() << "infer-types: " << op.spelling() << ' ';
  print(operands);
  debugStream() << " -> ";
  if (results) {
    print(*results);
  } else {
    debugStream() << "refused";
  }
  debugStream() << '\n';
}

llvm::Expected<TypeList> hp::inferWithTypes(Module &module, const Operation &op,
                                            llvm::ArrayRef<Type> operands,
                                            llvm::ArrayRef<Type> acc) {
  llvm::Expected<TypeList> results = inferEither(module, op, operands, acc);
  HP_DEBUG("infer-types", traceInference(module, op, operands, results));
  return results;
}

llvm::Expected<TypeList> hp::inferTypes(Module &module, const Operation &op) {
  TypeList operands, acc;
  for (const Operand &operand : op.operands) {
    operands.push_back(operand.type(module));
  }
  for (const Operand &operand : op.acc) {
    acc.push_back(operand.type(module));
  }
  return inferWithTypes(module, op, operands, acc);
}
