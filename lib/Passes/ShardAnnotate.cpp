//===- ShardAnnotate.cpp - Placements into types --------------------------===//

#include "hp/Passes/ShardAnnotate.h"
#include "ParallelChoices.h"
#include "Retype.h"
#include "TensorParallel.h"
#include "hp/IR/InferTypes.h"
#include "hp/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"
#include <numeric>

using namespace hp;
using llvm::StringRef;

namespace {
class Annotator {
public:
  Annotator(Module &module, bool sequence, DiagnosticEngine &diag)
      : module(module), sequence(sequence), diag(diag) {}

  bool run();
  unsigned cut = 0, whole = 0; ///< parameters

private:
  InFlightDiagnostic error(Location loc) {
    InFlightDiagnostic report = diag.error(loc);
    report << "pass 'shard-annotate': ";
    return report;
  }
  std::vector<Param *> params();
  bool splitGroups();
  bool checkDivides(Location loc, const llvm::Twine &what, const Dim &dim,
                    llvm::ArrayRef<AxisId> axes);
  void noteFields(InFlightDiagnostic &report, const Dim &dim);
  bool placeParam(Param &param);
  bool placeArguments(Block &body);
  bool annotate(Block &body);

  // Which whole parameters meet values that tp cuts.
  using Types = llvm::DenseMap<const Value *, Type>;
  bool findMeetings(Block &body, const TensorParallel &tensor);
  bool followOp(const Operation &op, const TensorParallel &tensor,
                Types &types);
  Type withoutContext(Type type);

  Module &module;
  bool sequence;
  DiagnosticEngine &diag;
  /// For each function, what it returns, with tp.
  llvm::StringMap<Type> returned;
};
} // namespace

std::vector<Param *> Annotator::params() {
  std::vector<Param *> all;
  for (const auto &block : module.blocks) {
    llvm::append_range(all, block->params);
  }
  for (const Member &member : module.members) {
    if (member.param) {
      all.push_back(member.param);
    }
  }
  return all;
}

//===----------------------------------------------------------------------===//
// Divisibility
//===----------------------------------------------------------------------===//

/// Names the fields of the model's config that the counts of `dim` may come
/// from.
void Annotator::noteFields(InFlightDiagnostic &report, const Dim &dim) {
  llvm::SmallVector<std::string> fields;
  for (const NamedAttribute &entry : module.config.entries()) {
    const int64_t *value = entry.value.get<int64_t>();
    bool fits = value && llvm::any_of(dim.segments, [&](const Segment &part) {
                  return part.factors[0] == *value;
                });
    bool groups = dim.name() == "g";
    bool counts = entry.name.contains("heads") ||
                  entry.name.contains("vocab") ||
                  entry.name.contains("intermediate");
    bool packed = dim.isSegmented();
    if (fits && counts && (!groups || entry.name.contains("key_value")) &&
        (!packed || entry.name.contains("linear"))) {
      fields.push_back(
          ("'" + entry.name + "' is " + llvm::Twine(*value)).str());
    }
  }
  if (!fields.empty()) {
    report.note({}, "in the model's config, " + llvm::join(fields, ", "));
  }
}

bool Annotator::checkDivides(Location loc, const llvm::Twine &what,
                             const Dim &dim, llvm::ArrayRef<AxisId> axes) {
  int64_t ranks = module.mesh.size(axes);
  int64_t common = 0;
  const Segment *broken = nullptr;
  for (const Segment &segment : dim.segments) {
    common = std::gcd(common, segment.factors[0]);
    if (segment.factors[0] % ranks != 0 && !broken) {
      broken = &segment;
    }
  }
  if (!broken) {
    return true;
  }
  std::string group;
  llvm::raw_string_ostream os(group);
  module.mesh.printGroup(os, axes);
  InFlightDiagnostic report = error(loc);
  report << what << " has " << broken->factors[0];
  if (!broken->name.empty()) {
    report << " '" << broken->name << "'";
  }
  report << ", which " << (broken->factors[0] == 1 ? "does" : "do")
         << " not divide over '" << group << "', " << ranks << " ranks; ";
  llvm::SmallVector<std::string> legal;
  for (int64_t degree = 1; degree <= std::min<int64_t>(common, 4096);
       ++degree) {
    if (common % degree == 0) {
      legal.push_back(std::to_string(degree));
    }
  }
  report << "legal degrees are " << llvm::join(legal, ", ");
  noteFields(report, dim);
  return false;
}

