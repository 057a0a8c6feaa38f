//===- Verifier.h - What is proved of a module ------------------*- C++ -*-===//
//
// Runs after every pass and after parsing. Each proof reports every fault it
// finds, with the operation, the value that broke it, where that came from and
// what would be legal:
//
//   1 form        symbols resolve, each parameter is used, legal stage
//   2 types       printed = inferred; an axis once per value; divisibility
//   3 local       per axis, states of operands fit (with 2, in inferTypes)
//   5 partial     never leaves a block, except the loss
//   8 backward    dual types, names of the forward operation, one use each
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_VERIFIER_H
#define HP_IR_VERIFIER_H

#include "hp/IR/Module.h"

namespace hp {

/// True if every proof holds; all faults are reported to `diag`.
bool verify(Module &module, DiagnosticEngine &diag);

/// Whether `data` is a legal type on `mesh`: every fault as one sentence, or
/// empty. (An axis used twice, an extent below 1 or past 2^62, a cut that does
/// not divide, storage without ~ that does not divide.)
std::string checkType(const TypeData &data, const Mesh &mesh);

} // namespace hp

#endif // HP_IR_VERIFIER_H
