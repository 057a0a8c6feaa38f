//===- LocalRule.h - A rule of the table, bound to operands -----*- C++ -*-===//
//
// Shared by LocalTypes.cpp, which binds letters to dims, and LocalStates.cpp,
// which finds the state of each axis. Private to lib/IR.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_LOCALRULE_H
#define HP_LIB_IR_LOCALRULE_H

#include "TypeRules.h"
#include <array>

namespace hp {

/// A letter of the rule, or, below `maxStarDims`, a dim that `*` stands for.
using Factor = unsigned char;
inline constexpr unsigned numFactors = 128;
/// More dims than any operation takes.
inline constexpr unsigned maxStarDims = 16;

/// One variant of a rule, bound to operands.
class BoundRule {
public:
  BoundRule(const TypeQuery &query, const RuleVariant &rule, std::string whole)
      : query(query), rule(rule), whole(std::move(whole)),
        hasGroups(mentions('g') && mentions('h')),
        hasBlocks(mentions('n') && mentions('s')) {}

  /// Letters to dims, and that sizes agree.
  llvm::Error bind();
  /// That dtypes fit one another and the operation.
  llvm::Error checkDTypes();
  /// That the axes of heads and of groups of heads fit.
  llvm::Error checkGroups();
  /// That blocks are one for each shard.
  llvm::Error checkBlocks();
  /// The state of `axis` in the results.
  llvm::Error infer(AxisId axis);
  /// That a factor has the same axes, in the same order, in all operands.
  llvm::Error checkAxisOrder();
  TypeList results(DType dtype);

private:
  bool mentions(char letter) const;
  llvm::SmallVector<Factor, 6> factorsOf(llvm::StringRef side) const;
  llvm::Error unify(Factor factor, const Dim &dim, unsigned operand);
  /// What an axis that cuts `factor` cuts: heads and their groups are one, a
  /// sequence and its blocks are one.
  Factor cut(Factor factor) const {
    return hasGroups && factor == 'g'   ? 'h'
           : hasBlocks && factor == 'n' ? 's'
                                        : factor;
  }
  bool has(unsigned operand, char letter) const {
    return llvm::StringRef(rule.operands[operand]).contains(letter);
  }
  bool reads(unsigned operand, Factor factor) const;
  bool gives(Factor factor) const;
  bool isDifferentiable(unsigned operand) const {
    return isFloat(query.operands[operand].dtype());
  }
  bool isLinearIn(unsigned operand) const {
    return llvm::is_contained(query.info.diffOperands(query.operands.size()),
                              operand);
  }
  /// `factor 'k'`, `dim 0`.
  std::string describe(Factor factor) const;
  llvm::Error refusePartial(AxisId axis, llvm::ArrayRef<State> states,
                            llvm::ArrayRef<Factor> cuts);

  const TypeQuery &query;
  const RuleVariant &rule;
  const std::string whole;
  const bool hasGroups, hasBlocks;
  unsigned numStarDims = 0;
  /// For each operand, the factor of each dim.
  llvm::SmallVector<llvm::SmallVector<Factor, 6>, 6> factors;
  /// For each factor, the first dim bound to it and its operand.
  std::array<const Dim *, numFactors> dims{};
  std::array<unsigned, numFactors> owners{};
  /// Axes that cut heads inside a group: groups are replicated over them.
  AxisSet insideGroups;
  AxisSet repl, partial;
};

} // namespace hp

#endif // HP_LIB_IR_LOCALRULE_H