/// Groups of heads fewer than tp: tp becomes (tpg, tpr), tpg as many as there
/// are groups.
bool Annotator::splitGroups() {
  std::optional<AxisList> tensor = module.mesh.lookup("tp");
  if (!tensor || tensor->size() != 1) {
    return true;
  }
  int64_t ranks = module.mesh.size(*tensor), groups = 0;
  const Param *first = nullptr;
  for (const Param *param : params()) {
    for (const Param::Cut &cut :
         param->declared.value_or(llvm::SmallVector<Param::Cut, 1>())) {
      const Dim &dim = param->type.dims()[cut.dim];
      if (cut.axis != "tp" || dim.name() != "g" || dim.isSegmented() ||
          dim.segments[0].factors[0] % ranks == 0) {
        continue;
      }
      int64_t count = dim.segments[0].factors[0];
      if (ranks % count != 0) {
        InFlightDiagnostic report = error(param->loc);
        report << "'@" << param->name << "' has " << count
               << " groups of heads 'g', and tensor parallelism " << ranks
               << " ranks; one must divide the other";
        noteFields(report, dim);
        return false;
      }
      if (first && groups != count) {
        InFlightDiagnostic report = error(param->loc);
        report << "'@" << param->name << "' has " << count
               << " groups of heads and '@" << first->name << "' " << groups
               << "; both are fewer than " << ranks
               << " ranks of 'tp', which can be split once";
        return false;
      }
      first = param;
      groups = count;
    }
  }
  if (!first || groups == 1) {
    return true;
  }
  Mesh mesh;
  for (const MeshAxis &axis : module.mesh.axes()) {
    bool added = axis.name == "tp" ? mesh.addAxis("tpg", groups) &&
                                         mesh.addAxis("tpr", ranks / groups)
                                   : mesh.addAxis(axis.name, axis.size);
    if (!added) {
      return error(module.loc) << "axis 'tp' cannot be split into 'tpg' and "
                                  "'tpr': the mesh has such names";
    }
  }
  for (const AxisAlias &alias : module.mesh.aliases()) {
    AxisList axes;
    for (AxisId axis : alias.axes) {
      StringRef name = module.mesh.name(axis);
      if (name != "tp") {
        axes.append(*mesh.lookup(name));
        continue;
      }
      axes.append(*mesh.lookup("tpg"));
      axes.append(*mesh.lookup("tpr"));
    }
    mesh.addAlias(alias.name, axes);
  }
  AxisList both = *mesh.lookup("tpg");
  both.append(*mesh.lookup("tpr"));
  mesh.addAlias("tp", both);
  module.mesh = mesh;
  return true;
}

//===----------------------------------------------------------------------===//
// Parameters and arguments
//===----------------------------------------------------------------------===//

