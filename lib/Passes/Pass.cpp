//===- Pass.cpp - What a pass is ------------------------------------------===//

#include "hp/Passes/Pass.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

bool Pass::setOption(StringRef name, StringRef value, std::string &message) {
  llvm::SmallVector<StringRef> names;
  for (const PassOption &option : options()) {
    if (option.name != name) {
      names.push_back(option.name);
      continue;
    }
    if (!option.choices.empty() &&
        !llvm::is_contained(option.choices, value.str())) {
      message = (llvm::Twine("option '") + name + "' of pass '" + this->name() +
                 "' is one of " + llvm::join(option.choices, ", ") + ", not '" +
                 value + "'")
                    .str();
      return false;
    }
    values.push_back({name.str(), value.str()});
    return true;
  }
  message =
      (llvm::Twine("pass '") + this->name() + "' has no option '" + name + "'" +
       (names.empty() ? llvm::Twine()
                      : "; it has " + llvm::Twine(llvm::join(names, ", "))))
          .str();
  return false;
}

StringRef Pass::option(StringRef name) const {
  for (auto it = values.rbegin(); it != values.rend(); ++it) {
    if (it->first == name) {
      return it->second;
    }
  }
  for (const PassOption &option : options()) {
    if (option.name == name) {
      return option.defaultValue;
    }
  }
  return {};
}

std::string Pass::spelling() const {
  std::string text = name().str();
  if (options().empty()) {
    return text;
  }
  llvm::SmallVector<std::string> parts;
  for (const PassOption &entry : options()) {
    parts.push_back(entry.name + "=" + option(entry.name).str());
  }
  return text + "{" + llvm::join(parts, ",") + "}";
}

void Pass::count(StringRef name, StringRef summary, uint64_t value) {
  for (PassStatistic &stat : stats) {
    if (stat.name == name) {
      stat.value += value;
      return;
    }
  }
  stats.push_back({name.str(), summary.str(), value});
}
