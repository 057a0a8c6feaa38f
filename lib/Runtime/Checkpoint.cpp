//===- Checkpoint.cpp - Saving and resuming a run -------------------------===//

#include "hp/Runtime/Checkpoint.h"
#include "Manifest.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/AtomicFile.h"
#include "hp/Runtime/Pieces.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include <ATen/ATen.h>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>

using namespace hp;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr StringRef stepPrefix = "step-";

static std::string join(StringRef folder, StringRef name) {
  llvm::SmallString<128> joined(folder);
  path::append(joined, name);
  return std::string(joined);
}

Manifest hp::manifestOf(Module &module) {
  Manifest manifest;
  manifest.model = module.name.str();
  manifest.flavor = module.flavor.str();
  for (const NamedAttribute &entry : module.config.entries()) {
    manifest.config += (manifest.config.empty() ? "" : ", ") +
                       entry.name.str() + "=" + str(entry.value, module);
  }
  manifest.state.globalBatchSize = module.findDim("B")->size;
  manifest.state.seqLen = module.findDim("S")->size;
  return manifest;
}

/// `a=1, b=[2, 3]` as `a=1` and `b=[2, 3]`.
static std::vector<std::string> fieldsOf(StringRef config) {
  std::vector<std::string> fields;
  while (!config.empty()) {
    auto [part, rest] = config.split(", ");
    if (part.contains('=') || fields.empty()) {
      fields.push_back(part.str());
    } else {
      fields.back() += (", " + part).str();
    }
    config = rest;
  }
  return fields;
}

std::string hp::modelDifference(const Manifest &saved,
                                const Manifest &configured) {
  if (saved.model != configured.model) {
    return "'" + saved.model + "', not '" + configured.model + "'";
  }
  auto have = fieldsOf(saved.config), want = fieldsOf(configured.config);
  size_t common = std::min(have.size(), want.size());
  for (size_t i = 0; i < std::max(have.size(), want.size()); ++i) {
    if (i >= common || have[i] != want[i]) {
      return (i < have.size() ? have[i] : "nothing") + ", not " +
             (i < want.size() ? want[i] : "nothing");
    }
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Renames `from` to `to`, where another folder may be: the two change places
/// in one go. File systems that cannot do that have neither for a moment.
static std::error_code moveOver(const std::string &from,
                                const std::string &to) {
  if (!fs::exists(to)) {
    return fs::rename(from, to);
  }
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(),
                  RENAME_EXCHANGE) == 0) {
    return {};
  }
  if (errno != EINVAL && errno != ENOSYS) {
    return std::error_code(errno, std::generic_category());
  }
  std::string aside = from + ".replaced";
  std::error_code failure = fs::rename(to, aside);
  if (failure) {
    return failure;
  }
  failure = fs::rename(from, to);
  fs::rename(aside, failure ? to : from);
  return failure;
}

/// Puts the finished folder `from` in the place of `to`, and removes what was
/// there.
static bool replaceFolder(const std::string &from, const std::string &to,
                          DiagnosticEngine &diag) {
  if (std::error_code failure = moveOver(from, to)) {
    return diag.error(diag.location(to, 0, 0))
           << "cannot put the checkpoint in its place: " << failure.message();
  }
  if (!syncFolder(path::parent_path(to), diag)) {
    return false;
  }
  fs::remove_directories(from);
  return true;
}

bool hp::checkCheckpointFolder(StringRef folder, DiagnosticEngine &diag) {
  // Dropped before anything is written to it.
  return createFolder(folder, diag) &&
         AtomicFile::create(join(folder, "writable"), diag) != nullptr;
}

static std::vector<SafetensorsItem> momentItems(const WholeParameters &whole) {
  std::vector<SafetensorsItem> items;
  for (auto [index, parameter] : llvm::enumerate(whole.description().all())) {
    if (parameter.expAvg.defined()) {
      FileDType dtype = fileDType(parameter.expAvg.scalar_type());
      items.push_back(gatheredItem("exp_avg." + parameter.name, whole, index,
                                   &StoredParameter::expAvg, dtype));
      items.push_back(gatheredItem("exp_avg_sq." + parameter.name, whole, index,
                                   &StoredParameter::expAvgSq, dtype));
    }
  }
  return items;
}

