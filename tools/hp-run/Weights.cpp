//===- Weights.cpp - hp-run import and export -----------------------------===//

#include "Commands.h"
#include "hp/Runtime/Checkpoint.h"
#include "hp/Runtime/Run.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace hp;

int hp::runImport(const ConfigArguments &arguments, const std::string &source,
                  const std::string &folder, DiagnosticEngine &diag) {
  // Files hold whole tensors, whatever the layout.
  std::optional<Run> run =
      prepareRun(arguments.config, arguments.overrides, arguments.plan,
                 /*worldSize=*/std::nullopt, diag);
  if (!run) {
    return 1;
  }
  ParameterStore store = ParameterStore::whole(*run->step);
  std::optional<WeightFormat> format =
      loadWeights(store, source, run->keys, run->ties, diag);
  if (!format) {
    return 1;
  }
  Manifest manifest = manifestOf(*run->step);
  manifest.format = *format;
  std::string path =
      saveCheckpoint(folder, WholeParameters(store), run->keys, manifest, diag);
  if (path.empty()) {
    return 1;
  }
  llvm::outs() << "read " << format->dtypes.size() << " tensors with '"
               << format->spelling << "' keys";
  if (format->skipped) {
    llvm::outs() << ", skipped " << format->skipped
                 << " that are not of the text model";
  }
  llvm::outs() << "\nwritten " << path << "\n";
  return 0;
}

int hp::runExport(const ConfigArguments &arguments, const ExportArguments &how,
                  DiagnosticEngine &diag) {
  // Files hold whole tensors, whatever the layout.
  std::optional<Run> run =
      prepareRun(arguments.config, arguments.overrides, arguments.plan,
                 /*worldSize=*/std::nullopt, diag);
  if (!run) {
    return 1;
  }
  std::string checkpoint = how.checkpoint;
  llvm::SmallString<128> manifestPath(checkpoint);
  llvm::sys::path::append(manifestPath, "manifest.json");
  if (!llvm::sys::fs::exists(manifestPath)) {
    std::string latest = latestCheckpoint(checkpoint);
    checkpoint = latest.empty() ? checkpoint : latest;
  }
  llvm::SmallString<128> overwritten(how.folder);
  llvm::sys::path::append(overwritten, "manifest.json");
  if (llvm::sys::fs::exists(overwritten)) {
    diag.error(diag.location(how.folder, 0, 0))
        << "the folder is a checkpoint of hp, whose weights an export would "
           "replace; choose another";
    return 1;
  }
  ParameterStore store = ParameterStore::whole(*run->step);
  std::optional<Manifest> manifest =
      loadCheckpoint(checkpoint, store, run->keys, run->ties, diag);
  if (!manifest) {
    return 1;
  }
  WeightFormat format = manifest->format;
  FileDType otherwise = fileDType(store.all().front().value.scalar_type());
  if (how.dtype != "source") {
    format.dtypes.clear();
    otherwise = how.dtype == "bfloat16" ? FileDType::BF16 : FileDType::F32;
    for (const StoredParameter &parameter : store.all()) {
      if (run->keys.keepsFloat32(parameter.name)) {
        format.dtypes.push_back({parameter.name, FileDType::F32});
      }
    }
  }
  const KeySpelling *spelling =
      run->keys.find(how.keys.empty() ? format.spelling : how.keys);
  if (!spelling) {
    llvm::SmallVector<llvm::StringRef> names;
    for (const KeySpelling &known : run->keys.spellings) {
      names.push_back(known.name);
    }
    diag.error() << "the model has no spelling of keys '"
                 << (how.keys.empty() ? format.spelling : how.keys)
                 << "'; it has " << llvm::join(names, ", ");
    return 1;
  }
  if (spelling->name != manifest->format.spelling) {
    format.tied.clear();
  }
  WholeParameters whole(store);
  if (!writeShardedCheckpoint(how.folder,
                              weightItems(whole, *spelling, format, otherwise),
                              {{"format", "pt"}}, how.maxShardBytes, diag)) {
    return 1;
  }
  llvm::outs() << "exported " << checkpoint << " to " << how.folder << "\n";
  return 0;
}
