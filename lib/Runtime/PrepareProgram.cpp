//===- PrepareProgram.cpp - From the text of a step to slots --------------===//
//
// Everything that can be looked up before the first step is looked up here:
// slots, parameters, placeholders for operands of which only the type is read,
// which slots share a storage and end together.
//
//===----------------------------------------------------------------------===//

#include "CheckRoles.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/Interpreter.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::StringRef;

std::unique_ptr<Interpreter> Interpreter::create(Module &module,
                                                 Communicator &comm,
                                                 const KernelSets &kernels,
                                                 ParameterStores &stores,
                                                 DiagnosticEngine &diag) {
  std::unique_ptr<Interpreter> interpreter(
      new Interpreter(module, comm, kernels, stores));
  if (!interpreter->prepare(diag)) {
    return nullptr;
  }
  return interpreter;
}

unsigned Interpreter::slotOf(const Value *value) {
  auto [it, inserted] = slotIndex.try_emplace(value, slots.size());
  if (inserted) {
    slots.emplace_back();
  }
  return it->second;
}

/// Where a bundle has a parameter.
unsigned Interpreter::bundleSlot(const Value *bundle, const Param *param) {
  auto [it, inserted] =
      bundleIndex.try_emplace({bundle, param}, unsigned(slots.size()));
  if (inserted) {
    slots.emplace_back();
  }
  return it->second;
}

bool Interpreter::prepare(DiagnosticEngine &diag) {
  Function *function = module.findFunction("step");
  if (module.stage != Stage::Step || !function) {
    return diag.error(module.loc)
           << "only a module at stage 'step' can be run; this one is at stage '"
           << hp::name(module.stage) << "'";
  }
  size_t local = comm.localRanks().size();
  if (module.mesh.numRanks() != comm.mesh().numRanks() ||
      kernels.size() != local || stores.size() != local) {
    return diag.error(module.loc)
           << "the plan is made for " << module.mesh.numRanks()
           << " ranks, and " << comm.mesh().numRanks() << " are running";
  }
  if (!prepareArguments(*function, diag)) {
    return false;
  }
  for (ReductionRun &run : reductionRuns(*function)) {
    for (auto [member, op] : llvm::enumerate(run.members)) {
      runOf[op] = {unsigned(reductions.size()), unsigned(member)};
    }
    reductions.push_back({std::move(run), {}, {}});
  }
  for (const Operation &op : function->body->ops) {
    if (!prepareInstruction(op, diag)) {
      return false;
    }
  }
  if (!checkRoles(*function, diag)) {
    return false;
  }
  if (lossEnd == 0) {
    return diag.error(function->loc)
           << "the step has no backward part: no 'ones' follows the loss";
  }
  return true;
}

/// Arguments are known by name; their types say the rest.
bool Interpreter::prepareArguments(Function &function, DiagnosticEngine &diag) {
  struct Expected {
    StringRef name;
    DType dtype;
    unsigned rank;
    unsigned *slot;
  } expected[] = {{"tok", DType::I64, 2, &tokens},
                  {"lab", DType::I64, 2, &labels},
                  {"pos", DType::I64, 1, &positions},
                  {"lr", DType::F64, 0, &learningRate},
                  {"t", DType::I64, 0, &updates}};
  auto arguments = llvm::ArrayRef(function.body->arguments);
  for (const Value *argument : arguments) {
    slotOf(argument); // so that argument i has slot i
  }
  for (const Expected &want : expected) {
    const Value *found = nullptr;
    for (const Value *argument : arguments) {
      if (argument->name == want.name) {
        found = argument;
      }
    }
    if (!found || found->type.dtype() != want.dtype ||
        found->type.rank() != want.rank) {
      return diag.error(function.loc)
             << "@step must have an argument '%" << want.name << "' of "
             << hp::name(want.dtype) << " with " << want.rank << " dims";
    }
    *want.slot = slotOf(found);
  }
  if (arguments.size() != std::size(expected)) {
    return diag.error(function.loc)
           << "@step must have the arguments %tok, %lab, %pos, %lr and %t only";
  }
  return true;
}

/// Where an operand's tensor comes from.
std::optional<Interpreter::Source> Interpreter::source(const Operand &operand,
                                                       const Operation &op,
                                                       DiagnosticEngine &diag) {
  if (operand.isNone()) {
    return Source{};
  }
  if (operand.typeOnly) {
    Type type = operand.type(module);
    auto shape = type.localShape(module.mesh);
    placeholders.push_back(
        at::zeros({}, scalarType(type.dtype()))
            .expand(at::IntArrayRef(shape.data(), shape.size())));
    return Source{Source::Placeholder, unsigned(placeholders.size() - 1)};
  }
  if (!operand.param) {
    return Source{Source::Slot, slotOf(operand.value)};
  }
  if (operand.value && operand.param->type->store) {
    return Source{Source::Slot, bundleSlot(operand.value, operand.param)};
  }
  std::optional<unsigned> index = storedAt(*operand.param, op, diag);
  if (!index) {
    return std::nullopt;
  }
  return Source{Source::Parameter, *index};
}

