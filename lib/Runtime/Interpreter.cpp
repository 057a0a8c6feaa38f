//===- Interpreter.cpp - Runs a step program ------------------------------===//

#include "hp/Runtime/Interpreter.h"
#include "StepKernels.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/AllocationMeter.h"
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <chrono>

using namespace hp;
using llvm::StringRef;

using Clock = std::chrono::steady_clock;

static double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The message of a LibTorch exception without its C++ backtrace.
static std::string firstLine(const std::exception &failure) {
  return StringRef(failure.what()).split('\n').first.str();
}

//===----------------------------------------------------------------------===//
// Slots: what is held, and its bytes
//===----------------------------------------------------------------------===//

void Interpreter::hold(unsigned slot, const at::Tensor &tensor) {
  slots[slot] = tensor;
  if (!tensor.defined()) {
    return;
  }
  const auto &storage = tensor.storage();
  if (storages[storage.unsafeGetStorageImpl()]++ == 0) {
    live += storage.nbytes();
    peak = std::max(peak, live);
  }
}

void Interpreter::release(unsigned slot) {
  at::Tensor &tensor = slots[slot];
  if (!tensor.defined()) {
    return;
  }
  const auto &storage = tensor.storage();
  auto it = storages.find(storage.unsafeGetStorageImpl());
  if (--it->second == 0) {
    live -= storage.nbytes();
    storages.erase(it);
  }
  tensor.reset();
}

