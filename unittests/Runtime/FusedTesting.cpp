//===- FusedTesting.cpp - Fused kernels beside the oracle -----------------===//

#include "FusedTesting.h"
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

at::Tensor hp::testing::restrided(const at::Tensor &x, Layout layout) {
  if (layout == Layout::Permuted && x.dim() >= 2) {
    return x.transpose(0, 1).contiguous().transpose(0, 1);
  }
  if (layout == Layout::Padded && x.dim() >= 1) {
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() += 5;
    at::Tensor y = at::full(sizes, 77, x.options()).narrow(-1, 3, x.size(-1));
    return y.copy_(x);
  }
  return x;
}

static Tensors allRestrided(llvm::ArrayRef<at::Tensor> tensors, Layout layout) {
  Tensors all;
  for (const at::Tensor &x : tensors) {
    all.push_back(restrided(x, layout));
  }
  return all;
}

static Tensors widened(llvm::ArrayRef<at::Tensor> tensors) {
  Tensors wide;
  for (const at::Tensor &x : tensors) {
    wide.push_back(x.is_floating_point() ? x.to(at::kDouble) : x);
  }
  return wide;
}

/// `made` fills storage of its own, which none of `others` shares.
static void expectFresh(const at::Tensor &made, const Tensors &others) {
  EXPECT_EQ(made.storage().nbytes(), made.nbytes());
  EXPECT_FALSE(made.requires_grad());
  for (const at::Tensor &other : others) {
    EXPECT_FALSE(other.defined() &&
                 made.storage().is_alias_of(other.storage()));
  }
}

Made Comparison::compute(KernelSet &kernels, bool wide, Layout layout,
                         bool running) {
  OperationMaker maker;
  at::ScalarType dtype = wide ? at::kDouble : at::kFloat;
  Operation *op = makeRowOperation(maker, row, dtype);
  Tensors given = allRestrided(wide ? widened(operands) : operands, layout);
  Made made;
  made.results = kernels.forward(*op, given);
  for (const at::Tensor &result : made.results) {
    expectFresh(result, given);
  }
  if (!info.hasBackwardOp()) {
    return made;
  }
  llvm::SmallVector<Type, 4> types;
  for (const at::Tensor &result : made.results) {
    types.push_back(maker.plainType(dtype, result.sizes()));
  }
  Tensors saved, cotangents, acc;
  for (unsigned index : info.savedResults()) {
    saved.push_back(made.results[index]);
  }
  for (unsigned index : info.cotangentResults(made.results.size())) {
    cotangents.push_back(
        randomLike(made.results[index].to(at::kFloat), 60 + index));
  }
  for (unsigned index : info.diffOperands(given.size())) {
    if (!info.needsValue(index)) {
      given[index] = placeholder(given[index]);
    }
    acc.push_back(running ? randomLike(operands[index], 80 + index)
                          : at::Tensor());
  }
  if (wide) {
    cotangents = widened(cotangents);
    acc = running ? widened(acc) : acc;
  }
  Tensors before;
  for (const at::Tensor &x : acc) {
    before.push_back(running ? x.clone() : x);
  }
  cotangents = allRestrided(cotangents, layout);
  acc = running ? allRestrided(acc, layout) : acc;
  made.gradients = kernels.backward(*maker.makeAdjoint(*op, types), given,
                                    saved, cotangents, acc);
  for (size_t i = 0; i < acc.size() && running; ++i) {
    EXPECT_TRUE(acc[i].equal(before[i])) << "acc was written to";
  }
  Tensors others = given;
  llvm::append_range(others, cotangents);
  llvm::append_range(others, acc);
  for (size_t i = 0; i < made.gradients.size(); ++i) {
    if (running || !info.passesCotangent(i)) {
      expectFresh(made.gradients[i], others);
      others.push_back(made.gradients[i]);
    }
  }
  return made;
}

static void checkOne(const at::Tensor &truth, const at::Tensor &torch,
                     const at::Tensor &wide, const at::Tensor &narrow) {
  if (!truth.is_floating_point()) {
    EXPECT_TRUE(narrow.equal(torch));
    return;
  }
  EXPECT_TRUE(narrow.isfinite().all().item<bool>());
  double norm = truth.norm().item<double>() + 1e-30;
  double largest = truth.abs().max().item<double>() + 1e-30;
  auto error = [&](const at::Tensor &x) {
    return (x.to(at::kDouble) - truth).norm().item<double>() / norm;
  };
  auto worst = [&](const at::Tensor &x) {
    return (x.to(at::kDouble) - truth).abs().max().item<double>() / largest;
  };
  // As much worse than LibTorch as float64 is better than float32, twenty
  // times.
  EXPECT_LT(worst(wide), 1e-13 + 4e-8 * worst(torch));
  // Five roundings, for where LibTorch is lucky; it is more often so with few
  // elements.
  double lucky = 3e-7 + 6e-7 / double(truth.numel());
  EXPECT_LT(error(narrow), 2 * error(torch) + lucky);
  EXPECT_LT(worst(narrow), 2 * worst(torch) + lucky);
}

static void checkAll(const KernelRow &row, const Tensors &truth,
                     const Tensors &torch, const Tensors &wide,
                     const Tensors &narrow, const char *what) {
  ASSERT_EQ(narrow.size(), truth.size());
  ASSERT_EQ(wide.size(), truth.size());
  for (size_t i = 0; i < truth.size(); ++i) {
    SCOPED_TRACE(row.name + ", " + what + " " + std::to_string(i));
    ASSERT_EQ(narrow[i].sizes(), truth[i].sizes());
    ASSERT_EQ(narrow[i].scalar_type(), torch[i].scalar_type());
    checkOne(truth[i], torch[i], wide[i], narrow[i]);
  }
}

void Comparison::check(Layout layout, bool running) {
  Made truth = compute(*reference, true, layout, running);
  Made torch = compute(*reference, false, layout, running);
  Made wide = compute(*fused, true, layout, running);
  Made narrow = compute(*fused, false, layout, running);
  checkAll(row, truth.results, torch.results, wide.results, narrow.results,
           "result");
  checkAll(row, truth.gradients, torch.gradients, wide.gradients,
           narrow.gradients, "gradient");
}

void hp::testing::checkRow(const KernelRow &row) {
  Comparison comparison(row);
  for (Layout layout : {Layout::Dense, Layout::Permuted, Layout::Padded}) {
    for (bool running : {false, true}) {
      comparison.check(layout, running);
    }
  }
}

static bool sameBits(const Made &x, const Made &y) {
  auto same = [](const Tensors &x, const Tensors &y) {
    return x.size() == y.size() &&
           llvm::all_of_zip(x, y, [](const at::Tensor &a, const at::Tensor &b) {
             return a.equal(b);
           });
  };
  return same(x.results, y.results) && same(x.gradients, y.gradients);
}

void hp::testing::expectDeterminate(const KernelRow &row) {
  Comparison comparison(row);
  int threads = at::get_num_threads();
  Made once = comparison.compute(*comparison.fused, false, Layout::Dense, true);
  Made again =
      comparison.compute(*comparison.fused, false, Layout::Dense, true);
  EXPECT_TRUE(sameBits(once, again)) << row.name;
  for (int other : {1, 2, 3}) {
    at::set_num_threads(other);
    Made made =
        comparison.compute(*comparison.fused, false, Layout::Dense, true);
    EXPECT_TRUE(sameBits(once, made))
        << row.name << ", " << other << " threads";
  }
  at::set_num_threads(threads);
}
