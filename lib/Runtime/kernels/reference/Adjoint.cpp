//===- Adjoint.cpp - Adjoints by LibTorch's autograd ----------------------===//
//
// The kernel runs again on leaves made of its operands, and LibTorch
// differentiates that one operation.
//
// In a whole model, the engine keeps one buffer for the gradient of a value and
// adds to it what each use of the value gives, the latest use first. A running
// gradient is what later operations gave; so it has to be in the buffer before
// this operation adds its terms one by one. The engine runs the node made last
// first: an alias of the operand, made after the kernel and differentiated with
// the running gradient as its cotangent, is that node.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"
#include <torch/csrc/autograd/autograd.h>

using namespace hp;
using namespace hp::reference;
using torch::autograd::variable_list;

/// Whether the gradient of operand `index` leaves dense in the order of its
/// type. The heads of these operands come out of a projection; the published
/// model's reshape copies the gradient where it flattens them again. Copied
/// here, `unflatten.bwd` is the view that the table says it is.
static bool leavesContiguous(OpKind kind, unsigned index) {
  switch (kind) {
  case OpKind::RmsNorm:
    return index == 0;
  case OpKind::GatedDeltaRule:
    return index < 3;
  case OpKind::GdrSummary:
    return index < 2;
  case OpKind::Sdpa:
    return index == 2;
  default:
    return false;
  }
}

/// What autograd made as the gradient the table promises: of the operand's
/// size, and in storage of its own unless `mayPass`, the cotangent's.
static at::Tensor settle(at::Tensor gradient, const at::Tensor &operand,
                         bool contiguous, bool mayPass, Operands cotangents,
                         Operands others) {
  if (!gradient.defined()) {
    return at::zeros(operand.sizes(), operand.options());
  }
  if (contiguous) {
    gradient = gradient.contiguous();
  }
  gradient = gradient.detach();
  if (llvm::any_of(cotangents, [&](const at::Tensor &cotangent) {
        return sharesStorage(gradient, cotangent);
      })) {
    return mayPass ? gradient : gradient.clone();
  }
  return fresh(gradient, others);
}

Tensors reference::differentiate(const Call &call, const OpInfo &row,
                                 Kernel kernel, Operands operands,
                                 Operands cotangents, Operands acc) {
  at::AutoGradMode recording(true);
  Tensors leaves(operands.begin(), operands.end());
  variable_list inputs;
  auto positions = row.diffOperands(operands.size());
  for (unsigned position : positions) {
    leaves[position] = operands[position].detach().requires_grad_();
    inputs.push_back(leaves[position]);
  }

  Tensors results = kernel(call, leaves);
  variable_list outputs, gradients;
  for (auto [cotangent, result] :
       llvm::zip(cotangents, row.cotangentResults(results.size()))) {
    if (cotangent.defined()) {
      outputs.push_back(results[result]);
      gradients.push_back(cotangent);
    }
  }
  for (auto [running, input] : llvm::zip(acc, inputs)) {
    if (running.defined()) {
      outputs.push_back(input.view_as(input));
      gradients.push_back(running);
    }
  }
  variable_list made(inputs.size());
  if (!outputs.empty()) {
    made = torch::autograd::grad(outputs, inputs, gradients,
                                 /*retain_graph=*/false, /*create_graph=*/false,
                                 /*allow_unused=*/true);
  }

  // No gradient lies in an operand, a running gradient or another gradient.
  Tensors taken(operands.begin(), operands.end());
  llvm::append_range(taken, acc);
  Tensors settled;
  for (auto [index, gradient] : llvm::enumerate(made)) {
    bool running = index < acc.size() && acc[index].defined();
    unsigned position = positions[index];
    settled.push_back(settle(
        gradient, operands[position], leavesContiguous(row.kind, position),
        row.passesCotangent(index) && !running, cotangents, taken));
    taken.push_back(settled.back());
  }
  return settled;
}
