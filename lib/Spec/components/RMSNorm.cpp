//===- RMSNorm.cpp - Root mean square norm --------------------------------===//

#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

class RMSNorm : public Component {
public:
  bool configure(const Options &options) override {
    width = options.integer("width");
    eps = options.real("eps");
    unitOffset = options.flag("unit_offset");
    return true;
  }

  void declare(ParamMaker &params) override {
    weight = params.make("weight", {Dim("", {width})},
                         unitOffset ? "zeros" : "ones");
  }

  Value *emit(BodyBuilder &body, Value *input, StringRef name) override {
    return body.rmsNorm(name, input, weight, eps, unitOffset);
  }

private:
  int64_t width = 0;
  double eps = 0;
  bool unitOffset = false;
  Param *weight = nullptr;
};

} // namespace

const ComponentInfo &hp::rmsNormInfo() {
  static const ComponentInfo info{
      .kind = "RMSNorm",
      .summary = "root mean square norm over the channels, in fp32",
      .options = {sizeOption("width", "channels"),
                  epsOption("added to the mean square"),
                  flagOption("unit_offset",
                             "scales by 1 + weight, which starts at 0")},
      .params = {{"weight", 1}},
      .make = []() -> std::unique_ptr<Component> {
        return std::make_unique<RMSNorm>();
      }};
  return info;
}
