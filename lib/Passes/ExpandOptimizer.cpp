//===- ExpandOptimizer.cpp - Reductions, norm, clip, AdamW ----------------===//
//
// Gradients are reduced bucket by bucket, each as soon as the backward half is
// done with its parameters; after that nothing is differentiated any more.
//
//===----------------------------------------------------------------------===//

#include "StepBuilder.h"
#include "hp/Analysis/Parameters.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Finds for each bucket the earliest forward operation that reads one of its
/// parameters or gathers one that is read. When the walk has passed that, the
/// gradients are complete.
void StepBuilder::scheduleReductions() {
  constexpr unsigned never = ~0u;
  std::vector<unsigned> first(buckets.size() + 1, never);
  llvm::DenseMap<const Value *, unsigned> gathered;
  for (unsigned index = 0; index < forwardOps.size(); ++index) {
    const Operation &op = *forwardOps[index];
    if (op.is(OpKind::FsdpUnshard)) {
      gathered[op.results[0]] = index;
    }
    for (const Operand &operand : op.operands) {
      if (!operand.param) {
        continue;
      }
      unsigned at = operand.value ? gathered.lookup(operand.value) : index;
      unsigned &earliest = first[buckets.lookup(operand.param)];
      earliest = std::min(earliest, at);
    }
  }
  for (Param *param : parameters) {
    if (!param->type->repl.empty()) {
      reductions[first[buckets.lookup(param)]].push_back(param);
    }
  }
}

/// Reductions due when the walk has passed forward operation `index`.
void StepBuilder::appendReductions(unsigned index) {
  auto it = reductions.find(index);
  if (it == reductions.end()) {
    return;
  }
  for (Param *param : it->second) {
    if (paramGradients.lookup(param)) {
      reduceGradient(param);
    }
  }
}

/// Sums the gradient of `param` over the axes on which it is replicated; of
/// those that cut its storage, each rank keeps its piece.
void StepBuilder::reduceGradient(Param *param) {
  const TypeData &type = *param->type;
  Value *&gradient = paramGradients[param];
  Operation *op = append(OpKind::ReduceGrad, param->loc);
  op->symbol = param->name;
  op->operands.push_back({gradient});
  TypeData reduced = type;
  reduced.repl = AxisSet();
  AxisSet sum = type.repl;
  if (type.store) {
    reduced.dtype = type.store->dtype;
    sum = sum - AxisSet(type.store->axes);
    op->attrs.set(module.intern("scatter"), {type.store->axes});
  }
  if (!sum.empty()) {
    op->attrs.set(module.intern("sum"), {sum.list()});
  }
  gradient = module.addResult(op, uniqueName(("s." + param->name).str()),
                              module.type(reduced));
  ++written.reductions;
}

//===----------------------------------------------------------------------===//
// Norm, clip, update
//===----------------------------------------------------------------------===//

/// A number of a header line of the module, or an error that names it.
static std::optional<double> headerNumber(const AttributeList &attrs,
                                          StringRef header, StringRef key,
                                          Module &module,
                                          DiagnosticEngine &diag) {
  const Attribute *found = attrs.find(key);
  std::optional<double> value = found ? found->number() : std::nullopt;
  if (!value) {
    diag.error(module.loc) << "pass 'expand-step': the module's '" << header
                           << "' line gives no number '" << key << "'";
  }
  return value;
}

/// The order of LibTorch's parameters(): the order in which the norm's terms
/// are added and parameters are updated.
static std::vector<Param *> updateOrder(Module &module) {
  std::vector<Param *> order;
  for (const ParamInstance &instance : registrationOrder(module)) {
    order.push_back(instance.param);
  }
  return order;
}

