//===- Commands.cpp - hp-run train and forward ----------------------------===//

#include "Commands.h"
#include "Ranks.h"
#include "hp/Runtime/AllocationMeter.h"
#include "hp/Runtime/Trainer.h"
#include "llvm/Support/Process.h"
#include <ATen/ATen.h>

using namespace hp;

/// Trains on the ranks of this process.
static int trainOn(Communicator &comm, Run &run, const TrainOptions &options,
                   DiagnosticEngine &diag) {
  try {
    switch (train(run, comm, options, llvm::outs(), diag)) {
    case TrainEnd::Finished:
      return 0;
    case TrainEnd::Interrupted:
      // Without a signal of its own this process followed another's.
      return options.stopSignal->load() ? 128 + options.stopSignal->load()
                                        : lostRankStatus;
    case TrainEnd::Failed:
      return 1;
    }
  } catch (const std::exception &failure) {
    diag.error() << llvm::StringRef(failure.what()).split('\n').first;
  }
  return 1;
}

int hp::runTrain(const ConfigArguments &arguments, const RankOptions &ranks,
                 bool resume, const std::atomic<int> &stopSignal,
                 DiagnosticEngine &diag) {
  std::optional<Run> run =
      prepareRun(arguments.config, arguments.overrides, arguments.plan,
                 ranks.worldSize(arguments.simulatedRanks), diag);
  int code = 1;
  std::unique_ptr<Communicator> comm =
      run ? makeCommunicator(*run, ranks, code, diag) : nullptr;
  if (!comm) {
    return code;
  }
  AllocationMeter::install();
  TrainOptions options;
  options.resume = resume;
  options.checkReplicas = arguments.checkReplicas;
  options.progressBar = llvm::sys::Process::StandardOutIsDisplayed();
  options.stopSignal = &stopSignal;
  code = trainOn(*comm, *run, options, diag);
  return code == 1 ? failureCode(*comm, diag) : code;
}

/// Computes the first batch on the ranks of this process, and writes it in that
/// of rank 0. False after an error.
static bool forwardOn(Communicator &comm, Run &run, const std::string &out,
                      bool gradients, DiagnosticEngine &diag) {
  bool isMain = comm.localRanks().front() == 0;
  std::unique_ptr<Dataset> data = openDataset(run, diag);
  if (!data) {
    return false;
  }
  Module &step = *run.step;
  ParameterStores stores = makeStores(step, comm.localRanks());
  WeightFormat format;
  if (!startingWeights(run, stores, format, diag)) {
    return false;
  }
  std::optional<StepInputs> batch = readBatch(*data, 0, step, diag);
  if (!batch) {
    return false;
  }
  std::vector<StepInputs> inputs = cutInputs(*batch, step, comm.localRanks());
  KernelSets kernels = makeReferenceKernels(comm);
  auto interpreter = Interpreter::create(step, comm, kernels, stores, diag);
  std::optional<ForwardResult> result =
      interpreter ? interpreter->forward(inputs, diag) : std::nullopt;
  if (!result) {
    return false;
  }
  std::vector<SafetensorsItem> items;
  auto add = [&](std::string key, const at::Tensor &tensor) {
    items.push_back(
        tensorItem(std::move(key), tensor, fileDType(tensor.scalar_type())));
  };
  add("loss", at::scalar_tensor(result->loss, at::kDouble));
  add("tokens", batch->tokens);
  add("labels", batch->labels);
  if (result->logits.defined()) {
    add("logits", result->logits);
  }
  const KeySpelling &spelling = run.keys.spellings.front();
  auto addGradient = [&](llvm::StringRef name, const at::Tensor &gradient) {
    if (isMain) {
      add("grad." + spelling.keyOf(name), gradient.clone());
    }
  };
  if (gradients && !interpreter->gradients(inputs, addGradient, diag)) {
    return false;
  }
  if (!isMain) {
    return true;
  }
  if (!writeSafetensors(out, items, {{"format", "pt"}}, diag)) {
    return false;
  }
  llvm::outs() << "loss " << llvm::format("%.9g", result->loss) << " over "
               << result->validTargets << " targets\n"
               << "written " << out << "\n";
  return true;
}

int hp::runForward(const ConfigArguments &arguments, const RankOptions &ranks,
                   const std::string &out, bool gradients,
                   DiagnosticEngine &diag) {
  std::optional<Run> run =
      prepareRun(arguments.config, arguments.overrides, arguments.plan,
                 ranks.worldSize(arguments.simulatedRanks), diag);
  if (!run ||
      !checkOutputPath(run->config, out, diag.location(out, 0, 0), diag)) {
    return 1;
  }
  int code = 1;
  std::unique_ptr<Communicator> comm =
      makeCommunicator(*run, ranks, code, diag);
  if (!comm) {
    return code;
  }
  try {
    if (forwardOn(*comm, *run, out, gradients, diag)) {
      return 0;
    }
  } catch (const std::exception &failure) {
    diag.error() << llvm::StringRef(failure.what()).split('\n').first;
  }
  return failureCode(*comm, diag);
}
