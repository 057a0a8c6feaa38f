//===- RunConfigTest.cpp - Reading, checking, printing run configs --------===//

#include "hp/Spec/RunConfig.h"
#include "DiagnosticLog.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

using namespace hp;
using llvm::StringRef;

namespace {

class RunConfigTest : public testing::Test {
protected:
  std::optional<RunConfig> parse(StringRef text) {
    return parseRunConfig(text, "run.yaml", {}, log.diag);
  }
  /// All that is reported for `model.spec` and `rest`, which must be refused.
  std::string refusal(StringRef rest) {
    DiagnosticLog fresh;
    std::string text = "model: {spec: m}\n" + rest.str();
    EXPECT_FALSE(parseRunConfig(text, "r", {}, fresh.diag)) << text;
    EXPECT_TRUE(fresh.everythingLocated);
    return fresh.text();
  }
  /// The same where nothing may be refused.
  std::string accepted(StringRef rest) {
    DiagnosticLog fresh;
    std::string text = "model: {spec: m}\n" + rest.str();
    EXPECT_TRUE(parseRunConfig(text, "r", {}, fresh.diag)) << fresh.text();
    return fresh.text();
  }
  static std::string print(const RunConfig &config) {
    std::string text;
    llvm::raw_string_ostream os(text);
    printRunConfig(config, os);
    return text;
  }
  DiagnosticLog log;
};

/// Every key with a value that is not its default.
const char *const fullConfig = R"(# everything
model:
  spec: ../models/qwen3_5_v2.yaml
  flavor: tiny
  config:
    hidden_size: 128
    mrope_section: [3, 3, 2]
    rms_norm_eps: 1e-6
    name: "quoted: text"
parallelism:
  data_parallel_replicate_degree: 2
  data_parallel_shard_degree: 3
  context_parallel_degree: 4
  tensor_parallel_degree: 2
  expert_parallel_degree: 1
  pipeline_parallel_degree: 1
  enable_sequence_parallel: false
  disable_loss_parallel: true
  context_parallel_attention: alltoall
  context_parallel_linear: alltoall
  fsdp_reshard_after_forward: never
  fsdp_prefetch: 0
training:
  steps: 12
  seq_len: 256
  local_batch_size: 3
  global_batch_size: 18
  max_norm: 0.5
  seed: 42
  init: torch
  dtype: float64
  mixed_precision_param: float32
  mixed_precision_reduce: float64
  loss: cross_entropy
optimizer:
  name: AdamW
  lr: 1e-3
  beta1: 0.8
  beta2: .99
  eps: 1E-6
  weight_decay: 0
  no_decay: ["*.bias", 'x?y']
lr_scheduler:
  warmup_steps: 2
  decay_type: cosine
  decay_ratio: 0.5
  min_lr_factor: 0.1
activation_checkpoint:
  mode: selective
  selective_ac_option: 2
data:
  format: tokens
  path: /data/a b.bin
  dtype: uint16
  layout: rows
checkpoint:
  folder: out/ckpt
  interval: 5
  initial_load_path: weights
metrics:
  jsonl: out/m.jsonl
  log_freq: 10
comm:
  keep_trivial: true
  init_timeout_seconds: 7
  train_timeout_seconds: 8
)";

} // namespace

TEST_F(RunConfigTest, defaults) {
  std::optional<RunConfig> c = parse("model:\n  spec: qwen3_5_v2\n");
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(*c->model.spec, "qwen3_5_v2");
  EXPECT_EQ(*c->model.flavor, "");
  EXPECT_TRUE(c->model.config->isMap());
  EXPECT_EQ(*c->parallelism.replicate, 1);
  EXPECT_EQ(*c->parallelism.shard, -1);
  EXPECT_EQ(*c->training.globalBatchSize, -1);
  EXPECT_EQ(*c->training.maxNorm, 1.0);
  EXPECT_EQ(*c->training.init, InitMethod::Philox);
  EXPECT_EQ(*c->training.dtype, Precision::Float32);
  EXPECT_EQ(*c->optimizer.lr, 8e-4);
  EXPECT_EQ(*c->checkpoint.interval, 0);
  EXPECT_FALSE(c->optimizer.lr.given);
  // A value that is not given has the place of its section or of the file.
  EXPECT_EQ(c->model.flavor.loc.line, 2u);
  EXPECT_EQ(c->optimizer.lr.loc.line, 0u);
  EXPECT_EQ(c->optimizer.lr.loc.fileName(), "run.yaml");
}

