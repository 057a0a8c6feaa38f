//===- Golden.cpp - Reading the recorded figures --------------------------===//
//
// JSON to Golden, by llvm::json and its located error messages.
//
//===----------------------------------------------------------------------===//
#include "Golden.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

namespace json = llvm::json;

namespace reference {

static bool fromJSON(const json::Value &value, Qwen35Config &config,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("vocab_size", config.vocabSize) &&
         map.map("hidden_size", config.hiddenSize) &&
         map.map("intermediate_size", config.intermediateSize) &&
         map.map("num_hidden_layers", config.numHiddenLayers) &&
         map.map("num_attention_heads", config.numAttentionHeads) &&
         map.map("num_key_value_heads", config.numKeyValueHeads) &&
         map.map("head_dim", config.headDim) &&
         map.map("rms_norm_eps", config.rmsNormEps) &&
         map.map("attention_bias", config.attentionBias) &&
         map.map("tie_word_embeddings", config.tieWordEmbeddings) &&
         map.map("attn_output_gate", config.attnOutputGate) &&
         map.map("rope_theta", config.ropeTheta) &&
         map.map("partial_rotary_factor", config.partialRotaryFactor) &&
         map.map("linear_num_value_heads", config.linearNumValueHeads) &&
         map.map("linear_num_key_heads", config.linearNumKeyHeads) &&
         map.map("linear_value_head_dim", config.linearValueHeadDim) &&
         map.map("linear_key_head_dim", config.linearKeyHeadDim) &&
         map.map("linear_conv_kernel_dim", config.linearConvKernelDim) &&
         map.map("layer_types", config.layerTypes);
}

static bool fromJSON(const json::Value &value, AdamWSettings &settings,
                     json::Path path) {
  std::vector<double> betas;
  json::ObjectMapper map(value, path);
  if (!map || !map.map("lr", settings.lr) || !map.map("betas", betas) ||
      !map.map("eps", settings.eps) ||
      !map.map("weight_decay", settings.weightDecay)) {
    return false;
  }
  if (betas.size() != 2) {
    path.field("betas").report("expected two numbers");
    return false;
  }
  settings.beta1 = betas[0];
  settings.beta2 = betas[1];
  return true;
}

/// Reads an array of exactly `count` numbers.
static bool readNumbers(const json::Value &value, size_t count,
                        std::vector<double> &numbers, json::Path path) {
  if (!fromJSON(value, numbers, path)) {
    return false;
  }
  if (numbers.size() != count) {
    path.report("wrong count of numbers");
    return false;
  }
  return true;
}

static bool fromJSON(const json::Value &value, Golden::Checksum &checksum,
                     json::Path path) {
  std::vector<double> numbers;
  if (!readNumbers(value, 2, numbers, path)) {
    return false;
  }
  checksum = {numbers[0], numbers[1]};
  return true;
}

static bool fromJSON(const json::Value &value, Golden::Sample &sample,
                     json::Path path) {
  std::vector<double> numbers;
  if (!readNumbers(value, 4, numbers, path)) {
    return false;
  }
  sample = {static_cast<int64_t>(numbers[0]), static_cast<int64_t>(numbers[1]),
            static_cast<int64_t>(numbers[2]), numbers[3]};
  return true;
}

static bool fromJSON(const json::Value &value, Golden::Step &step,
                     json::Path path) {
  std::vector<double> numbers;
  if (!readNumbers(value, 2, numbers, path)) {
    return false;
  }
  step = {numbers[0], numbers[1]};
  return true;
}

static bool fromJSON(const json::Value &value, Golden::Forward &forward,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("loss", forward.loss) &&
         map.map("logits_sum", forward.logitsSum) &&
         map.map("logits_l2", forward.logitsL2) &&
         map.map("samples", forward.samples);
}

static bool fromJSON(const json::Value &value, Golden &golden,
                     json::Path path) {
  json::ObjectMapper map(value, path);
  return map && map.map("config", golden.config) &&
         map.map("seed", golden.seed) && map.map("init", golden.init) &&
         map.map("batch", golden.batch) && map.map("seq", golden.seq) &&
         map.map("optimizer", golden.optimizer) &&
         map.map("clip", golden.clip) &&
         map.map("param_order", golden.paramOrder) &&
         map.map("param_checksums", golden.paramChecksums) &&
         map.map("forward", golden.forward) &&
         map.map("grad_l2_step0", golden.gradL2) &&
         map.map("train", golden.train) &&
         map.map("param_l2_final", golden.paramL2Final);
}

llvm::Expected<Golden> readGolden(const std::string &name) {
  std::string file =
      std::string(HP_SOURCE_DIR) + "/test/golden/" + name + ".json";
  auto buffer = llvm::MemoryBuffer::getFile(file);
  if (!buffer) {
    return llvm::createStringError(buffer.getError(), "cannot read '%s'",
                                   file.c_str());
  }
  llvm::Expected<json::Value> value = json::parse((*buffer)->getBuffer());
  if (!value) {
    return value.takeError();
  }
  Golden golden;
  json::Path::Root root(file);
  if (!fromJSON(*value, golden, root)) {
    return root.getError();
  }
  return golden;
}

Qwen35Model Golden::makeModel() const {
  Qwen35Model model(config);
  if (init == "torch_default") {
    model.initTorch(seed);
  } else {
    TORCH_CHECK(init == "normal_0.02", "unknown initialization '", init, "'");
    model.initNormal(seed);
  }
  return model;
}

at::Tensor Golden::makeTokens() const {
  int64_t steps = static_cast<int64_t>(train.size());
  at::Tensor tokens = at::empty({steps, batch, seq}, at::dtype(at::kLong));
  int64_t *ids = tokens.mutable_data_ptr<int64_t>();
  uint64_t x = 42;
  for (int64_t i = 0, e = tokens.numel(); i < e; ++i) {
    x = 6364136223846793005u * x + 1442695040888963407u;
    ids[i] = static_cast<int64_t>((x >> 33) %
                                  static_cast<uint64_t>(config.vocabSize));
  }
  return tokens;
}

at::Tensor Golden::shiftedLabels(const at::Tensor &tokens) {
  at::Tensor last = at::full({tokens.size(0), 1}, -100, at::dtype(at::kLong));
  return at::cat({tokens.slice(1, 1), last}, 1);
}

} // namespace reference
