//===- ModuleTree.cpp - Reading the modules of a model spec ---------------===//

#include "SpecReader.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

/// The mesh axes that may cut a weight. Data-parallel storage is no matter of
/// the model.
static const std::vector<std::string> weightAxes = {"tp"};

static const std::vector<std::string> initWords = {
    "embedding", "linear", "bias", "log_uniform", "ones", "zeros"};

/// The keys that every module may have.
static const StringRef commonKeys[] = {"kind", "sharding", "init"};

const ComponentInfo *SpecReader::readKind(const Node &node,
                                          ComponentRole expected, bool atTop) {
  std::vector<StringRef> kinds;
  for (const ComponentInfo *info : allComponents()) {
    bool fits =
        info->role == expected || (atTop && info->role == ComponentRole::Stack);
    if (fits) {
      kinds.push_back(info->kind);
    }
  }
  int index = readWord(node, "kind", kinds, diag);
  failed |= index < 0;
  return index < 0 ? nullptr : findComponent(kinds[size_t(index)]);
}

void SpecReader::readOption(const Node &node, const OptionInfo &info,
                            ModuleSpec &module) {
  OptionBinding binding{&info, {}, {}, node.loc};
  if (fieldReference(node)) {
    binding.field = readReference(node, info.name, info.kind);
    failed |= binding.field.empty();
  } else {
    ValueRange range{info.integers, info.floats, info.words};
    failed |= !readValue(node, info.kind, info.name, diag, range);
    binding.literal = node;
  }
  module.options.push_back(std::move(binding));
}

void SpecReader::readOptions(MapReader &map, ModuleSpec &module) {
  for (const OptionInfo &info : module.info->options) {
    const Node *node =
        info.otherwise ? map.optional(info.name) : map.required(info.name);
    if (node) {
      readOption(*node, info, module);
    } else if (info.otherwise) {
      auto value = parseDocument(*info.otherwise, module.loc, diag);
      module.options.push_back({&info, {}, value.value_or(Node()), module.loc});
    }
  }
}

//===----------------------------------------------------------------------===//
// Sharding and initialization of parameters
//===----------------------------------------------------------------------===//

const ParamInfo *SpecReader::findParam(const MapEntry &entry,
                                       const ModuleSpec &module) {
  if (const ParamInfo *param = module.info->findParam(entry.key)) {
    return param;
  }
  std::vector<StringRef> names;
  for (const ParamInfo &param : module.info->params) {
    names.push_back(param.name);
  }
  auto error = diag.error(entry.keyLoc);
  error << module.info->kind << " has no parameter "
        << quoteForMessage(entry.key);
  suggest(error, entry.key, names, "its parameters");
  fail(std::move(error));
  return nullptr;
}

/// sharding ::= param ":" ("replicated" | "{" (dim ":" axis)* "}")
void SpecReader::readSharding(const Node &node, ModuleSpec &module) {
  MapReader params(node, "'sharding'", diag);
  for (const MapEntry &entry : node.entries) {
    params.optional(entry.key);
    const ParamInfo *param = findParam(entry, module);
    if (!param) {
      continue;
    }
    ParamSharding sharding{entry.key, {}, entry.keyLoc};
    const Node &value = entry.value;
    if (!value.isMap() && (!value.isScalar() || value.text != "replicated")) {
      fail(diag.error(value.loc)
           << "the sharding of '" << entry.key
           << "' must be 'replicated' or a map from dims to axes, as in "
              "{0: tp}, not "
           << describe(value));
      continue;
    }
    for (const MapEntry &cut : value.entries) {
      Node dimNode = Node::makeScalar(cut.key, cut.keyLoc);
      auto dim = readInt(dimNode, "dim", diag,
                         {.min = 0, .max = int64_t(param->rank) - 1});
      auto axis = readValue(cut.value, FieldKind::Word, "axis", diag,
                            {.words = weightAxes});
      if (!dim || !axis) {
        failed = true;
        continue;
      }
      bool isTaken = llvm::any_of(sharding.cuts, [&](const auto &other) {
        return other.axis == cut.value.text;
      });
      if (isTaken) {
        fail(diag.error(cut.value.loc)
             << "axis '" << cut.value.text << "' cuts another dim of '"
             << entry.key << "' already");
      }
      sharding.cuts.push_back({unsigned(*dim), cut.value.text});
    }
    module.sharding.push_back(std::move(sharding));
  }
  failed |= !params.finish();
}

void SpecReader::readInit(const Node &node, ModuleSpec &module) {
  MapReader params(node, "'init'", diag);
  for (const MapEntry &entry : node.entries) {
    params.optional(entry.key);
    auto word = readValue(entry.value, FieldKind::Word, entry.key, diag,
                          {.words = initWords});
    failed |= !word;
    if (findParam(entry, module) && word) {
      module.init.push_back({entry.key, entry.value.text, entry.keyLoc});
    }
  }
  failed |= !params.finish();
}

//===----------------------------------------------------------------------===//
// Layers and stacks
//===----------------------------------------------------------------------===//

