//===- FsdpBucket.cpp - Parameters stored in pieces -----------------------===//

#include "hp/Passes/FsdpBucket.h"
#include "ParallelChoices.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

using namespace hp;
using llvm::StringRef;

namespace {
class Bucketer {
public:
  Bucketer(Module &module, StringRef reshard, DiagnosticEngine &diag)
      : module(module), reshard(reshard), diag(diag) {}

  bool run();

  uint64_t stored = 0, uneven = 0, unshards = 0;

private:
  void store(Param &param);
  bool gatherIn(Block &body, llvm::ArrayRef<Param *> own);
  void gatherAll(Block &body);
  bool gatherStretch(Block &body, Operation *first, Operation *end,
                     bool isLast);
  Value *unshard(Block &body, Operation &before, StringRef symbol,
                 StringRef name);
  void giveBack(Block &body, Operation &before, Value *bundle, bool keep);
  std::string freeName(StringRef base);

  Module &module;
  StringRef reshard;
  DiagnosticEngine &diag;
  AxisList axes; ///< that cut storage
  llvm::DenseSet<const Param *> ownParams;
  llvm::StringSet<> names; ///< of the values of one body
  /// Names of its bundles by what they gather, free again after each use.
  llvm::StringMap<std::string> bundleNames;
};
} // namespace

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

/// Cuts the storage of `param` along dim 0 of the tensor that a rank of the
/// other axes has.
void Bucketer::store(Param &param) {
  TypeData data = *param.type;
  Store pieces;
  pieces.dtype = data.dtype;
  for (AxisId axis : axes) {
    if (data.repl.contains(axis)) {
      pieces.axes.push_back(axis);
    }
  }
  if (data.dims.empty() || pieces.axes.empty()) {
    return;
  }
  int64_t rows = param.type.localShape(module.mesh)[0];
  pieces.uneven = rows % module.mesh.size(pieces.axes) != 0;
  data.store = pieces;
  param.type = module.type(data);
  ++stored;
  uneven += pieces.uneven;
}

//===----------------------------------------------------------------------===//
// Gathering
//===----------------------------------------------------------------------===//

std::string Bucketer::freeName(StringRef base) {
  std::string name = base.str();
  for (unsigned i = 2; !names.insert(name).second; ++i) {
    name = (base + "." + llvm::Twine(i)).str();
  }
  return name;
}

Value *Bucketer::unshard(Block &body, Operation &before, StringRef symbol,
                         StringRef name) {
  Operation *op = module.makeOp(OpKind::FsdpUnshard, before.loc);
  op->parent = &body;
  op->symbol = module.intern(symbol);
  body.ops.insert(before.getIterator(), op);
  ++unshards;
  std::string &known = bundleNames[symbol];
  known = known.empty() ? freeName(name) : known;
  return module.addResult(op, known, Type());
}

void Bucketer::giveBack(Block &body, Operation &before, Value *bundle,
                        bool keep) {
  Operation *op = module.makeOp(OpKind::FsdpReshard, bundle->loc);
  op->parent = &body;
  op->operands.push_back({bundle});
  if (keep) {
    op->attrs.set(module.intern("keep"), {true});
  }
  body.ops.insert(before.getIterator(), op);
}

/// Whether `operand` reads a parameter in place that is stored in pieces.
static bool readsStored(const Operand &operand) {
  return operand.param && !operand.value && operand.param->type->store;
}

/// All parameters of a template, around all that it does.
void Bucketer::gatherAll(Block &body) {
  bool any = false;
  for (const Operation &op : body.ops) {
    any |= llvm::any_of(op.operands, [&](const Operand &operand) {
      return readsStored(operand) && ownParams.contains(operand.param);
    });
  }
  if (!any) {
    return;
  }
  Value *bundle = unshard(body, body.ops.front(), "", "all");
  giveBack(body, *body.terminator(), bundle, reshard == "never");
  for (Operation &op : body.ops) {
    for (Operand &operand : op.operands) {
      if (readsStored(operand) && ownParams.contains(operand.param)) {
        operand.value = bundle;
      }
    }
  }
}

