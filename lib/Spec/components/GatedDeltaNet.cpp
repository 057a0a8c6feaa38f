//===- GatedDeltaNet.cpp - Linear attention by the gated delta rule -------===//

#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

class GatedDeltaNet : public Component {
public:
  bool configure(const Options &options) override {
    width = options.integer("width");
    keyHeads = options.integer("key_heads");
    valueHeads = options.integer("value_heads");
    keyDim = options.integer("key_head_dim");
    valueDim = options.integer("value_head_dim");
    kernel = options.integer("conv_kernel");
    eps = options.real("eps");
    chunk = options.integer("chunk");
    if (valueHeads % keyHeads != 0) {
      return options.error({"value_heads", "key_heads"})
             << options.label("value_heads") << " is " << valueHeads
             << ", which is no multiple of " << options.label("key_heads")
             << " (" << keyHeads
             << "): each key head serves the same number of value heads";
    }
    return true;
  }

  void declare(ParamMaker &params) override {
    Dim outer("", {width});
    Dim packed;
    packed.segments = {{"q", {keyHeads, keyDim}},
                       {"k", {keyHeads, keyDim}},
                       {"v", {valueHeads, valueDim}}};
    Dim values("h", {valueHeads, valueDim}), heads("h", {valueHeads});
    conv = params.make("conv1d.weight",
                       {packed, Dim("", {1}), Dim("", {kernel})}, "linear");
    dtBias = params.make("dt_bias", {heads}, "ones");
    aLog = params.make("A_log", {heads}, "log_uniform");
    norm = params.make("norm.weight", {Dim("", {valueDim})}, "ones");
    outProj = params.make("out_proj.weight", {outer, values}, "linear");
    inProjQkv = params.make("in_proj_qkv.weight", {packed, outer}, "linear");
    inProjZ = params.make("in_proj_z.weight", {values, outer}, "linear");
    inProjB = params.make("in_proj_b.weight", {heads, outer}, "linear");
    inProjA = params.make("in_proj_a.weight", {heads, outer}, "linear");
  }

  Value *emit(BodyBuilder &body, Value *x, StringRef) override {
    Value *qkv = body.op("qkv", OpKind::Linear, {use(x), use(inProjQkv)});
    Value *z0 = body.op("z0", OpKind::Linear, {use(x), use(inProjZ)});
    Value *z = body.op("z", OpKind::Unflatten, {use(z0)});
    Value *b = body.op("b", OpKind::Linear, {use(x), use(inProjB)});
    Value *a = body.op("a", OpKind::Linear, {use(x), use(inProjA)});
    Value *cv = body.op("cv", OpKind::CausalConv1d, {use(qkv), use(conv)});
    auto parts = body.ops({"q0", "k0", "v0"}, OpKind::Split, {use(cv)});
    Value *q = body.op("q", OpKind::Unflatten, {use(parts[0])});
    Value *k = body.op("k", OpKind::Unflatten, {use(parts[1])});
    Value *v = body.op("v", OpKind::Unflatten, {use(parts[2])});
    Value *beta = body.op("beta", OpKind::Sigmoid, {use(b)});
    Value *g = body.op("g", OpKind::Decay, {use(a), use(aLog), use(dtBias)});
    Value *o = body.op("o", OpKind::GatedDeltaRule,
                       {use(q), use(k), use(v), use(g), use(beta)},
                       {{"chunk", Attribute{chunk}}});
    Value *on = body.op("on", OpKind::RmsNormGated, {use(o), use(z), use(norm)},
                        {{"eps", Attribute{eps}}});
    Value *of = body.op("of", OpKind::Flatten, {use(on)});
    return body.op("p", OpKind::Linear, {use(of), use(outProj)});
  }

private:
  int64_t width = 0, keyHeads = 0, valueHeads = 0, keyDim = 0, valueDim = 0;
  int64_t kernel = 0, chunk = 0;
  double eps = 0;
  Param *conv = nullptr, *dtBias = nullptr, *aLog = nullptr, *norm = nullptr;
  Param *outProj = nullptr, *inProjQkv = nullptr, *inProjZ = nullptr;
  Param *inProjB = nullptr, *inProjA = nullptr;
};

} // namespace

const ComponentInfo &hp::gatedDeltaNetInfo() {
  static const ComponentInfo info{
      .kind = "GatedDeltaNet",
      .summary = "linear attention by the gated delta rule, with a short "
                 "convolution and a gated norm",
      .options = {sizeOption("width", "channels outside"),
                  sizeOption("key_heads", "heads of q and k"),
                  sizeOption("value_heads",
                             "heads of v, a multiple of key_heads"),
                  sizeOption("key_head_dim", "channels of a key head"),
                  sizeOption("value_head_dim", "channels of a value head"),
                  sizeOption("conv_kernel", "taps of the convolution"),
                  epsOption("of the gated norm"),
                  {.name = "chunk",
                   .kind = FieldKind::Integer,
                   .summary = "tokens that are computed together",
                   .otherwise = "64"}},
      .params = {{"conv1d.weight", 3},
                 {"dt_bias", 1},
                 {"A_log", 1},
                 {"norm.weight", 1},
                 {"out_proj.weight", 2},
                 {"in_proj_qkv.weight", 2},
                 {"in_proj_z.weight", 2},
                 {"in_proj_b.weight", 2},
                 {"in_proj_a.weight", 2}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<GatedDeltaNet>();
      }};
  return info;
}
