//===- Qwen35Reference.cpp - The forward pass of the reference model ------===//
//
// The forward pass, LibTorch call by LibTorch call as the published model makes
// them. Operands that C++ would evaluate in an unspecified order are named
// first: the order of calls is the order in which autograd sums gradients.
//
// `high` is the wider of float32 and the model's type; `.to(high)` does nothing
// in a model of either type. Shapes are [B,S,...] unless said otherwise.
//
//   linear         at::linear(x, w); with a bias, then x + bias
//   RMSNorm        x.to(high); pow(2); mean(-1, keep); + eps; rsqrt; x * .;
//                  w.to(high); 1 + w; *; to the model's type
//   RMSNormGated   x.to(high); pow(2); mean(-1, keep); + eps; rsqrt; x * .;
//                  w * .; silu(gate.to(high)); *; to the model's type
//   MLP            linear gate_proj; silu; linear up_proj; *; linear down_proj
//   layer          input_layernorm; linear_attn or self_attn; residual + .;
//                  post_attention_layernorm; MLP; residual + .
//   rotary table   arange(0, dim, 2) / dim; pow(theta, .); reciprocal; * 1.0;
//                  position[..., None] * .; cos; sin; cat(sin, sin);
//                  cat(cos, cos); both to the model's type
//   rotary         slice q, then k, into turned and passed channels; q * cos;
//                  cat(-q2, q1); * sin; +; the same for k; cat of q with its
//                  passed channels, then of k
//   self_attn      linear q_proj; view [B,S,heads,2d]; chunk(2); reshape gate;
//                  RMSNorm q_norm; transpose(1, 2); linear k_proj; view;
//                  RMSNorm k_norm; transpose; linear v_proj; view; transpose;
//                  rotary; repeat k; repeat v; transpose(2, 3) of k; matmul;
//                  * d^-0.5; + mask; softmax(-1, high); to the model's type;
//                  matmul; transpose(1, 2); contiguous; reshape; contiguous;
//                  sigmoid(gate); *; linear o_proj
//   repeat         unsqueeze(2); expand; reshape; nothing for groups of one
//   mask           where(j <= i, 0, lowest finite number), [1,1,S,S]
//   linear_attn    linear in_proj_qkv; transpose(1, 2); linear in_proj_z;
//                  reshape; linear in_proj_b; linear in_proj_a; convolution;
//                  transpose(1, 2); split q|k|v; reshape each; sigmoid(b);
//                  exp(A_log); neg; a + dt_bias; softplus; *; gated delta rule;
//                  reshape [-1,dv] of it, then of z; RMSNormGated; reshape;
//                  linear out_proj
//   convolution    squeeze(1) and unsqueeze(1) of w; conv1d(padding k - 1, one
//                  group a channel); slice to S; silu
//   delta rule     chunkGatedDeltaRule() is its own list, one call a line
//   model          embedding; mask; rotary table; layers; RMSNorm norm; linear
//                  lm_head, or the embedding where tied
//   loss           view [-1,V]; cross_entropy_loss(sum, ignoring -100); divided
//                  by the count of labels that are not -100, at least 1
//
//===----------------------------------------------------------------------===//
#include "Qwen35Reference.h"

#include <cmath>
#include <limits>
#include <tuple>

using at::Tensor;

