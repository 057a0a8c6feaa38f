//===- CheckTypeTest.cpp - Which types are legal --------------------------===//

#include "hp/IR/Module.h"
#include "hp/IR/Verifier.h"
#include <gtest/gtest.h>

using namespace hp;

namespace {
class CheckType : public testing::Test {
protected:
  void SetUp() override {
    mesh.addAxis("dp", 4);
    mesh.addAxis("tp", 8);
  }
  static constexpr AxisId dp = 0, tp = 1, nowhere = 9;

  std::string check(const TypeData &data) { return checkType(data, mesh); }
  static TypeData tensor(std::initializer_list<Dim> dims) {
    TypeData data;
    data.dims.assign(dims);
    return data;
  }
  static TypeData stored(int64_t rows, llvm::ArrayRef<AxisId> cut,
                         bool uneven) {
    TypeData data = tensor({Dim("", {rows}, cut)});
    data.store = Store{DType::F32, {dp}, uneven};
    return data;
  }

  Mesh mesh;
};
} // namespace

TEST_F(CheckType, legal_types_have_no_fault) {
  EXPECT_EQ(check(TypeData()), "");
  TypeData data = tensor({Dim("B", {8}, {dp}), Dim("h", {16, 3}, {tp})});
  EXPECT_EQ(check(data), "");
  data.dims[1].segments.push_back({"k", {8, 5}});
  EXPECT_EQ(check(data), "");
}

TEST_F(CheckType, an_axis_cuts_one_dim_once) {
  EXPECT_EQ(check(tensor({Dim("B", {8}, {dp}), Dim("", {4}, {dp})})),
            "axis 'dp' is used twice, in dim 0 ('B') and in dim 1");
  EXPECT_EQ(check(tensor({Dim("B", {16}, {dp, dp})})),
            "axis 'dp' is used twice in dim 0 ('B')");
}

TEST_F(CheckType, an_axis_is_in_one_state) {
  TypeData data = tensor({Dim("", {8}, {dp})});
  data.repl = AxisSet::single(dp);
  EXPECT_EQ(check(data), "axis 'dp' is used twice, in dim 0 and in 'repl'");
  data.dims[0].axes.clear();
  data.partial = AxisSet::single(dp);
  EXPECT_EQ(check(data), "axis 'dp' is used twice, in 'repl' and in 'partial'");
}

TEST_F(CheckType, an_axis_is_on_the_mesh) {
  EXPECT_EQ(check(tensor({Dim("", {8}, {nowhere})})),
            "axis #9 in dim 0 is not on the mesh, which has 2 axes");
  TypeData data;
  data.partial = AxisSet::single(nowhere);
  EXPECT_EQ(check(data),
            "axis #9 in 'partial' is not on the mesh, which has 2 axes");
}

TEST_F(CheckType, extents_are_positive_and_fit) {
  EXPECT_EQ(check(tensor({Dim("", {0})})), "extent 0 of dim 0 is below 1");
  EXPECT_EQ(check(tensor({Dim("B", {4, -1})})),
            "extent -1 of dim 0 ('B') is below 1");
  constexpr int64_t big = int64_t(1) << 31;
  EXPECT_EQ(check(tensor({Dim("", {big}), Dim("", {big})})), "");
  EXPECT_EQ(check(tensor({Dim("", {big}), Dim("", {big + 1})})),
            "the tensor has more than 2^62 elements");
  EXPECT_EQ(check(tensor({Dim("", {INT64_MAX, INT64_MAX, INT64_MAX})})),
            "the tensor has more than 2^62 elements");
  TypeData sum = tensor({Dim("", {int64_t(1) << 62})});
  for (int i = 0; i < 8; ++i) {
    sum.dims[0].segments.push_back({"", {int64_t(1) << 62}});
  }
  EXPECT_EQ(check(sum), "the tensor has more than 2^62 elements");
}

TEST_F(CheckType, a_dim_has_an_extent) {
  EXPECT_EQ(check(tensor({Dim()})), "dim 0 has no extent");
  EXPECT_EQ(check(tensor({Dim("", {})})), "segment 0 of dim 0 has no extent");
}

TEST_F(CheckType, the_first_factor_divides) {
  EXPECT_EQ(check(tensor({Dim("", {4}, {tp})})),
            "dim 0, size 4, does not divide over (tp), 8 ranks");
  // 4 * 8 divides over 8 ranks, its first factor does not.
  EXPECT_EQ(check(tensor({Dim("h", {4, 8}, {tp})})),
            "dim 0 ('h'), first factor 4, does not divide over (tp), 8 ranks");
  EXPECT_EQ(check(tensor({Dim("", {16}, {dp, tp})})),
            "dim 0, size 16, does not divide over (dp,tp), 32 ranks");
}

TEST_F(CheckType, every_segment_divides) {
  TypeData data = tensor({Dim("q", {8}, {tp})});
  data.dims[0].segments.push_back({"k", {4}});
  EXPECT_EQ(check(data),
            "segment 'k' of dim 0, size 4, does not divide over (tp), 8 ranks");
}

TEST_F(CheckType, segments_have_names_of_their_own) {
  TypeData data = tensor({Dim("q", {8})});
  data.dims[0].segments.push_back({"q", {8}});
  EXPECT_EQ(check(data), "segment 'q' occurs twice in dim 0");
}

TEST_F(CheckType, storage_says_whether_it_is_even) {
  EXPECT_EQ(check(stored(8, {}, false)), "");
  EXPECT_EQ(check(stored(6, {}, true)), "");
  EXPECT_EQ(check(stored(6, {}, false)),
            "storage of 6 local rows does not divide over 4 ranks; spell it "
            "with '~'");
  EXPECT_EQ(check(stored(8, {}, true)),
            "storage of 8 local rows divides over 4 ranks; spell it without "
            "'~'");
  // What counts are the rows left on a rank of the compute sharding.
  EXPECT_EQ(check(stored(16, {tp}, true)), "");
}

TEST_F(CheckType, storage_may_name_replicated_axes_and_no_others_in_use) {
  TypeData data = stored(8, {}, false);
  data.repl = AxisSet::single(dp);
  EXPECT_EQ(check(data), "");
  data.repl = AxisSet();
  data.partial = AxisSet::single(dp);
  EXPECT_EQ(check(data),
            "axis 'dp' is used twice, in 'partial' and in 'store'");
  data = stored(8, {dp}, true);
  EXPECT_EQ(check(data), "axis 'dp' is used twice, in dim 0 and in 'store'");
  data = TypeData();
  data.store = Store{DType::F32, {dp}, false};
  EXPECT_EQ(check(data), "a scalar cannot be stored in pieces");
}

TEST_F(CheckType, all_faults_are_named_at_once) {
  TypeData data = tensor({Dim("", {4}, {tp}), Dim("", {6}, {tp})});
  data.partial = AxisSet::single(nowhere);
  EXPECT_EQ(check(data),
            "dim 0, size 4, does not divide over (tp), 8 ranks; "
            "axis 'tp' is used twice, in dim 0 and in dim 1; "
            "dim 1, size 6, does not divide over (tp), 8 ranks; "
            "axis #9 in 'partial' is not on the mesh, which has 2 axes");
}
