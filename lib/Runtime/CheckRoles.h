//===- CheckRoles.h - Which scalar is which in a step -----------*- C++ -*-===//

#ifndef HP_LIB_RUNTIME_CHECKROLES_H
#define HP_LIB_RUNTIME_CHECKROLES_H

#include "hp/IR/Module.h"

namespace hp {

/// Whether loss, norm, coefficient, learning rate, step count and number of
/// targets of `step` are used each for what it is. Every mix-up is reported.
bool checkRoles(Function &step, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_LIB_RUNTIME_CHECKROLES_H
