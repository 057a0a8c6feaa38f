//===- OptDriver.cpp - What hp-opt does with its input --------------------===//

#include "hp/Driver/OptDriver.h"
#include "hp/Analysis/Parameters.h"
#include "hp/Analysis/PlanStats.h"
#include "hp/Analysis/Views.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassReports.h"
#include "hp/Passes/RoundTrip.h"
#include "hp/Support/SplitInput.h"
#include "hp/Support/VerifyDiagnostics.h"

using namespace hp;
using llvm::StringRef;

namespace {
/// One module on its way.
class OptRun {
public:
  OptRun(const OptOptions &options, IRPrinter &printer, Timing &timing,
         DiagnosticEngine &diag)
      : options(options), printer(printer), timing(timing), diag(diag) {}

  bool run(StringRef text, StringRef file, llvm::raw_ostream &out);

private:
  bool load(StringRef text, StringRef file);
  bool check();
  bool runPasses();
  bool output(llvm::raw_ostream &out);
  bool outputPlacement(llvm::raw_ostream &out);
  void noteDeclarations();
  const std::string *declarationOf(const Param &param) const;
  bool needsStage(Stage first, StringRef flag);

  const OptOptions &options;
  IRPrinter &printer;
  Timing &timing;
  DiagnosticEngine &diag;
  LoadedModule loaded;
  /// What the spec declares of the placement of parameters; shard-annotate
  /// drops it from the module.
  struct Declaration {
    std::string param; ///< in a template, its name there
    Location loc;
    std::string text;
  };
  std::vector<Declaration> declarations;
};
} // namespace

bool OptRun::load(StringRef text, StringRef file) {
  diag.addBuffer(file, text);
  std::optional<InputKind> kind = classifyInput(text, file, diag);
  if (!kind) {
    return false;
  }
  TimedScope scope(timing, *kind == InputKind::IR ? "Parser" : "Import");
  auto module = loadModule(text, file, *kind, options.input, diag);
  if (module) {
    loaded = std::move(*module);
    noteDeclarations();
  }
  return module.has_value();
}

/// The proofs, and the round trip, of what was read.
bool OptRun::check() {
  {
    TimedScope scope(timing, "Verifier");
    if (!verify(*loaded.module, diag)) {
      return false;
    }
  }
  if (!options.verifyRoundTrip) {
    return true;
  }
  TimedScope scope(timing, "Round trip");
  return checkRoundTrip(*loaded.module, "the input", diag);
}

bool OptRun::runPasses() {
  PassManager manager;
  manager.verifyEach(options.verifyEach);
  if (!parsePipeline(options.pipeline, manager, diag)) {
    return false;
  }
  if (options.compileTo &&
      !addPassesTo(*options.compileTo, *loaded.module, manager, diag)) {
    return false;
  }
  if (options.dumpPipeline) {
    size_t count = manager.list().size();
    llvm::errs() << "Pass Manager with " << count
                 << (count == 1 ? " pass:\n" : " passes:\n")
                 << manager.spelling() << '\n';
  }
  PassTimer timer(timing);
  RoundTripChecker roundTrip(diag);
  manager.observe(&timer);
  if (options.irPrinting.any()) {
    manager.observe(&printer);
  }
  if (options.verifyRoundTrip) {
    manager.observe(&roundTrip);
  }
  bool ok = manager.run(*loaded.module, diag);
  if (options.statistics) {
    printStatistics(manager, llvm::errs());
  }
  return ok;
}

bool OptRun::output(llvm::raw_ostream &out) {
  TimedScope scope(timing, "Output");
  Module &module = *loaded.module;
  if (!options.hasView()) {
    print(module, out, options.print);
    return true;
  }
  if (options.planStats) {
    print(planStats(module), out);
  }
  if (options.planStatsJson) {
    printJson(planStats(module), out);
  }
  if (options.parameters) {
    const KeySpelling *keys =
        loaded.spec && !loaded.spec->checkpoint.spellings.empty()
            ? &loaded.spec->checkpoint.spellings.front()
            : nullptr;
    auto keyOf = [&](StringRef name) { return keys->keyOf(name); };
    using KeyOf = llvm::function_ref<std::string(StringRef)>;
    printParameters(module, out, keys ? KeyOf(keyOf) : KeyOf());
  }
  if (!outputPlacement(out)) {
    return false;
  }
  if (options.foldRepeats) {
    printFolded(module, out, options.print);
  }
  return options.expandLayers.empty() ||
         printLayers(module, options.expandLayers, out, diag, options.print);
}

