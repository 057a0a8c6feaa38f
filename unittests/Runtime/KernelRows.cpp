//===- KernelRows.cpp - Every local and view row, with operands -----------===//

#include "KernelRows.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ostream>

using namespace hp;
using namespace hp::testing;

/// A dim of one segment.
static Dim dim(const char *name, llvm::ArrayRef<int64_t> factors) {
  return Dim(name, factors);
}

/// q, k and v side by side, as in a fused projection.
static Dim fusedDim() {
  Dim fused;
  fused.segments = {{"q", {2, 2}}, {"k", {2, 2}}, {"v", {4, 3}}};
  return fused;
}

static std::vector<KernelRow> makeRows() {
  Dim b = dim("B", {2}), s = dim("S", {4}), e = dim("", {6});
  Dim v = dim("V", {6}), wide = dim("", {8}), fused = fusedDim();
  Dim h = dim("h", {4}), d = dim("", {6}), taps = dim("", {4});
  Dim one = dim("", {1}), keys = dim("", {4});
  auto heads = [](const char *name, int64_t count) {
    return Dim(name, {count});
  };
  auto blocks = [](int64_t count) { return Dim("n", {count}); };
  auto halo = [](int64_t count) { return Dim("n", {count, 3}); };
  Dim longer = dim("S", {8});
  TestAttribute eps = floatAttr("eps", 1e-3), chunk = intAttr("chunk", 2);

  std::vector<KernelRow> rows = {
      {"embedding",
       OpKind::Embedding,
       {{Fill::Tokens, {b, s}}, {Fill::Normal, {v, e}}},
       {}},
      {"linear",
       OpKind::Linear,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {wide, e}}},
       {}},
      {"linear_fused",
       OpKind::Linear,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {fused, e}}},
       {}},
      {"linear_heads",
       OpKind::Linear,
       {{Fill::Normal, {b, s, dim("h", {4, 2})}},
        {Fill::Normal, {e, dim("h", {4, 2})}}},
       {}},
      {"bias_add",
       OpKind::BiasAdd,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {e}}},
       {}},
      {"rms_norm",
       OpKind::RmsNorm,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {e}}},
       {eps}},
      {"rms_norm_unit_offset",
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
       {intAttr("rotary", 4), floatAttr("theta", 100.0)}},
      {"causal_conv1d",
       OpKind::CausalConv1d,
       {{Fill::Normal, {b, s, fused}}, {Fill::Normal, {fused, one, taps}}},
       {}},
      {"sigmoid", OpKind::Sigmoid, {{Fill::Normal, {b, s, h}}}, {}},
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
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {b, s, e}}},
       {}},
      {"add",
       OpKind::Add,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {b, s, e}}},
       {}},
      {"cast",
       OpKind::Cast,
       {{Fill::Normal, {b, s, e}}},
       {wordAttr("to", "f64")}},
      {"cross_entropy",
       OpKind::CrossEntropy,
       {{Fill::Normal, {b, s, v}}, {Fill::Labels, {b, s}}},
       {}},
      {"count_valid", OpKind::CountValid, {{Fill::Labels, {b, s}}}, {}},
      {"div", OpKind::Div, {{Fill::Normal, {}}, {Fill::Count, {}}}, {}},
      {"split", OpKind::Split, {{Fill::Normal, {b, s, fused}}}, {}},
      {"concat",
       OpKind::Concat,
       {{Fill::Normal, {b, s, e}}, {Fill::Normal, {b, s, wide}}},
       {}},
      {"unflatten",
       OpKind::Unflatten,
       {{Fill::Normal, {b, s, dim("h", {4, 3})}}},
       {}},
      {"flatten", OpKind::Flatten, {{Fill::Normal, {b, s, h, d}}}, {}},
      {"unpack",
       OpKind::Unpack,
       {{Fill::Normal, {b, s, dim("h", {2, 2, 3})}}},
       {}},
      {"repeat_heads",
       OpKind::RepeatHeads,
       {{Fill::Normal, {b, s, heads("g", 2), d}}},
       {intAttr("r", 3)}},
  };
  // Key and value heads by groups of two, four (one group) and one.
  for (int64_t groups : {2, 1, 4}) {
    auto named = [&](llvm::StringRef name) {
      return (name + "_groups_" + llvm::Twine(groups)).str();
    };
    Dim g = heads("g", groups);
    rows.push_back({named("sdpa"),
                    OpKind::Sdpa,
                    {{Fill::Normal, {b, s, h, d}},
                     {Fill::Normal, {b, s, g, d}},
                     {Fill::Normal, {b, s, g, d}}},
                    {}});
    KernelRow summary{named("gdr_summary"),
                      OpKind::GdrSummary,
                      {{Fill::Normal, {b, s, g, keys}},
                       {Fill::Normal, {b, s, h, d}},
                       {Fill::Negative, {b, s, h}},
                       {Fill::Unit, {b, s, h}}},
                      {chunk}};
    KernelRow rule = summary;
    rule.name = named("gated_delta_rule");
    rule.kind = OpKind::GatedDeltaRule;
    rule.operands.insert(rule.operands.begin(),
                         {Fill::Normal, {b, s, g, keys}});
    rows.push_back(rule);
    rows.push_back(summary);
  }
  // One block of the sequence, and one a rank.
  for (int64_t count : {1, 2}) {
    auto named = [&](llvm::StringRef name) {
      return (name + "_blocks_" + llvm::Twine(count)).str();
    };
    rows.push_back({named("causal_conv1d_halo"),
                    OpKind::CausalConv1d,
                    {{Fill::Normal, {b, longer, fused}},
                     {Fill::Normal, {b, halo(count), fused}},
                     {Fill::Normal, {fused, one, taps}}},
                    {},
                    count});
    rows.push_back({named("gated_delta_rule_state"),
                    OpKind::GatedDeltaRule,
                    {{Fill::Normal, {b, longer, heads("g", 2), keys}},
                     {Fill::Normal, {b, longer, heads("g", 2), keys}},
                     {Fill::Normal, {b, longer, h, d}},
                     {Fill::Negative, {b, longer, h}},
                     {Fill::Unit, {b, longer, h}},
                     {Fill::Normal, {b, blocks(count), h, keys, d}}},
                    {chunk},
                    count});
  }
  return rows;
}

