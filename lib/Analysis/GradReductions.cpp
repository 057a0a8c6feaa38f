//===- GradReductions.cpp - Over which axes gradients are summed ----------===//

#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Parameters.h"
#include "hp/Analysis/Views.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include <array>

using namespace hp;
using llvm::StringRef;

namespace {
/// How the gradient of one parameter is summed.
struct Reduction {
  AxisList scatter, sum;
  std::string bucket;   ///< empty: it is in none
  unsigned message = 0; ///< of a step, from 1
};
} // namespace

/// Prefixes that `body` gathers, `layers.0` for `@layers.0.*`; of a template's
/// `@*` the empty one.
static llvm::SmallVector<StringRef, 4> bucketsOf(Block &body) {
  llvm::SmallVector<StringRef, 4> symbols;
  for (const Operation &op : body.ops) {
    if (op.is(OpKind::FsdpUnshard) && !llvm::is_contained(symbols, op.symbol)) {
      symbols.push_back(op.symbol);
    }
  }
  return symbols;
}

/// Buckets by the full name of what they hold: each prefix once.
static llvm::StringMap<std::string> bucketsByParam(Module &module) {
  llvm::StringMap<std::string> buckets;
  llvm::StringMap<llvm::SmallVector<StringRef, 4>> ofTemplates;
  for (const auto &block : module.blocks) {
    ofTemplates[block->name] = bucketsOf(*block->body);
  }
  auto contains = [](StringRef prefix, StringRef name) {
    return prefix.empty() ||
           (name.consume_front(prefix) && name.starts_with("."));
  };
  for (const Member &member : module.members) {
    if (!member.stack) {
      continue;
    }
    unsigned index = 0;
    for (StringRef layer : member.stack->layers()) {
      std::string prefix =
          (member.stack->name + "." + llvm::Twine(index++)).str();
      for (const Param *param : module.findBlock(layer)->params) {
        for (StringRef symbol : ofTemplates[layer]) {
          if (contains(symbol, param->name)) {
            buckets[(prefix + "." + param->name).str()] =
                prefix + (symbol.empty() ? "" : "." + symbol.str());
          }
        }
      }
    }
  }
  for (const auto &function : module.functions) {
    for (StringRef symbol : bucketsOf(*function->body)) {
      for (const Member &member : module.members) {
        if (member.param && contains(symbol, member.param->name)) {
          buckets[member.param->name] = symbol.str();
        }
      }
    }
  }
  return buckets;
}

/// As the instructions of a step have it, by name.
static llvm::StringMap<Reduction> reductionsOfStep(Function &step) {
  llvm::StringMap<Reduction> reductions;
  unsigned message = 0;
  for (const ReductionRun &run : reductionRuns(step)) {
    ++message;
    for (const Operation *op : run.members) {
      reductions[op->symbol] = {reductionAxes(*op, "scatter"),
                                reductionAxes(*op, "sum"), "", message};
    }
  }
  return reductions;
}

/// As the type of a parameter has it.
static Reduction planned(const Param &param) {
  Reduction reduction;
  AxisSet rest = param.type->repl;
  if (param.type->store) {
    reduction.scatter = param.type->store->axes;
    rest = rest - AxisSet(reduction.scatter);
  }
  reduction.sum = rest.list();
  return reduction;
}

static std::string describe(const Reduction &reduction, const Mesh &mesh) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (!reduction.scatter.empty()) {
    os << "reduce_scatter ";
    mesh.printGroup(os, reduction.scatter);
  }
  if (!reduction.sum.empty()) {
    os << (text.empty() ? "" : ", ") << "all_reduce ";
    mesh.printGroup(os, reduction.sum);
  }
  return text.empty() ? "none" : text;
}

void hp::printGradReductions(Module &module, llvm::raw_ostream &os) {
  bool isStep = module.stage == Stage::Step;
  llvm::StringMap<std::string> buckets = bucketsByParam(module);
  llvm::StringMap<Reduction> ofStep;
  if (Function *step = isStep ? module.findFunction("step") : nullptr) {
    ofStep = reductionsOfStep(*step);
  }
  std::vector<std::array<std::string, 3>> rows;
  size_t widths[2] = {0, 0};
  for (const ParamInstance &instance : allParameters(module)) {
    Reduction reduction =
        isStep ? ofStep.lookup(instance.name) : planned(*instance.param);
    std::string end;
    if (auto it = buckets.find(instance.name); it != buckets.end()) {
      end = "bucket @" + it->second + ".*";
    }
    if (reduction.message) {
      end += (end.empty() ? "message " : ", message ") +
             std::to_string(reduction.message);
    }
    rows.push_back({instance.name, describe(reduction, module.mesh), end});
  }
  for (const Tie &tie : module.ties) {
    rows.push_back({tie.alias.str(), "with @" + tie.target.str(), ""});
  }
  for (const auto &row : rows) {
    for (unsigned i = 0; i < 2; ++i) {
      widths[i] = std::max(widths[i], row[i].size());
    }
  }
  for (const auto &row : rows) {
    std::string line =
        llvm::formatv("{0}  {1}  {2}", llvm::left_justify(row[0], widths[0]),
                      llvm::left_justify(row[1], widths[1]), row[2])
            .str();
    os << StringRef(line).rtrim() << '\n';
  }
}
