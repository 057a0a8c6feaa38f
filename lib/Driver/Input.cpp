//===- Input.cpp - From what a user names to a module ---------------------===//

#include "hp/Driver/Input.h"
#include "hp/IR/Text.h"
#include "hp/Spec/Import.h"
#include "hp/Spec/RunConfig.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Files
//===----------------------------------------------------------------------===//

std::unique_ptr<llvm::MemoryBuffer> hp::readInput(StringRef path,
                                                  DiagnosticEngine &diag) {
  auto fail = [&](const llvm::Twine &why) {
    diag.error() << "cannot read '" << path << "': " << why.str();
    return nullptr;
  };
  if (path != "-") {
    llvm::sys::fs::file_status status;
    if (std::error_code error = llvm::sys::fs::status(path, status)) {
      return fail(error.message());
    }
    if (status.type() == llvm::sys::fs::file_type::directory_file) {
      return fail("it is a folder");
    }
    // Devices may never end.
    if (status.type() == llvm::sys::fs::file_type::character_file ||
        status.type() == llvm::sys::fs::file_type::block_file) {
      return fail("it is a device");
    }
  }
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  return buffer ? std::move(*buffer) : fail(buffer.getError().message());
}

//===----------------------------------------------------------------------===//
// Kinds of input
//===----------------------------------------------------------------------===//

/// IR begins with a comment of its own or with `model` and no colon after it;
/// what is broken from the first word on is told by the name of the file.
static bool isIR(StringRef text, StringRef file) {
  text = text.ltrim();
  if (text.starts_with("//")) {
    return true;
  }
  if (text.consume_front("model")) {
    text = text.ltrim(" \t");
    return !text.starts_with(":");
  }
  return file.ends_with(".hp");
}

/// The sections of a run configuration.
static std::vector<std::string> runSections() {
  std::vector<std::string> sections;
  for (const std::string &key : runConfigKeys()) {
    std::string section = StringRef(key).split('.').first.str();
    if (sections.empty() || sections.back() != section) {
      sections.push_back(section);
    }
  }
  return sections;
}

std::optional<InputKind> hp::classifyInput(StringRef text, StringRef file,
                                           DiagnosticEngine &diag) {
  if (isIR(text, file)) {
    return InputKind::IR;
  }
  std::optional<Node> root =
      parseDocument(text, diag.location(file, 1, 1), diag);
  if (!root) {
    return std::nullopt;
  }
  if (const Node *model = root->find("model");
      model && model->isScalar() && !root->find("training")) {
    return InputKind::ModelSpec;
  }
  if (root->find("modules") || root->find("flavors")) {
    return InputKind::ModelSpec;
  }
  for (const std::string &section : runSections()) {
    if (root->find(section)) {
      return InputKind::RunConfig;
    }
  }
  diag.error(diag.location(file, 0, 0))
      << "this is none of what hp-opt reads: IR, which begins with 'model "
         "\"name\"', a model spec, which has 'modules', or a run "
         "configuration, which has a section 'model'";
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

/// `hidden_size=64` and `config.hidden_size=64` as overrides of a run.
static std::string asRunOverride(StringRef text) {
  StringRef key = text.take_until([](char c) { return c == '='; });
  if (key.starts_with("config.")) {
    return ("model." + text).str();
  }
  return key.contains('.') || key.size() == text.size()
             ? text.str()
             : ("model.config." + text).str();
}

static std::string assignment(StringRef key, StringRef value) {
  std::string text = (key + "=").str();
  llvm::raw_string_ostream stream(text);
  printScalar(value, stream);
  return text;
}

static std::optional<LoadedModule> loadSpec(StringRef text, StringRef file,
                                            const InputOptions &options,
                                            DiagnosticEngine &diag) {
  std::vector<std::string> overrides;
  for (const std::string &text : options.overrides) {
    overrides.push_back(asRunOverride(text));
  }
  // The run of a spec alone: defaults, and what the command line says.
  overrides.push_back(assignment("model.spec", file));
  if (!options.flavor.empty()) {
    overrides.push_back(assignment("model.flavor", options.flavor));
  }
  std::optional<ModelSpec> spec = parseModelSpec(text, file, diag);
  std::optional<RunConfig> run =
      parseRunConfig("{}", "<defaults>", overrides, diag);
  if (!spec || !run) {
    return std::nullopt;
  }
  const Node *config = &*run->model.config;
  std::unique_ptr<Module> module =
      importModel(*spec, *run->model.flavor, config, &*run, diag);
  if (!module) {
    return std::nullopt;
  }
  return LoadedModule{std::move(module), std::move(spec)};
}

static std::optional<LoadedModule> loadRun(StringRef text, StringRef file,
                                           const InputOptions &options,
                                           DiagnosticEngine &diag) {
  std::vector<std::string> overrides = options.overrides;
  if (!options.flavor.empty()) {
    overrides.push_back(assignment("model.flavor", options.flavor));
  }
  std::optional<RunConfig> run = parseRunConfig(text, file, overrides, diag);
  if (!run) {
    return std::nullopt;
  }
  LoadedModule loaded;
  loaded.module = importRun(*run, modelFolders(), diag);
  if (!loaded.module) {
    return std::nullopt;
  }
  if (options.wantsSpec) {
    loaded.spec = readModelSpec(*run, modelFolders(), diag);
  }
  return loaded;
}

std::optional<LoadedModule> hp::loadModule(StringRef text, StringRef file,
                                           InputKind kind,
                                           const InputOptions &options,
                                           DiagnosticEngine &diag) {
  if (kind == InputKind::ModelSpec) {
    return loadSpec(text, file, options, diag);
  }
  if (kind == InputKind::RunConfig) {
    return loadRun(text, file, options, diag);
  }
  if (!options.flavor.empty() || !options.overrides.empty()) {
    diag.error(diag.location(file, 0, 0))
        << (options.flavor.empty() ? "'--set'" : "'--flavor'")
        << " is for model specs and run configurations; this is IR, in which "
           "all is said";
    return std::nullopt;
  }
  LoadedModule loaded;
  loaded.module = parseModule(text, file, diag);
  if (!loaded.module) {
    return std::nullopt;
  }
  return loaded;
}
