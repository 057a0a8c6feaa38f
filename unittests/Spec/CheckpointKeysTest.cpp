//===- CheckpointKeysTest.cpp - Parameters and their checkpoint keys ------===//

#include "ImportFixture.h"
#include "hp/Analysis/Parameters.h"

using namespace hp;
using llvm::StringRef;

namespace {

class CheckpointKeysTest : public ImportFixture {
protected:
  void SetUp() override {
    auto module = import("tiny");
    ASSERT_NE(module, nullptr) << log.text();
    for (const ParamInstance &instance : allParameters(*module)) {
      params.push_back(instance.name);
    }
  }

  std::vector<std::string> keys(StringRef prefix) {
    std::vector<std::string> list;
    for (const std::string &param : params) {
      list.push_back((prefix + param).str());
    }
    return list;
  }

  std::vector<std::string> params;
  const std::vector<TiedKey> ties = {{"lm_head.weight", "embed_tokens.weight"}};
};

TEST(MatchesStars, StarsStandForAnyText) {
  EXPECT_TRUE(matchesStars("*", ""));
  EXPECT_TRUE(matchesStars("a*", "a"));
  EXPECT_TRUE(matchesStars("*.A_log", "layers.0.linear_attn.A_log"));
  EXPECT_TRUE(matchesStars("a*b*c", "aXbYbZc"));
  EXPECT_TRUE(matchesStars("**", "x"));
  EXPECT_FALSE(matchesStars("a*b*c", "acb"));
  EXPECT_FALSE(matchesStars("ab*bc", "abc"));
  EXPECT_FALSE(matchesStars("model", "model."));
  EXPECT_FALSE(matchesStars("mtp.*", "model.mtp.x"));
}

TEST_F(CheckpointKeysTest, KeysOfBothSpellings) {
  const KeySpelling *text = spec->checkpoint.find("text");
  const KeySpelling *multimodal = spec->checkpoint.find("multimodal");
  ASSERT_TRUE(text && multimodal);
  EXPECT_EQ(text, &spec->checkpoint.spellings.front());
  EXPECT_EQ(text->keyOf("embed_tokens.weight"), "model.embed_tokens.weight");
  EXPECT_EQ(text->keyOf("layers.3.self_attn.q_proj.bias"),
            "model.layers.3.self_attn.q_proj.bias");
  EXPECT_EQ(text->keyOf("lm_head.weight"), "lm_head.weight");
  EXPECT_EQ(multimodal->keyOf("norm.weight"),
            "model.language_model.norm.weight");
  EXPECT_EQ(multimodal->keyOf("layers.0.linear_attn.A_log"),
            "model.language_model.layers.0.linear_attn.A_log");
  EXPECT_EQ(multimodal->keyOf("lm_head.weight"), "lm_head.weight");
}

TEST_F(CheckpointKeysTest, BothSpellingsLoadStrictly) {
  for (StringRef prefix : {"model.", "model.language_model."}) {
    KeyMatch match = spec->checkpoint.match(keys(prefix), params, ties);
    EXPECT_TRUE(match.isStrict()) << prefix.str();
    ASSERT_EQ(match.found.size(), params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(match.found[i].param, params[i]);
      EXPECT_EQ(match.found[i].key, prefix.str() + params[i]);
    }
    EXPECT_EQ(match.spelling->name, prefix == "model." ? "text" : "multimodal");
  }
}

TEST_F(CheckpointKeysTest, SkippedKeysAreCounted) {
  std::vector<std::string> all = keys("model.language_model.");
  for (StringRef key :
       {"model.visual.blocks.0.attn.qkv.weight", "model.visual.merger.norm",
        "mtp.layers.0.norm.weight"}) {
    all.insert(all.begin() + 3, key.str());
  }
  KeyMatch match = spec->checkpoint.match(all, params, ties);
  EXPECT_TRUE(match.isStrict());
  ASSERT_EQ(match.skipped.size(), 2u);
  EXPECT_EQ(match.skipped[0].pattern, "model.visual.*");
  EXPECT_EQ(match.skipped[0].count, 2u);
  EXPECT_EQ(match.skipped[1].pattern, "mtp.*");
  EXPECT_EQ(match.skipped[1].count, 1u);
}

TEST_F(CheckpointKeysTest, TiedKeyInTheFileIsNoSurprise) {
  std::vector<std::string> all = keys("model.");
  all.push_back("lm_head.weight");
  KeyMatch match = spec->checkpoint.match(all, params, ties);
  EXPECT_TRUE(match.isStrict());
  ASSERT_EQ(match.tied.size(), 1u);
  EXPECT_EQ(match.tied[0].param, "embed_tokens.weight");
  EXPECT_EQ(match.tied[0].key, "lm_head.weight");
  KeyMatch untied = spec->checkpoint.match(all, params);
  EXPECT_FALSE(untied.isStrict());
  EXPECT_EQ(untied.unexpected, std::vector<std::string>{"lm_head.weight"});
}

TEST_F(CheckpointKeysTest, MissingAndUnexpectedKeysAreListed) {
  std::vector<std::string> all = keys("model.");
  all[5] += "_renamed";
  KeyMatch match = spec->checkpoint.match(all, params, ties);
  EXPECT_FALSE(match.isStrict());
  EXPECT_FALSE(reportKeys(match, "w.safetensors", log.diag));
  EXPECT_EQ(log.text(),
            "w.safetensors:0:0: error: the checkpoint does not fit the model: "
            "1 missing and 1 unexpected keys, spelled as 'text'\n"
            "w.safetensors:0:0: note: missing 'model." +
                params[5] +
                "'\n"
                "w.safetensors:0:0: note: unexpected 'model." +
                params[5] + "_renamed'\n");
}

TEST_F(CheckpointKeysTest, LongListsAreCut) {
  std::vector<std::string> all = keys("model.");
  all.resize(3);
  KeyMatch match = spec->checkpoint.match(all, params, ties);
  EXPECT_FALSE(reportKeys(match, "w", log.diag, 2));
  ASSERT_EQ(log.lines.size(), 4u) << log.text();
  EXPECT_EQ(log.lines[3], "w:0:0: note: and " +
                              std::to_string(params.size() - 5) +
                              " more missing");
}

TEST_F(CheckpointKeysTest, NoMatchAtAllIsAnError) {
  KeyMatch match = spec->checkpoint.match(keys("transformer."), params, ties);
  EXPECT_EQ(match.spelling, nullptr);
  EXPECT_FALSE(match.isStrict());
  EXPECT_FALSE(reportKeys(match, "w", log.diag, 1));
  EXPECT_EQ(log.lines[0], "w:0:0: error: no key of the checkpoint is a "
                          "parameter of the model");
  EXPECT_EQ(log.lines[1], "w:0:0: note: the first one expected is "
                          "'model.embed_tokens.weight'");
  EXPECT_FALSE(spec->checkpoint.match({}, params, ties).isStrict());
}

TEST_F(CheckpointKeysTest, Float32Parameters) {
  EXPECT_TRUE(spec->checkpoint.keepsFloat32("layers.0.linear_attn.A_log"));
  EXPECT_TRUE(
      spec->checkpoint.keepsFloat32("layers.9.linear_attn.norm.weight"));
  EXPECT_FALSE(spec->checkpoint.keepsFloat32("layers.0.linear_attn.dt_bias"));
  EXPECT_FALSE(spec->checkpoint.keepsFloat32("norm.weight"));
}

} // namespace
