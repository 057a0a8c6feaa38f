//===- ExpandLayers.cpp - Instances of layers -----------------------------===//

#include "hp/Analysis/Views.h"
#include "llvm/ADT/DenseMap.h"

using namespace hp;
using llvm::StringRef;

namespace {
/// Prints one layer. The copies it makes of values and parameters stay in the
/// module, where nothing refers to them.
class LayerPrinter {
public:
  LayerPrinter(Module &module, llvm::raw_ostream &os, PrintOptions options)
      : module(module), os(os), options(options) {}

  void printLayer(const Stack &stack, int64_t index, BlockTemplate &block,
                  bool several);

private:
  Value *renamed(Value *value, const llvm::Twine &name);
  Operand mapped(Operand operand) const;

  Module &module;
  llvm::raw_ostream &os;
  PrintOptions options;
  llvm::DenseMap<Value *, Value *> values;
  llvm::DenseMap<Param *, Param *> params;
};
} // namespace

Value *LayerPrinter::renamed(Value *value, const llvm::Twine &name) {
  return values[value] = module.makeValue(name.str(), value->type, value->loc);
}

Operand LayerPrinter::mapped(Operand operand) const {
  if (Value *value = values.lookup(operand.value)) {
    operand.value = value;
  }
  if (Param *param = params.lookup(operand.param)) {
    operand.param = param;
  }
  return operand;
}

/// Names are those that expand-step gives: `%31.qkv`, of one of several stacks
/// `%layers.31.qkv`. What enters keeps its name in the template: `%31.x`.
void LayerPrinter::printLayer(const Stack &stack, int64_t index,
                              BlockTemplate &block, bool several) {
  values.clear();
  params.clear();
  std::string name = (stack.name + "." + llvm::Twine(index)).str();
  std::string prefix = several ? name : std::to_string(index);
  for (Param *param : block.params) {
    params[param] = module.makeParam((name + "." + param->name).str(),
                                     param->type, param->init, param->loc);
  }
  for (Value *argument : llvm::drop_begin(block.body->arguments)) {
    renamed(argument, argument->name);
  }
  if (!block.body->arguments.empty()) {
    renamed(block.body->arguments[0],
            prefix + "." + block.body->arguments[0]->name);
  }

  os << "// @" << name << ", of block @" << block.name << '\n';
  for (const Param *param : block.params) {
    os << "param @" << params[const_cast<Param *>(param)]->name << " : "
       << str(param->type, module);
    if (!param->init.empty()) {
      os << " {init=" << param->init << '}';
    }
    os << '\n';
  }
  for (const Operation &op : block.body->ops) {
    Operation copy(op.kind);
    copy.loc = op.loc;
    copy.attrs = op.attrs;
    copy.axes = op.axes;
    copy.dim = op.dim;
    copy.toDim = op.toDim;
    copy.symbol = op.symbol;
    copy.parent = op.parent;
    for (const Operand &operand : op.operands) {
      copy.operands.push_back(mapped(operand));
    }
    for (Value *result : op.results) {
      copy.results.push_back(
          result ? renamed(result, prefix + "." + result->name) : nullptr);
    }
    print(copy, os, options);
    os << '\n';
  }
}

bool hp::printLayers(Module &module, llvm::ArrayRef<int64_t> layers,
                     llvm::raw_ostream &os, DiagnosticEngine &diag,
                     PrintOptions options) {
  llvm::SmallVector<const Stack *, 1> stacks;
  int64_t most = 0;
  for (const Member &member : module.members) {
    if (member.stack) {
      stacks.push_back(member.stack);
      most = std::max(most, member.stack->numLayers());
    }
  }
  if (stacks.empty()) {
    return diag.error(module.loc)
           << (module.stage == Stage::Step
                   ? "at stage 'step' every layer is written out already"
                   : "the module has no stack of layers to expand");
  }
  for (int64_t layer : layers) {
    if (layer < 0 || layer >= most) {
      return diag.error(module.loc)
             << "there is no layer " << layer << " to expand: layers go from 0 "
             << "to " << most - 1;
    }
  }
  os << "// A view of single layers, not an input.\n";
  LayerPrinter printer(module, os, options);
  for (const Stack *stack : stacks) {
    std::vector<StringRef> names = stack->layers();
    for (int64_t layer : layers) {
      if (layer < int64_t(names.size())) {
        printer.printLayer(*stack, layer, *module.findBlock(names[layer]),
                           stacks.size() > 1);
      }
    }
  }
  return true;
}
