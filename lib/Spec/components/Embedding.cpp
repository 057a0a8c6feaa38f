//===- Embedding.cpp - Rows of a table by token ---------------------------===//

#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

class Embedding : public Component {
public:
  bool configure(const Options &options) override {
    rows = options.integer("rows");
    width = options.integer("width");
    return true;
  }

  void declare(ParamMaker &params) override {
    weight = params.make("weight", {Dim("V", {rows}), Dim("", {width})},
                         "embedding");
  }

  Value *emit(BodyBuilder &body, Value *tokens, StringRef name) override {
    return body.op(name, OpKind::Embedding, {use(tokens), use(weight)});
  }

private:
  int64_t rows = 0, width = 0;
  Param *weight = nullptr;
};

} // namespace

const ComponentInfo &hp::embeddingInfo() {
  static const ComponentInfo info{
      .kind = "Embedding",
      .summary = "rows of a table by token",
      .options = {sizeOption("rows", "size of the vocabulary"),
                  sizeOption("width", "channels of a row")},
      .params = {{"weight", 2}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<Embedding>();
      }};
  return info;
}
