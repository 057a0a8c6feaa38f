//===- Pieces.cpp - Cutting tensors and putting them together -------------===//

#include "hp/Runtime/Pieces.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::ArrayRef;

static at::IntArrayRef sizes(ArrayRef<int64_t> shape) {
  return {shape.data(), shape.size()};
}

/// The box of `x` that begins at `begin`.
static at::Tensor box(at::Tensor x, ArrayRef<int64_t> begin,
                      ArrayRef<int64_t> size) {
  for (size_t dim = 0; dim < begin.size(); ++dim) {
    x = x.narrow(dim, begin[dim], size[dim]);
  }
  return x;
}

at::Tensor hp::cutPiece(const at::Tensor &whole, const Placement &placement) {
  at::Tensor piece = at::empty(sizes(placement.shape), whole.options());
  for (const Region &region : placement.regions) {
    box(piece, region.piece, region.size)
        .copy_(box(whole, region.whole, region.size));
  }
  return piece;
}

void hp::putPiece(const at::Tensor &whole, const at::Tensor &piece,
                  const Placement &placement) {
  for (const Region &region : placement.regions) {
    box(whole, region.whole, region.size)
        .copy_(box(piece, region.piece, region.size));
  }
}

//===----------------------------------------------------------------------===//
// Parts of one dim
//===----------------------------------------------------------------------===//

at::Tensor hp::partOf(const at::Tensor &local, int64_t position, const Dim &dim,
                      int64_t ranks, int64_t parts, int64_t number) {
  std::vector<at::Tensor> pieces;
  int64_t offset = 0;
  for (const Segment &segment : dim.segments) {
    int64_t held = segment.size() / ranks, part = held / parts;
    pieces.push_back(local.narrow(position, offset + number * part, part));
    offset += held;
  }
  return pieces.size() == 1 ? pieces[0] : at::cat(pieces, position);
}

at::Tensor hp::joinParts(const at::Tensor &stacked, int64_t position,
                         const Dim &dim, int64_t ranks) {
  std::vector<at::Tensor> segments;
  int64_t offset = 0;
  for (const Segment &segment : dim.segments) {
    int64_t part = segment.size() / ranks / stacked.size(0);
    // [parts, ..., part, ...] -> [..., parts, part, ...] -> [..., held, ...]
    segments.push_back(stacked.narrow(position + 1, offset, part)
                           .movedim(0, position)
                           .flatten(position, position + 1));
    offset += part;
  }
  at::Tensor joined =
      segments.size() == 1 ? segments[0] : at::cat(segments, position);
  return joined.contiguous();
}

//===----------------------------------------------------------------------===//
// Whole tensors
//===----------------------------------------------------------------------===//

/// All pieces are here: each goes to its place.
static at::Tensor assembleHere(const Communicator &comm, Type type,
                               const Communicator::Tensors &pieces) {
  at::Tensor whole =
      at::empty(sizes(Placement::whole(type).shape), pieces[0].options());
  for (auto [index, rank] : llvm::enumerate(comm.localRanks())) {
    // Peers with the same coordinates along the axes that cut hold the same.
    AxisSet cuts = type.shardedAxes();
    if (type->store) {
      cuts = cuts | AxisSet(type->store->axes);
    }
    AxisList others = (comm.mesh().all() - cuts).list();
    if (comm.groupRank(rank, others) == 0) {
      putPiece(whole, pieces[index], placementOf(type, comm.mesh(), rank));
    }
  }
  return whole;
}

at::Tensor hp::assemble(Communicator &comm, Type type,
                        const Communicator::Tensors &pieces) {
  const Mesh &mesh = comm.mesh();
  if (int64_t(comm.localRanks().size()) == mesh.numRanks()) {
    return assembleHere(comm, type, pieces);
  }
  // Undo the cuts one after the other, storage first.
  Communicator::Tensors held;
  for (const at::Tensor &piece : pieces) {
    held.push_back(piece.contiguous());
  }
  if (type->store && type.rank() > 0) {
    const AxisList &axes = type->store->axes;
    int64_t rows = type.localShape(mesh)[0];
    int64_t padded = paddedRows(rows, mesh.size(axes));
    for (at::Tensor &piece : held) {
      std::vector<int64_t> shape = piece.sizes().vec();
      shape[0] = padded;
      at::Tensor full = at::zeros(shape, piece.options());
      full.narrow(0, 0, piece.size(0)).copy_(piece);
      piece = full;
    }
    for (at::Tensor &piece : held = comm.allGather(held, axes)) {
      piece = piece.flatten(0, 1).narrow(0, 0, rows).contiguous();
    }
  }
  for (auto [position, dim] : llvm::enumerate(type.dims())) {
    if (!dim.axes.empty()) {
      for (at::Tensor &piece : held = comm.allGather(held, dim.axes)) {
        piece = joinParts(piece, position, dim, /*ranks=*/1);
      }
    }
  }
  return held[0];
}
