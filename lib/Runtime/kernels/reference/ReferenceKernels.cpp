//===- ReferenceKernels.cpp - The oracle kernel set -----------------------===//
//
// Finds the kernel of an operation, runs it without gradients or has it
// differentiated, and keeps the storage marks of the table.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

//===----------------------------------------------------------------------===//
// Call
//===----------------------------------------------------------------------===//

const Mesh &Call::mesh() const { return op.parent->module.mesh; }

llvm::ArrayRef<Dim> Call::dims(unsigned index) const {
  const Operand &operand = op.operands[index];
  return operand.param ? operand.param->type.dims()
                       : operand.value->type.dims();
}

DType Call::resultDType(unsigned index) const {
  const Value *result = op.results[index];
  return result ? result->type.dtype() : DType::F32;
}

int64_t Call::numRanks(llvm::ArrayRef<AxisId> axes) const {
  return axes.empty() ? 1 : mesh().size(axes);
}

int64_t Call::position(llvm::ArrayRef<AxisId> axes) const {
  int64_t position = 0;
  for (AxisId axis : axes) {
    int64_t inner = 1;
    for (unsigned next = axis + 1; next < mesh().numAxes(); ++next) {
      inner *= mesh().size(AxisId(next));
    }
    position = position * mesh().size(axis) + rank / inner % mesh().size(axis);
  }
  return position;
}

at::ScalarType reference::scalarType(DType dtype) {
  switch (dtype) {
  case DType::Bool:
    return at::kBool;
  case DType::I64:
    return at::kLong;
  case DType::BF16:
    return at::kBFloat16;
  case DType::F32:
    return at::kFloat;
  case DType::F64:
    return at::kDouble;
  }
  llvm_unreachable("all dtypes are named above");
}

//===----------------------------------------------------------------------===//
// The set
//===----------------------------------------------------------------------===//

static Kernel findKernel(OpKind kind) {
  switch (kind) {
  case OpKind::Embedding:
    return embedding;
  case OpKind::Linear:
    return linear;
  case OpKind::BiasAdd:
    return biasAdd;
  case OpKind::RmsNorm:
    return rmsNorm;
  case OpKind::RmsNormGated:
    return rmsNormGated;
  case OpKind::Rope:
    return rope;
  case OpKind::CausalConv1d:
    return causalConv1d;
  case OpKind::Sigmoid:
    return reference::sigmoid;
  case OpKind::Decay:
    return decay;
  case OpKind::GatedDeltaRule:
    return gatedDeltaRule;
  case OpKind::GdrSummary:
    return gdrSummary;
  case OpKind::Sdpa:
    return sdpa;
  case OpKind::SigmoidMul:
    return sigmoidMul;
  case OpKind::SiluMul:
    return siluMul;
  case OpKind::Add:
    return add;
  case OpKind::Cast:
    return cast;
  case OpKind::CrossEntropy:
    return crossEntropy;
  case OpKind::CrossEntropyVp:
    return crossEntropyOfOne;
  case OpKind::CpRing:
    return ringOfOne;
  case OpKind::CountValid:
    return countValid;
  case OpKind::Div:
    return reference::div;
  case OpKind::Ones:
    return ones;
  case OpKind::Split:
    return split;
  case OpKind::Concat:
    return concat;
  case OpKind::Unflatten:
    return unflatten;
  case OpKind::Flatten:
    return flatten;
  case OpKind::Unpack:
    return unpack;
  case OpKind::RepeatHeads:
    return repeatHeads;
  default:
    return nullptr;
  }
}

static Kernel kernelOf(const Operation &op) {
  Kernel kernel = findKernel(op.kind);
  TORCH_CHECK_NOT_IMPLEMENTED(kernel, "no reference kernel for '",
                              op.spelling(), "'");
  return kernel;
}

namespace {
class ReferenceKernels : public KernelSet {
public:
  explicit ReferenceKernels(int64_t rank) : rank(rank) {}

  llvm::StringRef name() const override { return "reference"; }

  Tensors forward(const Operation &op, Operands operands) override {
    at::NoGradGuard guard;
    Tensors results = kernelOf(op)(Call(op, rank), operands);
    Tensors taken(operands.begin(), operands.end());
    for (auto [index, result] : llvm::enumerate(results)) {
      result = result.detach();
      if (!op.info().viewOf(index)) {
        result = fresh(result, taken);
        taken.push_back(result);
      }
    }
    return results;
  }

  Tensors backward(const Operation &op, Operands operands, Operands saved,
                   Operands cotangents, Operands acc) override {
    return differentiate(Call(op, rank), op.info(), kernelOf(op), operands,
                         cotangents, acc);
  }

private:
  int64_t rank;
};
} // namespace

std::unique_ptr<KernelSet> hp::makeReferenceKernels(int64_t rank) {
  return std::make_unique<ReferenceKernels>(rank);
}
