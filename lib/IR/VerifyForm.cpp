//===- VerifyForm.cpp - Proof 1: symbols and their uses -------------------===//

#include "VerifierState.h"
#include "llvm/ADT/StringMap.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

/// More layers than any model has; keeps a mistyped count from filling memory.
static constexpr int64_t maxLayers = 1 << 20;

//===----------------------------------------------------------------------===//
// Symbols
//===----------------------------------------------------------------------===//

namespace {
/// Names of one kind in one scope.
class NameTable {
public:
  NameTable(VerifierState &state, StringRef kind) : state(state), kind(kind) {}

  /// False, after a report, if `name` is empty or taken.
  bool add(StringRef name, Location loc) {
    if (name.empty()) {
      state.error(loc) << "a " << kind << " has no name";
      return false;
    }
    auto [it, isNew] = places.try_emplace(name, loc);
    if (!isNew) {
      state.error(loc).note(it->second, "first here")
          << kind << " '@" << name << "' is defined twice";
    }
    return isNew;
  }
  bool contains(StringRef name) const { return places.contains(name); }

private:
  VerifierState &state;
  StringRef kind;
  llvm::StringMap<Location> places;
};
} // namespace

static void verifyDims(VerifierState &state) {
  llvm::StringMap<Location> places;
  for (const DimDecl &dim : state.module.dims) {
    if (!places.try_emplace(dim.name, dim.loc).second) {
      state.error(dim.loc) << "dim '" << dim.name << "' is declared twice";
    }
    if (dim.size < 1 || dim.size > int64_t(1) << 62) {
      state.error(dim.loc) << "dim '" << dim.name << "' is " << dim.size
                           << "; it must be between 1 and 2^62";
    }
  }
}

/// What a spec declares of a placement, `shard=[0, tp, 1, cp]`: all that is
/// wrong with it in one error. That counts do not divide is told by
/// shard-annotate, with the degrees that would, unless more is wrong.
static void verifyDeclaration(VerifierState &state, const Param &param) {
  const Mesh &mesh = state.module.mesh;
  static constexpr StringRef known[] = {"dp", "dp_replicate", "dp_shard", "cp",
                                        "tp"};
  std::string faults;
  auto fault = [&](const Twine &sentence) {
    faults += (faults.empty() ? "" : "; ") + sentence.str();
  };
  llvm::SmallVector<int64_t, 4> pieces(param.type.rank(), 1);
  llvm::StringMap<unsigned> usedBy;
  for (const Param::Cut &cut : *param.declared) {
    std::optional<AxisList> axes = mesh.lookup(cut.axis);
    if (!axes && !llvm::is_contained(known, cut.axis)) {
      fault("there is no axis '" + cut.axis +
            "'; axes are dp, dp_replicate, dp_shard, cp, tp and those of the "
            "mesh");
    }
    auto [it, isNew] = usedBy.try_emplace(cut.axis, cut.dim);
    if (!isNew) {
      fault("axis '" + cut.axis + "' is used twice, for dim " +
            Twine(it->second) + " and for dim " + Twine(cut.dim));
    }
    if (cut.dim >= param.type.rank()) {
      fault("dim " + Twine(cut.dim) + " is not there: the tensor has " +
            Twine(param.type.rank()) +
            (param.type.rank() == 1 ? " dim" : " dims"));
      continue;
    }
    // Groups of heads fewer than the ranks are shard-annotate's to place.
    const Dim &dim = param.type.dims()[cut.dim];
    pieces[cut.dim] *= axes && dim.name() != "g" ? mesh.size(*axes) : 1;
  }
  if (faults.empty()) {
    return;
  }
  for (unsigned i = 0; i < pieces.size(); ++i) {
    for (const Segment &segment : param.type.dims()[i].segments) {
      if (!segment.factors.empty() && segment.factors[0] % pieces[i] != 0) {
        std::string what = std::to_string(segment.factors[0]);
        if (!segment.name.empty()) {
          what += (" '" + segment.name + "'").str();
        }
        fault("dim " + Twine(i) + " has " + what +
              ", which do not divide over " + Twine(pieces[i]) + " ranks");
        break;
      }
    }
  }
  state.error(param.loc) << "the declaration 'shard' of parameter '@"
                         << param.name << "' is not legal: " << faults;
}

