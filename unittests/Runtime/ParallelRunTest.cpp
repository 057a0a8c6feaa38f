//===- ParallelRunTest.cpp - Weights, data and checkpoints by layout ------===//
//
// What a run starts from and leaves behind is the same under every layout:
// first weights, tokens, and checkpoints, which resume under another.
//
//===----------------------------------------------------------------------===//

#include "StepTesting.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassManager.h"
#include "hp/Runtime/Checkpoint.h"
#include "hp/Runtime/Pieces.h"
#include "hp/Runtime/Replicas.h"
#include "hp/Runtime/Trainer.h"
#include "hp/Spec/Import.h"
#include "llvm/Support/FileSystem.h"
#include <ATen/ATen.h>
#include <gtest/gtest.h>

using namespace hp;
using namespace hp::testing;

namespace {

/// Degrees: dp_replicate, dp_shard, cp, tp.
struct Layout {
  int64_t replicate = 1, shard = 1, context = 1, tensor = 1;
  int64_t ranks() const { return replicate * shard * context * tensor; }
};

/// A run of the micro model, uneven where it can be, on 8 rows of 24 tokens.
struct ParallelRun {
  explicit ParallelRun(Layout layout, std::string extra = "") {
    std::string text;
    llvm::raw_string_ostream os(text);
    os << "model:\n  spec: qwen3_5_v2\n  flavor: micro\n"
       << "  config: {intermediate_size: 98, linear_value_head_dim: 18}\n"
       << "parallelism:\n  data_parallel_replicate_degree: " << layout.replicate
       << "\n  data_parallel_shard_degree: " << layout.shard
       << "\n  context_parallel_degree: " << layout.context
       << "\n  tensor_parallel_degree: " << layout.tensor
       << "\ntraining:\n  steps: 4\n  seq_len: 24\n  dtype: float64\n"
       << "  max_norm: 0.1\n  local_batch_size: "
       << 8 / (layout.replicate * layout.shard) << "\n"
       << extra;
    std::optional<RunConfig> config =
        parseRunConfig(text, "run.yaml", {}, run.diag);
    check(config.has_value());
    run.run.config = *config;
    std::vector<std::string> folders = modelFolders();
    std::optional<ModelSpec> spec = readModelSpec(*config, folders, run.diag);
    check(spec.has_value());
    run.run.keys = spec->checkpoint;
    run.run.step = importRun(*config, folders, run.diag, layout.ranks());
    PassManager manager;
    check(run.run.step && verify(*run.run.step, run.diag) &&
          addPassesTo(Stage::Step, *run.run.step, manager, run.diag) &&
          manager.run(*run.run.step, run.diag));
    for (const Tie &tie : module().ties) {
      run.run.ties.push_back({tie.alias.str(), tie.target.str()});
    }
    comm = makeLockstepCommunicator(module().mesh);
    check(comm->localRanks().size() == size_t(layout.ranks()));
    stores = makeStores(module(), comm->localRanks());
    kernels = makeReferenceKernels(*comm);
    interpreter =
        Interpreter::create(module(), *comm, kernels, stores, run.diag);
    check(interpreter != nullptr);
  }

  Module &module() { return *run.run.step; }
  DiagnosticEngine &diag() { return run.diag; }

  at::Tensor
  whole(unsigned index,
        at::Tensor StoredParameter::*which = &StoredParameter::value) {
    return WholeParameters(stores, *comm).get(index, which);
  }

  /// Row i of the batch that begins at `first` is a function of first + i.
  void step(int64_t first) {
    StepInputs batch;
    batch.tokens = (at::arange(8 * 24).view({8, 24}) * 7 + first * 31) % 1000;
    batch.labels = at::full({8, 24}, -100, at::kLong);
    batch.labels.slice(1, 0, 23).copy_(batch.tokens.slice(1, 1));
    batch.labels[first % 8].fill_(-100);
    batch.positions = at::arange(24);
    batch.learningRate = 1e-2;
    std::optional<StepResult> result = interpreter->step(
        cutInputs(batch, module(), comm->localRanks()), diag());
    check(result && result->updated);
    losses.push_back(result->loss);
  }

