//===- Safetensors.cpp - Reading .safetensors files -----------------------===//

#include "hp/Runtime/Safetensors.h"
#include "hp/Runtime/JsonReader.h"
#include "hp/Runtime/MappedFile.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Endian.h"
#include <limits>
#include <tuple>

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Element types
//===----------------------------------------------------------------------===//

namespace {
struct DTypeInfo {
  StringRef name;
  unsigned size;
};
} // namespace

/// By FileDType.
static constexpr DTypeInfo dtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8},
};
static_assert(std::size(dtypes) == size_t(FileDType::U64) + 1);

StringRef hp::fileDTypeName(FileDType dtype) {
  return dtypes[size_t(dtype)].name;
}

unsigned hp::fileDTypeSize(FileDType dtype) {
  return dtypes[size_t(dtype)].size;
}

std::optional<FileDType> hp::fileDTypeByName(StringRef name) {
  for (auto [index, info] : llvm::enumerate(dtypes)) {
    if (info.name == name) {
      return FileDType(index);
    }
  }
  return std::nullopt;
}

std::optional<uint64_t> hp::checkedExtent(FileDType dtype,
                                          ArrayRef<int64_t> shape) {
  uint64_t extent = fileDTypeSize(dtype);
  for (int64_t dim : shape) {
    uint64_t factor = dim == 0 ? 1 : uint64_t(dim);
    if (dim < 0 ||
        factor > uint64_t(std::numeric_limits<int64_t>::max()) / extent) {
      return std::nullopt;
    }
    extent *= factor;
  }
  return extent;
}

//===----------------------------------------------------------------------===//
// Header
//===----------------------------------------------------------------------===//

namespace hp {

/// Reads and checks the header of one file. The first fault is reported and
/// ends it.
class SafetensorsHeaderReader {
public:
  SafetensorsHeaderReader(SafetensorsFile &file, DiagnosticEngine &diag)
      : file(file), diag(diag), loc(diag.location(file.path(), 0, 0)) {}

  bool read();

private:
  bool readHeader(StringRef header);
  bool checkCoverage();

  // These fail through the JsonReader.
  bool readMetadata(JsonReader &json);
  bool readEntry(JsonReader &json, SafetensorsEntry &entry);
  bool readDType(JsonReader &json, SafetensorsEntry &entry);
  bool readShape(JsonReader &json, SafetensorsEntry &entry);
  bool readOffsets(JsonReader &json, SafetensorsEntry &entry);
  bool checkEntry(JsonReader &json, const SafetensorsEntry &entry);

  SafetensorsFile &file;
  DiagnosticEngine &diag;
  Location loc;
};

} // namespace hp

/// Bytes of the header's length.
static constexpr uint64_t lengthBytes = 8;

bool SafetensorsHeaderReader::read() {
  StringRef text = file.buffer->getBuffer();
  if (text.size() < lengthBytes) {
    return diag.error(loc) << "not a safetensors file: " << text.size()
                           << " bytes, but the header's length alone takes "
                           << lengthBytes;
  }
  uint64_t length = llvm::support::endian::read64le(text.data());
  uint64_t available = text.size() - lengthBytes;
  if (length > SafetensorsFile::maxHeaderBytes) {
    return diag.error(loc) << "header of " << length << " bytes; at most "
                           << SafetensorsFile::maxHeaderBytes
                           << " are accepted";
  }
  if (length > available) {
    return diag.error(loc) << "header of " << length << " bytes, but only "
                           << available << " bytes follow";
  }
  StringRef rest = text.drop_front(lengthBytes + length);
  file.data = ArrayRef<uint8_t>(rest.bytes_begin(), rest.size());
  return readHeader(text.substr(lengthBytes, length)) && checkCoverage();
}

bool SafetensorsHeaderReader::readHeader(StringRef header) {
  if (!header.starts_with("{")) {
    return diag.error(loc)
           << "not a safetensors file: the header does not start with '{'";
  }
  JsonReader json(header);
  std::string key;
  bool insideTensor = false;
  json.beginObject();
  while (json.nextKey(key)) {
    if (key == "__metadata__") {
      if (!readMetadata(json)) {
        break;
      }
      continue;
    }
    insideTensor = true;
    SafetensorsEntry entry;
    entry.name = key;
    if (!readEntry(json, entry) || !checkEntry(json, entry)) {
      break;
    }
    insideTensor = false;
    file.tensors.push_back(std::move(entry));
  }
  if (json.expectEnd()) {
    return true;
  }
  auto error = diag.error(loc);
  if (insideTensor) {
    error << "tensor " << quoteForMessage(key);
  } else {
    error << "header";
  }
  return error << ": " << json.message() << " (at byte "
               << lengthBytes + json.offset() << ")";
}

bool SafetensorsHeaderReader::readMetadata(JsonReader &json) {
  std::string key, value;
  json.beginObject();
  while (json.nextKey(key)) {
    if (!json.readString(value)) {
      return false;
    }
    file.strings.push_back({key, value});
  }
  return !json.failed();
}

bool SafetensorsHeaderReader::readEntry(JsonReader &json,
                                        SafetensorsEntry &entry) {
  if (StringRef(entry.name).contains('\0')) {
    return json.fail("a tensor's name cannot hold a NUL byte");
  }
  std::string key;
  bool hasDType = false, hasShape = false, hasOffsets = false;
  json.beginObject();
  while (json.nextKey(key)) {
    bool valid = false;
    if (key == "dtype") {
      valid = hasDType = readDType(json, entry);
    } else if (key == "shape") {
      valid = hasShape = readShape(json, entry);
    } else if (key == "data_offsets") {
      valid = hasOffsets = readOffsets(json, entry);
    } else {
      json.fail("unknown key " + quoteForMessage(key) +
                "; 'dtype', 'shape' and 'data_offsets' are known");
    }
    if (!valid) {
      return false;
    }
  }
  if (json.failed()) {
    return false;
  }
  if (!hasDType || !hasShape || !hasOffsets) {
    return json.fail(Twine("'") +
                     (!hasDType   ? "dtype"
                      : !hasShape ? "shape"
                                  : "data_offsets") +
                     "' is missing");
  }
  return true;
}

