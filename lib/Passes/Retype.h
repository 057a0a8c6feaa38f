//===- Retype.h - Types after an edit ---------------------------*- C++ -*-===//
//
// Passes change the types of arguments and parameters and let the engine say
// what follows for everything else.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_RETYPE_H
#define HP_LIB_PASSES_RETYPE_H

#include "hp/IR/Module.h"

namespace hp {

/// Every body of a module: templates first, then functions, so that what is
/// called comes before its callers.
std::vector<Block *> allBodies(Module &module);

/// Gives the results of `op` the types that follow from its operands. Reports
/// in the name of `pass` what the engine refuses.
bool retype(Operation &op, llvm::StringRef pass, DiagnosticEngine &diag);

/// `type` with `axes` as the minor-most cuts of each dim called `dim`.
Type withCut(Module &module, Type type, llvm::StringRef dim,
             llvm::ArrayRef<AxisId> axes);

/// Makes an operation and inserts it before `before`.
Operation *insertBefore(Operation &before, OpKind kind);
/// As above, after `after`.
Operation *insertAfter(Operation &after, OpKind kind);

/// A name for a value of `block` that nothing there has: `base`, or `base.2`,
/// `base.3`, ...
class BlockNames {
public:
  explicit BlockNames(Block &block);
  std::string unique(llvm::StringRef base);

private:
  llvm::DenseSet<llvm::StringRef> taken;
  Module &module;
};

/// Replaces reads of `from` by `to` in the operations after `after`.
void replaceUsesAfter(Operation &after, Value *from, Value *to);

} // namespace hp

#endif // HP_LIB_PASSES_RETYPE_H
