//===- Weights.cpp - Parameters to and from safetensors -------------------===//

#include "hp/Runtime/Weights.h"
#include "hp/Runtime/AtomicFile.h"
#include "llvm/ADT/StringExtras.h"
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <cstring>

using namespace hp;
using llvm::StringRef;

static at::ScalarType scalarOf(FileDType dtype) {
  switch (dtype) {
  case FileDType::BF16:
    return at::kBFloat16;
  case FileDType::F64:
    return at::kDouble;
  case FileDType::I64:
    return at::kLong;
  default:
    return at::kFloat;
  }
}

FileDType hp::fileDType(at::ScalarType type) {
  switch (type) {
  case at::kBFloat16:
    return FileDType::BF16;
  case at::kDouble:
    return FileDType::F64;
  case at::kLong:
    return FileDType::I64;
  default:
    return FileDType::F32;
  }
}

static std::string shapeText(llvm::ArrayRef<int64_t> shape) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << '[';
  llvm::interleaveComma(shape, os);
  os << ']';
  return text;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// Why a tensor of the file cannot become `parameter`; empty if it can.
static std::string misfit(const CheckpointTensor &tensor,
                          const StoredParameter &parameter) {
  llvm::ArrayRef<int64_t> want(parameter.value.sizes().data(),
                               parameter.value.dim());
  llvm::ArrayRef<int64_t> have = tensor.entry->shape;
  if (have != want) {
    return "has shape " + shapeText(have) + "; parameter '@" + parameter.name +
           "' has " + shapeText(want);
  }
  FileDType dtype = tensor.entry->dtype;
  bool wide = parameter.value.scalar_type() == at::kDouble;
  if (dtype != FileDType::F32 && dtype != FileDType::BF16 &&
      !(wide && dtype == FileDType::F64)) {
    return ("is " + fileDTypeName(dtype) +
            "; weights are read from BF16 or F32")
               .str() +
           (wide ? " or F64" : ", F64 in a float64 run only");
  }
  return {};
}

static at::Tensor readTensor(const CheckpointTensor &tensor) {
  at::Tensor out = at::empty(
      at::IntArrayRef(tensor.entry->shape.data(), tensor.entry->shape.size()),
      scalarOf(tensor.entry->dtype));
  if (!tensor.bytes().empty()) {
    std::memcpy(out.mutable_data_ptr(), tensor.bytes().data(),
                tensor.bytes().size());
  }
  return out;
}

std::optional<WeightFormat> hp::loadWeights(ParameterStore &store,
                                            StringRef path,
                                            const CheckpointKeys &keys,
                                            llvm::ArrayRef<TiedKey> ties,
                                            DiagnosticEngine &diag) {
  std::unique_ptr<ShardedCheckpoint> checkpoint =
      ShardedCheckpoint::open(path, diag);
  if (!checkpoint) {
    return std::nullopt;
  }
  std::vector<std::string> have, want;
  for (const CheckpointTensor &tensor : checkpoint->tensors()) {
    have.push_back(tensor.name().str());
  }
  for (const StoredParameter &parameter : store.all()) {
    want.push_back(parameter.name);
  }
  KeyMatch match = keys.match(have, want, ties);
  if (!reportKeys(match, path, diag)) {
    return std::nullopt;
  }

  WeightFormat format;
  format.spelling = match.spelling->name;
  for (const KeyMatch::Skipped &skipped : match.skipped) {
    format.skipped += skipped.count;
  }
  constexpr size_t shown = 10;
  size_t misfits = 0;
  for (const KeyMatch::Entry &entry : match.found) {
    const CheckpointTensor &tensor = *checkpoint->find(entry.key);
    std::string why = misfit(tensor, *store.find(entry.param));
    if (!why.empty() && ++misfits <= shown) {
      diag.error(diag.location(tensor.file->path(), 0, 0))
          << "tensor '" << entry.key << "' " << why;
    }
    format.dtypes.push_back({entry.param, tensor.entry->dtype});
  }
  if (misfits > shown) {
    diag.error(diag.location(path, 0, 0))
        << misfits - shown << " more tensors do not fit the model";
  }
  bool ok = misfits == 0;
  for (const KeyMatch::Entry &entry : match.tied) {
    const CheckpointTensor &alias = *checkpoint->find(entry.key);
    format.tied.push_back({entry.key, entry.param});
    const CheckpointTensor *target =
        checkpoint->find(match.spelling->keyOf(entry.param));
    if (target && (alias.entry->dtype != target->entry->dtype ||
                   alias.bytes() != target->bytes())) {
      ok = diag.error(diag.location(alias.file->path(), 0, 0))
           << "tensor '" << entry.key << "' differs from '" << target->name()
           << "', to which this model ties it";
    }
  }
  if (!ok) {
    return std::nullopt;
  }
  c10::NoGradGuard noGrad;
  for (const KeyMatch::Entry &entry : match.found) {
    store.find(entry.param)
        ->value.copy_(readTensor(*checkpoint->find(entry.key)));
  }
  return format;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

SafetensorsItem hp::tensorItem(std::string key, const at::Tensor &tensor,
                               FileDType dtype) {
  SafetensorsItem item;
  item.name = std::move(key);
  item.dtype = dtype;
  item.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  item.produce = [tensor, dtype](AtomicFile &file) {
    at::Tensor ready = tensor.detach().to(scalarOf(dtype)).contiguous();
    return file.write(llvm::ArrayRef(
        static_cast<const uint8_t *>(ready.const_data_ptr()), ready.nbytes()));
  };
  return item;
}

std::vector<SafetensorsItem> hp::weightItems(const ParameterStore &store,
                                             const KeySpelling &spelling,
                                             const WeightFormat &format,
                                             FileDType otherwise) {
  llvm::StringMap<FileDType> recorded;
  for (const auto &[name, dtype] : format.dtypes) {
    recorded[name] = dtype;
  }
  std::vector<SafetensorsItem> items;
  auto add = [&](std::string key, const StoredParameter &parameter) {
    auto it = recorded.find(parameter.name);
    items.push_back(tensorItem(std::move(key), parameter.value,
                               it == recorded.end() ? otherwise : it->second));
  };
  for (unsigned index : store.registration()) {
    const StoredParameter &parameter = store.all()[index];
    add(spelling.keyOf(parameter.name), parameter);
  }
  for (const auto &[key, name] : format.tied) {
    if (const StoredParameter *parameter = store.find(name)) {
      add(key, *parameter);
    }
  }
  return items;
}
