//===- Run.cpp - A run, ready to start ------------------------------------===//

#include "hp/Runtime/Run.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassManager.h"
#include "hp/Spec/Import.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace hp;
using llvm::StringRef;

/// Compiles `module` to stage step.
static bool compile(Module &module, DiagnosticEngine &diag) {
  PassManager manager;
  return addPassesTo(Stage::Step, module, manager, diag) &&
         manager.run(module, diag);
}

/// Reads the plan at `path`.
static std::unique_ptr<Module> readPlan(StringRef path,
                                        DiagnosticEngine &diag) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer) {
    diag.error(diag.location(path, 0, 0))
        << "cannot read the plan: " << buffer.getError().message();
    return nullptr;
  }
  StringRef text = (*buffer)->getBuffer();
  diag.addBuffer(path, text);
  std::unique_ptr<Module> module = parseModule(text, path, diag);
  if (!module || !verify(*module, diag)) {
    return nullptr;
  }
  return module;
}

bool hp::checkOutputPath(const RunConfig &config, StringRef path, Location loc,
                         DiagnosticEngine &diag) {
  std::string data = config.data.path->empty()
                         ? std::string()
                         : resolveInputPath(config, config.data.path);
  for (StringRef input : {StringRef(config.path), StringRef(data)}) {
    bool same = false;
    if (!input.empty() && !llvm::sys::fs::equivalent(input, path, same) &&
        same) {
      return diag.error(loc) << "'" << path
                             << "' is a file that this run reads; writing it "
                                "would destroy it";
    }
  }
  return true;
}

/// Refuses a layout of several ranks where one runs, with what to do about it.
static bool checkSingleRank(const RunConfig &config, DiagnosticEngine &diag) {
  std::optional<ParallelDegrees> degrees =
      resolveParallelism(config, std::nullopt, diag);
  if (!degrees || degrees->worldSize() == 1) {
    return degrees.has_value();
  }
  int64_t ranks = degrees->worldSize();
  return diag.error(config.parallelism.loc)
         << "the parallel degrees ask for " << ranks
         << " ranks, but one runs; --nproc=" << ranks
         << " starts a process for each, --simulate-ranks=" << ranks
         << " computes all in one";
}

std::optional<Run> hp::prepareRun(StringRef configPath,
                                  llvm::ArrayRef<std::string> overrides,
                                  StringRef planPath,
                                  std::optional<int64_t> worldSize,
                                  DiagnosticEngine &diag) {
  Run run;
  std::optional<RunConfig> config = loadRunConfig(configPath, overrides, diag);
  if (!config) {
    return std::nullopt;
  }
  run.config = std::move(*config);
  if (worldSize == 1 && !checkSingleRank(run.config, diag)) {
    return std::nullopt;
  }
  std::vector<std::string> folders = modelFolders();
  std::optional<ModelSpec> spec = readModelSpec(run.config, folders, diag);
  if (!spec) {
    return std::nullopt;
  }
  run.keys = spec->checkpoint;
  run.step = importRun(run.config, folders, diag, worldSize);
  if (!run.step || !verify(*run.step, diag) || !compile(*run.step, diag)) {
    return std::nullopt;
  }
  if (!planPath.empty()) {
    std::unique_ptr<Module> plan = readPlan(planPath, diag);
    if (!plan || (plan->stage != Stage::Step && !compile(*plan, diag)) ||
        !checkPlanFits(*plan, *run.step, run.config, diag)) {
      return std::nullopt;
    }
    run.step = std::move(plan);
  }
  for (const Tie &tie : run.step->ties) {
    run.ties.push_back({tie.alias.str(), tie.target.str()});
  }
  return run;
}
