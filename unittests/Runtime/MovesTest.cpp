//===- MovesTest.cpp - Values keep their meaning when they move -----------===//
//
// The runtime's collectives between ranks in lockstep, on a mesh of 2 x 3 x 2
// ranks. Read by the types of operand and result, what the ranks hold is the
// same tensor before and after:
//
//   S  each rank holds its cut of it       I, R  each holds it
//   P  what the ranks hold sums to it
//
// Types come with products, segments, several axes on a dim in either order,
// and other axes in any state beside the ones that move.
//
//===----------------------------------------------------------------------===//

#include "../../lib/Runtime/comm/Exchange.h"
#include "KernelTape.h"
#include "hp/IR/InferTypes.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/Interpreter.h"
#include "hp/Runtime/Pieces.h"
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

constexpr AxisId a = 0, b = 1, c = 2;

/// One collective on one type.
struct Case {
  OpKind kind;
  TypeData operand;
  AxisList axes;
  const char *dim = "", *toDim = "";
  bool toInvariant = false;
};

class MovesTest : public ::testing::Test {
protected:
  MovesTest() {
    maker.module.mesh.addAxis("a", 2);
    maker.module.mesh.addAxis("b", 3);
    maker.module.mesh.addAxis("c", 2);
    comm = makeLockstepCommunicator(maker.module.mesh);
    kernels = makeReferenceKernels(*comm);
    generator = at::make_generator<at::CPUGeneratorImpl>(3);
  }

  at::Tensor random(at::IntArrayRef sizes) {
    return at::randn(sizes, generator, at::dtype(at::kDouble));
  }

  /// `x` dealt out by `type`, in storage of the strides of a transposed tensor
  /// where `transposed`. Partial values are split at random.
  Ranked deal(Type type, const at::Tensor &x, bool transposed) {
    const Mesh &mesh = maker.module.mesh;
    AxisList partial = type->partial.list();
    Ranked held;
    std::map<std::vector<int64_t>, at::Tensor> rest; // of each group
    for (int64_t rank : comm->localRanks()) {
      at::Tensor piece = cutPiece(x, placementOf(type, mesh, rank));
      std::vector<int64_t> members = group(mesh, rank, partial);
      if (members.size() > 1) {
        at::Tensor &left = rest.try_emplace(members, piece).first->second;
        piece = rank == members.back() ? left : random(piece.sizes());
        left = left - piece;
      }
      if (transposed && piece.dim() > 1) {
        piece = piece.transpose(0, 1).contiguous().transpose(0, 1);
      }
      held.push_back(piece);
    }
    return held;
  }

  /// What is wrong if `held` is to be `x` by `type`; empty if nothing is.
  std::string judge(Type type, const at::Tensor &x, const Ranked &held) {
    const Mesh &mesh = maker.module.mesh;
    AxisList partial = type->partial.list();
    for (int64_t rank : comm->localRanks()) {
      Placement placement = placementOf(type, mesh, rank);
      at::Tensor want = cutPiece(x, placement);
      at::Tensor have = at::zeros_like(want);
      for (int64_t member : group(mesh, rank, partial)) {
        if (held[member].sizes() != want.sizes()) {
          return "shape on rank " + std::to_string(member);
        }
        have = have + held[member];
      }
      if (!at::allclose(have, want, 1e-12, 1e-12)) {
        return "values on rank " + std::to_string(rank);
      }
    }
    return {};
  }

