//===- SafetensorsIndex.cpp - Checkpoints of one or more files ------------===//

#include "hp/Runtime/SafetensorsIndex.h"
#include "hp/Runtime/AtomicFile.h"
#include "hp/Runtime/JsonReader.h"
#include "hp/Runtime/MappedFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include <map>

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;
using llvm::Twine;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr StringRef singleName = "model.safetensors";
static constexpr StringRef indexName = "model.safetensors.index.json";

static std::string joined(StringRef folder, StringRef name) {
  llvm::SmallString<256> result(folder);
  path::append(result, name);
  return result.str().str();
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace hp {

class CheckpointOpener {
public:
  explicit CheckpointOpener(DiagnosticEngine &diag)
      : diag(diag), checkpoint(new ShardedCheckpoint) {}

  std::unique_ptr<ShardedCheckpoint> open(StringRef where) {
    bool valid = fs::is_directory(where)          ? openFolder(where)
                 : where.ends_with(".index.json") ? openIndex(where)
                                                  : openFile(where);
    return valid ? std::move(checkpoint) : nullptr;
  }

private:
  bool openFolder(StringRef folder);
  bool openFile(StringRef file);
  bool openIndex(StringRef file);
  bool readIndex(JsonReader &json);
  bool readWeightMap(JsonReader &json);
  bool openShards(StringRef index);
  bool checkShard(StringRef index, StringRef shardName, size_t shard);
  void add(size_t shard);

  DiagnosticEngine &diag;
  std::unique_ptr<ShardedCheckpoint> checkpoint;
  /// "weight_map": shard → the tensors listed for it, both in order.
  std::map<std::string, std::vector<std::string>> listed;
  llvm::StringMap<StringRef> shardOf; ///< tensor → shard listed for it
};

} // namespace hp

bool CheckpointOpener::openFolder(StringRef folder) {
  std::string single = joined(folder, singleName);
  std::string index = joined(folder, indexName);
  bool hasSingle = fs::exists(single), hasIndex = fs::exists(index);
  if (hasSingle && hasIndex) {
    return diag.error(diag.location(folder, 0, 0))
           << "the folder holds both '" << singleName << "' and '" << indexName
           << "'; name the one that is meant";
  }
  if (!hasSingle && !hasIndex) {
    return diag.error(diag.location(folder, 0, 0))
           << "the folder holds neither '" << singleName << "' nor '"
           << indexName << "'";
  }
  return hasSingle ? openFile(single) : openIndex(index);
}

bool CheckpointOpener::openFile(StringRef file) {
  std::unique_ptr<SafetensorsFile> opened = SafetensorsFile::open(file, diag);
  if (!opened) {
    return false;
  }
  checkpoint->shards.push_back(std::move(opened));
  add(0);
  return true;
}

/// Appends the tensors of a shard to the checkpoint's list.
void CheckpointOpener::add(size_t shard) {
  const SafetensorsFile &file = *checkpoint->shards[shard];
  for (const SafetensorsEntry &entry : file.entries()) {
    checkpoint->byName[entry.name] = checkpoint->all.size();
    checkpoint->all.push_back({&file, &entry});
  }
}

bool CheckpointOpener::openIndex(StringRef file) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = mapFile(file, diag);
  if (!buffer) {
    return false;
  }
  JsonReader json(buffer->getBuffer());
  if (!readIndex(json)) {
    constexpr size_t showable = 1 << 20;
    if (buffer->getBufferSize() <= showable) {
      diag.addBuffer(file, buffer->getBuffer());
    }
    auto [line, column] = json.lineAndColumn(json.offset());
    return diag.error(diag.location(file, line, column)) << json.message();
  }
  return openShards(file);
}

/// index ::= '{' ( '"metadata"' ':' value ',' )? '"weight_map"' ':' object '}',
/// in any order; other keys are passed over.
bool CheckpointOpener::readIndex(JsonReader &json) {
  std::string key;
  bool hasMap = false;
  json.beginObject();
  while (json.nextKey(key)) {
    if (key == "weight_map") {
      hasMap = readWeightMap(json);
    } else {
      json.skipValue();
    }
  }
  if (!json.expectEnd()) {
    return false;
  }
  return hasMap || json.fail("the index has no 'weight_map'");
}

