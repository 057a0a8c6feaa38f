//===- Interpreter.cpp - Runs a step program ------------------------------===//

#include "hp/Runtime/Interpreter.h"
#include "StepKernels.h"
#include "comm/Exchange.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/AllocationMeter.h"
#include "hp/Runtime/Pieces.h"
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

void Interpreter::hold(unsigned slot, size_t rank, const at::Tensor &tensor) {
  slots[slot].resize(numLocal());
  slots[slot][rank] = tensor;
  if (!tensor.defined()) {
    return;
  }
  Holdings &holdings = held[rank];
  const auto &storage = tensor.storage();
  if (holdings.storages[storage.unsafeGetStorageImpl()]++ == 0) {
    holdings.live += storage.nbytes();
    holdings.peak = std::max(holdings.peak, holdings.live);
  }
}

void Interpreter::release(unsigned slot) {
  for (auto [rank, tensor] : llvm::enumerate(slots[slot])) {
    if (!tensor.defined()) {
      continue;
    }
    Holdings &holdings = held[rank];
    const auto &storage = tensor.storage();
    auto it = holdings.storages.find(storage.unsafeGetStorageImpl());
    if (--it->second == 0) {
      holdings.live -= storage.nbytes();
      holdings.storages.erase(it);
    }
    tensor.reset();
  }
}

void Interpreter::releaseAll() {
  for (unsigned slot = 0; slot < slots.size(); ++slot) {
    release(slot);
  }
  for (Reduction &reduction : reductions) {
    reduction.pending.clear();
  }
  underWay.clear();
}

at::Tensor Interpreter::read(const Source &source, size_t rank) const {
  switch (source.kind) {
  case Source::None:
    return {};
  case Source::Slot:
    return slots[source.index][rank];
  case Source::Parameter:
    return stores[rank].all()[source.index].value;
  case Source::Placeholder:
    return placeholders[source.index];
  }
  return {};
}

Interpreter::Ranked Interpreter::readAll(const Source &source) const {
  Ranked tensors;
  for (size_t rank = 0; rank < numLocal(); ++rank) {
    tensors.push_back(read(source, rank));
  }
  return tensors;
}

//===----------------------------------------------------------------------===//
// Computing
//===----------------------------------------------------------------------===//

/// Computes on one rank what an instruction makes, by its kind.
Tensors Interpreter::computeLocal(const Instruction &instruction, size_t rank) {
  const Operation &op = *instruction.op;
  Tensors x;
  for (const Source &source : instruction.operands) {
    x.push_back(read(source, rank));
  }
  llvm::ArrayRef<at::Tensor> operands = x;
  if (op.backward) {
    unsigned forward = instruction.numForward;
    unsigned saved = instruction.numSaved;
    unsigned cotangents = instruction.numCotangents;
    return kernels[rank]->backward(
        op, operands.take_front(forward), operands.slice(forward, saved),
        operands.slice(forward + saved, cotangents),
        operands.drop_front(forward + saved + cotangents));
  }
  switch (op.kind) {
  case OpKind::Ones:
    return {at::ones({}, scalarType(op.results[0]->type.dtype()))};
  case OpKind::SumSquares:
    return {sumSquares(operands[0])};
  case OpKind::Sum:
    return {sumScalars(operands)};
  case OpKind::GradNorm:
    return {hp::gradNorm(operands)};
  case OpKind::ClipCoef:
    return {clipCoefficient(operands[0], op.attrs.getFloat("max_norm", 0))};
  case OpKind::Finite:
    return {isFinite(operands)};
  case OpKind::AdamW:
    if (operands[5].item<bool>()) {
      adamw(stores[rank].all()[instruction.operands[0].index], operands[1],
            operands[2].item<double>(), operands[3].item<double>(),
            operands[4].item<int64_t>() + 1,
            {op.attrs.getFloat("beta1", 0), op.attrs.getFloat("beta2", 0),
             op.attrs.getFloat("eps", 0),
             op.attrs.getFloat("weight_decay", 0)});
    }
    return {};
  default:
    return kernels[rank]->forward(op, operands);
  }
}

