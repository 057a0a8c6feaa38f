//===- Threads.cpp - Work on the threads of LibTorch ----------------------===//

#include "Threads.h"
#include <ATen/Parallel.h>

#ifndef INTRA_OP_PARALLEL
#error "compile with OpenMP, or everything runs on one thread"
#endif

using namespace hp;

void fused::forEachRange(
    int64_t count, int64_t grain,
    llvm::function_ref<void(int64_t first, int64_t last)> body) {
  at::parallel_for(0, count, grain, body);
}

int64_t fused::numThreads() { return at::get_num_threads(); }