/// residuals ::= "[" ("{" "norm:" child "," "body:" child "}")+ "]"
void SpecReader::readResiduals(const Node &node, ModuleSpec &module) {
  if (!node.isSequence() || node.items.empty()) {
    fail(diag.error(node.loc) << "'residuals' must be a list of {norm: ..., "
                                 "body: ...}, not "
                              << describe(node));
    return;
  }
  std::vector<StringRef> names;
  for (const ModuleSpec &child : module.children) {
    names.push_back(child.name);
  }
  std::vector<unsigned> uses(names.size());
  for (const Node &item : node.items) {
    MapReader map(item, "a residual", diag);
    const Node *norm = map.required("norm");
    const Node *body = map.required("body");
    if (!map.finish() || !norm || !body) {
      failed = true;
      continue;
    }
    int normIndex = readWord(*norm, "norm", names, diag);
    int bodyIndex = readWord(*body, "body", names, diag);
    if (normIndex < 0 || bodyIndex < 0) {
      failed = true;
      continue;
    }
    ++uses[size_t(normIndex)];
    ++uses[size_t(bodyIndex)];
    module.residuals.push_back(
        {unsigned(normIndex), unsigned(bodyIndex), item.loc});
  }
  bool allRead = module.residuals.size() == node.items.size();
  for (size_t i = 0; i < names.size(); ++i) {
    if (allRead && uses[i] != 1) {
      fail(diag.error(module.children[i].loc)
           << "module '" << names[i] << "' must stand in 'residuals' once, not "
           << uses[i] << " times");
    }
  }
}

void SpecReader::readLayer(MapReader &map, ModuleSpec &module) {
  const Node *type = map.optional("type");
  const Node *modules = map.required("modules");
  const Node *residuals = map.required("residuals");
  if (type) {
    auto word = readString(*type, "type", diag);
    failed |= !word;
    module.layerType = word.value_or("");
  } else {
    module.layerType = module.name;
  }
  if (!modules || !residuals) {
    return;
  }
  MapReader children(*modules, "'modules'", diag);
  for (const MapEntry &entry : modules->entries) {
    children.optional(entry.key);
    readModule(entry, ComponentRole::Leaf, /*atTop=*/false,
               module.children.emplace_back());
  }
  failed |= !children.finish();
  if (!failed) {
    readResiduals(*residuals, module);
  }
}

void SpecReader::readTemplates(const Node *node, ModuleSpec &module) {
  if (!node) {
    return;
  }
  MapReader templates(*node, "'templates'", diag);
  for (const MapEntry &entry : node->entries) {
    templates.optional(entry.key);
    ModuleSpec layer;
    readModule(entry, ComponentRole::Layer, /*atTop=*/false, layer);
    for (const ModuleSpec &other : module.children) {
      if (other.layerType == layer.layerType) {
        auto error = diag.error(layer.loc);
        error << "layers of type '" << layer.layerType
              << "' have a template already";
        error.note(other.loc, "which is '" + other.name + "'");
        fail(std::move(error));
      }
    }
    module.children.push_back(std::move(layer));
  }
  failed |= !templates.finish();
  if (node->entries.empty()) {
    fail(diag.error(node->loc) << "'templates' must have an entry");
  }
}

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

void SpecReader::readModule(const MapEntry &entry, ComponentRole expected,
                            bool atTop, ModuleSpec &module) {
  module.name = entry.key;
  module.loc = entry.keyLoc;
  checkName(entry.key, entry.keyLoc, "module");
  MapReader map(entry.value, "module '" + entry.key + "'", diag);
  const Node *kind = map.required("kind");
  module.info = kind ? readKind(*kind, expected, atTop) : nullptr;
  if (!module.info) {
    failed = true;
    return; // without a kind there is no telling which keys are right
  }
  readOptions(map, module);
  switch (module.info->role) {
  case ComponentRole::Leaf:
    for (StringRef key : commonKeys) {
      const Node *node = map.optional(key);
      if (node && key == "sharding") {
        readSharding(*node, module);
      } else if (node && key == "init") {
        readInit(*node, module);
      }
    }
    break;
  case ComponentRole::Layer:
    readLayer(map, module);
    break;
  case ComponentRole::Stack:
    readTemplates(map.required("templates"), module);
    break;
  }
  failed |= !map.finish();
}

/// The first module takes tokens, the last gives logits, and those between take
/// and give channels.
void SpecReader::readModules(const Node &node) {
  MapReader modules(node, "section 'modules'", diag);
  for (const MapEntry &entry : node.entries) {
    modules.optional(entry.key);
    readModule(entry, ComponentRole::Leaf, /*atTop=*/true,
               spec.modules.emplace_back());
  }
  failed |= !modules.finish();
  if (failed) {
    return;
  }
  // A template becomes a block of the module, and blocks are found by name.
  llvm::StringMap<Location> templates;
  for (const ModuleSpec &module : spec.modules) {
    for (const ModuleSpec &layer : module.children) {
      auto [it, isNew] = templates.try_emplace(layer.name, layer.loc);
      if (!isNew) {
        auto error = diag.error(layer.loc);
        error << "another stack has a template '" << layer.name
              << "'; names of templates must differ";
        error.note(it->second, "it is here");
        fail(std::move(error));
      }
    }
  }
  if (spec.modules.size() < 2) {
    fail(diag.error(node.loc)
         << "'modules' must have an Embedding first and a Linear last");
    return;
  }
  const ModuleSpec &first = spec.modules.front(), &last = spec.modules.back();
  if (first.info != &embeddingInfo()) {
    fail(diag.error(first.loc) << "the first module takes tokens and must be "
                                  "of kind Embedding, not "
                               << first.info->kind);
  }
  if (last.info != &linearInfo()) {
    fail(diag.error(last.loc) << "the last module gives logits and must be of "
                                 "kind Linear, not "
                              << last.info->kind);
  }
}
