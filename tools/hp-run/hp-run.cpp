//===- hp-run.cpp - Trains with the plans that hp-opt prints --------------===//
//
//   hp-run train CONFIG.yaml [--set section.key=value]... [--resume]
//   hp-run train CONFIG.yaml --nproc=8
//   hp-run train CONFIG.yaml --simulate-ranks=8
//   hp-run train PLAN.hp --config CONFIG.yaml
//   hp-run forward CONFIG.yaml --out FILE.safetensors [--gradients]
//   hp-run import CHECKPOINT FOLDER --config CONFIG.yaml
//   hp-run export CHECKPOINT FOLDER --config CONFIG.yaml [--dtype=...]
//
//===----------------------------------------------------------------------===//

#include "Commands.h"
#include "Ranks.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/Process.h"
#include <csignal>
#include <exception>
#include <malloc.h>
#include <unistd.h>

using namespace hp;
namespace cl = llvm::cl;

static cl::OptionCategory category("hp-run options");

static cl::SubCommand trainCommand("train", "train a model");
static cl::SubCommand
    forwardCommand("forward", "compute loss and logits of the first batch");
static cl::SubCommand
    importCommand("import", "turn a Hugging Face checkpoint into one of hp");
static cl::SubCommand
    exportCommand("export", "turn a checkpoint of hp into a Hugging Face one");

static cl::opt<std::string> trainInput(cl::Positional, cl::Required,
                                       cl::desc("<config or plan>"),
                                       cl::sub(trainCommand),
                                       cl::cat(category));
static cl::opt<std::string> forwardInput(cl::Positional, cl::Required,
                                         cl::desc("<config or plan>"),
                                         cl::sub(forwardCommand),
                                         cl::cat(category));
static cl::list<std::string>
    importPaths(cl::Positional, cl::OneOrMore,
                cl::desc("<Hugging Face checkpoint> <folder to write>"),
                cl::sub(importCommand), cl::cat(category));
static cl::list<std::string>
    exportPaths(cl::Positional, cl::OneOrMore,
                cl::desc("<checkpoint of hp> <folder to write>"),
                cl::sub(exportCommand), cl::cat(category));

static cl::opt<std::string>
    configPath("config",
               cl::desc("The run configuration, where a plan or a checkpoint "
                        "is the input"),
               cl::value_desc("file"), cl::sub(trainCommand),
               cl::sub(forwardCommand), cl::sub(importCommand),
               cl::sub(exportCommand), cl::cat(category));
static cl::list<std::string>
    overrides("set", cl::desc("Override a value of the configuration"),
              cl::value_desc("section.key=value"), cl::sub(trainCommand),
              cl::sub(forwardCommand), cl::sub(importCommand),
              cl::sub(exportCommand), cl::cat(category));
static cl::opt<int64_t> simulateRanks(
    "simulate-ranks",
    cl::desc("Compute all N ranks of the layout in this process, in lockstep"),
    cl::value_desc("N"), cl::init(1), cl::sub(trainCommand),
    cl::sub(forwardCommand), cl::cat(category));
static cl::opt<int64_t>
    processes("nproc",
              cl::desc("Start N ranks on this machine, one in a process"),
              cl::value_desc("N"), cl::sub(trainCommand),
              cl::sub(forwardCommand), cl::cat(category));
static cl::opt<int64_t> threadsPerRank(
    "threads-per-rank",
    cl::desc("Threads of each rank (default: OMP_NUM_THREADS, or the "
             "processors divided by the ranks of the machine)"),
    cl::value_desc("N"), cl::sub(trainCommand), cl::sub(forwardCommand),
    cl::cat(category));
