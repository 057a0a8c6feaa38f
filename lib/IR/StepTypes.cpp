//===- StepTypes.cpp - Types of what frames and follows the model ---------===//
//
// Calls, stacks and bundles; and the operations after the last gradient
// reduction: norm, clip and optimizer. There nothing is differentiated any
// more.
//
//===----------------------------------------------------------------------===//

#include "TypeRules.h"
#include "llvm/ADT/StringSet.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Calls and stacks
//===----------------------------------------------------------------------===//

/// Refuses operands that do not fit `block`'s arguments. `what` is named in the
/// message.
static llvm::Error checkArguments(const TypeQuery &query, Block &block,
                                  const Twine &what) {
  if (block.arguments.size() != query.operands.size()) {
    return query.refuse(what + " takes " + Twine(block.arguments.size()) +
                        " arguments, not " + Twine(query.operands.size()));
  }
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    Type expected = block.arguments[i]->type, given = query.operands[i];
    if (!given || !expected || !given.matches(expected)) {
      return query.refuse(
          "operand " + Twine(i) + " is " +
              (given ? query.text(given) : std::string("a bundle")) + " but " +
              what + " takes " +
              (expected ? query.text(expected) : std::string("nothing")),
          i);
    }
  }
  return llvm::Error::success();
}

static llvm::Expected<TypeList> call(const TypeQuery &query) {
  Function *callee = query.module.findFunction(query.like.symbol);
  if (!callee || !callee->body) {
    return query.refuse("there is no function '@" + query.like.symbol + "'");
  }
  if (llvm::Error error =
          checkArguments(query, *callee->body, "'@" + callee->name + "'")) {
    return error;
  }
  Operation *terminator = callee->body->terminator();
  if (!terminator) {
    return query.refuse("'@" + callee->name + "' does not return");
  }
  TypeList results;
  for (const Operand &operand : terminator->operands) {
    results.push_back(operand.type(query.module));
  }
  return results;
}

static llvm::Expected<TypeList> stack(const TypeQuery &query) {
  Stack *stack = query.module.findStack(query.like.symbol);
  if (!stack) {
    return query.refuse("there is no stack '@" + query.like.symbol + "'");
  }
  if (query.operands.empty() || !query.operands[0]) {
    return query.refuse("takes the value that goes through the layers");
  }
  llvm::StringSet<> seen;
  for (const StackGroup &group : stack->groups) {
    for (const StackRun &run : group.runs) {
      if (!seen.insert(run.block).second) {
        continue;
      }
      BlockTemplate *block = query.module.findBlock(run.block);
      if (!block || !block->body) {
        return query.refuse("stack '@" + stack->name + "' names a block '@" +
                            run.block + "' that is not there");
      }
      if (llvm::Error error = checkArguments(query, *block->body,
                                             "block '@" + block->name + "'")) {
        return error;
      }
    }
  }
  return TypeList{query.operands[0]};
}

llvm::Expected<TypeList> hp::inferStructure(const TypeQuery &query) {
  switch (query.info.kind) {
  case OpKind::Call:
    return call(query);
  case OpKind::Stack:
    return stack(query);
  case OpKind::FsdpUnshard:
    if (llvm::Error error = query.expectOperands(0)) {
      return error;
    }
    return TypeList{Type()};
  case OpKind::FsdpReshard:
    if (llvm::Error error = query.expectOperands(1)) {
      return error;
    }
    return TypeList{};
  default: // free, return
    return TypeList{};
  }
}

//===----------------------------------------------------------------------===//
// Gradient reduction
//===----------------------------------------------------------------------===//

/// What is left of a parameter's gradient on a rank after the last reduction.
static TypeData reducedGradient(const Param &param) {
  TypeData data = *param.type;
  data.repl = AxisSet();
  if (data.store) {
    data.dtype = data.store->dtype;
  }
  return data;
}

