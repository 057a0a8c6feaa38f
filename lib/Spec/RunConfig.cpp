//===- RunConfig.cpp - Reading and checking a run configuration -----------===//

#include "hp/Spec/RunConfig.h"
#include "RunConfigFields.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"
#include <cmath>

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

namespace {

struct KeyLister {
  std::vector<std::string> keys;
  std::string current;

  template <typename Section> void section(StringRef name, Section &) {
    current = name.str();
  }
  template <typename Field, typename Rule>
  void field(StringRef key, Field &, const Rule &) {
    keys.push_back(current + "." + key.str());
  }
};

} // namespace

std::vector<std::string> hp::runConfigKeys() {
  RunConfig config;
  KeyLister lister;
  visitFields(lister, config);
  return lister.keys;
}

/// "section 'x'" for the sections that have `key`; empty if none has.
static std::string ownersOf(StringRef key) {
  std::string owners;
  for (const std::string &full : runConfigKeys()) {
    auto [section, name] = StringRef(full).split('.');
    if (name == key) {
      owners += (owners.empty() ? "section '" : " or '") + section.str() + "'";
    }
  }
  return owners;
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

namespace {

/// Visitor that fills a RunConfig from the document.
class FieldReader {
public:
  FieldReader(const Node &root, Location file, DiagnosticEngine &diag)
      : root(root), file(file), diag(diag),
        sections(root, "the configuration", diag) {}

  template <typename Section> void section(StringRef name, Section &section) {
    finishSection();
    current = name.str();
    const Node *node = sections.optional(name);
    section.loc = node ? node->loc : file;
    absent.loc = file;
    keys.emplace(node ? *node : absent, "section '" + current + "'", diag);
    sectionLoc = section.loc;
  }

  template <typename T, typename Rule>
  void field(StringRef key, Located<T> &field, const Rule &rule) {
    field.loc = sectionLoc;
    const Node *node = keys->optional(key);
    if (!node) {
      requireGiven(key, rule);
      return;
    }
    field.loc = node->loc;
    field.given = true;
    std::string what = current + "." + key.str();
    auto value = read(*node, what, field, rule);
    if (value) {
      field.value = std::move(*value);
    } else {
      ok = false;
    }
  }

  /// Reports unknown sections and keys. Returns whether all was well.
  bool finish() {
    finishSection();
    return sections.finish(ownersOf) && ok;
  }

private:
  void finishSection() {
    if (keys) {
      ok &= keys->finish(ownersOf);
      keys.reset();
    }
  }

  template <typename Rule> void requireGiven(StringRef, const Rule &) {}
  void requireGiven(StringRef key, const StringRule &rule) {
    if (rule.required) {
      ok = diag.error(sectionLoc)
           << "'" << current << "." << key << "' must be given";
    }
  }

  std::optional<int64_t> read(const Node &node, StringRef what,
                              const Located<int64_t> &, const IntRange &rule) {
    return readInt(node, what, diag, rule);
  }
  std::optional<double> read(const Node &node, StringRef what,
                             const Located<double> &, const FloatRange &rule) {
    return readFloat(node, what, diag, rule);
  }
  std::optional<std::optional<double>>
  read(const Node &node, StringRef what, const Located<std::optional<double>> &,
       const FloatRange &rule) {
    if (node.isNull()) {
      return std::optional<double>();
    }
    std::optional<double> value = readFloat(node, what, diag, rule);
    return value ? std::optional<std::optional<double>>(value) : std::nullopt;
  }
  std::optional<bool> read(const Node &node, StringRef what,
                           const Located<bool> &, AnyBool) {
    return readBool(node, what, diag);
  }
  std::optional<std::string> read(const Node &node, StringRef what,
                                  const Located<std::string> &,
                                  StringRule rule) {
    if (rule.orNull && node.isNull()) {
      return std::string();
    }
    return readString(node, what, diag);
  }
  std::optional<std::string> read(const Node &node, StringRef what,
                                  const Located<std::string> &, SelectiveRule) {
    if (node.isScalar() && node.text == "op") {
      return node.text;
    }
    bool isNumber = node.isScalar() && !node.text.empty() &&
                    (isdigit(node.text[0]) || node.text[0] == '-');
    if (!isNumber) {
      diag.error(node.loc) << "'" << what << "' must be 'op' or a number of "
                           << "layers, not " << describe(node);
      return std::nullopt;
    }
    std::optional<int64_t> layers = readInt(node, what, diag, {1, 1 << 20});
    return layers ? std::optional(std::to_string(*layers)) : std::nullopt;
  }
  std::optional<std::vector<std::string>>
  read(const Node &node, StringRef what,
       const Located<std::vector<std::string>> &, AnyStringList) {
    return readStringList(node, what, diag);
  }
  std::optional<Node> read(const Node &node, StringRef what,
                           const Located<Node> &, AnyMap) {
    if (!node.isMap() && !node.isNull()) {
      diag.error(node.loc) << "'" << what << "' must be a map of fields and "
                           << "values, not " << describe(node);
      return std::nullopt;
    }
    Node map = node;
    map.kind = Node::Kind::Map;
    return map;
  }
  template <typename T>
  std::optional<T> read(const Node &node, StringRef what, const Located<T> &,
                        const WordRule<T> &rule) {
    return readChoice<T>(node, what, rule, diag);
  }

  const Node &root;
  Location file;
  DiagnosticEngine &diag;
  MapReader sections;
  Node absent;
  std::optional<MapReader> keys;
  std::string current;
  Location sectionLoc;
  bool ok = true;
};

} // namespace

//===----------------------------------------------------------------------===//
// Checks
//===----------------------------------------------------------------------===//

/// Refuses what needs no world size to be wrong.
static bool checkValues(const RunConfig &config, DiagnosticEngine &diag) {
  bool ok = true;
  const ParallelismConfig &layout = config.parallelism;
  if (layout.expert > 1) {
    ok = diag.error(layout.expert.loc)
         << "'parallelism.expert_parallel_degree' must be 1, not "
         << *layout.expert << ": the dense model has no experts";
  }
  if (layout.pipeline > 1) {
    ok = diag.error(layout.pipeline.loc)
         << "'parallelism.pipeline_parallel_degree' must be 1, not "
         << *layout.pipeline << ": pipeline parallelism is not supported yet";
  }
  const TrainingConfig &training = config.training;
  for (auto [key, field] :
       {std::pair("mixed_precision_param", &training.mixedPrecisionParam),
        std::pair("mixed_precision_reduce", &training.mixedPrecisionReduce)}) {
    if (**field == Precision::Float64 &&
        *training.dtype != Precision::Float64) {
      ok = diag.error(field->loc)
           << "'training." << key << "' must be 'float32'; for float64 "
           << "throughout set 'training.dtype'";
    }
  }
  const ModelConfig &model = config.model;
  if (!model.flavor->empty() && !model.hfConfig->empty()) {
    ok = diag.error(model.hfConfig.loc)
             .note(model.flavor.loc, "'model.flavor' is given here")
         << "'model.hf_config' and 'model.flavor' both give the model's "
         << "config; leave one out";
  }
  return ok;
}

/// Warns of values that do nothing as they stand.
static void warnOfNoEffect(const RunConfig &config, DiagnosticEngine &diag) {
  const LRSchedulerConfig &scheduler = config.lrScheduler;
  int64_t steps = config.training.steps;
  if (scheduler.warmupSteps > steps) {
    diag.warning(scheduler.warmupSteps.loc)
        << "'lr_scheduler.warmup_steps' is " << *scheduler.warmupSteps
        << ", but 'training.steps' is " << steps << "; the warmup takes "
        << steps << " steps";
  }
  if (scheduler.decayType == Decay::None) {
    if (scheduler.decayRatio.given && *scheduler.decayRatio) {
      diag.warning(scheduler.decayRatio.loc)
          << "'lr_scheduler.decay_ratio' does nothing without a "
          << "'decay_type' of 'linear' or 'cosine'";
    }
  } else if (*scheduler.decayRatio) {
    int64_t warmup = std::min<int64_t>(scheduler.warmupSteps, steps);
    double decay = std::nearbyint(double(steps) * **scheduler.decayRatio);
    if (double(warmup) + decay > double(steps)) {
      diag.warning(scheduler.decayRatio.loc)
          << "warmup (" << warmup << ") and decay (" << int64_t(decay)
          << ") exceed 'training.steps' (" << steps << "); the decay takes "
          << steps - warmup << " steps";
    }
  }
  const DataConfig &data = config.data;
  if (data.dtype.given && data.format == DataFormat::Text) {
    diag.warning(data.dtype.loc)
        << "'data.dtype' does nothing with the format 'text'";
  }
}

/// The product of the degrees; none on overflow.
static std::optional<int64_t> product(std::initializer_list<int64_t> degrees) {
  int64_t result = 1;
  for (int64_t degree : degrees) {
    if (llvm::MulOverflow(result, degree, result)) {
      return std::nullopt;
    }
  }
  return result;
}

/// The degrees that are not 1, for messages.
static std::string listDegrees(const RunConfig &config) {
  std::string list;
  const ParallelismConfig &layout = config.parallelism;
  for (auto [name, degree] :
       {std::pair("data_parallel_replicate_degree", *layout.replicate),
        std::pair("data_parallel_shard_degree", *layout.shard),
        std::pair("context_parallel_degree", *layout.context),
        std::pair("tensor_parallel_degree", *layout.tensor)}) {
    if (degree > 1) {
      list += (list.empty() ? "" : ", ") + std::string(name) + " " +
              std::to_string(degree);
    }
  }
  return list.empty() ? "all degrees 1" : list;
}

/// Refuses a global batch that the local batches do not make up.
static bool checkBatch(const RunConfig &config, int64_t dataParallel,
                       DiagnosticEngine &diag) {
  const TrainingConfig &training = config.training;
  std::optional<int64_t> sum = product({training.localBatchSize, dataParallel});
  if (!sum || training.globalBatchSize == -1 ||
      training.globalBatchSize == *sum) {
    return true;
  }
  return diag.error(training.globalBatchSize.loc)
             .note(training.localBatchSize.loc,
                   llvm::Twine(*training.localBatchSize) + " per rank, " +
                       llvm::Twine(dataParallel) + " data-parallel ranks")
         << "'training.global_batch_size' is " << *training.globalBatchSize
         << ", but local_batch_size × data-parallel degree is " << *sum
         << "; gradient accumulation is not supported yet";
}

/// Refuses a sequence that does not divide over the ranks that share it.
static bool checkSequence(const RunConfig &config, DiagnosticEngine &diag) {
  const ParallelismConfig &layout = config.parallelism;
  const TrainingConfig &training = config.training;
  bool sequenceParallel = layout.enableSequenceParallel && layout.tensor > 1;
  int64_t parts = layout.context * (sequenceParallel ? *layout.tensor : 1);
  if (training.seqLen % parts == 0) {
    return true;
  }
  auto error = diag.error(training.seqLen.loc);
  error << "'training.seq_len' is " << *training.seqLen
        << ", which does not divide by " << parts << ": ";
  if (layout.context > 1) {
    error << "context_parallel_degree " << *layout.context;
  }
  if (sequenceParallel) {
    error << (layout.context > 1 ? " × " : "") << "tensor_parallel_degree "
          << *layout.tensor << " with enable_sequence_parallel";
  }
  return false;
}

std::optional<ParallelDegrees>
hp::resolveParallelism(const RunConfig &config,
                       std::optional<int64_t> worldSize,
                       DiagnosticEngine &diag) {
  const ParallelismConfig &layout = config.parallelism;
  ParallelDegrees degrees{layout.replicate, layout.shard, layout.context,
                          layout.tensor};
  bool takesRest = degrees.shard == -1;
  if (takesRest) {
    degrees.shard = 1;
  }
  std::optional<int64_t> ranks = product(
      {degrees.replicate, degrees.shard, degrees.context, degrees.tensor});
  if (!ranks || *ranks > std::numeric_limits<int32_t>::max()) {
    diag.error(layout.loc) << "the parallel degrees multiply to more ranks "
                           << "than can be: " << listDegrees(config);
    return std::nullopt;
  }
  if (worldSize && *worldSize != *ranks) {
    bool fits = takesRest && *worldSize > 0 && *worldSize % *ranks == 0;
    if (!fits) {
      auto error = diag.error(layout.loc);
      error << "the parallel degrees ask for "
            << (takesRest ? "a multiple of " : "") << *ranks
            << (*ranks == 1 ? " rank" : " ranks") << " (" << listDegrees(config)
            << "), but there " << (*worldSize == 1 ? "is " : "are ")
            << *worldSize;
      return std::nullopt;
    }
    degrees.shard = *worldSize / *ranks;
  }
  if (!checkBatch(config, degrees.dataParallel(), diag) ||
      !checkSequence(config, diag)) {
    return std::nullopt;
  }
  return degrees;
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

static std::optional<RunConfig>
readConfig(std::optional<Node> root, StringRef path,
           llvm::ArrayRef<std::string> overrides, DiagnosticEngine &diag) {
  if (!root || !applyOverrides(*root, overrides, diag)) {
    return std::nullopt;
  }
  RunConfig config;
  config.path = path.str();
  config.loc = diag.location(path, 0, 0);
  config.model.config.value.kind = Node::Kind::Map;
  FieldReader reader(*root, config.loc, diag);
  visitFields(reader, config);
  if (!reader.finish() || !checkValues(config, diag)) {
    return std::nullopt;
  }
  // A shard degree of -1 has to wait for the world size.
  if (config.parallelism.shard != -1) {
    if (!resolveParallelism(config, std::nullopt, diag)) {
      return std::nullopt;
    }
  } else if (!checkSequence(config, diag)) {
    return std::nullopt;
  }
  warnOfNoEffect(config, diag);
  return config;
}

std::optional<RunConfig>
hp::loadRunConfig(StringRef path, llvm::ArrayRef<std::string> overrides,
                  DiagnosticEngine &diag) {
  return readConfig(readDocument(path, diag), path, overrides, diag);
}

std::optional<RunConfig>
hp::parseRunConfig(StringRef text, StringRef name,
                   llvm::ArrayRef<std::string> overrides,
                   DiagnosticEngine &diag) {
  diag.addBuffer(name, text);
  return readConfig(parseDocument(text, diag.location(name, 1, 1), diag), name,
                    overrides, diag);
}

bool hp::isSpecName(StringRef spec) {
  return !spec.contains('/') && !spec.ends_with(".yaml") &&
         !spec.ends_with(".yml") && !spec.ends_with(".json");
}

std::string hp::resolveInputPath(const RunConfig &config,
                                 const Located<std::string> &path) {
  bool fromFile = path.loc.fileName() == config.loc.fileName();
  if (!fromFile || llvm::sys::path::is_absolute(*path)) {
    return *path;
  }
  llvm::SmallString<128> beside(llvm::sys::path::parent_path(config.path));
  llvm::sys::path::append(beside, *path);
  return llvm::sys::fs::exists(beside) ? beside.str().str() : *path;
}
