//===- GroupedQueryAttention.cpp - Causal softmax attention ---------------===//

#include "hp/Spec/Components.h"
#include <cmath>

using namespace hp;
using llvm::StringRef;

namespace {

/// A projection: a matrix and perhaps a bias.
struct Projection {
  Param *weight = nullptr, *bias = nullptr;
};

class GroupedQueryAttention : public Component {
public:
  bool configure(const Options &options) override;
  void declare(ParamMaker &params) override;
  Value *emit(BodyBuilder &body, Value *input, StringRef name) override;

private:
  bool configureRotary(const Options &options);
  Projection declareProjection(ParamMaker &params, StringRef name,
                               const Dim &rows, const Dim &columns);
  /// x times the weight, plus the bias as `biased` where there is one.
  Value *project(BodyBuilder &body, Value *input, const Projection &projection,
                 StringRef name, StringRef biased);

  int64_t width = 0, heads = 0, kvHeads = 0, headDim = 0, rotary = 0;
  double eps = 0, theta = 0;
  bool hasBias = false, hasGate = false, hasNorms = false, unitOffset = false;
  Projection q, k, v, o;
  Param *qNorm = nullptr, *kNorm = nullptr;
};

} // namespace

bool GroupedQueryAttention::configure(const Options &options) {
  width = options.integer("width");
  heads = options.integer("heads");
  kvHeads = options.integer("kv_heads");
  headDim = options.integer("head_dim");
  eps = options.real("eps");
  theta = options.real("rope_theta");
  hasBias = options.flag("bias");
  hasGate = options.flag("output_gate");
  hasNorms = options.flag("qk_norm");
  unitOffset = options.flag("unit_offset");
  bool ok = true;
  if (heads % kvHeads != 0) {
    ok = options.error({"heads", "kv_heads"})
         << options.label("heads") << " is " << heads
         << ", which is no multiple of " << options.label("kv_heads") << " ("
         << kvHeads << "): each kv head serves the same number of heads";
  }
  return configureRotary(options) && ok;
}

/// The channels that rotate: head_dim * partial_rotary_factor, in pairs. With
/// mRoPE, its sections divide the pairs among time, height and width; in text
/// all three positions are the same, so nothing but the sum matters.
bool GroupedQueryAttention::configureRotary(const Options &options) {
  double factor = options.real("partial_rotary_factor");
  double exact = double(headDim) * factor;
  rotary = std::llround(exact);
  bool isWhole = std::abs(exact - double(rotary)) <= 1e-9 * exact;
  if (!isWhole || rotary % 2 != 0 || rotary == 0) {
    auto error = options.error({"partial_rotary_factor", "head_dim"});
    error << options.label("head_dim") << " * "
          << options.label("partial_rotary_factor") << " = " << headDim << " * "
          << formatFloat(factor) << " = " << formatFloat(exact)
          << " channels rotate, which must be an even number above 0";
    return false;
  }
  std::vector<int64_t> sections = options.integers("mrope_section");
  if (sections.empty()) {
    return true;
  }
  int64_t sum = 0;
  for (int64_t section : sections) {
    sum += std::min(section, maxOptionInteger);
  }
  if (sections.size() != 3) {
    return options.error({"mrope_section"})
           << options.label("mrope_section")
           << " must have 3 entries, for time, height and width, not "
           << sections.size();
  }
  if (sum * 2 != rotary) {
    return options.error({"mrope_section", "head_dim", "partial_rotary_factor"})
           << options.label("mrope_section") << " adds up to " << sum
           << ", but must add up to " << rotary / 2 << ", half of the "
           << rotary << " channels that rotate (" << options.label("head_dim")
           << " * " << options.label("partial_rotary_factor") << ")";
  }
  return true;
}

Projection GroupedQueryAttention::declareProjection(ParamMaker &params,
                                                    StringRef name,
                                                    const Dim &rows,
                                                    const Dim &columns) {
  Projection projection;
  projection.weight =
      params.make((name + ".weight").str(), {rows, columns}, "linear");
  if (hasBias) {
    projection.bias = params.make((name + ".bias").str(), {rows}, "bias");
  }
  return projection;
}

void GroupedQueryAttention::declare(ParamMaker &params) {
  Dim outer("", {width});
  // With a gate, each head has the rows of q, then those of its gate.
  Dim queries =
      hasGate ? Dim("h", {heads, 2, headDim}) : Dim("h", {heads, headDim});
  Dim keys("g", {kvHeads, headDim}), merged("h", {heads, headDim});
  q = declareProjection(params, "q_proj", queries, outer);
  k = declareProjection(params, "k_proj", keys, outer);
  v = declareProjection(params, "v_proj", keys, outer);
  o = declareProjection(params, "o_proj", outer, merged);
  if (hasNorms) {
    StringRef init = unitOffset ? "zeros" : "ones";
    qNorm = params.make("q_norm.weight", {Dim("", {headDim})}, init);
    kNorm = params.make("k_norm.weight", {Dim("", {headDim})}, init);
  }
}

