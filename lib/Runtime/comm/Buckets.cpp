//===- Buckets.cpp - Parameters and gradients that travel together --------===//
//
// A message holds the pieces of several parameters one after the other, each
// padded to ceil(rows / ranks) rows so that all ranks send the same:
//
//   rank 0   | a: rows 0-2 | b: row 0 |
//   rank 1   | a: 3-4, pad | b: pad   |
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include "hp/Runtime/Pieces.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::ArrayRef;

namespace {
/// Where one parameter's padded piece lies in a message.
struct Slot {
  unsigned member; ///< of the bucket
  int64_t offset, elements;
};

/// Parameters that travel together.
struct Message {
  std::vector<Slot> slots;
  int64_t elements = 0;

  void add(unsigned member, int64_t padded) {
    slots.push_back({member, elements, padded});
    elements += padded;
  }
};
} // namespace

static std::vector<int64_t> localShape(Type type, const Mesh &mesh) {
  auto shape = type.localShape(mesh);
  return {shape.begin(), shape.end()};
}

static int64_t elementsOf(ArrayRef<int64_t> shape) {
  int64_t elements = 1;
  for (int64_t extent : shape) {
    elements *= extent;
  }
  return elements;
}

namespace {
/// Messages that are under way.
class Messages {
public:
  void add(std::unique_ptr<Pending> message) {
    if (message) {
      list.push_back(std::move(message));
    }
  }
  bool areComplete() const { return list.empty(); }
  void wait() {
    for (std::unique_ptr<Pending> &message : list) {
      message->wait();
    }
    list.clear();
  }

private:
  std::vector<std::unique_ptr<Pending>> list;
};

/// A message, and what of it arrives on each local rank.
struct Arriving {
  Message message;
  Ranked tensors;
};
} // namespace

