//===- Kernels.h - The interface of a kernel set ----------------*- C++ -*-===//
//
// A kernel set computes local operations and their adjoints on one rank's
// tensors. It has no hidden tape: what a call needs is in its arguments, and
// what lives from forward to backward is what the step program shows.
//
// `reference` calls the LibTorch operations in the order of the published model
// and takes each adjoint from LibTorch's autograd on that one operation, run
// again from its detached operands. It is the oracle, bit for bit equal to
// autograd of the whole model.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_KERNELS_H
#define HP_RUNTIME_KERNELS_H

#include "hp/IR/Module.h"
#include <ATen/core/Tensor.h>
#include <memory>

namespace hp {

using Tensors = llvm::SmallVector<at::Tensor, 4>;

class KernelSet {
public:
  virtual ~KernelSet() = default;
  virtual llvm::StringRef name() const = 0;

  /// Computes the forward operation `op` of category Local or View. `operands`
  /// are one rank's tensors, in the logical dim order of their types and with
  /// any strides. A result that the table calls a view shares its operand's
  /// storage; one it calls fresh shares none and has no bytes to spare.
  virtual Tensors forward(const Operation &op,
                          llvm::ArrayRef<at::Tensor> operands) = 0;

  /// Computes `op`, a backward operation. `operands` are those of the forward
  /// operation; where the adjoint needs only the type, a tensor of that shape
  /// without values of meaning. A cotangent or running gradient may be
  /// undefined: absent. Gives one tensor for each differentiable operand; with
  /// acc, the running gradient with this operation's part added.
  virtual Tensors backward(const Operation &op,
                           llvm::ArrayRef<at::Tensor> operands,
                           llvm::ArrayRef<at::Tensor> saved,
                           llvm::ArrayRef<at::Tensor> cotangents,
                           llvm::ArrayRef<at::Tensor> acc) = 0;
};

/// The oracle; see the top of this file. `rank` is this rank's number in the
/// mesh of the operations' module: a shard of a vocabulary or of the queries
/// has to know which one it is.
std::unique_ptr<KernelSet> makeReferenceKernels(int64_t rank = 0);

} // namespace hp

#endif // HP_RUNTIME_KERNELS_H
