//===- CollectiveSoundnessTest.cpp - Collectives and their adjoints -------===//
//
// A collective changes what the ranks hold and not the value: read by the types
// of operand and result it is the same tensor. Its adjoint, another collective,
// takes a gradient of the dual result type to one of the dual operand type.
//
//===----------------------------------------------------------------------===//

#include "KernelTape.h"
#include "Sharding.h"
#include "hp/IR/InferTypes.h"
#include "hp/IR/Text.h"
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

/// `{a: dim}`, `{a: dim->toDim}`, `{a: dim, to=invariant}`.
struct Collective {
  OpKind kind;
  const char *dim = "";
  const char *toDim = "";
  bool toInvariant = false;

  std::string text() const {
    return (opInfo(kind).spelling + " " + dim + (*toDim ? "->" : "") + toDim +
            (toInvariant ? " to=invariant" : ""))
        .str();
  }
};

/// The table of adjoints.
Collective adjointOf(const Collective &collective) {
  switch (collective.kind) {
  case OpKind::CopyTo:
    return {OpKind::AllReduce};
  case OpKind::AllReduce:
    return {OpKind::CopyTo};
  case OpKind::AllGather:
    return {collective.toInvariant ? OpKind::Shard : OpKind::ReduceScatter,
            collective.dim};
  case OpKind::Shard:
    return {OpKind::AllGather, collective.dim, "", true};
  case OpKind::ReduceScatter:
    return {OpKind::AllGather, collective.dim};
  default:
    return {OpKind::AllToAll, collective.toDim, collective.dim};
  }
}

class CollectiveRunner {
public:
  CollectiveRunner() { maker.module.mesh.addAxis("a", 2); }

  Operation *make(const Collective &collective, Type operand) {
    Operation *op = maker.make(collective.kind, {operand}, {});
    op->axes = {testAxis};
    op->dim = collective.dim;
    op->toDim = collective.toDim;
    if (collective.toInvariant) {
      op->attrs.set("to", Attribute{Word{"invariant"}});
    }
    return op;
  }

  std::optional<Type> infer(const Collective &collective, Type operand) {
    auto types = inferTypes(maker.module, *make(collective, operand));
    if (!types) {
      llvm::consumeError(types.takeError());
      return std::nullopt;
    }
    return types->front();
  }

  /// What the ranks hold after the collective.
  static Pair run(const Collective &collective, Type operand, const Pair &x) {
    int from = operand.findDim(collective.dim);
    int to = operand.findDim(collective.toDim);
    auto cut = [&](const Pair &whole, int position) -> Pair {
      const Dim &dim = operand.dims()[position];
      return {halfOf(whole[0], dim, position, 0),
              halfOf(whole[1], dim, position, 1)};
    };
    auto gathered = [&](int position) -> Pair {
      at::Tensor all = joined(x, operand.dims()[position], position);
      return {all, all};
    };
    at::Tensor sum = x[0].sizes() == x[1].sizes() ? x[0] + x[1] : at::Tensor();
    switch (collective.kind) {
    case OpKind::CopyTo:
      return x;
    case OpKind::AllReduce:
      return {sum, sum};
    case OpKind::AllGather:
      return gathered(from);
    case OpKind::Shard:
      return cut(x, from);
    case OpKind::ReduceScatter:
      return cut({sum, sum}, from);
    default:
      return cut(gathered(from), to);
    }
  }

  /// What is wrong with a collective that gives `result`; empty if nothing is.
  std::string judge(const Collective &collective, Type operand, Type result,
                    const Collective &adjoint) {
    const Mesh &mesh = maker.module.mesh;
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(4);
    std::vector<int64_t> sizes;
    for (const Dim &dim : operand.dims()) {
      sizes.push_back(dim.size());
    }
    at::Tensor x = at::randn(sizes, generator, at::dtype(at::kDouble));
    at::Tensor cotangent = at::randn(sizes, generator, at::dtype(at::kDouble));

    Pair held = run(collective, operand, dealOut(operand, x, 5));
    auto made = putTogether(result, held, mesh);
    if (!made || !agree(*made, x)) {
      return "value";
    }
    Type from = maker.module.dual(result), to = maker.module.dual(operand);
    auto type = infer(adjoint, from);
    if (!type || !type->matches(to)) {
      return "type of the adjoint";
    }
    Pair gradient = run(adjoint, from, dealOut(from, cotangent, 6));
    made = putTogether(to, gradient, mesh);
    return made && agree(*made, cotangent) ? "" : "gradient";
  }