/// Finishes at once what is complete.
template <typename Bucket>
static StartedBucket asStarted(std::shared_ptr<Bucket> bucket) {
  if (bucket->isComplete()) {
    bucket->finish();
    return {bucket->results, {}};
  }
  return {bucket->results, [bucket] { bucket->finish(); }};
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

namespace {
class Gathering {
public:
  Gathering(Communicator &comm, ArrayRef<const Param *> params)
      : comm(comm), params(params) {}

  void start(ArrayRef<Ranked> pieces);
  bool isComplete() const { return underWay.areComplete(); }
  void finish();

  std::vector<Ranked> results; ///< whole, by parameter

private:
  Communicator &comm;
  ArrayRef<const Param *> params;
  std::vector<Arriving> arriving;
  Messages underWay;
};
} // namespace

void Gathering::start(ArrayRef<Ranked> pieces) {
  const Mesh &mesh = comm.mesh();
  size_t count = comm.localRanks().size();
  std::map<std::pair<AxisList, DType>, Message> messages;
  for (auto [index, param] : llvm::enumerate(params)) {
    const AxisList &axes = param->type->store->axes;
    DType dtype = param->type.dtype();
    messages[{axes, dtype}].add(index, paddedElements(param->type, mesh, axes));
    results.emplace_back();
    for (size_t rank = 0; rank < count; ++rank) {
      results.back().push_back(at::empty(localShape(param->type, mesh),
                                         at::dtype(scalarType(dtype))));
    }
  }
  for (auto &[key, message] : messages) {
    Ranked sent;
    for (size_t rank = 0; rank < count; ++rank) {
      at::Tensor flat =
          at::zeros({message.elements}, at::dtype(scalarType(key.second)));
      for (const Slot &slot : message.slots) {
        const at::Tensor &piece = pieces[slot.member][rank];
        flat.narrow(0, slot.offset, piece.numel()).copy_(piece.flatten());
      }
      sent.push_back(flat);
    }
    Ranked tensors;
    underWay.add(comm.startAllGather(sent, key.first, tensors));
    arriving.push_back({std::move(message), std::move(tensors)});
  }
}

void Gathering::finish() {
  underWay.wait();
  for (const Arriving &arrived : arriving) {
    for (const Slot &slot : arrived.message.slots) {
      for (auto [whole, flat] :
           llvm::zip(results[slot.member], arrived.tensors)) {
        // Padding lies at the end: pieces are rows in order, and only what
        // follows the last row is padded.
        whole.copy_(flat.narrow(1, slot.offset, slot.elements)
                        .reshape({-1})
                        .narrow(0, 0, whole.numel())
                        .view(whole.sizes()));
      }
    }
  }
  arriving.clear();
}

StartedBucket hp::startUnshard(Communicator &comm,
                               ArrayRef<const Param *> params,
                               ArrayRef<Ranked> pieces) {
  auto gathering = std::make_shared<Gathering>(comm, params);
  gathering->start(pieces);
  return asStarted(std::move(gathering));
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

namespace {
class Reducing {
public:
  Reducing(Communicator &comm, Module &module, const ReductionRun &run)
      : comm(comm), module(module), run(run), count(comm.localRanks().size()),
        pieces(run.members.size(), Ranked(count)) {}

  void start(ArrayRef<Ranked> gradients);
  bool isComplete() const { return underWay.areComplete(); }
  void finish();

  std::vector<Ranked> results; ///< what is stored, without padding

private:
  void allocateResults();
  void startScatter(DType dtype, const Message &message,
                    ArrayRef<Ranked> gradients);
  void startSums();
  void takePieces();

  Communicator &comm;
  Module &module;
  const ReductionRun &run;
  size_t count; ///< of local ranks
  std::map<std::pair<AxisList, DType>, Message> summed;
  /// Padded pieces of every member, flat: this rank's, summed over `scatter`,
  /// then over `sum`.
  std::vector<Ranked> pieces;
  std::vector<Arriving> arriving;
  Messages underWay;
};
} // namespace

void Reducing::allocateResults() {
  const Mesh &mesh = comm.mesh();
  for (const Operation *op : run.members) {
    Type gradient = op->operands[0].type(module);
    DType dtype =
        op->results[0] ? op->results[0]->type.dtype() : gradient.dtype();
    std::vector<int64_t> stored = localShape(gradient, mesh);
    int64_t rows = stored.empty() ? 1 : stored[0];
    results.emplace_back();
    for (int64_t rank : comm.localRanks()) {
      if (!run.scatter.empty() && !stored.empty()) {
        int64_t padded = paddedRows(rows, mesh.size(run.scatter));
        int64_t number = comm.groupRank(rank, run.scatter);
        int64_t first = std::min(rows, number * padded);
        stored[0] = std::min(rows, first + padded) - first;
      }
      results.back().push_back(at::empty(stored, at::dtype(scalarType(dtype))));
    }
  }
}

/// Sends what the other ranks keep of one dtype; without `scatter` this rank
/// keeps all.
void Reducing::startScatter(DType dtype, const Message &message,
                            ArrayRef<Ranked> gradients) {
  int64_t ranks = comm.mesh().size(run.scatter);
  Ranked sent;
  for (size_t rank = 0; rank < count; ++rank) {
    // [ranks, elements]: row i is what rank i of the group keeps.
    at::Tensor flat =
        at::zeros({ranks, message.elements}, at::dtype(scalarType(dtype)));
    for (const Slot &slot : message.slots) {
      at::Tensor all = gradients[slot.member][rank].contiguous().flatten();
      for (int64_t i = 0; i < ranks; ++i) {
        int64_t first = std::min(i * slot.elements, all.numel());
        int64_t last = std::min(first + slot.elements, all.numel());
        flat[i]
            .narrow(0, slot.offset, last - first)
            .copy_(all.narrow(0, first, last - first));
      }
    }
    sent.push_back(flat);
  }
  Ranked kept;
  if (run.scatter.empty()) {
    for (const at::Tensor &flat : sent) {
      kept.push_back(flat[0]);
    }
  } else {
    underWay.add(comm.startReduceScatter(sent, run.scatter, kept));
  }
  arriving.push_back({message, std::move(kept)});
}

void Reducing::takePieces() {
  for (const Arriving &arrived : arriving) {
    for (const Slot &slot : arrived.message.slots) {
      for (auto [piece, flat] :
           llvm::zip(pieces[slot.member], arrived.tensors)) {
        piece = flat.narrow(0, slot.offset, slot.elements);
      }
    }
  }
  arriving.clear();
}

void Reducing::startSums() {
  for (const auto &[key, message] : summed) {
    if (key.first.empty()) {
      continue;
    }
    Ranked sums;
    for (size_t rank = 0; rank < count; ++rank) {
      std::vector<at::Tensor> terms;
      for (const Slot &slot : message.slots) {
        terms.push_back(pieces[slot.member][rank]);
      }
      sums.push_back(at::cat(terms));
    }
    underWay.add(comm.startAllReduce(sums, key.first));
    arriving.push_back({message, std::move(sums)});
  }
}

void Reducing::start(ArrayRef<Ranked> gradients) {
  std::map<DType, Message> scattered;
  for (auto [index, op] : llvm::enumerate(run.members)) {
    Type gradient = op->operands[0].type(module);
    DType dtype =
        op->results[0] ? op->results[0]->type.dtype() : gradient.dtype();
    int64_t padded = paddedElements(gradient, comm.mesh(), run.scatter);
    scattered[dtype].add(index, padded);
    summed[{reductionAxes(*op, "sum"), dtype}].add(index, padded);
  }
  allocateResults();
  for (const auto &[dtype, message] : scattered) {
    startScatter(dtype, message, gradients);
  }
  if (run.scatter.empty()) {
    takePieces();
    startSums();
  }
}

void Reducing::finish() {
  underWay.wait();
  takePieces();
  if (!run.scatter.empty()) {
    startSums();
    underWay.wait();
    takePieces();
  }
  for (auto [stored, held] : llvm::zip(results, pieces)) {
    for (auto [result, piece] : llvm::zip(stored, held)) {
      result.copy_(piece.narrow(0, 0, result.numel()).view(result.sizes()));
    }
  }
  pieces.clear();
}

StartedBucket hp::startReduction(Communicator &comm, Module &module,
                                 const ReductionRun &run,
                                 ArrayRef<Ranked> gradients) {
  auto reducing = std::make_shared<Reducing>(comm, module, run);
  reducing->start(gradients);
  return asStarted(std::move(reducing));
}