static cl::opt<MessageLibrary> device(
    "device", cl::desc("How the ranks' messages travel (default: cpu)"),
    cl::values(clEnumValN(MessageLibrary::Gloo, "cpu",
                          "from CPU to CPU, by Gloo"),
               clEnumValN(MessageLibrary::Nccl, "cuda",
                          "from GPU to GPU, by NCCL, from libhp_nccl.so")),
    cl::init(MessageLibrary::Gloo), cl::sub(trainCommand),
    cl::sub(forwardCommand), cl::cat(category));
static cl::opt<bool> checkReplicas(
    "check-replicas",
    cl::desc("Fail at the end if ranks that hold the same parameter differ "
             "in a bit"),
    cl::sub(trainCommand), cl::cat(category));
static cl::opt<bool> resume("resume",
                            cl::desc("Go on from the latest checkpoint in "
                                     "checkpoint.folder"),
                            cl::sub(trainCommand), cl::cat(category));
static cl::opt<std::string>
    outputFile("out", cl::desc("The safetensors file to write"),
               cl::value_desc("file"), cl::init("forward.safetensors"),
               cl::sub(forwardCommand), cl::cat(category));
static cl::alias outputShort("o", cl::aliasopt(outputFile),
                             cl::desc("Alias for --out"));
static cl::opt<bool>
    gradients("gradients",
              cl::desc("Write each parameter's gradient as grad.KEY too"),
              cl::sub(forwardCommand), cl::cat(category));
static cl::opt<std::string> exportDType(
    "dtype",
    cl::desc("Element type to write: source (as imported, else the run's), "
             "float32 or bfloat16"),
    cl::value_desc("name"), cl::init("source"), cl::sub(exportCommand),
    cl::cat(category));
static cl::opt<std::string>
    exportKeys("keys",
               cl::desc("Spelling of the keys, as the model spec names it "
                        "(default: as imported)"),
               cl::value_desc("name"), cl::sub(exportCommand),
               cl::cat(category));
static cl::opt<uint64_t>
    maxShardMegabytes("max-shard-size",
                      cl::desc("Largest shard in MB (default 5000)"),
                      cl::value_desc("MB"), cl::init(5000),
                      cl::sub(exportCommand), cl::cat(category));

/// The signal that asked the run to end; 0 if none did.
static std::atomic<int> stopSignal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

/// The first signal ends the run after the step, the second at once.
extern "C" void onStopSignal(int number) {
  stopSignal.store(number);
  std::signal(number, SIG_DFL);
}

/// A plan is IR text: its name ends in .hp.
static bool isPlan(llvm::StringRef path) { return path.ends_with(".hp"); }

/// The configuration, and the plan if `input` is one. False after an error.
static bool takeInput(const std::string &input, ConfigArguments &arguments,
                      DiagnosticEngine &diag) {
  arguments.overrides.assign(overrides.begin(), overrides.end());
  if (simulateRanks < 1) {
    return diag.error() << "--simulate-ranks is the number of ranks, at least "
                           "1, not "
                        << int64_t(simulateRanks);
  }
  arguments.simulatedRanks = simulateRanks;
  arguments.checkReplicas = checkReplicas;
  if (!isPlan(input)) {
    if (!configPath.empty()) {
      return diag.error() << "'" << input
                          << "' is taken for the run configuration, so "
                             "--config must not be given too; a plan's name "
                             "ends in .hp";
    }
    arguments.config = input;
    return true;
  }
  if (configPath.empty()) {
    return diag.error() << "a plan needs --config: data, steps and checkpoints "
                           "are not in it";
  }
  arguments.config = configPath;
  arguments.plan = input;
  return true;
}

/// Two paths and --config.
static bool takePaths(const cl::list<std::string> &paths,
                      ConfigArguments &arguments, DiagnosticEngine &diag) {
  arguments.overrides.assign(overrides.begin(), overrides.end());
  arguments.config = configPath;
  if (paths.size() != 2) {
    return diag.error() << "two paths are needed: what to read and the folder "
                           "to write";
  }
  return !configPath.empty() ||
         diag.error() << "--config is needed: it says which model this is";
}

