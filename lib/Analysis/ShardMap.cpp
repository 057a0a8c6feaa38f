//===- ShardMap.cpp - Which part of a parameter each rank stores ----------===//
//
//   [40:60, 0:16] (k=0:4*4 | v=0:4)
//
// is one region: ranges of the whole tensor, then those of its packed dim by
// segment; in units of the first factor, as heads, where the range is one of
// whole such units, else in rows.
//
//===----------------------------------------------------------------------===//

#include "hp/Analysis/Parameters.h"
#include "hp/Analysis/Placement.h"
#include "hp/Analysis/Views.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

/// More ranks than this are told by what they store, not one by one.
static constexpr int64_t maxRanks = 64;
/// More pieces than this are not shown.
static constexpr int64_t maxPieces = 1 << 14;

//===----------------------------------------------------------------------===//
// Regions
//===----------------------------------------------------------------------===//

/// `q=0:2*64`, `k=80:100`: [begin, begin + size) of the rows of `segment`.
static void printPart(const Segment &segment, int64_t begin, int64_t size,
                      llvm::raw_ostream &os) {
  int64_t unit =
      segment.factors.empty() ? 1 : segment.size() / segment.factors.front();
  if (!segment.name.empty()) {
    os << segment.name << '=';
  }
  if (unit <= 1 || begin % unit != 0 || size % unit != 0) {
    os << begin << ':' << begin + size;
    return;
  }
  os << begin / unit << ':' << (begin + size) / unit;
  for (int64_t factor : llvm::ArrayRef<int64_t>(segment.factors).drop_front()) {
    os << '*' << factor;
  }
}

/// The parts of a packed dim that [begin, begin + size) covers, in parentheses.
static void printParts(const Dim &dim, int64_t begin, int64_t size,
                       llvm::raw_ostream &os) {
  llvm::ListSeparator bar(" | ");
  int64_t offset = 0;
  os << " (";
  for (const Segment &segment : dim.segments) {
    int64_t first = std::max(begin, offset);
    int64_t last = std::min(begin + size, offset + segment.size());
    if (first < last) {
      os << bar;
      printPart(segment, first - offset, last - first, os);
    }
    offset += segment.size();
  }
  os << ')';
}

static bool isPacked(const Dim &dim) {
  return dim.isSegmented() ||
         (dim.segments.size() == 1 && dim.segments[0].factors.size() > 1);
}

static void printRegion(Type type, const Region &region,
                        llvm::raw_ostream &os) {
  llvm::ListSeparator comma;
  os << '[';
  for (auto [begin, size] : llvm::zip(region.whole, region.size)) {
    os << comma << begin << ':' << begin + size;
  }
  os << ']';
  for (auto [index, dim] : llvm::enumerate(type.dims())) {
    if (isPacked(dim)) {
      printParts(dim, region.whole[index], region.size[index], os);
    }
  }
}

static void printPlacement(Type type, const Placement &placement,
                           llvm::raw_ostream &os) {
  if (placement.numElements() == 0) {
    os << "nothing";
    return;
  }
  llvm::ListSeparator comma, plus(" + ");
  os << '[';
  for (int64_t extent : placement.shape) {
    os << comma << extent;
  }
  os << "] = ";
  for (const Region &region : placement.regions) {
    os << plus;
    printRegion(type, region, os);
  }
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

/// `(dp_shard=0, tp=1)`: the coordinates of `rank` along `axes`.
static void printCoordinates(const Mesh &mesh, int64_t rank,
                             llvm::ArrayRef<AxisId> axes,
                             llvm::raw_ostream &os) {
  llvm::ListSeparator comma;
  os << '(';
  for (AxisId axis : axes) {
    os << comma << mesh.name(axis) << '=' << groupRank(mesh, rank, {axis});
  }
  os << ')';
}

/// The first rank that is number `number` along `axes`, as digits.
static int64_t firstRank(const Mesh &mesh, llvm::ArrayRef<AxisId> axes,
                         int64_t number) {
  int64_t rank = 0;
  for (AxisId axis : llvm::reverse(axes)) {
    int64_t stride = 1;
    for (unsigned inner = axis + 1; inner < mesh.numAxes(); ++inner) {
      stride *= mesh.size(AxisId(inner));
    }
    rank += number % mesh.size(axis) * stride;
    number /= mesh.size(axis);
  }
  return rank;
}

static void printMap(Module &module, const ParamInstance &instance,
                     llvm::raw_ostream &os) {
  const Mesh &mesh = module.mesh;
  Type type = instance.param->type;
  AxisSet cut = type.shardedAxes();
  if (type->store) {
    cut = cut | AxisSet(type->store->axes);
  }
  AxisSet rest = mesh.all() - cut;
  os << instance.name << " : " << str(type, module) << '\n';
  int64_t ranks = mesh.numRanks(), copies = mesh.size(rest);
  os << ranks << (ranks == 1 ? " rank" : " ranks") << ", " << ranks / copies
     << (ranks == copies ? " piece" : " pieces") << ", each on " << copies;
  if (!rest.empty()) {
    os << ", one for each place along ";
    mesh.printGroup(os, rest.list());
  }
  os << '\n';
  bool everyRank = ranks <= maxRanks;
  AxisList axes = everyRank ? mesh.all().list() : cut.list();
  int64_t lines = mesh.size(axes);
  for (int64_t line = 0; line < std::min(lines, maxPieces); ++line) {
    int64_t rank = firstRank(mesh, axes, line);
    if (everyRank) {
      os << "rank " << rank << ' ';
    }
    printCoordinates(mesh, rank, axes, os);
    os << "  ";
    printPlacement(type, placementOf(type, mesh, rank), os);
    os << '\n';
  }
  if (lines > maxPieces) {
    os << lines - maxPieces << " more pieces are not shown\n";
  }
}

bool hp::printShardMap(Module &module, StringRef name, llvm::raw_ostream &os,
                       DiagnosticEngine &diag) {
  name.consume_front("@");
  for (const Tie &tie : module.ties) {
    if (tie.alias == name) {
      os << name << " is " << tie.target << '\n';
      name = tie.target;
    }
  }
  std::vector<ParamInstance> params = allParameters(module);
  for (const ParamInstance &instance : params) {
    if (instance.name == name) {
      printMap(module, instance, os);
      return true;
    }
  }
  llvm::SmallVector<StringRef> names;
  for (const ParamInstance &instance : params) {
    names.push_back(instance.name);
  }
  InFlightDiagnostic report = diag.error();
  report << "there is no parameter '" << name << "'";
  if (StringRef near = didYouMean(name, names); !near.empty()) {
    report.note({}, "did you mean '" + near + "'?");
  }
  return report;
}