TEST_F(RunConfigTest, every_key) {
  std::optional<RunConfig> c = parse(fullConfig);
  ASSERT_TRUE(c) << log.text();
  EXPECT_TRUE(log.lines.empty()) << log.text();
  EXPECT_EQ(*c->model.spec, "../models/qwen3_5_v2.yaml");
  EXPECT_EQ(*c->model.flavor, "tiny");
  const Node *hidden = c->model.config->find("hidden_size");
  ASSERT_TRUE(hidden);
  EXPECT_EQ(hidden->text, "128");
  EXPECT_EQ(hidden->loc.line, 6u);
  EXPECT_EQ(hidden->loc.column, 18u);
  EXPECT_EQ(*c->parallelism.replicate, 2);
  EXPECT_EQ(*c->parallelism.shard, 3);
  EXPECT_EQ(*c->parallelism.context, 4);
  EXPECT_EQ(*c->parallelism.tensor, 2);
  EXPECT_FALSE(c->parallelism.enableSequenceParallel);
  EXPECT_TRUE(c->parallelism.disableLossParallel);
  EXPECT_EQ(*c->parallelism.contextAttention, ContextAttention::AllToAll);
  EXPECT_EQ(*c->parallelism.contextLinear, ContextLinear::AllToAll);
  EXPECT_EQ(*c->parallelism.reshardAfterForward, Reshard::Never);
  EXPECT_EQ(*c->parallelism.prefetch, 0);
  EXPECT_EQ(*c->training.steps, 12);
  EXPECT_EQ(*c->training.seqLen, 256);
  EXPECT_EQ(*c->training.localBatchSize, 3);
  EXPECT_EQ(*c->training.globalBatchSize, 18);
  EXPECT_EQ(*c->training.maxNorm, 0.5);
  EXPECT_EQ(*c->training.seed, 42);
  EXPECT_EQ(*c->training.init, InitMethod::Torch);
  EXPECT_EQ(*c->training.dtype, Precision::Float64);
  EXPECT_EQ(*c->training.mixedPrecisionParam, Precision::Float32);
  EXPECT_EQ(*c->training.mixedPrecisionReduce, Precision::Float64);
  EXPECT_EQ(*c->optimizer.lr, 1e-3);
  EXPECT_EQ(c->optimizer.lr.loc.line, 37u);
  EXPECT_TRUE(c->optimizer.lr.given);
  EXPECT_EQ(*c->optimizer.beta1, 0.8);
  EXPECT_EQ(*c->optimizer.beta2, 0.99);
  EXPECT_EQ(*c->optimizer.eps, 1e-6);
  EXPECT_EQ(*c->optimizer.weightDecay, 0.0);
  EXPECT_EQ(*c->optimizer.noDecay, (std::vector<std::string>{"*.bias", "x?y"}));
  EXPECT_EQ(*c->lrScheduler.warmupSteps, 2);
  EXPECT_EQ(*c->lrScheduler.decayType, Decay::Cosine);
  EXPECT_EQ(*c->lrScheduler.decayRatio, 0.5);
  EXPECT_EQ(*c->lrScheduler.minLRFactor, 0.1);
  EXPECT_EQ(*c->activationCheckpoint.mode, Recompute::Selective);
  EXPECT_EQ(*c->activationCheckpoint.selectiveOption, "2");
  EXPECT_EQ(*c->data.format, DataFormat::Tokens);
  EXPECT_EQ(*c->data.path, "/data/a b.bin");
  EXPECT_EQ(*c->data.dtype, TokenType::UInt16);
  EXPECT_EQ(*c->data.layout, DataLayout::Rows);
  EXPECT_EQ(*c->checkpoint.folder, "out/ckpt");
  EXPECT_EQ(*c->checkpoint.interval, 5);
  EXPECT_EQ(*c->checkpoint.initialLoadPath, "weights");
  EXPECT_EQ(*c->metrics.jsonl, "out/m.jsonl");
  EXPECT_EQ(*c->metrics.logFreq, 10);
  EXPECT_TRUE(c->comm.keepTrivial);
  EXPECT_EQ(*c->comm.initTimeoutSeconds, 7);
  EXPECT_EQ(*c->comm.trainTimeoutSeconds, 8);
}

TEST_F(RunConfigTest, json_is_accepted) {
  std::optional<RunConfig> c =
      parse("{\"model\": {\"spec\": \"m\", \"config\": {\"vocab_size\": 5}},\n"
            " \"training\": {\"steps\": 3}}");
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(*c->training.steps, 3);
  EXPECT_EQ(c->training.steps.loc.line, 2u);
}

