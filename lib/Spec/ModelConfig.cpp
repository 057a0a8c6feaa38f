//===- ModelConfig.cpp - The config of one flavor -------------------------===//
//
// Defaults, then the flavor, then what the run gives, then what is derived.
//
//===----------------------------------------------------------------------===//

#include "FieldValues.h"
#include "hp/Spec/Components.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

const ConfigField *ResolvedConfig::find(StringRef name) const {
  auto it = llvm::find_if(
      fields, [&](const ConfigField &field) { return field.name == name; });
  return it == fields.end() ? nullptr : &*it;
}

bool ResolvedConfig::flag(StringRef name) const {
  const ConfigField *field = find(name);
  return field && field->value.text == "true";
}

Attribute ResolvedConfig::toAttribute(const ConfigField &field) {
  // The value was read before, so that nothing is reported.
  DiagnosticEngine silent(llvm::nulls());
  auto value = readValue(field.value, field.kind, field.name, silent);
  return value.value_or(Attribute{false});
}

namespace {

class Resolver {
public:
  Resolver(const ModelSpec &spec, DiagnosticEngine &diag)
      : spec(spec), diag(diag) {}

  bool applyFlavor(StringRef name, Location loc);
  void apply(const Node &layer);
  void derive();
  void checkRanges();

  ResolvedConfig config;
  bool failed = false;

private:
  void reportUnknown(const MapEntry &entry);
  void deriveList(const IntervalRule &rule);
  std::optional<int64_t> count(StringRef field, int64_t max);

  const ModelSpec &spec;
  DiagnosticEngine &diag;
};

} // namespace

bool Resolver::applyFlavor(StringRef name, Location loc) {
  config.fields = spec.config;
  config.loc = spec.loc;
  if (name.empty()) {
    return true;
  }
  const Flavor *flavor = spec.findFlavor(name);
  if (!flavor) {
    std::vector<StringRef> names;
    for (const Flavor &known : spec.flavors) {
      names.push_back(known.name);
    }
    auto error = diag.error(loc ? loc : spec.loc);
    error << "model '" << spec.name << "' has no flavor "
          << quoteForMessage(name);
    suggest(error, name, names, "its flavors");
    return error;
  }
  config.loc = flavor->loc;
  apply(flavor->values);
  return true;
}

void Resolver::reportUnknown(const MapEntry &entry) {
  failed = true;
  auto error = diag.error(entry.keyLoc);
  StringRef key = entry.key;
  if (key.contains("expert") || key.contains("moe")) {
    error << "field " << quoteForMessage(key) << ": model '" << spec.name
          << "' is dense and has no experts";
    return;
  }
  std::vector<StringRef> names;
  for (const ConfigField &field : spec.config) {
    names.push_back(field.name);
  }
  for (const IntervalRule &rule : spec.derived) {
    names.push_back(rule.field);
  }
  error << "unknown field " << quoteForMessage(key)
        << " in the config of model '" << spec.name << "'";
  suggest(error, key, names, "its fields");
}

void Resolver::apply(const Node &layer) {
  for (const MapEntry &entry : layer.entries) {
    auto field = llvm::find_if(config.fields, [&](const ConfigField &field) {
      return field.name == entry.key;
    });
    bool isDerived = llvm::any_of(spec.derived, [&](const IntervalRule &rule) {
      return rule.field == entry.key;
    });
    if (field == config.fields.end() && !isDerived) {
      reportUnknown(entry);
      continue;
    }
    FieldKind kind = isDerived ? FieldKind::WordList : field->kind;
    if (!readValue(entry.value, kind, entry.key, diag)) {
      failed = true;
      continue;
    }
    if (field == config.fields.end()) {
      config.fields.push_back({entry.key, kind, {}, {}});
      field = std::prev(config.fields.end());
    }
    field->value = entry.value;
    field->loc = entry.value.loc;
  }
}

/// The value of an integer field that a list depends on.
std::optional<int64_t> Resolver::count(StringRef name, int64_t max) {
  const ConfigField *field = config.find(name);
  return readInt(field->value, name, diag, {.min = 1, .max = max});
}

void Resolver::deriveList(const IntervalRule &rule) {
  auto length = count(rule.length, maxLayers);
  auto every = count(rule.every, maxOptionInteger);
  if (!length || !every) {
    failed = true;
    return;
  }
  Node list;
  list.kind = Node::Kind::Sequence;
  list.loc = rule.loc;
  for (int64_t i = 1; i <= *length; ++i) {
    const std::string &word = i % *every == 0 ? rule.last : rule.others;
    list.items.push_back(Node::makeScalar(word, rule.loc));
  }
  config.fields.push_back(
      {rule.field, FieldKind::WordList, std::move(list), rule.loc});
}

void Resolver::derive() {
  for (const IntervalRule &rule : spec.derived) {
    if (!config.find(rule.field)) {
      deriveList(rule);
    }
  }
}

/// Fields that mean the same in every spec, and that no module reads.
void Resolver::checkRanges() {
  if (const ConfigField *field = config.find("max_position_embeddings")) {
    IntRange range{.min = 1, .max = maxOptionInteger};
    failed |= !readInt(field->value, field->name, diag, range);
  }
  if (const ConfigField *field = config.find("initializer_range")) {
    FloatRange range{.min = 0, .max = 1e3};
    failed |= !readFloat(field->value, field->name, diag, range);
  }
}

std::optional<ResolvedConfig>
hp::resolveConfig(const ModelSpec &spec, StringRef flavor, Location flavorLoc,
                  llvm::ArrayRef<const Node *> layers, DiagnosticEngine &diag) {
  Resolver resolver(spec, diag);
  if (!resolver.applyFlavor(flavor, flavorLoc)) {
    return std::nullopt;
  }
  for (const Node *layer : layers) {
    if (!layer->isMap() && !layer->isNull()) {
      diag.error(layer->loc) << "the config of a model must be a map from "
                                "fields to values, not "
                             << describe(*layer);
      return std::nullopt;
    }
    resolver.apply(*layer);
  }
  resolver.checkRanges();
  resolver.derive();
  return resolver.failed ? std::nullopt
                         : std::optional(std::move(resolver.config));
}