  void expectSame(const Case &test) {
    Type type = maker.module.type(test.operand);
    Operation *op = maker.make(test.kind, {type}, {});
    op->axes = test.axes;
    op->dim = test.dim;
    op->toDim = test.toDim;
    if (test.toInvariant) {
      op->attrs.set("to", Attribute{Word{"invariant"}});
    }
    std::string what = op->spelling() + " of " + str(type, maker.module);
    auto types = inferTypes(maker.module, *op);
    ASSERT_TRUE(bool(types))
        << what << ": " << llvm::toString(types.takeError());
    std::vector<int64_t> sizes;
    for (const Dim &dim : type.dims()) {
      sizes.push_back(dim.size());
    }
    for (bool transposed : {false, true}) {
      at::Tensor x = random(sizes);
      Ranked operand = deal(type, x, transposed);
      ASSERT_EQ(judge(type, x, operand), "") << what;
      std::vector<Ranked> results =
          runCollective({*op, *comm, kernels, operand, {}});
      EXPECT_EQ(judge(types->front(), x, results[0]), "") << what;
      if (test.kind == OpKind::CopyTo) {
        continue;
      }
      // What the table calls fresh is fresh and has no bytes to spare.
      for (auto [result, source] : llvm::zip(results[0], operand)) {
        EXPECT_FALSE(result.storage().is_alias_of(source.storage())) << what;
        EXPECT_EQ(result.storage().nbytes(),
                  size_t(result.numel() * result.element_size()))
            << what;
      }
    }
  }

  OperationMaker maker;
  std::unique_ptr<Communicator> comm;
  KernelSets kernels;
  at::Generator generator;
};

/// f64[S=12, (h=6*2), 2], and f64[S=12, (q=6 | k=12*2), 2] with segments.
TypeData typeOf(AxisList sequence, AxisList heads, bool segments = false) {
  TypeData data;
  data.dtype = DType::F64;
  data.dims.push_back(Dim("S", {12}, sequence));
  Dim dim("h", {12, 2}, heads);
  if (segments) {
    dim.segments = {{"q", {12}}, {"k", {12, 2}}};
  }
  data.dims.push_back(dim);
  data.dims.push_back(Dim("", {2}));
  return data;
}

TypeData with(TypeData data, AxisSet repl, AxisSet partial) {
  data.repl = repl;
  data.partial = partial;
  return data;
}

AxisSet set(AxisList axes) { return AxisSet(axes); }

TEST_F(MovesTest, allGather) {
  for (bool invariant : {false, true}) {
    for (bool segments : {false, true}) {
      for (AxisList cut : {AxisList{a}, AxisList{b}, AxisList{b, a},
                           AxisList{a, b}, AxisList{c, b}}) {
        for (size_t moved = 1; moved <= cut.size(); ++moved) {
          AxisList axes(llvm::ArrayRef<AxisId>(cut).take_back(moved));
          AxisList heads;
          if (!set(cut).contains(c)) {
            heads = {c};
          }
          expectSame({OpKind::AllGather, typeOf(cut, heads, segments), axes,
                      "S", "", invariant});
        }
      }
    }
  }
}

TEST_F(MovesTest, reduceScatter) {
  for (AxisList axes : {AxisList{a}, AxisList{b}, AxisList{b, a}}) {
    for (AxisList cut : {AxisList{}, AxisList{c}}) {
      expectSame({OpKind::ReduceScatter, with(typeOf(cut, {}), {}, set(axes)),
                  axes, "S"});
      expectSame({OpKind::ReduceScatter, with(typeOf({}, cut), {}, set(axes)),
                  axes, "h"});
    }
    // An axis that stays partial.
    expectSame({OpKind::ReduceScatter,
                with(typeOf({}, {}), {}, set(axes) | set({c})), axes, "S"});
  }
}

TEST_F(MovesTest, allToAll) {
  for (AxisList axes : {AxisList{a}, AxisList{b}, AxisList{a, b}}) {
    for (bool outer : {false, true}) {
      // The dims may be cut over c before, each in its turn.
      AxisList from = outer ? AxisList{c} : AxisList{};
      llvm::append_range(from, axes);
      expectSame({OpKind::AllToAll, typeOf(from, {}), axes, "S", "h"});
      expectSame({OpKind::AllToAll, typeOf({}, from), axes, "h", "S"});
      if (outer) {
        expectSame({OpKind::AllToAll, typeOf(axes, {c}), axes, "S", "h"});
        expectSame({OpKind::AllToAll, typeOf({c}, axes), axes, "h", "S"});
      }
    }
  }
}