const std::vector<KernelRow> &hp::testing::kernelRows() {
  static const std::vector<KernelRow> rows = makeRows();
  return rows;
}

void hp::testing::PrintTo(const KernelRow &row, std::ostream *os) {
  *os << row.name;
}

std::vector<int64_t> RowOperand::sizes() const {
  std::vector<int64_t> sizes;
  for (const Dim &dim : dims) {
    sizes.push_back(dim.size());
  }
  return sizes;
}

at::Tensor hp::testing::sample(const RowOperand &operand,
                               at::ScalarType floating, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  std::vector<int64_t> sizes = operand.sizes();
  auto real = at::dtype(at::kDouble);
  auto integer = at::dtype(at::kLong);
  switch (operand.fill) {
  case Fill::Normal:
    return at::randn(sizes, generator, real).to(floating);
  case Fill::Unit:
    return at::rand(sizes, generator, real).to(floating);
  case Fill::Negative:
    return at::rand(sizes, generator, real).mul(-1.5).to(floating);
  case Fill::Tokens:
    return at::randint(0, 6, sizes, generator, integer);
  case Fill::Labels:
    return at::randint(0, 6, sizes, generator, integer)
        .masked_fill(at::rand(sizes, generator, real).lt(0.3), -100);
  case Fill::Positions:
    return at::arange(3, 3 + sizes[0]);
  case Fill::Count:
    return at::full({}, 5, integer);
  }
  llvm_unreachable("all fills are handled above");
}

Tensors hp::testing::sampleOperands(const KernelRow &row,
                                    at::ScalarType floating, uint64_t seed) {
  Tensors operands;
  for (const RowOperand &operand : row.operands) {
    operands.push_back(sample(operand, floating, seed++));
  }
  return operands;
}

at::Tensor hp::testing::randomLike(const at::Tensor &x, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  return at::randn(x.sizes(), generator, at::dtype(at::kDouble))
      .to(x.scalar_type());
}

Operation *hp::testing::makeRowOperation(OperationMaker &maker,
                                         const KernelRow &row,
                                         at::ScalarType floating) {
  llvm::SmallVector<Type, 6> types;
  for (const RowOperand &operand : row.operands) {
    TypeData data;
    data.dtype = operand.dtype(floating);
    llvm::append_range(data.dims, operand.dims);
    types.push_back(maker.module.type(data));
  }
  return maker.make(row.kind, types, row.attrs);
}
