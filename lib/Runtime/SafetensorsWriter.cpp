//===- SafetensorsWriter.cpp - Writing .safetensors files -----------------===//

#include "hp/Runtime/AtomicFile.h"
#include "hp/Runtime/JsonReader.h"
#include "hp/Runtime/Safetensors.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MathExtras.h"
#include <tuple>

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;

/// Bytes of an item by its shape; empty, and an error, if the item is not one
/// that a reader would accept.
static std::optional<uint64_t> checkItem(const SafetensorsItem &item,
                                         llvm::StringSet<> &names, Location loc,
                                         DiagnosticEngine &diag) {
  auto refuse = [&](const llvm::Twine &what) {
    diag.error(loc) << "cannot write tensor " << quoteForMessage(item.name)
                    << ": " << what.str();
    return std::nullopt;
  };
  if (item.name == "__metadata__" || StringRef(item.name).contains('\0') ||
      !llvm::json::isUTF8(item.name)) {
    return refuse("the format does not allow this name");
  }
  if (!names.insert(item.name).second) {
    return refuse("the name is given twice");
  }
  std::optional<uint64_t> extent = checkedExtent(item.dtype, item.shape);
  if (!extent || item.shape.size() > SafetensorsFile::maxRank) {
    return refuse("its shape is negative or too large");
  }
  uint64_t size = llvm::is_contained(item.shape, 0) ? 0 : *extent;
  if (!item.produce && item.bytes.size() != size) {
    return refuse("its shape takes " + llvm::Twine(size) + " bytes, " +
                  llvm::Twine(item.bytes.size()) + " are given");
  }
  return size;
}

/// The header's text, padded so that the data starts at a multiple of 8.
static std::string formatHeader(ArrayRef<const SafetensorsItem *> order,
                                ArrayRef<uint64_t> sizes,
                                const SafetensorsMetadata &metadata) {
  std::string header;
  llvm::raw_string_ostream os(header);
  llvm::json::OStream json(os);
  json.object([&] {
    if (!metadata.empty()) {
      json.attributeObject("__metadata__", [&] {
        for (const auto &[key, value] : metadata) {
          json.attribute(key, value);
        }
      });
    }
    uint64_t offset = 0;
    for (auto [item, size] : llvm::zip_equal(order, sizes)) {
      json.attributeObject(item->name, [&, &item = item, &size = size] {
        json.attribute("dtype", fileDTypeName(item->dtype));
        json.attributeArray("shape", [&] {
          for (int64_t dim : item->shape) {
            json.value(dim);
          }
        });
        json.attributeArray("data_offsets", [&] {
          json.value(offset);
          json.value(offset + size);
        });
      });
      offset += size;
    }
  });
  header.resize(llvm::alignTo(header.size(), 8), ' ');
  return header;
}

std::vector<const SafetensorsItem *>
hp::writingOrder(ArrayRef<SafetensorsItem> items) {
  std::vector<const SafetensorsItem *> order;
  for (const SafetensorsItem &item : items) {
    order.push_back(&item);
  }
  llvm::stable_sort(
      order, [](const SafetensorsItem *left, const SafetensorsItem *right) {
        return std::tie(right->dtype, left->name) <
               std::tie(left->dtype, right->name);
      });
  return order;
}

bool hp::writeSafetensors(StringRef path, ArrayRef<SafetensorsItem> items,
                          const SafetensorsMetadata &metadata,
                          DiagnosticEngine &diag) {
  Location loc = diag.location(path, 0, 0);
  std::vector<const SafetensorsItem *> order = writingOrder(items);

  llvm::StringSet<> names, keys;
  std::vector<uint64_t> sizes;
  for (const SafetensorsItem *item : order) {
    std::optional<uint64_t> size = checkItem(*item, names, loc, diag);
    if (!size) {
      return false;
    }
    sizes.push_back(*size);
  }
  for (const auto &[key, value] : metadata) {
    if (!keys.insert(key).second || !llvm::json::isUTF8(key) ||
        !llvm::json::isUTF8(value)) {
      return diag.error(loc)
             << "cannot write metadata key " << quoteForMessage(key)
             << ": given twice, or not UTF-8 text";
    }
  }

  std::string header = formatHeader(order, sizes, metadata);
  if (header.size() > SafetensorsFile::maxHeaderBytes) {
    return diag.error(loc) << "cannot write a header of " << header.size()
                           << " bytes; at most "
                           << SafetensorsFile::maxHeaderBytes
                           << " are accepted";
  }
  char length[8];
  llvm::support::endian::write64le(length, header.size());

  std::unique_ptr<AtomicFile> file = AtomicFile::create(path, diag);
  if (!file || !file->write(StringRef(length, sizeof(length))) ||
      !file->write(header)) {
    return false;
  }
  for (auto [item, size] : llvm::zip_equal(order, sizes)) {
    uint64_t start = file->size();
    if (!(item->produce ? item->produce(*file) : file->write(item->bytes))) {
      return false;
    }
    if (file->size() - start != size) {
      return diag.error(loc)
             << "cannot write tensor " << quoteForMessage(item->name)
             << ": its shape takes " << size << " bytes, "
             << file->size() - start << " were produced";
    }
  }
  return file->commit();
}