Value *GroupedQueryAttention::project(BodyBuilder &body, Value *input,
                                      const Projection &projection,
                                      StringRef name, StringRef biased) {
  Value *product =
      body.op(name, OpKind::Linear, {use(input), use(projection.weight)});
  if (!projection.bias) {
    return product;
  }
  return body.op(biased, OpKind::BiasAdd, {use(product), use(projection.bias)});
}

Value *GroupedQueryAttention::emit(BodyBuilder &body, Value *x, StringRef) {
  Value *queries = nullptr, *gate = nullptr;
  if (hasGate) {
    Value *packed = project(body, x, q, "qg", "qgb");
    auto halves = body.ops({"q0", "gate"}, OpKind::Unpack, {use(packed)});
    queries = halves[0];
    gate = halves[1];
  } else {
    Value *flat = project(body, x, q, "qf", "qfb");
    queries = body.op("q0", OpKind::Unflatten, {use(flat)});
  }
  Value *flatKeys = project(body, x, k, "k0", "k0b");
  Value *keys = body.op("k1", OpKind::Unflatten, {use(flatKeys)});
  Value *flatValues = project(body, x, v, "v0", "v0b");
  Value *values = body.op("v", OpKind::Unflatten, {use(flatValues)});
  if (hasNorms) {
    queries = body.rmsNorm("q1", queries, qNorm, eps, unitOffset);
    keys = body.rmsNorm("k2", keys, kNorm, eps, unitOffset);
  }
  std::pair<StringRef, Attribute> rope[] = {{"rotary", Attribute{rotary}},
                                            {"theta", Attribute{theta}}};
  Operand positions = use(body.positions);
  queries = body.op("q", OpKind::Rope, {use(queries), positions}, rope);
  keys = body.op("k", OpKind::Rope, {use(keys), positions}, rope);
  Value *output =
      body.op("o", OpKind::Sdpa, {use(queries), use(keys), use(values)});
  if (hasGate) {
    output = body.op("og", OpKind::SigmoidMul, {use(output), use(gate)});
  }
  output = body.op("of", OpKind::Flatten, {use(output)});
  return project(body, output, o, "p", "attb");
}

const ComponentInfo &hp::groupedQueryAttentionInfo() {
  static const ComponentInfo info{
      .kind = "GroupedQueryAttention",
      .summary = "causal softmax attention over grouped heads, with rotary "
                 "positions",
      .options = {sizeOption("width", "channels outside"),
                  sizeOption("heads", "heads of q, a multiple of kv_heads"),
                  sizeOption("kv_heads", "heads of k and v"),
                  sizeOption("head_dim", "channels of a head"),
                  flagOption("bias", "adds a bias in all four projections"),
                  flagOption("output_gate",
                             "q_proj gives a gate beside q, head by "
                             "head; the output is multiplied by its "
                             "sigmoid"),
                  flagOption("qk_norm", "norms q and k, head by head"),
                  epsOption("of the two norms"),
                  flagOption("unit_offset", "of the two norms, as in RMSNorm"),
                  {.name = "rope_theta",
                   .kind = FieldKind::Float,
                   .summary = "base of the rotary frequencies",
                   .floats = {.min = 0, .minOpen = true}},
                  {.name = "partial_rotary_factor",
                   .kind = FieldKind::Float,
                   .summary = "share of a head's channels that rotate",
                   .floats = {.min = 0, .max = 1, .minOpen = true},
                   .otherwise = "1.0"},
                  {.name = "mrope_section",
                   .kind = FieldKind::IntegerList,
                   .summary =
                       "pairs of channels for time, height and width; checked "
                       "for its sum",
                   .integers = {.min = 0, .max = maxOptionInteger},
                   .otherwise = "[]"}},
      .params = {{"q_proj.weight", 2},
                 {"q_proj.bias", 1},
                 {"k_proj.weight", 2},
                 {"k_proj.bias", 1},
                 {"v_proj.weight", 2},
                 {"v_proj.bias", 1},
                 {"o_proj.weight", 2},
                 {"o_proj.bias", 1},
                 {"q_norm.weight", 1},
                 {"k_norm.weight", 1}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<GroupedQueryAttention>();
      }};
  return info;
}