/// Sums of squares, each over the parameters that the same axes cut, and
/// reduced over those. An element is counted once: on the other axes every rank
/// has it. Axes of size 1 cut nothing, so that the order of the sum is the same
/// with and without them.
llvm::SmallVector<Operand, 2>
StepBuilder::appendNormTerms(llvm::ArrayRef<Param *> order, Location loc) {
  // Axes that cut -> terms, in the order in which the axes first occur.
  llvm::MapVector<uint32_t, llvm::SmallVector<Operand, 0>> squares;
  for (Param *param : order) {
    Value *gradient = paramGradients[param];
    TypeData data;
    data.dtype = DType::F64;
    data.partial = gradient->type.shardedAxes();
    if (const auto &store = gradient->type->store) {
      data.partial = data.partial | AxisSet(store->axes);
    }
    Operation *op = append(OpKind::SumSquares, param->loc);
    op->operands.push_back({gradient});
    AxisSet cut;
    for (AxisId axis : data.partial.list()) {
      if (module.mesh.size(axis) > 1) {
        cut.insert(axis);
      }
    }
    squares[cut.raw()].push_back({module.addResult(
        op, uniqueName(("q." + param->name).str()), module.type(data))});
  }

  llvm::SmallVector<Operand, 2> totals;
  for (auto &[cut, terms] : squares) {
    TypeData data = *terms[0].value->type;
    for (const Operand &term : terms) {
      data.partial = data.partial | term.value->type->partial;
    }
    AxisList axes = data.partial.list();
    std::string suffix;
    for (AxisId axis : axes) {
      suffix += "." + module.mesh.name(axis).str();
    }
    Operation *sum = append(OpKind::Sum, loc);
    sum->operands.assign(terms.begin(), terms.end());
    Value *total =
        module.addResult(sum, uniqueName("qs" + suffix), module.type(data));
    if (!axes.empty()) {
      Operation *reduce = append(OpKind::AllReduce, loc);
      reduce->axes = axes;
      reduce->operands.push_back({total});
      total = module.addResult(reduce, uniqueName("qt" + suffix),
                               module.scalar(DType::F64));
    }
    totals.push_back({total});
  }
  return totals;
}

bool StepBuilder::expandOptimizer() {
  auto number = [&](const AttributeList &attrs, StringRef header,
                    StringRef key) {
    return headerNumber(attrs, header, key, module, diag);
  };
  std::optional<double> maxNorm =
      number(module.training, "training", "max_norm");
  std::optional<double> beta1 = number(module.optimizer, "optimizer", "beta1");
  std::optional<double> beta2 = number(module.optimizer, "optimizer", "beta2");
  std::optional<double> eps = number(module.optimizer, "optimizer", "eps");
  std::optional<double> decay =
      number(module.optimizer, "optimizer", "weight_decay");
  if (!maxNorm || !beta1 || !beta2 || !eps || !decay) {
    return false;
  }
  std::string fault;
  DecayRule rule(module.optimizer, fault);
  if (!fault.empty()) {
    return diag.error(module.loc)
           << "pass 'expand-step': in the module's 'optimizer' line, " << fault;
  }

  Location loc = module.findFunction("train")->loc;
  Type real = module.scalar(DType::F64);
  std::vector<Param *> order = updateOrder(module);

  llvm::SmallVector<Operand, 2> totals = appendNormTerms(order, loc);
  Operation *norm = append(OpKind::GradNorm, loc);
  norm->operands.assign(totals.begin(), totals.end());
  Value *gnorm = module.addResult(norm, uniqueName("gnorm"), real);

  Operation *clip = append(OpKind::ClipCoef, loc);
  clip->operands.push_back({gnorm});
  clip->attrs.set(module.intern("max_norm"), {*maxNorm});
  Value *coef = module.addResult(clip, uniqueName("coef"), real);

  Operation *finite = append(OpKind::Finite, loc);
  finite->operands.push_back({gnorm});
  if (validTargets) {
    finite->operands.push_back({validTargets});
  }
  Value *ok =
      module.addResult(finite, uniqueName("ok"), module.scalar(DType::Bool));

  auto argument = [&](StringRef name, DType dtype) {
    Value *value =
        module.makeValue(uniqueName(name), module.scalar(dtype), loc);
    value->index = body->arguments.size();
    body->arguments.push_back(value);
    return value;
  };
  Value *lr = argument("lr", DType::F64);
  Value *t = argument("t", DType::I64);
  for (Param *param : order) {
    Operation *op = append(OpKind::AdamW, param->loc);
    Operand target;
    target.param = param;
    op->operands.push_back(target);
    for (Value *value : {paramGradients[param], coef, lr, t, ok}) {
      op->operands.push_back({value});
    }
    op->attrs.set(module.intern("beta1"), {*beta1});
    op->attrs.set(module.intern("beta2"), {*beta2});
    op->attrs.set(module.intern("eps"), {*eps});
    op->attrs.set(module.intern("weight_decay"),
                  {rule.decays(param->name) ? *decay : 0.0});
  }

  Operation *end = append(OpKind::Return, loc);
  for (Value *value : {lossOfAll, gnorm, validTargets, ok}) {
    if (value) {
      end->operands.push_back({value});
    }
  }
  return true;
}