/// The type of a parameter: legal, stored over axes that its gradient is summed
/// over, and not itself a sum.
static void verifyParam(VerifierState &state, const Param &param,
                        const BlockTemplate *owner) {
  ParamFacts &facts = state.facts(&param);
  facts.owner = owner;
  std::string name = ("parameter '@" + param.name + "'").str();
  if (!param.type) {
    state.error(param.loc) << name << " has no type";
    facts.usable = false;
    return;
  }
  Operand read;
  read.param = const_cast<Param *>(&param);
  facts.computeType = read.type(state.module);
  facts.usable = state.checkType(param.type, param.loc, name);
  if (!facts.usable) {
    return;
  }
  AxisSet placed =
      param.type.shardedAxes() | param.type->repl | param.type->partial;
  if (state.module.stage == Stage::Spec && !placed.empty()) {
    state.error(param.loc) << name << " is placed over '"
                           << state.module.mesh.str(placed)
                           << "' at stage 'spec'; shard-annotate does that, "
                              "from {shard=...}";
    facts.usable = false;
  }
  if (state.module.stage != Stage::Spec && param.declared) {
    state.error(param.loc) << name << " still has its declaration 'shard' at "
                           << "stage '" << hp::name(state.module.stage)
                           << "'; its type holds the placement there";
  } else if (param.declared) {
    verifyDeclaration(state, param);
  }
  if (!isFloat(param.type.dtype())) {
    state.error(param.loc) << name << " is " << hp::name(param.type.dtype())
                           << "; a parameter must be of a floating type";
  }
  if (!param.type->partial.empty()) {
    state.error(param.loc) << name
                           << " is partial; a parameter is stored as it is, "
                              "not as terms of a sum";
  }
  if (param.type->store && state.module.stage < Stage::Plan) {
    state.error(param.loc) << name << " is stored in pieces at stage '"
                           << hp::name(state.module.stage)
                           << "'; fsdp-bucket does that, at stage 'plan'";
  }
  if (param.type->store &&
      !param.type->repl.containsAll(AxisSet(param.type->store->axes))) {
    state.error(param.loc)
        << name << " is stored over axes it is not replicated over; name in "
        << "'repl' all axes that the use of it spans";
  }
}

static void verifyStack(VerifierState &state, const Stack &stack,
                        const NameTable &blocks) {
  int64_t layers = 0;
  for (const StackGroup &group : stack.groups) {
    int64_t period = 0;
    if (group.count < 1 || group.runs.empty()) {
      state.error(stack.loc)
          << "stack '@" << stack.name << "' has an empty group";
      continue;
    }
    for (const StackRun &run : group.runs) {
      if (run.count < 1) {
        state.error(stack.loc)
            << "stack '@" << stack.name << "' repeats '@" << run.block << "' "
            << run.count << " times; it must be at least once";
      }
      if (!blocks.contains(run.block)) {
        state.error(stack.loc)
            << "stack '@" << stack.name << "' names a block '@" << run.block
            << "' that is not there";
      } else {
        state.usedBlocks.insert(state.module.findBlock(run.block));
      }
      period = std::min(maxLayers,
                        period + std::clamp<int64_t>(run.count, 0, maxLayers));
    }
    layers += period * std::min(group.count, maxLayers);
    if (layers > maxLayers) {
      state.error(stack.loc) << "stack '@" << stack.name << "' has more than "
                             << maxLayers << " layers";
      return;
    }
  }
  if (layers == 0) {
    state.error(stack.loc) << "stack '@" << stack.name << "' has no layers";
  }
}

/// `layers.3.norm.weight` beside a stack `layers`.
static void verifyInstanceNames(VerifierState &state) {
  for (const Member &stack : state.module.members) {
    for (const Member &member : state.module.members) {
      if (stack.stack && member.param &&
          member.param->name.starts_with((stack.stack->name + ".").str())) {
        state.error(member.param->loc)
            << "parameter '@" << member.param->name
            << "' has the name of one in a layer of stack '@"
            << stack.stack->name << "'";
      }
    }
  }
}

