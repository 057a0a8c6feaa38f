//===- hp-opt.cpp - Shows, checks and compiles models ---------------------===//
//
// Reads the command line, and nothing else; what hp-opt does is in
// lib/Driver/OptDriver.cpp.
//
//===----------------------------------------------------------------------===//

#include "hp/Driver/OptDriver.h"
#include "hp/Support/Debug.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Process.h"

using namespace hp;
using llvm::StringRef;
namespace cl = llvm::cl;

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

static cl::OptionCategory inputCategory("Input");
static cl::OptionCategory passCategory("Passes");
static cl::OptionCategory checkCategory("Checks");
static cl::OptionCategory outputCategory("Output");
static cl::OptionCategory
    reportCategory("Reports on the way, to standard error");
static cl::OptionCategory listCategory("Lists");

static cl::opt<std::string>
    inputName(cl::Positional, cl::init("-"), cl::cat(inputCategory),
              cl::desc("<model spec, run configuration or IR>"));
static cl::opt<std::string> flavor("flavor", cl::cat(inputCategory),
                                   cl::value_desc("name"),
                                   cl::desc("Flavor of the model spec"));
static cl::list<std::string>
    sets("set", cl::cat(inputCategory), cl::value_desc("key=value"),
         cl::desc("Override a value: section.key of a run configuration, a "
                  "field of the config of a model spec"));
static cl::opt<bool>
    splitInputFile("split-input-file", cl::cat(inputCategory),
                   cl::desc("Take each piece between lines '// -----' as an "
                            "input of its own"));

static cl::opt<std::string> passPipeline("pass-pipeline", cl::cat(passCategory),
                                         cl::value_desc("a,b{option=value}"),
                                         cl::desc("Run these passes"));
static cl::opt<std::string>
    compileTo("compile-to", cl::cat(passCategory), cl::value_desc("stage"),
              cl::desc("Run the passes that lead to a stage"));
static cl::opt<bool>
    dumpPassPipeline("dump-pass-pipeline", cl::cat(passCategory),
                     cl::desc("Print the pipeline to standard error"));

static cl::opt<bool>
    verifyEach("verify-each", cl::init(true), cl::cat(checkCategory),
               cl::desc("Verify after each pass (default: true)"));
static cl::opt<bool>
    verifyDiagnostics("verify-diagnostics", cl::cat(checkCategory),
                      cl::desc("Compare diagnostics with the 'expected-error "
                               "{{...}}' lines of the input"));
static cl::opt<bool> verifyRoundTrip(
    "verify-roundtrip", cl::cat(checkCategory),
    cl::desc("Print and read back the input and the result of each pass (also: "
             "the environment variable HP_OPT_CHECK_IR_ROUNDTRIP)"));

static cl::opt<std::string> outputName("o", cl::init("-"),
                                       cl::cat(outputCategory),
                                       cl::value_desc("file"),
                                       cl::desc("Where to print (default: "
                                                "standard output)"));
static cl::opt<bool> printDebugInfo("print-debuginfo", cl::cat(outputCategory),
                                    cl::desc("Print locations"));
static cl::opt<bool>
    printLocalShapes("print-local-shapes", cl::cat(outputCategory),
                     cl::desc("Print the shapes on one rank, as comments"));
static cl::opt<std::string>
    printPlanStats("print-plan-stats", cl::ValueOptional,
                   cl::cat(outputCategory), cl::value_desc("json"),
                   cl::desc("Print what the plan costs instead of the module"));
static cl::opt<bool> printParameters(
    "print-parameters", cl::cat(outputCategory),
    cl::desc("Print every parameter and its checkpoint key instead of the "
             "module"));
static cl::opt<bool> printGradReductions(
    "print-grad-reductions", cl::cat(outputCategory),
    cl::desc("Print over which axes each gradient is summed, how and in which "
             "bucket, instead of the module"));
static cl::opt<bool> printShardingOrigins(
    "print-sharding-origins", cl::cat(outputCategory),
    cl::desc("Print why each parameter is placed as it is instead of the "
             "module"));
static cl::opt<std::string>
    printShardMap("print-shard-map", cl::cat(outputCategory),
                  cl::value_desc("parameter"),
                  cl::desc("Print what each rank stores of a parameter instead "
                           "of the module"));
static cl::opt<std::string> printSchedule(
    "print-schedule", cl::ValueOptional, cl::cat(outputCategory),
    cl::value_desc("rank"),
    cl::desc("Print the messages of a step in the order of issue instead of "
             "the module; of a rank with those it shares them with"));
static cl::list<int64_t>
    expandLayers("expand-layers", cl::CommaSeparated, cl::cat(outputCategory),
                 cl::value_desc("0,31"),
                 cl::desc("Print these layers instead of the module"));
static cl::opt<bool>
    foldRepeats("fold-repeats", cl::cat(outputCategory),
                cl::desc("Print a step with repeated layers once"));

static cl::opt<bool> printIRBeforeAll("print-ir-before-all",
                                      cl::cat(reportCategory),
                                      cl::desc("Print IR before each pass"));
