//===- ModelFolders.cpp - Finding model specs by name ---------------------===//

#include "FieldValues.h"
#include "hp/Spec/Import.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace hp;
using llvm::StringRef;
namespace path = llvm::sys::path;

std::vector<std::string> hp::modelFolders() {
  return {"models", HP_MODELS_FOLDER};
}

/// The names of the specs in `folder`, sorted.
static std::vector<std::string> specNames(StringRef folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator it(folder, error), end;
       it != end && !error; it.increment(error)) {
    if (path::extension(it->path()) == ".yaml") {
      names.push_back(path::stem(it->path()).str());
    }
  }
  llvm::sort(names);
  return names;
}

static std::string specPath(StringRef folder, StringRef name) {
  llvm::SmallString<128> file(folder);
  path::append(file, name + ".yaml");
  return file.str().str();
}

std::optional<std::string>
hp::findModelSpec(StringRef name, llvm::ArrayRef<std::string> folders,
                  Location loc, DiagnosticEngine &diag) {
  std::vector<std::string> known;
  for (const std::string &folder : folders) {
    for (const std::string &candidate : specNames(folder)) {
      if (candidate == name) {
        return specPath(folder, name);
      }
      if (!llvm::is_contained(known, candidate)) {
        known.push_back(candidate);
      }
    }
  }
  std::vector<StringRef> names(known.begin(), known.end());
  auto error = diag.error(loc);
  error << "there is no model spec " << quoteForMessage(name);
  suggest(error, name, names, "model specs");
  return std::nullopt;
}

std::optional<std::vector<ModelListing>>
hp::listModels(StringRef folder,
               llvm::function_ref<uint64_t(Module &)> countParameters,
               DiagnosticEngine &diag) {
  std::vector<ModelListing> models;
  for (const std::string &name : specNames(folder)) {
    ModelListing model;
    model.path = specPath(folder, name);
    std::optional<ModelSpec> spec = readModelSpec(model.path, diag);
    if (!spec) {
      return std::nullopt;
    }
    model.name = spec->name;
    std::vector<StringRef> flavors;
    for (const Flavor &flavor : spec->flavors) {
      flavors.push_back(flavor.name);
    }
    if (flavors.empty()) {
      flavors.push_back("");
    }
    for (StringRef flavor : flavors) {
      auto module = importModel(*spec, flavor, {}, nullptr, diag);
      if (!module) {
        return std::nullopt;
      }
      model.flavors.push_back({flavor.str(), countParameters(*module)});
    }
    models.push_back(std::move(model));
  }
  return models;
}
