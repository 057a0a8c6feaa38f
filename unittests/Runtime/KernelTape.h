//===- KernelTape.h - Runs operations by hand, and backward -----*- C++ -*-===//
//
// A KernelTape does in a test what a step program does in a run: it calls a
// kernel set operation by operation, frees nothing, and walks back in reverse
// order with running gradients passed as `acc`. Where an adjoint needs only the
// type of an operand, it gets a tensor of NaNs of that shape.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_KERNELTAPE_H
#define HP_UNITTESTS_RUNTIME_KERNELTAPE_H

#include "hp/Runtime/Kernels.h"
#include <ATen/ATen.h>
#include <string>
#include <vector>

namespace hp::testing {

/// A named attribute of an operation made by hand.
struct TestAttribute {
  const char *name;
  Attribute value;
};
inline TestAttribute intAttr(const char *name, int64_t value) {
  return {name, Attribute{value}};
}
inline TestAttribute floatAttr(const char *name, double value) {
  return {name, Attribute{value}};
}
inline TestAttribute flagAttr(const char *name) {
  return {name, Attribute{true}};
}
inline TestAttribute wordAttr(const char *name, const char *text) {
  return {name, Attribute{Word{text}}};
}

/// Makes operations in the one block of a module.
class OperationMaker {
public:
  Module module;

  /// A forward operation on values of these types, without results.
  Operation *make(OpKind kind, llvm::ArrayRef<Type> operands,
                  llvm::ArrayRef<TestAttribute> attrs);
  /// The adjoint of `forward`, whose results it gives these types: forward
  /// operands, saved results, cotangents. No results.
  Operation *makeAdjoint(const Operation &forward,
                         llvm::ArrayRef<Type> results);
  /// The type of a whole tensor of this shape.
  Type plainType(at::ScalarType dtype, at::IntArrayRef sizes);

private:
  Block block{module};
};

DType dtypeOf(at::ScalarType dtype);

/// A tensor of the shape of `x` whose elements are all the same NaN.
at::Tensor placeholder(const at::Tensor &x);

class KernelTape {
public:
  using Variable = size_t;

  explicit KernelTape(KernelSet &kernels) : kernels(kernels) {}

  /// A value that no operation made. `lastDim` says of what its last dim
  /// consists, where an operation asks.
  Variable leaf(const at::Tensor &x, const Dim &lastDim = {});
  /// Runs an operation; its result, or the first of several. The others follow
  /// it.
  Variable run(OpKind kind, llvm::ArrayRef<Variable> operands,
               llvm::ArrayRef<TestAttribute> attrs = {});
  /// Says of what the last dim of `x` consists.
  void setLastDim(Variable x, const Dim &dim);

  const at::Tensor &value(Variable x) const { return nodes[x].value; }
  /// The gradient of `x` after backward(); undefined if none reached it.
  const at::Tensor &gradient(Variable x) const { return nodes[x].gradient; }

  /// Where a result or gradient did not keep the storage mark of the table: in
  /// storage of its own that it fills, or in that of what it is a view of.
  std::vector<std::string> storageFaults;

  /// Walks back from `x` with this cotangent.
  void backward(Variable x, const at::Tensor &cotangent);

private:
  struct Node {
    at::Tensor value, gradient;
    Type type;
  };
  struct Record {
    Operation *op;
    llvm::SmallVector<Variable, 6> operands;
    Variable firstResult;
    size_t numResults;
  };
  void walkBack(const Record &record);
  /// Checks a mark; `source` is what `x` should be a view of, or undefined.
  void checkStorage(const Operation &op, const at::Tensor &x,
                    const at::Tensor &source,
                    llvm::ArrayRef<at::Tensor> others);

  KernelSet &kernels;
  OperationMaker maker;
  std::vector<Node> nodes;
  std::vector<Record> records;
};

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_KERNELTAPE_H
