//===- Components.cpp - The library of module kinds -----------------------===//

#include "hp/Spec/Components.h"
#include "FieldValues.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

llvm::ArrayRef<const ComponentInfo *> hp::allComponents() {
  static const ComponentInfo *const components[] = {
      &decoderLayerInfo(),  &embeddingInfo(),
      &gatedDeltaNetInfo(), &groupedQueryAttentionInfo(),
      &linearInfo(),        &rmsNormInfo(),
      &stackInfo(),         &swigluInfo()};
  return components;
}

const ComponentInfo *hp::findComponent(StringRef kind) {
  for (const ComponentInfo *info : allComponents()) {
    if (info->kind == kind) {
      return info;
    }
  }
  return nullptr;
}

const OptionInfo *ComponentInfo::findOption(StringRef name) const {
  auto it = llvm::find_if(
      options, [&](const OptionInfo &option) { return option.name == name; });
  return it == options.end() ? nullptr : &*it;
}

const ParamInfo *ComponentInfo::findParam(StringRef name) const {
  auto it = llvm::find_if(
      params, [&](const ParamInfo &param) { return param.name == name; });
  return it == params.end() ? nullptr : &*it;
}

OptionInfo hp::sizeOption(StringRef name, StringRef summary) {
  return {
      .name = name.str(), .kind = FieldKind::Integer, .summary = summary.str()};
}

OptionInfo hp::flagOption(StringRef name, StringRef summary) {
  return {.name = name.str(),
          .kind = FieldKind::Boolean,
          .summary = summary.str(),
          .otherwise = "false"};
}

OptionInfo hp::epsOption(StringRef summary) {
  return {.name = "eps",
          .kind = FieldKind::Float,
          .summary = summary.str(),
          .floats = {.min = 0, .max = 1, .minOpen = true}};
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

const Options::Entry &Options::entry(StringRef name) const {
  auto it = llvm::find_if(
      entries, [&](const Entry &entry) { return entry.name == name; });
  assert(it != entries.end() && "a component asks only for its own options");
  return *it;
}

int64_t Options::integer(StringRef name) const {
  return *entry(name).value.get<int64_t>();
}

double Options::real(StringRef name) const {
  return *entry(name).value.get<double>();
}

bool Options::flag(StringRef name) const {
  return *entry(name).value.get<bool>();
}

StringRef Options::word(StringRef name) const { return entry(name).node.text; }

std::vector<int64_t> Options::integers(StringRef name) const {
  std::vector<int64_t> list;
  for (const Attribute &item : *entry(name).value.get<Attribute::List>()) {
    list.push_back(*item.get<int64_t>());
  }
  return list;
}

llvm::ArrayRef<Node> Options::items(StringRef name) const {
  return entry(name).node.items;
}

std::string Options::label(StringRef name) const {
  return "'" + entry(name).label + "'";
}

Location Options::loc(StringRef name) const { return entry(name).loc; }

InFlightDiagnostic Options::error(llvm::ArrayRef<StringRef> names) const {
  auto isOutside = [&](StringRef name) {
    return loc(name).fileName() != module->loc.fileName();
  };
  auto it = llvm::find_if(names, isOutside);
  StringRef culprit = it == names.end() ? names.front() : *it;
  InFlightDiagnostic error = diag->error(loc(culprit));
  for (StringRef name : names) {
    if (name != culprit && loc(name) != module->loc) {
      error.note(loc(name), label(name) + " is here");
    }
  }
  error.note(module->loc,
             "in module '" + module->name + "' of kind " + module->info->kind);
  return error;
}

std::optional<Options> hp::resolveOptions(const ModuleSpec &module,
                                          const ResolvedConfig &config,
                                          llvm::StringSet<> &reported,
                                          DiagnosticEngine &diag) {
  Options options;
  options.module = &module;
  options.diag = &diag;
  bool ok = true;
  for (const OptionBinding &binding : module.options) {
    const OptionInfo &info = *binding.info;
    Options::Entry entry{
        info.name, info.name, binding.literal, {}, binding.loc};
    if (!binding.field.empty()) {
      const ConfigField *field = config.find(binding.field);
      entry.label = binding.field;
      entry.node = field->value;
      entry.loc = field->loc;
      if (reported.contains(binding.field)) {
        ok = false;
        continue;
      }
    }
    ValueRange range{info.integers, info.floats, info.words};
    auto value = readValue(entry.node, info.kind, entry.label, diag, range);
    if (!value) {
      reported.insert(entry.label);
      ok = false;
      continue;
    }
    entry.value = std::move(*value);
    options.entries.push_back(std::move(entry));
  }
  return ok ? std::optional(std::move(options)) : std::nullopt;
}
