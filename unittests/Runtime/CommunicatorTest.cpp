//===- CommunicatorTest.cpp - Collectives between ranks in lockstep -------===//
//
// On a mesh of 2 x 3 x 2 ranks, each rank sends numbers that say who it is, so
// that what arrives can be written down by hand.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/Communicator.h"
#include <ATen/ATen.h>
#include <gtest/gtest.h>

using namespace hp;

namespace {

constexpr AxisId a = 0, b = 1, c = 2;

class LockstepTest : public ::testing::Test {
protected:
  LockstepTest() {
    mesh.addAxis("a", 2);
    mesh.addAxis("b", 3);
    mesh.addAxis("c", 2);
    comm = makeLockstepCommunicator(mesh);
  }

  /// Rank r has [100 r, 100 r + 1, ...].
  Communicator::Tensors numbered(int64_t count) const {
    Communicator::Tensors tensors;
    for (int64_t rank : comm->localRanks()) {
      tensors.push_back(at::arange(count, at::kDouble) + 100.0 * rank);
    }
    return tensors;
  }

  static std::vector<double> values(const at::Tensor &x) {
    at::Tensor flat = x.contiguous();
    return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
  }

  Mesh mesh;
  std::unique_ptr<Communicator> comm;
};

using Ranks = std::vector<int64_t>;
using Values = std::vector<double>;

TEST_F(LockstepTest, allRanksAreLocal) {
  EXPECT_EQ(comm->localRanks().vec(),
            (Ranks{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

TEST_F(LockstepTest, groupsVaryTheirAxesAlone) {
  EXPECT_EQ(comm->group(7, {a}), (Ranks{1, 7}));
  EXPECT_EQ(comm->group(7, {b}), (Ranks{7, 9, 11}));
  EXPECT_EQ(comm->group(7, {c}), (Ranks{6, 7}));
  EXPECT_EQ(comm->group(7, {b, c}), (Ranks{6, 7, 8, 9, 10, 11}));
  // Major to minor as written, and not as in the mesh.
  EXPECT_EQ(comm->group(7, {c, b}), (Ranks{6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(comm->group(7, {}), (Ranks{7}));
}

TEST_F(LockstepTest, theNumberOfARankIsItsPlaceInItsGroup) {
  for (const AxisList &axes :
       {AxisList{a}, AxisList{b}, AxisList{c, a}, AxisList{b, a, c}}) {
    for (int64_t rank : comm->localRanks()) {
      EXPECT_EQ(comm->group(rank, axes)[comm->groupRank(rank, axes)], rank);
    }
  }
}

TEST_F(LockstepTest, allReduceSumsOverTheGroup) {
  Communicator::Tensors tensors = numbered(2);
  comm->allReduce(tensors, {b});
  EXPECT_EQ(values(tensors[1]), (Values{100 + 300 + 500, 903}));
  EXPECT_EQ(values(tensors[8]), (Values{600 + 800 + 1000, 2403}));
}

TEST_F(LockstepTest, allReduceTakesTheMaximum) {
  Communicator::Tensors tensors = numbered(1);
  comm->allReduce(tensors, {a, c}, Reduction::Max);
  EXPECT_EQ(values(tensors[0]), Values{700});
  EXPECT_EQ(values(tensors[5]), Values{1100});
}

TEST_F(LockstepTest, sumsGoInTheOrderOfTheRanks) {
  // (1e16 + 1) - 1e16 is 0 in float64 and (1e16 - 1e16) + 1 is not.
  Communicator::Tensors tensors;
  for (int64_t rank : comm->localRanks()) {
    double terms[] = {1e16, 1, -1e16};
    tensors.push_back(
        at::full({1}, terms[comm->groupRank(rank, {b})], at::kDouble));
  }
  comm->allReduce(tensors, {b});
  for (const at::Tensor &tensor : tensors) {
    EXPECT_EQ(values(tensor), Values{0});
  }
}

TEST_F(LockstepTest, allGatherStacksInTheOrderOfTheGroup) {
  Communicator::Tensors results = comm->allGather(numbered(1), {c, b});
  EXPECT_EQ(results[3].sizes(), (at::IntArrayRef{6, 1}));
  EXPECT_EQ(values(results[3]), (Values{0, 200, 400, 100, 300, 500}));
}

TEST_F(LockstepTest, reduceScatterKeepsTheRanksSlice) {
  Communicator::Tensors operands;
  for (const at::Tensor &x : numbered(6)) {
    operands.push_back(x.view({3, 2}));
  }
  Communicator::Tensors results = comm->reduceScatter(operands, {b});
  // Rank 9 has number 1 of {7, 9, 11}.
  EXPECT_EQ(values(results[9]), (Values{2700 + 3 * 2, 2700 + 3 * 3}));
}

TEST_F(LockstepTest, allToAllTransposesSlices) {
  Communicator::Tensors operands;
  for (const at::Tensor &x : numbered(6)) {
    operands.push_back(x.view({3, 2}));
  }
  Communicator::Tensors results = comm->allToAll(operands, {b});
  EXPECT_EQ(values(results[9]), (Values{702, 703, 902, 903, 1102, 1103}));
  results = comm->allToAll(results, {b});
  EXPECT_TRUE(results[9].equal(operands[9]));
}

TEST_F(LockstepTest, shiftMovesOnAndStartsWithZeros) {
  Communicator::Tensors results = comm->shift(numbered(1), {b}, 1, false);
  EXPECT_EQ(values(results[7]), Values{0});
  EXPECT_EQ(values(results[9]), Values{700});
  EXPECT_EQ(values(results[11]), Values{900});
  results = comm->shift(numbered(1), {b}, -1, false);
  EXPECT_EQ(values(results[7]), Values{900});
  EXPECT_EQ(values(results[11]), Values{0});
  results = comm->shift(numbered(1), {b}, 1, true);
  EXPECT_EQ(values(results[7]), Values{1100});
  results = comm->shift(numbered(1), {b}, -4, true);
  EXPECT_EQ(values(results[7]), Values{900});
}

TEST_F(LockstepTest, resultsShareNothingWithOperands) {
  Communicator::Tensors operands = numbered(2);
  for (const Communicator::Tensors &results :
       {comm->allGather(operands, {a}), comm->shift(operands, {a}, 0, true)}) {
    results[4].fill_(-1);
    EXPECT_EQ(values(operands[4]), (Values{400, 401}));
  }
}

TEST_F(LockstepTest, countsCallsAndBytesOfOneRank) {
  Communicator::Tensors tensors = numbered(3);
  comm->allReduce(tensors, {b});
  comm->allReduce(tensors, {b});
  comm->allReduce(tensors, {b, c}, Reduction::Max);
  comm->shift(tensors, {b}, 1, false);
  std::map<Traffic::Key, Traffic::Count> want;
  want[{Primitive::AllReduce, {b}}] = {2, 2 * 24};
  want[{Primitive::AllReduce, {b, c}}] = {1, 24};
  want[{Primitive::SendReceive, {b}}] = {1, 24};
  auto same = [](const auto &x, const auto &y) {
    return !(x.first < y.first) && !(y.first < x.first) && x.second == y.second;
  };
  EXPECT_TRUE(std::equal(want.begin(), want.end(),
                         comm->traffic().counts.begin(),
                         comm->traffic().counts.end(), same));
  comm->resetTraffic();
  EXPECT_TRUE(comm->traffic().counts.empty());
}

TEST_F(LockstepTest, operandsThatNoLockstepMakesAreRefused) {
  Communicator::Tensors tensors = numbered(4);
  tensors[5] = at::zeros({5}, at::kDouble);
  EXPECT_THROW(comm->allReduce(tensors, {a}), c10::Error);
  tensors[5] = at::zeros({4}, at::kFloat);
  EXPECT_THROW(comm->allReduce(tensors, {a}), c10::Error);
  tensors[5] = at::zeros({8}, at::kDouble).slice(0, 0, 8, 2);
  EXPECT_THROW(comm->allGather(tensors, {a}), c10::Error);
  EXPECT_THROW(comm->reduceScatter(numbered(4), {b}), c10::Error);
  EXPECT_THROW(comm->allToAll(numbered(4), {b}), c10::Error);
  tensors.pop_back();
  EXPECT_THROW(comm->shift(tensors, {a}, 1, true), c10::Error);
}

TEST(LockstepOfOneRank, everyPrimitiveGivesItsOperand) {
  Mesh mesh;
  mesh.addAxis("tp", 1);
  auto comm = makeLockstepCommunicator(mesh);
  at::Tensor x = at::rand({1, 5}, at::kDouble);
  Communicator::Tensors tensors = {x.clone()};
  comm->allReduce(tensors, {0});
  EXPECT_TRUE(tensors[0].equal(x));
  EXPECT_TRUE(comm->allGather({x}, {0})[0].equal(x.unsqueeze(0)));
  EXPECT_TRUE(comm->reduceScatter({x}, {0})[0].equal(x[0]));
  EXPECT_TRUE(comm->allToAll({x}, {0})[0].equal(x));
  EXPECT_TRUE(comm->shift({x}, {0}, 1, true)[0].equal(x));
  EXPECT_TRUE(comm->shift({x}, {0}, 1, false)[0].equal(at::zeros_like(x)));
}

} // namespace