TEST_F(RunConfigTest, printing_reads_back) {
  for (const char *text :
       {"model: {spec: m}", fullConfig,
        "model: {spec: \"-\", flavor: \"- a\", hf_config: null}"}) {
    std::optional<RunConfig> c = parse(text);
    ASSERT_TRUE(c) << log.text();
    std::string printed = print(*c);
    std::optional<RunConfig> again = parse(printed);
    ASSERT_TRUE(again) << log.text() << printed;
    EXPECT_EQ(print(*again), printed);
    EXPECT_EQ(*again->optimizer.noDecay, *c->optimizer.noDecay);
    EXPECT_EQ(*again->optimizer.lr, *c->optimizer.lr);
    EXPECT_EQ(*again->data.path, *c->data.path);
    EXPECT_EQ(*again->model.spec, *c->model.spec);
    EXPECT_EQ(*again->model.flavor, *c->model.flavor);
  }
}

TEST_F(RunConfigTest, printing_shows_every_key) {
  std::optional<RunConfig> c = parse("model: {spec: m}");
  ASSERT_TRUE(c);
  std::string printed = print(*c);
  EXPECT_EQ(runConfigKeys().size(), 52u);
  for (const std::string &key : runConfigKeys()) {
    std::string line = "\n  " + StringRef(key).split('.').second.str() + ": ";
    EXPECT_NE(printed.find(line), std::string::npos) << key;
  }
}

TEST_F(RunConfigTest, unknown_keys) {
  EXPECT_EQ(refusal("training: {step: 3}\n"),
            "r:2:12: error: unknown key 'step' in section 'training'\n"
            "r:2:12: note: did you mean 'steps'?\n");
  EXPECT_EQ(refusal("trainning: {}\n"),
            "r:2:1: error: unknown key 'trainning' in the configuration\n"
            "r:2:1: note: did you mean 'training'?\n");
  EXPECT_EQ(refusal("optimizer: {momentum: 1}\n"),
            "r:2:13: error: unknown key 'momentum' in section 'optimizer'\n"
            "r:2:13: note: known keys: name, lr, beta1, beta2, eps, "
            "weight_decay, no_decay\n");
}

TEST_F(RunConfigTest, keys_in_the_wrong_section) {
  EXPECT_EQ(refusal("optimizer: {seq_len: 64}\n"),
            "r:2:13: error: unknown key 'seq_len' in section 'optimizer'\n"
            "r:2:13: note: 'seq_len' belongs to section 'training'\n");
  EXPECT_EQ(refusal("lr: 1\n"),
            "r:2:1: error: unknown key 'lr' in the configuration\n"
            "r:2:1: note: 'lr' belongs to section 'optimizer'\n");
  EXPECT_EQ(refusal("optimizer: {dtype: float32}\n"),
            "r:2:13: error: unknown key 'dtype' in section 'optimizer'\n"
            "r:2:13: note: 'dtype' belongs to section 'training' or 'data'\n");
}

TEST_F(RunConfigTest, all_errors_are_reported_at_once) {
  EXPECT_EQ(refusal("training: {steps: 0, seed: x}\noptimizer: {lr: -1}\n"),
            "r:2:19: error: 'training.steps' must be at least 1, not 0\n"
            "r:2:28: error: 'training.seed' must be a decimal integer, not "
            "'x'\n"
            "r:3:17: error: 'optimizer.lr' must be at least 0, not -1\n");
}

TEST_F(RunConfigTest, the_spec_must_be_given) {
  EXPECT_FALSE(parse("training: {steps: 1}\n"));
  EXPECT_EQ(log.text(), "run.yaml:0:0: error: 'model.spec' must be given\n");
  log.lines.clear();
  EXPECT_FALSE(parse("model:\n  flavor: tiny\n"));
  EXPECT_EQ(log.text(), "run.yaml:2:3: error: 'model.spec' must be given\n");
}

TEST_F(RunConfigTest, sections_that_are_no_maps) {
  EXPECT_EQ(refusal("training: 3\n"),
            "r:2:11: error: section 'training' must be a map of keys and "
            "values, not '3'\n");
  EXPECT_EQ(accepted("training:\n"), "");
  EXPECT_FALSE(parse("- 1\n"));
  EXPECT_TRUE(log.has("run.yaml:1:1: error: the configuration must be a map "
                      "of keys and values, not a list"))
      << log.text();
}

