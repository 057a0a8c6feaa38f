//===- Parameters.cpp - Every parameter of a model ------------------------===//

#include "hp/Analysis/Parameters.h"
#include "hp/IR/Text.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"
#include <numeric>

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Orders
//===----------------------------------------------------------------------===//

std::vector<ParamInstance> hp::allParameters(Module &module) {
  std::vector<ParamInstance> list;
  for (const Member &member : module.members) {
    if (member.param) {
      list.push_back({member.param->name.str(), member.param});
      continue;
    }
    unsigned index = 0;
    for (StringRef layer : member.stack->layers()) {
      std::string prefix =
          (member.stack->name + "." + llvm::Twine(index) + ".").str();
      for (Param *param : module.findBlock(layer)->params) {
        list.push_back({prefix + param->name.str(), param});
      }
      ++index;
    }
  }
  return list;
}

uint64_t hp::parameterCount(Module &module) {
  uint64_t elements = 0;
  for (const Member &member : module.members) {
    if (member.param) {
      elements += member.param->type.numElements();
      continue;
    }
    for (StringRef layer : member.stack->layers()) {
      for (const Param *param : module.findBlock(layer)->params) {
        elements += param->type.numElements();
      }
    }
  }
  return elements;
}

std::vector<ParamInstance> hp::registrationOrder(Module &module) {
  std::vector<ParamInstance> all = allParameters(module);
  // Modules still to visit, the next one last: which parameters are below it,
  // and how much of their names is its own.
  struct Visit {
    std::vector<unsigned> params;
    size_t prefix;
  };
  std::vector<Visit> pending(1);
  pending[0].params.resize(all.size());
  std::iota(pending[0].params.begin(), pending[0].params.end(), 0);
  pending[0].prefix = 0;

  std::vector<ParamInstance> order;
  while (!pending.empty()) {
    Visit visit = std::move(pending.back());
    pending.pop_back();
    // Submodules in the order in which they are first named.
    llvm::MapVector<StringRef, std::vector<unsigned>> children;
    for (unsigned index : visit.params) {
      StringRef name = all[index].name;
      size_t dot = name.find('.', visit.prefix);
      if (dot == StringRef::npos) {
        order.push_back(all[index]);
      } else {
        children[name.slice(visit.prefix, dot)].push_back(index);
      }
    }
    for (auto &[name, params] : llvm::reverse(children)) {
      pending.push_back({std::move(params), visit.prefix + name.size() + 1});
    }
  }
  return order;
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

DecayRule::DecayRule(const AttributeList &optimizer, std::string &fault) {
  const Attribute *found = optimizer.find("no_decay");
  if (!found) {
    return;
  }
  const Attribute::List *list = found->get<Attribute::List>();
  if (!list) {
    fault = "'no_decay' is not a list";
    return;
  }
  for (const Attribute &entry : *list) {
    const std::string *text = entry.get<std::string>();
    // A GlobPattern refers to the text it is made of.
    auto pattern =
        llvm::GlobPattern::create(text ? StringRef(*text) : StringRef());
    if (text && pattern) {
      exempt.push_back(std::move(*pattern));
      continue;
    }
    fault = text ? "'no_decay' holds the bad pattern '" + *text + "'"
                 : "'no_decay' holds something that is not a string";
    if (!pattern) {
      llvm::consumeError(pattern.takeError());
    }
    exempt.clear();
    return;
  }
}

bool DecayRule::decays(StringRef name) const {
  return llvm::none_of(exempt, [&](const llvm::GlobPattern &pattern) {
    return pattern.match(name);
  });
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

/// Names of the parameters that decay: what a step's instructions say, or what
/// the optimizer line will make them say.
static llvm::StringSet<> decayed(Module &module,
                                 llvm::ArrayRef<ParamInstance> params) {
  llvm::StringSet<> names;
  if (Function *step = module.findFunction("step")) {
    for (const Operation &op : step->body->ops) {
      if (op.is(OpKind::AdamW) && !op.operands.empty() &&
          op.operands[0].param && op.attrs.getFloat("weight_decay", 0) != 0) {
        names.insert(op.operands[0].param->name);
      }
    }
    return names;
  }
  std::string fault;
  DecayRule rule(module.optimizer, fault);
  if (module.optimizer.getFloat("weight_decay", 0) == 0) {
    return names;
  }
  for (const ParamInstance &instance : params) {
    if (rule.decays(instance.name)) {
      names.insert(instance.name);
    }
  }
  return names;
}

void hp::printParameters(Module &module, llvm::raw_ostream &os,
                         llvm::function_ref<std::string(StringRef)> keyOf) {
  std::vector<ParamInstance> params = allParameters(module);
  llvm::StringSet<> decays = decayed(module, params);
  for (const ParamInstance &instance : params) {
    os << instance.name << "  ";
    if (keyOf) {
      os << keyOf(instance.name) << "  ";
    }
    os << str(instance.param->type, module);
    if (!instance.param->init.empty()) {
      os << "  init=" << instance.param->init;
    }
    os << (decays.contains(instance.name) ? "  decays" : "  does not decay")
       << '\n';
  }
  os << parameterCount(module) << " elements in " << params.size()
     << (params.size() == 1 ? " tensor\n" : " tensors\n");
}
