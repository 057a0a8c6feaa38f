//===- StartRun.cpp - Data and first weights of a run ---------------------===//

#include "hp/Runtime/Trainer.h"
#include <ATen/ATen.h>

using namespace hp;

/// The ids that the step can take: rows of its embedding. The model's config
/// calls them as its spec does.
static int64_t vocabularySize(Module &step) {
  for (const Operation &op : step.functions.front()->body->ops) {
    if (op.is(OpKind::Embedding) && op.operands[1].param) {
      return op.operands[1].param->type.dims()[0].size();
    }
  }
  return 1;
}

std::unique_ptr<Dataset> hp::openDataset(const Run &run,
                                         DiagnosticEngine &diag) {
  const DataConfig &data = run.config.data;
  if (data.path->empty()) {
    diag.error(data.loc ? data.loc : run.config.loc)
        << "'data.path' is not given; a run needs data";
    return nullptr;
  }
  DatasetOptions options;
  options.format = data.format;
  options.path = resolveInputPath(run.config, data.path);
  options.dtype = data.dtype;
  options.layout = data.layout;
  options.pathLoc = data.path.loc;
  options.dtypeLoc = data.dtype.loc;
  return Dataset::open(options, vocabularySize(*run.step),
                       run.config.training.seqLen, diag);
}

std::optional<StepInputs> hp::readBatch(const Dataset &data,
                                        uint64_t firstSample, Module &step,
                                        DiagnosticEngine &diag) {
  int64_t rows = step.findDim("B")->size, length = step.findDim("S")->size;
  StepInputs inputs;
  inputs.tokens = at::empty({rows, length}, at::kLong);
  inputs.labels = at::empty({rows, length}, at::kLong);
  inputs.positions = at::arange(length, at::kLong);
  int64_t *tokens = inputs.tokens.data_ptr<int64_t>();
  int64_t *labels = inputs.labels.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    if (!data.fill(firstSample + row, tokens + row * length,
                   labels + row * length, diag)) {
      return std::nullopt;
    }
  }
  return inputs;
}

static InitKind initKind(InitMethod method) {
  switch (method) {
  case InitMethod::Philox:
    return InitKind::Philox;
  case InitMethod::Torch:
    return InitKind::Torch;
  case InitMethod::Normal:
    return InitKind::Normal;
  }
  return InitKind::Philox;
}

std::unique_ptr<ParameterStore>
hp::startingWeights(Run &run, WeightFormat &format, DiagnosticEngine &diag) {
  auto store = std::make_unique<ParameterStore>(*run.step);
  const auto &source = run.config.checkpoint.initialLoadPath;
  if (source->empty()) {
    initialize(*store, initKind(run.config.training.init),
               run.config.training.seed,
               run.step->config.getFloat("initializer_range", 0.02));
    return store;
  }
  std::optional<WeightFormat> loaded = loadWeights(
      *store, resolveInputPath(run.config, source), run.keys, run.ties, diag);
  if (!loaded) {
    return nullptr;
  }
  format = std::move(*loaded);
  return store;
}
