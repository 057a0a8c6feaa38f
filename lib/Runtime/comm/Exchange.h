//===- Exchange.h - Operations that take all ranks --------------*- C++ -*-===//
//
// What is common to the kernels that communicate. They compute all local ranks
// of a communicator together: a value is one tensor for each of them, and every
// rank makes the same calls in the same order, whatever its coordinates. Ranks
// differ only in what they compute between two calls.
//
// Over a group of one rank an operation gives the bits of the operation without
// the axis: the ring is then sdpa, the vocabulary-parallel loss cross_entropy.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_COMM_EXCHANGE_H
#define HP_LIB_RUNTIME_COMM_EXCHANGE_H

#include "hp/Runtime/Communicator.h"
#include "hp/Runtime/Kernels.h"
#include "hp/Runtime/ParameterStore.h"
#include <functional>

namespace hp {

/// One value, on each local rank.
using Ranked = Communicator::Tensors;

/// One instruction on all local ranks.
struct Exchange {
  const Operation &op;
  Communicator &comm;
  /// Those of the local ranks.
  llvm::ArrayRef<std::unique_ptr<KernelSet>> kernels;
  /// Forward operands, saved results and cotangents.
  llvm::ArrayRef<Ranked> operands;
  llvm::ArrayRef<Ranked> acc;

  size_t numLocal() const { return comm.localRanks().size(); }
  int64_t groupSize() const { return comm.groupSize(op.axes); }
  /// Number of local rank `index` within its group.
  int64_t number(size_t index) const {
    return comm.groupRank(comm.localRanks()[index], op.axes);
  }
  /// The running gradient of result `result` on local rank `index`; undefined
  /// if there is none.
  at::Tensor running(unsigned result, size_t index) const {
    return result < acc.size() ? acc[result][index] : at::Tensor();
  }
};

/// Runs a collective operation or the adjoint of one.
std::vector<Ranked> runCollective(const Exchange &exchange);

//--- Moves.cpp ---------------------------------------------------------------
/// copy_to, shard, all_reduce, all_gather, reduce_scatter, all_to_all.
std::vector<Ranked> moveValue(const Exchange &exchange);

//--- RingAttention.cpp -------------------------------------------------------
std::vector<Ranked> ringAttention(const Exchange &exchange);
std::vector<Ranked> ringAttentionBackward(const Exchange &exchange);

//--- SequenceShards.cpp ------------------------------------------------------
std::vector<Ranked> halo(const Exchange &exchange);
std::vector<Ranked> haloBackward(const Exchange &exchange);
std::vector<Ranked> scan(const Exchange &exchange);
std::vector<Ranked> scanBackward(const Exchange &exchange);

//--- VocabularyLoss.cpp ------------------------------------------------------
std::vector<Ranked> vocabularyLoss(const Exchange &exchange);
std::vector<Ranked> vocabularyLossBackward(const Exchange &exchange);

//--- Buckets.cpp -------------------------------------------------------------
/// A bucket whose messages were started. `results` are allocated, and filled by
/// `finish`; that is empty where they are filled already.
struct StartedBucket {
  std::vector<Ranked> results;
  std::function<void()> finish;
};
/// Starts to gather the whole local tensors of parameters that are stored in
/// pieces, in their compute dtype. `pieces` has one entry for each of `params`,
/// which live on.
StartedBucket startUnshard(Communicator &comm,
                           llvm::ArrayRef<const Param *> params,
                           llvm::ArrayRef<Ranked> pieces);
/// Starts to reduce the gradients of a run, which lives on; see ReductionRun.
/// `gradients` has one entry for each member. Where gradients are both
/// scattered and summed, the sum follows when the bucket is finished.
StartedBucket startReduction(Communicator &comm, Module &module,
                             const ReductionRun &run,
                             llvm::ArrayRef<Ranked> gradients);

/// fp32, or fp64 where `x` is.
inline at::ScalarType wideTypeOf(const at::Tensor &x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

} // namespace hp

#endif // HP_LIB_RUNTIME_COMM_EXCHANGE_H