namespace reference {

static constexpr int64_t ChunkSize = 64;
static constexpr int64_t IgnoreIndex = -100;

static at::ScalarType high(const Tensor &x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

static Tensor linear(const Qwen35Model &m, const std::string &name,
                     const Tensor &x, bool hasBias = false) {
  Tensor y = at::linear(x, m.parameter(name + ".weight"));
  if (hasBias) {
    y = y + m.parameter(name + ".bias");
  }
  return y;
}

/// Scales the last dimension to a mean square of one.
static Tensor normalize(const Tensor &x, double eps) {
  Tensor variance = x.pow(2).mean({-1}, /*keepdim=*/true);
  return x * at::rsqrt(variance + eps);
}

/// The norm whose weight is kept as its distance from one.
static Tensor rmsNorm(const Qwen35Model &m, const std::string &name,
                      const Tensor &x) {
  Tensor output = normalize(x.to(high(x)), m.config.rmsNormEps);
  Tensor scale = 1.0 + m.parameter(name + ".weight").to(high(x));
  return (output * scale).to(x.scalar_type());
}

/// The norm of the linear attention, gated by silu. Its weight is kept as it
/// is.
static Tensor rmsNormGated(const Qwen35Model &m, const std::string &name,
                           const Tensor &x, const Tensor &gate) {
  Tensor output = normalize(x.to(high(x)), m.config.rmsNormEps);
  output = m.parameter(name + ".weight") * output.to(x.scalar_type());
  Tensor activation = at::silu(gate.to(high(x)));
  return (output * activation).to(x.scalar_type());
}

//===--- Full attention ---------------------------------------------------===//

struct RotaryTable {
  Tensor cos; ///< [1,S,rotaryDim]
  Tensor sin; ///< [1,S,rotaryDim]
};

static RotaryTable rotaryTable(const Qwen35Config &config,
                               const Tensor &hidden) {
  at::TensorOptions options = at::dtype(high(hidden));
  int64_t dim = config.rotaryDim();
  Tensor exponent = at::arange(0, dim, 2, options) / dim;
  Tensor inverseFrequency =
      at::pow(at::Scalar(config.ropeTheta), exponent).reciprocal() * 1.0;
  Tensor position =
      at::arange(hidden.size(1), at::dtype(at::kLong)).unsqueeze(0);
  Tensor angle = position.unsqueeze(-1).to(high(hidden)) * inverseFrequency;
  Tensor cos = angle.cos();
  Tensor sin = angle.sin();
  sin = at::cat({sin, sin}, -1);
  cos = at::cat({cos, cos}, -1);
  return {cos.to(hidden.scalar_type()), sin.to(hidden.scalar_type())};
}

static Tensor rotateHalf(const Tensor &x) {
  int64_t half = x.size(-1) / 2;
  Tensor first = x.slice(-1, 0, half);
  Tensor second = x.slice(-1, half);
  Tensor negated = -second;
  return at::cat({negated, first}, -1);
}

static Tensor rotate(const Tensor &x, const Tensor &cos, const Tensor &sin) {
  Tensor straight = x * cos;
  Tensor crossed = rotateHalf(x) * sin;
  return straight + crossed;
}

/// Turns the first channels of q and k, both [B,heads,S,d], and passes the
/// others on.
static void applyRotary(Tensor &q, Tensor &k, const RotaryTable &table) {
  Tensor cos = table.cos.unsqueeze(1);
  Tensor sin = table.sin.unsqueeze(1);
  int64_t dim = cos.size(-1);
  Tensor qTurned = q.slice(-1, 0, dim);
  Tensor qPassed = q.slice(-1, dim);
  Tensor kTurned = k.slice(-1, 0, dim);
  Tensor kPassed = k.slice(-1, dim);
  qTurned = rotate(qTurned, cos, sin);
  kTurned = rotate(kTurned, cos, sin);
  q = at::cat({qTurned, qPassed}, -1);
  k = at::cat({kTurned, kPassed}, -1);
}

/// Gives each query head a copy of its key or value head: [B,kv,S,d] ->
/// [B,kv*count,S,d], copies adjacent.
static Tensor repeatHeads(const Tensor &x, int64_t count) {
  if (count == 1) {
    return x;
  }
  int64_t batch = x.size(0), heads = x.size(1), length = x.size(2),
          dim = x.size(3);
  return x.unsqueeze(2)
      .expand({batch, heads, count, length, dim})
      .reshape({batch, heads * count, length, dim});
}

/// [1,1,S,S]: zero where query i may see key j, elsewhere the lowest finite
/// number.
static Tensor causalMask(int64_t length, at::ScalarType dtype) {
  Tensor visible = at::ones({length, length}, at::dtype(at::kBool))
                       .tril()
                       .view({1, 1, length, length});
  double lowest = dtype == at::kDouble ? std::numeric_limits<double>::lowest()
                                       : std::numeric_limits<float>::lowest();
  return at::where(visible, at::zeros({}, at::dtype(dtype)),
                   at::full({}, lowest, at::dtype(dtype)));
}

/// Causal softmax attention of q, k, v [B,heads,S,d], spelled out. Returns
/// [B,S,heads,d].
static Tensor eagerAttention(const Qwen35Config &config, const Tensor &q,
                             const Tensor &k, const Tensor &v,
                             const Tensor &mask) {
  int64_t group = config.numAttentionHeads / config.numKeyValueHeads;
  Tensor keys = repeatHeads(k, group);
  Tensor values = repeatHeads(v, group);
  Tensor scores = at::matmul(q, keys.transpose(2, 3)) *
                  std::pow(static_cast<double>(config.headDim), -0.5);
  scores = scores + mask;
  Tensor weights = at::softmax(scores, -1, high(q)).to(q.scalar_type());
  return at::matmul(weights, values).transpose(1, 2).contiguous();
}

static Tensor selfAttention(const Qwen35Model &m, const std::string &name,
                            const Tensor &x, const RotaryTable &table,
                            const Tensor &mask) {
  const Qwen35Config &config = m.config;
  int64_t batch = x.size(0), length = x.size(1), dim = config.headDim;
  bool bias = config.attentionBias;

  Tensor query = linear(m, name + ".q_proj", x, bias);
  Tensor gate;
  if (config.attnOutputGate) {
    // Each head's rows are its query, then its gate.
    std::vector<Tensor> halves =
        at::chunk(query.view({batch, length, -1, dim * 2}), 2, -1);
    query = halves[0];
    gate = halves[1].reshape({batch, length, -1});
  }
  query = rmsNorm(m, name + ".q_norm", query.view({batch, length, -1, dim}))
              .transpose(1, 2);
  Tensor key =
      linear(m, name + ".k_proj", x, bias).view({batch, length, -1, dim});
  key = rmsNorm(m, name + ".k_norm", key).transpose(1, 2);
  Tensor value = linear(m, name + ".v_proj", x, bias)
                     .view({batch, length, -1, dim})
                     .transpose(1, 2);

  applyRotary(query, key, table);
  Tensor output = eagerAttention(config, query, key, value, mask);
  output = output.reshape({batch, length, -1}).contiguous();
  if (config.attnOutputGate) {
    output = output * at::sigmoid(gate);
  }
  return linear(m, name + ".o_proj", output, bias);
}

//===--- Linear attention: the gated delta net ----------------------------===//

/// Depthwise causal convolution over x [B,C,S] with weight [C,1,k], then silu.
static Tensor causalConvolution(const Tensor &x, const Tensor &weight) {
  Tensor taps = weight.squeeze(1);
  int64_t channels = x.size(1), length = x.size(2), padding = taps.size(-1) - 1;
  Tensor out = at::conv1d(x, taps.unsqueeze(1), /*bias=*/{}, /*stride=*/1,
                          padding, /*dilation=*/1, channels);
  return at::silu(out.slice(2, 0, length));
}

static Tensor l2Norm(const Tensor &x) {
  Tensor inverse = at::rsqrt((x * x).sum({-1}, /*keepdim=*/true) + 1e-6);
  return x * inverse;
}

/// [B,S,H,...] -> [B,H,S,...] in the wider type.
static Tensor headsFirst(const Tensor &x) {
  return x.transpose(1, 2).to(high(x), /*non_blocking=*/false, /*copy=*/false,
                              at::MemoryFormat::Contiguous);
}

/// What both forms of the rule do first: one key head for each value head,
/// heads before tokens, query and key of length one.
static void prepareHeads(Tensor &query, Tensor &key, Tensor &value, Tensor &g,
                         Tensor &beta) {
  int64_t keyHeads = key.size(2), valueHeads = value.size(2);
  if (keyHeads != valueHeads) {
    query = query.repeat_interleave(valueHeads / keyHeads, 2);
    key = key.repeat_interleave(valueHeads / keyHeads, 2);
  }
  query = headsFirst(query);
  key = headsFirst(key);
  value = headsFirst(value);
  beta = headsFirst(beta);
  g = headsFirst(g);
  query = l2Norm(query);
  key = l2Norm(key);
}

static Tensor inChunks(const Tensor &x) {
  return x.reshape({x.size(0), x.size(1), -1, ChunkSize, x.size(-1)});
}

Tensor chunkGatedDeltaRule(Tensor query, Tensor key, Tensor value, Tensor g,
                           Tensor beta) {
  at::ScalarType dtype = query.scalar_type();
  int64_t batch = key.size(0), length = key.size(1), keyDim = key.size(3);
  int64_t heads = value.size(2), valueDim = value.size(3);

  prepareHeads(query, key, value, g, beta);
  query = query * std::pow(static_cast<double>(query.size(-1)), -0.5);

  // Fill the last chunk up with zeros.
  int64_t padding = (ChunkSize - length % ChunkSize) % ChunkSize;
  int64_t chunks = (length + padding) / ChunkSize;
  query = at::pad(query, {0, 0, 0, padding});
  key = at::pad(key, {0, 0, 0, padding});
  value = at::pad(value, {0, 0, 0, padding});
  beta = at::pad(beta, {0, padding});
  g = at::pad(g, {0, padding});

  Tensor betaValue = value * beta.unsqueeze(-1);
  Tensor betaKey = key * beta.unsqueeze(-1);
  query = inChunks(query);
  key = inChunks(key);
  betaKey = inChunks(betaKey);
  betaValue = inChunks(betaValue);
  g = g.reshape({g.size(0), g.size(1), -1, ChunkSize});

  // Decay from token j to token i of a chunk. The difference is formed and
  // masked before exp: exp(-sum) would overflow.
  Tensor future =
      at::ones({ChunkSize, ChunkSize}, at::dtype(at::kBool)).triu(1);
  Tensor total = g.cumsum(3);
  Tensor rows = total.unsqueeze(4);
  Tensor columns = total.unsqueeze(3);
  Tensor decay = rows - columns;
  decay = decay.masked_fill(future, -std::numeric_limits<double>::infinity());
  decay = decay.exp();

  // Within a chunk, the corrections of earlier tokens are a unit lower
  // triangular system.
  Tensor system = at::matmul(betaKey, key.transpose(-1, -2)) * decay;
  Tensor within = at::matmul(query, key.transpose(-1, -2)) * decay;
  Tensor decayedKey = betaKey * total.exp().unsqueeze(-1);
  Tensor newValue = at::linalg_solve_triangular(
      system, betaValue, /*upper=*/false, /*left=*/true, /*unitri=*/true);
  Tensor keyDecay = at::linalg_solve_triangular(
      system, decayedKey, /*upper=*/false, /*left=*/true, /*unitri=*/true);

  Tensor state =
      at::zeros({batch, heads, keyDim, valueDim}, newValue.options());
  Tensor output = at::zeros_like(newValue);
  query = query * total.exp().unsqueeze(-1);
  Tensor last = total.slice(-1, -1);
  key = key * (last - total).exp().unsqueeze(-1);
  Tensor chunkDecay = total.select(-1, -1).exp().unsqueeze(-1).unsqueeze(-1);

  // From chunk to chunk, the state.
  for (int64_t i = 0; i < chunks; ++i) {
    Tensor chunkValue = newValue.select(2, i);
    Tensor known = at::matmul(keyDecay.select(2, i), state);
    Tensor fresh = chunkValue - known;
    Tensor before = at::matmul(query.select(2, i), state);
    Tensor inside = at::matmul(within.select(2, i), fresh);
    output.select(2, i).copy_(before + inside);
    Tensor kept = state * chunkDecay.select(2, i);
    Tensor added = at::matmul(key.select(2, i).transpose(-1, -2), fresh);
    state = kept + added;
  }
  output = output.reshape({batch, heads, -1, valueDim}).slice(2, 0, length);
  return output.transpose(1, 2).to(dtype, /*non_blocking=*/false,
                                   /*copy=*/false,
                                   at::MemoryFormat::Contiguous);
}

Tensor recurrentGatedDeltaRule(Tensor query, Tensor key, Tensor value, Tensor g,
                               Tensor beta) {
  at::ScalarType dtype = query.scalar_type();
  int64_t length = key.size(1);
  prepareHeads(query, key, value, g, beta);
  query = query / std::sqrt(static_cast<double>(query.size(-1)));

  Tensor state =
      at::zeros({value.size(0), value.size(1), key.size(-1), value.size(-1)},
                value.options());
  std::vector<Tensor> outputs;
  for (int64_t t = 0; t < length; ++t) {
    Tensor q = query.select(2, t).unsqueeze(-1),
           k = key.select(2, t).unsqueeze(-1), v = value.select(2, t);
    state = state * g.select(2, t).exp().unsqueeze(-1).unsqueeze(-1);
    Tensor known = (state * k).sum({-2});
    Tensor delta = (v - known) * beta.select(2, t).unsqueeze(-1);
    state = state + k * delta.unsqueeze(-2);
    outputs.push_back((state * q).sum({-2}));
  }
  return at::stack(outputs, 1).to(dtype);
}

static Tensor linearAttention(const Qwen35Model &m, const std::string &name,
                              const Tensor &x) {
  const Qwen35Config &config = m.config;
  int64_t batch = x.size(0), length = x.size(1),
          valueDim = config.linearValueHeadDim;

  Tensor mixed = linear(m, name + ".in_proj_qkv", x).transpose(1, 2);
  Tensor z =
      linear(m, name + ".in_proj_z", x).reshape({batch, length, -1, valueDim});
  Tensor b = linear(m, name + ".in_proj_b", x);
  Tensor a = linear(m, name + ".in_proj_a", x);

  mixed = causalConvolution(mixed, m.parameter(name + ".conv1d.weight"))
              .transpose(1, 2);
  std::vector<Tensor> parts = mixed.split_with_sizes(
      {config.linearKeyDim(), config.linearKeyDim(), config.linearValueDim()},
      -1);
  Tensor query = parts[0].reshape({batch, length, -1, config.linearKeyHeadDim});
  Tensor key = parts[1].reshape({batch, length, -1, config.linearKeyHeadDim});
  Tensor value = parts[2].reshape({batch, length, -1, valueDim});

  Tensor beta = b.sigmoid();
  Tensor rate = -m.parameter(name + ".A_log").to(high(x)).exp();
  Tensor step = at::softplus(a.to(high(x)) + m.parameter(name + ".dt_bias"));
  Tensor g = rate * step;

  Tensor output =
      chunkGatedDeltaRule(query, key, value, g, beta).reshape({-1, valueDim});
  output = rmsNormGated(m, name + ".norm", output, z.reshape({-1, valueDim}));
  return linear(m, name + ".out_proj", output.reshape({batch, length, -1}));
}

//===--- The model --------------------------------------------------------===//

static Tensor mlp(const Qwen35Model &m, const std::string &name,
                  const Tensor &x) {
  Tensor gate = at::silu(linear(m, name + ".gate_proj", x));
  Tensor up = linear(m, name + ".up_proj", x);
  return linear(m, name + ".down_proj", gate * up);
}

Tensor Qwen35Model::forward(const Tensor &tokens) const {
  Tensor hidden = at::embedding(parameter("model.embed_tokens.weight"), tokens);
  Tensor mask = causalMask(tokens.size(1), hidden.scalar_type());
  RotaryTable table = rotaryTable(config, hidden);
  for (int64_t i = 0; i < config.numHiddenLayers; ++i) {
    std::string layer = "model.layers." + std::to_string(i);
    Tensor residual = hidden;
    hidden = rmsNorm(*this, layer + ".input_layernorm", hidden);
    hidden =
        config.layerTypes[i] == "linear_attention"
            ? linearAttention(*this, layer + ".linear_attn", hidden)
            : selfAttention(*this, layer + ".self_attn", hidden, table, mask);
    hidden = residual + hidden;
    residual = hidden;
    hidden = rmsNorm(*this, layer + ".post_attention_layernorm", hidden);
    hidden = mlp(*this, layer + ".mlp", hidden);
    hidden = residual + hidden;
  }
  hidden = rmsNorm(*this, "model.norm", hidden);
  return linear(*this,
                config.tieWordEmbeddings ? "model.embed_tokens" : "lm_head",
                hidden);
}

Tensor loss(const Tensor &logits, const Tensor &labels) {
  Tensor wide = logits.to(high(logits)).view({-1, logits.size(-1)});
  Tensor sum = at::cross_entropy_loss(wide, labels.view(-1), {},
                                      at::Reduction::Sum, IgnoreIndex);
  Tensor count = labels.ne(IgnoreIndex).sum().clamp_min(1);
  return sum / count;
}

} // namespace reference
