//===- ParallelChoices.cpp - What a module says of its layout -------------===//

#include "ParallelChoices.h"

using namespace hp;
using llvm::StringRef;

AxisList hp::axesCalled(const Module &module, StringRef name) {
  if (std::optional<AxisList> axes = module.mesh.lookup(name)) {
    return *axes;
  }
  AxisList axes;
  if (name == "dp") {
    for (StringRef part : {"dp_replicate", "dp_shard"}) {
      if (std::optional<AxisList> found = module.mesh.lookup(part)) {
        axes.append(*found);
      }
    }
  }
  return axes;
}

/// Words of `value`: one, or a list.
static llvm::SmallVector<StringRef, 4> wordsOf(const Attribute &value) {
  llvm::SmallVector<StringRef, 4> words;
  if (const Word *word = value.get<Word>()) {
    words.push_back(word->text);
  } else if (const Attribute::List *list = value.get<Attribute::List>()) {
    for (const Attribute &entry : *list) {
      if (const Word *word = entry.get<Word>()) {
        words.push_back(word->text);
      }
    }
  }
  return words;
}

static bool isChoice(StringRef key) {
  return key == "sequence_parallel" || key == "loss_parallel";
}

llvm::SmallVector<DeclaredCut, 2> hp::declaredCuts(const Module &module,
                                                   StringRef key) {
  llvm::SmallVector<DeclaredCut, 2> cuts;
  if (const Attribute *value = module.sharding.find(key)) {
    auto words = wordsOf(*value);
    for (size_t i = 0; i + 1 < words.size(); i += 2) {
      cuts.push_back({words[i], words[i + 1]});
    }
  }
  return cuts;
}

llvm::SmallVector<DeclaredCut, 2> hp::valueCuts(const Module &module) {
  llvm::SmallVector<DeclaredCut, 2> cuts;
  for (const NamedAttribute &entry : module.sharding.entries()) {
    if (isChoice(entry.name)) {
      continue;
    }
    for (StringRef axis : wordsOf(entry.value)) {
      cuts.push_back({entry.name, axis});
    }
  }
  return cuts;
}

bool hp::checkSharding(Module &module, StringRef pass, DiagnosticEngine &diag) {
  static constexpr StringRef known[] = {"dp", "dp_replicate", "dp_shard", "cp",
                                        "tp"};
  auto checkAxis = [&](StringRef axis) {
    if (llvm::is_contained(known, axis) || module.mesh.lookup(axis)) {
      return true;
    }
    return bool(diag.error(module.loc)
                << "pass '" << pass << "': the module's 'sharding' line names "
                << "an axis '" << axis
                << "'; axes are dp, dp_replicate, dp_shard, cp, tp and those "
                   "of the mesh");
  };
  for (const NamedAttribute &entry : module.sharding.entries()) {
    auto words = wordsOf(entry.value);
    const auto *list = entry.value.get<Attribute::List>();
    size_t length = list ? list->size() : 1;
    bool choice = isChoice(entry.name);
    if (words.empty() || words.size() != length ||
        (choice && words.size() % 2 != 0)) {
      return diag.error(module.loc)
             << "pass '" << pass << "': '" << entry.name
             << "' of the module's 'sharding' line must be "
             << (choice ? "dims and their axes in turn, as [S, tp]"
                        : "an axis, or a list of axes");
    }
    for (size_t i = choice ? 1 : 0; i < words.size(); i += choice ? 2 : 1) {
      if (!checkAxis(words[i])) {
        return false;
      }
    }
    if (!choice && !module.findDim(entry.name)) {
      return diag.error(module.loc)
             << "pass '" << pass << "': the module's 'sharding' line cuts dim '"
             << entry.name << "', which is not declared";
    }
  }
  return true;
}

std::string hp::stageRefusal(const Module &module, Stage wanted) {
  if (module.stage == wanted) {
    return {};
  }
  std::string text = ("the module is at stage '" + name(module.stage) +
                      "'; it takes stage '" + name(wanted) + "'")
                         .str();
  if (module.stage > wanted) {
    return text + ", which is past: passes run once, in the order of "
                  "--list-passes";
  }
  for (const PassInfo &info : allPasses()) {
    if (info.make()->produces() == wanted) {
      return text + ", which '" + info.name + "' makes";
    }
  }
  return text;
}

std::string hp::chosen(const Pass &pass, StringRef option, const Module &module,
                       StringRef key, StringRef otherwise) {
  StringRef given = pass.option(option);
  if (given != "auto") {
    return given.str();
  }
  const Attribute *value = module.parallelism.find(key);
  if (!value) {
    return otherwise.str();
  }
  if (const bool *flag = value->get<bool>()) {
    return *flag ? "true" : "false";
  }
  if (const int64_t *number = value->get<int64_t>()) {
    return std::to_string(*number);
  }
  return module.parallelism.getText(key).str();
}
