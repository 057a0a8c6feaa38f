//===- NcclPlugin.cpp - Loads libhp_nccl.so -------------------------------===//
//
// The plugin lies beside the program or in ../lib. It is loaded when NCCL is
// asked for and not before: it brings the CUDA half of LibTorch with it, half a
// gigabyte that a run on CPUs never maps.
//
//===----------------------------------------------------------------------===//

#include "MessageBackend.h"
#include "hp/Runtime/ProcessCommunicator.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <dlfcn.h>

using namespace hp;

/// The plugin, or null with an error. It stays loaded.
static const NcclPlugin *loadPlugin(DiagnosticEngine &diag) {
  static const char fileName[] = "libhp_nccl.so";
  static int anchor;
  llvm::SmallString<128> folder(
      llvm::sys::fs::getMainExecutable("hp-run", &anchor));
  llvm::sys::path::remove_filename(folder);
  llvm::SmallString<128> path(folder);
  llvm::sys::path::append(path, fileName);
  if (!llvm::sys::fs::exists(path)) {
    path = folder;
    llvm::sys::path::append(path, "..", "lib", fileName);
  }
  if (!llvm::sys::fs::exists(path)) {
    diag.error() << "this build has no " << fileName
                 << ", which runs on GPUs need: the CUDA and NCCL headers were "
                    "not found when it was configured";
    return nullptr;
  }
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    diag.error() << "cannot load " << fileName << ": " << dlerror();
    return nullptr;
  }
  auto get =
      reinterpret_cast<const NcclPlugin *(*)()>(dlsym(library, "hpNcclPlugin"));
  const NcclPlugin *plugin = get ? get() : nullptr;
  if (!plugin || llvm::StringRef(plugin->version) != HP_VERSION) {
    diag.error() << path << " is of another build of hp than this program";
    return nullptr;
  }
  return plugin;
}

/// The plugin, if it can be used here; else null with an error.
static const NcclPlugin *usablePlugin(DiagnosticEngine &diag) {
  const NcclPlugin *plugin = loadPlugin(diag);
  if (!plugin) {
    return nullptr;
  }
  std::string why = plugin->unavailable();
  if (!why.empty()) {
    diag.error() << "no GPU can be used: " << why;
    return nullptr;
  }
  return plugin;
}

bool hp::checkNccl(DiagnosticEngine &diag) {
  return usablePlugin(diag) != nullptr;
}

std::unique_ptr<MessageBackend>
hp::makeNcclBackend(const ProcessOptions &options, DiagnosticEngine &diag) {
  const NcclPlugin *plugin = usablePlugin(diag);
  return std::unique_ptr<MessageBackend>(
      plugin ? plugin->make(options.place.localRank, options.trainTimeout)
             : nullptr);
}
