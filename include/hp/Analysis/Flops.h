//===- Flops.h - Floating-point operations ----------------------*- C++ -*-===//
//
// Evaluates the `flops` column of Ops.def on the types of an operation: global
// multiplies and adds, a multiply-add counting two. An adjoint takes twice the
// forward operation's; views, structure and collectives none.
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_FLOPS_H
#define HP_ANALYSIS_FLOPS_H

#include "hp/IR/Module.h"

namespace hp {

/// Of one instruction, over all ranks.
double flops(Module &module, const Operation &op);
/// Of a flat step.
double flops(Module &module, Function &function);

} // namespace hp

#endif // HP_ANALYSIS_FLOPS_H
