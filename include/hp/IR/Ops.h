//===- Ops.h - The rows of Ops.def as data ----------------------*- C++ -*-===//
//
// What the table says of an operation, parsed once. The engine in InferTypes.h,
// the printer, expand-step, the memory analysis and --list-ops all read these
// rows; none has a switch over operations of its own beyond views, collectives
// and kernels.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_OPS_H
#define HP_IR_OPS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <optional>
#include <string>

namespace hp {

enum class OpKind : uint8_t {
#define HP_OP(NAME, ...) NAME,
#include "hp/IR/Ops.def"
};
constexpr unsigned numOpKinds = 0
#define HP_OP(NAME, ...) +1
#include "hp/IR/Ops.def"
    ;

enum class OpCategory : uint8_t { Local, View, Collective, Structure, Step };

/// In which way an operation is linear in its operands; see Ops.def.
enum class Linearity : uint8_t { None, Joint, Multi };

/// The stages of a module, in pipeline order.
enum class Stage : uint8_t { Spec, Annotated, CP, TP, AC, Plan, Step };
llvm::StringRef name(Stage stage);
std::optional<Stage> parseStage(llvm::StringRef name);

/// One variant of a rule: the factor letters of each operand and result. A
/// leading '*' stands for any number of dims.
struct RuleVariant {
  llvm::SmallVector<std::string, 6> operands;
  llvm::SmallVector<std::string, 2> results;
};

/// One attribute an operation may carry.
struct AttributeSpec {
  std::string name;
  char kind; ///< i f b w a d, see Ops.def
  bool optional;
};

struct OpInfo {
  OpKind kind;
  llvm::StringRef spelling;
  OpCategory category;
  llvm::SmallVector<RuleVariant, 2> variants; ///< empty where code decides
  llvm::StringRef whole;
  Linearity linearity;
  llvm::StringRef diff, needs, saved, cotangents, storage, bwdStorage, flops;
  Stage firstStage, lastStage;
  llvm::SmallVector<AttributeSpec, 4> attributes;
  llvm::StringRef summary;
  llvm::StringRef ruleText; ///< as in the table, for --list-ops

  bool isDifferentiable() const { return !diff.empty(); }
  /// Whether the adjoint is written `spelling.bwd` (and not as collectives).
  bool hasBackwardOp() const {
    return isDifferentiable() && !bwdStorage.empty();
  }
  /// Positions of the operands that have a gradient, of `numOperands`.
  llvm::SmallVector<unsigned, 6> diffOperands(unsigned numOperands) const;
  /// Whether the adjoint reads the value of operand `index`, or only its type.
  bool needsValue(unsigned index) const;
  /// Results the adjoint reads.
  llvm::SmallVector<unsigned, 2> savedResults() const;
  /// Results that carry a gradient, of `numResults`.
  llvm::SmallVector<unsigned, 3> cotangentResults(unsigned numResults) const;
  /// The operand whose storage result `index` shares; none if fresh.
  std::optional<unsigned> viewOf(unsigned index) const;
  /// Whether gradient `index` takes over the storage of the cotangent.
  bool passesCotangent(unsigned index) const;
  /// The factors that no axis may cut in this variant: `whole`, and the
  /// sequence where another variant takes blocks from the shard before.
  std::string wholeFactors(const RuleVariant &variant) const;
  /// Whether the flag `recompute` is legal: its results may be computed again
  /// for the backward instead of being kept.
  bool canBeRecomputed() const;
  /// One of `attributes`, or `recompute`; null for another name.
  const AttributeSpec *findAttribute(llvm::StringRef name) const;
};

const OpInfo &opInfo(OpKind kind);
/// All rows in table order.
llvm::ArrayRef<OpInfo> allOps();
/// The row of a forward spelling (`rms_norm`, not `rms_norm.bwd`).
const OpInfo *findOp(llvm::StringRef spelling);

} // namespace hp

#endif // HP_IR_OPS_H