  OperationMaker maker;
};

TypeData operandType() {
  TypeData data;
  data.dtype = DType::F64;
  Dim fused;
  fused.segments = {{"q", {2, 3}}, {"k", {4}}};
  data.dims = {Dim("B", {2}), Dim("S", {4}), Dim("h", {4}), fused};
  return data;
}

TEST(CollectiveSoundness, EveryAcceptedStateKeepsValueAndGradient) {
  CollectiveRunner runner;
  std::vector<Collective> collectives{{OpKind::CopyTo}, {OpKind::AllReduce}};
  for (const char *dim : {"B", "S", "h"}) {
    collectives.push_back({OpKind::AllGather, dim});
    collectives.push_back({OpKind::AllGather, dim, "", true});
    collectives.push_back({OpKind::Shard, dim});
    collectives.push_back({OpKind::ReduceScatter, dim});
    for (const char *toDim : {"B", "S", "h"}) {
      collectives.push_back({OpKind::AllToAll, dim, toDim});
    }
  }
  int accepted = 0;
  for (const Collective &collective : collectives) {
    for (const TypeData &state : allStates(operandType())) {
      Type operand = runner.maker.module.type(state);
      auto result = runner.infer(collective, operand);
      if (!result) {
        continue;
      }
      // Cut from a replicated value, a shard has no adjoint that is one
      // collective: the gradient would be its place in a sum. Such a value is
      // not differentiated.
      if (collective.kind == OpKind::Shard && state.repl.contains(testAxis)) {
        continue;
      }
      ++accepted;
      EXPECT_EQ(
          runner.judge(collective, operand, *result, adjointOf(collective)), "")
          << collective.text() << " of " << str(operand, runner.maker.module);
    }
  }
  // copy_to, all_reduce; twice all_gather, shard, reduce_scatter for 3 dims
  // each; all_to_all between 3 dims.
  EXPECT_EQ(accepted, 2 + 4 * 3 + 6);
}

TEST(CollectiveSoundness, WrongStatesAndAdjointsWouldBeFound) {
  CollectiveRunner runner;
  auto type = [&](State state, unsigned dim = 0) {
    return runner.maker.module.type(inState(operandType(), state, dim));
  };
  Type i = type(State::Invariant), r = type(State::Replicated),
       p = type(State::Partial), s = type(State::Sharded, 1);
  // A sum that is taken for a term, a term taken for the sum.
  EXPECT_EQ(runner.judge({OpKind::AllReduce}, p, p, {OpKind::CopyTo}), "value");
  EXPECT_EQ(runner.judge({OpKind::CopyTo}, p, i, {OpKind::AllReduce}), "value");
  EXPECT_EQ(runner.judge({OpKind::AllReduce}, r, i, {OpKind::CopyTo}), "value");
  // Gathered to replicated, the gradient is a sum; a slice of one term is not.
  EXPECT_NE(runner.judge({OpKind::AllGather, "S"}, s, r, {OpKind::Shard, "S"}),
            "");
  EXPECT_NE(runner.judge({OpKind::AllGather, "S"}, s, i,
                         {OpKind::ReduceScatter, "S"}),
            "");
  // The cut moved to another dim than the type says.
  EXPECT_EQ(runner.judge({OpKind::AllToAll, "S", "h"}, s,
                         type(State::Sharded, 0), {OpKind::AllToAll, "h", "S"}),
            "value");
  // The reduction forgotten in the adjoint.
  EXPECT_NE(runner.judge({OpKind::CopyTo}, i, r, {OpKind::CopyTo}), "");
}

} // namespace
