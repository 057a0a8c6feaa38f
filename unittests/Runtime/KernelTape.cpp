//===- KernelTape.cpp - Runs operations by hand, and backward -------------===//

#include "KernelTape.h"
#include <limits>

using namespace hp;
using namespace hp::testing;

DType hp::testing::dtypeOf(at::ScalarType dtype) {
  switch (dtype) {
  case at::kBool:
    return DType::Bool;
  case at::kLong:
    return DType::I64;
  case at::kBFloat16:
    return DType::BF16;
  case at::kDouble:
    return DType::F64;
  default:
    return DType::F32;
  }
}

at::Tensor hp::testing::placeholder(const at::Tensor &x) {
  double fill = std::numeric_limits<double>::quiet_NaN();
  return at::full({}, fill, x.options()).expand(x.sizes());
}

//===----------------------------------------------------------------------===//
// OperationMaker
//===----------------------------------------------------------------------===//

Operation *OperationMaker::make(OpKind kind, llvm::ArrayRef<Type> operands,
                                llvm::ArrayRef<TestAttribute> attrs) {
  Operation *op = module.makeOp(kind);
  op->parent = &block;
  block.ops.push_back(op);
  for (Type type : operands) {
    op->operands.push_back({module.makeValue("x", type)});
  }
  for (const TestAttribute &attr : attrs) {
    op->attrs.set(module.intern(attr.name), attr.value);
  }
  return op;
}

Operation *OperationMaker::makeAdjoint(const Operation &forward,
                                       llvm::ArrayRef<Type> results) {
  const OpInfo &row = forward.info();
  Operation *op = make(forward.kind, {}, {});
  op->backward = true;
  op->attrs = forward.attrs;
  for (auto [index, operand] : llvm::enumerate(forward.operands)) {
    op->operands.push_back(operand);
    op->operands.back().typeOnly = !row.needsValue(index);
  }
  for (unsigned index : row.savedResults()) {
    op->operands.push_back({module.makeValue("r", results[index])});
  }
  for (unsigned index : row.cotangentResults(results.size())) {
    op->operands.push_back(
        {module.makeValue("d", module.dual(results[index]))});
  }
  return op;
}

Type OperationMaker::plainType(at::ScalarType dtype, at::IntArrayRef sizes) {
  TypeData data;
  data.dtype = dtypeOf(dtype);
  for (int64_t size : sizes) {
    data.dims.emplace_back("", llvm::ArrayRef<int64_t>(size));
  }
  return module.type(data);
}

//===----------------------------------------------------------------------===//
// KernelTape
//===----------------------------------------------------------------------===//

KernelTape::Variable KernelTape::leaf(const at::Tensor &x, const Dim &lastDim) {
  nodes.push_back({x, {}, maker.plainType(x.scalar_type(), x.sizes())});
  if (!lastDim.segments.empty()) {
    setLastDim(nodes.size() - 1, lastDim);
  }
  return nodes.size() - 1;
}

void KernelTape::setLastDim(Variable x, const Dim &dim) {
  TypeData data = *nodes[x].type;
  data.dims.back() = dim;
  nodes[x].type = maker.module.type(data);
}

KernelTape::Variable KernelTape::run(OpKind kind,
                                     llvm::ArrayRef<Variable> operands,
                                     llvm::ArrayRef<TestAttribute> attrs) {
  llvm::SmallVector<Type, 6> types;
  Tensors tensors;
  for (Variable operand : operands) {
    types.push_back(nodes[operand].type);
    tensors.push_back(nodes[operand].value);
  }
  Operation *op = maker.make(kind, types, attrs);
  Tensors results = kernels.forward(*op, tensors);
  Variable first = nodes.size();
  for (auto [index, result] : llvm::enumerate(results)) {
    auto source = op->info().viewOf(index);
    checkStorage(*op, result, source ? tensors[*source] : at::Tensor(),
                 tensors);
    leaf(result);
  }
  records.push_back(
      {op, llvm::SmallVector<Variable, 6>(operands), first, results.size()});
  return first;
}

void KernelTape::backward(Variable x, const at::Tensor &cotangent) {
  nodes[x].gradient = cotangent;
  for (const Record &record : llvm::reverse(records)) {
    walkBack(record);
  }
}

void KernelTape::checkStorage(const Operation &op, const at::Tensor &x,
                              const at::Tensor &source,
                              llvm::ArrayRef<at::Tensor> others) {
  auto sharesWith = [&](const at::Tensor &other) {
    return other.defined() && x.storage().is_alias_of(other.storage());
  };
  bool kept = source.defined() ? sharesWith(source)
                               : x.storage().nbytes() == x.nbytes() &&
                                     llvm::none_of(others, sharesWith);
  if (!kept) {
    storageFaults.push_back(op.spelling());
  }
}

void KernelTape::walkBack(const Record &record) {
  const OpInfo &row = record.op->info();
  Tensors operands, saved, cotangents, acc;
  bool reached = false;
  for (unsigned index : row.cotangentResults(record.numResults)) {
    cotangents.push_back(nodes[record.firstResult + index].gradient);
    reached |= cotangents.back().defined();
  }
  if (!reached) {
    return;
  }
  llvm::SmallVector<Type, 3> types;
  for (size_t i = 0; i < record.numResults; ++i) {
    types.push_back(nodes[record.firstResult + i].type);
  }
  for (auto [index, operand] : llvm::enumerate(record.operands)) {
    const at::Tensor &value = nodes[operand].value;
    operands.push_back(row.needsValue(index) ? value : placeholder(value));
  }
  for (unsigned index : row.savedResults()) {
    saved.push_back(nodes[record.firstResult + index].value);
  }
  auto positions = row.diffOperands(record.operands.size());
  for (unsigned position : positions) {
    acc.push_back(nodes[record.operands[position]].gradient);
  }
  Operation *adjoint = maker.makeAdjoint(*record.op, types);
  Tensors gradients =
      kernels.backward(*adjoint, operands, saved, cotangents, acc);
  Tensors others = operands;
  llvm::append_range(others, cotangents);
  llvm::append_range(others, acc);
  for (auto [index, gradient] : llvm::enumerate(gradients)) {
    bool passes = row.passesCotangent(index) && !acc[index].defined();
    checkStorage(*adjoint, gradient, passes ? cotangents[0] : at::Tensor(),
                 others);
  }
  for (auto [position, gradient] : llvm::zip(positions, gradients)) {
    nodes[record.operands[position]].gradient = gradient;
  }
}
