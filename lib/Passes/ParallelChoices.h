//===- ParallelChoices.h - What a module says of its layout -----*- C++ -*-===//
//
// The lines `parallelism` and `sharding` of a module, as passes read them. A
// pass's option that is `auto` follows the line; without a line the defaults of
// the run configuration hold.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_PARALLELCHOICES_H
#define HP_LIB_PASSES_PARALLELCHOICES_H

#include "hp/Passes/Pass.h"

namespace hp {

/// The mesh axes that `name` (dp, dp_replicate, dp_shard, cp, tp) stands for;
/// none where they all have size 1 and the mesh has dropped them. `dp` is
/// dp_replicate and dp_shard.
AxisList axesCalled(const Module &module, llvm::StringRef name);

/// `S: cp` of the sharding line.
struct DeclaredCut {
  llvm::StringRef dim, axis;
};
/// The pairs of `key=[S, tp]` of the sharding line; empty if it has none.
llvm::SmallVector<DeclaredCut, 2> declaredCuts(const Module &module,
                                               llvm::StringRef key);
/// The entries `B=dp, S=cp` of the sharding line.
llvm::SmallVector<DeclaredCut, 2> valueCuts(const Module &module);

/// Whether the sharding line is well formed; reports what is not.
bool checkSharding(Module &module, llvm::StringRef pass,
                   DiagnosticEngine &diag);

/// Why a pass that takes modules of stage `wanted` refuses `module`: empty, or
/// a sentence that says what makes that stage.
std::string stageRefusal(const Module &module, Stage wanted);

/// The value of an option of `pass` that is `auto` where the parallelism line
/// decides: its word, number or flag (`true`, `false`) as text, `otherwise`
/// where the line has none.
std::string chosen(const Pass &pass, llvm::StringRef option,
                   const Module &module, llvm::StringRef key,
                   llvm::StringRef otherwise);

} // namespace hp

#endif // HP_LIB_PASSES_PARALLELCHOICES_H
