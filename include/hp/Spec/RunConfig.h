//===- RunConfig.h - What a run is: the configuration -----------*- C++ -*-===//
//
// A run configuration names the model, the parallel layout and everything the
// training needs, in YAML or JSON, with the key names that torchtitan users
// know. Both tools read the same file: what hp-opt shows is what hp-run runs.
//
//   model:
//     spec: qwen3_5_v2
//     flavor: tiny
//   training:
//     steps: 100
//     seq_len: 128
//
// Every value carries the place where it was given, because later stages
// refuse values too. A value that was not given has the place of its section,
// or of the file. The defaults are those of the members below. docs/Config.md
// lists all keys with their ranges.
//
// Overrides (`--set section.key=value`) are applied before the values are
// read, the last one wins, and their values are YAML too. Their places are in
// a file called "--set", in which override i is line i.
//
// Paths. `model.spec` is a name, looked up among the models of hp, unless it
// has a slash or ends in .yaml, .yml or .json: then it is a path. Paths of
// files to read (spec, hf_config, data.path, initial_load_path) are looked up
// from the folder of the configuration first and from the working directory
// next; given with --set, from the working directory alone. Paths of files to
// write (checkpoint.folder, metrics.jsonl) are relative to the working
// directory. The strings here are as written; resolveInputPath applies this.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_RUNCONFIG_H
#define HP_SPEC_RUNCONFIG_H

#include "hp/Spec/DataKinds.h"
#include "hp/Spec/Document.h"
#include <cstdint>

namespace hp {

/// A value of the configuration and where it was given.
template <typename T> struct Located {
  T value{};
  Location loc = {};
  bool given = false; ///< Whether file or override says it.

  Located() = default;
  Located(T value) : value(std::move(value)) {}
  operator const T &() const { return value; }
  const T &operator*() const { return value; }
  const T *operator->() const { return &value; }
};

enum class ContextAttention { Ring, AllGather, AllToAll };
enum class ContextLinear { State, AllToAll };
enum class Reshard { Default, Always, Never };
enum class InitMethod { Philox, Torch, Normal };
enum class Precision { Float32, Float64 };
enum class LossKind { CrossEntropy };
enum class OptimizerKind { AdamW };
enum class Decay { None, Linear, Cosine };
enum class Recompute { None, Full, Selective };

struct ModelConfig {
  Location loc;
  /// Name or path of the model spec. Required.
  Located<std::string> spec;
  /// A flavor of the spec; empty: the spec's own defaults.
  Located<std::string> flavor;
  /// A Hugging Face config.json that gives the model's config; excludes
  /// `flavor`. Empty: none.
  Located<std::string> hfConfig;
  /// Overrides of single fields of the model's config, on top of the above: a
  /// Map whose values the spec's reader checks.
  Located<Node> config;
};

struct ParallelismConfig {
  Location loc;
  Located<int64_t> replicate{1}; ///< data_parallel_replicate_degree
  Located<int64_t> shard{-1};    ///< data_parallel_shard_degree; -1: the rest
  Located<int64_t> context{1};   ///< context_parallel_degree
  Located<int64_t> tensor{1};    ///< tensor_parallel_degree
  Located<int64_t> expert{1};    ///< expert_parallel_degree; 1 only
  Located<int64_t> pipeline{1};  ///< pipeline_parallel_degree; 1 only
  Located<bool> enableSequenceParallel{true};
  Located<bool> disableLossParallel{false};
  Located<ContextAttention> contextAttention{ContextAttention::Ring};
  Located<ContextLinear> contextLinear{ContextLinear::State};
  Located<Reshard> reshardAfterForward{Reshard::Default};
  Located<int64_t> prefetch{1}; ///< fsdp_prefetch
};

struct TrainingConfig {
  Location loc;
  Located<int64_t> steps{10000};
  Located<int64_t> seqLen{2048};
  Located<int64_t> localBatchSize{8};
  /// -1: local_batch_size times the data-parallel degrees.
  Located<int64_t> globalBatchSize{-1};
  Located<double> maxNorm{1.0};
  Located<int64_t> seed{0};
  Located<InitMethod> init{InitMethod::Philox};
  /// The dtype of weights and arithmetic. Float64 makes everything float64,
  /// whatever the two mixed precisions say.
  Located<Precision> dtype{Precision::Float32};
  Located<Precision> mixedPrecisionParam{Precision::Float32};
  Located<Precision> mixedPrecisionReduce{Precision::Float32};
  Located<LossKind> loss{LossKind::CrossEntropy};
};

struct OptimizerConfig {
  Location loc;
  Located<OptimizerKind> name{OptimizerKind::AdamW};
  Located<double> lr{8e-4};
  Located<double> beta1{0.9};
  Located<double> beta2{0.95};
  Located<double> eps{1e-8};
  Located<double> weightDecay{0.1};
  /// Parameters that do not decay, by patterns of their full names in which
  /// `*` stands for any text and `?` for one character. Empty: all decay.
  Located<std::vector<std::string>> noDecay{std::vector<std::string>{
      "*norm.weight", "*.A_log", "*.dt_bias", "*.bias"}};
};

struct LRSchedulerConfig {
  Location loc;
  Located<int64_t> warmupSteps{0};
  Located<Decay> decayType{Decay::None};
  /// The share of all steps that decays, at the end; nothing: all steps after
  /// the warmup.
  Located<std::optional<double>> decayRatio;
  /// What the decay ends near, as a factor of `optimizer.lr`.
  Located<double> minLRFactor{0.0};
};

struct ActivationCheckpointConfig {
  Location loc;
  Located<Recompute> mode{Recompute::None};
  /// With mode selective: "op" keeps what is dear to compute, a number N
  /// recomputes every N-th layer.
  Located<std::string> selectiveOption{std::string("op")};
};

struct DataConfig {
  Location loc;
  Located<DataFormat> format{DataFormat::Text};
  /// What to train on. Empty: not given, which hp-run refuses.
  Located<std::string> path;
  /// Of a token file.
  Located<TokenType> dtype{TokenType::UInt32};
  /// Stream: windows of seq_len + 1 ids, one token of overlap. Rows: rows of
  /// seq_len ids whose last position has no target.
  Located<DataLayout> layout{DataLayout::Stream};
};

struct CheckpointConfig {
  Location loc;
  Located<std::string> folder{std::string("checkpoint")};
  /// Steps between checkpoints. 0: only at the end.
  Located<int64_t> interval{0};
  /// Safetensors to start from. Empty: initialize.
  Located<std::string> initialLoadPath;
};

struct MetricsConfig {
  Location loc;
  Located<std::string> jsonl; ///< A file of JSON lines. Empty: none.
  Located<int64_t> logFreq{1};
};

struct CommConfig {
  Location loc;
  /// Keeps mesh axes of size 1 and issues their collectives.
  Located<bool> keepTrivial{false};
  Located<int64_t> initTimeoutSeconds{300};
  Located<int64_t> trainTimeoutSeconds{100};
};

struct RunConfig {
  std::string path; ///< The file it was read from.
  Location loc;     ///< The file as a whole.
  ModelConfig model;
  ParallelismConfig parallelism;
  TrainingConfig training;
  OptimizerConfig optimizer;
  LRSchedulerConfig lrScheduler;
  ActivationCheckpointConfig activationCheckpoint;
  DataConfig data;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  CommConfig comm;
};

/// Reads the configuration at `path` with `overrides` ("section.key=value").
/// Reports every error it can find; nothing is returned if there was one.
std::optional<RunConfig> loadRunConfig(llvm::StringRef path,
                                       llvm::ArrayRef<std::string> overrides,
                                       DiagnosticEngine &diag);

/// The same from a text that is called `name`.
std::optional<RunConfig> parseRunConfig(llvm::StringRef text,
                                        llvm::StringRef name,
                                        llvm::ArrayRef<std::string> overrides,
                                        DiagnosticEngine &diag);

/// Applies overrides to a document before it is read; each makes or replaces
/// the value at its path of keys.
bool applyOverrides(Node &root, llvm::ArrayRef<std::string> overrides,
                    DiagnosticEngine &diag);

/// Prints all values, defaults included, as YAML that reads back to the same.
void printRunConfig(const RunConfig &config, llvm::raw_ostream &os);

/// "section.key" of every key there is, in the order of printing.
std::vector<std::string> runConfigKeys();

/// The degrees of the mesh axes for a number of ranks.
struct ParallelDegrees {
  int64_t replicate = 1, shard = 1, context = 1, tensor = 1;

