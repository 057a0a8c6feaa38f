//===- CpRewriteOps.cpp - In place of whole sequences ---------------------===//
//
// What cp-rewrite writes for each operation that demands the whole sequence.
// New operations keep the place of the one they stand in for, and its results
// keep their names, so that their readers need no change.
//
//===----------------------------------------------------------------------===//

#include "CpRewriter.h"
#include "hp/IR/Text.h"
#include <numeric>

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Making operations
//===----------------------------------------------------------------------===//

Value *CpRewriter::addResult(Operation &op, StringRef name) {
  Value *result = module.addResult(&op, names->unique(name), Type());
  return retype(op) ? result : nullptr;
}

std::string CpRewriter::derivedName(const Operation &op, unsigned operand,
                                    StringRef suffix) {
  const Operand &read = op.operands[operand];
  return ((read.param ? read.param->name : read.value->name) + suffix).str();
}

StringRef CpRewriter::dimLabel(const Operation &op, unsigned operand,
                               unsigned dim) {
  Type type = op.operands[operand].type(module);
  StringRef label = type.dims()[dim].name();
  if (!label.empty() && type.findDim(label) == int(dim)) {
    return label;
  }
  error(op.loc) << "'" << op.spelling() << "': dim " << dim << " of '"
                << str(op.operands[operand]) << "', " << str(type, module)
                << ", has no label of its own by which a collective could name "
                   "it; write one, as h=8";
  return {};
}

//===----------------------------------------------------------------------===//
// Heads instead of the sequence
//===----------------------------------------------------------------------===//

/// `num_attention_heads = 12` where the configuration has the field, else `12
/// heads of '%q'`.
std::string CpRewriter::headCount(const Operation &op, unsigned operand,
                                  StringRef field) {
  int64_t heads = op.operands[operand].type(module).dims()[2].size();
  if (module.config.getInt(field, -1) == heads) {
    return (field + " = " + Twine(heads)).str();
  }
  return (Twine(heads) + " heads of '" + str(op.operands[operand]) + "'").str();
}

/// How many times each group must be repeated so that each rank of cp gets
/// whole ones; none, after an error, if ranks cannot have whole heads.
///
/// tp, which comes later, takes the outer cut: each of its ranks has heads / tp
/// and groups / tp of them, and passes on whole heads to the ranks of cp. A
/// group that is repeated r times in a row serves r times fewer heads each, and
/// every head still reads the group that it did.
std::optional<int64_t>
CpRewriter::repeatsOfGroups(const Operation &op, const HeadOperands &operands) {
  int64_t context = numShards();
  int64_t tensor = module.mesh.size(module.tensorAxes());
  auto sizeOf = [&](unsigned operand) {
    return op.operands[operand].type(module).dims()[2].size();
  };
  int64_t heads = sizeOf(operands.heads);
  if (heads % (context * tensor) != 0) {
    std::string count = headCount(op, operands.heads, operands.headField);
    auto report = error(op.loc);
    report << "'" << op.spelling() << "': " << operands.option
           << " gives whole heads to each of " << degrees(true)
           << " ranks, and " << count << " do not divide; use "
           << operands.alternatives;
    if (heads % tensor == 0) {
      report << ", or a context_parallel_degree that divides "
             << heads / tensor;
    }
    return std::nullopt;
  }
  int64_t groups = sizeOf(operands.groups.front());
  if (groups % tensor != 0) {
    error(op.loc) << "'" << op.spelling() << "': " << operands.option
                  << " cuts heads over tp first, and "
                  << headCount(op, operands.groups.front(), operands.groupField)
                  << " do not divide over tp = " << tensor
                  << ": a head would be replicated over some of its ranks and "
                     "cut over cp; use "
                  << operands.alternatives
                  << ", or a tensor_parallel_degree that divides " << groups;
    return std::nullopt;
  }
  return context / std::gcd(groups / tensor, context);
}

/// op(x, ..) on whole sequences and this rank's heads:
///
///   %kr = repeat_heads %k {r=2}           groups only, and only if too few
///   %x.h = all_to_all %x {cp: S->h}       every operand
///   %o.h = op %x.h, ..
///   %o = all_to_all %o.h {cp: h->S}
bool CpRewriter::computeByHeads(Operation &op, const HeadOperands &heads) {
  std::optional<int64_t> repeats = repeatsOfGroups(op, heads);
  if (!repeats) {
    return false;
  }
  for (unsigned group : heads.groups) {
    if (*repeats == 1) {
      break;
    }
    Operation *repeat = insertBefore(op, OpKind::RepeatHeads);
    repeat->operands.push_back(op.operands[group]);
    repeat->attrs.set(module.intern("r"), Attribute{*repeats});
    Value *repeated = addResult(*repeat, derivedName(op, group, "r"));
    if (!repeated) {
      return false;
    }
    op.operands[group] = {repeated};
  }
  for (unsigned i = 0; i < op.operands.size(); ++i) {
    StringRef from = dimLabel(op, i, 1), to = dimLabel(op, i, 2);
    if (from.empty() || to.empty()) {
      return false;
    }
    Operation *move = insertBefore(op, OpKind::AllToAll);
    move->operands.push_back(op.operands[i]);
    move->axes = axes;
    move->dim = from;
    move->toDim = to;
    Value *moved = addResult(*move, derivedName(op, i, ".h"));
    if (!moved) {
      return false;
    }
    op.operands[i] = {moved};
  }

  Value *output = op.results[0];
  if (!output) {
    return retype(op); // dropped: nothing to move back
  }
  op.results.clear();
  Value *byHeads = addResult(op, (output->name + ".h").str());
  if (!byHeads) {
    return false;
  }
  Operation *back = insertAfter(op, OpKind::AllToAll);
  back->operands.push_back({byHeads});
  back->axes = axes;
  back->dim = dimLabel(*back, 0, 2);
  back->toDim = dimLabel(*back, 0, 1);
  if (back->dim.empty() || back->toDim.empty()) {
    return false;
  }
  back->results.push_back(output);
  output->owner = back;
  output->index = 0;
  return retype(*back);
}

