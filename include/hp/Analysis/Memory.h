//===- Memory.h - Bytes of values over a step -------------------*- C++ -*-===//
//
// How many bytes of values live at each instruction of a step on one rank, read
// from the text alone: a fresh result begins a storage, views and passed-on
// gradients share it, `free` ends it. Results are charged while the operands
// still live. Arguments live throughout. What fsdp.unshard gathers counts from
// there to fsdp.reshard. Stored parameters, optimizer state and kernel
// workspace, the buffers of messages among it, are not values and are counted
// elsewhere. The runtime measures the same quantity on the tensors it holds;
// the two agree to the byte, on each rank: they differ where storage does not
// divide, and rank 0, which has the largest pieces, has the largest peak.
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_MEMORY_H
#define HP_ANALYSIS_MEMORY_H

#include "hp/IR/Module.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace hp {

struct MemoryPeak {
  int64_t bytes = 0;             ///< the largest total
  const Operation *at = nullptr; ///< the first instruction that reaches it
  int64_t argumentBytes = 0;     ///< of which: the step's inputs
};

/// The peak of `function`, a flat step.
MemoryPeak peakOfValues(Module &module, Function &function, int64_t rank = 0);

/// Calls `visit` with each instruction and the bytes that live on `rank` while
/// it runs.
void walkMemory(
    Module &module, Function &function, int64_t rank,
    llvm::function_ref<void(const Operation &, int64_t bytes)> visit);

} // namespace hp

#endif // HP_ANALYSIS_MEMORY_H