std::vector<Interpreter::Ranked>
Interpreter::computeCollective(const Instruction &instruction) {
  const Operation &op = *instruction.op;
  std::vector<Ranked> operands;
  for (const Source &source : instruction.operands) {
    operands.push_back(readAll(source));
  }
  auto all = llvm::ArrayRef(operands);
  return runCollective({op, comm, kernels, all.take_front(op.operands.size()),
                        all.drop_front(op.operands.size())});
}

/// What the messages that `op` started make: filled, or with async, filled
/// after the wait for `op`.
std::vector<Interpreter::Ranked> Interpreter::started(const Operation &op,
                                                      StartedBucket bucket) {
  if (bucket.finish && op.attrs.getFlag("async")) {
    underWay[&op] = std::move(bucket.finish);
  } else if (bucket.finish) {
    bucket.finish();
  }
  return std::move(bucket.results);
}

/// A run of reductions was started by its first one.
void Interpreter::wait(const Operation &op) {
  for (const Operand &operand : op.operands) {
    const Operation *start = operand.value->owner;
    if (start->is(OpKind::ReduceGrad)) {
      start = reductions[runOf.lookup(start).first].run.members.front();
    }
    auto it = underWay.find(start);
    if (it != underWay.end()) {
      std::function<void()> finish = std::move(it->second);
      underWay.erase(it);
      finish();
    }
  }
}

std::vector<Interpreter::Ranked>
Interpreter::computeUnshard(const Instruction &instruction) {
  std::vector<Ranked> pieces;
  for (unsigned index : instruction.gatheredFrom) {
    pieces.push_back(readAll({Source::Parameter, index}));
  }
  return started(*instruction.op,
                 startUnshard(comm, instruction.gathered, pieces));
}

Interpreter::Ranked
Interpreter::computeReduction(const Instruction &instruction) {
  Reduction &reduction = reductions[instruction.run];
  if (instruction.member == 0) {
    std::vector<Ranked> gradients;
    for (const Source &source : reduction.gradients) {
      gradients.push_back(readAll(source));
    }
    reduction.pending =
        started(*instruction.op,
                startReduction(comm, module, reduction.run, gradients));
  }
  return std::move(reduction.pending[instruction.member]);
}

std::vector<Interpreter::Ranked>
Interpreter::compute(Instruction &instruction) {
  const Operation &op = *instruction.op;
  if (op.info().category == OpCategory::Collective) {
    return computeCollective(instruction);
  }
  if (op.is(OpKind::FsdpUnshard)) {
    return computeUnshard(instruction);
  }
  if (op.is(OpKind::ReduceGrad)) {
    return {computeReduction(instruction)};
  }
  if (op.is(OpKind::Wait)) {
    wait(op);
    return {};
  }
  if (op.info().category == OpCategory::Structure) {
    return {}; // free, reshard, return
  }
  std::vector<Ranked> results(instruction.results.size());
  for (size_t rank = 0; rank < numLocal(); ++rank) {
    Tensors made = computeLocal(instruction, rank);
    for (auto [result, tensor] : llvm::zip(results, made)) {
      result.push_back(tensor);
    }
  }
  return results;
}

