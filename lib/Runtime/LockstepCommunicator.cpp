//===- LockstepCommunicator.cpp - All ranks in one process ----------------===//
//
// What messages would bring is read from the other ranks' tensors. Sums go in
// the order of the group's ranks, so that they are the same on every machine.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/Communicator.h"
#include <ATen/ATen.h>
#include <numeric>

using namespace hp;
using llvm::ArrayRef;

namespace {
class LockstepCommunicator : public Communicator {
public:
  explicit LockstepCommunicator(const Mesh &mesh) : Communicator(mesh) {
    ranks.resize(mesh.numRanks());
    std::iota(ranks.begin(), ranks.end(), 0);
  }

  ArrayRef<int64_t> localRanks() const override { return ranks; }
  void barrier() override {}

protected:
  void doAllReduce(Tensors &tensors, ArrayRef<AxisId> axes,
                   Reduction reduction) override {
    for (const std::vector<int64_t> &members : groups(axes)) {
      at::Tensor total = tensors[members[0]].clone();
      for (int64_t member : ArrayRef(members).drop_front()) {
        if (reduction == Reduction::Sum) {
          total.add_(tensors[member]);
        } else {
          total = at::maximum(total, tensors[member]);
        }
      }
      for (int64_t member : members) {
        tensors[member].copy_(total);
      }
    }
  }

  Tensors doAllGather(const Tensors &operands, ArrayRef<AxisId> axes) override {
    return exchange(axes, [&](ArrayRef<int64_t> members, int64_t) {
      std::vector<at::Tensor> pieces;
      for (int64_t member : members) {
        pieces.push_back(operands[member]);
      }
      return at::stack(pieces).contiguous();
    });
  }

  Tensors doReduceScatter(const Tensors &operands,
                          ArrayRef<AxisId> axes) override {
    return exchange(axes, [&](ArrayRef<int64_t> members, int64_t number) {
      at::Tensor total = operands[members[0]][number].clone();
      for (int64_t member : members.drop_front()) {
        total.add_(operands[member][number]);
      }
      return total;
    });
  }

  Tensors doAllToAll(const Tensors &operands, ArrayRef<AxisId> axes) override {
    return exchange(axes, [&](ArrayRef<int64_t> members, int64_t number) {
      std::vector<at::Tensor> pieces;
      for (int64_t member : members) {
        pieces.push_back(operands[member][number]);
      }
      return at::stack(pieces).contiguous();
    });
  }

  Tensors doShift(const Tensors &operands, ArrayRef<AxisId> axes,
                  int64_t distance, bool cyclic) override {
    return exchange(axes, [&](ArrayRef<int64_t> members, int64_t number) {
      int64_t count = members.size(), from = number - distance;
      if (cyclic) {
        from = (from % count + count) % count;
      }
      return from < 0 || from >= count ? at::zeros_like(operands[members[0]])
                                       : operands[members[from]].clone();
    });
  }

private:
  /// Each group along `axes` once.
  std::vector<std::vector<int64_t>> groups(ArrayRef<AxisId> axes) const {
    std::vector<std::vector<int64_t>> all;
    for (int64_t rank : ranks) {
      if (groupRank(rank, axes) == 0) {
        all.push_back(group(rank, axes));
      }
    }
    return all;
  }

  /// What `receive` gives for each rank, from the ranks of its group and its
  /// number among them.
  Tensors
  exchange(ArrayRef<AxisId> axes,
           llvm::function_ref<at::Tensor(ArrayRef<int64_t>, int64_t)> receive) {
    Tensors results(ranks.size());
    for (const std::vector<int64_t> &members : groups(axes)) {
      for (size_t number = 0; number < members.size(); ++number) {
        results[members[number]] = receive(members, number);
      }
    }
    return results;
  }

  std::vector<int64_t> ranks;
};
} // namespace

std::unique_ptr<Communicator> hp::makeLockstepCommunicator(const Mesh &mesh) {
  return std::make_unique<LockstepCommunicator>(mesh);
}
