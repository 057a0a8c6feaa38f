//===- SwiGLU.cpp - Gated feed-forward layer ------------------------------===//

#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

class SwiGLU : public Component {
public:
  bool configure(const Options &options) override {
    width = options.integer("width");
    hidden = options.integer("hidden");
    return true;
  }

  void declare(ParamMaker &params) override {
    Dim outer("", {width}), inner("", {hidden});
    gate = params.make("gate_proj.weight", {inner, outer}, "linear");
    up = params.make("up_proj.weight", {inner, outer}, "linear");
    down = params.make("down_proj.weight", {outer, inner}, "linear");
  }

  Value *emit(BodyBuilder &body, Value *input, StringRef) override {
    Value *gated = body.op("g1", OpKind::Linear, {use(input), use(gate)});
    Value *raised = body.op("u1", OpKind::Linear, {use(input), use(up)});
    Value *product = body.op("s", OpKind::SiluMul, {use(gated), use(raised)});
    return body.op("d", OpKind::Linear, {use(product), use(down)});
  }

private:
  int64_t width = 0, hidden = 0;
  Param *gate = nullptr, *up = nullptr, *down = nullptr;
};

} // namespace

const ComponentInfo &hp::swigluInfo() {
  static const ComponentInfo info{
      .kind = "SwiGLU",
      .summary = "down(silu(gate(x)) * up(x))",
      .options = {sizeOption("width", "channels outside"),
                  sizeOption("hidden", "channels inside"),
                  {.name = "activation",
                   .kind = FieldKind::Word,
                   .summary = "of the gate",
                   .words = {"silu"},
                   .otherwise = "silu"}},
      .params = {{"gate_proj.weight", 2},
                 {"up_proj.weight", 2},
                 {"down_proj.weight", 2}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<SwiGLU>();
      }};
  return info;
}