/// The declared cuts, and replication over what cuts the tokens.
bool Annotator::placeParam(Param &param) {
  TypeData data = *param.type;
  for (const Param::Cut &declaration :
       param.declared.value_or(llvm::SmallVector<Param::Cut, 1>())) {
    AxisList axes = axesCalled(module, declaration.axis);
    Dim &dim = data.dims[declaration.dim];
    if (declaration.axis == "tp" && dim.name() == "g" && !dim.isSegmented()) {
      // Groups that are too few stay whole over the ranks that share them.
      AxisSet rest;
      while (!axes.empty() &&
             dim.segments[0].factors[0] % module.mesh.size(axes) != 0) {
        rest.insert(axes.pop_back_val());
      }
      data.repl = data.repl | rest;
    }
    if (!checkDivides(param.loc,
                      "dim " + llvm::Twine(declaration.dim) + " of '@" +
                          param.name + "'",
                      dim, axes)) {
      return false;
    }
    llvm::append_range(dim.axes, axes);
  }
  for (const DeclaredCut &cut : valueCuts(module)) {
    data.repl = data.repl | AxisSet(axesCalled(module, cut.axis));
  }
  std::string fault = checkType(data, module.mesh);
  if (!fault.empty()) {
    return error(param.loc) << "'@" << param.name << "': " << fault;
  }
  param.type = module.type(data);
  param.declared.reset();
  AxisSet tensor(axesCalled(module, "tp"));
  bool isCut = !(param.type.shardedAxes() & tensor).empty();
  ++(isCut ? cut : whole);
  return true;
}

bool Annotator::placeArguments(Block &body) {
  AxisSet inForce = module.axesInForce();
  for (Value *argument : body.arguments) {
    for (const DeclaredCut &cut : valueCuts(module)) {
      AxisList axes = axesCalled(module, cut.axis);
      llvm::erase_if(axes,
                     [&](AxisId axis) { return !inForce.contains(axis); });
      int position = argument->type.findDim(cut.dim);
      if (position < 0 || axes.empty()) {
        continue;
      }
      const Dim &dim = argument->type.dims()[position];
      const DimDecl *declared = module.findDim(cut.dim);
      if (!checkDivides(declared && declared->loc ? declared->loc
                                                  : argument->loc,
                        "dim '" + cut.dim + "'", dim, axes)) {
        return false;
      }
      argument->type = withCut(module, argument->type, cut.dim, axes);
    }
  }
  return true;
}

/// Types of results, and the sum of what is counted: an integer that is partial
/// can be of no use before.
bool Annotator::annotate(Block &body) {
  BlockNames names(body);
  for (Operation &op : body.ops) {
    if (!retype(op, "shard-annotate", diag)) {
      return false;
    }
    if (!op.is(OpKind::CountValid) || !op.results[0] ||
        op.results[0]->type->partial.empty()) {
      continue;
    }
    Value *count = op.results[0];
    Operation *sum = insertAfter(op, OpKind::AllReduce);
    sum->operands.push_back({count});
    sum->axes = count->type->partial.list();
    Value *total = module.addResult(
        sum, names.unique((count->name + ".all").str()), count->type);
    replaceUsesAfter(*sum, count, total);
  }
  return true;
}

//===----------------------------------------------------------------------===//
// What meets tp
//===----------------------------------------------------------------------===//

Type Annotator::withoutContext(Type type) {
  TypeData data = *type;
  AxisSet context = module.contextAxes();
  data.repl = data.repl - context;
  for (Dim &dim : data.dims) {
    llvm::erase_if(dim.axes,
                   [&](AxisId axis) { return context.contains(axis); });
  }
  return module.type(data);
}

