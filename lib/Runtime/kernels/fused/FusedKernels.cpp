//===- FusedKernels.cpp - The fast kernel set -----------------------------===//
//
// Rows that have a fused kernel, for operands that it takes; all else is left
// to the reference kernels.
//
//===----------------------------------------------------------------------===//

#include "Fused.h"
#include "Update.h"

using namespace hp;
using namespace hp::fused;

static const Row *findRow(OpKind kind) {
  switch (kind) {
  case OpKind::Embedding:
    return &embedding;
  case OpKind::RmsNorm:
  case OpKind::RmsNormGated:
    return &rmsNorm;
  case OpKind::Rope:
    return &rope;
  case OpKind::CausalConv1d:
    return &causalConv1d;
  case OpKind::Decay:
    return &decay;
  case OpKind::SigmoidMul:
    return &sigmoidMul;
  case OpKind::SiluMul:
    return &siluMul;
  case OpKind::CrossEntropy:
    return &crossEntropy;
  case OpKind::GatedDeltaRule:
    return &gatedDeltaRule;
  case OpKind::GdrSummary:
    return &gdrSummary;
  default:
    return nullptr;
  }
}

/// Whether the kernels take these tensors: on the CPU, with elements, and all
/// floating ones of one type, float32 or float64. Undefined ones are absent.
static bool fits(std::initializer_list<Operands> groups) {
  at::ScalarType floating = at::kLong; // none seen
  for (Operands group : groups) {
    for (const at::Tensor &x : group) {
      if (!x.defined()) {
        continue;
      }
      if (!x.is_cpu() || x.numel() == 0) {
        return false;
      }
      if (!x.is_floating_point()) {
        continue;
      }
      if (floating == at::kLong) {
        floating = x.scalar_type();
      }
      if (x.scalar_type() != floating) {
        return false;
      }
    }
  }
  return floating == at::kFloat || floating == at::kDouble;
}

namespace {
class FusedKernels : public KernelSet {
public:
  explicit FusedKernels(int64_t rank)
      : rank(rank), reference(makeReferenceKernels(rank)) {}

  llvm::StringRef name() const override { return "fused"; }

  Tensors forward(const Operation &op, Operands operands) override {
    const Row *row = findRow(op.kind);
    if (!row || !row->forward || !fits({operands})) {
      return reference->forward(op, operands);
    }
    at::NoGradGuard guard;
    return row->forward(Call(op, rank), operands);
  }

  Tensors backward(const Operation &op, Operands operands, Operands saved,
                   Operands cotangents, Operands acc) override {
    const Row *row = findRow(op.kind);
    bool reached = llvm::any_of(
        cotangents, [](const at::Tensor &x) { return x.defined(); });
    if (!row || !reached || !fits({operands, saved, cotangents, acc})) {
      return reference->backward(op, operands, saved, cotangents, acc);
    }
    at::NoGradGuard guard;
    return row->backward(Call(op, rank), {operands, saved, cotangents, acc});
  }

  at::Tensor sumSquares(const at::Tensor &gradient) override {
    return fused::sumSquares(gradient);
  }

  void adamw(StoredParameter &parameter, at::Tensor gradient,
             double coefficient, double learningRate, int64_t count,
             const AdamWConstants &constants) override {
    at::NoGradGuard guard;
    fused::adamw(parameter, gradient, coefficient, learningRate, count,
                 constants);
  }

private:
  int64_t rank;
  std::unique_ptr<KernelSet> reference;
};
} // namespace

std::unique_ptr<KernelSet> hp::makeFusedKernels(int64_t rank) {
  return std::make_unique<FusedKernels>(rank);
}
