//===- ShardingOrigins.cpp - Why each parameter is placed as it is --------===//

#include "hp/Analysis/Parameters.h"
#include "hp/Analysis/Views.h"
#include "hp/IR/Verifier.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"

using namespace hp;
using llvm::StringRef;

namespace {
class OriginsView {
public:
  OriginsView(Module &module, llvm::raw_ostream &os,
              DeclarationOf declarationOf)
      : module(module), os(os), declarationOf(declarationOf) {}

  void print();

private:
  struct Use {
    const Operation *op;
    unsigned position;
  };
  void findUses(Block &body);
  void print(const Param &param, StringRef indent);
  std::string meeting(const Param &param, AxisId axis);
  void printWhole();
  std::string group(llvm::ArrayRef<AxisId> axes) const;

  Module &module;
  llvm::raw_ostream &os;
  DeclarationOf declarationOf;
  llvm::DenseMap<const Param *, llvm::SmallVector<Use, 2>> uses;
};
} // namespace

std::string OriginsView::group(llvm::ArrayRef<AxisId> axes) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.mesh.printGroup(stream, axes);
  return text;
}

void OriginsView::findUses(Block &body) {
  for (const Operation &op : body.ops) {
    if (op.backward) {
      continue;
    }
    for (unsigned i : op.info().diffOperands(op.operands.size())) {
      if (i < op.operands.size() && op.operands[i].param) {
        uses[op.operands[i].param].push_back({&op, i});
      }
    }
  }
}

static std::string place(Location loc) {
  return (loc.fileName() + ":" + llvm::Twine(loc.line) + ":" +
          llvm::Twine(loc.column))
      .str();
}

/// How `value` differs between the ranks of `axis`; empty if it does not.
static std::string difference(const Value &value, AxisId axis,
                              const Mesh &mesh) {
  Type type = value.type;
  if (!type || !isFloat(type.dtype())) {
    return {};
  }
  switch (type.state(axis)) {
  case State::Invariant:
    return {};
  case State::Replicated:
    return ("'%" + value.name + "', which each rank uses in its own way").str();
  case State::Partial:
    return ("'%" + value.name + "', of which each rank has a term").str();
  case State::Sharded:
    break;
  }
  int position = type.shardedDim(axis);
  StringRef label = type.dims()[position].name();
  return ("'%" + value.name + "', cut along " +
          (label.empty() ? "dim " + std::to_string(position)
                         : "'" + label.str() + "'"))
      .str();
}

/// `meets '%x', cut along 'B', in 'rms_norm'`: why the gradient is summed over
/// `axis`.
std::string OriginsView::meeting(const Param &param, AxisId axis) {
  for (const Use &use : uses.lookup(&param)) {
    std::string where = " in '" + use.op->spelling() + "'";
    for (unsigned i = 0; i < use.op->operands.size(); ++i) {
      const Operand &other = use.op->operands[i];
      if (i == use.position || other.param || !other.value) {
        continue;
      }
      std::string text = difference(*other.value, axis, module.mesh);
      if (!text.empty()) {
        return "meets " + text + "," + where;
      }
    }
    for (const Value *result : use.op->results) {
      std::string text = result ? difference(*result, axis, module.mesh) : "";
      if (!text.empty()) {
        return "makes " + text + "," + where;
      }
    }
  }
  return "is read by no operation that says why";
}

void OriginsView::print(const Param &param, StringRef indent) {
  const Mesh &mesh = module.mesh;
  os << indent << '@' << param.name << " : " << str(param.type, module) << '\n';
  if (const std::string *declared = declarationOf(param)) {
    os << indent << "  declared " << *declared << " at " << place(param.loc)
       << '\n';
  } else if (param.loc) {
    os << indent << "  from " << place(param.loc) << '\n';
  }
  for (auto [index, dim] : llvm::enumerate(param.type.dims())) {
    if (!dim.axes.empty()) {
      os << indent << "  cut over " << group(dim.axes) << " along dim " << index
         << '\n';
    }
  }
  // Axes that the same meeting explains, in mesh order.
  llvm::MapVector<StringRef, AxisList> byReason;
  std::vector<std::string> reasons;
  reasons.reserve(mesh.numAxes());
  for (AxisId axis : param.type->repl.list()) {
    reasons.push_back(meeting(param, axis));
    byReason[reasons.back()].push_back(axis);
  }
  for (const auto &[reason, axes] : byReason) {
    os << indent << "  summed over " << group(axes) << ": " << reason << '\n';
  }
  AxisSet whole = module.tensorAxes() - param.type.shardedAxes();
  if (whole.empty()) {
    return;
  }
  os << indent << "  whole on every rank of " << group(whole.list()) << ": ";
  bool isGroup = llvm::any_of(param.type.dims(),
                              [](const Dim &dim) { return dim.name() == "g"; });
  if (isGroup) {
    os << "there are fewer groups of heads than ranks\n";
  } else if (const std::string *declared = declarationOf(param)) {
    os << (*declared == "replicated" ? "so declared"
                                     : "nothing of it is declared")
       << '\n';
  } else {
    os << "no dim is cut over it\n";
  }
}

/// The share of the model that tensor parallelism does not cut.
void OriginsView::printWhole() {
  AxisSet tensor = module.tensorAxes();
  if (tensor.empty()) {
    return;
  }
  int64_t tensors = 0, all = 0, elements = 0, total = 0, most = 0;
  std::string largest;
  for (const ParamInstance &instance : allParameters(module)) {
    int64_t count = instance.param->type.numElements();
    ++all;
    total += count;
    if (!(instance.param->type.shardedAxes() & tensor).empty()) {
      continue;
    }
    ++tensors;
    elements += count;
    if (count > most) {
      most = count;
      largest = instance.name;
    }
  }
  os << tensors << " of " << all << " tensors are whole on every rank of "
     << group(tensor.list()) << ", " << elements << " of " << total
     << " elements"
     << llvm::format(" (%.3f %%)", total ? 100.0 * elements / total : 0.0);
  if (tensors) {
    os << "; the largest is " << largest << " with " << most;
  }
  os << '\n';
}

void OriginsView::print() {
  for (const auto &block : module.blocks) {
    findUses(*block->body);
  }
  for (const auto &function : module.functions) {
    findUses(*function->body);
  }
  for (const Member &member : module.members) {
    if (member.param) {
      print(*member.param, "");
    }
  }
  for (const auto &block : module.blocks) {
    os << "block @" << block->name << '\n';
    for (const Param *param : block->params) {
      print(*param, "  ");
    }
  }
  for (const Tie &tie : module.ties) {
    os << '@' << tie.alias << " is @" << tie.target << '\n';
  }
  printWhole();
}

void hp::printShardingOrigins(Module &module, llvm::raw_ostream &os,
                              DeclarationOf declarationOf) {
  OriginsView(module, os, declarationOf).print();
}