TEST_F(RunConfigTest, values_out_of_range) {
  for (const char *bad : {"training: {steps: 0}",
                          "training: {seq_len: 0}",
                          "training: {local_batch_size: 0}",
                          "training: {global_batch_size: 0}",
                          "training: {global_batch_size: -2}",
                          "training: {max_norm: 0}",
                          "training: {max_norm: .inf}",
                          "training: {seed: -1}",
                          "training: {seed: 99999999999999999999}",
                          "training: {seq_len: 99999999999}",
                          "optimizer: {lr: -1e-9}",
                          "optimizer: {lr: .nan}",
                          "optimizer: {beta1: 1}",
                          "optimizer: {beta1: -0.1}",
                          "optimizer: {beta2: 1.0}",
                          "optimizer: {eps: 0}",
                          "optimizer: {weight_decay: -1}",
                          "optimizer: {no_decay: all}",
                          "optimizer: {no_decay: [1, []]}",
                          "lr_scheduler: {warmup_steps: -1}",
                          "lr_scheduler: {decay_ratio: 1.1}",
                          "lr_scheduler: {min_lr_factor: -0.1}",
                          "lr_scheduler: {decay_type: sqrt}",
                          "parallelism: {data_parallel_shard_degree: 0}",
                          "parallelism: {data_parallel_shard_degree: -2}",
                          "parallelism: {tensor_parallel_degree: 0}",
                          "parallelism: {tensor_parallel_degree: -1}",
                          "parallelism: {tensor_parallel_degree: 2.0}",
                          "parallelism: {enable_sequence_parallel: yes}",
                          "checkpoint: {interval: -1}",
                          "checkpoint: {folder: null}",
                          "metrics: {log_freq: 0}",
                          "comm: {keep_trivial: 1}",
                          "activation_checkpoint: {mode: some}",
                          "activation_checkpoint: {selective_ac_option: 0}",
                          "activation_checkpoint: {selective_ac_option: ops}",
                          "data: {dtype: int32}",
                          "data: {layout: columns}",
                          "optimizer: {name: adamw}",
                          "training: {loss: mse}"}) {
    std::string message = refusal(bad);
    EXPECT_EQ(message.substr(0, 4), "r:2:") << bad << "\n" << message;
  }
}

TEST_F(RunConfigTest, a_small_slip_in_a_word_is_guessed) {
  EXPECT_EQ(refusal("optimizer: {name: adamw}"),
            "r:2:19: error: 'optimizer.name' must be 'AdamW', not 'adamw'\n");
  EXPECT_EQ(refusal("training: {init: Torch}"),
            "r:2:18: error: 'training.init' must be 'philox', 'torch' or "
            "'normal', not 'Torch'\n"
            "r:2:18: note: did you mean 'torch'?\n");
}

TEST_F(RunConfigTest, what_is_not_there_yet_is_refused) {
  EXPECT_EQ(refusal("parallelism: {expert_parallel_degree: 2}"),
            "r:2:39: error: 'parallelism.expert_parallel_degree' must be 1, "
            "not 2: the dense model has no experts\n");
  EXPECT_EQ(refusal("parallelism: {pipeline_parallel_degree: 4}"),
            "r:2:41: error: 'parallelism.pipeline_parallel_degree' must be 1, "
            "not 4: pipeline parallelism is not supported yet\n");
  for (const char *key :
       {"dtype", "mixed_precision_param", "mixed_precision_reduce"}) {
    EXPECT_NE(refusal("training: {" + std::string(key) + ": bfloat16}")
                  .find(": error: 'training." + std::string(key) +
                        "': bfloat16 is not supported yet; write float32\n"),
              std::string::npos);
  }
  EXPECT_EQ(refusal("training: {mixed_precision_param: float64}"),
            "r:2:35: error: 'training.mixed_precision_param' must be "
            "'float32'; for float64 throughout set 'training.dtype'\n");
}

TEST_F(RunConfigTest, flavor_and_hugging_face_config_exclude_each_other) {
  EXPECT_FALSE(
      parse("model:\n  spec: m\n  flavor: tiny\n  hf_config: c.json\n"));
  EXPECT_EQ(log.text(),
            "run.yaml:4:14: error: 'model.hf_config' and 'model.flavor' both "
            "give the model's config; leave one out\n"
            "run.yaml:3:11: note: 'model.flavor' is given here\n");
}

