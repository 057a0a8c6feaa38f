//===- PublishedModel.cpp - The published layers as one program -----------===//

#include "PublishedModel.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Reduction.h>
#include <limits>

using namespace hp::testing;
using at::Tensor;

Parameters hp::testing::publishedParameters(const PublishedSizes &sizes,
                                            uint64_t seed,
                                            at::ScalarType dtype) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  Parameters p;
  auto normal = [&](const std::string &name, at::IntArrayRef shape,
                    double scale, double mean = 0) {
    p[name] =
        (at::randn(shape, generator, at::dtype(at::kDouble)) * scale + mean)
            .to(dtype);
  };
  int64_t h = sizes.hidden, keys = sizes.keyHeads * sizes.keyDim;
  int64_t values = sizes.valueHeads * sizes.valueDim;
  normal("embed", {sizes.vocabulary, h}, 1.0);
  for (std::string layer : {"linear.", "full."}) {
    normal(layer + "norm1", {h}, 0.3);
    normal(layer + "norm2", {h}, 0.3);
    normal(layer + "gate", {sizes.intermediate, h}, 0.2);
    normal(layer + "up", {sizes.intermediate, h}, 0.2);
    normal(layer + "down", {h, sizes.intermediate}, 0.2);
  }
  normal("linear.qkv", {2 * keys + values, h}, 0.3);
  normal("linear.z", {values, h}, 0.3);
  normal("linear.b", {sizes.valueHeads, h}, 0.3);
  normal("linear.a", {sizes.valueHeads, h}, 0.3);
  normal("linear.conv", {2 * keys + values, 1, sizes.taps}, 0.5);
  normal("linear.A_log", {sizes.valueHeads}, 0.5, 1.0);
  normal("linear.dt_bias", {sizes.valueHeads}, 0.5, -1.0);
  normal("linear.norm", {sizes.valueDim}, 0.3, 1.0);
  normal("linear.out", {h, values}, 0.2);
  normal("full.q", {sizes.heads * 2 * sizes.headDim, h}, 0.3);
  normal("full.k", {sizes.groups * sizes.headDim, h}, 0.3);
  normal("full.v", {sizes.groups * sizes.headDim, h}, 0.3);
  normal("full.q_norm", {sizes.headDim}, 0.3);
  normal("full.k_norm", {sizes.headDim}, 0.3);
  normal("full.o", {h, sizes.heads * sizes.headDim}, 0.2);
  normal("norm", {h}, 0.3);
  return p;
}