std::string hp::saveCheckpoint(StringRef folder, const WholeParameters &whole,
                               const CheckpointKeys &keys, Manifest manifest,
                               DiagnosticEngine &diag) {
  std::string name;
  llvm::raw_string_ostream(name)
      << stepPrefix << llvm::format("%08lld", (long long)manifest.state.step);
  std::string target = join(folder, name);
  std::string temporary = join(
      folder, "." + name + "." +
                  std::to_string(llvm::sys::Process::getProcessId()) + ".tmp");
  const KeySpelling *spelling = keys.find(manifest.format.spelling);
  spelling = spelling ? spelling : &keys.spellings.front();
  manifest.format.spelling = spelling->name;

  // Training state keeps the run's own precision, whatever the weights came
  // from.
  WeightFormat own;
  const ParameterStore &store = whole.description();
  FileDType dtype = fileDType(store.all().front().value.scalar_type());
  std::vector<SafetensorsItem> moments = momentItems(whole);
  manifest.hasOptimizer = !moments.empty();
  manifest.updates = store.updates;

  // Processes that do not write take the same path.
  bool writes = whole.isWriter();
  bool ok =
      whole.allAgree(!writes || createFolder(temporary, diag)) &&
      writeGathered(join(temporary, "model.safetensors"),
                    weightItems(whole, *spelling, own, dtype), whole, diag) &&
      (moments.empty() ||
       writeGathered(join(temporary, "optimizer.safetensors"), moments, whole,
                     diag)) &&
      whole.allAgree(!writes ||
                     (writeAtomically(join(temporary, "manifest.json"),
                                      manifestText(manifest), diag) &&
                      replaceFolder(temporary, target, diag)));
  if (!ok) {
    if (writes) {
      fs::remove_directories(temporary);
    }
    return {};
  }
  return target;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

std::string hp::latestCheckpoint(StringRef folder) {
  std::string best;
  uint64_t bestStep = 0;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; it != end && !failure;
       it.increment(failure)) {
    StringRef name = path::filename(it->path());
    uint64_t step;
    if (name.consume_front(stepPrefix) && !name.getAsInteger(10, step) &&
        fs::exists(join(it->path(), "manifest.json")) &&
        (best.empty() || step > bestStep)) {
      best = it->path();
      bestStep = step;
    }
  }
  return best;
}

std::optional<Manifest> hp::readManifest(StringRef path,
                                         DiagnosticEngine &diag) {
  std::string file = join(path, "manifest.json");
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer) {
    diag.error(diag.location(file, 0, 0))
        << "cannot read the checkpoint's manifest: "
        << buffer.getError().message();
    return std::nullopt;
  }
  return parseManifest((*buffer)->getBuffer(), file, diag);
}

/// Reads `exp_avg.*` and `exp_avg_sq.*`.
static bool loadMoments(StringRef file,
                        llvm::MutableArrayRef<ParameterStore> stores,
                        DiagnosticEngine &diag) {
  const ParameterStore &store = stores[0];
  std::unique_ptr<SafetensorsFile> moments = SafetensorsFile::open(file, diag);
  if (!moments) {
    return false;
  }
  Location loc = diag.location(file, 0, 0);
  if (moments->entries().size() != 2 * store.all().size()) {
    return diag.error(loc) << "holds " << moments->entries().size()
                           << " tensors; two moments of " << store.all().size()
                           << " parameters are expected";
  }
  auto read = [&](const std::string &name, unsigned index,
                  at::Tensor StoredParameter::*which) {
    const StoredParameter &parameter = store.all()[index];
    const SafetensorsEntry *entry = moments->find(name);
    if (!entry) {
      return bool(diag.error(loc) << "tensor '" << name << "' is missing");
    }
    FileDType dtype = fileDType(parameter.value.scalar_type());
    if (entry->dtype != dtype) {
      return bool(diag.error(loc)
                  << "tensor '" << name << "' is "
                  << fileDTypeName(entry->dtype) << ", and its parameter "
                  << fileDTypeName(dtype));
    }
    const Extents &shape = parameter.placement.wholeShape;
    if (llvm::ArrayRef<int64_t>(entry->shape) !=
        llvm::ArrayRef<int64_t>(shape)) {
      return bool(diag.error(loc) << "tensor '" << name
                                  << "' has another shape than its parameter");
    }
    at::Tensor whole = at::empty(at::IntArrayRef(shape.data(), shape.size()),
                                 parameter.value.options());
    if (whole.nbytes()) {
      std::memcpy(whole.mutable_data_ptr(), moments->bytes(*entry).data(),
                  whole.nbytes());
    }
    for (ParameterStore &each : stores) {
      StoredParameter &mine = each.all()[index];
      mine.*which = cutPiece(whole, mine.placement);
    }
    return true;
  };
  for (auto [index, parameter] : llvm::enumerate(store.all())) {
    if (!read("exp_avg." + parameter.name, index, &StoredParameter::expAvg) ||
        !read("exp_avg_sq." + parameter.name, index,
              &StoredParameter::expAvgSq)) {
      return false;
    }
  }
  return true;
}

std::optional<Manifest>
hp::loadCheckpoint(StringRef path, llvm::MutableArrayRef<ParameterStore> stores,
                   const CheckpointKeys &keys, llvm::ArrayRef<TiedKey> ties,
                   DiagnosticEngine &diag) {
  std::optional<Manifest> manifest = readManifest(path, diag);
  if (!manifest ||
      !loadWeights(stores, join(path, "model.safetensors"), keys, ties, diag) ||
      (manifest->hasOptimizer &&
       !loadMoments(join(path, "optimizer.safetensors"), stores, diag))) {
    return std::nullopt;
  }
  for (ParameterStore &store : stores) {
    store.updates = manifest->updates;
  }
  return manifest;
}
