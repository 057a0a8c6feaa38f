//===- Type.h - Types that carry their sharding ----------------*- C++ -*-===//
//
//   type    ::= dtype `[` (dim (`,` dim)*)? `]` states? store?
//   states  ::= `{` state (`;` state)* `}`
//   state   ::= (`repl` | `partial`) `:` axis (`,` axis)*
//   store   ::= `store=` dtype `@` axes `~`?
//   dim     ::= extent (`@` axes)?
//   extent  ::= product | name `=` integer | declared-name
//             | `(` segment (`|` segment)* `)`
//   segment ::= (name `=`)? product
//   product ::= integer (`*` integer)*
//   axes    ::= axis | `(` axis (`,` axis)* `)`
//
// Shapes are global. For one value each mesh axis is in exactly one state:
//
//   S  a dim is sharded over it: `S@cp`        gradient sharded the same way
//   I  invariant: nothing is written           gradient invariant
//   R  replicated: `{repl: tp}`                gradient partial
//   P  partial: `{partial: tp}`                gradient replicated
//
// A dim is a product, sharded on its first factor, or a list of segments, each
// sharded by itself. Types are uniqued in their Module: equal means same
// pointer; `matches` disregards labels.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_TYPE_H
#define HP_IR_TYPE_H

#include "hp/IR/Mesh.h"
#include "llvm/ADT/Hashing.h"

namespace hp {

enum class DType : uint8_t { Bool, I64, BF16, F32, F64 };

/// `f32`, `i64`, `bool`, ...
llvm::StringRef name(DType dtype);
std::optional<DType> parseDType(llvm::StringRef name);
/// Bytes of one element.
int64_t byteSize(DType dtype);
inline bool isFloat(DType dtype) { return dtype >= DType::BF16; }

/// One segment of a dim: `k=16*128`. The name is interned in the Module and may
/// be empty.
struct Segment {
  llvm::StringRef name;
  llvm::SmallVector<int64_t, 3> factors;

  /// Product of the factors.
  int64_t size() const;
  bool operator==(const Segment &) const = default;
};

/// One tensor dim. `axes` cut the first factor of every segment, major to
/// minor.
struct Dim {
  llvm::SmallVector<Segment, 1> segments;
  AxisList axes;

  Dim() = default;
  Dim(llvm::StringRef name, llvm::ArrayRef<int64_t> factors,
      llvm::ArrayRef<AxisId> axes = {})
      : axes(axes) {
    segments.push_back({name, llvm::SmallVector<int64_t, 3>(factors)});
  }

  /// Elements along the dim, over all ranks.
  int64_t size() const;
  /// The label of a dim of one segment; empty otherwise.
  llvm::StringRef name() const {
    return segments.size() == 1 ? segments[0].name : llvm::StringRef();
  }
  bool isSegmented() const { return segments.size() > 1; }
  Dim withAxes(llvm::ArrayRef<AxisId> newAxes) const {
    Dim dim = *this;
    dim.axes = AxisList(newAxes);
    return dim;
  }
  /// Equal sizes: the same product for each segment (2*8 and 16 agree).
  bool sameSizes(const Dim &other) const;
  bool operator==(const Dim &) const = default;
};

/// FSDP storage: dim 0 of the tensor-parallel-local tensor, cut over `axes`.
struct Store {
  DType dtype = DType::F32;
  AxisList axes;
  /// Dim 0 does not divide: equal pieces of ceil(rows / ranks), the last ones
  /// short or empty. Spelled `~`.
  bool uneven = false;
  bool operator==(const Store &) const = default;
};

/// What a Type holds. Build one, change it, and unique it with Module::type().
struct TypeData {
  DType dtype = DType::F32;
  llvm::SmallVector<Dim, 4> dims;
  AxisSet repl;
  AxisSet partial;
  std::optional<Store> store;

  bool operator==(const TypeData &) const = default;
};
llvm::hash_code hash_value(const TypeData &data);

/// The state of one axis in one type.
enum class State : uint8_t { Invariant, Replicated, Partial, Sharded };

/// A uniqued type; null stands for a bundle of unsharded parameters.
class Type {
public:
  Type() = default;
  explicit Type(const TypeData *data) : data(data) {}

  explicit operator bool() const { return data != nullptr; }
  bool operator==(const Type &other) const = default;

  const TypeData &operator*() const { return *data; }
  const TypeData *operator->() const { return data; }
  DType dtype() const { return data->dtype; }
  llvm::ArrayRef<Dim> dims() const { return data->dims; }
  unsigned rank() const { return data->dims.size(); }

  State state(AxisId axis) const;
  /// The dim that `axis` cuts; -1 if none.
  int shardedDim(AxisId axis) const;
  /// All axes that cut a dim.
  AxisSet shardedAxes() const;

  /// Equal up to labels. The names of segments count, and so do `B` and `S`
  /// where both sides carry a declared dim.
  bool matches(Type other) const;

  /// Elements over all ranks.
  int64_t numElements() const;
  /// The shape on every rank: sharded first factors divided (storage not
  /// applied; compute shardings divide evenly).
  llvm::SmallVector<int64_t, 4> localShape(const Mesh &mesh) const;
  /// Bytes of the local tensor on one rank.
  int64_t localBytes(const Mesh &mesh) const;
  /// Index of the first dim named `name`; -1 if none. `S`, `B`, `V`, a label.
  int findDim(llvm::StringRef name) const;

private:
  const TypeData *data = nullptr;
};

} // namespace hp

#endif // HP_IR_TYPE_H
