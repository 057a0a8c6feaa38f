//===- RunConfigOverridesTest.cpp - --set section.key=value ---------------===//

#include "DiagnosticLog.h"
#include "hp/Spec/RunConfig.h"

using namespace hp;
using llvm::StringRef;

namespace {

class RunConfigOverridesTest : public testing::Test {
protected:
  std::optional<RunConfig> parse(std::vector<std::string> overrides) {
    return parseRunConfig("model: {spec: m}\ntraining:\n  steps: 5\n",
                          "run.yaml", overrides, log.diag);
  }
  std::string refusal(std::vector<std::string> overrides) {
    log.lines.clear();
    EXPECT_FALSE(parse(overrides));
    EXPECT_TRUE(log.everythingLocated);
    return log.text();
  }
  DiagnosticLog log;
};

} // namespace

TEST_F(RunConfigOverridesTest, replaces_and_adds) {
  std::optional<RunConfig> c = parse(
      {"training.steps=7", "optimizer.lr=1e-5", "model.flavor=0.8B",
       "optimizer.no_decay=[\"*.bias\", a]", "metrics.jsonl=\"a = b.jsonl\"",
       "training.seed=1", "training.seed=2"});
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(*c->training.steps, 7);
  EXPECT_EQ(*c->optimizer.lr, 1e-5);
  EXPECT_EQ(*c->model.flavor, "0.8B");
  EXPECT_EQ(*c->optimizer.noDecay, (std::vector<std::string>{"*.bias", "a"}));
  EXPECT_EQ(*c->metrics.jsonl, "a = b.jsonl");
  EXPECT_EQ(*c->training.seed, 2); // the last one wins
  EXPECT_EQ(c->optimizer.lr.loc.fileName(), "--set");
  EXPECT_EQ(c->optimizer.lr.loc.line, 2u);
  EXPECT_EQ(c->optimizer.lr.loc.column, 14u);
  EXPECT_EQ(log.diag.lineText(c->optimizer.lr.loc), "optimizer.lr=1e-5");
}

TEST_F(RunConfigOverridesTest, nested_model_fields) {
  std::optional<RunConfig> c =
      parse({"model.config.hidden_size=128", "model.config.layer_types=[a, b]",
             "model.config.rope.theta=1e4"});
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(c->model.config->find("hidden_size")->text, "128");
  EXPECT_EQ(c->model.config->find("hidden_size")->loc.column, 26u);
  EXPECT_EQ(c->model.config->find("layer_types")->items.size(), 2u);
  EXPECT_EQ(c->model.config->find("rope")->find("theta")->text, "1e4");
  c = parse({"model.config.hidden_size=128", "model.config={vocab_size: 5}"});
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(c->model.config->find("hidden_size"), nullptr);
}

TEST_F(RunConfigOverridesTest, an_override_repairs_a_bad_value) {
  EXPECT_TRUE(parseRunConfig("model: {spec: m}\ntraining: {steps: -4}\n", "r",
                             {"training.steps=4"}, log.diag))
      << log.text();
}

TEST_F(RunConfigOverridesTest, refusals) {
  EXPECT_EQ(refusal({"training.step=7"}),
            "--set:1:10: error: unknown key 'step' in section 'training'\n"
            "--set:1:10: note: did you mean 'steps'?\n");
  EXPECT_EQ(refusal({"training.seed=1", "trainin.steps=7"}),
            "--set:2:1: error: unknown key 'trainin' in the configuration\n"
            "--set:2:1: note: did you mean 'training'?\n");
  EXPECT_EQ(refusal({"training.lr=1"}),
            "--set:1:10: error: unknown key 'lr' in section 'training'\n"
            "--set:1:10: note: 'lr' belongs to section 'optimizer'\n");
  EXPECT_EQ(refusal({"training.steps=ten"}),
            "--set:1:16: error: 'training.steps' must be a decimal integer, "
            "not 'ten'\n");
  EXPECT_EQ(refusal({"training.steps.x=1"}),
            "--set:1:10: error: 'training.steps' must be a decimal integer, "
            "not a map\n");
  EXPECT_EQ(refusal({"steps=1"}),
            "--set:1:1: error: an override names a section and a key "
            "(section.key=value), not only 'steps'\n");
  EXPECT_EQ(refusal({"training.steps"}),
            "--set:1:1: error: an override is written section.key=value\n");
  EXPECT_EQ(refusal({""}),
            "--set:1:1: error: an override is written section.key=value\n");
  EXPECT_EQ(refusal({"training..steps=1"}),
            "--set:1:10: error: an override is written section.key=value, "
            "without spaces or empty keys\n");
  EXPECT_EQ(refusal({"training.steps =1"}),
            "--set:1:10: error: an override is written section.key=value, "
            "without spaces or empty keys\n");
  EXPECT_EQ(refusal({"training.steps="}),
            "--set:1:16: error: 'training.steps' is set to nothing; write "
            "null or \"\" if that is meant\n");
  EXPECT_EQ(refusal({"optimizer.no_decay=[*norm]"}),
            "--set:1:21: error: aliases are not supported; quote the text if "
            "'*' is meant\n");
  EXPECT_EQ(refusal({"training.steps=1\n2", "training.x=1"}).substr(0, 60),
            "--set:1:16: error: the value of an override is a single line");
  EXPECT_EQ(refusal({"training.steps={a: 1, a: 2}"}),
            "--set:1:23: error: duplicate key 'a'\n"
            "--set:1:17: note: first given here\n");
}

TEST_F(RunConfigOverridesTest, depth_is_bounded) {
  std::string path = "model.config";
  for (int i = 0; i < 100000; ++i) {
    path += ".a";
  }
  EXPECT_EQ(refusal({path + "=1"}),
            "--set:1:1: error: nested deeper than 64 levels\n");
}