bool Interpreter::execute(Instruction &instruction, DiagnosticEngine &diag) {
  std::vector<Ranked> results;
  AllocationMeter::resetPeak();
  try {
    Clock::time_point start = Clock::now();
    results = compute(instruction);
    kernelTime += secondsSince(start);
    workspace = std::max(workspace,
                         AllocationMeter::peak() - AllocationMeter::current());
  } catch (const std::exception &failure) {
    return diag.error(instruction.op->loc)
           << "'" << instruction.op->spelling()
           << "' failed: " << firstLine(failure);
  }
  for (auto [index, slot] : llvm::enumerate(instruction.results)) {
    if (slot < 0) {
      continue;
    }
    for (size_t rank = 0; rank < numLocal(); ++rank) {
      hold(slot, rank, results[index][rank]);
    }
    if (observer && !instruction.op->is(OpKind::FsdpUnshard)) {
      observer(*instruction.op->results[index], results[index]);
    }
  }
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

//===----------------------------------------------------------------------===//
// Steps
//===----------------------------------------------------------------------===//

/// Puts the inputs into their slots.
bool Interpreter::begin(llvm::ArrayRef<StepInputs> inputs,
                        DiagnosticEngine &diag) {
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
  if (inputs.size() != numLocal()) {
    return diag.error(function.loc)
           << "inputs of " << inputs.size() << " ranks are given; "
           << numLocal() << " are computed here";
  }
  for (auto [rank, input] : llvm::enumerate(inputs)) {
    if (!check(tokens, input.tokens) || !check(labels, input.labels) ||
        !check(positions, input.positions)) {
      releaseAll();
      return false;
    }
    hold(tokens, rank, input.tokens);
    hold(labels, rank, input.labels);
    hold(positions, rank, input.positions);
    hold(learningRate, rank,
         at::scalar_tensor(input.learningRate, at::kDouble));
    hold(updates, rank, at::scalar_tensor(stores[rank].updates, at::kLong));
  }
  return true;
}

std::optional<StepResult> Interpreter::step(llvm::ArrayRef<StepInputs> inputs,
                                            DiagnosticEngine &diag) {
  Clock::time_point start = Clock::now();
  comm.resetTraffic();
  if (!begin(inputs, diag) || !run(0, program.size(), diag)) {
    return std::nullopt;
  }
  sent.add(comm.traffic());
  StepResult result;
  result.loss = slots[loss][0].item<double>();
  result.gradNorm = slots[gradNorm][0].item<double>();
  result.updated = slots[updated][0].item<bool>();
  if (validTargets >= 0) {
    result.validTargets = slots[validTargets][0].item<int64_t>();
  }
  for (ParameterStore &store : stores) {
    store.updates += result.updated;
  }
  releaseAll();
  totalTime += secondsSince(start);
  return result;
}

bool Interpreter::gradients(llvm::ArrayRef<StepInputs> inputs,
                            const GradientVisitor &visit,
                            DiagnosticEngine &diag) {
  if (!begin(inputs, diag) || !run(0, updateBegin, diag)) {
    return false;
  }
  for (const Instruction &instruction : program) {
    if (!instruction.op->is(OpKind::AdamW)) {
      continue;
    }
    const StoredParameter &parameter =
        stores[0].all()[instruction.operands[0].index];
    try {
      visit(parameter.name,
            assemble(comm, parameter.type, readAll(instruction.operands[1])));
    } catch (const std::exception &failure) {
      releaseAll();
      return diag.error(instruction.op->loc)
             << "cannot gather the gradient of '@" << parameter.name
             << "': " << firstLine(failure);
    }
  }
  releaseAll();
  return true;
}

std::optional<ForwardResult>
Interpreter::forward(llvm::ArrayRef<StepInputs> inputs,
                     DiagnosticEngine &diag) {
  if (!begin(inputs, diag) || !run(0, lossEnd, diag)) {
    return std::nullopt;
  }
  ForwardResult result;
  result.loss = slots[loss][0].item<double>();
  if (validTargets >= 0) {
    result.validTargets = slots[validTargets][0].item<int64_t>();
  }
  if (logits >= 0) {
    try {
      result.logits = assemble(comm, logitsType, slots[logits]);
    } catch (const std::exception &failure) {
      diag.error(module.loc)
          << "cannot gather the logits: " << firstLine(failure);
      releaseAll();
      return std::nullopt;
    }
  }
  releaseAll();
  return result;
}

std::vector<StepInputs> hp::cutInputs(const StepInputs &whole, Module &step,
                                      llvm::ArrayRef<int64_t> ranks) {
  std::vector<StepInputs> inputs;
  for (int64_t rank : ranks) {
    auto cut = [&](StringRef name, const at::Tensor &tensor) {
      for (const Value *argument : step.findFunction("step")->body->arguments) {
        if (argument->name == name) {
          return cutPiece(tensor, placementOf(argument->type, step.mesh, rank));
        }
      }
      return tensor;
    };
    inputs.push_back({cut("tok", whole.tokens), cut("lab", whole.labels),
                      cut("pos", whole.positions), whole.learningRate});
  }
  return inputs;
}

KernelSets hp::makeReferenceKernels(const Communicator &comm) {
  KernelSets kernels;
  for (int64_t rank : comm.localRanks()) {
    kernels.push_back(makeReferenceKernels(rank));
  }
  return kernels;
}