/// x.float(): at least fp32.
static Tensor wide(const Tensor &x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

static Tensor zeroCenteredNorm(const Tensor &input, const Tensor &weight,
                               double eps) {
  Tensor x = wide(input);
  Tensor output = x * at::rsqrt(x.pow(2).mean(-1, true) + eps);
  return (output * (wide(weight) + 1.0)).type_as(input);
}

static Tensor l2norm(const Tensor &x) {
  return x * at::rsqrt((x * x).sum(-1, true) + 1e-6);
}

static Tensor chunkRule(Tensor q, Tensor k, Tensor v, Tensor decay, Tensor beta,
                        int64_t chunk) {
  int64_t batch = k.size(0), tokens = k.size(1), heads = v.size(2);
  int64_t dv = v.size(3), dk = k.size(3);
  if (k.size(2) != heads) {
    int64_t times = heads / k.size(2);
    q = q.repeat_interleave(times, 2);
    k = k.repeat_interleave(times, 2);
  }
  for (Tensor *x : {&q, &k, &v, &beta, &decay}) {
    *x = x->transpose(1, 2);
    *x = x->to(wide(*x).scalar_type(), false, false,
               at::MemoryFormat::Contiguous);
  }
  q = l2norm(q);
  k = l2norm(k);
  q = q * std::pow(double(dk), -0.5);
  int64_t pad = (chunk - tokens % chunk) % chunk;
  for (Tensor *x : {&q, &k, &v}) {
    *x = at::constant_pad_nd(*x, {0, 0, 0, pad});
  }
  for (Tensor *x : {&beta, &decay}) {
    *x = at::constant_pad_nd(*x, {0, pad});
  }
  Tensor vBeta = v * beta.unsqueeze(-1);
  Tensor kBeta = k * beta.unsqueeze(-1);
  for (Tensor *x : {&q, &k, &kBeta, &vBeta}) {
    *x = x->reshape({batch, heads, -1, chunk, x->size(-1)});
  }
  decay = decay.reshape({batch, heads, -1, chunk});
  Tensor mask = at::ones({chunk, chunk}, at::kBool).triu(1);
  Tensor cum = decay.cumsum(3);
  Tensor row = cum.unsqueeze(4);
  Tensor pairwise = row - cum.unsqueeze(3);
  pairwise =
      pairwise.masked_fill(mask, -std::numeric_limits<double>::infinity())
          .exp();
  Tensor system = at::matmul(kBeta, k.transpose(-1, -2)) * pairwise;
  Tensor intra = at::matmul(q, k.transpose(-1, -2)) * pairwise;
  Tensor decayedKBeta = kBeta * cum.exp().unsqueeze(-1);
  Tensor newValues =
      at::linalg_solve_triangular(system, vBeta, false, true, true);
  Tensor kCum =
      at::linalg_solve_triangular(system, decayedKBeta, false, true, true);
  Tensor state = at::zeros({batch, heads, dk, dv}, newValues.options());
  Tensor out = at::zeros_like(newValues);
  q = q * cum.exp().unsqueeze(-1);
  k = k * (cum.slice(3, -1) - cum).exp().unsqueeze(-1);
  Tensor chunkDecay = cum.select(3, -1).exp().unsqueeze(-1).unsqueeze(-1);
  for (int64_t i = 0; i < decay.size(2); ++i) {
    Tensor base = newValues.select(2, i);
    Tensor vNew = base - at::matmul(kCum.select(2, i), state);
    Tensor inter = at::matmul(q.select(2, i), state);
    Tensor both = inter + at::matmul(intra.select(2, i), vNew);
    out.select(2, i).copy_(both);
    Tensor old = state * chunkDecay.select(2, i);
    state = old + at::matmul(k.select(2, i).transpose(-1, -2), vNew);
  }
  out = out.reshape({batch, heads, -1, dv}).slice(2, 0, tokens);
  return out.transpose(1, 2);
}

static Tensor deltaNet(const PublishedSizes &s, const Parameters &p,
                       const Tensor &x) {
  int64_t batch = x.size(0), tokens = x.size(1);
  Tensor mixed = at::linear(x, p.at("linear.qkv")).transpose(1, 2);
  Tensor z =
      at::linear(x, p.at("linear.z")).reshape({batch, tokens, -1, s.valueDim});
  Tensor b = at::linear(x, p.at("linear.b"));
  Tensor a = at::linear(x, p.at("linear.a"));
  Tensor w = p.at("linear.conv").squeeze(1);
  mixed = at::conv1d(mixed, w.unsqueeze(1), {}, 1, s.taps - 1, 1, w.size(0))
              .slice(2, 0, tokens);
  mixed = at::silu(mixed).transpose(1, 2);
  int64_t keys = s.keyHeads * s.keyDim;
  auto parts =
      mixed.split_with_sizes({keys, keys, s.valueHeads * s.valueDim}, -1);
  Tensor q = parts[0].reshape({batch, tokens, -1, s.keyDim});
  Tensor k = parts[1].reshape({batch, tokens, -1, s.keyDim});
  Tensor v = parts[2].reshape({batch, tokens, -1, s.valueDim});
  Tensor beta = b.sigmoid();
  Tensor rate = -wide(p.at("linear.A_log")).exp();
  Tensor g = rate * at::softplus(wide(a) + p.at("linear.dt_bias"));
  Tensor o = chunkRule(q, k, v, g, beta, s.chunk).reshape({-1, s.valueDim});
  z = z.reshape({-1, s.valueDim});
  Tensor n = wide(o);
  Tensor variance = n.pow(2).mean(-1, true);
  n = n * at::rsqrt(variance + s.eps);
  n = p.at("linear.norm") * n.to(o.scalar_type());
  n = (n * at::silu(wide(z))).to(o.scalar_type());
  return at::linear(n.reshape({batch, tokens, -1}), p.at("linear.out"));
}

static Tensor rotate(const Tensor &x, const Tensor &cos, const Tensor &sin) {
  int64_t rotary = cos.size(-1);
  Tensor rot = x.slice(-1, 0, rotary), pass = x.slice(-1, rotary);
  Tensor straight = rot * cos;
  Tensor x1 = rot.slice(-1, 0, rotary / 2);
  Tensor x2 = rot.slice(-1, rotary / 2);
  Tensor crossed = at::cat({-x2, x1}, -1) * sin;
  return at::cat({straight + crossed, pass}, -1);
}

static Tensor attention(const PublishedSizes &s, const Parameters &p,
                        const Tensor &x, const Tensor &positions) {
  int64_t batch = x.size(0), tokens = x.size(1);
  auto options = at::dtype(wide(x).scalar_type());
  Tensor inverse =
      1.0 / at::pow(at::Scalar(s.theta),
                    at::arange(0, s.rotary, 2, options) / s.rotary);
  Tensor ids = positions.view({1, 1, -1}).expand({3, batch, -1});
  Tensor freqs = ids.unsqueeze(-1).to(inverse.scalar_type()) * inverse;
  Tensor cos = freqs.cos()[0], sin = freqs.sin()[0];
  cos = at::cat({cos, cos}, -1).to(x.scalar_type()).unsqueeze(1);
  sin = at::cat({sin, sin}, -1).to(x.scalar_type()).unsqueeze(1);

  auto halves = at::linear(x, p.at("full.q"))
                    .view({batch, tokens, -1, 2 * s.headDim})
                    .chunk(2, -1);
  Tensor gate = halves[1].reshape({batch, tokens, -1});
  Tensor q = halves[0].view({batch, tokens, -1, s.headDim});
  q = zeroCenteredNorm(q, p.at("full.q_norm"), s.eps).transpose(1, 2);
  Tensor k = at::linear(x, p.at("full.k")).view({batch, tokens, -1, s.headDim});
  k = zeroCenteredNorm(k, p.at("full.k_norm"), s.eps).transpose(1, 2);
  Tensor v = at::linear(x, p.at("full.v"))
                 .view({batch, tokens, -1, s.headDim})
                 .transpose(1, 2);
  q = rotate(q, cos, sin);
  k = rotate(k, cos, sin);
  int64_t times = s.heads / s.groups;
  auto repeat = [&](const Tensor &y) {
    if (times == 1) {
      return y;
    }
    return y.unsqueeze(2)
        .expand({batch, s.groups, times, tokens, s.headDim})
        .reshape({batch, s.heads, tokens, s.headDim});
  };
  Tensor keys = repeat(k), values = repeat(v);
  double lowest = x.scalar_type() == at::kDouble
                      ? std::numeric_limits<double>::lowest()
                      : std::numeric_limits<float>::lowest();
  Tensor mask =
      at::where(at::ones({1, 1, tokens, tokens}, at::kBool).tril(),
                at::zeros({}, x.options()), at::full({}, lowest, x.options()));
  Tensor scores =
      at::matmul(q, keys.transpose(2, 3)) * std::pow(double(s.headDim), -0.5);
  scores = scores + mask;
  Tensor weights = at::softmax(scores, -1, wide(scores).scalar_type());
  Tensor o = at::matmul(weights.to(x.scalar_type()), values);
  o = o.transpose(1, 2).contiguous();
  o = o.reshape({batch, tokens, -1}).contiguous();
  return at::linear(o * at::sigmoid(gate), p.at("full.o"));
}

at::Tensor hp::testing::publishedLogits(const PublishedSizes &s,
                                        const Parameters &p,
                                        const at::Tensor &tokens,
                                        const at::Tensor &positions) {
  Tensor h = at::embedding(p.at("embed"), tokens);
  for (std::string layer : {"linear.", "full."}) {
    Tensor residual = h;
    h = zeroCenteredNorm(h, p.at(layer + "norm1"), s.eps);
    h = layer == "linear." ? deltaNet(s, p, h) : attention(s, p, h, positions);
    h = residual + h;
    residual = h;
    h = zeroCenteredNorm(h, p.at(layer + "norm2"), s.eps);
    Tensor gate = at::silu(at::linear(h, p.at(layer + "gate")));
    h = at::linear(gate * at::linear(h, p.at(layer + "up")),
                   p.at(layer + "down"));
    h = residual + h;
  }
  h = zeroCenteredNorm(h, p.at("norm"), s.eps);
  return at::linear(h, p.at("embed"));
}

at::Tensor hp::testing::publishedLoss(const at::Tensor &logits,
                                      const at::Tensor &labels) {
  Tensor flat = wide(logits).view({-1, logits.size(-1)});
  Tensor sum = at::cross_entropy_loss(flat, labels.reshape({-1}), {},
                                      at::Reduction::Sum, -100);
  return sum / labels.ne(-100).sum().clamp_min(1);
}