  /// The run, and what came before it.
  struct {
    DiagnosticEngine diag;
    Run run;
  } run;
  std::unique_ptr<Communicator> comm;
  ParameterStores stores;
  KernelSets kernels;
  std::unique_ptr<Interpreter> interpreter;
  std::vector<double> losses;

private:
  void check(bool ok) {
    if (!ok) {
      throw std::runtime_error(run.diag.firstError());
    }
  }
};

const Layout layouts[] = {{2, 1, 1, 1}, {1, 2, 1, 1}, {1, 8, 1, 1},
                          {1, 1, 2, 1}, {1, 1, 1, 2}, {1, 2, 2, 1},
                          {1, 4, 1, 2}, {2, 2, 1, 2}, {2, 2, 2, 2}};

TEST(ParallelRun, firstWeightsAreTheSameUnderEveryLayout) {
  for (InitKind kind : {InitKind::Philox, InitKind::Torch, InitKind::Normal}) {
    ParallelRun one({});
    initialize(one.stores, kind, 11, 0.02);
    for (const Layout &layout : layouts) {
      ParallelRun many(layout);
      initialize(many.stores, kind, 11, 0.02);
      ASSERT_EQ(many.stores[0].all().size(), one.stores[0].all().size());
      for (size_t i = 0; i < one.stores[0].all().size(); ++i) {
        EXPECT_TRUE(sameBits(many.whole(i), one.whole(i)))
            << one.stores[0].all()[i].name << ", " << layout.ranks()
            << " ranks, initialization " << int(kind);
      }
      EXPECT_EQ(differingReplica(many.stores, *many.comm).name, "");
    }
  }
}

TEST(ParallelRun, eachElementIsStoredOnceByTheRanksThatCutIt) {
  ParallelRun many({1, 8, 1, 1});
  ParallelRun one({});
  for (size_t i = 0; i < one.stores[0].all().size(); ++i) {
    int64_t elements = 0;
    for (const ParameterStore &store : many.stores) {
      elements += store.all()[i].value.numel();
    }
    EXPECT_EQ(elements, one.stores[0].all()[i].value.numel());
  }
  // Some pieces are short, and some ranks have none of a small parameter.
  const StoredParameter *bias =
      many.stores[7].find("layers.0.linear_attn.dt_bias");
  ASSERT_TRUE(bias);
  EXPECT_EQ(bias->value.numel(), 0);
}

TEST(ParallelRun, aReplicaThatDiffersInABitIsFound) {
  ParallelRun many({2, 1, 1, 2});
  initialize(many.stores, InitKind::Philox, 1, 0.02);
  EXPECT_EQ(differingReplica(many.stores, *many.comm).name, "");
  StoredParameter &norm =
      *many.stores[3].find("layers.1.input_layernorm.weight");
  norm.value[5] = -0.0; // was 0
  DifferingReplica found = differingReplica(many.stores, *many.comm);
  EXPECT_EQ(found.name, norm.name);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.twin, 0);
  norm.value[5] = 0.0;
  EXPECT_EQ(differingReplica(many.stores, *many.comm).name, "");
  many.stores[2].find("embed_tokens.weight")->value[0][0] += 1;
  EXPECT_EQ(differingReplica(many.stores, *many.comm).rank, 2);
  EXPECT_EQ(differingReplica(many.stores, *many.comm).twin, 0);
  EXPECT_EQ(differingReplica(many.stores, *many.comm).name,
            "embed_tokens.weight");
}

class TemporaryFolder {
public:
  TemporaryFolder() {
    llvm::sys::fs::createUniqueDirectory("hp-parallel", path);
  }
  ~TemporaryFolder() { llvm::sys::fs::remove_directories(path); }
  llvm::SmallString<64> path;
};

/// Two steps, saved under one layout; two more under another, against four on
/// one rank.
TEST(ParallelRun, aCheckpointResumesUnderAnyLayout) {
  ParallelRun one({});
  initialize(one.stores, InitKind::Philox, 11, 0.02);
  for (int64_t first : {0, 1, 2, 3}) {
    one.step(first);
  }
  const std::pair<Layout, Layout> changes[] = {{{1, 4, 1, 2}, {}},
                                               {{}, {1, 2, 2, 2}},
                                               {{1, 8, 1, 1}, {2, 2, 1, 2}},
                                               {{1, 1, 2, 2}, {1, 1, 2, 2}}};
  for (const auto &[before, after] : changes) {
    TemporaryFolder folder;
    ParallelRun first(before);
    initialize(first.stores, InitKind::Philox, 11, 0.02);
    first.step(0);
    first.step(1);
    Manifest manifest = manifestOf(first.module());
    manifest.state.step = 2;
    std::string saved =
        saveCheckpoint(folder.path, WholeParameters(first.stores, *first.comm),
                       first.run.run.keys, manifest, first.diag());
    ASSERT_NE(saved, "") << first.diag().firstError();

    ParallelRun second(after);
    std::optional<Manifest> loaded =
        loadCheckpoint(saved, second.stores, second.run.run.keys,
                       second.run.run.ties, second.diag());
    ASSERT_TRUE(loaded) << second.diag().firstError();
    EXPECT_EQ(modelDifference(*loaded, manifestOf(second.module())), "");
    EXPECT_EQ(second.stores.back().updates, 2);
    for (size_t i = 0; i < one.stores[0].all().size(); ++i) {
      for (auto which : {&StoredParameter::value, &StoredParameter::expAvg,
                         &StoredParameter::expAvgSq}) {
        EXPECT_TRUE(sameBits(first.whole(i, which), second.whole(i, which)));
      }
    }
    second.step(2);
    second.step(3);
    for (size_t i = 0; i < one.stores[0].all().size(); ++i) {
      at::Tensor want = one.whole(i);
      EXPECT_LT((second.whole(i) - want).abs().max().item<double>(), 1e-8)
          << one.stores[0].all()[i].name;
    }
    EXPECT_NEAR(second.losses[1], one.losses[3], 1e-9);
    EXPECT_EQ(differingReplica(second.stores, *second.comm).name, "");
  }
}

