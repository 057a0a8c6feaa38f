//===- Mesh.h - Named mesh axes -------------------------------*- C++ -*-===//
//
// The ranks of a run form a mesh of named axes, written major to minor:
//
//   mesh <dp_replicate=2, dp_shard=2, cp=2, tp=2>
//   axes dp = (dp_replicate, dp_shard)
//
// An alias names a list of axes and is only spelling: types hold axes, the
// printer folds a run of axes back into its alias. A mesh without axes is one
// rank. rank = coordinates read as digits, the last axis fastest.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_MESH_H
#define HP_IR_MESH_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"
#include <bit>
#include <cstdint>
#include <optional>
#include <string>

namespace hp {

/// An axis as its position in the mesh.
using AxisId = uint8_t;
/// Axes in order, major to minor.
using AxisList = llvm::SmallVector<AxisId, 4>;

/// A set of axes. Iterates in mesh order.
class AxisSet {
public:
  constexpr AxisSet() = default;
  AxisSet(llvm::ArrayRef<AxisId> axes) {
    for (AxisId axis : axes) {
      insert(axis);
    }
  }
  static constexpr AxisSet single(AxisId axis) {
    AxisSet set;
    set.bits = 1u << axis;
    return set;
  }
  bool contains(AxisId axis) const { return bits >> axis & 1; }
  bool containsAll(AxisSet other) const { return (other.bits & ~bits) == 0; }
  void insert(AxisId axis) { bits |= 1u << axis; }
  void erase(AxisId axis) { bits &= ~(1u << axis); }
  bool empty() const { return bits == 0; }
  unsigned size() const { return std::popcount(bits); }
  bool operator==(const AxisSet &) const = default;
  AxisSet operator|(AxisSet other) const { return AxisSet(bits | other.bits); }
  AxisSet operator&(AxisSet other) const { return AxisSet(bits & other.bits); }
  AxisSet operator-(AxisSet other) const { return AxisSet(bits & ~other.bits); }
  uint32_t raw() const { return bits; }
  /// The axes in mesh order.
  AxisList list() const {
    AxisList axes;
    for (unsigned axis = 0; axis < 32; ++axis) {
      if (contains(axis)) {
        axes.push_back(axis);
      }
    }
    return axes;
  }

private:
  constexpr explicit AxisSet(uint32_t bits) : bits(bits) {}
  uint32_t bits = 0;
};

struct MeshAxis {
  std::string name;
  int64_t size;
};

/// `axes name = (a, b)`.
struct AxisAlias {
  std::string name;
  AxisList axes;
};

class Mesh {
public:
  /// A set of axes is a 32-bit mask.
  static constexpr unsigned maxAxes = 32;

  /// Appends an axis. False if the name is taken, the size is below 1, the mesh
  /// is full or the number of ranks would pass 2^31.
  bool addAxis(llvm::StringRef name, int64_t size);
  /// Adds an alias. False if the name is taken or an axis occurs twice.
  bool addAlias(llvm::StringRef name, llvm::ArrayRef<AxisId> axes);

  llvm::ArrayRef<MeshAxis> axes() const { return axisList; }
  llvm::ArrayRef<AxisAlias> aliases() const { return aliasList; }
  unsigned numAxes() const { return axisList.size(); }
  llvm::StringRef name(AxisId axis) const { return axisList[axis].name; }
  int64_t size(AxisId axis) const { return axisList[axis].size; }
  /// Product of the sizes of `axes`; 1 for none.
  int64_t size(llvm::ArrayRef<AxisId> axes) const;
  int64_t size(AxisSet axes) const { return size(axes.list()); }
  int64_t numRanks() const;
  AxisSet all() const;

  /// The axes that `name` stands for: one axis, or those of an alias.
  std::optional<AxisList> lookup(llvm::StringRef name) const;

  /// Writes `axes` with aliases folded: `dp, cp`. The first alias that fits
  /// wins, so the spelling is a function of the list.
  void print(llvm::raw_ostream &os, llvm::ArrayRef<AxisId> axes,
             llvm::StringRef separator = ", ") const;
  /// `tp` for one word, `(cp,tp)` for more.
  void printGroup(llvm::raw_ostream &os, llvm::ArrayRef<AxisId> axes) const;
  std::string str(AxisSet axes) const;

private:
  llvm::SmallVector<MeshAxis, 6> axisList;
  llvm::SmallVector<AxisAlias, 2> aliasList;
};

} // namespace hp

#endif // HP_IR_MESH_H
