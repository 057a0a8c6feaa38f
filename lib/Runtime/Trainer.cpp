//===- Trainer.cpp - The training loop ------------------------------------===//

#include "hp/Runtime/Trainer.h"
#include "Progress.h"
#include "hp/Analysis/Memory.h"
#include "hp/IR/Text.h"
#include "hp/Runtime/AllocationMeter.h"
#include "hp/Runtime/Checkpoint.h"
#include "hp/Runtime/Replicas.h"
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
  TrainingLoop(Run &run, Communicator &comm, const TrainOptions &options,
               llvm::raw_ostream &out, DiagnosticEngine &diag)
      : run(run), comm(comm), options(options),
        isMain(comm.localRanks().front() == 0),
        out(isMain ? out : llvm::nulls()), diag(diag),
        progress(this->out, isMain && options.progressBar) {}

  bool start();
  TrainEnd steps();

private:
  bool firstWeights();
  bool resume(const std::string &path);
  bool oneStep();
  bool save();
  bool anyWantsToStop();
  void reportSkip(const StepMetrics &metrics);
  void summary();
  bool checkReplicas();
  void reportPeak();
  void reportTraffic(int64_t steps);

  Run &run;
  Communicator &comm;
  const TrainOptions &options;
  const bool isMain; ///< has rank 0
  llvm::raw_ostream &out;
  DiagnosticEngine &diag;
  Progress progress;
  MetricsFile metricsFile;
  std::unique_ptr<Dataset> data;
  ParameterStores stores;
  KernelSets kernels;
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
  kernels = makeReferenceKernels(comm);
  interpreter = Interpreter::create(module, comm, kernels, stores, diag);
  if (!interpreter) {
    return false;
  }
  if (!isMain) {
    return true;
  }
  const auto &jsonl = run.config.metrics.jsonl;
  if (!checkCheckpointFolder(*run.config.checkpoint.folder, diag) ||
      (!jsonl->empty() &&
       !checkOutputPath(run.config, *jsonl, jsonl.loc, diag)) ||
      (!jsonl->empty() &&
       !metricsFile.open(*jsonl, /*stepsToKeep=*/firstStep, jsonl.loc, diag))) {
    return false;
  }

  int64_t elements = 0;
  for (const StoredParameter &parameter : stores[0].all()) {
    elements += parameter.type.numElements();
  }
  out << "model " << module.name << (module.flavor.empty() ? "" : " ")
      << module.flavor << ": " << elements << " parameters, "
      << bytesText(stores[0].valueBytes())
      << (module.mesh.numRanks() > 1 ? " on rank 0" : "") << "\n";
  if (module.mesh.numRanks() > 1) {
    out << "mesh";
    for (const MeshAxis &axis : module.mesh.axes()) {
      out << ' ' << axis.name << '=' << axis.size;
    }
    out << ": " << module.mesh.numRanks() << " ranks, "
        << comm.localRanks().size() << " in this process\n";
  }
  out << "data " << data->tokenCount() << " tokens, " << data->sampleCount()
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
  } else if (!latest.empty() && isMain) {
    diag.warning(run.config.checkpoint.folder.loc)
        << "starting at step 1, though '" << folder << "' holds '"
        << llvm::sys::path::filename(latest)
        << "' of an earlier run; --resume goes on from the highest step";
  }
  stores = makeStores(*run.step, comm.localRanks());
  return startingWeights(run, stores, manifest.format, diag);
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
  stores = makeStores(*run.step, comm.localRanks());
  if (!loadCheckpoint(path, stores, run.keys, run.ties, diag)) {
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
  std::optional<std::vector<StepInputs>> inputs =
      readBatch(*data, state.samplesSeen, *run.step, comm.localRanks(), diag);
  if (!inputs) {
    return false;
  }
  double rate = learningRate(run.config, state.step);
  for (StepInputs &input : *inputs) {
    input.learningRate = rate;
  }
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
  metrics.learningRate = rate;
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
  if (!isMain) {
    return true;
  }
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
  std::string path =
      saveCheckpoint(*run.config.checkpoint.folder,
                     WholeParameters(stores, comm), run.keys, manifest, diag);
  if (path.empty()) {
    return false;
  }
  savedTo = path;
  savedStep = manifest.state.step;
  return true;
}