TEST_F(RunConfigTest, values_that_do_nothing_are_warned_of) {
  EXPECT_EQ(accepted("lr_scheduler: {decay_ratio: 0.5}\n"),
            "r:2:29: warning: 'lr_scheduler.decay_ratio' does nothing without "
            "a 'decay_type' of 'linear' or 'cosine'\n");
  EXPECT_EQ(accepted("lr_scheduler: {decay_ratio: null}\n"), "");
  EXPECT_EQ(accepted("training: {steps: 3}\n"
                     "lr_scheduler: {warmup_steps: 5}\n"),
            "r:3:30: warning: 'lr_scheduler.warmup_steps' is 5, but "
            "'training.steps' is 3; the warmup takes 3 steps\n");
  EXPECT_EQ(accepted("training: {steps: 10}\n"
                     "lr_scheduler: {warmup_steps: 5, decay_type: linear, "
                     "decay_ratio: 0.8}\n"),
            "r:3:66: warning: warmup (5) and decay (8) exceed "
            "'training.steps' (10); the decay takes 5 steps\n");
  EXPECT_EQ(accepted("data: {dtype: uint16}\n"),
            "r:2:15: warning: 'data.dtype' does nothing with the format "
            "'text'\n");
}

TEST_F(RunConfigTest, spec_names_and_paths) {
  EXPECT_TRUE(isSpecName("qwen3_5_v2"));
  EXPECT_TRUE(isSpecName("qwen3.5"));
  EXPECT_FALSE(isSpecName("models/x"));
  EXPECT_FALSE(isSpecName("x.yaml"));
  EXPECT_FALSE(isSpecName("x.yml"));
  EXPECT_FALSE(isSpecName("x.json"));
}

TEST_F(RunConfigTest, input_paths_are_beside_the_config_first) {
  llvm::SmallString<128> folder;
  ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("hp-config", folder));
  auto write = [&](StringRef name, StringRef text) {
    llvm::SmallString<128> path(folder);
    llvm::sys::path::append(path, name);
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << text;
    EXPECT_FALSE(error);
    return path.str().str();
  };
  std::string beside = write("text.txt", "x");
  std::string path =
      write("run.yaml", "model: {spec: m}\ndata: {path: text.txt}\n"
                        "checkpoint: {initial_load_path: gone.bin}\n");
  std::optional<RunConfig> c = loadRunConfig(path, {}, log.diag);
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(resolveInputPath(*c, c->data.path), beside);
  EXPECT_EQ(resolveInputPath(*c, c->checkpoint.initialLoadPath), "gone.bin");
  // From --set, the working directory alone counts.
  c = loadRunConfig(path, {"data.path=text.txt"}, log.diag);
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(resolveInputPath(*c, c->data.path), "text.txt");
  c = loadRunConfig(path, {"data.path=/a/b"}, log.diag);
  EXPECT_EQ(resolveInputPath(*c, c->data.path), "/a/b");
  llvm::sys::fs::remove_directories(folder);
}

TEST_F(RunConfigTest, no_decay_patterns) {
  std::optional<RunConfig> c = parse("model: {spec: m}\n");
  ASSERT_TRUE(c);
  const OptimizerConfig &o = c->optimizer;
  for (const char *name :
       {"model.norm.weight", "model.layers.0.input_layernorm.weight",
        "model.layers.3.self_attn.q_norm.weight",
        "model.layers.0.linear_attn.norm.weight",
        "model.layers.0.linear_attn.A_log",
        "model.layers.0.linear_attn.dt_bias",
        "model.layers.3.self_attn.q_proj.bias"}) {
    EXPECT_TRUE(isExemptFromDecay(o, name)) << name;
  }
  for (const char *name :
       {"model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.linear_attn.conv1d.weight", "lm_head.weight"}) {
    EXPECT_FALSE(isExemptFromDecay(o, name)) << name;
  }
  c = parse("model: {spec: m}\noptimizer: {no_decay: []}\n");
  EXPECT_FALSE(isExemptFromDecay(c->optimizer, "model.norm.weight"));
  c = parse("model: {spec: m}\noptimizer: {no_decay: ['a*b?c', '*']}\n");
  EXPECT_TRUE(isExemptFromDecay(c->optimizer, ""));
  c = parse("model: {spec: m}\noptimizer: {no_decay: ['a*b?c']}\n");
  EXPECT_TRUE(isExemptFromDecay(c->optimizer, "abxc"));
  EXPECT_TRUE(isExemptFromDecay(c->optimizer, "abbbxc"));
  EXPECT_FALSE(isExemptFromDecay(c->optimizer, "abc"));
  EXPECT_FALSE(isExemptFromDecay(c->optimizer, "abxcd"));
  EXPECT_FALSE(isExemptFromDecay(c->optimizer, "xabxc"));
}
