//===- KernelRows.h - Every local and view row, with operands ---*- C++ -*-===//
//
// Small operands for each row of Ops.def that a kernel set computes; a row with
// several variants or kinds of head grouping stands here several times. Every
// dim that can be cut has an even first factor.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_KERNELROWS_H
#define HP_UNITTESTS_RUNTIME_KERNELROWS_H

#include "KernelTape.h"

namespace hp::testing {

/// What an operand of a row holds.
enum class Fill {
  Normal,
  Unit,      ///< between 0 and 1
  Negative,  ///< logarithms of decay
  Tokens,    ///< below 6
  Labels,    ///< below 6, some of them -100
  Positions, ///< 3, 4, 5, ...
  Count,     ///< a number of targets
};

struct RowOperand {
  Fill fill;
  llvm::SmallVector<Dim, 5> dims;

  bool isInteger() const { return fill >= Fill::Tokens; }
  DType dtype(at::ScalarType floating) const {
    return isInteger() ? DType::I64 : dtypeOf(floating);
  }
  std::vector<int64_t> sizes() const;
};

struct KernelRow {
  std::string name;
  OpKind kind;
  std::vector<RowOperand> operands;
  std::vector<TestAttribute> attrs;
  /// Blocks of the sequence that the row treats each by itself: the extent of
  /// the dims named `n`, which hold one halo or state a block.
  int64_t blocks = 1;
};

const std::vector<KernelRow> &kernelRows();
void PrintTo(const KernelRow &row, std::ostream *os);

/// Random values of `operand`, the same for the same seed.
at::Tensor sample(const RowOperand &operand, at::ScalarType floating,
                  uint64_t seed);
Tensors sampleOperands(const KernelRow &row, at::ScalarType floating,
                       uint64_t seed);
/// Random numbers of the shape and dtype of `x`.
at::Tensor randomLike(const at::Tensor &x, uint64_t seed);

/// The row's forward operation on whole operands.
Operation *makeRowOperation(OperationMaker &maker, const KernelRow &row,
                            at::ScalarType floating);

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_KERNELROWS_H
