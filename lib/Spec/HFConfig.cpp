//===- HFConfig.cpp - Model config from a Hugging Face config.json --------===//

#include "hp/Spec/HFConfig.h"
#include "hp/Spec/TypedReading.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// What a file may hold
//===----------------------------------------------------------------------===//

namespace {

enum class FieldKind { Int, Float, Bool, IntList, LayerTypes };

struct FieldInfo {
  StringRef name;
  FieldKind kind;
  bool required;
  bool isRope = false; ///< Stands among the rope parameters too.
};

} // namespace

/// The fields that are handed on, in the order of the result.
static const FieldInfo fields[] = {
    {"vocab_size", FieldKind::Int, true},
    {"hidden_size", FieldKind::Int, true},
    {"intermediate_size", FieldKind::Int, true},
    {"num_hidden_layers", FieldKind::Int, true},
    {"num_attention_heads", FieldKind::Int, true},
    {"num_key_value_heads", FieldKind::Int, true},
    {"head_dim", FieldKind::Int, true},
    {"rms_norm_eps", FieldKind::Float, true},
    {"attention_bias", FieldKind::Bool, false},
    {"attn_output_gate", FieldKind::Bool, false},
    {"tie_word_embeddings", FieldKind::Bool, true},
    {"rope_theta", FieldKind::Float, true, true},
    {"partial_rotary_factor", FieldKind::Float, false, true},
    {"mrope_section", FieldKind::IntList, false, true},
    {"max_position_embeddings", FieldKind::Int, false},
    {"initializer_range", FieldKind::Float, false},
    {"full_attention_interval", FieldKind::Int, false},
    {"layer_types", FieldKind::LayerTypes, false},
    {"linear_num_key_heads", FieldKind::Int, true},
    {"linear_num_value_heads", FieldKind::Int, true},
    {"linear_key_head_dim", FieldKind::Int, true},
    {"linear_value_head_dim", FieldKind::Int, true},
    {"linear_conv_kernel_dim", FieldKind::Int, true},
};

/// Keys that are looked at but not handed on.
static const StringRef checkedKeys[] = {
    "model_type",        "text_config",       "rope_parameters",
    "rope_scaling",      "hidden_act",        "attention_dropout",
    "mlp_only_layers",   "mrope_interleaved", "quantization_config",
    "use_sliding_window"};

/// Keys that say nothing about how the text model trains.
static const StringRef ignoredKeys[] = {"_name_or_path",
                                        "architectures",
                                        "auto_map",
                                        "bos_token_id",
                                        "chunk_size_feed_forward",
                                        "dtype",
                                        "eos_token_id",
                                        "id2label",
                                        "image_token_id",
                                        "is_encoder_decoder",
                                        "label2id",
                                        "language_model_only",
                                        "mamba_ssm_dtype",
                                        "max_window_layers",
                                        "mtp_num_hidden_layers",
                                        "mtp_use_dedicated_embeddings",
                                        "output_attentions",
                                        "output_hidden_states",
                                        "pad_token_id",
                                        "problem_type",
                                        "return_dict",
                                        "sliding_window",
                                        "torch_dtype",
                                        "transformers_version",
                                        "use_cache",
                                        "video_token_id",
                                        "vision_config",
                                        "vision_end_token_id",
                                        "vision_start_token_id"};

/// Keys of a mixture of experts.
static const StringRef expertKeys[] = {
    "num_experts", "num_local_experts", "num_experts_per_tok",
    "moe_intermediate_size", "shared_expert_intermediate_size"};

static const StringRef layerTypeNames[] = {"linear_attention",
                                           "full_attention"};

//===----------------------------------------------------------------------===//
// Extraction
//===----------------------------------------------------------------------===//

namespace {

class HFConfigReader {
public:
  HFConfigReader(const Node &root, DiagnosticEngine &diag)
      : root(root), diag(diag) {}

  std::optional<Node> read();

private:
  bool findPlaces();
  bool checkModelType(const Node &map, bool isText);
  void warnOfUnknownKeys(const Node &map);
  bool checkRope(const Node &rope);
  bool checkRefusals(const Node &map);
  bool checkLayers(Node &result);
  bool readField(const FieldInfo &info, Node &result);
  /// The value in a form that is equal exactly if the meaning is.
  std::optional<std::string> canonical(const FieldInfo &info,
                                       const Node &value);