/// Whether `name` is a file's name and no path: a name with a separator, or one
/// of the two special folders, would lead out of the checkpoint's folder.
static bool isPlainName(StringRef name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(StringRef("/\\\0", 3)) == StringRef::npos;
}

bool CheckpointOpener::readWeightMap(JsonReader &json) {
  std::string tensor, shard;
  json.beginObject();
  while (json.nextKey(tensor)) {
    if (!json.readString(shard)) {
      return false;
    }
    if (!isPlainName(shard)) {
      return json.fail("tensor " + quoteForMessage(tensor) + ": shard " +
                       quoteForMessage(shard) +
                       " is not a plain file name in the index's folder");
    }
    auto it = listed.try_emplace(shard).first;
    it->second.push_back(tensor);
    shardOf[tensor] = it->first;
  }
  return !json.failed();
}

bool CheckpointOpener::openShards(StringRef index) {
  StringRef folder = path::parent_path(index);
  for (const auto &[shardName, tensors] : listed) {
    std::string shardPath = joined(folder, shardName);
    if (!fs::exists(shardPath)) {
      return diag.error(diag.location(index, 0, 0))
             << "shard " << quoteForMessage(shardName)
             << " is missing; the index lists " << tensors.size()
             << " tensors in it, such as " << quoteForMessage(tensors.front());
    }
    std::unique_ptr<SafetensorsFile> opened =
        SafetensorsFile::open(shardPath, diag);
    if (!opened) {
      return false;
    }
    checkpoint->shards.push_back(std::move(opened));
  }
  bool valid = true;
  size_t shard = 0;
  for (const auto &[shardName, tensors] : listed) {
    valid &= checkShard(index, shardName, shard);
    add(shard++);
  }
  return valid;
}

/// Compares what a shard holds with what the index lists for it. One error for
/// each kind of disagreement names the first few tensors.
bool CheckpointOpener::checkShard(StringRef index, StringRef shardName,
                                  size_t shard) {
  constexpr size_t shown = 5;
  const SafetensorsFile &file = *checkpoint->shards[shard];
  bool valid = true;
  auto report = [&](StringRef what, ArrayRef<std::string> names) {
    if (names.empty()) {
      return;
    }
    valid = false;
    auto error = diag.error(diag.location(index, 0, 0));
    error << "shard " << quoteForMessage(shardName) << ": " << what << ": ";
    llvm::StringRef separator;
    for (const std::string &name : names.take_front(shown)) {
      error << separator << name;
      separator = ", ";
    }
    if (names.size() > shown) {
      error << " and " << names.size() - shown << " more";
    }
  };

  std::vector<std::string> absent, unlisted, twice;
  for (const std::string &name : listed.find(shardName.str())->second) {
    if (!file.find(name)) {
      absent.push_back(quoteForMessage(name));
    }
  }
  for (const SafetensorsEntry &entry : file.entries()) {
    auto it = shardOf.find(entry.name);
    if (it == shardOf.end()) {
      unlisted.push_back(quoteForMessage(entry.name));
    } else if (it->second != shardName) {
      twice.push_back(quoteForMessage(entry.name) + " (listed in " +
                      quoteForMessage(it->second) + ")");
    }
  }
  report("listed in the index, but absent from the shard", absent);
  report("present in the shard, but not listed in the index", unlisted);
  report("present in the shard, but listed in another", twice);
  return valid;
}

std::unique_ptr<ShardedCheckpoint>
ShardedCheckpoint::open(StringRef path, DiagnosticEngine &diag) {
  return CheckpointOpener(diag).open(path);
}