//===----------------------------------------------------------------------===//
// Softmax attention
//===----------------------------------------------------------------------===//

bool CpRewriter::rewriteAttention(Operation &op) {
  ++attentions;
  switch (attention) {
  case Attention::Ring:
    return ringAttention(op);
  case Attention::AllGather:
    return gatherAttention(op);
  case Attention::AllToAll:
    static constexpr unsigned keysAndValues[] = {1, 2};
    return computeByHeads(
        op, {.heads = 0,
             .groups = keysAndValues,
             .headField = "num_attention_heads",
             .groupField = "num_key_value_heads",
             .option = "attention=alltoall",
             .alternatives = "attention=ring or attention=allgather"});
  }
  return false;
}

/// k and v go round; o and the log-sum-exp run along.
bool CpRewriter::ringAttention(Operation &op) {
  op.kind = OpKind::CpRing;
  op.axes = axes;
  return addResult(op, "lse") != nullptr;
}

/// Each rank has its queries and all keys and values.
bool CpRewriter::gatherAttention(Operation &op) {
  for (unsigned i : {1u, 2u}) {
    StringRef from = dimLabel(op, i, 1);
    if (from.empty()) {
      return false;
    }
    Operation *gather = insertBefore(op, OpKind::AllGather);
    gather->operands.push_back(op.operands[i]);
    gather->axes = axes;
    gather->dim = from;
    Value *gathered = addResult(*gather, derivedName(op, i, "g"));
    if (!gathered) {
      return false;
    }
    op.operands[i] = {gathered};
  }
  return retype(op);
}

//===----------------------------------------------------------------------===//
// Convolution and recurrence
//===----------------------------------------------------------------------===//

/// The tokens before a shard come from the rank before, whatever the kind.
bool CpRewriter::rewriteConvolution(Operation &op) {
  ++convolutions;
  int64_t taps = op.operands[1].type(module).dims()[2].size();
  int64_t tokens = module.findDim(sequence)->size / numShards();
  if (taps == 1) {
    return error(op.loc) << "'causal_conv1d' of one tap has no halo to pass "
                            "on; linear_conv_kernel_dim must be at least 2 "
                            "where the sequence is cut over cp";
  }
  if (taps - 1 > tokens) {
    return error(op.loc) << "'causal_conv1d' of " << taps << " taps looks "
                         << taps - 1
                         << " tokens back, and a shard of the sequence has "
                         << module.findDim(sequence)->size << " / "
                         << numShards() << " = " << tokens
                         << "; seq_len must be at least cp * " << taps - 1
                         << ", or context_parallel_degree smaller";
  }
  StringRef along = dimLabel(op, 0, 1);
  if (along.empty()) {
    return false;
  }
  Operation *halo = insertBefore(op, OpKind::CpHalo);
  halo->operands.push_back(op.operands[0]);
  halo->axes = axes;
  halo->dim = along;
  halo->attrs.set(module.intern("k"), Attribute{taps - 1});
  Value *before = addResult(*halo, "halo");
  if (!before) {
    return false;
  }
  op.operands.insert(op.operands.begin() + 1, Operand{before});
  return retype(op);
}

bool CpRewriter::rewriteRecurrence(Operation &op) {
  ++recurrences;
  if (recurrence == Recurrence::State) {
    return handStatesOn(op);
  }
  static constexpr unsigned queriesAndKeys[] = {0, 1};
  return computeByHeads(op, {.heads = 2,
                             .groups = queriesAndKeys,
                             .headField = "linear_num_value_heads",
                             .groupField = "linear_num_key_heads",
                             .option = "linear=alltoall",
                             .alternatives = "linear=state"});
}

/// A shard maps the state before it to M * state + U; the states that enter
/// follow from all maps by a scan over ranks.
bool CpRewriter::handStatesOn(Operation &op) {
  Operation *summary = insertBefore(op, OpKind::GdrSummary);
  summary->operands.append(op.operands.begin() + 1, op.operands.begin() + 5);
  summary->attrs = op.attrs;
  Value *map = module.addResult(summary, names->unique("M"), Type());
  Value *term = addResult(*summary, "U");
  if (!term) {
    return false;
  }
  Operation *scan = insertBefore(op, OpKind::CpScan);
  scan->operands.append({Operand{map}, Operand{term}});
  scan->axes = axes;
  Value *entering = addResult(*scan, "s0");
  if (!entering) {
    return false;
  }
  op.operands.push_back({entering});
  return retype(op);
}
