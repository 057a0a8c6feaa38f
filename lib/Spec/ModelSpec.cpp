//===- ModelSpec.cpp - Reading the sections of a model spec ---------------===//

#include "hp/Spec/ModelSpec.h"
#include "SpecReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Looking up
//===----------------------------------------------------------------------===//

/// The element of `list` whose `name` is `name`; null if there is none.
template <typename T>
static const T *findNamed(const std::vector<T> &list, StringRef name) {
  auto it =
      llvm::find_if(list, [&](const T &item) { return item.name == name; });
  return it == list.end() ? nullptr : &*it;
}

const ModuleSpec *ModuleSpec::child(StringRef name) const {
  return findNamed(children, name);
}

const ConfigField *ModelSpec::findField(StringRef name) const {
  return findNamed(config, name);
}

const Flavor *ModelSpec::findFlavor(StringRef name) const {
  return findNamed(flavors, name);
}

const ParamSharding *ModelSpec::sharding(StringRef block,
                                         StringRef param) const {
  const std::vector<ModuleSpec> *level = &modules;
  if (!block.empty()) {
    level = nullptr;
    for (const ModuleSpec &module : modules) {
      if (const ModuleSpec *layer = module.child(block)) {
        level = &layer->children;
      }
    }
  }
  auto [owner, rest] = param.split('.');
  const ModuleSpec *module = level ? findNamed(*level, owner) : nullptr;
  if (!module) {
    return nullptr;
  }
  for (const ParamSharding &sharding : module->sharding) {
    if (sharding.param == rest) {
      return &sharding;
    }
  }
  return nullptr;
}

//===----------------------------------------------------------------------===//
// Names and references
//===----------------------------------------------------------------------===//

bool SpecReader::checkName(StringRef name, Location loc, StringRef what,
                           StringRef more) {
  bool ok =
      !name.empty() && name.size() <= 100 && llvm::all_of(name, [&](char c) {
        return llvm::isAlnum(c) || c == '_' || more.contains(c);
      });
  if (ok) {
    return true;
  }
  auto error = diag.error(loc);
  error << what << " " << quoteForMessage(name)
        << " must be made of letters, digits and '_'";
  for (char c : more) {
    error << ", '" << c << "'";
  }
  return fail(std::move(error));
}

std::optional<StringRef> SpecReader::fieldReference(const Node &node) {
  StringRef text = node.text;
  if (!node.isScalar() || node.quoted || !text.consume_front("$")) {
    return std::nullopt;
  }
  return text;
}

std::optional<FieldKind> SpecReader::kindOf(StringRef field) const {
  if (const ConfigField *declared = spec.findField(field)) {
    return declared->kind;
  }
  for (const IntervalRule &rule : spec.derived) {
    if (rule.field == field) {
      return FieldKind::WordList;
    }
  }
  return std::nullopt;
}

std::vector<StringRef> SpecReader::fieldNames() const {
  std::vector<StringRef> names;
  for (const ConfigField &field : spec.config) {
    names.push_back(field.name);
  }
  for (const IntervalRule &rule : spec.derived) {
    names.push_back(rule.field);
  }
  return names;
}

std::string SpecReader::readReference(const Node &node, StringRef what,
                                      FieldKind kind) {
  std::optional<StringRef> name = fieldReference(node);
  if (!name) {
    fail(diag.error(node.loc)
         << "'" << what << "' must name a field of 'config', as in $"
         << (spec.config.empty() ? "field" : spec.config[0].name) << ", not "
         << describe(node));
    return {};
  }
  std::optional<FieldKind> found = kindOf(*name);
  if (!found) {
    auto error = diag.error(node.loc);
    error << "'config' has no field " << quoteForMessage(*name);
    suggest(error, *name, fieldNames(), "its fields");
    fail(std::move(error));
    return {};
  }
  if (!isConvertible(*found, kind)) {
    fail(diag.error(node.loc)
         << "'" << what << "' must be " << hp::describe(kind) << ", but field '"
         << *name << "' is " << hp::describe(*found));
    return {};
  }
  usedFields.insert(*name);
  return name->str();
}

//===----------------------------------------------------------------------===//
// Config, derived fields, flavors
//===----------------------------------------------------------------------===//

void SpecReader::readConfig(const Node &node) {
  if (!node.isMap()) {
    fail(diag.error(node.loc) << "section 'config' must be a map from fields "
                                 "to defaults, not "
                              << describe(node));
    return;
  }
  for (const MapEntry &entry : node.entries) {
    if (!checkName(entry.key, entry.keyLoc, "field")) {
      continue;
    }
    auto kind = kindOfDefault(entry.value, entry.key, diag);
    if (!kind) {
      failed = true;
      continue;
    }
    failed |= !readValue(entry.value, *kind, entry.key, diag);
    spec.config.push_back({entry.key, *kind, entry.value, entry.value.loc});
  }
}