  const Node &root;
  DiagnosticEngine &diag;
  llvm::SmallVector<const Node *> texts; ///< Maps that hold fields.
  llvm::SmallVector<const Node *> ropes; ///< Maps of rope parameters.
};

} // namespace

/// The value of `key`; null if it is absent or JSON's null.
static const Node *findGiven(const Node &map, StringRef key) {
  const Node *value = map.find(key);
  return value && !value->isNull() ? value : nullptr;
}

static const MapEntry *findEntry(const Node &map, StringRef key) {
  for (const MapEntry &entry : map.entries) {
    if (entry.key == key && !entry.value.isNull()) {
      return &entry;
    }
  }
  return nullptr;
}

/// Finds the maps that hold fields: `text_config` first, then the top.
bool HFConfigReader::findPlaces() {
  if (!root.isMap()) {
    return diag.error(root.loc)
           << "a Hugging Face config must be a map, not " << describe(root);
  }
  bool ok = true;
  auto addMap = [&](const Node &parent, StringRef key,
                    llvm::SmallVector<const Node *> &list) {
    const Node *value = findGiven(parent, key);
    if (value && !value->isMap()) {
      ok = diag.error(value->loc)
           << "'" << key << "' must be a map, not " << describe(*value);
    } else if (value) {
      list.push_back(value);
    }
  };
  addMap(root, "text_config", texts);
  texts.push_back(&root);
  for (const Node *text : texts) {
    addMap(*text, "rope_parameters", ropes);
    addMap(*text, "rope_scaling", ropes);
  }
  return ok;
}

bool HFConfigReader::checkModelType(const Node &map, bool isText) {
  const Node *type = findGiven(map, "model_type");
  if (!type) {
    return isText || diag.error(map.loc)
                         << "the Hugging Face config lacks 'model_type'; known "
                         << "are 'qwen3_5' and 'qwen3_5_text'";
  }
  if (type->text != "qwen3_5" && type->text != "qwen3_5_text") {
    return diag.error(type->loc)
           << "'model_type' is " << describe(*type)
           << ", which is not known; known are 'qwen3_5' and 'qwen3_5_text'";
  }
  return true;
}

void HFConfigReader::warnOfUnknownKeys(const Node &map) {
  for (const MapEntry &entry : map.entries) {
    bool isKnown =
        llvm::any_of(fields,
                     [&](const FieldInfo &f) { return f.name == entry.key; }) ||
        llvm::is_contained(checkedKeys, entry.key) ||
        llvm::is_contained(ignoredKeys, entry.key) ||
        llvm::is_contained(expertKeys, entry.key);
    if (isKnown) {
      continue;
    }
    llvm::SmallVector<StringRef> names;
    for (const FieldInfo &info : fields) {
      names.push_back(info.name);
    }
    auto warning = diag.warning(entry.keyLoc);
    warning << "unknown key " << quoteForMessage(entry.key)
            << " in the Hugging Face config is ignored";
    StringRef meant = didYouMean(entry.key, names);
    if (!meant.empty()) {
      warning.note({}, "did you mean '" + meant + "'?");
    }
  }
}

/// Refuses rope parameters that the model does not compute.
bool HFConfigReader::checkRope(const Node &rope) {
  bool ok = true;
  for (const MapEntry &entry : rope.entries) {
    const Node &value = entry.value;
    if (value.isNull()) {
      continue;
    }
    if (entry.key == "rope_type" || entry.key == "type") {
      if (value.text != "default" && value.text != "mrope") {
        ok = diag.error(value.loc) << "rope type " << describe(value)
                                   << " is not supported; only 'default' is";
      }
    } else if (llvm::none_of(fields, [&](const FieldInfo &f) {
                 return f.isRope && f.name == entry.key;
               })) {
      if (entry.key != "mrope_interleaved") {
        ok = diag.error(entry.keyLoc)
             << "rope parameter " << quoteForMessage(entry.key)
             << " is not supported";
      }
    }
  }
  return ok;
}