  int64_t dataParallel() const { return replicate * shard; }
  int64_t worldSize() const { return replicate * shard * context * tensor; }
};

/// Fits the layout to `worldSize` ranks (none: as many as the degrees ask for,
/// a shard degree of -1 being 1). Refuses a product of degrees that is not the
/// world size, a global batch that is not the local one times the data
/// parallel degrees, and a sequence that does not divide over the ranks that
/// share it.
std::optional<ParallelDegrees>
resolveParallelism(const RunConfig &config, std::optional<int64_t> worldSize,
                   DiagnosticEngine &diag);

/// Whether `model.spec` is a name to look up, and no path.
bool isSpecName(llvm::StringRef spec);

/// The path under which a file that the configuration names is to be opened;
/// the rule is at the top of this file.
std::string resolveInputPath(const RunConfig &config,
                             const Located<std::string> &path);

/// The learning rate of step `step`, counted from 0, of `training.steps` T.
/// As in torchtitan: with W = min(warmup_steps, T) and D decay steps, D =
/// round-half-even(T · decay_ratio) or, without a ratio, T − W, and at most
/// T − W,
///
///   step < W              lr · (step + 1) / W
///   step < T + 1 − D      lr
///   otherwise             lr · (f + (1 − f) · a(p)),  f = min_lr_factor,
///                         p = (step + 1 − (T + 1 − D)) / D, at most 1,
///                         a(p) = 1 − p, or (1 + cos πp) / 2
///
/// so the first step of a warmup has lr / W, and the last step of a decay is
/// one short of f. Without decay (decay_type none) D is 0.
double learningRate(const RunConfig &config, int64_t step);

/// Whether the parameter `name` matches a pattern of `optimizer.no_decay`.
bool isExemptFromDecay(const OptimizerConfig &optimizer, llvm::StringRef name);

/// The words of the configuration for its choices.
llvm::StringRef spelling(ContextAttention value);
llvm::StringRef spelling(ContextLinear value);
llvm::StringRef spelling(Reshard value);
llvm::StringRef spelling(InitMethod value);
llvm::StringRef spelling(Precision value);
llvm::StringRef spelling(LossKind value);
llvm::StringRef spelling(OptimizerKind value);
llvm::StringRef spelling(Decay value);
llvm::StringRef spelling(Recompute value);
llvm::StringRef spelling(DataFormat value);
llvm::StringRef spelling(TokenType value);
llvm::StringRef spelling(DataLayout value);

} // namespace hp

#endif // HP_SPEC_RUNCONFIG_H
