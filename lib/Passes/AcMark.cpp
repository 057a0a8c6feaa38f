//===- AcMark.cpp - What is computed again for the backward ---------------===//

#include "hp/Passes/AcMark.h"
#include "ParallelChoices.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

using namespace hp;
using llvm::StringRef;

namespace {
/// Which operations of a layer are marked.
enum class Marks { Gathers, AllButDear, All };

class Marker {
public:
  explicit Marker(Module &module) : module(module) {}

  void mark(Block &body, Marks marks);
  /// Marks every `period`-th layer of each stack as with Marks::All, the others
  /// as with Marks::Gathers.
  void markEvery(int64_t period);

  uint64_t marked = 0, kept = 0;

private:
  bool wants(const Operation &op, Marks marks) const;
  BlockTemplate *clone(const BlockTemplate &block);
  std::string freeName(StringRef base);

  Module &module;
};
} // namespace

//===----------------------------------------------------------------------===//
// One layer
//===----------------------------------------------------------------------===//

/// Dear: costs more to compute again than to keep. Matrix products, attention
/// and recurrences, and what other ranks must take part in.
static bool isDear(const Operation &op) {
  switch (op.kind) {
  case OpKind::Linear:
  case OpKind::Sdpa:
  case OpKind::GatedDeltaRule:
  case OpKind::GdrSummary:
  case OpKind::CpRing:
  case OpKind::CpHalo:
  case OpKind::CpScan:
  case OpKind::AllReduce:
  case OpKind::ReduceScatter:
  case OpKind::AllToAll:
    return true;
  default:
    return false;
  }
}

/// Whether mode `marks` asks for `op`, which is no view.
bool Marker::wants(const Operation &op, Marks marks) const {
  if (!op.info().canBeRecomputed()) {
    return false;
  }
  bool gathersSequence = op.is(OpKind::AllGather) &&
                         op.attrs.getText("to").empty() &&
                         module.tensorAxes().containsAll(AxisSet(op.axes));
  switch (marks) {
  case Marks::Gathers:
    return gathersSequence;
  case Marks::AllButDear:
    return !isDear(op);
  case Marks::All:
    break;
  }
  return true;
}

/// The operation whose storage `op` shares. Null if its results are fresh, or
/// views of an argument.
static Operation *sourceOf(const Operation &op, bool &isView) {
  const Operand *source =
      op.results.empty() ? nullptr : op.sharesStorageWith(0);
  isView = source != nullptr;
  return isView && source->value && !source->param ? source->value->owner
                                                   : nullptr;
}

/// What a layer returns is kept: it is what the next one takes.
static llvm::DenseSet<const Operation *> makersOfResult(Block &body) {
  llvm::DenseSet<const Operation *> makers;
  for (const Operand &operand : body.terminator()->operands) {
    Operation *op = operand.value ? operand.value->owner : nullptr;
    bool isView = true;
    while (op && isView) {
      makers.insert(op);
      op = sourceOf(*op, isView);
    }
  }
  return makers;
}

void Marker::mark(Block &body, Marks marks) {
  auto makers = makersOfResult(body);
  for (Operation &op : body.ops) {
    bool isView = false;
    const Operation *source = sourceOf(op, isView);
    bool wanted = isView ? source && source->attrs.getFlag("recompute")
                         : wants(op, marks);
    if (wanted && !makers.contains(&op)) {
      op.attrs.set(module.intern("recompute"), {true});
      ++marked;
    } else {
      kept += op.info().canBeRecomputed();
    }
  }
}

//===----------------------------------------------------------------------===//
// Every N-th layer
//===----------------------------------------------------------------------===//

std::string Marker::freeName(StringRef base) {
  std::string name = base.str();
  for (unsigned i = 2; module.findBlock(name); ++i) {
    name = (base + "." + llvm::Twine(i)).str();
  }
  return name;
}

