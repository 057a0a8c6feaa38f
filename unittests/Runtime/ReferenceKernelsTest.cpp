//===- ReferenceKernelsTest.cpp - Each row by itself ----------------------===//
//
// Of every local and view row: adjoints against finite differences in float64,
// running gradients, operands that are only types, operands with strange
// strides, and the storage marks of the table.
//
//===----------------------------------------------------------------------===//

#include "KernelRows.h"
#include <gtest/gtest.h>
#include <set>

using namespace hp;
using namespace hp::testing;

namespace {

/// A row's forward operation and its adjoint, on whole operands.
class RowRunner {
public:
  RowRunner(const KernelRow &row, at::ScalarType floating)
      : row(row), kernels(makeReferenceKernels()),
        forwardOp(makeRowOperation(maker, row, floating)),
        info(forwardOp->info()) {}

  Tensors forward(llvm::ArrayRef<at::Tensor> operands) {
    Tensors results = kernels->forward(*forwardOp, operands);
    resultTypes.clear();
    for (const at::Tensor &result : results) {
      resultTypes.push_back(
          maker.plainType(result.scalar_type(), result.sizes()));
    }
    return results;
  }

  Tensors backward(llvm::ArrayRef<at::Tensor> operands,
                   llvm::ArrayRef<at::Tensor> cotangents,
                   llvm::ArrayRef<at::Tensor> acc = {}) {
    Operation *adjoint = maker.makeAdjoint(*forwardOp, resultTypes);
    return kernels->backward(*adjoint, operands, {}, cotangents, acc);
  }

  /// The operands with NaNs where the adjoint needs only the type.
  Tensors withPlaceholders(llvm::ArrayRef<at::Tensor> operands) {
    Tensors replaced;
    for (auto [index, operand] : llvm::enumerate(operands)) {
      replaced.push_back(info.needsValue(index) ? operand
                                                : placeholder(operand));
    }
    return replaced;
  }

  Tensors randomCotangents(llvm::ArrayRef<at::Tensor> results) {
    Tensors cotangents;
    for (unsigned index : info.cotangentResults(results.size())) {
      cotangents.push_back(randomLike(results[index], 70 + index));
    }
    return cotangents;
  }

  Tensors randomAcc(llvm::ArrayRef<at::Tensor> operands) {
    Tensors acc;
    for (unsigned index : info.diffOperands(operands.size())) {
      acc.push_back(randomLike(operands[index], 90 + index));
    }
    return acc;
  }

