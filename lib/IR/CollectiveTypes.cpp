//===- CollectiveTypes.cpp - Types of collectives -------------------------===//
//
// Each collective asks for one state of the axes it names and leaves another.
// New cuts go in as the minor-most axes of a dim, and only those come off.
//
//   copy_to         {a}                  I -> R
//   all_reduce      {a}                  P -> I
//   all_gather      {a: d}               S along d -> R
//   all_gather      {a: d, to=invariant} S along d -> I
//   shard           {a: d}               I -> S along d
//   reduce_scatter  {a: d}               P -> S along d
//   all_to_all      {a: d->e}            S along d -> S along e
//
//===----------------------------------------------------------------------===//

#include "TypeRules.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

/// The axes a collective names must be there, each once, and on the mesh.
static llvm::Error checkAxes(const TypeQuery &query) {
  const AxisList &axes = query.like.axes;
  if (axes.empty()) {
    return query.refuse("names no axis; write {axis} or {axis: dim}");
  }
  for (AxisId axis : axes) {
    if (axis >= query.mesh().numAxes()) {
      return query.refuse("names an axis that the mesh does not have");
    }
  }
  if (AxisSet(axes).size() != axes.size()) {
    return query.refuse("names an axis twice in " + query.group(axes));
  }
  return llvm::Error::success();
}

/// The position of the dim called `name`.
static llvm::Expected<unsigned> findDim(const TypeQuery &query,
                                        StringRef name) {
  Type type = query.operands[0];
  if (name.empty()) {
    return query.refuse("names no dim; write {axis: dim}");
  }
  int position = type.findDim(name);
  if (position < 0) {
    return query.refuse("no dim '" + name + "' in " + query.text(type), 0);
  }
  return position;
}

/// `dim` cut over `axes` as well; every segment must divide.
static llvm::Expected<Dim> addCut(const TypeQuery &query, const Dim &dim,
                                  llvm::ArrayRef<AxisId> axes) {
  Dim cut = dim;
  llvm::append_range(cut.axes, axes);
  int64_t ranks = query.mesh().size(cut.axes);
  for (const Segment &segment : cut.segments) {
    if (segment.factors[0] % ranks != 0) {
      return query.refuse("dim '" + dim.name() + "' of " +
                              Twine(segment.factors[0]) +
                              " does not divide over " + query.group(cut.axes) +
                              ", " + Twine(ranks) + " ranks",
                          0);
    }
  }
  return cut;
}

/// `dim` without the cut over `axes`, which must be its minor-most axes.
static llvm::Expected<Dim> removeCut(const TypeQuery &query, const Dim &dim,
                                     llvm::ArrayRef<AxisId> axes) {
  llvm::ArrayRef<AxisId> present = dim.axes;
  if (present.take_back(axes.size()) != axes) {
    return query.refuse(
        query.group(axes) + " are not the minor-most axes of dim '" +
            dim.name() + "', which is cut over " + query.group(present),
        0);
  }
  return dim.withAxes(present.drop_back(axes.size()));
}