/// Refuses what the dense model would compute otherwise.
bool HFConfigReader::checkRefusals(const Node &map) {
  bool ok = true;
  for (StringRef key : expertKeys) {
    if (const MapEntry *entry = findEntry(map, key)) {
      ok = diag.error(entry->keyLoc)
           << "'" << key << "' belongs to a mixture of experts; only the dense "
           << "model is supported";
    }
  }
  if (const Node *act = findGiven(map, "hidden_act")) {
    if (act->text != "silu") {
      ok = diag.error(act->loc) << "'hidden_act' is " << describe(*act)
                                << "; only 'silu' is supported";
    }
  }
  if (const Node *dropout = findGiven(map, "attention_dropout")) {
    std::optional<double> p = readFloat(*dropout, "attention_dropout", diag);
    if (p && *p != 0.0) {
      diag.error(dropout->loc) << "'attention_dropout' is " << dropout->text
                               << "; only 0 is supported";
    }
    ok &= p && *p == 0.0;
  }
  if (const Node *window = findGiven(map, "use_sliding_window")) {
    std::optional<bool> on = readBool(*window, "use_sliding_window", diag);
    if (on && *on) {
      diag.error(window->loc) << "a sliding window is not supported";
    }
    ok &= on && !*on;
  }
  if (const Node *layers = findGiven(map, "mlp_only_layers")) {
    if (!layers->isSequence() || !layers->items.empty()) {
      ok = diag.error(layers->loc)
           << "'mlp_only_layers' must be an empty list in a dense model";
    }
  }
  if (const MapEntry *entry = findEntry(map, "quantization_config")) {
    ok = diag.error(entry->keyLoc) << "quantized weights are not supported";
  }
  return ok;
}

std::optional<std::string> HFConfigReader::canonical(const FieldInfo &info,
                                                     const Node &value) {
  const IntRange positive{1, std::numeric_limits<int32_t>::max()};
  std::string text;
  switch (info.kind) {
  case FieldKind::Int: {
    std::optional<int64_t> number = readInt(value, info.name, diag, positive);
    return number ? std::optional(std::to_string(*number)) : std::nullopt;
  }
  case FieldKind::Float: {
    FloatRange range{0.0, FloatRange().max, /*minOpen=*/true};
    if (info.name == "partial_rotary_factor") {
      range.max = 1.0;
    }
    std::optional<double> number = readFloat(value, info.name, diag, range);
    return number ? std::optional(formatFloat(*number)) : std::nullopt;
  }
  case FieldKind::Bool: {
    std::optional<bool> truth = readBool(value, info.name, diag);
    return truth ? std::optional<std::string>(*truth ? "true" : "false")
                 : std::nullopt;
  }
  case FieldKind::IntList: {
    auto list = readIntList(value, info.name, diag, positive);
    if (!list) {
      return std::nullopt;
    }
    for (int64_t number : *list) {
      text += (text.empty() ? "[" : ", ") + std::to_string(number);
    }
    return text.empty() ? "[]" : text + "]";
  }
  case FieldKind::LayerTypes: {
    auto list =
        readList<int>(value, info.name, diag,
                      [](const Node &item, StringRef what,
                         DiagnosticEngine &diag) -> std::optional<int> {
                        int index = readWord(item, what, layerTypeNames, diag);
                        return index >= 0 ? std::optional(index) : std::nullopt;
                      });
    if (!list) {
      return std::nullopt;
    }
    for (int index : *list) {
      text += layerTypeNames[index].front();
    }
    return text;
  }
  }
  return std::nullopt;
}

