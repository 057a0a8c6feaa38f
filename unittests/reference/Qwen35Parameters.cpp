//===- Qwen35Parameters.cpp - Parameters of the reference model -----------===//
//
// Builds the ordered list of parameters of the reference model and fills it.
//
//===----------------------------------------------------------------------===//
#include "Qwen35Reference.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/init.h>
#include <torch/utils.h>

#include <cmath>
#include <utility>

using at::Tensor;

namespace reference {

std::vector<std::string> layerTypesFromInterval(int64_t numLayers,
                                                int64_t interval) {
  std::vector<std::string> types;
  for (int64_t i = 0; i < numLayers; ++i) {
    types.push_back((i + 1) % interval == 0 ? "full_attention"
                                            : "linear_attention");
  }
  return types;
}

static bool endsWith(const std::string &text, const std::string &ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

static void check(const Qwen35Config &config) {
  TORCH_CHECK(static_cast<int64_t>(config.layerTypes.size()) ==
                  config.numHiddenLayers,
              "layer_types has ", config.layerTypes.size(), " entries for ",
              config.numHiddenLayers, " layers");
  for (const std::string &type : config.layerTypes) {
    TORCH_CHECK(type == "linear_attention" || type == "full_attention",
                "unknown layer type '", type, "'");
  }
  TORCH_CHECK(config.dtype == at::kFloat || config.dtype == at::kDouble,
              "dtype is neither float32 nor float64");
  TORCH_CHECK(config.numAttentionHeads % config.numKeyValueHeads == 0,
              "heads are no multiple of key-value heads");
  TORCH_CHECK(config.linearNumValueHeads % config.linearNumKeyHeads == 0,
              "value heads are no multiple of key heads");
  TORCH_CHECK(config.rotaryDim() > 0 && config.rotaryDim() % 2 == 0 &&
                  config.rotaryDim() <= config.headDim,
              "rotary width ", config.rotaryDim(),
              " is not even and between 2 and head_dim");
}

Qwen35Model::Qwen35Model(Qwen35Config c) : config(std::move(c)) {
  check(config);
  auto add = [&](const std::string &name, at::IntArrayRef shape) {
    index[name] = parameters.size();
    parameters.push_back(
        {name,
         at::zeros(shape, at::dtype(config.dtype)).set_requires_grad(true)});
  };
  auto addLinear = [&](const std::string &name, int64_t out, int64_t in,
                       bool bias = false) {
    add(name + ".weight", {out, in});
    if (bias) {
      add(name + ".bias", {out});
    }
  };

  int64_t hidden = config.hiddenSize;
  add("model.embed_tokens.weight", {config.vocabSize, hidden});
  for (int64_t i = 0; i < config.numHiddenLayers; ++i) {
    std::string layer = "model.layers." + std::to_string(i);
    if (config.layerTypes[i] == "linear_attention") {
      std::string name = layer + ".linear_attn";
      int64_t mixedDim = 2 * config.linearKeyDim() + config.linearValueDim();
      add(name + ".dt_bias", {config.linearNumValueHeads});
      add(name + ".A_log", {config.linearNumValueHeads});
      add(name + ".conv1d.weight", {mixedDim, 1, config.linearConvKernelDim});
      add(name + ".norm.weight", {config.linearValueHeadDim});
      addLinear(name + ".out_proj", hidden, config.linearValueDim());
      addLinear(name + ".in_proj_qkv", mixedDim, hidden);
      addLinear(name + ".in_proj_z", config.linearValueDim(), hidden);
      addLinear(name + ".in_proj_b", config.linearNumValueHeads, hidden);
      addLinear(name + ".in_proj_a", config.linearNumValueHeads, hidden);
    } else {
      std::string name = layer + ".self_attn";
      int64_t queryDim = config.numAttentionHeads * config.headDim;
      int64_t keyDim = config.numKeyValueHeads * config.headDim;
      bool bias = config.attentionBias;
      addLinear(name + ".q_proj",
                config.attnOutputGate ? 2 * queryDim : queryDim, hidden, bias);
      addLinear(name + ".k_proj", keyDim, hidden, bias);
      addLinear(name + ".v_proj", keyDim, hidden, bias);
      addLinear(name + ".o_proj", hidden, queryDim, bias);
      add(name + ".q_norm.weight", {config.headDim});
      add(name + ".k_norm.weight", {config.headDim});
    }
    addLinear(layer + ".mlp.gate_proj", config.intermediateSize, hidden);
    addLinear(layer + ".mlp.up_proj", config.intermediateSize, hidden);
    addLinear(layer + ".mlp.down_proj", hidden, config.intermediateSize);
    add(layer + ".input_layernorm.weight", {hidden});
    add(layer + ".post_attention_layernorm.weight", {hidden});
  }
  add("model.norm.weight", {hidden});
  if (!config.tieWordEmbeddings) {
    addLinear("lm_head", config.vocabSize, hidden);
  }
}

const Tensor &Qwen35Model::parameter(const std::string &name) const {
  auto found = index.find(name);
  TORCH_CHECK(found != index.end(), "no parameter is called '", name, "'");
  return parameters[found->second].tensor;
}

/// What a parameter that is not drawn starts with.
static double constantFor(const std::string &name) {
  return endsWith(name, ".dt_bias") ||
                 endsWith(name, ".linear_attn.norm.weight")
             ? 1.0
             : 0.0;
}

void Qwen35Model::initTorch(uint64_t seed) {
  at::NoGradGuard noGrad;
  torch::manual_seed(seed);
  // Constants draw nothing; all others are overwritten below.
  for (const NamedTensor &p : parameters) {
    p.tensor.fill_(constantFor(p.name));
  }
  auto drawWeight = [&](const std::string &name) {
    const Tensor &weight = parameter(name + ".weight");
    Tensor values = at::empty(weight.sizes(), at::dtype(at::kFloat));
    torch::nn::init::kaiming_uniform_(values, std::sqrt(5.0));
    weight.copy_(values);
  };
  auto drawLinear = [&](const std::string &name, bool hasBias = false) {
    drawWeight(name);
    if (hasBias) {
      const Tensor &bias = parameter(name + ".bias");
      double bound =
          1.0 /
          std::sqrt(static_cast<double>(parameter(name + ".weight").size(1)));
      bias.copy_(at::empty(bias.sizes(), at::dtype(at::kFloat))
                     .uniform_(-bound, bound));
    }
  };

  const Tensor &embedding = parameter("model.embed_tokens.weight");
  embedding.copy_(
      at::empty(embedding.sizes(), at::dtype(at::kFloat)).normal_());
  for (int64_t i = 0; i < config.numHiddenLayers; ++i) {
    std::string layer = "model.layers." + std::to_string(i);
    if (config.layerTypes[i] == "linear_attention") {
      std::string name = layer + ".linear_attn";
      drawWeight(name + ".conv1d");
      const Tensor &logA = parameter(name + ".A_log");
      logA.copy_(
          at::empty(logA.sizes(), at::dtype(at::kFloat)).uniform_(0, 16).log());
      for (const char *child : {".out_proj", ".in_proj_qkv", ".in_proj_z",
                                ".in_proj_b", ".in_proj_a"}) {
        drawLinear(name + child);
      }
    } else {
      for (const char *child : {".q_proj", ".k_proj", ".v_proj", ".o_proj"}) {
        drawLinear(layer + ".self_attn" + child, config.attentionBias);
      }
    }
    for (const char *child : {".gate_proj", ".up_proj", ".down_proj"}) {
      drawLinear(layer + ".mlp" + child);
    }
  }
  // A tied head would be drawn here and dropped; nothing comes after it.
  if (!config.tieWordEmbeddings) {
    drawLinear("lm_head");
  }
}

void Qwen35Model::initNormal(uint64_t seed) {
  at::NoGradGuard noGrad;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (const NamedTensor &p : parameters) {
    Tensor values = at::empty(p.tensor.sizes(), at::dtype(at::kFloat));
    if (endsWith(p.name, ".A_log")) {
      values.uniform_(0, 16, generator).log_();
    } else if (p.tensor.dim() >= 2) {
      values.normal_(0, 0.02, generator);
    } else {
      values.fill_(constantFor(p.name));
    }
    p.tensor.copy_(values);
  }
}

void Qwen35Model::copyParameters(const std::map<std::string, Tensor> &values) {
  at::NoGradGuard noGrad;
  for (const auto &[name, value] : values) {
    TORCH_CHECK(index.count(name), "no parameter is called '", name, "'");
  }
  for (const NamedTensor &p : parameters) {
    auto found = values.find(p.name);
    TORCH_CHECK(found != values.end(), "no value for parameter '", p.name, "'");
    TORCH_CHECK(found->second.sizes() == p.tensor.sizes(), "'", p.name,
                "' has shape ", p.tensor.sizes(), ", not ",
                found->second.sizes());
  }
  for (const NamedTensor &p : parameters) {
    p.tensor.copy_(values.at(p.name));
  }
}

} // namespace reference
