//===- Threads.h - Work on the threads of LibTorch --------------*- C++ -*-===//
//
// LibTorch's parallel loops are templates that need OpenMP where they are used.
// They are used in one file.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_THREADS_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_THREADS_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>

namespace hp::fused {

/// Calls `body` with the first of a range and the end, for ranges of at least
/// `grain` that make up [0, count), on the threads that LibTorch computes with.
/// What `body` throws comes out here.
void forEachRange(int64_t count, int64_t grain,
                  llvm::function_ref<void(int64_t first, int64_t last)> body);

/// How many of them there are.
int64_t numThreads();

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_THREADS_H