  const KernelRow &row;
  OperationMaker maker;
  std::unique_ptr<KernelSet> kernels;
  Operation *forwardOp;
  const OpInfo &info;
  llvm::SmallVector<Type, 4> resultTypes;
};

/// Rows of one block of sequence: the others are for a mesh.
std::vector<KernelRow> wholeRows() {
  std::vector<KernelRow> rows;
  llvm::copy_if(kernelRows(), std::back_inserter(rows),
                [](const KernelRow &row) { return row.blocks == 1; });
  return rows;
}

std::vector<KernelRow> differentiableRows() {
  std::vector<KernelRow> rows;
  llvm::copy_if(
      wholeRows(), std::back_inserter(rows),
      [](const KernelRow &row) { return opInfo(row.kind).hasBackwardOp(); });
  return rows;
}

std::string rowName(const ::testing::TestParamInfo<KernelRow> &info) {
  return info.param.name;
}

TEST(ReferenceKernels, TestsCoverEveryLocalAndViewRow) {
  std::set<OpKind> covered{OpKind::Ones};
  for (const KernelRow &row : wholeRows()) {
    covered.insert(row.kind);
  }
  for (const OpInfo &info : allOps()) {
    bool kernel =
        info.category == OpCategory::Local || info.category == OpCategory::View;
    EXPECT_EQ(covered.contains(info.kind), kernel) << info.spelling.str();
  }
}

TEST(ReferenceKernels, RefusesWhatIsNoLocalOperation) {
  OperationMaker maker;
  Operation *op = maker.make(OpKind::AllReduce, {}, {});
  EXPECT_THROW(makeReferenceKernels()->forward(*op, {}), c10::Error);
}

//===----------------------------------------------------------------------===//
// Adjoints
//===----------------------------------------------------------------------===//

class Adjoint : public ::testing::TestWithParam<KernelRow> {};

/// Sum of the elementwise products of results and cotangents.
double dot(const OpInfo &info, llvm::ArrayRef<at::Tensor> results,
           llvm::ArrayRef<at::Tensor> cotangents) {
  double sum = 0;
  for (auto [index, cotangent] :
       llvm::zip(info.cotangentResults(results.size()), cotangents)) {
    sum += (results[index] * cotangent).sum().item<double>();
  }
  return sum;
}

TEST_P(Adjoint, EqualsCentralDifferences) {
  RowRunner runner(GetParam(), at::kDouble);
  Tensors operands = sampleOperands(GetParam(), at::kDouble, 11);
  Tensors results = runner.forward(operands);
  Tensors cotangents = runner.randomCotangents(results);
  Tensors gradients =
      runner.backward(runner.withPlaceholders(operands), cotangents);
  auto positions = runner.info.diffOperands(operands.size());
  ASSERT_EQ(gradients.size(), positions.size());
  const double step = 1e-5;
  for (auto [position, gradient] : llvm::zip(positions, gradients)) {
    ASSERT_EQ(gradient.sizes(), operands[position].sizes());
    ASSERT_EQ(gradient.scalar_type(), at::kDouble);
    at::Tensor flat = operands[position].view(-1);
    at::Tensor wanted = at::zeros_like(flat);
    for (int64_t i = 0; i < flat.numel(); ++i) {
      double old = flat[i].item<double>();
      flat[i].fill_(old + step);
      double above = dot(runner.info, runner.forward(operands), cotangents);
      flat[i].fill_(old - step);
      double below = dot(runner.info, runner.forward(operands), cotangents);
      flat[i].fill_(old);
      wanted[i].fill_((above - below) / (2 * step));
    }
    double scale = 1 + wanted.abs().max().item<double>();
    double error =
        (gradient.reshape(-1) - wanted).abs().max().item<double>() / scale;
    EXPECT_LT(error, 1e-8) << "operand " << position;
    EXPECT_GT(wanted.abs().max().item<double>(), 1e-3)
        << "operand " << position << " has no gradient to speak of";
  }
}

TEST_P(Adjoint, AddsToTheRunningGradient) {
  RowRunner runner(GetParam(), at::kDouble);
  Tensors operands = sampleOperands(GetParam(), at::kDouble, 12);
  Tensors cotangents = runner.randomCotangents(runner.forward(operands));
  Tensors acc = runner.randomAcc(operands), copies;
  for (const at::Tensor &running : acc) {
    copies.push_back(running.clone());
  }
  Tensors alone = runner.backward(operands, cotangents);
  Tensors together = runner.backward(operands, cotangents, acc);
  for (size_t i = 0; i < acc.size(); ++i) {
    EXPECT_TRUE(together[i].allclose(acc[i] + alone[i], 1e-12, 1e-12));
    EXPECT_TRUE(acc[i].equal(copies[i])) << "acc was written to";
  }
  // Only the last operand has one.
  Tensors one(acc.size());
  one.back() = acc.back();
  Tensors partly = runner.backward(operands, cotangents, one);
  EXPECT_TRUE(partly.back().equal(together.back()));
  for (size_t i = 0; i + 1 < acc.size(); ++i) {
    EXPECT_TRUE(partly[i].equal(alone[i]));
  }
}

TEST_P(Adjoint, DoesNotReadOperandsThatAreOnlyTypes) {
  RowRunner runner(GetParam(), at::kFloat);
  Tensors operands = sampleOperands(GetParam(), at::kFloat, 13);
  Tensors cotangents = runner.randomCotangents(runner.forward(operands));
  Tensors acc = runner.randomAcc(operands);
  Tensors wanted = runner.backward(operands, cotangents, acc);
  Tensors made =
      runner.backward(runner.withPlaceholders(operands), cotangents, acc);
  for (auto [lhs, rhs] : llvm::zip(made, wanted)) {
    EXPECT_TRUE(lhs.equal(rhs));
    EXPECT_EQ(lhs.strides(), rhs.strides());
  }
}

TEST_P(Adjoint, TakesAnAbsentCotangentForZero) {
  RowRunner runner(GetParam(), at::kDouble);
  Tensors operands = sampleOperands(GetParam(), at::kDouble, 14);
  Tensors cotangents = runner.randomCotangents(runner.forward(operands));
  Tensors acc = runner.randomAcc(operands);
  for (size_t absent = 0; absent < cotangents.size(); ++absent) {
    Tensors some = cotangents, zero = cotangents;
    some[absent] = at::Tensor();
    zero[absent] = at::zeros_like(cotangents[absent]);
    Tensors made = runner.backward(operands, some, acc);
    Tensors wanted = runner.backward(operands, zero, acc);
    for (auto [lhs, rhs] : llvm::zip(made, wanted)) {
      EXPECT_TRUE(lhs.allclose(rhs, 1e-13, 1e-13));
    }
  }
}

TEST_P(Adjoint, LeavesNoGraphBehind) {
  RowRunner runner(GetParam(), at::kFloat);
  Tensors operands = sampleOperands(GetParam(), at::kFloat, 15);
  std::vector<size_t> uses;
  for (const at::Tensor &operand : operands) {
    uses.push_back(operand.storage().use_count());
  }
  {
    Tensors results = runner.forward(operands);
    for (const at::Tensor &result : results) {
      EXPECT_FALSE(result.requires_grad());
    }
    Tensors cotangents = runner.randomCotangents(results);
    for (const at::Tensor &gradient : runner.backward(operands, cotangents)) {
      EXPECT_FALSE(gradient.requires_grad());
    }
  }
  for (auto [operand, count] : llvm::zip(operands, uses)) {
    EXPECT_FALSE(operand.requires_grad());
    EXPECT_EQ(operand.storage().use_count(), count);
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Adjoint,
                         ::testing::ValuesIn(differentiableRows()), rowName);

//===----------------------------------------------------------------------===//
// Strides and storage
//===----------------------------------------------------------------------===//

bool sameStorage(const at::Tensor &x, const at::Tensor &y) {
  return x.storage().is_alias_of(y.storage());
}

/// `x` with its first two dims in the other order in memory, and, `padded`,
/// gaps between the rows of its last dim.
at::Tensor restrided(const at::Tensor &x, bool padded) {
  at::Tensor y = x;
  if (padded && y.dim() >= 1) {
    std::vector<int64_t> sizes = y.sizes().vec();
    sizes.back() += 3;
    y = at::empty(sizes, y.options()).narrow(-1, 2, x.size(-1));
    y.copy_(x);
  } else if (y.dim() >= 2) {
    y = y.transpose(0, 1).contiguous().transpose(0, 1);
  }
  return y;
}

class Storage : public ::testing::TestWithParam<KernelRow> {
protected:
  /// Operands as they are, then with strange strides.
  std::vector<Tensors> layouts(at::ScalarType floating) {
    Tensors plain = sampleOperands(GetParam(), floating, 21);
    std::vector<Tensors> all{plain};
    for (bool padded : {false, true}) {
      if (padded && GetParam().kind == OpKind::Flatten) {
        continue; // has no view: see below
      }
      Tensors strided;
      for (const at::Tensor &operand : plain) {
        strided.push_back(restrided(operand, padded));
      }
      all.push_back(strided);
    }
    return all;
  }
};

TEST_P(Storage, ResultsKeepTheMarksOfTheTable) {
  RowRunner runner(GetParam(), at::kDouble); // casts to itself, too
  for (const Tensors &operands : layouts(at::kDouble)) {
    Tensors results = runner.forward(operands);
    for (auto [index, result] : llvm::enumerate(results)) {
      if (auto source = runner.info.viewOf(index)) {
        EXPECT_TRUE(sameStorage(result, operands[*source]));
        continue;
      }
      EXPECT_EQ(result.storage().nbytes(), result.nbytes());
      for (const at::Tensor &operand : operands) {
        EXPECT_FALSE(sameStorage(result, operand));
      }
      for (const at::Tensor &other : results) {
        EXPECT_EQ(sameStorage(result, other), result.is_same(other));
      }
    }
  }
}

TEST_P(Storage, GradientsKeepTheMarksOfTheTable) {
  RowRunner runner(GetParam(), at::kFloat);
  if (!runner.info.hasBackwardOp()) {
    return;
  }
  for (const Tensors &operands : layouts(at::kFloat)) {
    Tensors results = runner.forward(operands);
    Tensors cotangents = runner.randomCotangents(results);
    Tensors acc = runner.randomAcc(operands);
    Tensors given = runner.withPlaceholders(operands);
    for (const Tensors &running : {Tensors(), acc}) {
      Tensors gradients = runner.backward(given, cotangents, running);
      for (auto [index, gradient] : llvm::enumerate(gradients)) {
        if (runner.info.passesCotangent(index) && running.empty()) {
          EXPECT_TRUE(sameStorage(gradient, cotangents[0]));
          continue;
        }
        EXPECT_EQ(gradient.storage().nbytes(), gradient.nbytes());
        Tensors others = given;
        llvm::append_range(others, cotangents);
        llvm::append_range(others, acc);
        for (const at::Tensor &other : others) {
          EXPECT_FALSE(sameStorage(gradient, other)) << "gradient " << index;
        }
        for (const at::Tensor &other : gradients) {
          EXPECT_EQ(sameStorage(gradient, other), gradient.is_same(other));
        }
      }
    }
  }
}

TEST_P(Storage, StridesDoNotChangeValues) {
  RowRunner runner(GetParam(), at::kDouble);
  std::vector<Tensors> all = layouts(at::kDouble);
  Tensors wanted = runner.forward(all[0]);
  Tensors cotangents = runner.randomCotangents(wanted), wantedGradients;
  bool differentiable = runner.info.hasBackwardOp();
  if (differentiable) {
    wantedGradients = runner.backward(all[0], cotangents);
  }
  for (const Tensors &operands : all) {
    for (auto [lhs, rhs] : llvm::zip(runner.forward(operands), wanted)) {
      EXPECT_TRUE(lhs.allclose(rhs, 1e-12, 1e-12));
    }
    if (!differentiable) {
      continue;
    }
    for (bool padded : {false, true}) {
      Tensors strided;
      for (const at::Tensor &cotangent : cotangents) {
        strided.push_back(restrided(cotangent, padded));
      }
      for (auto [lhs, rhs] :
           llvm::zip(runner.backward(operands, strided), wantedGradients)) {
        EXPECT_TRUE(lhs.allclose(rhs, 1e-12, 1e-12));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, Storage, ::testing::ValuesIn(wholeRows()),
                         rowName);

TEST(ReferenceKernels, FlattenRefusesALayoutThatHasNoView) {
  OperationMaker maker;
  at::Tensor x = at::randn({2, 3, 4, 5}).transpose(1, 2);
  Operation *op =
      maker.make(OpKind::Flatten, {maker.plainType(at::kFloat, x.sizes())}, {});
  EXPECT_THROW(makeReferenceKernels()->forward(*op, {x}), std::exception);
}

} // namespace
