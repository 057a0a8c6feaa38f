//===- Verifier.h - What is proved of a module ------------------*- C++ -*-===//
//
// Runs after every pass and after parsing. Each proof reports every fault it
// finds, with the operation, the value that broke it, where that came from and
// what would be legal:
//
//   1 form        symbols resolve, each parameter is used, legal stage
//   2 types       printed = inferred; an axis once per value; divisibility
//   3 local       per axis, states of operands fit (with 2, in inferTypes)
//   4 collectives operand state (with 2), one communicator for a group of ranks
//   5 partial     never leaves a block, except the loss
//   6 gradients   declared axes = derived axes = reduced axes, each once; the
//                 norm counts each element once
//   7 bundles     one bucket for each stored parameter, open where it is read
//   8 backward    dual types, names of the forward operation, one use each
//
// What an earlier proof refuses is not told again: an operation whose types are
// wrong has an adjoint whose types are wrong.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_VERIFIER_H
#define HP_IR_VERIFIER_H

#include "hp/IR/Module.h"

namespace hp {

/// True if every proof holds; all faults are reported to `diag`.
bool verify(Module &module, DiagnosticEngine &diag);

/// The axes over which the gradient must be summed that `op`, forward, gives
/// the parameter which it reads as operand `position`: those on which ranks use
/// it on slices, terms or copies of their own. Found from the other operands
/// and the results, not from what the parameter declares.
AxisSet gradientAxes(Module &module, const Operation &op, unsigned position);

/// Whether `data` is a legal type on `mesh`: every fault as one sentence, or
/// empty. (An axis used twice, an extent below 1 or past 2^62, a cut that does
/// not divide, storage without ~ that does not divide.)
std::string checkType(const TypeData &data, const Mesh &mesh);

} // namespace hp

#endif // HP_IR_VERIFIER_H
