//===- SimdTargets.h - Sets of instructions to compile for ------*- C++ -*-===//
//
// Included before Highway. SSSE3 would only cost compile time: no processor in
// use has it without SSE4. Vectors must have a size that the compiler knows.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_SIMDTARGETS_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_SIMDTARGETS_H

#define HWY_DISABLED_TARGETS                                                   \
  (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_SIMDTARGETS_H
