//===- WorkedStepsTest.cpp - The worked steps, run in lockstep ------------===//
//
// The steps under test/IR/worked were typed by hand before there was a pass to
// make them. Each runs on all its ranks in float64, against the independent
// reference: whole-model autograd on one rank, without any notion of sharding.
//
// They stop at what a worked example needs. Before it runs, a step is given the
// arguments, the check and the results that the runtime asks of every step.
//
//===----------------------------------------------------------------------===//

#include "Qwen35Reference.h"
#include "StepTesting.h"
#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Memory.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Runtime/Pieces.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <regex>

using namespace hp;
using namespace hp::testing;

namespace {

constexpr double learningRate = 1e-2, maxNorm = 0.25;

std::string readStep(const std::string &name) {
  auto buffer = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR "/test/IR/worked/" +
                                            name + ".hp");
  if (!buffer) {
    throw std::runtime_error("no worked step " + name);
  }
  return (*buffer)->getBuffer().str();
}

/// Adds learning rate and step count, whether to update, and the results.
std::string completed(std::string text) {
  auto replace = [&](const std::string &pattern, const std::string &by) {
    std::string next = std::regex_replace(text, std::regex(pattern), by);
    EXPECT_NE(next, text) << pattern;
    text = next;
  };
  replace("(func @step\\(.*)\\) \\{", "$1, %lr: f64[], %t: i64[]) {");
  replace("( *)(%coef = clip_coef .*)",
          "$1%ok = finite %gnorm, %n : bool[]\n$1$2");
  replace("(adamw .*), %coef \\{", "$1, %coef, %lr, %t, %ok {");
  replace("return %loss.all, %gnorm", "return %loss.all, %gnorm, %n, %ok");
  return text;
}

/// The same step with every axis of size 1.
std::string shrunk(std::string text) {
  text = std::regex_replace(text, std::regex("(mesh <.*>)\n"), "MESH\n");
  text = std::regex_replace(text, std::regex("MESH"),
                            "mesh <dp_replicate=1, dp_shard=1, cp=1, tp=1>");
  text = std::regex_replace(text, std::regex("n=2"), "n=1");
  return std::regex_replace(text, std::regex("\\)~"), ")");
}

/// A worked step beside the reference model of the same shape.
class WorkedStep {
public:
  explicit WorkedStep(const std::string &text) {
    module = parseModule(text, "step.hp", diag);
    if (!module || !verify(*module, diag)) {
      throw std::runtime_error(diag.firstError());
    }
    comm = makeLockstepCommunicator(module->mesh);
    stores = makeStores(*module, comm->localRanks());
    kernels = makeReferenceKernels(*comm);
    interpreter = Interpreter::create(*module, *comm, kernels, stores, diag);
    if (!interpreter) {
      throw std::runtime_error(diag.firstError());
    }
    model = std::make_unique<reference::Qwen35Model>(shape());
    draw();
    reference::AdamWSettings settings;
    settings.lr = learningRate;
    trainer = std::make_unique<reference::Trainer>(*model, settings, maxNorm);
  }

  /// The whole of a parameter, put together from the ranks' pieces.
  at::Tensor gathered(const std::string &name) {
    Communicator::Tensors pieces;
    for (ParameterStore &store : stores) {
      pieces.push_back(store.find(name)->value);
    }
    return assemble(*comm, stores[0].find(name)->type, pieces);
  }

  std::vector<StepInputs> inputs() {
    StepInputs whole{tokens, labels, at::arange(tokens.size(1)), learningRate};
    return cutInputs(whole, *module, comm->localRanks());
  }

  DiagnosticEngine diag;
  std::unique_ptr<Module> module;
  std::unique_ptr<Communicator> comm;
  ParameterStores stores;
  KernelSets kernels;
  std::unique_ptr<Interpreter> interpreter;
  std::unique_ptr<reference::Qwen35Model> model;
  std::unique_ptr<reference::Trainer> trainer;
  at::Tensor tokens, labels;

private:
  reference::Qwen35Config shape() const {
    auto size = [&](llvm::StringRef name) {
      return module->config.getInt(name, -1);
    };
    auto extent = [&](llvm::StringRef param, unsigned dim) {
      return module->findParam(param)->type.dims()[dim].size();
    };
    reference::Qwen35Config config;
    config.vocabSize = extent("embed_tokens.weight", 0);
    config.hiddenSize = extent("embed_tokens.weight", 1);
    config.intermediateSize = extent("layers.0.mlp.up_proj.weight", 0);
    config.numHiddenLayers = 2;
    config.layerTypes = {"linear_attention", "full_attention"};
    config.numAttentionHeads = size("heads");
    config.numKeyValueHeads = size("kv");
    config.headDim = size("head_dim");
    config.partialRotaryFactor = double(size("rotary")) / size("head_dim");
    config.ropeTheta = 1e4;
    config.linearNumKeyHeads = size("hk");
    config.linearNumValueHeads = size("hv");
    config.linearKeyHeadDim = size("dk");
    config.linearValueHeadDim = size("dv");
    config.attentionBias =
        module->findParam("layers.1.self_attn.q_proj.bias") != nullptr;
    config.dtype = at::kDouble;
    return config;
  }

