//===- Manifest.cpp - manifest.json ---------------------------------------===//

#include "Manifest.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace hp;
using llvm::StringRef;
namespace json = llvm::json;

/// Raised when the meaning of a field changes.
static constexpr int64_t manifestVersion = 1;

std::string hp::manifestText(const Manifest &manifest) {
  std::string text;
  llvm::raw_string_ostream os(text);
  json::OStream out(os, /*IndentSize=*/2);
  out.object([&] {
    out.attribute("format", "hp-checkpoint");
    out.attribute("version", manifestVersion);
    out.attribute("model", manifest.model);
    out.attribute("flavor", manifest.flavor);
    out.attribute("config", manifest.config);
    out.attribute("step", manifest.state.step);
    out.attribute("updates", manifest.updates);
    out.attribute("samples_seen", manifest.state.samplesSeen);
    out.attribute("tokens_seen", manifest.state.tokensSeen);
    out.attribute("global_batch_size", manifest.state.globalBatchSize);
    out.attribute("seq_len", manifest.state.seqLen);
    out.attribute("data_fingerprint",
                  llvm::utohexstr(manifest.state.dataFingerprint));
    out.attribute("has_optimizer", manifest.hasOptimizer);
    out.attribute("keys", manifest.format.spelling);
    // How the weights came, so that an export can be what was imported.
    out.attributeObject("source_dtypes", [&] {
      for (const auto &[name, dtype] : manifest.format.dtypes) {
        out.attribute(name, fileDTypeName(dtype));
      }
    });
    out.attributeObject("source_tied", [&] {
      for (const auto &[key, param] : manifest.format.tied) {
        out.attribute(key, param);
      }
    });
  });
  os << '\n';
  return text;
}

namespace {
/// Reads fields, remembering the first that is missing or of another kind.
class FieldReader {
public:
  explicit FieldReader(const json::Object &object) : object(object) {}

  void read(StringRef key, int64_t &out) {
    std::optional<int64_t> value = object.getInteger(key);
    if (value && *value >= 0) {
      out = *value;
    } else {
      complain(key, "a number that is not negative");
    }
  }
  void read(StringRef key, std::string &out) {
    if (std::optional<StringRef> value = object.getString(key)) {
      out = value->str();
    } else {
      complain(key, "a string");
    }
  }
  void read(StringRef key, bool &out) {
    if (std::optional<bool> value = object.getBoolean(key)) {
      out = *value;
    } else {
      complain(key, "true or false");
    }
  }
  /// String fields of the object at `key`, by ascending name.
  std::vector<std::pair<std::string, std::string>> strings(StringRef key) {
    std::vector<std::pair<std::string, std::string>> list;
    const json::Object *inner = object.getObject(key);
    if (!inner) {
      complain(key, "an object");
      return list;
    }
    for (const auto &entry : *inner) {
      if (std::optional<StringRef> value = entry.second.getAsString()) {
        list.push_back({entry.first.str(), value->str()});
      } else {
        complain(key, "an object of strings");
      }
    }
    llvm::sort(list);
    return list;
  }
  void complain(StringRef key, StringRef want) {
    if (problem.empty()) {
      problem = ("'" + key + "' must be " + want).str();
    }
  }
  std::string problem;

private:
  const json::Object &object;
};
} // namespace

std::optional<Manifest> hp::parseManifest(StringRef text, StringRef file,
                                          DiagnosticEngine &diag) {
  Location loc = diag.location(file, 0, 0);
  // The JSON reader recurses; a manifest nests twice.
  if (text.size() > (64u << 20) || text.count('[') + text.count('{') > 1000) {
    diag.error(loc) << "is not the manifest of a checkpoint";
    return std::nullopt;
  }
  llvm::Expected<json::Value> value = json::parse(text);
  if (!value) {
    diag.error(loc) << "is not JSON: " << llvm::toString(value.takeError());
    return std::nullopt;
  }
  const json::Object *object = value->getAsObject();
  if (!object || object->getString("format") != StringRef("hp-checkpoint") ||
      object->getInteger("version") != manifestVersion) {
    diag.error(loc) << "is not the manifest of a checkpoint of version "
                    << manifestVersion;
    return std::nullopt;
  }
  Manifest manifest;
  FieldReader reader(*object);
  std::string fingerprint;
  reader.read("model", manifest.model);
  reader.read("flavor", manifest.flavor);
  reader.read("config", manifest.config);
  reader.read("step", manifest.state.step);
  reader.read("updates", manifest.updates);
  reader.read("samples_seen", manifest.state.samplesSeen);
  reader.read("tokens_seen", manifest.state.tokensSeen);
  reader.read("global_batch_size", manifest.state.globalBatchSize);
  reader.read("seq_len", manifest.state.seqLen);
  reader.read("data_fingerprint", fingerprint);
  reader.read("has_optimizer", manifest.hasOptimizer);
  reader.read("keys", manifest.format.spelling);
  if (StringRef(fingerprint).getAsInteger(16, manifest.state.dataFingerprint)) {
    reader.complain("data_fingerprint", "a hexadecimal number");
  }
  for (const auto &[name, word] : reader.strings("source_dtypes")) {
    std::optional<FileDType> dtype = fileDTypeByName(word);
    if (!dtype || (*dtype != FileDType::F32 && *dtype != FileDType::BF16 &&
                   *dtype != FileDType::F64)) {
      reader.complain("source_dtypes", "an object of F32, BF16 or F64");
      continue;
    }
    manifest.format.dtypes.push_back({name, *dtype});
  }
  manifest.format.tied = reader.strings("source_tied");
  if (!reader.problem.empty()) {
    diag.error(loc) << "the manifest is damaged: " << reader.problem;
    return std::nullopt;
  }
  return manifest;
}
