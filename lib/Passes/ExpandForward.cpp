//===- ExpandForward.cpp - Every instance of every layer ------------------===//
//
// The walk that makes the forward half: calls and stacks are replaced by copies
// of what they run.
//
//===----------------------------------------------------------------------===//

#include "StepBuilder.h"

using namespace hp;
using llvm::StringRef;

/// Replaces stacks by the parameters of their layers: `layers.0.norm.weight`.
void StepBuilder::flattenParameters() {
  std::vector<Member> old = std::move(module.members);
  module.members.clear();
  llvm::StringMap<unsigned> bucketsByName;
  for (const Member &member : old) {
    if (member.param) {
      member.param->declared.reset(); // a step holds placements in its types
      module.members.push_back(member);
      parameters.push_back(member.param);
      StringRef first = member.param->name.split('.').first;
      unsigned next = bucketsByName.size();
      buckets[member.param] =
          bucketsByName.try_emplace(first, next).first->second;
      continue;
    }
    std::vector<ParamMap> &maps = instances[member.stack->name];
    std::vector<StringRef> &layers = stackLayers[member.stack->name];
    layers = member.stack->layers();
    unsigned index = 0;
    for (StringRef layer : layers) {
      ParamMap map;
      for (Param *param : module.findBlock(layer)->params) {
        std::string name =
            (member.stack->name + "." + llvm::Twine(index) + "." + param->name)
                .str();
        Param *instance =
            module.makeParam(name, param->type, param->init, param->loc);
        module.addParam(instance);
        parameters.push_back(instance);
        buckets[instance] = bucketsByName.size();
        map[param] = instance;
      }
      maps.push_back(std::move(map));
      bucketsByName.try_emplace(
          (member.stack->name + "." + llvm::Twine(index)).str(),
          bucketsByName.size());
      ++index;
    }
  }
}

bool StepBuilder::expandForward() {
  Function *train = module.findFunction("train");
  flattenParameters();

  llvm::SmallVector<Value *, 4> arguments;
  for (Value *argument : train->body->arguments) {
    Value *copy = module.makeValue(uniqueName(argument->name), argument->type,
                                   argument->loc);
    copy->index = arguments.size();
    arguments.push_back(copy);
    body->arguments.push_back(copy);
  }
  llvm::SmallVector<Value *, 1> returned;
  if (!inlineBlock(*train->body, arguments, Instance(), returned)) {
    return false;
  }
  if (returned.empty() || !isFloat(returned[0]->type.dtype()) ||
      returned[0]->type.rank() != 0 || returned[0]->isArgument()) {
    return diag.error(train->loc)
           << "pass 'expand-step': @train must return the loss, a computed "
              "floating-point scalar, first";
  }
  loss = returned[0];
  if (loss->owner->is(OpKind::Div)) {
    validTargets = loss->owner->operands[1].value;
  }
  return true;
}

/// `operand` of a template or function as the step reads it.
Operand StepBuilder::mapped(Operand operand, const ValueMap &values,
                            const Instance &instance) {
  if (operand.value) {
    operand.value = values.lookup(operand.value);
  }
  if (operand.param) {
    operand.param = instance.mapped(operand.param);
  }
  return operand;
}

/// Counts one more operation looked at. Calls that double level by level stop
/// here, and so do stacks of too many layers.
bool StepBuilder::countVisit(Location loc) {
  constexpr unsigned maxVisits = 1 << 19;
  return ++visits <= maxVisits ||
         diag.error(loc) << "pass 'expand-step': the forward half would have "
                            "more than "
                         << maxVisits << " operations";
}

