//===- Safetensors.h - Reading and writing .safetensors files ---*- C++ -*-===//
//
// The file format of model weights:
//
//   file   ::= length header data
//   length ::= bytes of the header, 8 bytes, little endian
//   header ::= JSON object, padded with spaces; `__metadata__` (strings only)
//              and per tensor {"dtype": "F32", "shape": [2, 3],
//              "data_offsets": [begin, end]}, offsets into data
//   data   ::= the tensors' bytes, row major, little endian, without holes
//
// The reader trusts nothing: every length, offset and shape is checked against
// the file before it is used, and nothing is allocated by a number the file
// claims. Sharded checkpoints are in SafetensorsIndex.h.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_SAFETENSORS_H
#define HP_RUNTIME_SAFETENSORS_H

#include "hp/Support/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hp {

class AtomicFile;

/// Element type of a stored tensor, in ascending order of alignment: the writer
/// lays out files in descending order, as the Python package does.
enum class FileDType : uint8_t {
  BOOL,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  F64,
  I64,
  U64,
};

/// The name in the header, such as "BF16".
llvm::StringRef fileDTypeName(FileDType dtype);
/// Bytes of one element.
unsigned fileDTypeSize(FileDType dtype);
/// The type of that name; empty if hp does not know it.
std::optional<FileDType> fileDTypeByName(llvm::StringRef name);

/// Bytes of a tensor, counting a dimension of 0 as 1; empty if a dimension is
/// negative or the product passes 2^63-1. (So a shape with a 0 in it is refused
/// where its strides would overflow.)
std::optional<uint64_t> checkedExtent(FileDType dtype,
                                      llvm::ArrayRef<int64_t> shape);

/// String pairs of `__metadata__`, in the order of the file.
using SafetensorsMetadata = std::vector<std::pair<std::string, std::string>>;

/// One tensor of a file: bytes [begin, end) of the data part.
struct SafetensorsEntry {
  std::string name;
  FileDType dtype = FileDType::F32;
  llvm::SmallVector<int64_t, 4> shape;
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t byteSize() const { return end - begin; }
};

/// An open file, mapped read only.
class SafetensorsFile {
public:
  /// Longest header and highest rank that are accepted.
  static constexpr uint64_t maxHeaderBytes = 100'000'000;
  static constexpr size_t maxRank = 64;

  /// Opens and checks `path`; null and an error at the file otherwise.
  static std::unique_ptr<SafetensorsFile> open(llvm::StringRef path,
                                               DiagnosticEngine &diag);
  /// The same for bytes in memory, named by the buffer's identifier.
  static std::unique_ptr<SafetensorsFile>
  fromBuffer(std::unique_ptr<llvm::MemoryBuffer> buffer,
             DiagnosticEngine &diag);

  llvm::StringRef path() const { return buffer->getBufferIdentifier(); }

  /// The tensors, by offset; empty ones at one offset by name.
  llvm::ArrayRef<SafetensorsEntry> entries() const { return tensors; }
  /// The tensor of that name, or null.
  const SafetensorsEntry *find(llvm::StringRef name) const;
  /// The bytes of an entry of this file. Not necessarily aligned for its type:
  /// copy them out with memcpy.
  llvm::ArrayRef<uint8_t> bytes(const SafetensorsEntry &entry) const {
    return data.slice(entry.begin, entry.byteSize());
  }
  const SafetensorsMetadata &metadata() const { return strings; }

private:
  friend class SafetensorsHeaderReader;
  SafetensorsFile() = default;

  std::unique_ptr<llvm::MemoryBuffer> buffer;
  llvm::ArrayRef<uint8_t> data;
  std::vector<SafetensorsEntry> tensors;
  llvm::StringMap<size_t> byName; ///< name → place in tensors
  SafetensorsMetadata strings;
};

/// A tensor to write: its bytes, or, if `produce` is set, a function that
/// writes them when their turn comes, so that the whole need not be in memory.
struct SafetensorsItem {
  std::string name;
  FileDType dtype = FileDType::F32;
  llvm::SmallVector<int64_t, 4> shape;
  llvm::ArrayRef<uint8_t> bytes = {};
  /// Writes exactly the tensor's bytes; false if it cannot, having said why.
  std::function<bool(AtomicFile &)> produce = {};
  /// Does of `produce` what other processes take part in, and writes nothing.
  std::function<void()> takePart = {};
};

/// Items in the order in which their bytes are written and `produce` is called:
/// by descending element size, then name.
std::vector<const SafetensorsItem *>
writingOrder(llvm::ArrayRef<SafetensorsItem> items);

/// Writes `items` to `path`, whole or not at all (AtomicFile.h). The file is a
/// function of names, types, shapes, bytes and metadata, whatever the order of
/// `items`; see writingOrder().
bool writeSafetensors(llvm::StringRef path,
                      llvm::ArrayRef<SafetensorsItem> items,
                      const SafetensorsMetadata &metadata,
                      DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_SAFETENSORS_H
