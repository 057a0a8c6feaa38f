//===- Placement.h - Which part of a tensor a rank holds --------*- C++ -*-===//
//
// A type says how a tensor is cut; here are the numbers for one rank: the
// shape of its piece and where in the whole tensor that piece lies. A cut dim
// of segments, or storage rows that cross segments, make several regions:
//
//   f32[(q=4 | k=4 | v=8)@tp, 16] on rank 1 of tp=2
//
//     whole rows   0 1 [2 3] 4 5 [6 7] 8 9 10 11 [12 13 14 15]
//     piece rows        0 1        2 3             4  5  6  7
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_PLACEMENT_H
#define HP_ANALYSIS_PLACEMENT_H

#include "hp/IR/Module.h"

namespace hp {

/// Number of `rank` within its group along `axes`: its coordinates as digits,
/// major to minor.
int64_t groupRank(const Mesh &mesh, int64_t rank, llvm::ArrayRef<AxisId> axes);
/// The ranks of the group of `rank` along `axes`, in order.
std::vector<int64_t> group(const Mesh &mesh, int64_t rank,
                           llvm::ArrayRef<AxisId> axes);

using Extents = llvm::SmallVector<int64_t, 4>;

/// A box of elements: where it begins in the whole tensor and in the piece.
struct Region {
  Extents whole, piece, size;
};

/// What one rank holds of a tensor.
struct Placement {
  Extents wholeShape;
  Extents shape; ///< of the piece
  llvm::SmallVector<Region, 1> regions;

  /// A rank that holds everything.
  static Placement whole(Type type);
  /// Elements of the piece.
  int64_t numElements() const;
};

/// What `rank` holds of a tensor of `type`: cut as its dims say, then as its
/// storage says, if it has one.
Placement placementOf(Type type, const Mesh &mesh, int64_t rank);

/// Rows of each piece of `rows` rows stored over `pieces` ranks, padding
/// included: ceil(rows / pieces).
int64_t paddedRows(int64_t rows, int64_t pieces);

/// Bytes of what `rank` holds of a value of `type`, storage applied.
int64_t heldBytes(Type type, const Mesh &mesh, int64_t rank);

} // namespace hp

#endif // HP_ANALYSIS_PLACEMENT_H
