//===- FusedKernelsTest.cpp - Fused kernels of rows -----------------------===//
//
// Every row that has a fused kernel, small and at shapes where vectors do not
// fit; the delta rule has a test of its own.
//
//===----------------------------------------------------------------------===//

#include "../../lib/Runtime/StepKernels.h"
#include "FusedTesting.h"
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <limits>

using namespace hp;
using namespace hp::testing;

namespace {

//===----------------------------------------------------------------------===//
// All rows, small
//===----------------------------------------------------------------------===//

class FusedRow : public ::testing::TestWithParam<KernelRow> {};

TEST_P(FusedRow, IsAsCloseToFloat64AsLibTorch) {
  if (GetParam().blocks == 1 &&
      opInfo(GetParam().kind).category == OpCategory::Local) {
    Comparison comparison(GetParam());
    for (Layout layout : {Layout::Dense, Layout::Permuted, Layout::Padded}) {
      comparison.check(layout, false);
      comparison.check(layout, true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, FusedRow, ::testing::ValuesIn(kernelRows()),
                         [](const auto &info) { return info.param.name; });

//===----------------------------------------------------------------------===//
// The convolution
//===----------------------------------------------------------------------===//

KernelRow convolutionRow(int64_t batch, int64_t tokens, int64_t channels,
                         int64_t taps, bool halo) {
  Dim b = dim("B", batch), s = dim("S", tokens), c = dim("", channels);
  KernelRow row{"convolution of " + std::to_string(tokens) + " by " +
                    std::to_string(channels) + ", taps " +
                    std::to_string(taps) + (halo ? ", halo" : ""),
                OpKind::CausalConv1d,
                {{Fill::Normal, {b, s, c}},
                 {Fill::Normal, {c, dim("", 1), dim("", taps)}}},
                {}};
  if (halo) {
    RowOperand before{Fill::Normal, {b, Dim("n", {1, taps - 1}), c}};
    row.operands.insert(row.operands.begin() + 1, before);
  }
  return row;
}

TEST(FusedConvolution, TakesAnyLength) {
  for (int64_t tokens = 1; tokens <= 130; ++tokens) {
    for (bool halo : {false, true}) {
      Comparison comparison(convolutionRow(2, tokens, 7, 4, halo));
      comparison.check(Layout::Dense, tokens % 2);
    }
  }
}

TEST(FusedConvolution, TakesAnyChannelsAndTaps) {
  for (int64_t channels : {1, 5, 16, 31, 64, 255, 256, 257, 600}) {
    for (int64_t taps : {2, 3, 4, 7}) {
      for (bool halo : {false, true}) {
        checkRow(convolutionRow(2, 10, channels, taps, halo));
      }
    }
  }
}

TEST(FusedConvolution, IsDeterminate) {
  expectDeterminate(convolutionRow(3, 130, 600, 4, true));
}

//===----------------------------------------------------------------------===//
// Rows
//===----------------------------------------------------------------------===//

/// Rows of the table at shapes where vectors do not fit.
std::vector<KernelRow> awkwardRows() {
  std::vector<KernelRow> rows;
  TestAttribute eps = floatAttr("eps", 1e-6);
  auto add = [&](std::string name, OpKind kind,
                 std::vector<RowOperand> operands,
                 std::vector<TestAttribute> attrs) {
    rows.push_back(
        {std::move(name), kind, std::move(operands), std::move(attrs)});
  };
  auto normal = [](llvm::SmallVector<Dim, 5> dims) {
    return RowOperand{Fill::Normal, std::move(dims)};
  };
  for (int64_t width : {1, 2, 15, 16, 17, 63, 100, 300}) {
    Dim b = dim("B", 3), s = dim("S", 37), h = dim("h", 3);
    Dim e = dim("", width);
    std::string of = "_" + std::to_string(width);
    add("rms_norm" + of, OpKind::RmsNorm, {normal({b, s, e}), normal({e})},
        {eps});
    add("rms_norm_of_heads" + of, OpKind::RmsNorm,
        {normal({b, s, h, e}), normal({e})}, {eps, flagAttr("unit_offset")});
    add("rms_norm_gated" + of, OpKind::RmsNormGated,
        {normal({b, s, h, e}), normal({b, s, h, e}), normal({e})}, {eps});
    add("sigmoid_mul" + of, OpKind::SigmoidMul,
        {normal({b, s, h, e}), normal({b, s, h, e})}, {});
    add("silu_mul" + of, OpKind::SiluMul,
        {normal({b, s, e}), normal({b, s, e})}, {});
    add("decay" + of, OpKind::Decay,
        {normal({b, s, e}), normal({e}), normal({e})}, {});
    add("embedding" + of, OpKind::Embedding,
        {{Fill::Tokens, {b, s}}, normal({dim("V", 9), e})}, {});
  }
  for (int64_t vocabulary : {6, 17, 64, 1000, 2047, 2049, 5000}) {
    Dim b = dim("B", 2), s = dim("S", 5);
    add("cross_entropy_" + std::to_string(vocabulary), OpKind::CrossEntropy,
        {normal({b, s, dim("V", vocabulary)}), {Fill::Labels, {b, s}}}, {});
  }
  for (auto [width, rotary] :
       std::initializer_list<std::pair<int64_t, int64_t>>{
           {2, 2}, {7, 4}, {64, 16}, {64, 64}, {33, 20}}) {
    Dim b = dim("B", 2), s = dim("S", 19);
    add("rope_" + std::to_string(width) + "_" + std::to_string(rotary),
        OpKind::Rope,
        {normal({b, s, dim("h", 3), dim("", width)}), {Fill::Positions, {s}}},
        {intAttr("rotary", rotary), floatAttr("theta", 1e4)});
  }
  return rows;
}

class FusedAwkwardRow : public ::testing::TestWithParam<KernelRow> {};

TEST_P(FusedAwkwardRow, IsAsCloseToFloat64AsLibTorch) { checkRow(GetParam()); }
TEST_P(FusedAwkwardRow, IsDeterminate) { expectDeterminate(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Rows, FusedAwkwardRow,
                         ::testing::ValuesIn(awkwardRows()),
                         [](const auto &info) { return info.param.name; });

TEST(FusedRows, TakeLargeNumbers) {
  for (const KernelRow &row : awkwardRows()) {
    if (row.kind == OpKind::RmsNorm || row.kind == OpKind::Rope ||
        row.kind == OpKind::Embedding) {
      continue;
    }
    Comparison comparison(row);
    comparison.operands[0].mul_(60); // past where exp overflows
    comparison.check(Layout::Dense, false);
  }
}

TEST(FusedRows, PassNaNsOn) {
  for (const KernelRow &row : awkwardRows()) {
    for (size_t operand = 0; operand < row.operands.size(); ++operand) {
      Comparison comparison(row);
      at::Tensor x = comparison.operands[operand];
      if (!x.is_floating_point()) {
        continue;
      }
      if (row.kind == OpKind::CrossEntropy) {
        comparison.operands[1].fill_(1);
      }
      x.fill_(std::numeric_limits<double>::quiet_NaN());
      Made made =
          comparison.compute(*comparison.fused, false, Layout::Dense, false);
      EXPECT_TRUE(made.results[0].isnan().any().item<bool>())
          << row.name << ", operand " << operand;
    }
  }
}

TEST(FusedRows, RefuseTargetsAndTokensOutOfRange) {
  for (const KernelRow &row : awkwardRows()) {
    bool loss = row.kind == OpKind::CrossEntropy;
    if (!loss && row.kind != OpKind::Embedding) {
      continue;
    }
    for (int64_t wrong :
         {int64_t(-1), row.operands[!loss].dims[2 * loss].size(),
          int64_t(1) << 40}) {
      Comparison comparison(row);
      comparison.operands[loss].select(0, 0).select(0, 0).fill_(wrong);
      EXPECT_THROW(
          comparison.compute(*comparison.fused, false, Layout::Dense, false),
          std::exception)
          << row.name << ", " << wrong;
    }
  }
}

//===----------------------------------------------------------------------===//
// After the last gradient
//===----------------------------------------------------------------------===//

TEST(FusedUpdate, SumsSquaresInFloat64) {
  std::unique_ptr<KernelSet> fused = makeFusedKernels();
  for (int64_t count : {1, 7, 16, 1000, 100003}) {
    for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
      at::Tensor x = randomLike(at::empty({count}, dtype), 5);
      for (const at::Tensor &gradient :
           {x, restrided(at::stack({x, x}), Layout::Padded)}) {
        double wanted = gradient.to(at::kDouble).square().sum().item<double>();
        at::Tensor made = fused->sumSquares(gradient);
        EXPECT_EQ(made.scalar_type(), at::kDouble);
        EXPECT_NEAR(made.item<double>(), wanted, 1e-13 * wanted);
        int threads = at::get_num_threads();
        at::set_num_threads(1);
        EXPECT_EQ(fused->sumSquares(gradient).item<double>(),
                  made.item<double>());
        at::set_num_threads(threads);
      }
    }
  }
}

TEST(FusedUpdate, IsAdamW) {
  std::unique_ptr<KernelSet> fused = makeFusedKernels();
  std::unique_ptr<KernelSet> reference = makeReferenceKernels();
  AdamWConstants constants{0.9, 0.95, 1e-8, 0.1};
  for (at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    StoredParameter fast, slow;
    slow.value = randomLike(at::empty({301, 67}, dtype), 1);
    fast.value = slow.value.clone();
    for (int64_t count = 1; count <= 4; ++count) {
      at::Tensor gradient = randomLike(slow.value, 10 + count);
      at::Tensor kept = gradient.clone();
      fused->adamw(fast, gradient, 0.3, 1e-2, count, constants);
      EXPECT_TRUE(gradient.equal(kept));
      reference->adamw(slow, gradient, 0.3, 1e-2, count, constants);
    }
    double tolerance = dtype == at::kFloat ? 3e-7 : 1e-15;
    EXPECT_TRUE(fast.value.allclose(slow.value, 0, 5 * tolerance));
    EXPECT_TRUE(fast.expAvg.allclose(slow.expAvg, 0, tolerance));
    EXPECT_TRUE(fast.expAvgSq.allclose(slow.expAvgSq, 0, tolerance));
  }
}

} // namespace