void Interpreter::releaseAll() {
  for (unsigned slot = 0; slot < slots.size(); ++slot) {
    release(slot);
  }
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

at::Tensor Interpreter::read(const Source &source) const {
  switch (source.kind) {
  case Source::None:
    return {};
  case Source::Slot:
    return slots[source.index];
  case Source::Parameter:
    return store.all()[source.index].value;
  case Source::Placeholder:
    return placeholders[source.index];
  }
  return {};
}

/// Computes what an instruction makes, by its kind.
void Interpreter::compute(const Instruction &instruction,
                          llvm::ArrayRef<at::Tensor> operands,
                          Tensors &results) {
  const Operation &op = *instruction.op;
  if (op.backward) {
    unsigned forward = instruction.numForward;
    unsigned saved = instruction.numSaved;
    unsigned cotangents = instruction.numCotangents;
    results = kernels.backward(
        op, operands.take_front(forward), operands.slice(forward, saved),
        operands.slice(forward + saved, cotangents),
        operands.drop_front(forward + saved + cotangents));
    return;
  }
  switch (op.kind) {
  case OpKind::Ones:
    results = {at::ones({}, scalarType(op.results[0]->type.dtype()))};
    return;
  case OpKind::SumSquares:
    results = {sumSquares(operands[0])};
    return;
  case OpKind::Sum:
    results = {sumScalars(operands)};
    return;
  case OpKind::GradNorm:
    results = {hp::gradNorm(operands)};
    return;
  case OpKind::ClipCoef:
    results = {clipCoefficient(operands[0], op.attrs.getFloat("max_norm", 0))};
    return;
  case OpKind::Finite:
    results = {isFinite(operands)};
    return;
  case OpKind::AdamW:
    if (operands[5].item<bool>()) {
      adamw(store.all()[instruction.operands[0].index], operands[1],
            operands[2].item<double>(), operands[3].item<double>(),
            operands[4].item<int64_t>() + 1,
            {op.attrs.getFloat("beta1", 0), op.attrs.getFloat("beta2", 0),
             op.attrs.getFloat("eps", 0),
             op.attrs.getFloat("weight_decay", 0)});
    }
    return;
  case OpKind::Free:
  case OpKind::Return:
    return;
  default:
    results = kernels.forward(op, operands);
  }
}

bool Interpreter::execute(const Instruction &instruction,
                          DiagnosticEngine &diag) {
  Tensors operands, results;
  for (const Source &source : instruction.operands) {
    operands.push_back(read(source));
  }
  AllocationMeter::resetPeak();
  try {
    Clock::time_point start = Clock::now();
    compute(instruction, operands, results);
    kernelTime += secondsSince(start);
    workspace = std::max(workspace,
                         AllocationMeter::peak() - AllocationMeter::current());
  } catch (const std::exception &failure) {
    return diag.error(instruction.op->loc)
           << "'" << instruction.op->spelling()
           << "' failed: " << firstLine(failure);
  }
  for (auto [index, slot] : llvm::enumerate(instruction.results)) {
    if (slot >= 0) {
      hold(slot, results[index]);
      if (observer) {
        observer(*instruction.op->results[index], results[index]);
      }
    }
  }
  operands.clear();
  results.clear();
  for (unsigned slot : instruction.frees) {
    release(slot);
  }
  return true;
}

bool Interpreter::run(size_t first, size_t last, DiagnosticEngine &diag) {
  c10::NoGradGuard noGrad;
  for (size_t i = first; i < last; ++i) {
    if (!execute(program[i], diag)) {
      releaseAll();
      return false;
    }
  }
  return true;
}

/// Puts the inputs into their slots.
bool Interpreter::begin(const StepInputs &inputs, DiagnosticEngine &diag) {
  releaseAll();
  Function &function = *module.findFunction("step");
  auto check = [&](unsigned index, const at::Tensor &tensor) {
    auto shape = function.body->arguments[index]->type.localShape(module.mesh);
    if (tensor.defined() && tensor.scalar_type() == at::kLong &&
        llvm::ArrayRef<int64_t>(tensor.sizes().data(), tensor.dim()) ==
            llvm::ArrayRef<int64_t>(shape)) {
      return true;
    }
    return bool(diag.error(function.loc)
                << "input '%" << function.body->arguments[index]->name
                << "' must be int64 "
                << str(function.body->arguments[index]->type, module));
  };
  if (!check(tokens, inputs.tokens) || !check(labels, inputs.labels) ||
      !check(positions, inputs.positions)) {
    return false;
  }
  hold(tokens, inputs.tokens);
  hold(labels, inputs.labels);
  hold(positions, inputs.positions);
  hold(learningRate, at::scalar_tensor(inputs.learningRate, at::kDouble));
  hold(updates, at::scalar_tensor(store.updates, at::kLong));
  return true;
}

std::optional<StepResult> Interpreter::step(const StepInputs &inputs,
                                            DiagnosticEngine &diag) {
  Clock::time_point start = Clock::now();
  if (!begin(inputs, diag) || !run(0, program.size(), diag)) {
    return std::nullopt;
  }
  StepResult result;
  result.loss = slots[loss].item<double>();
  result.gradNorm = slots[gradNorm].item<double>();
  result.updated = slots[updated].item<bool>();
  if (validTargets >= 0) {
    result.validTargets = slots[validTargets].item<int64_t>();
  }
  store.updates += result.updated;
  releaseAll();
  totalTime += secondsSince(start);
  return result;
}

bool Interpreter::gradients(const StepInputs &inputs,
                            const GradientVisitor &visit,
                            DiagnosticEngine &diag) {
  if (!begin(inputs, diag) || !run(0, updateBegin, diag)) {
    return false;
  }
  for (const Instruction &instruction : program) {
    if (instruction.op->is(OpKind::AdamW)) {
      visit(store.all()[instruction.operands[0].index].name,
            read(instruction.operands[1]));
    }
  }
  releaseAll();
  return true;
}

std::optional<ForwardResult> Interpreter::forward(const StepInputs &inputs,
                                                  DiagnosticEngine &diag) {
  if (!begin(inputs, diag) || !run(0, lossEnd, diag)) {
    return std::nullopt;
  }
  ForwardResult result;
  result.loss = slots[loss].item<double>();
  if (validTargets >= 0) {
    result.validTargets = slots[validTargets].item<int64_t>();
  }
  if (logits >= 0) {
    result.logits = slots[logits];
  }
  releaseAll();
  return result;
}