static cl::opt<bool> printIRAfterAll("print-ir-after-all",
                                     cl::cat(reportCategory),
                                     cl::desc("Print IR after each pass"));
static cl::list<std::string> printIRBefore("print-ir-before",
                                           cl::CommaSeparated,
                                           cl::cat(reportCategory),
                                           cl::value_desc("passes"),
                                           cl::desc("Print IR before these"));
static cl::list<std::string> printIRAfter("print-ir-after", cl::CommaSeparated,
                                          cl::cat(reportCategory),
                                          cl::value_desc("passes"),
                                          cl::desc("Print IR after these"));
static cl::opt<bool>
    printIRAfterChange("print-ir-after-change", cl::cat(reportCategory),
                       cl::desc("Print IR after passes that change it"));
static cl::opt<bool>
    printIRAfterFailure("print-ir-after-failure", cl::cat(reportCategory),
                        cl::desc("Print IR after a pass that fails"));
static cl::opt<std::string>
    printIRTreeDir("print-ir-tree-dir", cl::cat(reportCategory),
                   cl::value_desc("folder"),
                   cl::desc("Print IR to numbered files in this folder"));
static cl::opt<bool> timing("timing", cl::cat(reportCategory),
                            cl::desc("Print where the time went"));
static cl::opt<bool> passStatistics("pass-statistics", cl::cat(reportCategory),
                                    cl::desc("Print what passes counted"));
static cl::opt<std::string> debugOnly("debug-only", cl::cat(reportCategory),
                                      cl::value_desc("types"),
                                      cl::desc("Print debug messages of these "
                                               "types, or of 'all'"));

static cl::opt<bool> listPassesFlag("list-passes", cl::cat(listCategory),
                                    cl::desc("List passes with their options"));
static cl::opt<bool> listOpsFlag("list-ops", cl::cat(listCategory),
                                 cl::desc("List the table of operations"));
static cl::opt<bool>
    listModelsFlag("list-models", cl::cat(listCategory),
                   cl::desc("List model specs, flavors and parameter counts"));

/// One flag for each pass: `--expand-step`, `--expand-step=option=value`. The
/// pipeline is made in the order of the command line.
static std::vector<std::unique_ptr<cl::opt<std::string>>>
makePassFlags(std::vector<std::string> &pipeline) {
  std::vector<std::unique_ptr<cl::opt<std::string>>> flags;
  for (const PassInfo &info : allPasses()) {
    std::string name = info.name;
    // Summaries are literals: they outlive the pass.
    StringRef summary = info.make()->summary();
    flags.push_back(std::make_unique<cl::opt<std::string>>(
        StringRef(info.name), cl::ValueOptional, cl::cat(passCategory),
        cl::value_desc("options"), cl::desc(summary),
        cl::callback([&pipeline, name](const std::string &options) {
          pipeline.push_back(options.empty() ? name
                                             : name + "{" + options + "}");
        })));
  }
  return flags;
}

//===----------------------------------------------------------------------===//
// From options to what the driver takes
//===----------------------------------------------------------------------===//

static bool readStage(StringRef text, std::optional<Stage> &stage,
                      DiagnosticEngine &diag) {
  stage = parseStage(text);
  if (stage) {
    return true;
  }
  InFlightDiagnostic report = diag.error();
  report << "unknown stage '" << text << "'";
  llvm::SmallVector<StringRef> names;
  for (Stage known = Stage::Spec; known <= Stage::Step;
       known = Stage(unsigned(known) + 1)) {
    names.push_back(name(known));
  }
  if (StringRef near = didYouMean(text, names); !near.empty()) {
    report.note({}, "did you mean '" + near + "'?");
  } else {
    report.note({}, "stages are " + llvm::join(names, ", "));
  }
  return report;
}

static bool readPipeline(llvm::ArrayRef<std::string> passFlags,
                         OptOptions &options, DiagnosticEngine &diag) {
  bool ways[] = {!passFlags.empty(), passPipeline.getNumOccurrences() > 0,
                 compileTo.getNumOccurrences() > 0};
  if (llvm::count(ways, true) > 1) {
    return diag.error() << "give passes in one way: by their flags, by "
                           "'--pass-pipeline' or by '--compile-to'";
  }
  if (ways[2]) {
    return readStage(compileTo, options.compileTo, diag);
  }
  options.pipeline = ways[1] ? passPipeline : llvm::join(passFlags, ",");
  PassManager manager;
  return parsePipeline(options.pipeline, manager, diag);
}

/// The environment variable makes a whole test suite check round trips.
static bool wantsRoundTrip() {
  auto value = llvm::sys::Process::GetEnv("HP_OPT_CHECK_IR_ROUNDTRIP");
  return verifyRoundTrip || (value && !value->empty() && *value != "0");
}