/// Follows tp through `op` as tp-insert will write it, and replicates the whole
/// parameters that meet cut values.
bool Annotator::followOp(const Operation &op, const TensorParallel &tensor,
                         Types &types) {
  llvm::SmallVector<Type, 6> operands;
  for (const Operand &operand : op.operands) {
    operands.push_back(operand.param ? withoutContext(operand.param->type)
                                     : types.lookup(operand.value));
  }
  using Fix = TensorParallel::Fix;
  for (auto [type, fix] : llvm::zip(operands, tensor.fixes(op, operands))) {
    type = fix == Fix::Replicate ? tensor.replicated(type)
           : fix == Fix::Shard   ? tensor.sharded(type)
                                 : type;
  }
  for (unsigned i = 0; i < operands.size(); ++i) {
    Param *param = op.operands[i].param;
    if (!param || !isFloat(param->type.dtype())) {
      continue;
    }
    AxisSet met = tensor.met(op, operands, i) - operands[i].shardedAxes();
    TypeData data = *param->type;
    data.repl = data.repl | met;
    param->type = module.type(data);
    operands[i] = withoutContext(param->type);
  }
  if (op.is(OpKind::CrossEntropy)) {
    return true; // whatever becomes of the vocabulary, no parameter follows
  }
  if (op.info().category == OpCategory::Structure) {
    for (Value *result : op.results) {
      if (result) {
        types[result] = op.is(OpKind::Call) ? returned.lookup(op.symbol)
                                            : tensor.residual(result->type);
      }
    }
    return true;
  }
  auto inferred = inferForward(module, op.kind, operands, op);
  if (!inferred) {
    return error(op.loc) << llvm::toString(inferred.takeError());
  }
  AxisSet tensorSet(tensor.axes());
  for (auto [result, type] : llvm::zip(op.results, *inferred)) {
    if (result) {
      types[result] = (type->partial & tensorSet).empty() ||
                              !isFloat(type.dtype()) || type.rank() == 0
                          ? type
                          : tensor.reduced(type);
    }
  }
  return true;
}

bool Annotator::findMeetings(Block &body, const TensorParallel &tensor) {
  Types types;
  for (Value *argument : body.arguments) {
    types[argument] = tensor.residual(argument->type);
  }
  for (const Operation &op : body.ops) {
    if (op.is(OpKind::Return)) {
      continue;
    }
    // A loss is a scalar of the vocabulary, which no parameter follows.
    bool follows = llvm::all_of(op.operands, [&](const Operand &operand) {
      return operand.param || types.contains(operand.value);
    });
    if (follows && !followOp(op, tensor, types)) {
      return false;
    }
  }
  if (Operation *end = body.terminator(); end && !end->operands.empty()) {
    for (const auto &function : module.functions) {
      if (function->body.get() == &body) {
        returned[function->name] = types.lookup(end->operands[0].value);
      }
    }
  }
  return true;
}

bool Annotator::run() {
  if (!checkSharding(module, "shard-annotate", diag) || !splitGroups()) {
    return false;
  }
  module.stage = Stage::Annotated;
  for (Param *param : params()) {
    if (!placeParam(*param)) {
      return false;
    }
  }
  for (Block *body : allBodies(module)) {
    if (!placeArguments(*body)) {
      return false;
    }
  }
  for (Block *body : allBodies(module)) {
    if (!annotate(*body)) {
      return false;
    }
  }
  TensorParallel tensor(module, sequence);
  if (tensor.axes().empty()) {
    return true;
  }
  for (Block *body : allBodies(module)) {
    if (!findMeetings(*body, tensor)) {
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class ShardAnnotate : public Pass {
public:
  StringRef name() const override { return "shard-annotate"; }
  StringRef summary() const override {
    return "put the declared placements into the types";
  }
  StringRef needs() const override { return "stage spec"; }
  Stage produces() const override { return Stage::Annotated; }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"sequence-parallel",
         "auto",
         "cut residual values over tp along the sequence",
         {"auto", "true", "false"}}};
    return list;
  }

  std::string refusal(Module &module) const override {
    return stageRefusal(module, Stage::Spec);
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    bool sequence = chosen(*this, "sequence-parallel", module,
                           "sequence_parallel", "true") == "true";
    if (option("sequence-parallel") != "auto") {
      module.parallelism.set(module.intern("sequence_parallel"), {sequence});
    }
    Annotator annotator(module, sequence, diag);
    if (!annotator.run()) {
      return false;
    }
    count("cut", "parameters cut over tp", annotator.cut);
    count("whole", "parameters whole on every rank of tp", annotator.whole);
    return true;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeShardAnnotate() {
  return std::make_unique<ShardAnnotate>();
}
