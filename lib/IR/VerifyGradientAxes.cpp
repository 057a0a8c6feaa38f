//===- VerifyGradientAxes.cpp - Proof 6: the axes of a gradient -----------===//
//
// Over which axes a parameter's gradient must be summed follows from what the
// parameter meets: a rank that works on its own slice, term or copy has its own
// term of the gradient. This is found here from the other operands and the
// results of each use, and compared to what the parameter declares; that the
// reductions of a step are the declared ones is a matter of types, see
// StepTypes.cpp.
//
//===----------------------------------------------------------------------===//

#include "BlockProof.h"

using namespace hp;

AxisSet hp::gradientAxes(Module &module, const Operation &op,
                         unsigned position) {
  AxisSet own;
  auto meet = [&](Type type) {
    if (type && isFloat(type.dtype())) {
      own = own | type.shardedAxes() | type->repl | type->partial;
    }
  };
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    if (i != position && !op.operands[i].param && op.operands[i].value) {
      meet(op.operands[i].value->type);
    }
  }
  for (const Value *result : op.results) {
    if (result) {
      meet(result->type);
    }
  }
  // Along the axes that cut the parameter, each rank has the gradient of its
  // slice.
  return own - op.operands[position].type(module).shardedAxes();
}

void BlockProof::verifyGradientAxes(const Operation &op) {
  for (unsigned i : op.info().diffOperands(op.operands.size())) {
    if (i >= op.operands.size() || !op.operands[i].param) {
      continue;
    }
    const Operand &operand = op.operands[i];
    AxisSet declared = state.typeOf(operand)->repl;
    AxisSet derived = gradientAxes(module, op, i);
    if (declared == derived) {
      continue;
    }
    auto text = [&](AxisSet axes) {
      return axes.empty() ? "no axis" : "'" + module.mesh.str(axes) + "'";
    };
    auto report = state.error(op.loc);
    report << "'" << op.spelling() << "' gives '@" << operand.param->name
           << "' a gradient that must be summed over " << text(derived)
           << ", but the parameter is replicated over " << text(declared);
    for (const Operand &other : op.operands) {
      state.note(report, other);
    }
  }
}
