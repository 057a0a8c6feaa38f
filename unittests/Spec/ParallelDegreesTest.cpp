//===- ParallelDegreesTest.cpp - Degrees against ranks, batch, sequence ---===//

#include "DiagnosticLog.h"
#include "hp/Spec/RunConfig.h"

using namespace hp;
using llvm::StringRef;

namespace {

class ParallelDegreesTest : public testing::Test {
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
  DiagnosticLog log;
};

} // namespace

TEST_F(ParallelDegreesTest, global_batch) {
  EXPECT_EQ(refusal("training: {local_batch_size: 4, global_batch_size: 16}\n"
                    "parallelism: {data_parallel_shard_degree: 2}\n"),
            "r:2:52: error: 'training.global_batch_size' is 16, but "
            "local_batch_size × data-parallel degree is 8; gradient "
            "accumulation is not supported yet\n"
            "r:2:30: note: 4 per rank, 2 data-parallel ranks\n");
  EXPECT_EQ(accepted("training: {local_batch_size: 4, global_batch_size: 24}\n"
                     "parallelism: {data_parallel_replicate_degree: 2, "
                     "data_parallel_shard_degree: 3}\n"),
            "");
}

TEST_F(ParallelDegreesTest, sequence_must_divide) {
  EXPECT_EQ(refusal("training: {seq_len: 130}\n"
                    "parallelism: {context_parallel_degree: 4}\n"),
            "r:2:21: error: 'training.seq_len' is 130, which does not divide "
            "by 4: context_parallel_degree 4\n");
  EXPECT_EQ(refusal("training: {seq_len: 130}\n"
                    "parallelism: {context_parallel_degree: 2, "
                    "tensor_parallel_degree: 2}\n"),
            "r:2:21: error: 'training.seq_len' is 130, which does not divide "
            "by 4: context_parallel_degree 2 × tensor_parallel_degree 2 with "
            "enable_sequence_parallel\n");
  EXPECT_EQ(accepted("training: {seq_len: 130}\n"
                     "parallelism: {context_parallel_degree: 2, "
                     "tensor_parallel_degree: 2, "
                     "enable_sequence_parallel: false}\n"),
            "");
}

TEST_F(ParallelDegreesTest, degrees_fit_the_world) {
  std::optional<RunConfig> c =
      parse("model: {spec: m}\n"
            "training: {local_batch_size: 2, global_batch_size: 8}\n"
            "parallelism: {context_parallel_degree: 2, "
            "data_parallel_replicate_degree: 2}\n");
  ASSERT_TRUE(c) << log.text();
  std::optional<ParallelDegrees> d = resolveParallelism(*c, 8, log.diag);
  ASSERT_TRUE(d) << log.text();
  EXPECT_EQ(d->shard, 2);
  EXPECT_EQ(d->dataParallel(), 4);
  EXPECT_EQ(d->worldSize(), 8);
  EXPECT_FALSE(resolveParallelism(*c, 6, log.diag));
  EXPECT_EQ(log.lines[0],
            "run.yaml:3:14: error: the parallel degrees ask for a multiple of "
            "4 ranks (data_parallel_replicate_degree 2, "
            "context_parallel_degree 2), but there are 6");
  log.lines.clear();
  EXPECT_FALSE(resolveParallelism(*c, 4, log.diag)); // global batch is 4 then
  EXPECT_NE(log.text().find("is 8, but local_batch_size × data-parallel "
                            "degree is 4"),
            std::string::npos)
      << log.text();

  c = parse("model: {spec: m}\nparallelism: {data_parallel_shard_degree: 4}\n");
  ASSERT_TRUE(c);
  EXPECT_TRUE(resolveParallelism(*c, 4, log.diag));
  EXPECT_TRUE(resolveParallelism(*c, std::nullopt, log.diag));
  log.lines.clear();
  EXPECT_FALSE(resolveParallelism(*c, 1, log.diag));
  EXPECT_EQ(log.text(),
            "run.yaml:2:14: error: the parallel degrees ask for 4 ranks "
            "(data_parallel_shard_degree 4), but there is 1\n");

  c = parse("model: {spec: m}\n");
  ASSERT_TRUE(c);
  EXPECT_EQ(resolveParallelism(*c, 1, log.diag)->shard, 1);
  EXPECT_EQ(resolveParallelism(*c, std::nullopt, log.diag)->shard, 1);
  EXPECT_FALSE(resolveParallelism(*c, 0, log.diag));
  EXPECT_FALSE(resolveParallelism(*c, -1, log.diag));
}

TEST_F(ParallelDegreesTest, degrees_that_overflow) {
  EXPECT_NE(refusal("parallelism: {data_parallel_replicate_degree: 1048576, "
                    "data_parallel_shard_degree: 1048576, "
                    "context_parallel_degree: 1048576, "
                    "tensor_parallel_degree: 1048576}\n")
                .find("r:2:14: error: the parallel degrees multiply to more "
                      "ranks than can be"),
            std::string::npos);
}
