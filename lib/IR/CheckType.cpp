//===- CheckType.cpp - Whether a type is legal on a mesh ------------------===//
//
// What must hold of a type by itself, whoever made it. All faults are named at
// once: a type that is wrong is often wrong twice.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Verifier.h"
#include "llvm/ADT/Twine.h"
#include <array>

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

/// Elements of one tensor.
static constexpr int64_t maxElements = int64_t(1) << 62;

namespace {
class TypeChecker {
public:
  TypeChecker(const TypeData &data, const Mesh &mesh) : data(data), mesh(mesh) {
    usedIn.fill(nowhere);
  }

  std::string check();

private:
  void fault(const Twine &sentence) {
    faults += (faults.empty() ? "" : "; ") + sentence.str();
  }
  std::string axisName(AxisId axis) const {
    return axis < mesh.numAxes() ? mesh.name(axis).str()
                                 : "#" + std::to_string(unsigned(axis));
  }
  /// `dim 0 ('B')`, `'repl'`: what uses an axis.
  std::string placeName(int place) const;
  void useAxis(AxisId axis, int place);
  /// Product of the sizes of `axes`, those off the mesh left out.
  int64_t ranks(llvm::ArrayRef<AxisId> axes) const;
  /// Elements along the dim; 0 if an extent is wrong.
  int64_t checkExtents(unsigned index);
  void checkCuts(unsigned index);
  void checkStore();

  const TypeData &data;
  const Mesh &mesh;
  std::string faults;
  bool extentsHold = true, cutsHold = true;
  /// What uses each axis: the position of a dim, or one of the places below.
  static constexpr int nowhere = -1, inRepl = -2, inPartial = -3, inStore = -4;
  std::array<int, Mesh::maxAxes> usedIn;
};
} // namespace

/// a * b, or maxElements + 1 where it would pass maxElements.
static int64_t saturatingProduct(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) || product > maxElements
             ? maxElements + 1
             : product;
}

/// `dim 0`, or `dim 0 ('B')`.
static std::string dimName(const TypeData &data, unsigned index) {
  std::string text = "dim " + std::to_string(index);
  StringRef name = data.dims[index].name();
  return name.empty() ? text : (text + " ('" + name + "')").str();
}

std::string TypeChecker::placeName(int place) const {
  return place == inRepl      ? "'repl'"
         : place == inPartial ? "'partial'"
         : place == inStore   ? "'store'"
                              : dimName(data, place);
}

void TypeChecker::useAxis(AxisId axis, int place) {
  if (axis >= mesh.numAxes()) {
    fault("axis " + axisName(axis) + " in " + placeName(place) +
          " is not on the mesh, which has " + Twine(mesh.numAxes()) + " axes");
    return;
  }
  int first = std::exchange(usedIn[axis], place);
  // Storage is a second level: its axes may be replicated ones.
  if (first == nowhere || (place == inStore && first == inRepl)) {
    return;
  }
  fault("axis '" + axisName(axis) + "' is used twice" +
        (first == place
             ? " in " + placeName(place)
             : ", in " + placeName(first) + " and in " + placeName(place)));
}

int64_t TypeChecker::ranks(llvm::ArrayRef<AxisId> axes) const {
  int64_t product = 1;
  for (AxisId axis : axes) {
    product =
        saturatingProduct(product, axis < mesh.numAxes() ? mesh.size(axis) : 1);
  }
  return product;
}

int64_t TypeChecker::checkExtents(unsigned index) {
  const Dim &dim = data.dims[index];
  if (dim.segments.empty()) {
    fault(dimName(data, index) + " has no extent");
    return 0;
  }
  int64_t sum = 0;
  for (unsigned i = 0; i < dim.segments.size(); ++i) {
    const Segment &segment = dim.segments[i];
    int64_t product = segment.factors.empty() ? 0 : 1;
    for (int64_t factor : segment.factors) {
      if (factor < 1) {
        fault("extent " + Twine(factor) + " of " + dimName(data, index) +
              " is below 1");
        return 0;
      }
      product = saturatingProduct(product, factor);
    }
    if (product == 0) {
      fault("segment " + Twine(i) + " of " + dimName(data, index) +
            " has no extent");
      return 0;
    }
    sum = product > maxElements - sum ? maxElements + 1 : sum + product;
    for (unsigned j = 0; j < i; ++j) {
      if (!segment.name.empty() && segment.name == dim.segments[j].name) {
        fault("segment '" + segment.name + "' occurs twice in " +
              dimName(data, index));
      }
    }
  }
  return sum;
}

void TypeChecker::checkCuts(unsigned index) {
  const Dim &dim = data.dims[index];
  for (AxisId axis : dim.axes) {
    useAxis(axis, index);
  }
  int64_t pieces = ranks(dim.axes);
  for (const Segment &segment : dim.segments) {
    if (segment.factors.empty() || segment.factors[0] < 1 ||
        segment.factors[0] % pieces == 0) {
      continue;
    }
    cutsHold = false;
    std::string axes;
    for (AxisId axis : dim.axes) {
      axes += (axes.empty() ? "" : ",") + axisName(axis);
    }
    fault((segment.name.empty() || !dim.isSegmented()
               ? Twine(dimName(data, index))
               : "segment '" + segment.name + "' of " + dimName(data, index)) +
          ", " + (segment.factors.size() > 1 ? "first factor " : "size ") +
          Twine(segment.factors[0]) + ", does not divide over (" + axes +
          "), " + Twine(pieces) + " ranks");
  }
}

void TypeChecker::checkStore() {
  const Store &store = *data.store;
  for (AxisId axis : store.axes) {
    useAxis(axis, inStore);
  }
  if (data.dims.empty()) {
    fault("a scalar cannot be stored in pieces");
    return;
  }
  if (!isFloat(store.dtype)) {
    fault("storage must be of a floating type, not " + name(store.dtype));
  }
  if (!extentsHold || !cutsHold) {
    return; // no local rows to speak of
  }
  int64_t rows = data.dims[0].size() / ranks(data.dims[0].axes);
  int64_t pieces = ranks(store.axes);
  bool even = rows % pieces == 0;
  if (!even && !store.uneven) {
    fault("storage of " + Twine(rows) + " local rows does not divide over " +
          Twine(pieces) + " ranks; spell it with '~'");
  } else if (even && store.uneven) {
    fault("storage of " + Twine(rows) + " local rows divides over " +
          Twine(pieces) + " ranks; spell it without '~'");
  }
}

std::string TypeChecker::check() {
  int64_t elements = 1;
  for (unsigned i = 0; i < data.dims.size(); ++i) {
    int64_t extent = checkExtents(i);
    extentsHold &= extent > 0;
    elements = saturatingProduct(elements, extent);
  }
  if (elements > maxElements) {
    fault("the tensor has more than 2^62 elements");
    extentsHold = false;
  }
  for (unsigned i = 0; i < data.dims.size(); ++i) {
    checkCuts(i);
  }
  for (AxisId axis : data.repl.list()) {
    useAxis(axis, inRepl);
  }
  for (AxisId axis : data.partial.list()) {
    useAxis(axis, inPartial);
  }
  if (data.store) {
    checkStore();
  }
  return faults;
}

std::string hp::checkType(const TypeData &data, const Mesh &mesh) {
  return TypeChecker(data, mesh).check();
}
