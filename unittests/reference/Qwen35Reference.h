//===- Qwen35Reference.h - A plain Qwen3.5 model to compare with ----------===//
//
// A dense Qwen3.5 language model written by hand on LibTorch's autograd: named
// parameters, forward, loss and one training step. It shares no code with hp
// and knows nothing of its IR, so that tests can compare the two. The order of
// LibTorch calls is the published model's, and Qwen35Reference.cpp lists it
// part by part.
//
//===----------------------------------------------------------------------===//
#ifndef HP_UNITTESTS_REFERENCE_QWEN35REFERENCE_H
#define HP_UNITTESTS_REFERENCE_QWEN35REFERENCE_H

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace reference {

/// The text configuration, with the fields of the published `config.json`. The
/// `mrope_section` field is left out: for text all three position grids are
/// equal, and the interleaving of their frequencies has no effect.
struct Qwen35Config {
  int64_t vocabSize = 248320;
  int64_t hiddenSize = 1024;
  int64_t intermediateSize = 3584;
  int64_t numHiddenLayers = 24;
  int64_t numAttentionHeads = 8;
  int64_t numKeyValueHeads = 2;
  int64_t headDim = 256;
  double rmsNormEps = 1e-6;
  bool attentionBias = false;
  bool attnOutputGate = true;
  bool tieWordEmbeddings = true;
  double ropeTheta = 1e7;
  double partialRotaryFactor = 0.25;
  int64_t linearNumKeyHeads = 16;
  int64_t linearNumValueHeads = 16;
  int64_t linearKeyHeadDim = 128;
  int64_t linearValueHeadDim = 128;
  int64_t linearConvKernelDim = 4;
  /// One entry a layer: "linear_attention" or "full_attention".
  std::vector<std::string> layerTypes;
  /// Type of parameters and activations, float32 or float64. Nothing is below
  /// float64 in a float64 model.
  at::ScalarType dtype = at::kFloat;

  /// Channels of a head that the rotary embedding turns.
  int64_t rotaryDim() const {
    return static_cast<int64_t>(headDim * partialRotaryFactor);
  }
  int64_t linearKeyDim() const { return linearNumKeyHeads * linearKeyHeadDim; }
  int64_t linearValueDim() const {
    return linearNumValueHeads * linearValueHeadDim;
  }
};

/// The layer types of a model in which every `interval`-th of `numLayers`
/// layers is full attention.
std::vector<std::string> layerTypesFromInterval(int64_t numLayers,
                                                int64_t interval);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};
using NamedTensors = std::vector<NamedTensor>;

/// The model: a configuration and its parameters.
struct Qwen35Model {
  /// Makes every parameter, filled with zeros. Throws c10::Error for a
  /// configuration that fits no model.
  explicit Qwen35Model(Qwen35Config config);

  Qwen35Config config;
  /// Leaves that require a gradient, in registration order: a module's own
  /// parameters before its children's. `lm_head.weight` is there only if the
  /// embedding is not tied.
  NamedTensors parameters;

  /// The parameter called `name`; throws c10::Error if there is none.
  const at::Tensor &parameter(const std::string &name) const;

  /// LibTorch's default initialization, drawn from the global generator in
  /// construction order after `manual_seed(seed)`. Draws are float32 for every
  /// dtype, so that a float64 model starts from the same values.
  void initTorch(uint64_t seed);

  /// Matrices normal(0, 0.02), from a generator of its own that goes through
  /// `parameters`: A_log = log uniform(0, 16), dt_bias = 1, biases 0,
  /// `linear_attn.norm.weight` = 1, other norms 0. Float32 draws, as above.
  void initNormal(uint64_t seed);

  /// Overwrites all parameters. Throws c10::Error if `values` lacks one, has
  /// one too many, or a shape differs.
  void copyParameters(const std::map<std::string, at::Tensor> &values);

  /// Logits [B,S,vocab] of token ids [B,S] (int64).
  at::Tensor forward(const at::Tensor &tokens) const;

private:
  std::map<std::string, size_t> index;
};

/// Mean cross entropy of logits [B,S,vocab] over those labels [B,S] that are
/// not -100. Label t belongs to logits t: the caller has shifted them. Zero if
/// there is no valid label.
at::Tensor loss(const at::Tensor &logits, const at::Tensor &labels);

/// The gated delta rule in chunks of 64 tokens. query, key [B,S,Hk,dk]; value
/// [B,S,Hv,dv]; g (log decay, at most 0) and beta [B,S,Hv]. Normalizes query
/// and key. Returns [B,S,Hv,dv].
at::Tensor chunkGatedDeltaRule(at::Tensor query, at::Tensor key,
                               at::Tensor value, at::Tensor g, at::Tensor beta);

/// The same by its definition, token by token: S <- exp(g) S; S <- S + k (x)
/// beta (v - S^T k); o = S^T q.
at::Tensor recurrentGatedDeltaRule(at::Tensor query, at::Tensor key,
                                   at::Tensor value, at::Tensor g,
                                   at::Tensor beta);

/// sqrt of the sum over `grads`, in order, of each tensor's sum of squares;
/// squares and sums in double.
double gradientNorm(const NamedTensors &grads);

struct AdamWSettings {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weightDecay = 0.1;
  /// Names of the parameters that do not decay.
  std::set<std::string> noDecay;
};

struct StepResult {
  /// Mean loss, a detached scalar of the model's dtype.
  at::Tensor loss;
  /// Norm of all gradients before clipping, and the factor min(1, maxNorm /
  /// (norm + 1e-6)) that clipped them.
  double gradNorm = 0.0;
  double clipCoef = 1.0;
  /// Copies of the gradients before clipping, and of the parameters after the
  /// update, in the model's order.
  NamedTensors grads;
  NamedTensors params;
};

/// Trains a model: whole-model backward, clipping by the norm of all gradients,
/// LibTorch's AdamW.
class Trainer {
public:
  /// Keeps a reference to `model`.
  Trainer(Qwen35Model &model, const AdamWSettings &settings, double maxNorm);
  ~Trainer();

  /// The learning rate of the steps that follow.
  void setLearningRate(double lr);

  /// One step on tokens and labels [B,S] (int64; see loss()).
  StepResult step(const at::Tensor &tokens, const at::Tensor &labels);

private:
  struct Optimizer;
  Qwen35Model &model;
  double maxNorm;
  std::unique_ptr<Optimizer> optimizer;
};

} // namespace reference

#endif // HP_UNITTESTS_REFERENCE_QWEN35REFERENCE_H