/// The position of `param` in the stores.
std::optional<unsigned> Interpreter::storedAt(const Param &param,
                                              const Operation &op,
                                              DiagnosticEngine &diag) {
  std::optional<unsigned> index;
  for (auto [rank, store] : llvm::zip(comm.localRanks(), stores)) {
    StoredParameter *stored = store.find(param.name);
    DType dtype =
        param.type->store ? param.type->store->dtype : param.type.dtype();
    Extents shape = placementOf(param.type, module.mesh, rank).shape;
    if (!stored ||
        llvm::ArrayRef<int64_t>(stored->value.sizes().data(),
                                stored->value.dim()) !=
            llvm::ArrayRef<int64_t>(shape) ||
        stored->value.scalar_type() != scalarType(dtype)) {
      diag.error(op.loc) << "parameter '@" << param.name << "' of type "
                         << str(param.type, module)
                         << " is not among the weights loaded";
      return std::nullopt;
    }
    index = unsigned(stored - store.all().data());
  }
  return index;
}

/// Results of an unshard are the parameters it gathers; a reshard frees them.
bool Interpreter::prepareBundle(const Operation &op, Instruction &instruction,
                                DiagnosticEngine &diag) {
  const Value *bundle =
      op.is(OpKind::FsdpUnshard) ? op.results[0] : op.operands[0].value;
  const Operation *unshard = bundle->owner;
  for (Param *param : bundleParams(module, *unshard)) {
    if (!param->type->store) {
      continue; // read where it is stored
    }
    unsigned slot = bundleSlot(bundle, param);
    if (op.is(OpKind::FsdpReshard)) {
      instruction.frees.push_back(slot);
      continue;
    }
    std::optional<unsigned> index = storedAt(*param, op, diag);
    if (!index) {
      return false;
    }
    instruction.gathered.push_back(param);
    instruction.gatheredFrom.push_back(*index);
    instruction.results.push_back(slot);
  }
  return true;
}

/// Gives results their slots, each in the storage it shares.
void Interpreter::prepareResults(const Operation &op,
                                 Instruction &instruction) {
  for (unsigned index = 0; index < op.results.size(); ++index) {
    const Value *result = op.results[index];
    if (!result) {
      instruction.results.push_back(-1);
      continue;
    }
    unsigned slot = slotOf(result);
    instruction.results.push_back(slot);
    const Operand *from = op.sharesStorageWith(index);
    unsigned root = slot;
    if (from && from->value && !from->param) {
      unsigned operandSlot = slotOf(from->value);
      auto it = rootOf.find(operandSlot);
      root = it == rootOf.end() ? operandSlot : it->second;
    }
    rootOf[slot] = root;
    sharing[root].push_back(slot);
  }
}

/// %loss, %gnorm, then the number of valid targets if there is one, %ok.
bool Interpreter::prepareReturn(const Operation &op, DiagnosticEngine &diag) {
  size_t count = op.operands.size();
  if (count < 3 || count > 4 ||
      llvm::any_of(op.operands, [](const Operand &operand) {
        return !operand.value || operand.value->isBundle() ||
               operand.value->type.rank() != 0;
      })) {
    return diag.error(op.loc) << "@step must return the loss, the gradient "
                                 "norm, the number of valid targets and "
                                 "whether it updated";
  }
  loss = slotOf(op.operands[0].value);
  gradNorm = slotOf(op.operands[1].value);
  updated = slotOf(op.operands.back().value);
  validTargets = count == 4 ? int(slotOf(op.operands[2].value)) : -1;
  return true;
}

bool Interpreter::prepareInstruction(const Operation &op,
                                     DiagnosticEngine &diag) {
  if (op.is(OpKind::Stack) || op.is(OpKind::Call)) {
    return diag.error(op.loc)
           << "'" << op.spelling() << "' has no meaning in a step";
  }
  Instruction instruction;
  instruction.op = &op;
  if (op.is(OpKind::FsdpUnshard) || op.is(OpKind::FsdpReshard)) {
    if (!prepareBundle(op, instruction, diag)) {
      return false;
    }
    program.push_back(std::move(instruction));
    return true;
  }
  if (op.is(OpKind::Wait)) {
    program.push_back(std::move(instruction)); // reads no value
    return true;
  }
  if (op.is(OpKind::Free)) {
    for (const Operand &operand : op.operands) {
      auto shared = sharing.find(slotOf(operand.value));
      if (shared != sharing.end()) {
        instruction.frees.append(shared->second.begin(), shared->second.end());
      }
    }
    program.push_back(std::move(instruction));
    return true;
  }
  for (const Operand &operand :
       llvm::concat<const Operand>(op.operands, op.acc)) {
    std::optional<Source> from = source(operand, op, diag);
    if (!from) {
      return false;
    }
    instruction.operands.push_back(*from);
  }
  if (op.backward) {
    instruction.numForward = op.numForwardOperands();
    instruction.numSaved = op.info().savedResults().size();
    instruction.numCotangents =
        op.operands.size() - instruction.numForward - instruction.numSaved;
  }
  if (op.is(OpKind::AdamW) && op.operands.size() != 6) {
    return diag.error(op.loc)
           << "'adamw' needs a parameter, its gradient, the clip coefficient, "
              "the learning rate, the step count and whether to update";
  }
  if (op.is(OpKind::ReduceGrad)) {
    std::tie(instruction.run, instruction.member) = runOf.lookup(&op);
    reductions[instruction.run].gradients.push_back(instruction.operands[0]);
  }
  prepareResults(op, instruction);

  if (op.is(OpKind::Ones)) {
    lossEnd = program.size();
  } else if (op.is(OpKind::AdamW)) {
    updateBegin = updateBegin ? updateBegin : program.size();
  } else if (op.is(OpKind::CrossEntropy) || op.is(OpKind::CrossEntropyVp)) {
    logits = slotOf(op.operands[0].value);
    logitsType = op.operands[0].value->type;
  } else if (op.is(OpKind::Return) && !prepareReturn(op, diag)) {
    return false;
  }
  program.push_back(std::move(instruction));
  return true;
}