bool OptRun::run(StringRef text, StringRef file, llvm::raw_ostream &out) {
  return load(text, file) && check() && runPasses() && output(out);
}

//===----------------------------------------------------------------------===//
// Views of where things are
//===----------------------------------------------------------------------===//

/// `replicated`, `{0: tp}`, or `nothing`.
static std::string declarationText(const Param &param) {
  if (!param.declared) {
    return "nothing";
  }
  if (param.declared->empty()) {
    return "replicated";
  }
  std::string text;
  for (const Param::Cut &cut : *param.declared) {
    text += (text.empty() ? "" : ", ") + std::to_string(cut.dim) + ": " +
            cut.axis.str();
  }
  return "{" + text + "}";
}

void OptRun::noteDeclarations() {
  const Module &module = *loaded.module;
  if (module.stage != Stage::Spec) {
    return;
  }
  auto note = [&](const Param *param) {
    declarations.push_back(
        {param->name.str(), param->loc, declarationText(*param)});
  };
  for (const auto &block : module.blocks) {
    llvm::for_each(block->params, note);
  }
  for (const Member &member : module.members) {
    if (member.param) {
      note(member.param);
    }
  }
}

/// Passes copy parameters and give them the full names of their layers; the
/// place in the spec stays.
const std::string *OptRun::declarationOf(const Param &param) const {
  for (const Declaration &declaration : declarations) {
    StringRef rest = param.name;
    if (declaration.loc == param.loc && rest.consume_back(declaration.param) &&
        (rest.empty() || rest.ends_with("."))) {
      return &declaration.text;
    }
  }
  return nullptr;
}

/// Views of placement on many ranks need placements.
bool OptRun::needsStage(Stage first, StringRef flag) {
  const Module &module = *loaded.module;
  return module.stage >= first || module.mesh.numAxes() == 0 ||
         diag.error() << "'" << flag
                      << "' shows what passes place, and the module is at "
                      << "stage '" << name(module.stage)
                      << "'; add --compile-to=" << name(first)
                      << " or of a later stage";
}

bool OptRun::outputPlacement(llvm::raw_ostream &out) {
  Module &module = *loaded.module;
  if (options.gradReductions) {
    if (!needsStage(Stage::Annotated, "--print-grad-reductions")) {
      return false;
    }
    printGradReductions(module, out);
  }
  if (options.shardingOrigins) {
    if (!needsStage(Stage::TP, "--print-sharding-origins")) {
      return false;
    }
    printShardingOrigins(
        module, out, [&](const Param &param) { return declarationOf(param); });
  }
  if (!options.shardMap.empty() &&
      (!needsStage(Stage::Annotated, "--print-shard-map") ||
       !printShardMap(module, options.shardMap, out, diag))) {
    return false;
  }
  return !options.schedule ||
         printSchedule(module, options.scheduleRank, out, diag);
}

//===----------------------------------------------------------------------===//
// Pieces
//===----------------------------------------------------------------------===//

bool hp::runOpt(StringRef text, StringRef file, const OptOptions &options,
                llvm::raw_ostream &out, Timing &timing) {
  DiagnosticEngine common;
  std::vector<std::string> pieces;
  if (options.splitInput) {
    common.addBuffer(file, text);
    auto split = splitInput(text, file, common);
    if (!split) {
      return false;
    }
    pieces = std::move(*split);
  } else {
    pieces.push_back(text.str());
  }

  IRPrinter printer(options.irPrinting, llvm::errs(), common);
  bool ok = true;
  for (const std::string &piece : pieces) {
    if (&piece != &pieces.front()) {
      out << splitMarker << '\n';
    }
    DiagnosticEngine diag;
    OptRun run(options, printer, timing, diag);
    if (!options.verifyDiagnostics) {
      ok &= run.run(piece, file, out);
      continue;
    }
    DiagnosticVerifier verifier(piece, file, llvm::errs());
    diag.setHandler(
        [&](const Diagnostic &diagnostic) { verifier.check(diagnostic); });
    run.run(piece, file, out);
    ok &= verifier.finish();
  }
  return ok;
}