/// A copy of `block` with a name of its own, after the others.
BlockTemplate *Marker::clone(const BlockTemplate &block) {
  auto copy = std::make_unique<BlockTemplate>();
  copy->name = module.intern(freeName((block.name + ".ac").str()));
  copy->loc = block.loc;
  copy->body = std::make_unique<Block>(module);
  llvm::DenseMap<const Param *, Param *> params;
  for (const Param *param : block.params) {
    Param *own =
        module.makeParam(param->name, param->type, param->init, param->loc);
    own->declared = param->declared;
    params[param] = own;
    copy->params.push_back(own);
  }
  llvm::DenseMap<const Value *, Value *> values;
  for (const Value *argument : block.body->arguments) {
    Value *own =
        module.makeValue(argument->name, argument->type, argument->loc);
    own->index = argument->index;
    values[argument] = own;
    copy->body->arguments.push_back(own);
  }
  for (const Operation &op : block.body->ops) {
    Operation *own = module.makeOp(op.kind, op.loc);
    own->parent = copy->body.get();
    own->attrs = op.attrs;
    own->axes = op.axes;
    own->dim = op.dim;
    own->toDim = op.toDim;
    own->symbol = op.symbol;
    for (Operand operand : op.operands) {
      operand.value = values.lookup(operand.value);
      if (Param *param = params.lookup(operand.param)) {
        operand.param = param;
      }
      own->operands.push_back(operand);
    }
    for (const Value *result : op.results) {
      if (!result) {
        own->results.push_back(nullptr);
        continue;
      }
      Value *value = module.addResult(own, result->name, result->type);
      value->loc = result->loc;
      values[result] = value;
    }
    copy->body->ops.push_back(own);
  }
  module.blocks.push_back(std::move(copy));
  return module.blocks.back().get();
}

void Marker::markEvery(int64_t period) {
  auto isMarked = [&](size_t layer) {
    return int64_t(layer % period) == period - 1;
  };
  // Which templates have layers of both kinds.
  llvm::StringMap<std::pair<bool, bool>> uses; // marked, not marked
  for (const Member &member : module.members) {
    if (member.stack) {
      for (auto [index, block] : llvm::enumerate(member.stack->layers())) {
        auto &[withMarks, without] = uses[block];
        (isMarked(index) ? withMarks : without) = true;
      }
    }
  }
  llvm::StringMap<StringRef> copies;
  for (size_t i = 0, count = module.blocks.size(); i < count; ++i) {
    BlockTemplate &block = *module.blocks[i];
    auto [withMarks, without] = uses.lookup(block.name);
    if (withMarks && without) {
      BlockTemplate *copy = clone(block);
      mark(*copy->body, Marks::All);
      copies[block.name] = copy->name;
    }
    mark(*module.blocks[i]->body, without ? Marks::Gathers : Marks::All);
  }
  for (const Member &member : module.members) {
    if (!member.stack) {
      continue;
    }
    std::vector<StringRef> layers = member.stack->layers();
    for (size_t index = 0; index < layers.size(); ++index) {
      auto copy = copies.find(layers[index]);
      if (isMarked(index) && copy != copies.end()) {
        layers[index] = copy->second;
      }
    }
    member.stack->groups = Stack::fold(layers);
  }
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class AcMark : public Pass {
public:
  StringRef name() const override { return "ac-mark"; }
  StringRef summary() const override {
    return "mark what is computed again for the backward instead of being kept";
  }
  StringRef needs() const override { return "stage tp"; }
  Stage produces() const override { return Stage::AC; }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"mode",
         "auto",
         "which layers' operations are computed again",
         {"auto", "none", "full", "selective"}},
        {"selective",
         "auto",
         "with mode=selective: 'op', all but the dear operations, or a number "
         "N, every N-th layer whole",
         {}}};
    return list;
  }

  std::string refusal(Module &module) const override {
    return stageRefusal(module, Stage::TP);
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    std::string mode = chosen(*this, "mode", module, "recompute", "none");
    std::string selective =
        chosen(*this, "selective", module, "selective", "op");
    if (mode != "none" && mode != "full" && mode != "selective") {
      return diag.error(module.loc)
             << "pass 'ac-mark': 'recompute' of the module's 'parallelism' "
                "line is one of none, full, selective, not '"
             << mode << "'";
    }
    int64_t period = 0;
    bool isNumber =
        !StringRef(selective).getAsInteger(10, period) && period >= 1;
    if (mode == "selective" && selective != "op" && !isNumber) {
      return diag.error(module.loc)
             << "pass 'ac-mark': 'selective' is 'op' or a number of layers "
                "from 1, not '"
             << selective << "'";
    }
    Marker marker(module);
    if (mode == "selective" && isNumber) {
      marker.markEvery(period);
    } else {
      for (const auto &block : module.blocks) {
        marker.mark(*block->body, mode == "full"        ? Marks::All
                                  : mode == "selective" ? Marks::AllButDear
                                                        : Marks::Gathers);
      }
    }
    count("marked", "operations of layers to be computed again", marker.marked);
    count("kept", "operations of layers whose results are kept", marker.kept);
    module.stage = Stage::AC;
    return true;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeAcMark() { return std::make_unique<AcMark>(); }