/// Takes the signals that ask to end. A SIGHUP that is ignored, as nohup has
/// it, stays ignored.
static void takeStopSignals() {
  std::signal(SIGINT, onStopSignal);
  std::signal(SIGTERM, onStopSignal);
  if (std::signal(SIGHUP, onStopSignal) == SIG_IGN) {
    std::signal(SIGHUP, SIG_IGN);
  }
}

/// Trains, or computes one batch: starts the ranks, or is one of them, or all.
static int dispatchRanks(ConfigArguments &arguments,
                         llvm::ArrayRef<const char *> commandLine,
                         DiagnosticEngine &diag) {
  RankOptions ranks;
  ranks.processes = processes;
  ranks.threadsPerRank = threadsPerRank;
  ranks.gpu = device == MessageLibrary::Nccl;
  if (!takeInput(trainCommand ? trainInput : forwardInput, arguments, diag)) {
    return 1;
  }
  if ((processes.getNumOccurrences() > 0 && processes == 0) ||
      (threadsPerRank.getNumOccurrences() > 0 && threadsPerRank == 0)) {
    diag.error() << (processes == 0 && processes.getNumOccurrences() > 0
                         ? "--nproc"
                         : "--threads-per-rank")
                 << " is at least 1, not 0";
    return 1;
  }
  if (!takeRanks(ranks, arguments.simulatedRanks, diag)) {
    return 1;
  }
  if (ranks.processes > 0) {
    return launchRanks(arguments, ranks, commandLine, diag);
  }
  if (forwardCommand) {
    return runForward(arguments, ranks, outputFile, gradients, diag);
  }
  takeStopSignals();
  return runTrain(arguments, ranks, resume, stopSignal, diag);
}

static int dispatch(llvm::ArrayRef<const char *> commandLine,
                    DiagnosticEngine &diag) {
  ConfigArguments arguments;
  if (trainCommand || forwardCommand) {
    return dispatchRanks(arguments, commandLine, diag);
  }
  if (importCommand) {
    return takePaths(importPaths, arguments, diag)
               ? runImport(arguments, importPaths[0], importPaths[1], diag)
               : 1;
  }
  if (exportCommand) {
    llvm::StringRef dtype = exportDType;
    if (dtype != "source" && dtype != "float32" && dtype != "bfloat16") {
      diag.error() << "--dtype is one of source, float32, bfloat16, not '"
                   << dtype << "'";
      return 1;
    }
    if (!takePaths(exportPaths, arguments, diag)) {
      return 1;
    }
    return runExport(arguments,
                     {exportPaths[0], exportPaths[1], exportDType, exportKeys,
                      std::max<uint64_t>(maxShardMegabytes, 1) * 1'000'000},
                     diag);
  }
  diag.error() << "a command is needed: train, forward, import or export; see "
                  "hp-run --help";
  return 1;
}

/// Every step allocates the same sizes anew. Freed memory stays with the
/// process: from the system it would come back page by page, each to be cleared
/// first.
static void keepFreedMemory() {
#ifdef M_TRIM_THRESHOLD // glibc
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
}

int main(int argc, char **argv) {
  keepFreedMemory();
  cl::HideUnrelatedOptions(category);
  cl::SetVersionPrinter(
      [](llvm::raw_ostream &os) { os << "hp-run " HP_VERSION "\n"; });
  cl::ParseCommandLineOptions(argc, argv,
                              "hp-run: trains with the plans hp-opt prints\n");
  DiagnosticEngine diag;
  int code = 1;
  try {
    code = dispatch(llvm::ArrayRef<const char *>(argv, argc), diag);
  } catch (const std::exception &failure) {
    diag.error() << llvm::StringRef(failure.what()).split('\n').first;
  }
  llvm::outs().flush();
  if (llvm::outs().has_error()) {
    llvm::outs().clear_error();
    code = code ? code : 1;
  }
  return code;
}