const CheckpointTensor *ShardedCheckpoint::find(StringRef name) const {
  auto it = byName.find(name);
  return it == byName.end() ? nullptr : &all[it->second];
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Cuts the items, in order, into shards of at most `maxShardBytes`.
static std::vector<std::vector<SafetensorsItem>>
splitIntoShards(ArrayRef<SafetensorsItem> items, ArrayRef<uint64_t> sizes,
                uint64_t maxShardBytes) {
  std::vector<std::vector<SafetensorsItem>> shards;
  std::vector<SafetensorsItem> current;
  uint64_t currentBytes = 0;
  for (auto [item, size] : llvm::zip_equal(items, sizes)) {
    if (size > maxShardBytes) {
      shards.push_back({item});
      continue;
    }
    if (size > maxShardBytes - currentBytes) {
      shards.push_back(std::move(current));
      current.clear();
      currentBytes = 0;
    }
    current.push_back(item);
    currentBytes += size;
  }
  if (!current.empty() || shards.empty()) {
    shards.push_back(std::move(current));
  }
  return shards;
}

static std::string shardName(size_t shard, size_t count) {
  if (count == 1) {
    return singleName.str();
  }
  std::string name;
  llvm::raw_string_ostream(name)
      << llvm::format("model-%05zu-of-%05zu.safetensors", shard + 1, count);
  return name;
}

/// Whether a file of that name belongs to a checkpoint.
static bool isCheckpointName(StringRef name) {
  if (name == singleName || name == indexName) {
    return true;
  }
  // model-00001-of-00002.safetensors
  auto isNumber = [](StringRef digits) {
    return digits.size() == 5 &&
           digits.find_first_not_of("0123456789") == StringRef::npos;
  };
  return name.consume_front("model-") && name.consume_back(".safetensors") &&
         isNumber(name.take_front(5)) && isNumber(name.take_back(5)) &&
         name.size() == 14 && name.substr(5, 4) == "-of-";
}

/// Refuses a folder that holds checkpoint files besides those of `names`.
static bool checkFolder(StringRef folder, ArrayRef<std::string> names,
                        DiagnosticEngine &diag) {
  std::error_code code;
  std::vector<std::string> others;
  for (fs::directory_iterator it(folder, code), end; it != end && !code;
       it.increment(code)) {
    StringRef name = path::filename(it->path());
    if (isCheckpointName(name) && !llvm::is_contained(names, name)) {
      others.push_back(name.str());
    }
  }
  if (others.empty()) {
    return true;
  }
  llvm::sort(others);
  return diag.error(diag.location(folder, 0, 0))
         << "the folder holds '" << others.front() << "'"
         << (others.size() > 1
                 ? " and " + std::to_string(others.size() - 1) + " more files"
                 : "")
         << " of another checkpoint; remove it or choose another folder";
}

static std::string formatIndex(ArrayRef<std::vector<SafetensorsItem>> shards,
                               uint64_t totalBytes) {
  std::map<std::string, std::string> weightMap;
  for (auto [shard, items] : llvm::enumerate(shards)) {
    for (const SafetensorsItem &item : items) {
      weightMap[item.name] = shardName(shard, shards.size());
    }
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os, /*IndentSize=*/2);
  json.object([&] {
    json.attributeObject("metadata",
                         [&] { json.attribute("total_size", totalBytes); });
    json.attributeObject("weight_map", [&] {
      for (const auto &[name, shard] : weightMap) {
        json.attribute(name, shard);
      }
    });
  });
  return text + "\n";
}

bool hp::writeShardedCheckpoint(StringRef folder,
                                ArrayRef<SafetensorsItem> items,
                                const SafetensorsMetadata &metadata,
                                uint64_t maxShardBytes,
                                DiagnosticEngine &diag) {
  Location loc = diag.location(folder, 0, 0);
  llvm::StringSet<> seen;
  std::vector<uint64_t> sizes;
  uint64_t totalBytes = 0;
  for (const SafetensorsItem &item : items) {
    if (!seen.insert(item.name).second) {
      return diag.error(loc)
             << "cannot write tensor " << quoteForMessage(item.name)
             << ": the name is given twice";
    }
    std::optional<uint64_t> extent = checkedExtent(item.dtype, item.shape);
    if (!extent) {
      return diag.error(loc)
             << "cannot write tensor " << quoteForMessage(item.name)
             << ": its shape is negative or too large";
    }
    sizes.push_back(llvm::is_contained(item.shape, 0) ? 0 : *extent);
    totalBytes += sizes.back();
  }

  auto shards = splitIntoShards(items, sizes, maxShardBytes);
  std::vector<std::string> names;
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    names.push_back(shardName(shard, shards.size()));
  }
  if (shards.size() > 1) {
    names.push_back(indexName.str());
  }
  if (!checkFolder(folder, names, diag)) {
    return false;
  }
  for (size_t shard = 0; shard < shards.size(); ++shard) {
    if (!writeSafetensors(joined(folder, names[shard]), shards[shard], metadata,
                          diag)) {
      return false;
    }
  }
  return shards.size() == 1 ||
         writeAtomically(joined(folder, indexName),
                         formatIndex(shards, totalBytes), diag);
}