/// Rows by data parallelism, replicas outermost; the sequence by context
/// parallelism; the same on tensor parallel peers.
TEST(ParallelRun, tokensAreThoseOfTheRanksPlace) {
  TemporaryFolder folder;
  std::string path = (folder.path + "/tokens.bin").str();
  {
    std::vector<uint32_t> ids(24 * 40 + 1);
    for (size_t i = 0; i < ids.size(); ++i) {
      ids[i] = i % 1000;
    }
    std::error_code failure;
    llvm::raw_fd_ostream file(path, failure);
    ASSERT_FALSE(failure);
    file.write(reinterpret_cast<const char *>(ids.data()), ids.size() * 4);
  }
  std::string data =
      "data:\n  format: tokens\n  dtype: uint32\n  path: " + path;
  ParallelRun one({}, data);
  ParallelRun many({2, 2, 2, 2}, data);
  std::unique_ptr<Dataset> set = openDataset(many.run.run, many.diag());
  ASSERT_TRUE(set) << many.diag().firstError();
  std::optional<StepInputs> whole =
      readBatch(*set, 16, one.module(), one.diag());
  auto inputs =
      readBatch(*set, 16, many.module(), many.comm->localRanks(), many.diag());
  ASSERT_TRUE(whole && inputs);
  ASSERT_EQ(inputs->size(), 16u);
  for (int64_t rank = 0; rank < 16; ++rank) {
    int64_t replica = rank / 8, shard = rank / 4 % 2, context = rank / 2 % 2;
    int64_t row = (replica * 2 + shard) * 2, token = context * 12;
    auto own = [&](const at::Tensor &x) {
      return x.slice(0, row, row + 2).slice(1, token, token + 12);
    };
    const StepInputs &input = (*inputs)[rank];
    EXPECT_TRUE(input.tokens.equal(own(whole->tokens))) << rank;
    EXPECT_TRUE(input.labels.equal(own(whole->labels))) << rank;
    EXPECT_TRUE(input.positions.equal(at::arange(token, token + 12))) << rank;
    // Sample 16 begins at token 16 * 24; targets cross the cut.
    EXPECT_EQ(input.tokens[0][0].item<int64_t>(),
              ((16 + row) * 24 + token) % 1000);
    EXPECT_EQ(input.labels[0][11].item<int64_t>(),
              ((16 + row) * 24 + token + 12) % 1000);
    StepInputs cut =
        cutInputs(*whole, many.module(), many.comm->localRanks())[rank];
    EXPECT_TRUE(cut.tokens.equal(input.tokens));
    EXPECT_TRUE(cut.positions.equal(input.positions));
  }
}

/// Valid targets all on one shard, one and the rest, none: the loss is the mean
/// over all of them, and no shard's share counts more.
TEST(ParallelRun, theDivisorIsTheTargetsOfTheWholeBatch) {
  for (int64_t valid : {0, 1, 8, 23}) {
    ParallelRun one({}), many({1, 2, 2, 1});
    for (ParallelRun *each : {&one, &many}) {
      initialize(each->stores, InitKind::Philox, 3, 0.5);
    }
    StepInputs batch;
    batch.tokens = (at::arange(8 * 24).view({8, 24}) * 13) % 1000;
    batch.labels = at::full({8, 24}, -100, at::kLong);
    batch.labels[5]
        .slice(0, 0, valid)
        .copy_(batch.tokens[5].slice(0, 1, 1 + valid));
    batch.positions = at::arange(24);
    auto loss = [&](ParallelRun &run) {
      auto result = run.interpreter->forward(
          cutInputs(batch, run.module(), run.comm->localRanks()), run.diag());
      EXPECT_TRUE(result);
      EXPECT_EQ(result->validTargets, valid);
      return result->loss;
    };
    double want = loss(one);
    EXPECT_NEAR(loss(many), want, 1e-12 * (1 + want));
    EXPECT_EQ(want == 0, valid == 0);
  }
}

} // namespace
