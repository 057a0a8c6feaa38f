//===- ExpandOptimizer.cpp - Norm, clip, AdamW ----------------------------===//

#include "StepBuilder.h"
#include "hp/Analysis/Parameters.h"

using namespace hp;
using llvm::StringRef;

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

  llvm::SmallVector<Operand, 0> squares;
  for (Param *param : order) {
    Operation *op = append(OpKind::SumSquares, param->loc);
    op->operands.push_back({paramGradients[param]});
    squares.push_back(
        {module.addResult(op, uniqueName(("q." + param->name).str()), real)});
  }
  Operation *sum = append(OpKind::Sum, loc);
  sum->operands.assign(squares.begin(), squares.end());
  Value *total = module.addResult(sum, uniqueName("qs"), real);

  Operation *norm = append(OpKind::GradNorm, loc);
  norm->operands.push_back({total});
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
  for (Value *value : {loss, gnorm, validTargets, ok}) {
    if (value) {
      end->operands.push_back({value});
    }
  }
  return true;
}
