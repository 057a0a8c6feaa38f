//===- FoldRepeats.cpp - A step with repeated layers printed once ---------===//
//
// Works on the lines of the text. Each line of a layer's parameters or
// instructions belongs to the layer that its names tell (`%12.qkv`,
// `%d.12.qkv`, `@layers.12.norm.weight`); neighbouring lines of one layer are a
// segment. Segments are compared with the number of the layer taken out of
// their names. What enters and leaves the first layer has no number, while what
// enters the others has that of the layer before; and the gradient that enters
// the last layer has another name (%d.3.y) than those that layers hand on
// (%d.2.y.2). Those names may differ, one for one.
//
//===----------------------------------------------------------------------===//

#include "hp/Analysis/Views.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/xxhash.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Names
//===----------------------------------------------------------------------===//

namespace {
/// `d.12.qkv` as `d.`, 12 and `.qkv`. A name without a layer is all head.
struct LayerName {
  StringRef head, tail;
  int64_t layer = -1;
};
} // namespace

/// The layer is the first component of digits, after at most a kind (d, g, q)
/// and a stack, and before a component that begins with no digit. A bundle of
/// parameters ends with it: `L12`, of `layers.12.`.
static LayerName splitName(StringRef name) {
  constexpr unsigned maxBefore = 2;
  StringRef rest = name;
  for (unsigned i = 0; i <= maxBefore; ++i) {
    auto [part, after] = rest.split('.');
    LayerName found;
    bool isBundle =
        after.empty() && (part.consume_front("L") || rest.ends_with("."));
    bool isValue = !after.empty() && !llvm::isDigit(after[0]);
    if (!part.empty() && part.size() <= 9 &&
        llvm::all_of(part, llvm::isDigit) && (isBundle || isValue)) {
      part.getAsInteger(10, found.layer);
      found.head = StringRef(name.begin(), part.begin() - name.begin());
      found.tail = StringRef(part.end(), name.end() - part.end());
      return found;
    }
    rest = after;
  }
  return {name, {}, -1};
}

