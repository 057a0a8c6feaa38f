//===- TargetsTest.cpp - Targets that ranks do not share evenly -----------===//
//
// The loss is the mean over the valid targets of the whole batch, however few
// of them a rank has. Steps on many ranks, in float64, with labels that leave
// some ranks much and others nothing, against the independent reference on one
// rank: loss, norm, each gradient, each parameter.
//
//===----------------------------------------------------------------------===//

#include "StepTesting.h"
#include "hp/Runtime/Pieces.h"
#include "hp/Runtime/Replicas.h"
#include <ATen/ATen.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

constexpr int64_t rows = 4, length = 24;
constexpr double learningRate = 1e-2;

struct Place {
  const char *name, *parallelism;
  int64_t ranks;
};

const Place places[] = {
    {"cp", "{context_parallel_degree: 2}", 2},
    {"cpByHeads",
     "{context_parallel_degree: 2, context_parallel_linear: alltoall, "
     "context_parallel_attention: alltoall}",
     2},
    {"shards", "{data_parallel_shard_degree: 4}", 4},
    {"replicas", "{data_parallel_replicate_degree: 4}", 4},
    {"tp", "{tensor_parallel_degree: 2}", 2},
    {"tpWholeLogits",
     "{tensor_parallel_degree: 2, disable_loss_parallel: true, "
     "enable_sequence_parallel: false}",
     2},
    {"all",
     "{data_parallel_replicate_degree: 2, data_parallel_shard_degree: 2, "
     "context_parallel_degree: 2, tensor_parallel_degree: 2}",
     16},
};

/// Which positions of [rows, length] have a target.
struct Targets {
  const char *name;
  bool (*valid)(int64_t row, int64_t position);
};

const Targets targets[] = {
    // Under cp, all of the first shard and none of the second; under dp, as
    // many each.
    {"firstHalf", [](int64_t, int64_t at) { return at < length / 2; }},
    {"lastHalf", [](int64_t, int64_t at) { return at >= length / 2; }},
    // One of a shard, all of the others.
    {"oneAndTheRest",
     [](int64_t row, int64_t at) {
       return row > 0 ? at >= length / 2 : at == 3 || at >= length / 2;
     }},
    {"oneRow", [](int64_t row, int64_t) { return row == 2; }},
    // One row has one target, another nine, two have none.
    {"oneAndNine",
     [](int64_t row, int64_t at) {
       return row == 0 ? at == 20 : row == 3 && at >= 5 && at < 14;
     }},
    {"one", [](int64_t row, int64_t at) { return row == 1 && at == 23; }},
};

class UnevenTargets : public ::testing::TestWithParam<Place> {
protected:
  std::unique_ptr<StepProgram> make() {
    StepOptions options;
    options.flavor = "micro";
    options.parallelism = GetParam().parallelism;
    options.init = "philox";
    options.dtype = "float64";
    options.seqLen = length;
    options.batch = 1;
    options.maxNorm = 0.1;
    options.seed = 5;
    // Rows of the whole batch are the same for all layouts.
    int64_t dataRanks = makeStep(options)->module->findDim("B")->size;
    options.batch = rows / dataRanks;
    auto program = makeStep(options);
    EXPECT_EQ(int64_t(program->stores.size()), GetParam().ranks);
    EXPECT_EQ(program->module->findDim("B")->size, rows);
    // Large enough that no gradient is lost in the rounding of others.
    for (ParameterStore &store : program->stores) {
      for (StoredParameter &parameter : store.all()) {
        if (parameter.value.dim() > 1) {
          parameter.value.mul_(8);
        }
      }
    }
    return program;
  }

  /// Labels are unrelated to the tokens, so that losses differ much.
  StepInputs batch(const StepProgram &program, const Targets &which) {
    StepInputs inputs = makeInputs(program, 17, learningRate);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t at = 0; at < length; ++at) {
        inputs.labels[row][at] =
            which.valid(row, at) ? (row * 131 + at * 37) % 1000 : -100;
      }
    }
    return inputs;
  }

  static std::vector<StepInputs> cut(StepProgram &program,
                                     const StepInputs &inputs) {
    return cutInputs(inputs, *program.module, program.comm->localRanks());
  }

  static at::Tensor whole(StepProgram &program, llvm::StringRef name) {
    Communicator::Tensors pieces;
    for (ParameterStore &store : program.stores) {
      pieces.push_back(store.find(name)->value.clone());
    }
    return assemble(*program.comm, program.store->find(name)->type, pieces);
  }
};

double distance(const at::Tensor &have, const at::Tensor &want) {
  if (have.sizes() != want.sizes()) {
    return INFINITY;
  }
  double size = want.norm().item<double>();
  double off = (have - want).norm().item<double>();
  return size > 0 ? off / size : off;
}

