//===- Communicator.h - Messages between ranks ------------------*- C++ -*-===//
//
// The collectives that the runtime is built of, over the groups of a mesh. The
// group of a rank along `axes` are the ranks that differ from it in these axes
// alone, numbered by their coordinates along `axes`, major to minor.
//
// One process computes one or more ranks, its local ranks; every call takes and
// gives one tensor for each of them, in the order of localRanks():
//
//   lockstep   all ranks in one process, for tests, debugging and laptops
//   gloo       one rank in a process, on CPUs
//   nccl       one rank in a process, on GPUs; a plugin
//
// Calls are in the same order on all ranks. A call that fails, or that waits
// longer than comm.train_timeout_seconds, throws c10::Error; the interpreter
// turns it into a diagnostic.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_COMMUNICATOR_H
#define HP_RUNTIME_COMMUNICATOR_H

#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Placement.h"
#include "hp/IR/Mesh.h"
#include <ATen/core/Tensor.h>
#include <memory>
#include <vector>

namespace hp {

enum class Reduction : uint8_t { Sum, Max };

/// A message that is under way.
class Pending {
public:
  virtual ~Pending() = default;
  /// Waits until it is complete. Throws as the call would have.
  virtual void wait() = 0;
};

class Communicator {
public:
  using Tensors = std::vector<at::Tensor>;

  explicit Communicator(const Mesh &mesh) : mesh_(mesh) {}
  virtual ~Communicator() = default;

  const Mesh &mesh() const { return mesh_; }
  /// The ranks that this process computes, ascending.
  virtual llvm::ArrayRef<int64_t> localRanks() const = 0;

  // Operands are contiguous, and of one shape and dtype on all ranks. Results
  // share no storage with operands.

  /// Sums (or takes the maximum of) the group's tensors, in place. All ranks of
  /// a group have the same bytes after.
  void allReduce(Tensors &tensors, llvm::ArrayRef<AxisId> axes,
                 Reduction reduction = Reduction::Sum);
  /// Gives [group, ...]: the group's tensors in order.
  Tensors allGather(const Tensors &operands, llvm::ArrayRef<AxisId> axes);
  /// From [group, ...] gives the sum over the group of everyone's slice `i`,
  /// where `i` is this rank's number in the group.
  Tensors reduceScatter(const Tensors &operands, llvm::ArrayRef<AxisId> axes);
  /// From [group, ...] gives [group, ...]: slice `j` is what rank `j` of the
  /// group had as slice `i`.
  Tensors allToAll(const Tensors &operands, llvm::ArrayRef<AxisId> axes);
  /// Gives the tensor of the rank `distance` before this one in the group, so
  /// that it moves on by `distance`. Cyclic: rank 0 receives from the end;
  /// otherwise ranks without a sender receive zeros. Bytes are counted once on
  /// each rank, whether it sends or not.
  Tensors shift(const Tensors &operands, llvm::ArrayRef<AxisId> axes,
                int64_t distance, bool cyclic);

  // The same, started: what is returned must be waited for before results are
  // read or operands changed. Null where the message is complete already, as
  // in lockstep.

  std::unique_ptr<Pending> startAllReduce(Tensors &tensors,
                                          llvm::ArrayRef<AxisId> axes);
  std::unique_ptr<Pending> startAllGather(const Tensors &operands,
                                          llvm::ArrayRef<AxisId> axes,
                                          Tensors &results);
  std::unique_ptr<Pending> startReduceScatter(const Tensors &operands,
                                              llvm::ArrayRef<AxisId> axes,
                                              Tensors &results);

  /// Waits for all ranks of the mesh.
  virtual void barrier() = 0;

  /// What was sent so far.
  const Traffic &traffic() const { return traffic_; }
  void resetTraffic() { traffic_ = Traffic(); }

  //--- Positions --------------------------------------------------------------
  /// Size of a group along `axes`.
  int64_t groupSize(llvm::ArrayRef<AxisId> axes) const {
    return mesh_.size(axes);
  }
  /// Number of `rank` within its group along `axes`.
  int64_t groupRank(int64_t rank, llvm::ArrayRef<AxisId> axes) const {
    return hp::groupRank(mesh_, rank, axes);
  }
  /// The ranks of the group of `rank` along `axes`, in order.
  std::vector<int64_t> group(int64_t rank, llvm::ArrayRef<AxisId> axes) const {
    return hp::group(mesh_, rank, axes);
  }

protected:
  virtual void doAllReduce(Tensors &tensors, llvm::ArrayRef<AxisId> axes,
                           Reduction reduction) = 0;
  virtual Tensors doAllGather(const Tensors &operands,
                              llvm::ArrayRef<AxisId> axes) = 0;
  virtual Tensors doReduceScatter(const Tensors &operands,
                                  llvm::ArrayRef<AxisId> axes) = 0;
  virtual Tensors doAllToAll(const Tensors &operands,
                             llvm::ArrayRef<AxisId> axes) = 0;
  virtual Tensors doShift(const Tensors &operands, llvm::ArrayRef<AxisId> axes,
                          int64_t distance, bool cyclic) = 0;
  virtual std::unique_ptr<Pending> doStartAllReduce(Tensors &tensors,
                                                    llvm::ArrayRef<AxisId> axes,
                                                    Reduction reduction) {
    doAllReduce(tensors, axes, reduction);
    return nullptr;
  }
  virtual std::unique_ptr<Pending> doStartAllGather(const Tensors &operands,
                                                    llvm::ArrayRef<AxisId> axes,
                                                    Tensors &results) {
    results = doAllGather(operands, axes);
    return nullptr;
  }
  virtual std::unique_ptr<Pending>
  doStartReduceScatter(const Tensors &operands, llvm::ArrayRef<AxisId> axes,
                       Tensors &results) {
    results = doReduceScatter(operands, axes);
    return nullptr;
  }

private:
  /// Throws for operands that the ranks cannot have made in lockstep.
  void checkAndCount(Primitive primitive, const Tensors &operands,
                     llvm::ArrayRef<AxisId> axes);
  Mesh mesh_; ///< a copy
  Traffic traffic_;
};

/// All ranks of `mesh` in this process, one after the other. Sums in the order
/// of the group's ranks.
std::unique_ptr<Communicator> makeLockstepCommunicator(const Mesh &mesh);

} // namespace hp

#endif // HP_RUNTIME_COMMUNICATOR_H