bool SafetensorsHeaderReader::readDType(JsonReader &json,
                                        SafetensorsEntry &entry) {
  std::string name;
  if (!json.readString(name)) {
    return false;
  }
  std::optional<FileDType> dtype = fileDTypeByName(name);
  if (!dtype) {
    std::string known;
    for (const DTypeInfo &info : dtypes) {
      known += (known.empty() ? "" : ", ") + info.name.str();
    }
    return json.fail("unknown dtype " + quoteForMessage(name) + "; known are " +
                     known);
  }
  entry.dtype = *dtype;
  return true;
}

bool SafetensorsHeaderReader::readShape(JsonReader &json,
                                        SafetensorsEntry &entry) {
  json.beginArray();
  while (json.nextElement()) {
    uint64_t dim = 0;
    if (!json.readUnsigned(dim)) {
      return false;
    }
    if (dim > uint64_t(std::numeric_limits<int64_t>::max())) {
      return json.fail("dimension " + Twine(dim) + " is too large");
    }
    if (entry.shape.size() == SafetensorsFile::maxRank) {
      return json.fail("more than " + Twine(SafetensorsFile::maxRank) +
                       " dimensions");
    }
    entry.shape.push_back(int64_t(dim));
  }
  return !json.failed();
}

bool SafetensorsHeaderReader::readOffsets(JsonReader &json,
                                          SafetensorsEntry &entry) {
  json.beginArray();
  unsigned count = 0;
  while (json.nextElement()) {
    if (count == 2) {
      return json.fail("'data_offsets' has more than two numbers");
    }
    if (!json.readUnsigned(count++ == 0 ? entry.begin : entry.end)) {
      return false;
    }
  }
  if (!json.failed() && count < 2) {
    return json.fail("'data_offsets' needs two numbers, begin and end");
  }
  return !json.failed();
}

bool SafetensorsHeaderReader::checkEntry(JsonReader &json,
                                         const SafetensorsEntry &entry) {
  if (entry.begin > entry.end) {
    return json.fail("'data_offsets' begins after its end: [" +
                     Twine(entry.begin) + ", " + Twine(entry.end) + ")");
  }
  if (entry.end > file.data.size()) {
    return json.fail("its bytes [" + Twine(entry.begin) + ", " +
                     Twine(entry.end) +
                     ") pass the end of the file, which has " +
                     Twine(file.data.size()) + " bytes of data");
  }
  std::optional<uint64_t> extent = checkedExtent(entry.dtype, entry.shape);
  if (!extent) {
    return json.fail("the product of its dimensions overflows");
  }
  uint64_t size = llvm::is_contained(entry.shape, 0) ? 0 : *extent;
  if (size != entry.byteSize()) {
    return json.fail("its shape takes " + Twine(size) + " bytes as " +
                     fileDTypeName(entry.dtype) + ", its 'data_offsets' give " +
                     Twine(entry.byteSize()));
  }
  return true;
}

/// Sorts the tensors by place and checks that they cover the data exactly once.
bool SafetensorsHeaderReader::checkCoverage() {
  llvm::sort(file.tensors,
             [](const SafetensorsEntry &left, const SafetensorsEntry &right) {
               return std::tie(left.begin, left.end, left.name) <
                      std::tie(right.begin, right.end, right.name);
             });
  uint64_t covered = 0;
  const SafetensorsEntry *previous = nullptr;
  for (const SafetensorsEntry &entry : file.tensors) {
    if (entry.begin < covered) {
      return diag.error(loc)
             << "tensor " << quoteForMessage(entry.name) << ": its bytes ["
             << entry.begin << ", " << entry.end << ") overlap those of "
             << quoteForMessage(previous->name) << " [" << previous->begin
             << ", " << previous->end << ")";
    }
    if (entry.begin > covered) {
      return diag.error(loc) << "tensor " << quoteForMessage(entry.name)
                             << ": bytes [" << covered << ", " << entry.begin
                             << ") before it belong to no tensor";
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != file.data.size()) {
    return diag.error(loc) << file.data.size() - covered
                           << " bytes after the last tensor belong to none";
  }
  for (auto [index, entry] : llvm::enumerate(file.tensors)) {
    file.byName[entry.name] = index;
  }
  return true;
}

//===----------------------------------------------------------------------===//
// SafetensorsFile
//===----------------------------------------------------------------------===//

std::unique_ptr<SafetensorsFile> SafetensorsFile::open(StringRef path,
                                                       DiagnosticEngine &diag) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = mapFile(path, diag);
  return buffer ? fromBuffer(std::move(buffer), diag) : nullptr;
}

std::unique_ptr<SafetensorsFile>
SafetensorsFile::fromBuffer(std::unique_ptr<llvm::MemoryBuffer> buffer,
                            DiagnosticEngine &diag) {
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->buffer = std::move(buffer);
  if (!SafetensorsHeaderReader(*file, diag).read()) {
    return nullptr;
  }
  return file;
}

const SafetensorsEntry *SafetensorsFile::find(StringRef name) const {
  auto it = byName.find(name);
  return it == byName.end() ? nullptr : &tensors[it->second];
}
