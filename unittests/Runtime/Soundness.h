//===- Soundness.h - Judges a typing by running it --------------*- C++ -*-===//
//
// Takes one row of the table, deals its operands out to two ranks by given
// types, runs the operation and its adjoint on both, and compares what they
// hold, read by the types of results and by the duals of those of operands,
// with the unsharded operation in float64.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_SOUNDNESS_H
#define HP_UNITTESTS_RUNTIME_SOUNDNESS_H

#include "KernelRows.h"
#include "Sharding.h"

namespace hp::testing {

using TypeList = llvm::SmallVector<Type, 4>;

class Soundness {
public:
  explicit Soundness(const KernelRow &row);

  /// Calls `visit` with the operand types of every combination of states.
  void enumerate(llvm::function_ref<void(const TypeList &)> visit);

  /// What the engine says of these operands; none if it refuses.
  std::optional<TypeList> infer(const TypeList &types);

  /// What is wrong with giving operands of `types` the results `results`, found
  /// by running both ranks; empty if nothing is.
  std::string judge(const TypeList &types, const TypeList &results);

  /// The whole types of the operands, and what the engine makes of them.
  TypeList operandTypes();
  TypeList resultTypes();
  /// `type` in a state: `I`, `R`, `P`, or the number of the dim that is cut.
  Type inNamedState(Type type, llvm::StringRef state);
  TypeList inNamedStates(const TypeList &types,
                         llvm::ArrayRef<const char *> states);

  std::string describe(const TypeList &types);

private:
  /// The row without sharding, its sequence in one block or in several.
  struct Whole {
    Tensors results, cotangents, gradients;
  };

  Tensors operandsOfBlock(int64_t block, int64_t count);
  Whole runWhole(int64_t count);
  const Whole &expectedFor(const TypeList &results);
  std::string judgeResults(const std::array<Tensors, 2> &held,
                           const TypeList &types, const Whole &expected);
  std::string judgeAdjoint(const Operation &op, std::array<Tensors, 2> held,
                           const TypeList &types, const TypeList &results,
                           const Whole &expected);

  const KernelRow &row;
  const OpInfo &info;
  OperationMaker maker;
  Operation *like;
  std::unique_ptr<KernelSet> kernels[2];
  Tensors operands;
  std::vector<Whole> whole;
};

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_SOUNDNESS_H
