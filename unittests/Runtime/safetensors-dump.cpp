//===- safetensors-dump.cpp - Shows and copies checkpoints for tests ------===//
//
//   safetensors-dump PATH...             tensors of files, indices, folders
//   safetensors-dump --try PATH...       "ok PATH" or "bad PATH" of each file
//   safetensors-dump --copy IN OUT       writes one file anew
//   safetensors-dump --shard BYTES IN FOLDER
//                                        writes shards of at most BYTES
//
// A tensor is a line "name dtype [shape] crc32". Exit code 1 if a file could
// not be opened or written.
//
//===----------------------------------------------------------------------===//

#include "hp/Runtime/JsonReader.h"
#include "hp/Runtime/SafetensorsIndex.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CRC.h"
#include "llvm/Support/Format.h"

using namespace hp;
using llvm::StringRef;

static bool dump(StringRef path, DiagnosticEngine &diag) {
  auto checkpoint = ShardedCheckpoint::open(path, diag);
  if (!checkpoint) {
    return false;
  }
  for (const CheckpointTensor &tensor : checkpoint->tensors()) {
    llvm::outs() << tensor.name() << ' ' << fileDTypeName(tensor.entry->dtype)
                 << " [";
    llvm::interleaveComma(tensor.entry->shape, llvm::outs());
    llvm::outs() << "] "
                 << llvm::format_hex_no_prefix(llvm::crc32(tensor.bytes()), 8)
                 << '\n';
  }
  for (const auto &[key, value] : checkpoint->files().front()->metadata()) {
    llvm::outs() << "__metadata__ " << key << '=' << value << '\n';
  }
  return true;
}

static std::vector<SafetensorsItem> itemsOf(const ShardedCheckpoint &from) {
  std::vector<SafetensorsItem> items;
  for (const CheckpointTensor &tensor : from.tensors()) {
    items.push_back({tensor.name().str(), tensor.entry->dtype,
                     tensor.entry->shape, tensor.bytes()});
  }
  return items;
}

int main(int argc, char **argv) {
  DiagnosticEngine diag;
  std::vector<StringRef> args(argv + 1, argv + argc);
  if (args.size() == 3 && args[0] == "--copy") {
    auto from = ShardedCheckpoint::open(args[1], diag);
    return !(from && writeSafetensors(args[2], itemsOf(*from),
                                      from->files().front()->metadata(), diag));
  }
  uint64_t maxShardBytes = 0;
  if (args.size() == 4 && args[0] == "--shard" &&
      !args[1].getAsInteger(10, maxShardBytes)) {
    auto from = ShardedCheckpoint::open(args[2], diag);
    return !(from && writeShardedCheckpoint(args[3], itemsOf(*from),
                                            from->files().front()->metadata(),
                                            maxShardBytes, diag));
  }
  if (args.size() > 1 && args[0] == "--try") {
    for (StringRef path : llvm::ArrayRef(args).drop_front()) {
      bool opened = SafetensorsFile::open(path, diag) != nullptr;
      llvm::outs() << (opened ? "ok " : "bad ") << path << '\n';
    }
    return 0;
  }
  bool valid = !args.empty();
  for (StringRef path : args) {
    valid &= dump(path, diag);
  }
  return !valid;
}