/// Appends what `source` does, as `instance`.
bool StepBuilder::inlineBlock(Block &source, llvm::ArrayRef<Value *> arguments,
                              const Instance &instance,
                              llvm::SmallVectorImpl<Value *> &returned) {
  ValueMap values;
  for (auto [formal, actual] : llvm::zip(source.arguments, arguments)) {
    values[formal] = actual;
  }
  for (Operation &op : source.ops) {
    if (op.is(OpKind::Return)) {
      for (const Operand &operand : op.operands) {
        returned.push_back(mapped(operand, values, instance).value);
      }
      return true;
    }
    if (!countVisit(op.loc)) {
      return false;
    }
    switch (op.kind) {
    case OpKind::Stack:
      if (!inlineStack(op, values)) {
        return false;
      }
      break;
    case OpKind::Call:
      if (!inlineCall(op, values, instance)) {
        return false;
      }
      break;
    case OpKind::FsdpUnshard:
      appendUnshard(op, values, instance);
      break;
    case OpKind::FsdpReshard:
      appendReshard(op, values, instance);
      break;
    default:
      appendForward(op, values, instance);
    }
  }
  return true;
}

/// Appends a copy of one operation. Its flags for this pass are not copied.
void StepBuilder::appendForward(const Operation &op, ValueMap &values,
                                const Instance &instance) {
  Operation *copy = append(op.kind, op.loc);
  copy->attrs = op.attrs;
  copy->axes = op.axes;
  copy->dim = op.dim;
  copy->toDim = op.toDim;
  copy->symbol = op.symbol;
  for (const Operand &operand : op.operands) {
    copy->operands.push_back(mapped(operand, values, instance));
  }
  for (Value *result : op.results) {
    if (!result) {
      copy->results.push_back(nullptr);
      continue;
    }
    values[result] = module.addResult(
        copy, uniqueName(instance.valuePrefix + result->name.str()),
        result->type);
  }
  if (copy->attrs.erase("recompute")) {
    marked[copy] = forwardOps.size();
  }
  markTrained(*copy);
  forwardOps.push_back(copy);
}

/// What the called function does, in place of the call.
bool StepBuilder::inlineCall(const Operation &op, ValueMap &values,
                             const Instance &instance) {
  constexpr unsigned maxDepth = 64;
  if (callDepth == maxDepth) {
    return diag.error(op.loc) << "pass 'expand-step': calls nest more than "
                              << maxDepth << " deep, or never end";
  }
  llvm::SmallVector<Value *, 4> actuals;
  for (const Operand &operand : op.operands) {
    actuals.push_back(mapped(operand, values, instance).value);
  }
  llvm::SmallVector<Value *, 1> returned;
  Instance callee;
  callee.valuePrefix = instance.valuePrefix;
  ++callDepth;
  bool ok = inlineBlock(*module.findFunction(op.symbol)->body, actuals, callee,
                        returned);
  --callDepth;
  for (auto [formal, actual] : llvm::zip(op.results, returned)) {
    values[formal] = actual;
  }
  return ok;
}

/// One copy of a layer after the other; the first operand runs through them,
/// the others go to each.
bool StepBuilder::inlineStack(const Operation &op, ValueMap &values) {
  llvm::SmallVector<Value *, 4> actuals;
  for (const Operand &operand : op.operands) {
    actuals.push_back(values.lookup(operand.value));
  }
  const std::vector<ParamMap> &maps = instances[op.symbol];
  const std::vector<StringRef> &layers = stackLayers[op.symbol];
  for (unsigned index = 0; index < layers.size(); ++index) {
    if (!countVisit(op.loc)) {
      return false;
    }
    std::string number = std::to_string(index);
    std::string stack = instances.size() > 1 ? op.symbol.str() + "." : "";
    Instance instance{stack + number + ".", op.symbol.str() + "." + number,
                      stack + "L" + number, &maps[index]};
    llvm::SmallVector<Value *, 1> returned;
    if (!inlineBlock(*module.findBlock(layers[index])->body, actuals, instance,
                     returned)) {
      return false;
    }
    actuals[0] = returned[0];
  }
  values[op.results[0]] = actuals[0];
  return true;
}
