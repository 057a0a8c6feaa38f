//===- CpRewrite.cpp - Cutting the sequence over ranks --------------------===//
//
// Cuts arguments along the sequence and infers all types again from there.
// What demands the whole sequence shows in the rule table: its factor is one
// that no axis may cut. Such operations go to CpRewriteOps.cpp; all others keep
// their form.
//
//===----------------------------------------------------------------------===//

#include "hp/Passes/CpRewrite.h"
#include "CpRewriter.h"
#include "ParallelChoices.h"
#include "hp/IR/Text.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

InFlightDiagnostic CpRewriter::error(Location loc) {
  InFlightDiagnostic report = diag.error(loc);
  report << "pass 'cp-rewrite': ";
  return report;
}

std::string CpRewriter::degrees(bool withTensorAxes) const {
  int64_t context = numShards();
  int64_t tensor = module.mesh.size(module.tensorAxes());
  if (!withTensorAxes || tensor == 1) {
    return ("cp = " + Twine(context)).str();
  }
  return ("cp * tp = " + Twine(context) + " * " + Twine(tensor) + " = " +
          Twine(context * tensor))
      .str();
}

//===----------------------------------------------------------------------===//
// The sequence
//===----------------------------------------------------------------------===//

/// The declared dim that the `sharding` line cuts over cp; `S` without a line.
bool CpRewriter::findSequence() {
  for (const DeclaredCut &cut : valueCuts(module)) {
    if (axesCalled(module, cut.axis) == axes && module.findDim(cut.dim)) {
      sequence = cut.dim;
    }
  }
  if (module.sharding.empty() && module.findDim("S")) {
    sequence = module.findDim("S")->name;
  }
  return !sequence.empty() ||
         error(module.loc)
             << "the mesh has " << degrees(false)
             << ", but no dim of the module is cut over it; declare dim S and "
                "cut it, 'sharding {S=cp}'";
}

/// Shards are of equal length, also where sequence parallelism cuts them once
/// more over tp.
bool CpRewriter::checkSequence() {
  const DimDecl &dim = *module.findDim(sequence);
  bool both = module.parallelism.getFlag("sequence_parallel");
  int64_t pieces =
      numShards() * (both ? module.mesh.size(module.tensorAxes()) : 1);
  if (dim.size % pieces == 0) {
    return true;
  }
  return error(dim.loc ? dim.loc : module.loc)
         << "seq_len (dim " << sequence << ") is " << dim.size
         << " and does not divide over " << degrees(both)
         << (both && pieces != numShards() ? ", which sequence parallelism asks"
                                           : "")
         << "; it must be a multiple of " << pieces;
}

