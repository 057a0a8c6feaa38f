//===- CpRewriter.h - The state of one cp-rewrite ---------------*- C++ -*-===//
//
// cp-rewrite's two parts share this: the walk that cuts arguments and infers
// types again (CpRewrite.cpp), and what stands in for an operation that demands
// the whole sequence (CpRewriteOps.cpp).
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_CPREWRITER_H
#define HP_LIB_PASSES_CPREWRITER_H

#include "Retype.h"
#include "llvm/ADT/DenseMap.h"

namespace hp {

class CpRewriter {
public:
  enum class Attention { Ring, AllGather, AllToAll };
  enum class Recurrence { State, AllToAll };

  CpRewriter(Module &module, DiagnosticEngine &diag, Attention attention,
             Recurrence recurrence)
      : module(module), diag(diag), attention(attention),
        recurrence(recurrence), axes(module.contextAxes().list()) {}

  /// Rewrites every function and block. The module must be at stage cp.
  bool rewrite();

  uint64_t attentions = 0, convolutions = 0, recurrences = 0, counts = 0;

private:
  /// A dim of an operand that is cut over cp and must be whole, and the letter
  /// that the operation's rule has for it.
  struct WholeDim {
    unsigned operand, dim;
    char factor;
  };
  /// What an all-to-all over heads must know of an operation: which operands
  /// have heads and which groups of heads, and what they are in configurations.
  struct HeadOperands {
    unsigned heads;                  ///< the first operand with all heads
    llvm::ArrayRef<unsigned> groups; ///< operands with a group for each few
    llvm::StringRef headField, groupField;
    llvm::StringRef option;       ///< `attention=alltoall`
    llvm::StringRef alternatives; ///< `attention=ring or ...`
  };

  //--- CpRewrite.cpp ----------------------------------------------------------
  bool findSequence();
  bool checkSequence();
  void cutArguments(Block &body);
  bool rewriteBody(Block &body);
  std::optional<WholeDim> cutWholeDim(const Operation &op);
  bool rewriteWhole(Operation &op, WholeDim whole);
  bool sumCounts(Operation &op);
  bool retype(Operation &op) { return hp::retype(op, "cp-rewrite", diag); }
  InFlightDiagnostic error(Location loc);
  /// `cp = 4`, `cp * tp = 4 * 2 = 8`.
  std::string degrees(bool withTensorAxes) const;
  int64_t numShards() const { return module.mesh.size(axes); }

  //--- CpRewriteOps.cpp -------------------------------------------------------
  bool rewriteAttention(Operation &op);
  bool rewriteConvolution(Operation &op);
  bool rewriteRecurrence(Operation &op);
  bool ringAttention(Operation &op);
  bool gatherAttention(Operation &op);
  bool handStatesOn(Operation &op);
  bool computeByHeads(Operation &op, const HeadOperands &heads);
  std::optional<int64_t> repeatsOfGroups(const Operation &op,
                                         const HeadOperands &heads);
  std::string headCount(const Operation &op, unsigned operand,
                        llvm::StringRef field);
  /// The label of dim `dim` of operand `operand`, by which a collective names
  /// it; empty, after an error, if it has none of its own.
  llvm::StringRef dimLabel(const Operation &op, unsigned operand, unsigned dim);
  /// Adds a result and infers the type of all. Null after an error.
  Value *addResult(Operation &op, llvm::StringRef name);
  /// `suffix` after the name of what operand `operand` reads.
  std::string derivedName(const Operation &op, unsigned operand,
                          llvm::StringRef suffix);

  Module &module;
  DiagnosticEngine &diag;
  const Attention attention;
  const Recurrence recurrence;
  const AxisList axes;      ///< of context parallelism
  llvm::StringRef sequence; ///< the dim that they cut: `S`
  //--- Of the body being rewritten --------------------------------------------
  BlockNames *names = nullptr;
  /// The all_reduce that reads a value.
  llvm::DenseMap<const Value *, Operation *> reductions;
};

} // namespace hp

#endif // HP_LIB_PASSES_CPREWRITER_H