/// The names of a line, without sigils, in order; those of `{param=...` too.
static llvm::SmallVector<StringRef, 8> namesOf(StringRef line) {
  llvm::SmallVector<StringRef, 8> names;
  constexpr StringRef starts = "%@=";
  for (size_t at = line.find_first_of(starts); at != StringRef::npos;
       at = line.find_first_of(starts, at + 1)) {
    if (line[at] == '=' && !line.take_front(at).ends_with("{param")) {
      continue;
    }
    StringRef name = line.drop_front(at + 1).take_while(
        [](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
    // An axis of a type is none: `S@cp`.
    bool isAxis = line[at] == '@' && at > 0 &&
                  (llvm::isAlnum(line[at - 1]) || line[at - 1] == ')');
    if (!name.empty() && !isAxis) {
      names.push_back(name);
    }
  }
  return names;
}

//===----------------------------------------------------------------------===//
// Segments
//===----------------------------------------------------------------------===//

namespace {
/// Neighbouring lines of one layer; -1 for those of none.
struct LayerLines {
  int64_t layer = -1;
  std::vector<StringRef> lines;
  uint64_t shape = 0;        ///< a hash of the lines without their names
  llvm::StringSet<> defined; ///< names of results
};

/// A line and the name that tells its layer; empty if it goes with the line
/// before.
struct Line {
  StringRef text, name;
};

class Folder {
public:
  explicit Folder(llvm::raw_ostream &os) : os(os) {}

  /// Prints `lines`, folded.
  void fold(llvm::ArrayRef<Line> lines);

private:
  void printLayers(llvm::ArrayRef<LayerLines> segments);
  void printGroup(llvm::ArrayRef<LayerLines> segments, const StackGroup &group);

  llvm::raw_ostream &os;
};
} // namespace

static StringRef indentOf(const LayerLines &lines) {
  return lines.lines.front().take_while([](char c) { return c == ' '; });
}

/// `text` without its names.
static std::string shapeOf(StringRef text) {
  std::string shape;
  const char *at = text.begin();
  for (StringRef name : namesOf(text)) {
    shape.append(at, name.begin());
    at = name.end();
  }
  shape.append(at, text.end());
  return shape;
}

/// Whether `name`, which the other segment calls otherwise, comes from outside
/// of the layer or goes there.
static bool crosses(const LayerName &name, StringRef text,
                    const LayerLines &segment) {
  return name.layer < 0 || name.layer == segment.layer - 1 ||
         (name.layer == segment.layer && !segment.defined.contains(text));
}

static bool isRepeat(const LayerLines &first, const LayerLines &other) {
  if (first.shape != other.shape || first.lines.size() != other.lines.size()) {
    return false;
  }
  llvm::StringMap<StringRef> partners, back;
  for (size_t i = 0; i < first.lines.size(); ++i) {
    auto names = namesOf(first.lines[i]), others = namesOf(other.lines[i]);
    if (names.size() != others.size()) {
      return false;
    }
    for (auto [name, otherName] : llvm::zip(names, others)) {
      LayerName a = splitName(name), b = splitName(otherName);
      bool same =
          a.head == b.head && a.tail == b.tail &&
          (a.layer < 0) == (b.layer < 0) &&
          (a.layer < 0 || a.layer - first.layer == b.layer - other.layer);
      if (!same &&
          (!crosses(a, name, first) || !crosses(b, otherName, other))) {
        return false;
      }
      // One name stands for one name.
      StringRef there = partners.try_emplace(name, otherName).first->second;
      StringRef here = back.try_emplace(otherName, name).first->second;
      if (there != otherName || here != name) {
        return false;
      }
    }
  }
  return true;
}

void Folder::fold(llvm::ArrayRef<Line> lines) {
  std::vector<LayerLines> segments;
  for (const Line &line : lines) {
    int64_t layer = line.name.empty() ? -1 : splitName(line.name).layer;
    if (segments.empty() ||
        (!line.name.empty() && layer != segments.back().layer)) {
      segments.emplace_back().layer = layer;
    }
    LayerLines &segment = segments.back();
    segment.lines.push_back(line.text);
    segment.shape = segment.shape * 31 + llvm::xxh3_64bits(shapeOf(line.text));
    auto [results, operation] = line.text.split(" = ");
    if (!operation.empty()) {
      for (StringRef name : namesOf(results)) {
        segment.defined.insert(name);
      }
    }
  }
  llvm::ArrayRef<LayerLines> rest = segments;
  while (!rest.empty()) {
    if (rest[0].layer < 0) {
      for (StringRef line : rest[0].lines) {
        os << line << '\n';
      }
      rest = rest.drop_front();
      continue;
    }
    // Layers that count up, or down as in the backward half.
    size_t count = 1;
    while (count < rest.size() && rest[count].layer >= 0 &&
           std::abs(rest[count].layer - rest[count - 1].layer) == 1 &&
           rest[count].layer - rest[count - 1].layer ==
               rest[1].layer - rest[0].layer) {
      ++count;
    }
    auto layers = rest.take_front(count);
    printLayers(layers);
    os << indentOf(layers.front()) << "// end of layers\n";
    rest = rest.drop_front(layers.size());
  }
}

/// Segments of layers only: gives each the number of the first it repeats, and
/// folds the list of numbers as a stack does.
void Folder::printLayers(llvm::ArrayRef<LayerLines> segments) {
  // Finding periods takes the square of the number of layers; and models have
  // few kinds of layers.
  constexpr size_t maxFolded = 4096, maxKinds = 64;
  std::vector<const LayerLines *> kinds;
  llvm::StringSet<> names;
  std::vector<StringRef> list;
  for (const LayerLines &segment : segments.take_front(maxFolded)) {
    llvm::ArrayRef<const LayerLines *> known(kinds);
    const auto *it =
        llvm::find_if(known.take_front(maxKinds), [&](const LayerLines *kind) {
          return isRepeat(*kind, segment);
        });
    size_t kind = it - known.begin();
    if (kind == std::min(known.size(), maxKinds)) {
      kind = kinds.size();
      kinds.push_back(&segment);
    }
    list.push_back(names.insert(std::to_string(kind)).first->getKey());
  }
  // Periods are found from the start of a list: layers that come once before
  // them, as where the first messages have none to wait for, go first.
  llvm::ArrayRef<StringRef> repeated(list);
  while (!repeated.empty() &&
         !llvm::is_contained(repeated.drop_front(), repeated[0])) {
    printGroup(segments.take_front(), {{{StringRef(), 1}}, 1});
    segments = segments.drop_front();
    repeated = repeated.drop_front();
  }
  for (const StackGroup &group : Stack::fold(repeated)) {
    size_t period = 0;
    for (const StackRun &run : group.runs) {
      period += run.count;
    }
    printGroup(segments.take_front(period * group.count), group);
    segments = segments.drop_front(period * group.count);
  }
  for (const LayerLines &segment : segments) {
    printGroup(segment, {{{StringRef(), 1}}, 1});
  }
}

/// `layer 3` or `layers 0-2: x3`.
static void printRange(llvm::ArrayRef<LayerLines> segments,
                       llvm::raw_ostream &os) {
  if (segments.size() == 1) {
    os << "layer " << segments[0].layer;
    return;
  }
  os << "layers " << segments.front().layer << '-' << segments.back().layer
     << ": x" << segments.size();
}

void Folder::printGroup(llvm::ArrayRef<LayerLines> segments,
                        const StackGroup &group) {
  StringRef indent = indentOf(segments.front());
  size_t period = segments.size() / group.count;
  if (group.count > 1) {
    os << indent << "// layers " << segments.front().layer << '-'
       << segments.back().layer << ": x" << group.count << " of the " << period
       << " layers that follow\n";
  }
  segments = segments.take_front(period);
  for (const StackRun &run : group.runs) {
    os << indent << "// ";
    printRange(segments.take_front(run.count), os);
    os << '\n';
    for (StringRef line : segments[0].lines) {
      os << line << '\n';
    }
    segments = segments.drop_front(run.count);
  }
  if (group.count > 1) {
    os << indent << "// end of x" << group.count << '\n';
  }
}

//===----------------------------------------------------------------------===//
// The view
//===----------------------------------------------------------------------===//

/// The name that tells the layer of an instruction: of a backward one the
/// gradient that comes in, of a free none. What is started early, and the wait
/// for a reduction, stand in the midst of another layer.
static StringRef tellingName(const Operation &op) {
  bool waitsForBundle = op.is(OpKind::Wait) && op.operands[0].value->isBundle();
  bool isElsewhere = op.is(OpKind::FsdpUnshard) && op.attrs.getFlag("async");
  if (op.is(OpKind::Free) || isElsewhere ||
      (op.is(OpKind::Wait) && !waitsForBundle)) {
    return {};
  }
  if (op.is(OpKind::FsdpReshard) || waitsForBundle) {
    return op.operands[0].value->name;
  }
  if (op.backward) {
    unsigned first = op.numForwardOperands() + op.info().savedResults().size();
    for (const Operand &operand : llvm::drop_begin(
             op.operands, std::min<size_t>(first, op.operands.size()))) {
      if (operand.value) {
        return operand.value->name;
      }
    }
  }
  for (const Value *result : op.results) {
    if (result) {
      return result->name;
    }
  }
  for (const Operand &operand : op.operands) {
    if (operand.param) {
      return operand.param->name;
    }
  }
  return op.info().spelling;
}

void hp::printFolded(Module &module, llvm::raw_ostream &os,
                     PrintOptions options) {
  os << "// A view with repeated layers folded, not an input.\n";
  std::string text = str(module, options);
  Function *step = module.findFunction("step");
  if (module.stage != Stage::Step || !step) {
    os << text;
    return;
  }
  // The text of a step has one line for each parameter and each instruction.
  llvm::SmallVector<StringRef, 0> lines;
  StringRef(text).trim('\n').split(lines, '\n');
  std::vector<Line> params, body;
  auto op = step->body->ops.begin();
  bool inStep = false;
  Folder folder(os);
  for (StringRef line : lines) {
    if (line.starts_with("  param @")) {
      params.push_back({line, namesOf(line)[0]});
      continue;
    }
    folder.fold(params);
    params.clear();
    if (inStep && op != step->body->ops.end()) {
      body.push_back({line, tellingName(*op++)});
      continue;
    }
    folder.fold(body);
    body.clear();
    os << line << '\n';
    inStep |= line.starts_with("  func @step(");
  }
}
