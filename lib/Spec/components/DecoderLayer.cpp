//===- DecoderLayer.cpp - Layers and stacks of them -----------------------===//
//
// A layer is a row of residual blocks y = x + body(norm(x)) over modules of its
// own; a stack runs layers, each of one of its templates. Import.cpp builds
// both from their children.
//
//===----------------------------------------------------------------------===//

#include "hp/Spec/Components.h"

using namespace hp;

const ComponentInfo &hp::decoderLayerInfo() {
  static const ComponentInfo info{
      .kind = "DecoderLayer",
      .summary = "residual blocks over a norm and a body each",
      .role = ComponentRole::Layer,
      .options = {},
      .params = {}};
  return info;
}

const ComponentInfo &hp::stackInfo() {
  static const ComponentInfo info{
      .kind = "Stack",
      .summary = "layers one after the other, each of one of its templates",
      .role = ComponentRole::Stack,
      .options = {{.name = "length",
                   .kind = FieldKind::Integer,
                   .summary = "how many layers",
                   .integers = {.min = 1, .max = maxLayers}},
                  {.name = "types",
                   .kind = FieldKind::WordList,
                   .summary = "the type of each layer; may be left out where "
                              "there is one template",
                   .otherwise = "[]"}},
      .params = {}};
  return info;
}