void CpRewriter::cutArguments(Block &body) {
  for (Value *argument : body.arguments) {
    argument->type = withCut(module, argument->type, sequence, axes);
  }
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

/// The first dim of an operand that is cut over cp although the rule of `op`
/// wants it whole.
std::optional<CpRewriter::WholeDim>
CpRewriter::cutWholeDim(const Operation &op) {
  const OpInfo &info = op.info();
  if (info.category != OpCategory::Local) {
    return std::nullopt;
  }
  for (const RuleVariant &variant : info.variants) {
    if (variant.operands.size() != op.operands.size()) {
      continue;
    }
    std::string whole = info.wholeFactors(variant);
    for (unsigned i = 0; i < op.operands.size(); ++i) {
      Type type = op.operands[i].type(module);
      StringRef letters = variant.operands[i];
      letters.consume_front("*");
      for (unsigned fromLast = 0;
           type && fromLast < std::min<size_t>(type.rank(), letters.size());
           ++fromLast) {
        unsigned dim = type.rank() - 1 - fromLast;
        char factor = letters[letters.size() - 1 - fromLast];
        bool isCut = !(AxisSet(type.dims()[dim].axes) & AxisSet(axes)).empty();
        if (isCut && StringRef(whole).contains(factor)) {
          return WholeDim{i, dim, factor};
        }
      }
    }
  }
  return std::nullopt;
}

/// Replaces `op`, which demands the cut dim `whole`, if there is a way.
bool CpRewriter::rewriteWhole(Operation &op, WholeDim whole) {
  if (op.kind == OpKind::Sdpa && whole.factor == 't') {
    return rewriteAttention(op);
  }
  if (op.kind == OpKind::CausalConv1d && whole.factor == 's') {
    return rewriteConvolution(op);
  }
  if (op.kind == OpKind::GatedDeltaRule && whole.factor == 's') {
    return rewriteRecurrence(op);
  }
  const Operand &operand = op.operands[whole.operand];
  return error(op.loc) << "'" << op.spelling() << "' needs dim " << whole.dim
                       << " of '" << str(operand) << "' whole, and "
                       << degrees(false) << " ranks hold a piece of it each: "
                       << str(operand.type(module), module)
                       << "; there is no way to compute it in pieces, so "
                          "context_parallel_degree must be 1";
}

/// An integer that comes out as a term of a sum over cp counts for all ranks
/// (valid targets do): its all_reduce takes in cp, or is made.
bool CpRewriter::sumCounts(Operation &op) {
  for (Value *result : op.results) {
    if (!result || isFloat(result->type.dtype()) ||
        (result->type->partial & AxisSet(axes)).empty()) {
      continue;
    }
    ++counts;
    if (Operation *reduction = reductions.lookup(result)) {
      reduction->axes = (AxisSet(reduction->axes) | AxisSet(axes)).list();
      continue;
    }
    Operation *reduction = insertAfter(op, OpKind::AllReduce);
    reduction->axes = axes;
    reduction->operands.push_back({result});
    Value *total = module.addResult(
        reduction, names->unique((result->name + ".all").str()), Type());
    replaceUsesAfter(*reduction, result, total);
    if (!retype(*reduction)) {
      return false;
    }
  }
  return true;
}

bool CpRewriter::rewriteBody(Block &body) {
  BlockNames bodyNames(body);
  names = &bodyNames;
  reductions.clear();
  for (Operation &op : body.ops) {
    if (op.is(OpKind::AllReduce) && !op.operands.empty()) {
      reductions.try_emplace(op.operands[0].value, &op);
    }
  }
  // What a rewrite inserts before or after is typed already.
  for (auto next = body.ops.begin(); next != body.ops.end();) {
    Operation &op = *next++;
    std::optional<WholeDim> whole = cutWholeDim(op);
    if (whole ? !rewriteWhole(op, *whole) : !retype(op)) {
      return false;
    }
    if (!sumCounts(op)) {
      return false;
    }
  }
  return true;
}

bool CpRewriter::rewrite() {
  if (!findSequence() || !checkSequence()) {
    return false;
  }
  for (Block *body : allBodies(module)) {
    cutArguments(*body);
  }
  // What a call returns must be known before its callers are typed; a function
  // calls only what stands above it, and a stack returns what it takes.
  for (const auto &function : module.functions) {
    if (!rewriteBody(*function->body)) {
      return false;
    }
  }
  for (const auto &block : module.blocks) {
    if (!rewriteBody(*block->body)) {
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class CpRewrite : public Pass {
public:
  StringRef name() const override { return "cp-rewrite"; }
  StringRef summary() const override {
    return "cut the sequence over cp, and rewrite what demands it whole";
  }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"attention",
         "auto",
         "how softmax attention sees the other shards",
         {"auto", "ring", "allgather", "alltoall"}},
        {"linear",
         "auto",
         "how the recurrence sees the other shards",
         {"auto", "state", "alltoall"}},
    };
    return list;
  }
  StringRef needs() const override { return "stage annotated"; }
  Stage produces() const override { return Stage::CP; }

  std::string refusal(Module &module) const override {
    if (module.stage == Stage::Annotated) {
      return {};
    }
    std::string stage = hp::name(module.stage).str();
    if (module.stage == Stage::Spec) {
      return "the module is at stage '" + stage +
             "'; shard-annotate comes first";
    }
    return "the module is at stage '" + stage +
           "'; context parallelism comes before all that makes it, once, at "
           "stage 'annotated'";
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    using Attention = CpRewriter::Attention;
    using Recurrence = CpRewriter::Recurrence;
    auto attention = choice(module, diag, options()[0]);
    auto linear = choice(module, diag, options()[1]);
    if (!attention || !linear || !checkSharding(module, "cp-rewrite", diag)) {
      return false;
    }
    module.stage = Stage::CP;
    if (module.contextAxes().empty()) {
      return true;
    }
    CpRewriter rewriter(module, diag,
                        *attention == "allgather"  ? Attention::AllGather
                        : *attention == "alltoall" ? Attention::AllToAll
                                                   : Attention::Ring,
                        *linear == "alltoall" ? Recurrence::AllToAll
                                              : Recurrence::State);
    if (!rewriter.rewrite()) {
      return false;
    }
    count("attentions", "softmax attentions rewritten", rewriter.attentions);
    count("convolutions", "convolutions given a halo", rewriter.convolutions);
    count("recurrences", "recurrences rewritten", rewriter.recurrences);
    count("counts", "counts summed over cp", rewriter.counts);
    return true;
  }

private:
  /// What the option says, else the `parallelism` line, else the first choice.
  /// None, after an error, if the line says what is no choice.
  std::optional<std::string> choice(Module &module, DiagnosticEngine &diag,
                                    const PassOption &known) const {
    llvm::ArrayRef<std::string> choices(known.choices);
    choices = choices.drop_front(); // auto
    std::string word =
        chosen(*this, known.name, module, known.name, choices.front());
    if (llvm::is_contained(choices, word)) {
      return word;
    }
    diag.error(module.loc) << "pass 'cp-rewrite': '" << known.name
                           << "' of the 'parallelism' line is one of "
                           << llvm::join(choices, ", ") << ", not '" << word
                           << "'";
    return std::nullopt;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeCpRewrite() {
  return std::make_unique<CpRewrite>();
}