void SpecReader::readDerived(const Node &node) {
  MapReader derived(node, "section 'derived'", diag);
  for (const MapEntry &entry : node.entries) {
    derived.optional(entry.key);
    if (!checkName(entry.key, entry.keyLoc, "field")) {
      continue;
    }
    if (kindOf(entry.key)) {
      fail(diag.error(entry.keyLoc)
           << "'" << entry.key
           << "' is derived and must not have a default in 'config'");
      continue;
    }
    IntervalRule rule;
    rule.field = entry.key;
    rule.loc = entry.keyLoc;
    MapReader map(entry.value, "derived field '" + entry.key + "'", diag);
    const Node *length = map.required("length");
    const Node *every = map.required("every");
    const Node *last = map.required("last");
    const Node *others = map.required("others");
    if (!map.finish() || !length || !every || !last || !others) {
      failed = true;
      continue;
    }
    rule.length = readReference(*length, "length", FieldKind::Integer);
    rule.every = readReference(*every, "every", FieldKind::Integer);
    auto lastWord = readString(*last, "last", diag);
    auto otherWord = readString(*others, "others", diag);
    if (!lastWord || !otherWord) {
      failed = true;
      continue;
    }
    rule.last = *lastWord;
    rule.others = *otherWord;
    spec.derived.push_back(std::move(rule));
  }
  failed |= !derived.finish();
}

void SpecReader::readFlavors(const Node &node) {
  MapReader flavors(node, "section 'flavors'", diag);
  for (const MapEntry &entry : node.entries) {
    flavors.optional(entry.key);
    if (!checkName(entry.key, entry.keyLoc, "flavor", ".-")) {
      continue;
    }
    if (!entry.value.isMap() && !entry.value.isNull()) {
      fail(diag.error(entry.value.loc)
           << "flavor '" << entry.key << "' must be a map from fields to "
           << "values, not " << describe(entry.value));
      continue;
    }
    spec.flavors.push_back({entry.key, entry.keyLoc, entry.value});
  }
  failed |= !flavors.finish();
}

//===----------------------------------------------------------------------===//
// Sharding of values, ties
//===----------------------------------------------------------------------===//

std::vector<ValueSharding> SpecReader::readCuts(const Node &node,
                                                StringRef what) {
  static const std::vector<std::string> dims = {"B", "S", "V"};
  static const std::vector<std::string> axes = {"dp", "dp_replicate",
                                                "dp_shard", "cp", "tp"};
  std::vector<ValueSharding> cuts;
  MapReader map(node, ("'" + what + "'").str(), diag);
  for (const std::string &dim : dims) {
    const Node *value = map.optional(dim);
    if (!value) {
      continue;
    }
    ValueSharding cut{dim, {}, value->loc};
    llvm::ArrayRef<Node> items = *value;
    if (value->isSequence()) {
      items = value->items;
    }
    for (const Node &item : items) {
      auto axis = readValue(item, FieldKind::Word, dim, diag, {.words = axes});
      failed |= !axis;
      if (axis && llvm::is_contained(cut.axes, item.text)) {
        fail(diag.error(item.loc)
             << "axis '" << item.text << "' cuts '" << dim << "' already");
      }
      cut.axes.push_back(item.text);
    }
    cuts.push_back(std::move(cut));
  }
  failed |= !map.finish();
  return cuts;
}

void SpecReader::readValueSharding(const Node &node) {
  MapReader map(node, "section 'sharding'", diag);
  if (const Node *batch = map.optional("batch")) {
    spec.batch = readCuts(*batch, "batch");
  }
  if (const Node *sequence = map.optional("sequence_parallel")) {
    spec.sequenceParallel = readCuts(*sequence, "sequence_parallel");
  }
  if (const Node *loss = map.optional("loss_parallel")) {
    spec.lossParallel = readCuts(*loss, "loss_parallel");
  }
  failed |= !map.finish();
}

void SpecReader::readTies(const Node &node) {
  MapReader ties(node, "section 'tied'", diag);
  // Where a parameter outside the stacks stands: the position of its module.
  auto position = [&](StringRef name, Location loc) -> std::optional<size_t> {
    auto [owner, rest] = name.split('.');
    for (size_t i = 0; i < spec.modules.size(); ++i) {
      if (spec.modules[i].name == owner &&
          spec.modules[i].info->findParam(rest)) {
        return i;
      }
    }
    fail(diag.error(loc) << quoteForMessage(name)
                         << " is no parameter of a module outside the stacks");
    return std::nullopt;
  };
  for (const MapEntry &entry : node.entries) {
    ties.optional(entry.key);
    MapReader map(entry.value, "tie '" + entry.key + "'", diag);
    const Node *to = map.required("to");
    const Node *when = map.optional("when");
    if (!map.finish() || !to) {
      failed = true;
      continue;
    }
    TieSpec tie{entry.key, to->text, {}, entry.keyLoc};
    auto alias = position(tie.alias, entry.keyLoc);
    auto target = position(tie.target, to->loc);
    if (alias && target && *target >= *alias) {
      fail(diag.error(to->loc)
           << "'" << tie.target << "' must belong to a module before '"
           << spec.modules[*alias].name << "'");
    }
    if (when) {
      tie.when = readReference(*when, "when", FieldKind::Boolean);
    }
    spec.ties.push_back(std::move(tie));
  }
  failed |= !ties.finish();
}

