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

/// The largest of the ranks' numbers.
static int64_t largest(llvm::ArrayRef<int64_t> numbers, Communicator &comm) {
  if (comm.mesh().numRanks() == 1) {
    return numbers[0];
  }
  Communicator::Tensors values;
  for (int64_t number : numbers) {
    values.push_back(at::full({1}, number, at::kLong));
  }
  comm.allReduce(values, comm.mesh().all().list(), Reduction::Max);
  return values[0].item<int64_t>();
}

/// The first rank whose replica of parameter `index` is not that of the first
/// rank of its group along `axes`, and that one. There is one.
static std::pair<int64_t, int64_t>
differingRanks(llvm::ArrayRef<ParameterStore> stores, unsigned index,
               llvm::ArrayRef<AxisId> axes, Communicator &comm) {
  Communicator::Tensors hashes;
  for (const ParameterStore &store : stores) {
    hashes.push_back(at::full({1}, hashOf(store.all()[index]), at::kLong));
  }
  Communicator::Tensors gathered = comm.allGather(hashes, axes);
  int64_t none = comm.mesh().numRanks();
  std::vector<int64_t> found;
  for (auto [own, all, rank] : llvm::zip(hashes, gathered, comm.localRanks())) {
    bool differs = own.item<int64_t>() != all[0].item<int64_t>();
    found.push_back(-(differs ? rank : none));
  }
  int64_t rank = -largest(found, comm);
  return {rank, comm.group(rank, axes)[0]};
}

DifferingReplica hp::differingReplica(llvm::ArrayRef<ParameterStore> stores,
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
  std::vector<int64_t> found(stores.size(), count - first);
  first = count - largest(found, comm);
  if (first == count) {
    return {};
  }
  auto [rank, twin] = differingRanks(
      stores, first, replicatedOver(parameters[first].type, comm.mesh()), comm);
  return {parameters[first].name, rank, twin};
}
