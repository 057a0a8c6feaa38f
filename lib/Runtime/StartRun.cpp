//===- StartRun.cpp - Data and first weights of a run ---------------------===//

#include "hp/Runtime/Pieces.h"
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

/// Samples `first` to `first + rows` of the batch at `firstSample`, whole.
static std::optional<StepInputs> readRows(const Dataset &data,
                                          uint64_t firstSample, int64_t first,
                                          int64_t rows, int64_t length,
                                          DiagnosticEngine &diag) {
  StepInputs inputs;
  inputs.tokens = at::empty({rows, length}, at::kLong);
  inputs.labels = at::empty({rows, length}, at::kLong);
  inputs.positions = at::arange(length, at::kLong);
  int64_t *tokens = inputs.tokens.data_ptr<int64_t>();
  int64_t *labels = inputs.labels.data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    if (!data.fill(firstSample + first + row, tokens + row * length,
                   labels + row * length, diag)) {
      return std::nullopt;
    }
  }
  return inputs;
}

std::optional<StepInputs> hp::readBatch(const Dataset &data,
                                        uint64_t firstSample, Module &step,
                                        DiagnosticEngine &diag) {
  return readRows(data, firstSample, 0, step.findDim("B")->size,
                  step.findDim("S")->size, diag);
}

/// The argument of @step called `name`.
static Type argumentType(Module &step, llvm::StringRef name) {
  for (const Value *argument : step.findFunction("step")->body->arguments) {
    if (argument->name == name) {
      return argument->type;
    }
  }
  return Type();
}

std::optional<std::vector<StepInputs>>
hp::readBatch(const Dataset &data, uint64_t firstSample, Module &step,
              llvm::ArrayRef<int64_t> ranks, DiagnosticEngine &diag) {
  Type tokenType = argumentType(step, "tok");
  Type positionType = argumentType(step, "pos");
  std::vector<StepInputs> inputs;
  for (int64_t rank : ranks) {
    // Batch and sequence are cut into one stretch each.
    Region own = placementOf(tokenType, step.mesh, rank).regions[0];
    std::optional<StepInputs> rows =
        readRows(data, firstSample, own.whole[0], own.size[0],
                 step.findDim("S")->size, diag);
    if (!rows) {
      return std::nullopt;
    }
    auto slice = [&](const at::Tensor &x) {
      return x.narrow(1, own.whole[1], own.size[1]).clone();
    };
    rows->tokens = slice(rows->tokens);
    rows->labels = slice(rows->labels);
    rows->positions =
        cutPiece(rows->positions, placementOf(positionType, step.mesh, rank));
    inputs.push_back(std::move(*rows));
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

bool hp::startingWeights(Run &run, ParameterStores &stores,
                         WeightFormat &format, DiagnosticEngine &diag) {
  const auto &source = run.config.checkpoint.initialLoadPath;
  if (source->empty()) {
    initialize(stores, initKind(run.config.training.init),
               run.config.training.seed,
               run.step->config.getFloat("initializer_range", 0.02));
    return true;
  }
  std::optional<WeightFormat> loaded = loadWeights(
      stores, resolveInputPath(run.config, source), run.keys, run.ties, diag);
  if (!loaded) {
    return false;
  }
  format = std::move(*loaded);
  return true;
}