//===----------------------------------------------------------------------===//
// Checkpoint keys
//===----------------------------------------------------------------------===//

void SpecReader::readSpelling(const MapEntry &entry) {
  KeySpelling spelling{entry.key, {}};
  MapReader map(entry.value, "spelling '" + entry.key + "'", diag);
  for (const MapEntry &rule : entry.value.entries) {
    map.optional(rule.key);
    auto key = readString(rule.value, rule.key, diag);
    if (!key) {
      failed = true;
      continue;
    }
    size_t left = StringRef(rule.key).count('*');
    size_t right = StringRef(*key).count('*');
    if (left != right || left > 1) {
      fail(diag.error(rule.keyLoc)
           << "a parameter and its key must have one '*' each, or none");
      continue;
    }
    spelling.rules.push_back({rule.key, *key});
  }
  failed |= !map.finish();
  spec.checkpoint.spellings.push_back(std::move(spelling));
}

void SpecReader::readCheckpoint(const Node &node) {
  MapReader map(node, "section 'checkpoint'", diag);
  if (const Node *spellings = map.required("spellings")) {
    MapReader list(*spellings, "'spellings'", diag);
    for (const MapEntry &entry : spellings->entries) {
      list.optional(entry.key);
      if (checkName(entry.key, entry.keyLoc, "spelling")) {
        readSpelling(entry);
      }
    }
    failed |= !list.finish();
    if (spellings->entries.empty()) {
      fail(diag.error(spellings->loc) << "'spellings' must have an entry");
    }
  }
  auto patterns = [&](StringRef key, std::vector<std::string> &list) {
    if (const Node *value = map.optional(key)) {
      auto read = readStringList(*value, key, diag);
      failed |= !read;
      list = read.value_or(std::vector<std::string>());
    }
  };
  patterns("skipped", spec.checkpoint.skipped);
  patterns("float32", spec.checkpoint.float32);
  failed |= !map.finish();
}

//===----------------------------------------------------------------------===//
// The document
//===----------------------------------------------------------------------===//

/// A field that nothing reads would be set in vain.
void SpecReader::checkFieldsAreUsed() {
  for (const ConfigField &field : spec.config) {
    FieldKind expected = field.kind;
    if (field.name == "max_position_embeddings") {
      expected = FieldKind::Integer;
    } else if (field.name == "initializer_range") {
      expected = FieldKind::Float;
    } else if (!usedFields.contains(field.name)) {
      fail(diag.error(field.loc)
           << "nothing uses field '" << field.name << "'");
    }
    if (field.kind != expected) {
      fail(diag.error(field.loc)
           << "'" << field.name << "' must be " << hp::describe(expected)
           << ", not " << hp::describe(field.kind));
    }
  }
}

std::optional<ModelSpec> SpecReader::read(const Node &root) {
  if (!root.isMap()) {
    diag.error(root.loc) << "a model spec must be a map with 'model', 'config' "
                            "and 'modules', not "
                         << describe(root);
    return std::nullopt;
  }
  spec.loc = root.loc;
  MapReader map(root, "the model spec", diag);
  const Node *name = map.required("model");
  const Node *config = map.required("config");
  const Node *derived = map.optional("derived");
  const Node *flavors = map.optional("flavors");
  const Node *sharding = map.optional("sharding");
  const Node *modules = map.required("modules");
  const Node *ties = map.optional("tied");
  const Node *checkpoint = map.required("checkpoint");
  if (!map.finish() || !name || !config || !modules || !checkpoint) {
    return std::nullopt;
  }
  auto word = readString(*name, "model", diag);
  if (word && checkName(*word, name->loc, "model", ".-")) {
    spec.name = *word;
  }
  failed |= !word;
  readConfig(*config);
  if (derived) {
    readDerived(*derived);
  }
  if (flavors) {
    readFlavors(*flavors);
  }
  if (sharding) {
    readValueSharding(*sharding);
  }
  readModules(*modules);
  if (!failed && ties) {
    readTies(*ties);
  }
  readCheckpoint(*checkpoint);
  if (!failed) {
    checkFieldsAreUsed();
  }
  return failed ? std::nullopt : std::optional(std::move(spec));
}

std::optional<ModelSpec> hp::readModelSpec(StringRef path,
                                           DiagnosticEngine &diag) {
  std::optional<Node> root = readDocument(path, diag);
  std::optional<ModelSpec> spec;
  if (root && (spec = SpecReader(diag).read(*root))) {
    spec->path = path.str();
  }
  return spec;
}

std::optional<ModelSpec> hp::parseModelSpec(StringRef text, StringRef name,
                                            DiagnosticEngine &diag) {
  diag.addBuffer(name, text);
  std::optional<Node> root =
      parseDocument(text, diag.location(name, 1, 1), diag);
  std::optional<ModelSpec> spec;
  if (root && (spec = SpecReader(diag).read(*root))) {
    spec->path = name.str();
  }
  return spec;
}
