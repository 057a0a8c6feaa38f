//===- KernelsBench.cpp - Fused kernels beside the reference --------------===//
//
//   hp-bench-kernels [row...]      OMP_NUM_THREADS says how many threads
//
// Times forward and backward of rows at the sizes of one layer of a small model
// (batch 4 x 512, hidden 512, 8 heads of 64), in float32, the two kernel sets
// in turns. Prints the least time of each in milliseconds, and how many times
// faster the fused one is. Nothing fails on a slow machine.
//
//===----------------------------------------------------------------------===//

#include "KernelRows.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <ATen/Parallel.h>
#include <chrono>
#include <ctime>

using namespace hp;
using namespace hp::testing;

static std::vector<KernelRow> benchRows() {
  auto dim = [](const char *name, int64_t size) { return Dim(name, {size}); };
  Dim b = dim("B", 4), s = dim("S", 512), e = dim("", 512), c = dim("", 1536);
  Dim h = dim("h", 8), d = dim("", 64), wide = dim("", 1792);
  Dim one = dim("", 1), taps = dim("", 4), v = dim("V", 8192);
  TestAttribute eps = floatAttr("eps", 1e-6), chunk = intAttr("chunk", 64);
  std::vector<KernelRow> rows = {
      {"embedding",
       OpKind::Embedding,
       {{Fill::Tokens, {b, s}}, {Fill::Normal, {v, e}}},
       {}},
      {"rms_norm",
       OpKind::RmsNorm,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {e}}},
       {eps, flagAttr("unit_offset")}},
      {"rms_norm of heads",
       OpKind::RmsNorm,
       {{Fill::Normal, {b, s, h, d}}, {Fill::Normal, {d}}},
       {eps, flagAttr("unit_offset")}},
      {"rms_norm_gated",
       OpKind::RmsNormGated,
       {{Fill::Normal, {b, s, h, d}},
        {Fill::Normal, {b, s, h, d}},
        {Fill::Normal, {d}}},
       {eps}},
      {"rope",
       OpKind::Rope,
       {{Fill::Normal, {b, s, h, d}}, {Fill::Positions, {s}}},
       {intAttr("rotary", 16), floatAttr("theta", 1e7)}},
      {"causal_conv1d",
       OpKind::CausalConv1d,
       {{Fill::Normal, {b, s, c}}, {Fill::Normal, {c, one, taps}}},
       {}},
      {"decay",
       OpKind::Decay,
       {{Fill::Normal, {b, s, h}}, {Fill::Normal, {h}}, {Fill::Normal, {h}}},
       {}},
      {"sigmoid_mul",
       OpKind::SigmoidMul,
       {{Fill::Normal, {b, s, h, d}}, {Fill::Normal, {b, s, h, d}}},
       {}},
      {"silu_mul",
       OpKind::SiluMul,
       {{Fill::Normal, {b, s, wide}}, {Fill::Normal, {b, s, wide}}},
       {}},
      {"cross_entropy",
       OpKind::CrossEntropy,
       {{Fill::Normal, {b, s, v}}, {Fill::Labels, {b, s}}},
       {}},
  };
  for (int64_t length : {512, 2048, 8192}) {
    Dim batch = dim("B", std::max<int64_t>(1, 2048 / length));
    Dim tokens = dim("S", length);
    KernelRow rule{"gated_delta_rule " + std::to_string(length),
                   OpKind::GatedDeltaRule,
                   {{Fill::Normal, {batch, tokens, h, d}},
                    {Fill::Normal, {batch, tokens, h, d}},
                    {Fill::Normal, {batch, tokens, h, d}},
                    {Fill::Negative, {batch, tokens, h}},
                    {Fill::Unit, {batch, tokens, h}}},
                   {chunk}};
    rows.push_back(rule);
    if (length == 512) {
      rule.name = "gdr.summary 512";
      rule.kind = OpKind::GdrSummary;
      rule.operands.erase(rule.operands.begin());
      rows.push_back(rule);
    }
  }
  return rows;
}

namespace {
/// Milliseconds: with one thread, of the processor, which other programs
/// disturb less.
double now() {
  if (at::get_num_threads() == 1) {
    return 1e3 * double(std::clock()) / CLOCKS_PER_SEC;
  }
  std::chrono::duration<double, std::milli> time =
      std::chrono::steady_clock::now().time_since_epoch();
  return time.count();
}

/// A row at work, and the least times seen.
class Timing {
public:
  Timing(const KernelRow &row, KernelSet &kernels)
      : kernels(kernels), op(makeRowOperation(maker, row, at::kFloat)),
        operands(sampleOperands(row, at::kFloat, 1)) {
    Tensors results = kernels.forward(*op, operands);
    llvm::SmallVector<Type, 4> types;
    for (const at::Tensor &result : results) {
      types.push_back(maker.plainType(at::kFloat, result.sizes()));
      cotangents.push_back(randomLike(result, 2));
    }
    adjoint = maker.makeAdjoint(*op, types);
  }

  void runOnce() {
    least(forward, [&] { kernels.forward(*op, operands); });
    least(backward,
          [&] { kernels.backward(*adjoint, operands, {}, cotangents, {}); });
  }

  double forward = 1e9, backward = 1e9; ///< milliseconds

private:
  template <typename Body> static void least(double &time, Body body) {
    double start = now();
    body();
    time = std::min(time, now() - start);
  }

  KernelSet &kernels;
  OperationMaker maker;
  Operation *op, *adjoint;
  Tensors operands, cotangents;
};
} // namespace

int main(int argc, char **argv) {
  std::unique_ptr<KernelSet> reference = makeReferenceKernels();
  std::unique_ptr<KernelSet> fused = makeFusedKernels();
  llvm::ArrayRef<char *> wanted(argv + 1, argv + argc);
  llvm::outs() << "row                        reference: fwd    bwd  fused: "
                  "fwd    bwd  times faster: fwd   bwd   both\n";
  for (const KernelRow &row : benchRows()) {
    if (!wanted.empty() && llvm::none_of(wanted, [&](const char *name) {
          return llvm::StringRef(row.name).starts_with(name);
        })) {
      continue;
    }
    Timing slow(row, *reference), fast(row, *fused);
    for (int i = 0; i < 20; ++i) {
      if (i < 4) {
        slow.runOnce();
      }
      fast.runOnce();
    }
    llvm::outs() << llvm::format(
        "%-24s %15.2f %7.2f %10.2f %6.2f %18.1f "
        "%5.1f %6.1f\n",
        row.name.c_str(), slow.forward, slow.backward, fast.forward,
        fast.backward, slow.forward / fast.forward,
        slow.backward / fast.backward,
        (slow.forward + slow.backward) / (fast.forward + fast.backward));
    llvm::outs().flush();
  }
  return 0;
}
