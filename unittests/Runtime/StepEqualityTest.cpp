//===- StepEqualityTest.cpp - The step program is autograd, bit for bit ---===//
//
// The step that expand-step writes and the interpreter runs, against the
// independent reference with whole-model autograd and LibTorch's AdamW, in one
// process: logits, loss, gradient norm, each gradient, each parameter after
// each step. Predicted and measured bytes of values agree, too.
//
//===----------------------------------------------------------------------===//

#include "StepTesting.h"
#include "hp/Analysis/Memory.h"
#include "gtest/gtest.h"
#include <ATen/ATen.h>

using namespace hp;
using namespace hp::testing;

namespace {

class StepEquality : public ::testing::TestWithParam<StepOptions> {};

/// Runs `steps` steps on both sides and expects the same bits everywhere.
void expectSameTraining(const StepOptions &options, int steps) {
  std::unique_ptr<StepProgram> program = makeStep(options);
  reference::Qwen35Model model = makeReference(*program);
  copyToReference(*program, model);
  reference::AdamWSettings settings;
  reference::Trainer trainer(model, settings, options.maxNorm);

  for (int step = 0; step < steps; ++step) {
    StepInputs inputs = makeInputs(*program, 42 + step, 1e-3 / (step + 1));
    trainer.setLearningRate(inputs.learningRate);

    std::map<std::string, at::Tensor> gradients;
    ASSERT_TRUE(program->interpreter->gradients(
        inputs,
        [&](llvm::StringRef name, const at::Tensor &gradient) {
          gradients[name.str()] = gradient.clone();
        },
        program->diag));
    std::optional<ForwardResult> forward =
        program->interpreter->forward(inputs, program->diag);
    ASSERT_TRUE(forward);
    at::Tensor logits = model.forward(inputs.tokens);
    EXPECT_TRUE(sameBits(forward->logits, logits)) << "logits, step " << step;

    std::optional<StepResult> ours =
        program->interpreter->step(inputs, program->diag);
    ASSERT_TRUE(ours);
    reference::StepResult theirs = trainer.step(inputs.tokens, inputs.labels);
    EXPECT_EQ(ours->loss, theirs.loss.item<double>()) << "step " << step;
    EXPECT_EQ(ours->loss, forward->loss);
    EXPECT_EQ(ours->gradNorm, theirs.gradNorm) << "step " << step;
    EXPECT_TRUE(ours->updated);
    ASSERT_EQ(gradients.size(), theirs.grads.size());
    for (const reference::NamedTensor &entry : theirs.grads) {
      EXPECT_TRUE(sameBits(gradients[hpName(entry.name)], entry.tensor))
          << "gradient of " << entry.name << ", step " << step;
    }
    for (const reference::NamedTensor &entry : theirs.params) {
      EXPECT_TRUE(sameBits(program->store->find(hpName(entry.name))->value,
                           entry.tensor))
          << entry.name << " after step " << step;
    }
  }
  MemoryPeak peak =
      peakOfValues(*program->module, *program->module->findFunction("step"));
  EXPECT_EQ(program->interpreter->peakBytes(), peak.bytes);
}

TEST_P(StepEquality, gradientsAndUpdatesAreThoseOfWholeModelAutograd) {
  expectSameTraining(GetParam(), 2);
}

StepOptions with(std::string flavor, std::string config, int64_t seqLen = 70,
                 int64_t batch = 2) {
  StepOptions options;
  options.flavor = std::move(flavor);
  options.config = std::move(config);
  options.seqLen = seqLen;
  options.batch = batch;
  return options;
}

INSTANTIATE_TEST_SUITE_P(
    Lengths, StepEquality,
    ::testing::Values(with("micro", "", 2), with("micro", "", 3, 3),
                      with("micro", "", 4), with("micro", "", 63),
                      with("micro", "", 64), with("micro", "", 65, 1),
                      with("micro", "", 127), with("micro", "", 129)));

INSTANTIATE_TEST_SUITE_P(
    Shapes, StepEquality,
    ::testing::Values(
        with("tiny", ""), with("micro", "{tie_word_embeddings: false}"),
        with("micro", "{attention_bias: true}"),
        with("micro", "{attn_output_gate: false}"),
        with("micro", "{num_key_value_heads: 4}"),
        with("micro", "{num_key_value_heads: 1}"),
        with("micro", "{linear_num_value_heads: 2}"),
        with("micro", "{linear_num_value_heads: 8, linear_value_head_dim: 24}"),
        with("micro", "{num_hidden_layers: 3, layer_types: [full_attention, "
                      "linear_attention, full_attention]}"),
        with("micro", "{full_attention_interval: 1}"),
        with("micro", "{num_hidden_layers: 1, layer_types: "
                      "[linear_attention]}"),
        with("micro", "{intermediate_size: 97, vocab_size: 33}")));

TEST(StepEqualityOfTenSteps, torchInitialization) {
  StepOptions options;
  options.batch = 8;
  options.seqLen = 128;
  expectSameTraining(options, 10);
}

TEST(StepEqualityOfTenSteps, normalInitialization) {
  StepOptions options;
  options.init = "normal";
  options.batch = 8;
  options.seqLen = 128;
  options.maxNorm = 0.1;
  expectSameTraining(options, 10);
}

TEST(StepEqualityInFloat64, everythingIsFloat64) {
  StepOptions options;
  options.flavor = "micro";
  options.dtype = "float64";
  expectSameTraining(options, 3);
}

TEST(Initialization, torchAndNormalAreTheReferences) {
  for (std::string init : {"torch", "normal"}) {
    for (std::string config :
         {"{}", "{attention_bias: true}", "{tie_word_embeddings: false}"}) {
      StepOptions options;
      options.flavor = "micro";
      options.config = config;
      options.init = init;
      options.seed = 7;
      std::unique_ptr<StepProgram> program = makeStep(options);
      reference::Qwen35Model model = makeReference(*program);
      init == "torch" ? model.initTorch(7) : model.initNormal(7);
      for (const reference::NamedTensor &entry : model.parameters) {
        EXPECT_TRUE(sameBits(program->store->find(hpName(entry.name))->value,
                             entry.tensor))
            << init << ' ' << config << ' ' << entry.name;
      }
    }
  }
}

TEST(Initialization, parametersAreInTheReferencesOrder) {
  std::unique_ptr<StepProgram> program = makeStep({});
  reference::Qwen35Model model = makeReference(*program);
  ASSERT_EQ(program->store->registration().size(), model.parameters.size());
  for (size_t i = 0; i < model.parameters.size(); ++i) {
    EXPECT_EQ(program->store->all()[program->store->registration()[i]].name,
              hpName(model.parameters[i].name));
  }
}

TEST(Initialization, philoxDependsOnNameAndElementAlone) {
  StepOptions options;
  options.flavor = "micro";
  options.init = "philox";
  std::unique_ptr<StepProgram> small = makeStep(options);
  options.config = "{num_hidden_layers: 8, vocab_size: 2000}";
  options.dtype = "float64";
  std::unique_ptr<StepProgram> large = makeStep(options);
  for (const StoredParameter &parameter : small->store->all()) {
    at::Tensor other = large->store->find(parameter.name)->value;
    other = other.narrow(0, 0, parameter.value.size(0)).to(at::kFloat);
    EXPECT_TRUE(sameBits(parameter.value, other)) << parameter.name;
  }
}

TEST(Initialization, philoxDrawsTheDistributionsItSays) {
  StepOptions options;
  options.init = "philox";
  std::unique_ptr<StepProgram> program = makeStep(options);
  at::Tensor weight = program->store->find("embed_tokens.weight")->value;
  EXPECT_NEAR(weight.mean().item<double>(), 0, 2e-4);
  EXPECT_NEAR(weight.std().item<double>(), 0.02, 2e-4);
  at::Tensor decay =
      program->store->find("layers.0.linear_attn.A_log")->value.exp();
  EXPECT_TRUE((decay > 0).all().item<bool>());
  EXPECT_TRUE((decay < 16).all().item<bool>());
  EXPECT_TRUE(
      sameBits(program->store->find("norm.weight")->value, at::zeros({256})));
  EXPECT_TRUE(
      sameBits(program->store->find("layers.0.linear_attn.norm.weight")->value,
               at::ones({32})));
  EXPECT_TRUE(program->store->find("layers.0.linear_attn.A_log")
                  ->value.isfinite()
                  .all()
                  .item<bool>());
}

//===----------------------------------------------------------------------===//
// Skipped steps
//===----------------------------------------------------------------------===//

/// All parameters, to see that none changed.
std::vector<at::Tensor> snapshot(const StepProgram &program) {
  std::vector<at::Tensor> values;
  for (const StoredParameter &parameter : program.store->all()) {
    values.push_back(parameter.value.clone());
  }
  return values;
}

void expectSkipped(StepProgram &program, const StepInputs &inputs) {
  std::vector<at::Tensor> before = snapshot(program);
  std::optional<StepResult> result =
      program.interpreter->step(inputs, program.diag);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->updated);
  EXPECT_EQ(program.store->updates, 0);
  std::vector<at::Tensor> after = snapshot(program);
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_TRUE(sameBits(before[i], after[i]));
  }
}