/// Refuses unless every axis named is in `state`.
static llvm::Error expectState(const TypeQuery &query, State state,
                               const Twine &remedy) {
  for (AxisId axis : query.like.axes) {
    State found = query.operands[0].state(axis);
    if (found != state) {
      return query.refuse("the operand is " + stateName(found) + " over " +
                              query.quoted(axis) + ", not " + stateName(state) +
                              "; " + remedy,
                          0);
    }
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Between states
//===----------------------------------------------------------------------===//

static llvm::Expected<TypeList> copyTo(const TypeQuery &query) {
  if (llvm::Error error = expectState(
          query, State::Invariant, "only an invariant value can be copied")) {
    return error;
  }
  TypeData data = *query.operands[0];
  data.repl = data.repl | AxisSet(query.like.axes);
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> allReduce(const TypeQuery &query) {
  if (llvm::Error error =
          expectState(query, State::Partial,
                      "what is not partial must not be summed again")) {
    return error;
  }
  TypeData data = *query.operands[0];
  data.partial = data.partial - AxisSet(query.like.axes);
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> allGather(const TypeQuery &query) {
  StringRef to = query.like.attrs.getText("to");
  if (!to.empty() && to != "invariant") {
    return query.refuse("'to' can only be 'invariant', not '" + to + "'");
  }
  auto position = findDim(query, query.like.dim);
  if (!position) {
    return position.takeError();
  }
  TypeData data = *query.operands[0];
  auto dim = removeCut(query, data.dims[*position], query.like.axes);
  if (!dim) {
    return dim.takeError();
  }
  data.dims[*position] = *dim;
  if (to.empty()) {
    data.repl = data.repl | AxisSet(query.like.axes);
  }
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> reduceScatter(const TypeQuery &query) {
  if (llvm::Error error =
          expectState(query, State::Partial,
                      "what is not partial must not be summed again")) {
    return error;
  }
  auto position = findDim(query, query.like.dim);
  if (!position) {
    return position.takeError();
  }
  TypeData data = *query.operands[0];
  auto dim = addCut(query, data.dims[*position], query.like.axes);
  if (!dim) {
    return dim.takeError();
  }
  data.dims[*position] = *dim;
  data.partial = data.partial - AxisSet(query.like.axes);
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> shard(const TypeQuery &query) {
  // Its adjoint, all_gather to=invariant, is that of an invariant value alone.
  if (llvm::Error error =
          expectState(query, State::Invariant,
                      "only an invariant value can be cut without "
                      "communication")) {
    return error;
  }
  auto position = findDim(query, query.like.dim);
  if (!position) {
    return position.takeError();
  }
  TypeData data = *query.operands[0];
  auto dim = addCut(query, data.dims[*position], query.like.axes);
  if (!dim) {
    return dim.takeError();
  }
  data.dims[*position] = *dim;
  return TypeList{query.module.type(data)};
}

static llvm::Expected<TypeList> allToAll(const TypeQuery &query) {
  auto from = findDim(query, query.like.dim);
  if (!from) {
    return from.takeError();
  }
  auto to = findDim(query, query.like.toDim);
  if (!to) {
    return to.takeError();
  }
  if (*from == *to) {
    return query.refuse("moves the cut of dim '" + query.like.dim +
                        "' to itself");
  }
  TypeData data = *query.operands[0];
  auto gathered = removeCut(query, data.dims[*from], query.like.axes);
  if (!gathered) {
    return gathered.takeError();
  }
  auto cut = addCut(query, data.dims[*to], query.like.axes);
  if (!cut) {
    return cut.takeError();
  }
  data.dims[*from] = *gathered;
  data.dims[*to] = *cut;
  return TypeList{query.module.type(data)};
}

//===----------------------------------------------------------------------===//
// Along the sequence
//===----------------------------------------------------------------------===//

/// Refuses unless dim 1 of operand `operand`, the sequence or its blocks, is
/// cut over exactly the axes named.
static llvm::Error expectSequence(const TypeQuery &query, unsigned operand) {
  Type type = query.operands[operand];
  if (type.rank() < 2) {
    return query.refuse("operand " + Twine(operand) +
                            " has no sequence; dim 1 must be one",
                        operand);
  }
  const AxisList &axes = type.dims()[1].axes;
  if (axes != query.like.axes) {
    return query.refuse(
        "dim 1 of operand " + Twine(operand) + " must be cut over " +
            query.group(query.like.axes) + ", not over " + query.group(axes),
        operand);
  }
  return llvm::Error::success();
}

/// The k tokens before each shard: dim n=ranks*k beside the sequence's axes.
static llvm::Expected<TypeList> halo(const TypeQuery &query) {
  Type type = query.operands[0];
  if (type.rank() != 3) {
    return query.refuse("takes a value of three dims, batch, sequence and "
                        "channels, not " +
                            query.text(type),
                        0);
  }
  auto position = findDim(query, query.like.dim);
  if (!position) {
    return position.takeError();
  }
  if (*position != 1) {
    return query.refuse("'" + query.like.dim + "' is not the sequence, dim 1",
                        0);
  }
  if (llvm::Error error = expectSequence(query, 0)) {
    return error;
  }
  if (!type->partial.empty()) {
    return query.refuse("the operand is partial over " +
                            query.group(type->partial.list()) +
                            "; reduce it first with all_reduce or "
                            "reduce_scatter",
                        0);
  }
  int64_t ranks = query.mesh().size(query.like.axes);
  int64_t tokens = type.dims()[1].size() / ranks;
  int64_t window = query.like.attrs.getInt("k", 0);
  if (window < 1 || window > tokens) {
    return query.refuse("'k' is " + Twine(window) +
                        "; it must be between 1 and the " + Twine(tokens) +
                        " tokens of a shard");
  }
  TypeData data = *type;
  data.dims[1] = Dim("n", {ranks, window}, query.like.axes);
  return TypeList{query.module.type(data)};
}

/// M[.., n, h, k, k], U[.., n, h, k, v] -> the state that enters each shard.
static llvm::Expected<TypeList> scan(const TypeQuery &query) {
  Type map = query.operands[0], term = query.operands[1];
  if (map.rank() != 5 || term.rank() != 5) {
    return query.refuse("takes maps and terms of five dims, batch, shards, "
                        "heads and two of channels");
  }
  for (unsigned i : {0u, 1u}) {
    if (llvm::Error error = expectSequence(query, i)) {
      return error;
    }
    if (!query.operands[i]->partial.empty()) {
      return query.refuse("operand " + Twine(i) +
                              " is partial; reduce it first with all_reduce",
                          i);
    }
  }
  for (unsigned dim = 0; dim < 4; ++dim) {
    if (!map.dims()[dim].sameSizes(term.dims()[dim]) ||
        map.dims()[dim].axes != term.dims()[dim].axes) {
      return query.refuse(
          "dim " + Twine(dim) + " of map and term differs in size or axes", 1);
    }
  }
  if (!map.dims()[4].sameSizes(map.dims()[3]) || !map.dims()[3].axes.empty() ||
      !map.dims()[4].axes.empty() || !term.dims()[4].axes.empty()) {
    return query.refuse("a map must be square and channels whole", 0);
  }
  int64_t ranks = query.mesh().size(query.like.axes);
  if (map.dims()[1].size() != ranks) {
    return query.refuse("has " + Twine(map.dims()[1].size()) + " maps for " +
                            Twine(ranks) + " ranks; one for each is asked for",
                        0);
  }
  if (map->repl != term->repl || map.dtype() != term.dtype()) {
    return query.refuse("map and term differ in state or dtype", 1);
  }
  return TypeList{term};
}

static llvm::Expected<TypeList> ring(const TypeQuery &query) {
  if (llvm::Error error = query.expectOperands(3)) {
    return error;
  }
  for (unsigned i = 0; i < 3; ++i) {
    if (llvm::Error error = expectSequence(query, i)) {
      return error;
    }
  }
  return inferByRule(query);
}

/// Cross entropy over logits cut along the vocabulary: as cross_entropy on
/// whole ones, since maximum, sum and target are reduced inside.
static llvm::Expected<TypeList> crossEntropyVp(const TypeQuery &query) {
  Type logits = query.operands[0], labels = query.operands[1];
  auto position = findDim(query, query.like.dim);
  if (!position) {
    return position.takeError();
  }
  if (logits.rank() != 3 || *position != 2) {
    return query.refuse("takes logits of three dims, batch, sequence and '" +
                            query.like.dim + "', not " + query.text(logits),
                        0);
  }
  if (logits.dims()[2].axes != query.like.axes) {
    return query.refuse("logits must be cut along '" + query.like.dim +
                            "' over " + query.group(query.like.axes) +
                            ", not over " + query.group(logits.dims()[2].axes),
                        0);
  }
  TypeData whole = *logits;
  whole.dims[2].axes.clear();
  Type operands[] = {query.module.type(whole), labels};
  auto loss = inferByRule(
      {query.module, opInfo(OpKind::CrossEntropy), operands, query.like});
  if (!loss) {
    return loss.takeError();
  }
  TypeData lse = *logits;
  lse.dims.pop_back();
  lse.partial = AxisSet();
  lse.repl = (*loss)[0]->repl;
  return TypeList{(*loss)[0], query.module.type(lse)};
}

llvm::Expected<TypeList> hp::inferCollective(const TypeQuery &query) {
  OpKind kind = query.info.kind;
  if (llvm::Error error = checkAxes(query)) {
    return error;
  }
  if (kind == OpKind::CpRing) {
    return ring(query);
  }
  bool pair = kind == OpKind::CpScan || kind == OpKind::CrossEntropyVp;
  if (llvm::Error error = query.expectOperands(pair ? 2 : 1)) {
    return error;
  }
  switch (kind) {
  case OpKind::CopyTo:
    return copyTo(query);
  case OpKind::AllReduce:
    return allReduce(query);
  case OpKind::AllGather:
    return allGather(query);
  case OpKind::ReduceScatter:
    return reduceScatter(query);
  case OpKind::Shard:
    return shard(query);
  case OpKind::AllToAll:
    return allToAll(query);
  case OpKind::CpHalo:
    return halo(query);
  case OpKind::CpScan:
    return scan(query);
  case OpKind::CrossEntropyVp:
    return crossEntropyVp(query);
  default:
    return query.refuse("is no collective");
  }
}