/// Reads one field from all its places into `result`.
bool HFConfigReader::readField(const FieldInfo &info, Node &result) {
  llvm::SmallVector<const MapEntry *> found;
  for (const Node *rope : ropes) {
    const MapEntry *entry = info.isRope ? findEntry(*rope, info.name) : nullptr;
    if (entry) {
      found.push_back(entry);
    }
  }
  for (const Node *text : texts) {
    if (const MapEntry *entry = findEntry(*text, info.name)) {
      found.push_back(entry);
    }
  }
  if (found.empty() && info.required) {
    return diag.error(texts.front()->loc)
           << "the Hugging Face config lacks '" << info.name
           << "', which has no default";
  }
  if (found.empty()) {
    return true;
  }
  std::optional<std::string> first;
  bool ok = true;
  for (const MapEntry *entry : found) {
    std::optional<std::string> value = canonical(info, entry->value);
    if (!value) {
      ok = false;
    } else if (!first) {
      first = value;
    } else if (*value != *first) {
      std::string here, there;
      llvm::raw_string_ostream hereOS(here), thereOS(there);
      printFlow(entry->value, hereOS);
      printFlow(found.front()->value, thereOS);
      ok = diag.error(entry->value.loc)
               .note(found.front()->value.loc, "the other one is here")
           << "'" << info.name << "' is " << here << " here and " << there
           << " elsewhere in the same file";
    }
  }
  result.entries.push_back(*found.front());
  return ok;
}

/// Checks the list of layers against their number and the interval.
bool HFConfigReader::checkLayers(Node &result) {
  const Node *types = result.find("layer_types");
  if (!types) {
    return true;
  }
  const Node *count = result.find("num_hidden_layers");
  if (count && std::to_string(types->items.size()) != count->text) {
    return diag.error(types->loc)
               .note(count->loc, "'num_hidden_layers' is given here")
           << "'layer_types' lists " << types->items.size()
           << " layers, but 'num_hidden_layers' is " << count->text;
  }
  const Node *interval = result.find("full_attention_interval");
  uint64_t every;
  if (!interval || StringRef(interval->text).getAsInteger(10, every) ||
      every == 0) {
    return true;
  }
  for (auto [index, item] : llvm::enumerate(types->items)) {
    StringRef expected = layerTypeNames[(index + 1) % every == 0];
    if (item.text != expected) {
      diag.warning(item.loc).note(interval->loc,
                                  "'full_attention_interval' is given here")
          << "layer " << index << " is '" << item.text << "', but "
          << "'full_attention_interval' " << every << " makes it '" << expected
          << "'; the list of 'layer_types' is taken";
      llvm::erase_if(result.entries, [](const MapEntry &entry) {
        return entry.key == "full_attention_interval";
      });
      return true;
    }
  }
  return true;
}

std::optional<Node> HFConfigReader::read() {
  if (!findPlaces()) {
    return std::nullopt;
  }
  // A file for another model would only lead to a list of follow-up errors.
  for (const Node *text : texts) {
    if (!checkModelType(*text, text != &root)) {
      return std::nullopt;
    }
  }
  bool ok = true;
  for (const Node *rope : ropes) {
    ok &= checkRope(*rope);
  }
  for (const Node *map : llvm::concat<const Node *>(texts, ropes)) {
    if (const Node *mode = findGiven(*map, "mrope_interleaved")) {
      std::optional<bool> on = readBool(*mode, "mrope_interleaved", diag);
      if (on && !*on) {
        diag.error(mode->loc) << "only interleaved sections are supported: "
                              << "'mrope_interleaved' must be true";
      }
      ok &= on && *on;
    }
  }
  for (const Node *text : texts) {
    warnOfUnknownKeys(*text);
    ok &= checkRefusals(*text);
  }
  Node result;
  result.kind = Node::Kind::Map;
  result.loc = texts.front()->loc;
  for (const FieldInfo &info : fields) {
    ok &= readField(info, result);
  }
  if (ok && !result.find("partial_rotary_factor")) {
    Location loc = result.find("rope_theta")->loc;
    diag.warning(loc) << "the Hugging Face config lacks "
                      << "'partial_rotary_factor'; its format means 0.25 then";
    result.entries.push_back(
        {"partial_rotary_factor", loc, Node::makeScalar("0.25", loc)});
  }
  if (!ok || !checkLayers(result)) {
    return std::nullopt;
  }
  return result;
}

std::optional<Node> hp::extractHFConfig(const Node &root,
                                        DiagnosticEngine &diag) {
  return HFConfigReader(root, diag).read();
}

std::optional<Node> hp::readHFConfig(StringRef path, DiagnosticEngine &diag) {
  std::optional<Node> root = readDocument(path, diag);
  return root ? extractHFConfig(*root, diag) : std::nullopt;
}
