//===- Linear.cpp - A matrix, with or without a bias ----------------------===//

#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

class LinearLayer : public Component {
public:
  bool configure(const Options &options) override {
    in = options.integer("in");
    out = options.integer("out");
    hasBias = options.flag("bias");
    label = options.word("label") == "V" ? "V" : "";
    return true;
  }

  void declare(ParamMaker &params) override {
    Dim rows(label, {out});
    weight = params.make("weight", {rows, Dim("", {in})}, "linear");
    if (hasBias) {
      bias = params.make("bias", {rows}, "bias");
    }
  }

  Value *emit(BodyBuilder &body, Value *input, StringRef name) override {
    if (!hasBias) {
      return body.op(name, OpKind::Linear, {use(input), use(weight)});
    }
    Value *product =
        body.op((name + "0").str(), OpKind::Linear, {use(input), use(weight)});
    return body.op(name, OpKind::BiasAdd, {use(product), use(bias)});
  }

private:
  int64_t in = 0, out = 0;
  bool hasBias = false;
  StringRef label;
  Param *weight = nullptr, *bias = nullptr;
};

} // namespace

const ComponentInfo &hp::linearInfo() {
  static const ComponentInfo info{
      .kind = "Linear",
      .summary = "a matrix, with or without a bias",
      .options = {sizeOption("in", "channels it takes"),
                  sizeOption("out", "channels it gives"),
                  flagOption("bias", "adds a bias"),
                  {.name = "label",
                   .kind = FieldKind::Word,
                   .summary = "name of the output dim; V is the vocabulary",
                   .words = {"V", "none"},
                   .otherwise = "none"}},
      .params = {{"weight", 2}, {"bias", 1}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<LinearLayer>();
      }};
  return info;
}