/// The axes of attribute `name`; empty if absent. Refuses another kind of value
/// and axes off the mesh.
static llvm::Expected<AxisList> axesAttribute(const TypeQuery &query,
                                              StringRef name) {
  const Attribute *attribute = query.like.attrs.find(name);
  if (!attribute) {
    return AxisList();
  }
  const AxisList *axes = attribute->get<AxisList>();
  bool legal = axes && llvm::all_of(*axes, [&](AxisId axis) {
                 return axis < query.mesh().numAxes();
               });
  if (!legal) {
    return query.refuse("'" + name + "' must be a list of axes, as (dp,cp)");
  }
  return *axes;
}

static llvm::Expected<TypeList> reduceGrad(const TypeQuery &query) {
  if (llvm::Error error = query.expectOperands(1)) {
    return error;
  }
  Param *param = query.module.findParam(query.like.symbol);
  if (!param) {
    return query.refuse("there is no parameter '@" + query.like.symbol + "'");
  }
  auto scatter = axesAttribute(query, "scatter");
  if (!scatter) {
    return scatter.takeError();
  }
  auto sum = axesAttribute(query, "sum");
  if (!sum) {
    return sum.takeError();
  }

  std::string at = ("'@" + param->name + "'").str();
  AxisSet axes;
  for (llvm::ArrayRef<AxisId> list :
       {llvm::ArrayRef<AxisId>(*scatter), llvm::ArrayRef<AxisId>(*sum)}) {
    for (AxisId axis : list) {
      if (axes.contains(axis)) {
        return query.refuse("the gradient of " + at +
                            " is reduced twice over " + query.quoted(axis) +
                            "; name each axis once, in 'scatter' or in 'sum'");
      }
      axes.insert(axis);
    }
  }
  if (axes != param->type->repl) {
    return query.refuse("the gradient of " + at + " must be summed over " +
                        query.group(param->type->repl.list()) +
                        ", where the parameter is replicated, but is summed "
                        "over " +
                        query.group(axes.list()));
  }
  AxisList store = param->type->store ? param->type->store->axes : AxisList();
  if (*scatter != store) {
    return query.refuse("'scatter' is over " + query.group(*scatter) + " but " +
                        at + " is stored over " + query.group(store));
  }
  Type expected = query.module.dual(param->type);
  if (!query.operands[0].matches(expected)) {
    return query.refuse("the gradient is " + query.text(query.operands[0]) +
                            " but the dual of " + at + " is " +
                            query.text(expected),
                        0);
  }
  return TypeList{query.module.type(reducedGradient(*param))};
}

//===----------------------------------------------------------------------===//
// Norm, clip, optimizer
//===----------------------------------------------------------------------===//

static llvm::Expected<TypeList> sumSquares(const TypeQuery &query) {
  if (llvm::Error error = query.expectOperands(1)) {
    return error;
  }
  Type type = query.operands[0];
  if (!isFloat(type.dtype())) {
    return query.refuse("takes a gradient, not " + query.text(type), 0);
  }
  if (!type->partial.empty() || !type->repl.empty()) {
    return query.refuse("the gradient is still to be reduced over " +
                            query.group((type->partial | type->repl).list()) +
                            "; reduce_grad it first",
                        0);
  }
  TypeData data;
  data.dtype = DType::F64;
  data.partial = type.shardedAxes();
  if (type->store) {
    data.partial = data.partial | AxisSet(type->store->axes);
  }
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> sum(const TypeQuery &query) {
  if (query.operands.empty()) {
    return query.refuse("takes at least one operand");
  }
  Type first = query.operands[0];
  if (first.rank() != 0 || !isFloat(first.dtype()) || first->store) {
    return query.refuse("takes floating scalars, not " + query.text(first), 0);
  }
  // Over an axis of size 1 a whole term is the sum of its terms, so that such
  // axes need not tell terms apart: the sum has one order with and without
  // them.
  TypeData data = *first;
  for (unsigned i = 1; i < query.operands.size(); ++i) {
    TypeData term = *query.operands[i];
    AxisSet both = first->partial & term.partial;
    AxisSet differ = (first->partial | term.partial) - both;
    data.partial = data.partial | term.partial;
    term.partial = first->partial;
    if (query.mesh().size(differ) != 1 ||
        !query.module.type(term).matches(first)) {
      return query.refuse("operand " + Twine(i) + " is " +
                              query.text(query.operands[i]) +
                              ", operand 0 is " + query.text(first) +
                              "; sum those of one state, reduce, then add",
                          i);
    }
  }
  return TypeList{query.module.type(data)};
}

/// Refuses an operand that is not a `dtype` scalar, the same on all ranks.
static llvm::Error expectScalar(const TypeQuery &query, unsigned operand,
                                DType dtype) {
  Type type = query.operands[operand];
  if (!type || type != query.module.scalar(dtype)) {
    return query.refuse("operand " + Twine(operand) + " must be " +
                            name(dtype) + "[], the same on all ranks, not " +
                            (type ? query.text(type) : std::string("nothing")),
                        operand);
  }
  return llvm::Error::success();
}

static llvm::Expected<TypeList> gradNorm(const TypeQuery &query) {
  if (query.operands.empty()) {
    return query.refuse("takes at least one operand");
  }
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    if (llvm::Error error = expectScalar(query, i, DType::F64)) {
      return error;
    }
  }
  return TypeList{query.module.scalar(DType::F64)};
}

