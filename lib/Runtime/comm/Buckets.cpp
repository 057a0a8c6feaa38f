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
#include "llvm/ADT/MapVector.h"
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

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

std::vector<Ranked> hp::unshardBucket(Communicator &comm,
                                      ArrayRef<const Param *> params,
                                      ArrayRef<Ranked> pieces) {
  const Mesh &mesh = comm.mesh();
  std::map<std::pair<AxisList, DType>, Message> messages;
  for (auto [index, param] : llvm::enumerate(params)) {
    const AxisList &axes = param->type->store->axes;
    messages[{axes, param->type.dtype()}].add(
        index, paddedElements(param->type, mesh, axes));
  }
  std::vector<Ranked> whole(params.size());
  for (const auto &[key, message] : messages) {
    Ranked sent;
    for (size_t rank = 0; rank < comm.localRanks().size(); ++rank) {
      at::Tensor flat =
          at::zeros({message.elements}, at::dtype(scalarType(key.second)));
      for (const Slot &slot : message.slots) {
        const at::Tensor &piece = pieces[slot.member][rank];
        flat.narrow(0, slot.offset, piece.numel()).copy_(piece.flatten());
      }
      sent.push_back(flat);
    }
    Ranked arrived = comm.allGather(sent, key.first);
    sent.clear();
    for (const Slot &slot : message.slots) {
      std::vector<int64_t> shape = localShape(params[slot.member]->type, mesh);
      int64_t elements = 1;
      for (int64_t extent : shape) {
        elements *= extent;
      }
      for (const at::Tensor &flat : arrived) {
        // Padding lies at the end: pieces are rows in order, and only what
        // follows the last row is padded.
        at::Tensor rows = flat.narrow(1, slot.offset, slot.elements)
                              .reshape({-1})
                              .narrow(0, 0, elements);
        whole[slot.member].push_back(rows.clone().view(shape));
      }
    }
  }
  return whole;
}

//===----------------------------------------------------------------------===//
// Gradients
//===----------------------------------------------------------------------===//

std::vector<Ranked> hp::reduceBucket(Communicator &comm, Module &module,
                                     const ReductionRun &run,
                                     ArrayRef<Ranked> gradients) {
  const Mesh &mesh = comm.mesh();
  int64_t ranks = mesh.size(run.scatter);
  size_t count = comm.localRanks().size();
  std::map<DType, Message> scattered;
  std::map<std::pair<AxisList, DType>, Message> summed;
  for (auto [index, op] : llvm::enumerate(run.members)) {
    Type gradient = op->operands[0].type(module);
    DType dtype =
        op->results[0] ? op->results[0]->type.dtype() : gradient.dtype();
    int64_t padded = paddedElements(gradient, mesh, run.scatter);
    scattered[dtype].add(index, padded);
    summed[{reductionAxes(*op, "sum"), dtype}].add(index, padded);
  }

  // Padded pieces of every member, flat: this rank's, summed over `scatter`.
  std::vector<Ranked> pieces(run.members.size(), Ranked(count));
  for (const auto &[dtype, message] : scattered) {
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
      kept = comm.reduceScatter(sent, run.scatter);
    }
    for (const Slot &slot : message.slots) {
      for (size_t rank = 0; rank < count; ++rank) {
        pieces[slot.member][rank] =
            kept[rank].narrow(0, slot.offset, slot.elements);
      }
    }
  }

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
    comm.allReduce(sums, key.first);
    for (const Slot &slot : message.slots) {
      for (size_t rank = 0; rank < count; ++rank) {
        pieces[slot.member][rank] =
            sums[rank].narrow(0, slot.offset, slot.elements);
      }
    }
  }

  // What is stored, without padding.
  std::vector<Ranked> results;
  for (auto [op, held] : llvm::zip(run.members, pieces)) {
    Type gradient = op->operands[0].type(module);
    std::vector<int64_t> shape = localShape(gradient, mesh);
    results.emplace_back();
    for (size_t rank = 0; rank < count; ++rank) {
      std::vector<int64_t> stored = shape;
      if (!run.scatter.empty() && !shape.empty()) {
        int64_t padded = paddedRows(shape[0], ranks);
        int64_t number = comm.groupRank(comm.localRanks()[rank], run.scatter);
        int64_t first = std::min(shape[0], number * padded);
        stored[0] = std::min(shape[0], first + padded) - first;
      }
      int64_t elements = 1;
      for (int64_t extent : stored) {
        elements *= extent;
      }
      results.back().push_back(
          held[rank].narrow(0, 0, elements).clone().view(stored));
    }
  }
  return results;
}