/// The module's parameters that the operations from `first` to before `end`
/// read, each bucket from its first use to its last.
bool Bucketer::gatherStretch(Block &body, Operation *first, Operation *end,
                             bool isLast) {
  struct Use {
    Operation *first, *last;
    llvm::SmallVector<Operand *, 4> operands;
  };
  llvm::MapVector<StringRef, Use> uses;
  for (auto it = first->getIterator(); &*it != end; ++it) {
    for (Operand &operand : it->operands) {
      if (!readsStored(operand) || ownParams.contains(operand.param)) {
        continue;
      }
      auto [bucket, rest] = operand.param->name.split('.');
      if (rest.empty()) {
        return diag.error(operand.param->loc)
               << "pass 'fsdp-bucket': parameter '@" << operand.param->name
               << "' names no module, as 'norm.weight' does, so it is in no "
                  "bucket";
      }
      Use &use = uses.try_emplace(bucket, Use{&*it, &*it, {}}).first->second;
      use.last = &*it;
      use.operands.push_back(&operand);
    }
  }
  bool keep = reshard == "never" || (reshard == "default" && isLast);
  for (auto &[bucket, use] : uses) {
    Value *bundle = unshard(body, *use.first, bucket, bucket);
    giveBack(body, *std::next(use.last->getIterator()), bundle, keep);
    for (Operand *operand : use.operands) {
      operand->value = bundle;
    }
  }
  return true;
}

/// Gathers what `body` reads. Stacks and calls divide it into stretches: over
/// them a bucket is not held.
bool Bucketer::gatherIn(Block &body, llvm::ArrayRef<Param *> own) {
  names.clear();
  bundleNames.clear();
  for (const Value *argument : body.arguments) {
    names.insert(argument->name);
  }
  llvm::SmallVector<Operation *, 4> ends;
  for (Operation &op : body.ops) {
    for (const Value *result : op.results) {
      if (result) {
        names.insert(result->name);
      }
    }
    if (op.is(OpKind::Stack) || op.is(OpKind::Call) || op.is(OpKind::Return)) {
      ends.push_back(&op);
    }
  }
  ownParams = llvm::DenseSet<const Param *>(own.begin(), own.end());
  Operation *first = &body.ops.front();
  for (Operation *end : ends) {
    bool isLast = ends.size() > 1 && end == ends.back();
    if (first != end && !gatherStretch(body, first, end, isLast)) {
      return false;
    }
    if (!end->is(OpKind::Return)) {
      first = &*std::next(end->getIterator());
    }
  }
  gatherAll(body);
  return true;
}

bool Bucketer::run() {
  AxisSet cut;
  for (StringRef name : {"dp_shard", "cp"}) {
    cut = cut | AxisSet(axesCalled(module, name));
  }
  axes = cut.list();
  if (axes.empty()) {
    return true;
  }
  for (const Member &member : module.members) {
    if (member.param) {
      store(*member.param);
    }
  }
  for (const auto &block : module.blocks) {
    for (Param *param : block->params) {
      store(*param);
    }
  }
  for (const auto &block : module.blocks) {
    if (!gatherIn(*block->body, block->params)) {
      return false;
    }
  }
  for (const auto &function : module.functions) {
    if (!gatherIn(*function->body, {})) {
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class FsdpBucket : public Pass {
public:
  StringRef name() const override { return "fsdp-bucket"; }
  StringRef summary() const override {
    return "store parameters in pieces and gather them in buckets";
  }
  StringRef needs() const override { return "stage ac"; }
  Stage produces() const override { return Stage::Plan; }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"reshard-after-forward",
         "auto",
         "whether a bucket is given back before the backward",
         {"auto", "default", "always", "never"}}};
    return list;
  }

  std::string refusal(Module &module) const override {
    return stageRefusal(module, Stage::AC);
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    std::string reshard = chosen(*this, "reshard-after-forward", module,
                                 "reshard_after_forward", "default");
    if (reshard != "default" && reshard != "always" && reshard != "never") {
      return diag.error(module.loc)
             << "pass 'fsdp-bucket': 'reshard_after_forward' of the module's "
                "'parallelism' line is one of default, always, never, not '"
             << reshard << "'";
    }
    Bucketer bucketer(module, reshard, diag);
    if (!bucketer.run()) {
      return false;
    }
    count("stored", "parameters stored in pieces, of templates once",
          bucketer.stored);
    count("uneven", "of those, parameters whose pieces differ in size",
          bucketer.uneven);
    count("unshards", "places where a bucket is gathered", bucketer.unshards);
    module.stage = Stage::Plan;
    return true;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeFsdpBucket() {
  return std::make_unique<FsdpBucket>();
}
