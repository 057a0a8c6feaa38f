//===- Trainer.cpp - The training loop ------------------------------------===//

#include "hp/Runtime/Trainer.h"
#include "Progress.h"
#include "hp/Analysis/Memory.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/AllocationMeter.h"
#include "hp/Runtime/Checkpoint.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/Path.h"
#include <ATen/ATen.h>
#include <cmath>

using namespace hp;
using llvm::format;

using Clock = std::chrono::steady_clock;

namespace {
/// One run from its first step to its last.
class TrainingLoop {
public:
  TrainingLoop(Run &run, const TrainOptions &options, llvm::raw_ostream &out,
               DiagnosticEngine &diag)
      : run(run), options(options), out(out), diag(diag),
        progress(out, options.progressBar) {}

  bool start();
  TrainEnd steps();

private:
  bool firstWeights();
  bool resume(const std::string &path);
  bool oneStep();
  bool save();
  void reportSkip(const StepMetrics &metrics);
  void summary();

  Run &run;
  const TrainOptions &options;
  llvm::raw_ostream &out;
  DiagnosticEngine &diag;
  Progress progress;
  MetricsFile metricsFile;
  std::unique_ptr<Dataset> data;
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<KernelSet> kernels;
  std::unique_ptr<Interpreter> interpreter;
  Manifest manifest;
  std::string savedTo;    ///< the last checkpoint
  int64_t savedStep = -1; ///< its step
  int64_t firstStep = 0;  ///< of this process
  double firstLoss = NAN, lastLoss = NAN;
  double seconds = 0;
};
} // namespace

bool TrainingLoop::start() {
  data = openDataset(run, diag);
  if (!data) {
    return false;
  }
  Module &module = *run.step;
  manifest = manifestOf(module);
  manifest.state.dataFingerprint = data->fingerprint();
  if (!firstWeights()) {
    return false;
  }
  firstStep = manifest.state.step;
  kernels = makeReferenceKernels();
  interpreter = Interpreter::create(module, *kernels, *store, diag);
  const auto &jsonl = run.config.metrics.jsonl;
  if (!interpreter ||
      !checkCheckpointFolder(*run.config.checkpoint.folder, diag) ||
      (!jsonl->empty() &&
       !checkOutputPath(run.config, *jsonl, jsonl.loc, diag)) ||
      (!jsonl->empty() &&
       !metricsFile.open(*jsonl, /*stepsToKeep=*/firstStep, jsonl.loc, diag))) {
    return false;
  }

  int64_t elements = 0;
  for (const StoredParameter &parameter : store->all()) {
    elements += parameter.value.numel();
  }
  out << "model " << module.name << (module.flavor.empty() ? "" : " ")
      << module.flavor << ": " << elements << " parameters, "
      << bytesText(store->valueBytes()) << "\n"
      << "data " << data->tokenCount() << " tokens, " << data->sampleCount()
      << " samples of " << data->seqLen() << "\n";
  out.flush();
  return true;
}

/// Weights and state to begin with: of the latest checkpoint if the run is to
/// be resumed, else new ones.
bool TrainingLoop::firstWeights() {
  const std::string &folder = *run.config.checkpoint.folder;
  std::string latest = latestCheckpoint(folder);
  if (options.resume && !latest.empty()) {
    return resume(latest);
  }
  if (options.resume) {
    out << "no checkpoint in " << folder << ", starting at step 1\n";
  } else if (!latest.empty()) {
    diag.warning(run.config.checkpoint.folder.loc)
        << "starting at step 1, though '" << folder << "' holds '"
        << llvm::sys::path::filename(latest)
        << "' of an earlier run; --resume goes on from the highest step";
  }
  store = startingWeights(run, manifest.format, diag);
  return store != nullptr;
}

bool TrainingLoop::resume(const std::string &path) {
  std::optional<Manifest> loaded = readManifest(path, diag);
  if (!loaded) {
    return false;
  }
  Location loc = diag.location(path, 0, 0);
  std::string difference = modelDifference(*loaded, manifest);
  if (!difference.empty()) {
    return diag.error(loc) << "cannot resume: the checkpoint is of another "
                              "model than the configuration's: "
                           << difference;
  }
  const RunState &was = loaded->state, &now = manifest.state;
  if (was.dataFingerprint != now.dataFingerprint) {
    return diag.error(loc)
           << "cannot resume: the data is not what the checkpoint was trained "
              "on; give other data to a new run, with this checkpoint as "
              "'checkpoint.initial_load_path'";
  }
  if (was.seqLen != now.seqLen) {
    return diag.error(loc) << "cannot resume: the checkpoint was trained with "
                              "seq_len "
                           << was.seqLen << ", the configuration says "
                           << now.seqLen;
  }
  store = std::make_unique<ParameterStore>(*run.step);
  if (!loadCheckpoint(path, *store, run.keys, run.ties, diag)) {
    return false;
  }
  int64_t batch = manifest.state.globalBatchSize;
  manifest.state = was;
  manifest.state.globalBatchSize = batch;
  manifest.format = loaded->format;
  savedTo = path;
  savedStep = was.step;
  out << "resuming " << path << " after step " << was.step << "\n";
  return true;
}

