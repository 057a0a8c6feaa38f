//===- Replicas.cpp - Do ranks that hold the same hold the same? ----------===//
//
// Hashes are compared, and not tensors: h is the same on all ranks if neither
// max(h) nor max(~h) exceeds this rank's.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/Replicas.h"
#include "llvm/Support/xxhash.h"
#include <ATen/ATen.h>

using namespace hp;

/// A hash of the bytes of value and moments.
static int64_t hashOf(const StoredParameter &parameter) {
  uint64_t hash = 0;
  for (const at::Tensor *tensor :
       {&parameter.value, &parameter.expAvg, &parameter.expAvgSq}) {
    uint64_t next = 0;
    if (tensor->defined() && tensor->nbytes() > 0) {
      at::Tensor dense = tensor->contiguous();
      next = llvm::xxh3_64bits(
          llvm::ArrayRef(static_cast<const uint8_t *>(dense.const_data_ptr()),
                         dense.nbytes()));
    }
    hash = hash * 0x9e3779b97f4a7c15u + next;
  }
  return int64_t(hash);
}

/// The axes over which `type` is not cut.
static AxisList replicatedOver(Type type, const Mesh &mesh) {
  AxisSet cuts = type.shardedAxes();
  if (type->store) {
    cuts = cuts | AxisSet(type->store->axes);
  }
  return (mesh.all() - cuts).list();
}

std::string hp::differingReplica(llvm::ArrayRef<ParameterStore> stores,
                                 Communicator &comm) {
  const auto &parameters = stores[0].all();
  // Parameters by the axes of their replicas: one message each.
  std::map<AxisList, std::vector<unsigned>> groups;
  for (auto [index, parameter] : llvm::enumerate(parameters)) {
    AxisList axes = replicatedOver(parameter.type, comm.mesh());
    if (comm.groupSize(axes) > 1) {
      groups[axes].push_back(index);
    }
  }
  int64_t count = parameters.size(), first = count;
  for (const auto &[axes, members] : groups) {
    Communicator::Tensors own, highest;
    for (const ParameterStore &store : stores) {
      at::Tensor hashes =
          at::empty({2, int64_t(members.size())}, at::dtype(at::kLong));
      for (auto [place, index] : llvm::enumerate(members)) {
        int64_t hash = hashOf(store.all()[index]);
        hashes[0][place] = hash;
        hashes[1][place] = ~hash;
      }
      own.push_back(hashes);
      highest.push_back(hashes.clone());
    }
    comm.allReduce(highest, axes, Reduction::Max);
    for (auto [mine, most] : llvm::zip(own, highest)) {
      at::Tensor differs = mine.ne(most).any(0);
      for (auto [place, index] : llvm::enumerate(members)) {
        if (differs[place].item<bool>()) {
          first = std::min(first, int64_t(index));
        }
      }
    }
  }
  // Everyone learns of the first, wherever it is.
  if (comm.mesh().numRanks() > 1) {
    Communicator::Tensors worst(stores.size());
    for (at::Tensor &value : worst) {
      value = at::full({1}, count - first, at::kLong);
    }
    comm.allReduce(worst, comm.mesh().all().list(), Reduction::Max);
    first = count - worst[0].item<int64_t>();
  }
  return first < count ? parameters[first].name : std::string();
}
