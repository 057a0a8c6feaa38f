//===- Weights.cpp - Parameters to and from safetensors -------------------===//

#include "hp/Runtime/Weights.h"
#include "hp/Runtime/AtomicFile.h"
#include "hp/Runtime/Pieces.h"
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
  llvm::ArrayRef<int64_t> want = parameter.placement.wholeShape;
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

std::optional<WeightFormat>
hp::loadWeights(llvm::MutableArrayRef<ParameterStore> stores, StringRef path,
                const CheckpointKeys &keys, llvm::ArrayRef<TiedKey> ties,
                DiagnosticEngine &diag) {
  const ParameterStore &store = stores[0];
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
    at::Tensor whole = readTensor(*checkpoint->find(entry.key));
    for (ParameterStore &each : stores) {
      StoredParameter &parameter = *each.find(entry.param);
      parameter.value.copy_(cutPiece(whole, parameter.placement));
    }
  }
  return format;
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Writes the elements of `tensor` as `dtype`.
static bool writeElements(const at::Tensor &tensor, FileDType dtype,
                          AtomicFile &file) {
  at::Tensor ready = tensor.detach().to(scalarOf(dtype)).contiguous();
  return file.write(llvm::ArrayRef(
      static_cast<const uint8_t *>(ready.const_data_ptr()), ready.nbytes()));
}

SafetensorsItem hp::tensorItem(std::string key, const at::Tensor &tensor,
                               FileDType dtype) {
  SafetensorsItem item;
  item.name = std::move(key);
  item.dtype = dtype;
  item.shape.assign(tensor.sizes().begin(), tensor.sizes().end());
  item.produce = [tensor, dtype](AtomicFile &file) {
    return writeElements(tensor, dtype, file);
  };
  return item;
}

SafetensorsItem hp::gatheredItem(std::string key, const WholeParameters &whole,
                                 unsigned index,
                                 at::Tensor StoredParameter::*which,
                                 FileDType dtype) {
  SafetensorsItem item;
  item.name = std::move(key);
  item.dtype = dtype;
  item.shape = whole.description().all()[index].placement.wholeShape;
  item.produce = [&whole, index, which, dtype](AtomicFile &file) {
    return writeElements(whole.get(index, which), dtype, file);
  };
  item.takePart = [&whole, index, which] { whole.get(index, which); };
  return item;
}

at::Tensor WholeParameters::get(unsigned index,
                                at::Tensor StoredParameter::*which) const {
  if (!comm) {
    return stores[0].all()[index].*which;
  }
  Communicator::Tensors pieces;
  for (const ParameterStore &store : stores) {
    pieces.push_back(store.all()[index].*which);
  }
  return assemble(*comm, stores[0].all()[index].type, pieces);
}

bool WholeParameters::allAgree(bool ok) const {
  if (!comm || int64_t(comm->localRanks().size()) == comm->mesh().numRanks()) {
    return ok;
  }
  Communicator::Tensors failed(comm->localRanks().size());
  for (at::Tensor &flag : failed) {
    flag = at::full({1}, ok ? 0 : 1, at::kLong);
  }
  comm->allReduce(failed, comm->mesh().all().list(), Reduction::Max);
  return failed[0].item<int64_t>() == 0;
}

bool hp::writeGathered(StringRef path, std::vector<SafetensorsItem> items,
                       const WholeParameters &whole, DiagnosticEngine &diag) {
  try {
    size_t produced = 0;
    for (SafetensorsItem &item : items) {
      item.produce = [inner = std::move(item.produce),
                      &produced](AtomicFile &file) {
        ++produced;
        return inner(file);
      };
    }
    bool ok = !whole.isWriter() ||
              writeSafetensors(path, items, {{"format", "pt"}}, diag);
    // What this process did not come to, others may be waiting for.
    auto order = writingOrder(items);
    for (const SafetensorsItem *item :
         llvm::ArrayRef(order).drop_front(produced)) {
      item->takePart();
    }
    return whole.allAgree(ok);
  } catch (const std::exception &failure) {
    return diag.error(diag.location(path, 0, 0))
           << "cannot gather the tensors to write: "
           << StringRef(failure.what()).split('\n').first;
  }
}

std::vector<SafetensorsItem> hp::weightItems(const WholeParameters &whole,
                                             const KeySpelling &spelling,
                                             const WeightFormat &format,
                                             FileDType otherwise) {
  llvm::StringMap<FileDType> recorded;
  for (const auto &[name, dtype] : format.dtypes) {
    recorded[name] = dtype;
  }
  const ParameterStore &store = whole.description();
  std::vector<SafetensorsItem> items;
  auto add = [&](std::string key, const StoredParameter &parameter) {
    auto it = recorded.find(parameter.name);
    items.push_back(
        gatheredItem(std::move(key), whole, &parameter - store.all().data(),
                     &StoredParameter::value,
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
