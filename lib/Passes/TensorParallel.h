//===- TensorParallel.h - What tensor parallelism asks of values -*- C++
//-*-===//
//
// Weights are cut by declaration; this says what that means for the values they
// meet. A residual value is one between sublayers: cut over `tp` along the
// sequence with sequence parallelism, invariant over it without. An operation
// that meets `tp` (a cut weight, a value cut by heads) takes its residual
// operands replicated, and a partial result becomes residual again.
//
// shard-annotate asks to find which norms meet cut values, tp-insert to write
// the collectives.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_TENSORPARALLEL_H
#define HP_LIB_PASSES_TENSORPARALLEL_H

#include "hp/IR/Module.h"

namespace hp {

class TensorParallel {
public:
  /// Reads `sequence_parallel` of the module's `sharding` line.
  TensorParallel(Module &module, bool sequence);

  /// What has to be done to an operand before an operation can read it.
  enum class Fix : uint8_t {
    None,
    Replicate, ///< residual → replicated: all_gather or copy_to
    Shard      ///< an integer whole along the sequence → this rank's slice
  };

  const AxisList &axes() const { return tensorAxes; }
  bool sequenceParallel() const { return sequence; }
  /// The dim that sequence parallelism cuts.
  llvm::StringRef sequenceDim() const { return dim; }

  /// `type`, which does not mention tp, as a residual value.
  Type residual(Type type) const;
  /// Whether `type` is that of a residual value.
  bool isResidual(Type type) const;
  /// `type`, residual, after Fix::Replicate.
  Type replicated(Type type) const;
  /// `type`, partial over tp, after its reduction.
  Type reduced(Type type) const;
  /// An integer after Fix::Shard.
  Type sharded(Type type) const;

  /// What each operand of `op` needs, `types` being those of its operands.
  llvm::SmallVector<Fix, 4> fixes(const Operation &op,
                                  llvm::ArrayRef<Type> types) const;
  /// The axes of tp over which the others of `types` are cut or replicated, so
  /// that operand `index`, a whole parameter, must be replicated.
  AxisSet met(const Operation &op, llvm::ArrayRef<Type> types,
              unsigned index) const;

private:
  bool meets(Type type) const;

  Module &module;
  AxisList tensorAxes;
  AxisSet tensorSet;
  bool sequence = false;
  llvm::StringRef dim;
};

} // namespace hp

#endif // HP_LIB_PASSES_TENSORPARALLEL_H
