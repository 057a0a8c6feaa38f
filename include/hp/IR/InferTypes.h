//===- InferTypes.h - Types of results from types of operands ---*- C++ -*-===//
//
// The one engine that knows what an operation does to shapes and shardings. It
// reads the rule of Ops.def for local operations (InferTypes.cpp); views
// (ViewTypes.cpp) and collectives (CollectiveTypes.cpp) have code of their own;
// a backward operation's results are the duals of the forward operands
// (BackwardTypes.cpp). Import, passes, parser and verifier all ask here.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_INFERTYPES_H
#define HP_IR_INFERTYPES_H

#include "hp/IR/Module.h"
#include "llvm/Support/Error.h"

namespace hp {

/// The result types of `op`, from its operands, attributes and axes; its
/// results' own types are read only where nothing else decides (`ones`). An
/// error is one sentence that names operation, axis or factor, and what would
/// be legal; the caller adds the place.
llvm::Expected<llvm::SmallVector<Type, 4>> inferTypes(Module &module,
                                                      const Operation &op);

/// As above for the forward operation `kind` on operand types alone, with the
/// attributes, axes and dims of `like`.
llvm::Expected<llvm::SmallVector<Type, 4>>
inferForward(Module &module, OpKind kind, llvm::ArrayRef<Type> operands,
             const Operation &like);

} // namespace hp

#endif // HP_IR_INFERTYPES_H