static llvm::Expected<TypeList> clipCoef(const TypeQuery &query) {
  if (llvm::Error error = query.expectOperands(1)) {
    return error;
  }
  if (llvm::Error error = expectScalar(query, 0, DType::F64)) {
    return error;
  }
  return TypeList{query.module.scalar(DType::F64)};
}

/// The norm, and the number of valid targets where there is one.
static llvm::Expected<TypeList> finite(const TypeQuery &query) {
  if (query.operands.empty() || query.operands.size() > 2) {
    return query.refuse("takes the norm and the number of valid targets");
  }
  if (llvm::Error error = expectScalar(query, 0, DType::F64)) {
    return error;
  }
  if (query.operands.size() == 2) {
    if (llvm::Error error = expectScalar(query, 1, DType::I64)) {
      return error;
    }
  }
  return TypeList{query.module.scalar(DType::Bool)};
}

/// @p, gradient, then as many as there are of: coefficient (or `_`), learning
/// rate, step count, whether to do it.
static llvm::Expected<TypeList> adamW(const TypeQuery &query) {
  static constexpr DType scalars[] = {DType::F64, DType::F64, DType::I64,
                                      DType::Bool};
  unsigned count = query.operands.size();
  if (count < 3 || count > 2 + std::size(scalars)) {
    return query.refuse("takes a parameter, its gradient, a coefficient, and "
                        "learning rate, step count and condition");
  }
  const Operand &target =
      query.like.operands.size() > 0 ? query.like.operands[0] : Operand();
  if (!target.param || target.value || target.typeOnly) {
    return query.refuse("operand 0 must be the parameter to update, as @p", 0);
  }
  Type expected = query.module.type(reducedGradient(*target.param));
  if (!query.operands[1] || !query.operands[1].matches(expected)) {
    return query.refuse("the gradient is " +
                            (query.operands[1] ? query.text(query.operands[1])
                                               : std::string("nothing")) +
                            " but '@" + target.param->name +
                            "' is updated by " + query.text(expected),
                        1);
  }
  for (unsigned i = 2; i < count; ++i) {
    bool noClip = i == 2 && !query.operands[i];
    if (noClip) {
      continue;
    }
    if (llvm::Error error = expectScalar(query, i, scalars[i - 2])) {
      return error;
    }
  }
  return TypeList{};
}

llvm::Expected<TypeList> hp::inferStep(const TypeQuery &query) {
  switch (query.info.kind) {
  case OpKind::ReduceGrad:
    return reduceGrad(query);
  case OpKind::SumSquares:
    return sumSquares(query);
  case OpKind::Sum:
    return sum(query);
  case OpKind::GradNorm:
    return gradNorm(query);
  case OpKind::ClipCoef:
    return clipCoef(query);
  case OpKind::Finite:
    return finite(query);
  case OpKind::AdamW:
    return adamW(query);
  default:
    return query.refuse("has no rule");
  }
}
