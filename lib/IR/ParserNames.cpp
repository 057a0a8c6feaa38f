//===- ParserNames.cpp - What the names of a body stand for ---------------===//

#include "Parser.h"
#include "llvm/ADT/SmallString.h"

using namespace hp;
using llvm::StringRef;

bool Parser::define(Scope &scope, Value *value) {
  auto [it, isNew] = scope.values.try_emplace(value->name);
  Entry &entry = it->second;
  // A bundle's name is free again after its fsdp.reshard, for the next bundle.
  bool reopened = entry.closed && value->isBundle();
  if (!isNew && !entry.broken && !reopened) {
    return redefinition(value->loc, "value '%" + value->name + "'",
                        entry.value->loc);
  }
  entry = {value, false, false};
  return true;
}

void Parser::defineBroken(Scope &scope, const ResultNames &names) {
  for (const ResultName &name : names) {
    auto [it, isNew] = scope.values.try_emplace(name.name);
    if (isNew) {
      it->second = {module->makeValue(name.name, Type(), name.loc), false,
                    true};
    }
  }
}

Parser::Entry *Parser::findValue(Scope &scope, StringRef name, Location loc) {
  auto it = scope.values.find(name);
  if (it != scope.values.end()) {
    return &it->second;
  }
  InFlightDiagnostic report = error(loc);
  report << "'%" << name << "' is not defined before this line";
  llvm::SmallVector<StringRef> names;
  for (const auto &entry : scope.values) {
    names.push_back(entry.getKey());
  }
  llvm::sort(names);
  StringRef near = didYouMean(name, names);
  if (!near.empty()) {
    report.note(scope.values[near].value->loc,
                "did you mean '%" + near + "', defined here?");
  }
  return nullptr;
}

bool Parser::lookup(const Scope &scope, StringRef name, Param *&param) const {
  for (const ParamTable *table : {scope.templateParams, &params}) {
    auto it = table ? table->find(name) : ParamTable::const_iterator();
    if (table && it != table->end()) {
      param = it->second;
      return true;
    }
  }
  return false;
}

llvm::SmallVector<StringRef> Parser::paramNames(const Scope &scope,
                                                StringRef prefix) const {
  llvm::SmallVector<StringRef> names;
  for (const ParamTable *table : {scope.templateParams, &params}) {
    if (!table) {
      continue;
    }
    for (const auto &entry : *table) {
      StringRef name = entry.getKey();
      if (prefix.empty() ||
          (name.consume_front(prefix) && name.consume_front("."))) {
        names.push_back(name);
      }
    }
  }
  llvm::sort(names);
  return names;
}

bool Parser::findParam(const Scope &scope, StringRef name, Location loc,
                       Param *&param) {
  if (lookup(scope, name, param)) {
    return true;
  }
  for (const Tie &tie : module->ties) {
    if (tie.alias == name) {
      return error(loc).note(tie.loc, "tied here")
             << "'@" << name << "' is tied; write '@" << tie.target << "'";
    }
  }
  return unknown(loc, "parameter", name, paramNames(scope, ""), "@");
}

/// Of the bundle with prefix `layers.0`, `q.weight` is `layers.0.q.weight`; the
/// full name will do as well.
bool Parser::findBundleParam(const Scope &scope, const Value &bundle,
                             StringRef name, Location loc, Param *&param) {
  StringRef prefix = bundle.owner->symbol;
  if (prefix.empty()) { // all of a template's own
    auto it = scope.templateParams ? scope.templateParams->find(name)
                                   : ParamTable::const_iterator();
    if (scope.templateParams && it != scope.templateParams->end()) {
      param = it->second;
      return true;
    }
    InFlightDiagnostic report = error(loc);
    report.note(bundle.loc, "unsharded here");
    report << "'@" << name
           << "' is no parameter of this block, so it is not in "
           << "the bundle '@*'";
    return report;
  }
  llvm::SmallString<128> full(prefix);
  full += '.';
  bool isFull = name == prefix || name.starts_with(full);
  full += name;
  if (lookup(scope, full, param)) {
    return true;
  }
  if (isFull && lookup(scope, name, param)) {
    return true;
  }
  InFlightDiagnostic report = error(loc);
  report.note(bundle.loc, "unsharded here");
  report << "'@" << name << "' is not in the bundle '@" << prefix << ".*'";
  StringRef near = didYouMean(name, paramNames(scope, prefix));
  if (!near.empty()) {
    report.note({}, "did you mean '@" + near + "'?");
  }
  return false;
}