/// Whether a process was asked to end. One asked alone must not leave the
/// others waiting.
bool TrainingLoop::anyWantsToStop() {
  bool asked = options.stopSignal && options.stopSignal->load() != 0;
  return !WholeParameters(stores, comm).allAgree(!asked);
}

/// Measured and predicted of this process's first rank, and whether they agree
/// on all ranks.
void TrainingLoop::reportPeak() {
  Function &step = *run.step->findFunction("step");
  auto predicted = [&](size_t local) {
    return peakOfValues(*run.step, step, comm.localRanks()[local]).bytes;
  };
  out << "peak of values " << interpreter->peakBytes() << " bytes measured, "
      << predicted(0) << " predicted";
  bool ok = true;
  for (size_t local = 0; local < stores.size(); ++local) {
    ok &= interpreter->peakBytes(local) == predicted(local);
  }
  if (run.step->mesh.numRanks() > 1) {
    out << " on rank 0, and "
        << (WholeParameters(stores, comm).allAgree(ok) ? "" : "not ")
        << "as predicted on the others";
  }
}

void TrainingLoop::reportTraffic(int64_t steps) {
  Traffic step = predictTraffic(*run.step, *run.step->findFunction("step"));
  Traffic predicted;
  for (const auto &[key, count] : step.counts) {
    predicted.add(key.primitive, key.axes, count.bytes * steps, 1);
    predicted.counts[key].calls = count.calls * steps;
  }
  const Traffic &counted = interpreter->traffic();
  bool agree = WholeParameters(stores, comm).allAgree(counted == predicted);
  if (counted.counts.empty() && predicted.counts.empty()) {
    return;
  }
  out << "sent by each rank, " << (agree ? "" : "not ") << "as predicted, in "
      << steps << " steps:\n";
  print(counted, run.step->mesh, out);
  if (!agree) {
    out << "predicted:\n";
    print(predicted, run.step->mesh, out);
  }
}

/// Whether replicas agree to the bit. False, with an error, if not.
bool TrainingLoop::checkReplicas() {
  DifferingReplica found = differingReplica(stores, comm);
  if (found.name.empty()) {
    out << "replicas are bitwise equal\n";
    return true;
  }
  if (isMain) {
    diag.error(run.step->loc)
        << "replicas of '@" << found.name << "' are not equal after step "
        << manifest.state.step << ": that of rank " << found.rank
        << " is not rank " << found.twin << "'s";
  }
  return false;
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
    reportPeak();
    if (AllocationMeter::isInstalled()) {
      out << "; kernel workspace up to "
          << bytesText(interpreter->workspaceBytes());
    }
    double total = interpreter->totalSeconds();
    out << format("\ntime outside kernels %.2f %%\n",
                  total > 0 ? 100 * (1 - interpreter->kernelSeconds() / total)
                            : 0.0);
    reportTraffic(done);
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
    stopped = anyWantsToStop();
  }
  progress.finish();
  if (!save() || (options.checkReplicas && !checkReplicas())) {
    return TrainEnd::Failed;
  }
  stopped &= state.step < last;
  if (stopped) {
    out << "interrupted after step " << state.step << " of " << last << "\n";
  }
  summary();
  return stopped ? TrainEnd::Interrupted : TrainEnd::Finished;
}

TrainEnd hp::train(Run &run, Communicator &comm, const TrainOptions &options,
                   llvm::raw_ostream &out, DiagnosticEngine &diag) {
  TrainingLoop loop(run, comm, options, out, diag);
  return loop.start() ? loop.steps() : TrainEnd::Failed;
}
