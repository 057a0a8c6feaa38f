//===- RunConfigFields.h - The one table of configuration keys --*- C++ -*-===//
//
// visitFields walks every section and key of a RunConfig in order, with its
// range or words. Reading, printing and listing keys are visitors, so none of
// them can know a key that the others do not.
//
// A visitor has `section(name, section)`, called before the fields of each
// section, and `field(key, value, rule)`.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_SPEC_RUNCONFIGFIELDS_H
#define HP_LIB_SPEC_RUNCONFIGFIELDS_H

#include "hp/Spec/RunConfig.h"
#include "hp/Spec/TypedReading.h"

namespace hp {

/// Rules of fields that are not numbers.
struct AnyBool {};
struct AnyStringList {};
struct AnyMap {};
/// A string; `required`: must be given; `orNull`: null stands for the empty
/// string, which means "none".
struct StringRule {
  bool required = false;
  bool orNull = false;
};
/// "op" or a positive integer.
struct SelectiveRule {};
template <typename T> using WordRule = llvm::ArrayRef<Choice<T>>;

/// The words of each choice.
template <typename T> llvm::ArrayRef<Choice<T>> choicesOf();

template <typename Visitor, typename Config>
void visitFields(Visitor &&v, Config &config) {
  // Products of sizes stay within 64 bits, and a slip of the hand is noticed.
  const IntRange degree{1, 1 << 20};
  const IntRange size{1, std::numeric_limits<int32_t>::max()};
  const IntRange count{0, int64_t(1) << 40};
  const FloatRange unit{0.0, 1.0};
  const FloatRange belowOne{0.0, 1.0, false, true};
  const FloatRange notNegative{0.0};
  const FloatRange positive{0.0, FloatRange().max, true};

  auto &model = config.model;
  v.section("model", model);
  v.field("spec", model.spec, StringRule{/*required=*/true});
  v.field("flavor", model.flavor, StringRule{false, true});
  v.field("hf_config", model.hfConfig, StringRule{false, true});
  v.field("config", model.config, AnyMap{});

  auto &layout = config.parallelism;
  v.section("parallelism", layout);
  v.field("data_parallel_replicate_degree", layout.replicate, degree);
  v.field("data_parallel_shard_degree", layout.shard,
          IntRange{1, degree.max, /*orMinusOne=*/true});
  v.field("context_parallel_degree", layout.context, degree);
  v.field("tensor_parallel_degree", layout.tensor, degree);
  v.field("expert_parallel_degree", layout.expert, degree);
  v.field("pipeline_parallel_degree", layout.pipeline, degree);
  v.field("enable_sequence_parallel", layout.enableSequenceParallel, AnyBool{});
  v.field("disable_loss_parallel", layout.disableLossParallel, AnyBool{});
  v.field("context_parallel_attention", layout.contextAttention,
          choicesOf<ContextAttention>());
  v.field("context_parallel_linear", layout.contextLinear,
          choicesOf<ContextLinear>());
  v.field("fsdp_reshard_after_forward", layout.reshardAfterForward,
          choicesOf<Reshard>());
  v.field("fsdp_prefetch", layout.prefetch, IntRange{0, degree.max});

  auto &training = config.training;
  v.section("training", training);
  v.field("steps", training.steps, IntRange{1, count.max});
  v.field("seq_len", training.seqLen, size);
  v.field("local_batch_size", training.localBatchSize, size);
  v.field("global_batch_size", training.globalBatchSize,
          IntRange{1, size.max, /*orMinusOne=*/true});
  v.field("max_norm", training.maxNorm, positive);
  v.field("seed", training.seed, IntRange{0});
  v.field("init", training.init, choicesOf<InitMethod>());
  v.field("dtype", training.dtype, choicesOf<Precision>());
  v.field("mixed_precision_param", training.mixedPrecisionParam,
          choicesOf<Precision>());
  v.field("mixed_precision_reduce", training.mixedPrecisionReduce,
          choicesOf<Precision>());
  v.field("loss", training.loss, choicesOf<LossKind>());

  auto &optimizer = config.optimizer;
  v.section("optimizer", optimizer);
  v.field("name", optimizer.name, choicesOf<OptimizerKind>());
  v.field("lr", optimizer.lr, notNegative);
  v.field("beta1", optimizer.beta1, belowOne);
  v.field("beta2", optimizer.beta2, belowOne);
  v.field("eps", optimizer.eps, positive);
  v.field("weight_decay", optimizer.weightDecay, notNegative);
  v.field("no_decay", optimizer.noDecay, AnyStringList{});

  auto &scheduler = config.lrScheduler;
  v.section("lr_scheduler", scheduler);
  v.field("warmup_steps", scheduler.warmupSteps, count);
  v.field("decay_type", scheduler.decayType, choicesOf<Decay>());
  v.field("decay_ratio", scheduler.decayRatio, unit);
  v.field("min_lr_factor", scheduler.minLRFactor, unit);

  auto &recompute = config.activationCheckpoint;
  v.section("activation_checkpoint", recompute);
  v.field("mode", recompute.mode, choicesOf<Recompute>());
  v.field("selective_ac_option", recompute.selectiveOption, SelectiveRule{});

  auto &data = config.data;
  v.section("data", data);
  v.field("format", data.format, choicesOf<DataFormat>());
  v.field("path", data.path, StringRule{false, true});
  v.field("dtype", data.dtype, choicesOf<TokenType>());
  v.field("layout", data.layout, choicesOf<DataLayout>());

  auto &checkpoint = config.checkpoint;
  v.section("checkpoint", checkpoint);
  v.field("folder", checkpoint.folder, StringRule{});
  v.field("interval", checkpoint.interval, count);
  v.field("initial_load_path", checkpoint.initialLoadPath,
          StringRule{false, true});

  auto &metrics = config.metrics;
  v.section("metrics", metrics);
  v.field("jsonl", metrics.jsonl, StringRule{false, true});
  v.field("log_freq", metrics.logFreq, IntRange{1, count.max});

  auto &comm = config.comm;
  v.section("comm", comm);
  v.field("keep_trivial", comm.keepTrivial, AnyBool{});
  v.field("init_timeout_seconds", comm.initTimeoutSeconds, size);
  v.field("train_timeout_seconds", comm.trainTimeoutSeconds, size);
}

} // namespace hp

#endif // HP_LIB_SPEC_RUNCONFIGFIELDS_H
