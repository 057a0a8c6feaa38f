//===- SafetensorsIndex.h - Checkpoints of one or more files ----*- C++ -*-===//
//
// A checkpoint as transformers lays it out: `model.safetensors`, or shards
// `model-00001-of-0000N.safetensors` and `model.safetensors.index.json`, which
// says in "weight_map" which tensor is in which shard.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_SAFETENSORSINDEX_H
#define HP_RUNTIME_SAFETENSORSINDEX_H

#include "hp/Runtime/Safetensors.h"

namespace hp {

/// A tensor of a checkpoint and the file it is in.
struct CheckpointTensor {
  const SafetensorsFile *file;
  const SafetensorsEntry *entry;

  llvm::StringRef name() const { return entry->name; }
  llvm::ArrayRef<uint8_t> bytes() const { return file->bytes(*entry); }
};

/// An open checkpoint. Index and shards are known to agree: each listed tensor
/// is in the shard named for it and nowhere else, and no other tensor is.
class ShardedCheckpoint {
public:
  /// Opens a `.safetensors` file, an index (`*.index.json`), or a folder that
  /// holds `model.safetensors` or `model.safetensors.index.json` (both is an
  /// error). Null and errors, at the file at fault, if anything is wrong.
  static std::unique_ptr<ShardedCheckpoint> open(llvm::StringRef path,
                                                 DiagnosticEngine &diag);

  /// All tensors: shards by name, in each by offset.
  llvm::ArrayRef<CheckpointTensor> tensors() const { return all; }
  /// The tensor of that name, or null.
  const CheckpointTensor *find(llvm::StringRef name) const;
  /// The files, by name.
  llvm::ArrayRef<std::unique_ptr<SafetensorsFile>> files() const {
    return shards;
  }

private:
  friend class CheckpointOpener;
  ShardedCheckpoint() = default;

  std::vector<std::unique_ptr<SafetensorsFile>> shards;
  std::vector<CheckpointTensor> all;
  llvm::StringMap<size_t> byName; ///< name → place in all
};

/// Writes `items` into `folder`, cut, in the order given, into shards of at
/// most `maxShardBytes` of tensor data (a larger tensor gets a shard of its
/// own), as transformers cuts and names them; `model.safetensors` alone if one
/// shard is enough. Each file appears whole or not at all and the index last.
/// A folder with checkpoint files under other names is refused, as the mixture
/// would be ambiguous.
bool writeShardedCheckpoint(llvm::StringRef folder,
                            llvm::ArrayRef<SafetensorsItem> items,
                            const SafetensorsMetadata &metadata,
                            uint64_t maxShardBytes, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_SAFETENSORSINDEX_H