  /// Parameters large enough that every one matters, and a batch with shards
  /// of no, few and all valid targets.
  void draw() {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(7);
    std::map<std::string, at::Tensor> values;
    for (const reference::NamedTensor &entry : model->parameters) {
      at::Tensor value =
          at::randn(entry.tensor.sizes(), generator, at::dtype(at::kDouble)) *
          (entry.tensor.dim() > 1 ? 0.4 : 0.3);
      if (llvm::StringRef(entry.name).ends_with("linear_attn.norm.weight")) {
        value += 1;
      }
      values[entry.name] = value;
      for (ParameterStore &store : stores) {
        StoredParameter *parameter = store.find(hpName(entry.name));
        ASSERT_TRUE(parameter) << entry.name;
        parameter->value.copy_(cutPiece(value, parameter->placement));
      }
    }
    ASSERT_EQ(values.size(), stores[0].all().size());
    model->copyParameters(values);

    int64_t rows = module->findDim("B")->size;
    int64_t length = module->findDim("S")->size;
    tokens = at::randint(0, model->config.vocabSize, {rows, length}, generator,
                         at::dtype(at::kLong));
    labels = at::full({rows, length}, -100, at::kLong);
    labels.slice(1, 0, length - 1).copy_(tokens.slice(1, 1));
    labels[0].slice(0, length / 2).fill_(-100);
    labels[1].fill_(-100);
    labels[2].slice(0, 3, 9).fill_(-100);
  }
};

/// The largest difference, relative to the largest element.
double error(const at::Tensor &have, const at::Tensor &want) {
  if (have.sizes() != want.sizes()) {
    return INFINITY;
  }
  double scale = want.abs().max().item<double>();
  return (have - want).abs().max().item<double>() / (scale == 0 ? 1 : scale);
}

using Named = std::map<std::string, at::Tensor>;

Named byName(const reference::NamedTensors &list) {
  Named named;
  for (const reference::NamedTensor &entry : list) {
    named[hpName(entry.name)] = entry.tensor;
  }
  return named;
}

/// For each of two steps logits, loss, each parameter's whole gradient, the
/// norm, and the parameters after it, in this order.
template <typename Compare>
void trainBeside(WorkedStep &step, Compare compare) {
  for (int count = 0; count < 2; ++count) {
    std::vector<StepInputs> inputs = step.inputs();
    Named gradients;
    ASSERT_TRUE(step.interpreter->gradients(
        inputs,
        [&](llvm::StringRef name, const at::Tensor &gradient) {
          gradients[name.str()] = gradient.clone();
        },
        step.diag))
        << step.diag.firstError();
    std::optional<ForwardResult> forward =
        step.interpreter->forward(inputs, step.diag);
    ASSERT_TRUE(forward) << step.diag.firstError();
    at::Tensor logits = step.model->forward(step.tokens).detach();
    compare("logits", forward->logits, logits);

    std::optional<StepResult> ours = step.interpreter->step(inputs, step.diag);
    ASSERT_TRUE(ours) << step.diag.firstError();
    reference::StepResult theirs = step.trainer->step(step.tokens, step.labels);
    auto scalar = [](double value) {
      return at::scalar_tensor(value, at::kDouble);
    };
    compare("loss", scalar(ours->loss), theirs.loss);
    compare("loss of forward", scalar(forward->loss), theirs.loss);
    EXPECT_TRUE(ours->updated);
    EXPECT_EQ(ours->validTargets, step.labels.ne(-100).sum().item<int64_t>());
    EXPECT_LT(theirs.clipCoef, 1) << "nothing is clipped";
    Named want = byName(theirs.grads);
    ASSERT_EQ(gradients.size(), want.size());
    for (auto &[name, gradient] : gradients) {
      compare("gradient of " + name, gradient, want.at(name));
    }
    compare("norm", scalar(ours->gradNorm), scalar(theirs.gradNorm));
    for (auto &[name, value] : byName(theirs.params)) {
      compare(name, step.gathered(name), value);
    }
  }
}

class WorkedSteps : public ::testing::TestWithParam<const char *> {};