bool TrainingLoop::oneStep() {
  RunState &state = manifest.state;
  Clock::time_point start = Clock::now();
  std::optional<StepInputs> inputs =
      readBatch(*data, state.samplesSeen, *run.step, diag);
  if (!inputs) {
    return false;
  }
  inputs->learningRate = learningRate(run.config, state.step);
  std::optional<StepResult> result = interpreter->step(*inputs, diag);
  if (!result) {
    return false;
  }
  state.step += 1;
  state.samplesSeen += state.globalBatchSize;
  state.tokensSeen += state.globalBatchSize * state.seqLen;

  StepMetrics metrics;
  metrics.step = state.step;
  metrics.steps = run.config.training.steps;
  metrics.result = *result;
  metrics.learningRate = inputs->learningRate;
  metrics.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  metrics.tokens = state.globalBatchSize * state.seqLen;
  metrics.tokensSeen = state.tokensSeen;
  metrics.peakBytes = interpreter->peakBytes();
  seconds += metrics.seconds;
  lastLoss = result->loss;
  if (std::isnan(firstLoss)) {
    firstLoss = result->loss;
  }
  int64_t every = run.config.metrics.logFreq;
  bool isLast = state.step == metrics.steps;
  progress.show(metrics, state.step % every == 0 || isLast ||
                             state.step == firstStep + 1);
  if (!result->updated) {
    reportSkip(metrics);
  }
  return metricsFile.write(metrics, diag);
}

void TrainingLoop::reportSkip(const StepMetrics &metrics) {
  progress.finish();
  InFlightDiagnostic report = diag.warning();
  report << "step " << metrics.step
         << " skipped, parameters left as they are: ";
  if (metrics.result.validTargets == 0) {
    report << "no target of the batch is valid";
  } else {
    report << "the gradient norm is not finite";
  }
}

bool TrainingLoop::save() {
  if (savedStep == manifest.state.step) {
    return true;
  }
  std::string path = saveCheckpoint(*run.config.checkpoint.folder, *store,
                                    run.keys, manifest, diag);
  if (path.empty()) {
    return false;
  }
  savedTo = path;
  savedStep = manifest.state.step;
  return true;
}

void TrainingLoop::summary() {
  int64_t done = manifest.state.step - firstStep;
  if (done == 0) {
    out << "nothing to do: " << firstStep
        << " steps are done, and 'training.steps' is "
        << *run.config.training.steps << "\n";
  } else {
    int64_t tokens =
        done * manifest.state.globalBatchSize * manifest.state.seqLen;
    out << format("%lld steps in %.1f s, %.0f tokens/s, loss %.4f -> %.4f\n",
                  (long long)done, seconds, tokens / seconds, firstLoss,
                  lastLoss);
    MemoryPeak predicted =
        peakOfValues(*run.step, *run.step->findFunction("step"));
    out << "peak of values " << interpreter->peakBytes() << " bytes measured, "
        << predicted.bytes << " predicted";
    if (AllocationMeter::isInstalled()) {
      out << "; kernel workspace up to "
          << bytesText(interpreter->workspaceBytes());
    }
    double total = interpreter->totalSeconds();
    out << format("\ntime outside kernels %.2f %%\n",
                  total > 0 ? 100 * (1 - interpreter->kernelSeconds() / total)
                            : 0.0);
  }
  if (!savedTo.empty()) {
    out << "checkpoint " << savedTo << "\n";
  }
  if (!run.config.metrics.jsonl->empty()) {
    out << "metrics " << *run.config.metrics.jsonl << "\n";
  }
  out.flush();
}

TrainEnd TrainingLoop::steps() {
  RunState &state = manifest.state;
  int64_t last = run.config.training.steps;
  int64_t interval = run.config.checkpoint.interval;
  bool stopped = false;
  while (state.step < last && !stopped) {
    if (!oneStep()) {
      progress.finish();
      if (!savedTo.empty()) {
        out << "last checkpoint " << savedTo << "\n";
      }
      return TrainEnd::Failed;
    }
    if (interval > 0 && state.step % interval == 0 && !save()) {
      progress.finish();
      return TrainEnd::Failed;
    }
    stopped = options.stopSignal && options.stopSignal->load() != 0;
  }
  progress.finish();
  if (!save()) {
    return TrainEnd::Failed;
  }
  stopped &= state.step < last;
  if (stopped) {
    out << "interrupted after step " << state.step << " of " << last << "\n";
  }
  summary();
  return stopped ? TrainEnd::Interrupted : TrainEnd::Finished;
}

TrainEnd hp::train(Run &run, const TrainOptions &options,
                   llvm::raw_ostream &out, DiagnosticEngine &diag) {
  TrainingLoop loop(run, options, out, diag);
  return loop.start() ? loop.steps() : TrainEnd::Failed;
}