TEST(SkippedStep, noValidTargetChangesNothingAndGivesNoNaN) {
  StepOptions options;
  options.flavor = "micro";
  std::unique_ptr<StepProgram> program = makeStep(options);
  StepInputs inputs = makeInputs(*program, 1, 1e-3);
  inputs.labels.fill_(-100);
  expectSkipped(*program, inputs);
  std::optional<StepResult> result =
      program->interpreter->step(inputs, program->diag);
  EXPECT_EQ(result->loss, 0);
  EXPECT_EQ(result->gradNorm, 0);
  EXPECT_EQ(result->validTargets, 0);
}

TEST(SkippedStep, aNormThatIsNotFiniteChangesNothing) {
  StepOptions options;
  options.flavor = "micro";
  std::unique_ptr<StepProgram> program = makeStep(options);
  program->store->find("layers.1.mlp.up_proj.weight")->value.fill_(INFINITY);
  expectSkipped(*program, makeInputs(*program, 1, 1e-3));
}

TEST(SkippedStep, aLengthOfOneHasNoTargets) {
  StepOptions options;
  options.flavor = "micro";
  options.seqLen = 1;
  std::unique_ptr<StepProgram> program = makeStep(options);
  StepInputs inputs = makeInputs(*program, 1, 1e-3);
  std::optional<ForwardResult> forward =
      program->interpreter->forward(inputs, program->diag);
  ASSERT_TRUE(forward);
  reference::Qwen35Model model = makeReference(*program);
  copyToReference(*program, model);
  EXPECT_TRUE(sameBits(forward->logits, model.forward(inputs.tokens)));
  expectSkipped(*program, inputs);
}

TEST(MeanOfLosses, dividesByAllValidTargetsOnce) {
  StepOptions options;
  options.flavor = "micro";
  options.batch = 2;
  std::unique_ptr<StepProgram> program = makeStep(options);
  StepInputs inputs = makeInputs(*program, 5, 1e-3);
  inputs.labels[0].narrow(0, 1, 69).fill_(-100); // one target against 69
  std::optional<ForwardResult> forward =
      program->interpreter->forward(inputs, program->diag);
  ASSERT_TRUE(forward);
  EXPECT_EQ(forward->validTargets, 70);
  at::Tensor logits = forward->logits.to(at::kDouble);
  at::Tensor each = at::cross_entropy_loss(logits.view({-1, logits.size(2)}),
                                           inputs.labels.view({-1}), {},
                                           at::Reduction::None, -100);
  EXPECT_NEAR(forward->loss, each.sum().item<double>() / 70, 1e-5);
}

} // namespace