TEST_P(WorkedSteps, agreesWithTheWholeModelOnOneRank) {
  WorkedStep step(completed(readStep(GetParam())));
  EXPECT_EQ(step.comm->localRanks().size(), 16u);
  double worst = 0; // of all comparisons
  trainBeside(step, [&](const std::string &what, const at::Tensor &have,
                        const at::Tensor &want) {
    double difference = error(have, want);
    EXPECT_LT(difference, 1e-9) << what;
    worst = std::max(worst, difference);
  });
  RecordProperty("worst", llvm::formatv("{0:e}", worst).str());
}

TEST_P(WorkedSteps, ranksWithTheSamePieceHoldTheSameBits) {
  WorkedStep step(completed(readStep(GetParam())));
  ASSERT_TRUE(step.interpreter->step(step.inputs(), step.diag));
  const Mesh &mesh = step.module->mesh;
  for (size_t index = 0; index < step.stores[0].all().size(); ++index) {
    const StoredParameter &first = step.stores[0].all()[index];
    AxisSet cuts = first.type.shardedAxes() | AxisSet(first.type->store->axes);
    AxisList others = (mesh.all() - cuts).list();
    for (int64_t rank : step.comm->localRanks()) {
      int64_t twin = group(mesh, rank, others)[0];
      const StoredParameter &mine = step.stores[rank].all()[index];
      const StoredParameter &its = step.stores[twin].all()[index];
      EXPECT_TRUE(sameBits(mine.value, its.value)) << mine.name << ' ' << rank;
      EXPECT_TRUE(sameBits(mine.expAvg, its.expAvg)) << mine.name;
    }
  }
}

TEST_P(WorkedSteps, bytesAreThoseThatTheTextPredicts) {
  WorkedStep step(completed(readStep(GetParam())));
  ASSERT_TRUE(step.interpreter->step(step.inputs(), step.diag));
  Function &function = *step.module->findFunction("step");
  for (int64_t rank : step.comm->localRanks()) {
    EXPECT_EQ(step.interpreter->peakBytes(rank),
              peakOfValues(*step.module, function, rank).bytes)
        << "rank " << rank;
  }
  Traffic predicted = predictTraffic(*step.module, function);
  const Traffic &counted = step.interpreter->traffic();
  EXPECT_FALSE(counted.counts.empty());
  std::string have, want;
  llvm::raw_string_ostream haveStream(have), wantStream(want);
  print(counted, step.module->mesh, haveStream);
  print(predicted, step.module->mesh, wantStream);
  EXPECT_EQ(have, want);
}

class ShrunkSteps : public ::testing::TestWithParam<const char *> {};

/// Axes of size 1 are no axes: their collectives run and change no bit. (But
/// the norm adds sums of squares by the axes that cut them, and so in another
/// order than the reference; what it scales follows.)
TEST_P(ShrunkSteps, axesOfSizeOneGiveTheBitsOfOneRank) {
  WorkedStep step(shrunk(completed(readStep(GetParam()))));
  ASSERT_EQ(step.comm->localRanks().size(), 1u);
  bool updated = false;
  trainBeside(step, [&](const std::string &what, const at::Tensor &have,
                        const at::Tensor &want) {
    updated |= what == "norm";
    if (updated) {
      EXPECT_LT(error(have, want), 1e-14) << what;
    } else {
      EXPECT_TRUE(sameBits(have, want)) << what << ' ' << error(have, want);
    }
  });
  EXPECT_FALSE(step.interpreter->traffic().counts.empty());
}

/// No target of the batch counts: no NaN anywhere, and all ranks skip.
TEST_P(WorkedSteps, aBatchWithoutTargetsIsSkippedOnAllRanks) {
  WorkedStep step(completed(readStep(GetParam())));
  step.labels.fill_(-100);
  Named before;
  for (const StoredParameter &parameter : step.stores[0].all()) {
    before[parameter.name] = step.gathered(parameter.name);
  }
  std::optional<StepResult> result =
      step.interpreter->step(step.inputs(), step.diag);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->loss, 0);
  EXPECT_EQ(result->gradNorm, 0);
  EXPECT_FALSE(result->updated);
  for (auto &[name, value] : before) {
    EXPECT_TRUE(sameBits(step.gathered(name), value)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, WorkedSteps,
                         ::testing::Values("allgather", "alltoall",
                                           "alltoall_sp_off", "bias",
                                           "bias_sp_off", "kv_replicated",
                                           "kv_replicated_sp_off", "lp_off",
                                           "sp_off", "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });

// Without those where two axes share the heads, of which one has to use up the
// groups.
INSTANTIATE_TEST_SUITE_P(Steps, ShrunkSteps,
                         ::testing::Values("allgather", "alltoall",
                                           "alltoall_sp_off", "bias",
                                           "bias_sp_off", "lp_off", "sp_off",
                                           "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });

} // namespace
