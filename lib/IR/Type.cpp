//===- Type.cpp - Types that carry their sharding -------------------------===//

#include "hp/IR/Type.h"

using namespace hp;

static constexpr struct {
  DType dtype;
  const char *name;
  int64_t bytes;
} dtypes[] = {{DType::Bool, "bool", 1},
              {DType::I64, "i64", 8},
              {DType::BF16, "bf16", 2},
              {DType::F32, "f32", 4},
              {DType::F64, "f64", 8}};

llvm::StringRef hp::name(DType dtype) { return dtypes[unsigned(dtype)].name; }

std::optional<DType> hp::parseDType(llvm::StringRef name) {
  for (const auto &entry : dtypes) {
    if (name == entry.name) {
      return entry.dtype;
    }
  }
  return std::nullopt;
}

int64_t hp::byteSize(DType dtype) { return dtypes[unsigned(dtype)].bytes; }

int64_t Segment::size() const {
  int64_t product = 1;
  for (int64_t factor : factors) {
    product *= factor;
  }
  return product;
}

int64_t Dim::size() const {
  int64_t sum = 0;
  for (const Segment &segment : segments) {
    sum += segment.size();
  }
  return sum;
}

bool Dim::sameSizes(const Dim &other) const {
  if (segments.size() != other.segments.size()) {
    return false;
  }
  for (unsigned i = 0; i < segments.size(); ++i) {
    if (segments[i].size() != other.segments[i].size()) {
      return false;
    }
  }
  return true;
}

llvm::hash_code hp::hash_value(const TypeData &data) {
  llvm::hash_code hash = llvm::hash_combine(
      unsigned(data.dtype), data.repl.raw(), data.partial.raw());
  for (const Dim &dim : data.dims) {
    for (const Segment &segment : dim.segments) {
      hash =
          llvm::hash_combine(hash, segment.name,
                             llvm::hash_combine_range(segment.factors.begin(),
                                                      segment.factors.end()));
    }
    hash = llvm::hash_combine(
        hash, llvm::hash_combine_range(dim.axes.begin(), dim.axes.end()));
  }
  if (data.store) {
    hash = llvm::hash_combine(hash, unsigned(data.store->dtype),
                              data.store->uneven,
                              llvm::hash_combine_range(data.store->axes.begin(),
                                                       data.store->axes.end()));
  }
  return hash;
}

int Type::shardedDim(AxisId axis) const {
  for (unsigned i = 0; i < data->dims.size(); ++i) {
    if (AxisSet(data->dims[i].axes).contains(axis)) {
      return i;
    }
  }
  return -1;
}

State Type::state(AxisId axis) const {
  if (data->repl.contains(axis)) {
    return State::Replicated;
  }
  if (data->partial.contains(axis)) {
    return State::Partial;
  }
  return shardedDim(axis) >= 0 ? State::Sharded : State::Invariant;
}

AxisSet Type::shardedAxes() const {
  AxisSet set;
  for (const Dim &dim : data->dims) {
    set = set | AxisSet(dim.axes);
  }
  return set;
}

/// The names that are more than labels.
static bool isDeclaredName(llvm::StringRef name) {
  return name == "B" || name == "S";
}

static bool dimsMatch(const Dim &lhs, const Dim &rhs) {
  if (lhs.axes != rhs.axes || lhs.segments.size() != rhs.segments.size()) {
    return false;
  }
  for (unsigned i = 0; i < lhs.segments.size(); ++i) {
    const Segment &a = lhs.segments[i], &b = rhs.segments[i];
    bool nameCounts =
        lhs.isSegmented() || (isDeclaredName(a.name) && isDeclaredName(b.name));
    if (a.factors != b.factors || (nameCounts && a.name != b.name)) {
      return false;
    }
  }
  return true;
}

bool Type::matches(Type other) const {
  if (data == other.data) {
    return true;
  }
  if (!data || !other.data || data->dtype != other->dtype ||
      data->repl != other->repl || data->partial != other->partial ||
      data->store != other->store || data->dims.size() != other->dims.size()) {
    return false;
  }
  for (unsigned i = 0; i < data->dims.size(); ++i) {
    if (!dimsMatch(data->dims[i], other->dims[i])) {
      return false;
    }
  }
  return true;
}

int64_t Type::numElements() const {
  int64_t product = 1;
  for (const Dim &dim : data->dims) {
    product *= dim.size();
  }
  return product;
}

llvm::SmallVector<int64_t, 4> Type::localShape(const Mesh &mesh) const {
  llvm::SmallVector<int64_t, 4> shape;
  for (const Dim &dim : data->dims) {
    shape.push_back(dim.size() / mesh.size(dim.axes));
  }
  return shape;
}

int64_t Type::localBytes(const Mesh &mesh) const {
  int64_t bytes = byteSize(data->dtype);
  for (int64_t extent : localShape(mesh)) {
    bytes *= extent;
  }
  return bytes;
}

int Type::findDim(llvm::StringRef name) const {
  for (unsigned i = 0; i < data->dims.size(); ++i) {
    if (data->dims[i].name() == name) {
      return i;
    }
  }
  return -1;
}
