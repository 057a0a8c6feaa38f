//===- VerifyOperation.cpp - Proof 1: stage, attributes, symbol -----------===//
//
// What must hold of one operation before its operands are looked at: it may
// stand at this stage, has the attributes of its row with values that mean
// something, and names what is there.
//
//===----------------------------------------------------------------------===//

#include "VerifierState.h"
#include <cmath>

using namespace hp;
using llvm::StringRef;

static bool verifyStage(VerifierState &state, const Operation &op) {
  const OpInfo &info = op.info();
  Stage stage = state.module.stage;
  Stage first = op.backward ? Stage::Step : info.firstStage;
  if (stage >= first && stage <= info.lastStage) {
    return true;
  }
  auto report = state.error(op.loc);
  report << "'" << op.spelling() << "' at stage '" << name(stage)
         << "'; it is legal ";
  if (first == info.lastStage) {
    report << "at stage '" << name(first) << "' only";
  } else {
    report << "from stage '" << name(first) << "' to '" << name(info.lastStage)
           << "'";
  }
  return false;
}

namespace {
/// The values that an attribute may have: [least, most], without an end that is
/// open.
struct Range {
  StringRef name;
  double least, most;
  bool openLeast, openMost;
  StringRef text;
};
} // namespace

/// A chunk is solved for as a whole: its matrix has chunk^2 entries a head.
static constexpr int64_t maxChunk = 1024;

/// By name: an attribute means the same wherever it stands. Floats not named
/// here are from 0 on, integers from 1 on, and all are finite.
static const Range *rangeOf(StringRef name) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  static const Range ranges[] = {
      {"beta1", 0, 1, false, true, "a float from 0 to below 1"},
      {"beta2", 0, 1, false, true, "a float from 0 to below 1"},
      {"max_norm", 0, inf, true, false, "a float above 0"},
      {"theta", 0, inf, true, true, "a finite float above 0"},
      {"chunk", 1, maxChunk, false, false, "an integer from 1 to 1024"},
  };
  const Range *found = llvm::find_if(
      ranges, [&](const Range &range) { return range.name == name; });
  return found == std::end(ranges) ? nullptr : found;
}

static bool isIn(const Range &range, double value) {
  return (range.openLeast ? value > range.least : value >= range.least) &&
         (range.openMost ? value < range.most : value <= range.most);
}

/// What the value of an attribute must be; empty if it is.
static StringRef attributeFault(const AttributeSpec &spec,
                                const Attribute &value) {
  const Range *range = rangeOf(spec.name);
  switch (spec.kind) {
  case 'i': {
    const int64_t *count = value.get<int64_t>();
    bool legal = count && *count >= 1 && (!range || isIn(*range, *count));
    return legal ? "" : range ? range->text : "an integer from 1";
  }
  case 'f': {
    std::optional<double> number =
        value.get<bool>() ? std::nullopt : value.number();
    bool legal = number && (range ? isIn(*range, *number)
                                  : *number >= 0 && std::isfinite(*number));
    return legal ? "" : range ? range->text : "a float from 0";
  }
  case 'b':
    return value.get<bool>() ? "" : "a flag";
  case 'w':
    return value.get<Word>() || value.get<std::string>() ? "" : "a word";
  case 'a':
    return value.get<AxisList>() ? "" : "axes, as (dp,cp)";
  default:
    return "";
  }
}

/// Where flags for expand-step are legal; empty if `name` is none, or is there.
static StringRef misplacedFlag(const VerifierState &state, const Operation &op,
                               StringRef name) {
  Stage stage = state.module.stage;
  if (name == "recompute" &&
      (op.backward || (stage != Stage::AC && stage != Stage::Plan))) {
    return "at stages 'ac' and 'plan' only; a step recomputes by operations of "
           "its own";
  }
  if (name == "keep" && stage != Stage::Plan) {
    return "at stage 'plan' only; a step says itself how long it keeps a "
           "bundle";
  }
  if (name == "async" && stage != Stage::Step) {
    return "at stage 'step' only; expand-step chooses what is started early";
  }
  return {};
}

static bool verifyAttributes(VerifierState &state, const Operation &op) {
  const OpInfo &info = op.info();
  unsigned before = state.faults;
  bool takesAxes = false, takesDim = false;
  for (const AttributeSpec &spec : info.attributes) {
    bool isAxes = spec.name == "axes", isDim = spec.name == "dim";
    bool isParam = op.kind == OpKind::ReduceGrad && spec.name == "param";
    takesAxes |= isAxes;
    takesDim |= isDim;
    bool given = isAxes    ? !op.axes.empty()
                 : isDim   ? !op.dim.empty()
                 : isParam ? !op.symbol.empty()
                           : op.attrs.find(spec.name) != nullptr;
    if (!given && !spec.optional) {
      state.error(op.loc) << "'" << op.spelling() << "' lacks '" << spec.name
                          << "'";
    }
  }
  for (const NamedAttribute &entry : op.attrs.entries()) {
    const AttributeSpec *spec = info.findAttribute(entry.name);
    if (!spec || spec->kind == 'd' || spec->name == "axes") {
      state.error(op.loc) << "'" << op.spelling() << "' has no attribute '"
                          << entry.name << "'";
      continue;
    }
    StringRef misplaced = misplacedFlag(state, op, entry.name);
    if (!misplaced.empty()) {
      state.error(op.loc) << "'" << entry.name << "' of '" << op.spelling()
                          << "' is legal " << misplaced;
      continue;
    }
    StringRef expected = attributeFault(*spec, entry.value);
    if (!expected.empty()) {
      auto report = state.error(op.loc);
      report << "'" << entry.name << "' of '" << op.spelling() << "' must be "
             << expected;
      if (const int64_t *count = entry.value.get<int64_t>()) {
        report << ", not " << *count;
      } else if (const double *number = entry.value.get<double>()) {
        report << ", not " << floatText(*number);
      }
    }
  }
  bool moves = op.kind == OpKind::AllToAll;
  if ((!takesAxes && !op.axes.empty()) || (!takesDim && !op.dim.empty()) ||
      moves != !op.toDim.empty()) {
    state.error(op.loc) << "'" << op.spelling() << "' takes "
                        << (moves       ? "{axis: dim->dim}"
                            : takesDim  ? "{axis: dim}"
                            : takesAxes ? "{axis}"
                                        : "no axes");
  }
  return state.faults == before;
}

/// The symbol of stack and call; what a bundle holds is checked where its
/// parameters are read.
static bool verifySymbol(VerifierState &state, const Operation &op) {
  Module &module = state.module;
  switch (op.kind) {
  case OpKind::Stack:
    if (Stack *stack = module.findStack(op.symbol)) {
      state.usedStacks.insert(stack);
      return true;
    }
    state.error(op.loc) << "there is no stack '@" << op.symbol << "'";
    return false;
  case OpKind::Call:
    if (module.findFunction(op.symbol)) {
      return true;
    }
    state.error(op.loc) << "there is no function '@" << op.symbol << "'";
    return false;
  case OpKind::FsdpUnshard:
  case OpKind::ReduceGrad:
    return true;
  default:
    if (op.symbol.empty()) {
      return true;
    }
    state.error(op.loc) << "'" << op.spelling()
                        << "' names no symbol, but has '@" << op.symbol << "'";
    return false;
  }
}

bool hp::verifyOperationForm(VerifierState &state, const Operation &op) {
  bool ok = verifyStage(state, op);
  ok &= verifyAttributes(state, op);
  ok &= verifySymbol(state, op);
  return ok;
}