TEST_P(UnevenTargets, theStepIsThatOfOneRank) {
  for (const Targets &which : targets) {
    SCOPED_TRACE(which.name);
    std::unique_ptr<StepProgram> program = make();
    reference::Qwen35Model model = makeReference(*program);
    copyToReference(*program, model);
    reference::Trainer trainer(model, {}, 0.1);
    trainer.setLearningRate(learningRate);
    StepInputs inputs = batch(*program, which);
    std::vector<StepInputs> pieces = cut(*program, inputs);

    std::map<std::string, at::Tensor> gradients;
    ASSERT_TRUE(program->interpreter->gradients(
        pieces,
        [&](llvm::StringRef name, const at::Tensor &gradient) {
          gradients[name.str()] = gradient.clone();
        },
        program->diag));
    std::optional<StepResult> ours =
        program->interpreter->step(pieces, program->diag);
    ASSERT_TRUE(ours);
    reference::StepResult theirs = trainer.step(inputs.tokens, inputs.labels);

    EXPECT_TRUE(ours->updated);
    EXPECT_EQ(ours->validTargets, inputs.labels.ne(-100).sum().item<int64_t>());
    double loss = theirs.loss.item<double>();
    EXPECT_GT(loss, 1);
    EXPECT_NEAR(ours->loss, loss, 1e-12 * loss);
    EXPECT_NEAR(ours->gradNorm, theirs.gradNorm, 1e-10 * theirs.gradNorm);
    ASSERT_EQ(gradients.size(), theirs.grads.size());
    for (const reference::NamedTensor &entry : theirs.grads) {
      EXPECT_LT(distance(gradients[hpName(entry.name)], entry.tensor), 1e-9)
          << "gradient of " << entry.name << ", norm "
          << entry.tensor.norm().item<double>() << " of " << theirs.gradNorm;
    }
    for (const reference::NamedTensor &entry : theirs.params) {
      EXPECT_LT(distance(whole(*program, hpName(entry.name)), entry.tensor),
                1e-9)
          << entry.name;
    }
    EXPECT_EQ(differingReplica(program->stores, *program->comm).name, "");
  }
}

/// No NaN, no hang, and no parameter moves; a batch with targets then trains.
TEST_P(UnevenTargets, aBatchWithoutAnyIsSkippedByAllRanks) {
  std::unique_ptr<StepProgram> program = make();
  std::vector<std::vector<at::Tensor>> values;
  for (ParameterStore &store : program->stores) {
    values.emplace_back();
    for (StoredParameter &parameter : store.all()) {
      values.back().push_back(parameter.value.clone());
    }
  }
  Targets none = {"none", [](int64_t, int64_t) { return false; }};
  auto same = [&]() {
    bool all = true;
    for (size_t rank = 0; rank < program->stores.size(); ++rank) {
      for (size_t i = 0; i < values[rank].size(); ++i) {
        all &= sameBits(program->stores[rank].all()[i].value, values[rank][i]);
      }
    }
    return all;
  };
  std::optional<StepResult> result = program->interpreter->step(
      cut(*program, batch(*program, none)), program->diag);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->loss, 0);
  EXPECT_EQ(result->gradNorm, 0);
  EXPECT_EQ(result->validTargets, 0);
  EXPECT_FALSE(result->updated);
  EXPECT_TRUE(same());
  for (ParameterStore &store : program->stores) {
    EXPECT_EQ(store.updates, 0);
  }
  result = program->interpreter->step(
      cut(*program, batch(*program, targets[0])), program->diag);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->updated);
  EXPECT_FALSE(same());
}

/// What one rank alone finds, all act upon.
TEST_P(UnevenTargets, aNumberThatIsNotFiniteOnOneRankIsSkippedByAll) {
  std::unique_ptr<StepProgram> program = make();
  StoredParameter *norm =
      program->stores.back().find("layers.3.post_attention_layernorm.weight");
  ASSERT_TRUE(norm);
  // The last rank stores a piece, and computes with the whole of it.
  ASSERT_GT(norm->value.numel(), 0);
  norm->value[0] = NAN;
  StepInputs inputs = batch(*program, targets[0]);
  std::optional<StepResult> result =
      program->interpreter->step(cut(*program, inputs), program->diag);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->updated);
  for (ParameterStore &store : program->stores) {
    EXPECT_EQ(store.updates, 0);
    EXPECT_TRUE(
        store.find("embed_tokens.weight")->value.isfinite().all().item<bool>());
  }
}

INSTANTIATE_TEST_SUITE_P(Places, UnevenTargets, ::testing::ValuesIn(places),
                         [](const auto &info) { return info.param.name; });

} // namespace
