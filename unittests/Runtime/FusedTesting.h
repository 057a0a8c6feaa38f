//===- FusedTesting.h - Fused kernels beside the oracle ---------*- C++ -*-===//
//
// Forward and every gradient of a row by both kernel sets. The truth is the
// reference in float64. In float64 a fused kernel must give the same; in
// float32 it may be at most twice as far from it as the reference in float32,
// which is LibTorch's own arithmetic.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_FUSEDTESTING_H
#define HP_UNITTESTS_RUNTIME_FUSEDTESTING_H

#include "KernelRows.h"

namespace hp::testing {

/// What one kernel set makes of a row.
struct Made {
  Tensors results, gradients;
};

enum class Layout { Dense, Permuted, Padded };

/// The same values with other strides: the first two dims in the other order in
/// memory, or gaps between the rows of the last dim.
at::Tensor restrided(const at::Tensor &x, Layout layout);

/// A row with values, and the two sets to compute it with.
class Comparison {
public:
  explicit Comparison(const KernelRow &row)
      : row(row), info(opInfo(row.kind)),
        operands(sampleOperands(row, at::kFloat, 31)) {}

  /// All of the row by `kernels`, in float32 or, `wide`, float64; with running
  /// gradients or without. Operands whose type alone the adjoint needs are NaN.
  /// Expects results and gradients in storage of their own, and running
  /// gradients not written to.
  Made compute(KernelSet &kernels, bool wide, Layout layout, bool running);

  /// Expects the fused kernels to be as right as they should be, in both types.
  void check(Layout layout, bool running);

  KernelRow row;
  const OpInfo &info;
  Tensors operands; ///< float32
  std::unique_ptr<KernelSet> reference = makeReferenceKernels();
  std::unique_ptr<KernelSet> fused = makeFusedKernels();
};

/// Checks a row in every layout, with running gradients and without.
void checkRow(const KernelRow &row);
/// Expects the same bits of two runs, and on one thread, two and three.
void expectDeterminate(const KernelRow &row);

inline Dim dim(const char *name, int64_t size) { return Dim(name, {size}); }

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_FUSEDTESTING_H