static void verifyTies(VerifierState &state, const NameTable &params) {
  NameTable aliases(state, "tied parameter");
  for (const Tie &tie : state.module.ties) {
    aliases.add(tie.alias, tie.loc);
    if (params.contains(tie.alias)) {
      Param *param = state.module.findParam(tie.alias);
      state.error(param ? param->loc : tie.loc)
              .note(tie.loc, "tied here to '@" + tie.target + "'")
          << "parameter '@" << tie.alias
          << "' is tied and must not be a parameter of its own";
    }
    if (!params.contains(tie.target)) {
      state.error(tie.loc) << "'@" << tie.alias << "' is tied to '@"
                           << tie.target << "', which is not a parameter";
    }
  }
}

/// A step is flat: one function, no templates.
static void verifyStepShape(VerifierState &state) {
  Module &module = state.module;
  for (const auto &block : module.blocks) {
    state.error(block->loc)
        << "block '@" << block->name
        << "' at stage 'step'; layers are written out there";
  }
  for (const Member &member : module.members) {
    if (member.stack) {
      state.error(member.stack->loc)
          << "stack '@" << member.stack->name
          << "' at stage 'step'; layers are written out there";
    }
  }
  if (module.functions.size() != 1 || module.functions[0]->name != "step") {
    state.error(module.loc)
        << "a module at stage 'step' has one function, '@step'";
  }
}

void hp::verifySymbols(VerifierState &state) {
  Module &module = state.module;
  verifyDims(state);
  NameTable params(state, "parameter"), stacks(state, "stack"),
      blocks(state, "block"), functions(state, "function");
  for (const auto &block : module.blocks) {
    blocks.add(block->name, block->loc);
    NameTable own(state, "parameter");
    for (const Param *param : block->params) {
      own.add(param->name, param->loc);
      verifyParam(state, *param, block.get());
    }
  }
  bool anyStack = false;
  for (const Member &member : module.members) {
    if (member.param) {
      params.add(member.param->name, member.param->loc);
      verifyParam(state, *member.param, nullptr);
    } else if (member.stack) {
      anyStack = true;
      stacks.add(member.stack->name, member.stack->loc);
      verifyStack(state, *member.stack, blocks);
    }
  }
  for (const auto &function : module.functions) {
    functions.add(function->name, function->loc);
  }
  if (anyStack) {
    verifyInstanceNames(state);
  }
  verifyTies(state, params);
  if (module.stage == Stage::Step) {
    verifyStepShape(state);
  }
}

//===----------------------------------------------------------------------===//
// Uses
//===----------------------------------------------------------------------===//

void hp::verifyUses(VerifierState &state) {
  Module &module = state.module;
  auto checkRead = [&](const Param *param) {
    if (state.facts(param).reads == 0) {
      state.error(param->loc)
          << "parameter '@" << param->name << "' is never used";
    }
  };
  for (const auto &block : module.blocks) {
    llvm::for_each(block->params, checkRead);
    if (module.stage != Stage::Step &&
        !state.usedBlocks.contains(block.get())) {
      state.error(block->loc)
          << "block '@" << block->name << "' is in no stack";
    }
  }
  for (const Member &member : module.members) {
    if (member.param) {
      checkRead(member.param);
    } else if (member.stack && module.stage != Stage::Step &&
               !state.usedStacks.contains(member.stack)) {
      state.error(member.stack->loc)
          << "stack '@" << member.stack->name << "' is never run";
    }
  }
  for (const Tie &tie : module.ties) {
    const Param *target = module.findParam(tie.target);
    if (!target || state.facts(target).reads == 0) {
      continue; // reported already
    }
    const ParamFacts &facts = state.facts(target);
    if (!facts.embeds || !facts.projects) {
      state.error(tie.loc).note(target->loc, "'@" + target->name + "'")
          << "'@" << tie.alias << "' is tied to '@" << tie.target
          << "', but no '" << (facts.embeds ? "linear" : "embedding")
          << "' reads it; both uses are required";
    }
  }
}