TEST_F(MovesTest, allReduceAndCopyTo) {
  for (AxisList axes : {AxisList{a}, AxisList{b, a}, AxisList{a, b, c}}) {
    expectSame({OpKind::AllReduce, with(typeOf({}, {}), {}, set(axes)), axes});
    expectSame({OpKind::CopyTo, typeOf({}, {}), axes});
  }
  expectSame({OpKind::AllReduce,
              with(typeOf({a}, {c}, /*segments=*/true), {}, set({b})),
              {b}});
  expectSame({OpKind::AllReduce, with(typeOf({a}, {}), {}, set({b, c})), {b}});
}

TEST_F(MovesTest, shard) {
  for (AxisList axes : {AxisList{a}, AxisList{b}, AxisList{b, a}}) {
    expectSame({OpKind::Shard, typeOf({}, {}), axes, "S"});
    expectSame({OpKind::Shard, typeOf({c}, {}), axes, "S"});
    expectSame({OpKind::Shard, typeOf({}, {c}), axes, "h"});
  }
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

TEST_F(MovesTest, piecesMakeTheWholeAgain) {
  for (bool segments : {false, true}) {
    for (AxisList rows : {AxisList{}, AxisList{a}, AxisList{b, a}}) {
      for (AxisList stored : {AxisList{}, AxisList{c}, AxisList{c, b}}) {
        if (!(set(rows) & set(stored)).empty()) {
          continue;
        }
        TypeData data = typeOf({}, rows, segments);
        std::swap(data.dims[0], data.dims[1]);
        if (!stored.empty()) {
          data.store = Store{DType::F64, stored, false};
        }
        Type type = maker.module.type(data);
        at::Tensor x = random({type.dims()[0].size(), 12, 2});
        Ranked pieces;
        for (int64_t rank : comm->localRanks()) {
          Placement placement = placementOf(type, maker.module.mesh, rank);
          pieces.push_back(cutPiece(x, placement));
          EXPECT_EQ(pieces.back().numel(), placement.numElements());
          EXPECT_EQ(int64_t(pieces.back().nbytes()),
                    heldBytes(type, maker.module.mesh, rank));
        }
        EXPECT_TRUE(assemble(*comm, type, pieces).equal(x))
            << str(type, maker.module);
      }
    }
  }
}

/// Six rows over four ranks are 2, 2, 2 and none.
TEST_F(MovesTest, storageThatDoesNotDivide) {
  TypeData data;
  data.dtype = DType::F64;
  data.dims.push_back(Dim("", {6}));
  data.dims.push_back(Dim("", {3}));
  data.store = Store{DType::F64, {a, c}, true};
  Type type = maker.module.type(data);
  const Mesh &mesh = maker.module.mesh;
  for (int64_t rank : comm->localRanks()) {
    int64_t number = groupRank(mesh, rank, {a, c});
    EXPECT_EQ(placementOf(type, mesh, rank).shape[0], number < 3 ? 2 : 0);
    EXPECT_EQ(heldBytes(type, mesh, rank), number < 3 ? 2 * 3 * 8 : 0);
  }
  EXPECT_EQ(paddedElements(type, mesh, {a, c}), 2 * 3);
}

/// The example at the top of Placement.h, with storage across segments.
TEST_F(MovesTest, segmentsAreCutOneByOne) {
  TypeData data;
  data.dtype = DType::F64;
  Dim rows("", {1}, {c});
  rows.segments = {{"q", {4}}, {"k", {4}}, {"v", {8}}};
  data.dims.push_back(rows);
  Type type = maker.module.type(data);
  at::Tensor x = at::arange(16, at::kDouble);
  auto held = [&](int64_t rank) {
    at::Tensor piece = cutPiece(x, placementOf(type, maker.module.mesh, rank));
    return std::vector<double>(piece.data_ptr<double>(),
                               piece.data_ptr<double>() + piece.numel());
  };
  EXPECT_EQ(held(1), (std::vector<double>{2, 3, 6, 7, 12, 13, 14, 15}));
  data.store = Store{DType::F64, {b}, true};
  type = maker.module.type(data);
  EXPECT_EQ(held(1), (std::vector<double>{2, 3, 6}));
  EXPECT_EQ(held(3), (std::vector<double>{7, 12, 13}));
  EXPECT_EQ(held(5), (std::vector<double>{14, 15}));
}

} // namespace
