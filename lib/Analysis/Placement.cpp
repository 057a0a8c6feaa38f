//===- Placement.cpp - Which part of a tensor a rank holds ----------------===//

#include "hp/Analysis/Placement.h"

using namespace hp;
using llvm::ArrayRef;

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// How far apart two ranks are that are neighbours along `axis`.
static int64_t stride(const Mesh &mesh, AxisId axis) {
  int64_t stride = 1;
  for (unsigned inner = axis + 1; inner < mesh.numAxes(); ++inner) {
    stride *= mesh.size(AxisId(inner));
  }
  return stride;
}

int64_t hp::groupRank(const Mesh &mesh, int64_t rank, ArrayRef<AxisId> axes) {
  int64_t number = 0;
  for (AxisId axis : axes) {
    number =
        number * mesh.size(axis) + rank / stride(mesh, axis) % mesh.size(axis);
  }
  return number;
}

std::vector<int64_t> hp::group(const Mesh &mesh, int64_t rank,
                               ArrayRef<AxisId> axes) {
  // The rank with coordinate 0 along all axes, then one axis after the other,
  // the minor ones fastest.
  for (AxisId axis : axes) {
    rank -= rank / stride(mesh, axis) % mesh.size(axis) * stride(mesh, axis);
  }
  std::vector<int64_t> ranks = {rank};
  for (AxisId axis : axes) {
    std::vector<int64_t> next;
    for (int64_t base : ranks) {
      for (int64_t i = 0; i < mesh.size(axis); ++i) {
        next.push_back(base + i * stride(mesh, axis));
      }
    }
    ranks = std::move(next);
  }
  return ranks;
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

int64_t hp::paddedRows(int64_t rows, int64_t pieces) {
  return (rows + pieces - 1) / pieces;
}

namespace {
/// Elements [whole, whole + size) of a dim, which are [piece, piece + size) of
/// the rank's piece.
struct Range {
  int64_t whole, piece, size;
};
} // namespace

/// What number `number` of `ranks` holds of `dim`: its part of each segment.
static llvm::SmallVector<Range, 3> cut(const Dim &dim, int64_t ranks,
                                       int64_t number) {
  llvm::SmallVector<Range, 3> ranges;
  int64_t whole = 0, piece = 0;
  for (const Segment &segment : dim.segments) {
    int64_t size = segment.size() / ranks;
    ranges.push_back({whole + number * size, piece, size});
    whole += segment.size();
    piece += size;
  }
  // Uncut, segments lie side by side.
  if (ranks == 1) {
    return {{0, 0, piece}};
  }
  return ranges;
}

/// Of `ranges`, the rows [first, last) of the piece, which become the piece.
static llvm::SmallVector<Range, 3> rowsOf(ArrayRef<Range> ranges, int64_t first,
                                          int64_t last) {
  llvm::SmallVector<Range, 3> kept;
  for (const Range &range : ranges) {
    int64_t begin = std::max(range.piece, first);
    int64_t end = std::min(range.piece + range.size, last);
    if (begin < end) {
      kept.push_back(
          {range.whole + begin - range.piece, begin - first, end - begin});
    }
  }
  return kept;
}

Placement Placement::whole(Type type) {
  Placement placement;
  Region region;
  for (const Dim &dim : type.dims()) {
    placement.wholeShape.push_back(dim.size());
    region.whole.push_back(0);
    region.piece.push_back(0);
  }
  placement.shape = region.size = placement.wholeShape;
  placement.regions.push_back(region);
  return placement;
}

Placement hp::placementOf(Type type, const Mesh &mesh, int64_t rank) {
  Placement placement;
  placement.regions.emplace_back();
  for (auto [position, dim] : llvm::enumerate(type.dims())) {
    auto ranges =
        cut(dim, mesh.size(dim.axes), groupRank(mesh, rank, dim.axes));
    int64_t extent = dim.size() / mesh.size(dim.axes);
    if (position == 0 && type->store) {
      const AxisList &axes = type->store->axes;
      int64_t padded = paddedRows(extent, mesh.size(axes));
      int64_t first = std::min(extent, padded * groupRank(mesh, rank, axes));
      int64_t last = std::min(extent, first + padded);
      ranges = rowsOf(ranges, first, last);
      extent = last - first;
    }
    placement.wholeShape.push_back(dim.size());
    placement.shape.push_back(extent);
    llvm::SmallVector<Region, 1> next;
    for (const Region &region : placement.regions) {
      for (const Range &range : ranges) {
        next.push_back(region);
        next.back().whole.push_back(range.whole);
        next.back().piece.push_back(range.piece);
        next.back().size.push_back(range.size);
      }
    }
    placement.regions = std::move(next);
  }
  return placement;
}

int64_t Placement::numElements() const {
  int64_t product = 1;
  for (int64_t extent : shape) {
    product *= extent;
  }
  return product;
}

int64_t hp::heldBytes(Type type, const Mesh &mesh, int64_t rank) {
  int64_t bytes = type.localBytes(mesh);
  if (!type->store || type.rank() == 0) {
    return bytes;
  }
  int64_t rows = type.localShape(mesh)[0];
  const AxisList &axes = type->store->axes;
  int64_t padded = paddedRows(rows, mesh.size(axes));
  int64_t first = std::min(rows, padded * groupRank(mesh, rank, axes));
  int64_t held = std::min(rows, first + padded) - first;
  // Elements of a row, in the dtype of the value.
  return rows == 0 ? 0 : bytes / rows * held;
}
