//===- Soundness.cpp - Judges a typing by running it ----------------------===//

#include "Soundness.h"
#include "hp/IR/InferTypes.h"
#include "hp/IR/Text.h"

using namespace hp;
using namespace hp::testing;
using llvm::Twine;

Soundness::Soundness(const KernelRow &row) : row(row), info(opInfo(row.kind)) {
  maker.module.mesh.addAxis("a", 2);
  like = makeRowOperation(maker, row, at::kDouble);
  for (int rank : {0, 1}) {
    kernels[rank] = makeReferenceKernels(rank);
  }
  operands = sampleOperands(row, at::kDouble, 31);
  whole.push_back(runWhole(row.blocks));
  if (row.kind == OpKind::GdrSummary) {
    whole.push_back(runWhole(2)); // one summary a shard
  }
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

void Soundness::enumerate(llvm::function_ref<void(const TypeList &)> visit) {
  std::vector<std::vector<Type>> options;
  for (Type type : operandTypes()) {
    options.emplace_back();
    for (const TypeData &state : allStates(*type)) {
      options.back().push_back(maker.module.type(state));
    }
  }
  TypeList types(options.size());
  std::function<void(size_t)> choose = [&](size_t index) {
    if (index == options.size()) {
      visit(types);
      return;
    }
    for (Type type : options[index]) {
      types[index] = type;
      choose(index + 1);
    }
  };
  choose(0);
}

std::optional<TypeList> Soundness::infer(const TypeList &types) {
  auto results = inferForward(maker.module, row.kind, types, *like);
  if (!results) {
    llvm::consumeError(results.takeError());
    return std::nullopt;
  }
  return std::move(*results);
}

TypeList Soundness::operandTypes() {
  TypeList types;
  for (const Operand &operand : like->operands) {
    types.push_back(operand.value->type);
  }
  return types;
}

/// Whether dim 1 of a row's operand is the sequence, or its blocks.
static bool isAlongSequence(const RowOperand &operand) {
  return operand.dims.size() > 1 &&
         (operand.dims[1].name() == "S" || operand.dims[1].name() == "n");
}

TypeList Soundness::resultTypes() {
  // Operands of two blocks have no type but that of two shards.
  TypeList types = operandTypes();
  for (auto [type, operand] : llvm::zip(types, row.operands)) {
    if (row.blocks == 2) {
      type = inNamedState(type, isAlongSequence(operand) ? "1" : "R");
    }
  }
  TypeList results = infer(types).value_or(TypeList());
  for (Type &type : results) {
    TypeData data = *type;
    for (Dim &dim : data.dims) {
      dim.axes.clear();
    }
    type = maker.module.type(data);
  }
  return results;
}

Type Soundness::inNamedState(Type type, llvm::StringRef state) {
  unsigned dim = 0;
  if (!state.getAsInteger(10, dim)) {
    return maker.module.type(inState(*type, State::Sharded, dim));
  }
  return maker.module.type(inState(*type, state == "R"   ? State::Replicated
                                          : state == "P" ? State::Partial
                                                         : State::Invariant));
}

TypeList Soundness::inNamedStates(const TypeList &types,
                                  llvm::ArrayRef<const char *> states) {
  TypeList list;
  for (auto [type, state] : llvm::zip(types, states)) {
    list.push_back(inNamedState(type, state));
  }
  return list;
}

std::string Soundness::describe(const TypeList &types) {
  std::string text = row.name;
  for (Type type : types) {
    text += "  " + str(type, maker.module);
  }
  return text;
}

//===----------------------------------------------------------------------===//
// Without sharding
//===----------------------------------------------------------------------===//

/// The operands of block `block` of `count` of the sequence.
Tensors Soundness::operandsOfBlock(int64_t block, int64_t count) {
  Tensors parts;
  for (auto [operand, x] : llvm::zip(row.operands, operands)) {
    parts.push_back(isAlongSequence(operand) ? x.chunk(count, 1)[block] : x);
  }
  return parts;
}

/// The blocks' tensors put together: side by side along the sequence, or, of
/// what all blocks share, the sum.
static Tensors combine(llvm::ArrayRef<Tensors> blocks,
                       llvm::function_ref<bool(size_t)> isShared) {
  Tensors all;
  for (size_t i = 0; i < blocks[0].size(); ++i) {
    std::vector<at::Tensor> parts;
    for (const Tensors &block : blocks) {
      parts.push_back(block[i]);
    }
    if (parts.size() == 1) {
      all.push_back(parts[0]);
    } else if (isShared(i)) {
      all.push_back(at::stack(parts).sum(0));
    } else {
      all.push_back(at::cat(parts, 1));
    }
  }
  return all;
}

/// Runs the row on whole operands, block by block of the sequence.
Soundness::Whole Soundness::runWhole(int64_t count) {
  std::vector<Tensors> results, gradients;
  for (int64_t block = 0; block < count; ++block) {
    results.push_back(
        kernels[0]->forward(*like, operandsOfBlock(block, count)));
  }
  Whole run;
  run.results = combine(results, [](size_t) { return false; });
  if (!info.hasBackwardOp()) {
    return run;
  }
  for (unsigned index : info.cotangentResults(run.results.size())) {
    run.cotangents.push_back(randomLike(run.results[index], 50 + index));
  }
  Operation *adjoint = maker.makeAdjoint(
      *like, TypeList(run.results.size(), maker.module.scalar(DType::F64)));
  for (int64_t block = 0; block < count; ++block) {
    Tensors cotangents;
    for (const at::Tensor &cotangent : run.cotangents) {
      cotangents.push_back(count == 1 ? cotangent
                                      : cotangent.chunk(count, 1)[block]);
    }
    gradients.push_back(kernels[0]->backward(
        *adjoint, operandsOfBlock(block, count), {}, cotangents, {}));
  }
  auto positions = info.diffOperands(row.operands.size());
  run.gradients = combine(gradients, [&](size_t index) {
    return gradients[0][index].sizes() == operands[positions[index]].sizes();
  });
  return run;
}

//===----------------------------------------------------------------------===//
// On two ranks
//===----------------------------------------------------------------------===//

std::string Soundness::judge(const TypeList &types, const TypeList &results) {
  std::array<Tensors, 2> held, made;
  for (auto [index, type] : llvm::enumerate(types)) {
    Pair dealt = dealOut(type, operands[index], 60 + index);
    held[0].push_back(dealt[0]);
    held[1].push_back(dealt[1]);
  }
  Operation *op = maker.make(row.kind, types, row.attrs);
  const Whole &expected = expectedFor(results);
  try {
    for (int rank : {0, 1}) {
      made[rank] = kernels[rank]->forward(*op, held[rank]);
    }
    std::string fault = judgeResults(made, results, expected);
    if (!fault.empty() || !info.hasBackwardOp()) {
      return fault;
    }
    return judgeAdjoint(*op, held, types, results, expected);
  } catch (const std::exception &error) {
    llvm::StringRef what = error.what();
    return ("a kernel fails: " + what.split('\n').first).str();
  }
}

/// Results that name their blocks say how many there are.
const Soundness::Whole &Soundness::expectedFor(const TypeList &results) {
  bool two = whole.size() == 2 && results[0].dims()[1].size() == 2;
  return whole[two ? 1 : 0];
}

std::string Soundness::judgeResults(const std::array<Tensors, 2> &held,
                                    const TypeList &types,
                                    const Whole &expected) {
  for (auto [index, type] : llvm::enumerate(types)) {
    auto made =
        putTogether(type, {held[0][index], held[1][index]}, maker.module.mesh);
    if (!made || !agree(*made, expected.results[index])) {
      return ("result " + Twine(index) + " is not what its type says").str();
    }
  }
  return "";
}

std::string Soundness::judgeAdjoint(const Operation &op,
                                    std::array<Tensors, 2> held,
                                    const TypeList &types,
                                    const TypeList &results,
                                    const Whole &expected) {
  std::array<Tensors, 2> cotangents, gradients;
  for (auto [index, cotangent] :
       llvm::zip(info.cotangentResults(results.size()), expected.cotangents)) {
    Type type = maker.module.dual(results[index]);
    Pair dealt = dealOut(type, cotangent, 80 + index);
    cotangents[0].push_back(dealt[0]);
    cotangents[1].push_back(dealt[1]);
  }
  Operation *adjoint = maker.makeAdjoint(op, results);
  for (int rank : {0, 1}) {
    for (auto [index, operand] : llvm::enumerate(held[rank])) {
      operand = info.needsValue(index) ? operand : placeholder(operand);
    }
    gradients[rank] =
        kernels[rank]->backward(*adjoint, held[rank], {}, cotangents[rank], {});
  }
  auto positions = info.diffOperands(types.size());
  for (auto [index, position] : llvm::enumerate(positions)) {
    auto made = putTogether(maker.module.dual(types[position]),
                            {gradients[0][index], gradients[1][index]},
                            maker.module.mesh);
    if (!made || !agree(*made, expected.gradients[index])) {
      return ("the gradient of operand " + Twine(position) +
              " is not what its type says")
          .str();
    }
  }
  return "";
}