static bool readOptions(llvm::ArrayRef<std::string> passFlags,
                        OptOptions &options, DiagnosticEngine &diag) {
  options.input.flavor = flavor;
  options.input.overrides = sets;
  options.input.wantsSpec = printParameters;
  options.splitInput = splitInputFile;

  options.dumpPipeline = dumpPassPipeline;
  options.verifyEach = verifyEach;
  options.verifyDiagnostics = verifyDiagnostics;
  options.verifyRoundTrip = wantsRoundTrip();

  options.irPrinting.beforeAll = printIRBeforeAll;
  options.irPrinting.afterAll = printIRAfterAll;
  options.irPrinting.before = printIRBefore;
  options.irPrinting.after = printIRAfter;
  options.irPrinting.afterChange = printIRAfterChange;
  options.irPrinting.afterFailure = printIRAfterFailure;
  options.irPrinting.treeFolder = printIRTreeDir;
  options.statistics = passStatistics;

  options.print.debugInfo = printDebugInfo;
  options.print.localShapes = printLocalShapes;
  options.irPrinting.print = options.print;
  options.expandLayers = expandLayers;
  options.foldRepeats = foldRepeats;
  options.parameters = printParameters;
  options.gradReductions = printGradReductions;
  options.shardingOrigins = printShardingOrigins;
  options.shardMap = printShardMap;
  if (printShardMap.getNumOccurrences() && printShardMap.empty()) {
    return diag.error() << "'--print-shard-map' takes the name of a parameter";
  }
  if (printSchedule.getNumOccurrences()) {
    options.schedule = true;
    int64_t rank = 0;
    if (!printSchedule.empty()) {
      if (StringRef(printSchedule).getAsInteger(10, rank)) {
        return diag.error()
               << "'--print-schedule' takes a rank or nothing, not '"
               << printSchedule << "'";
      }
      options.scheduleRank = rank;
    }
  }
  if (printPlanStats.getNumOccurrences()) {
    options.planStatsJson = printPlanStats == "json";
    options.planStats = !options.planStatsJson;
    if (options.planStats && !printPlanStats.empty()) {
      return diag.error()
             << "'--print-plan-stats' takes 'json' or nothing, not '"
             << printPlanStats << "'";
    }
  }
  return enableDebugTypes(debugOnly, diag) &&
         checkPassNames(options.irPrinting, diag) &&
         readPipeline(passFlags, options, diag);
}

//===----------------------------------------------------------------------===//
// Program
//===----------------------------------------------------------------------===//

/// Writes `text` to what is no file: standard output, a device, a pipe.
static std::error_code writeStream(StringRef text) {
  std::error_code error;
  llvm::raw_fd_ostream os(outputName, error);
  if (error) {
    return error;
  }
  os << text;
  os.flush();
  error = os.error();
  os.clear_error();
  return error;
}

/// Writes `text` to the output. A file appears whole or not at all.
static bool writeOutput(StringRef text, DiagnosticEngine &diag) {
  namespace fs = llvm::sys::fs;
  bool isStream = outputName == "-" ||
                  (fs::exists(outputName) && !fs::is_regular_file(outputName));
  std::error_code error;
  if (isStream) {
    error = writeStream(text);
  } else {
    error = llvm::errorToErrorCode(
        llvm::writeToOutput(outputName, [&](llvm::raw_ostream &os) {
          os << text;
          return llvm::Error::success();
        }));
  }
  return !error || diag.error() << "cannot write '" << outputName
                                << "': " << error.message();
}

static bool run(llvm::ArrayRef<std::string> passFlags) {
  DiagnosticEngine diag;
  Timing clock;
  OptOptions options;
  if (!readOptions(passFlags, options, diag)) {
    return false;
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  bool ok = true;
  if (listPassesFlag || listOpsFlag || listModelsFlag) {
    if (listPassesFlag) {
      listPasses(out);
    }
    if (listOpsFlag) {
      listOps(out);
    }
    ok = !listModelsFlag || listModels(out, diag);
  } else {
    if (inputName == "-" && llvm::sys::Process::StandardInIsUserInput()) {
      llvm::errs() << "(reading standard input; end it with Ctrl-D)\n";
    }
    std::unique_ptr<llvm::MemoryBuffer> input = readInput(inputName, diag);
    if (!input) {
      return false;
    }
    StringRef name = inputName == "-" ? "<stdin>" : StringRef(inputName);
    ok = runOpt(input->getBuffer(), name, options, out, clock);
    if (timing) {
      clock.print(llvm::errs());
    }
  }
  // What was printed before an error is of use on a terminal, not in a file.
  return (!ok && outputName != "-") || writeOutput(text, diag) ? ok : false;
}

int main(int argc, char **argv) {
  std::vector<std::string> passFlags;
  auto flags = makePassFlags(passFlags);
  cl::HideUnrelatedOptions({&inputCategory, &passCategory, &checkCategory,
                            &outputCategory, &reportCategory, &listCategory});
  cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << "hp-opt " HP_VERSION "\n"; });
  cl::ParseCommandLineOptions(
      argc, argv,
      "hp-opt: shows, checks and compiles a model\n\n"
      "  hp-opt models/qwen3_5_v2.yaml --flavor tiny\n"
      "  hp-opt configs/tiny_text.yaml --compile-to=step\n"
      "  hp-opt plan.hp --print-plan-stats\n");
  return run(passFlags) ? 0 : 1;
}
