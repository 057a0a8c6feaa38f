//===- ModelConfigTest.cpp - Values of a model's config that are refused --===//

#include "ImportFixture.h"

using namespace hp;
using llvm::StringRef;

namespace {

class ModelConfigTest : public ImportFixture {
protected:
  /// The errors alone, without the notes, which point into the spec.
  std::string errors(StringRef config, StringRef flavor = "micro") {
    refusal(flavor, config);
    std::string text;
    for (StringRef line : log.lines) {
      if (!line.contains(": note: ")) {
        text += line.str() + "\n";
      }
    }
    return text;
  }
};

TEST_F(ModelConfigTest, UnknownFieldsAreNamedWithWhatMayBeMeant) {
  EXPECT_EQ(refusal("micro", "{hiden_size: 64}"),
            "o:1:2: error: unknown field 'hiden_size' in the config of model "
            "'qwen3_5_v2'\n"
            "o:1:2: note: did you mean 'hidden_size'?\n");
  EXPECT_EQ(refusal("micro", "{layer_type: []}"),
            "o:1:2: error: unknown field 'layer_type' in the config of model "
            "'qwen3_5_v2'\n"
            "o:1:2: note: did you mean 'layer_types'?\n");
}

TEST_F(ModelConfigTest, ExpertsAreRefused) {
  for (StringRef field :
       {"num_experts", "num_experts_per_tok", "moe_intermediate_size"}) {
    EXPECT_EQ(refusal("micro", ("{" + field + ": 8}").str()),
              "o:1:2: error: field '" + field.str() +
                  "': model 'qwen3_5_v2' is dense and has no experts\n");
  }
}

TEST_F(ModelConfigTest, ValuesOfTheWrongKind) {
  EXPECT_EQ(errors("{hidden_size: 64.0}"),
            "o:1:15: error: 'hidden_size' must be a decimal integer, not "
            "'64.0'; write 64\n");
  EXPECT_EQ(errors("{hidden_size: }"),
            "o:1:2: error: 'hidden_size' has no value; it must be a decimal "
            "integer\n");
  EXPECT_EQ(errors("{hidden_size: [64]}"),
            "o:1:15: error: 'hidden_size' must be a decimal integer, not a "
            "list\n");
  EXPECT_EQ(errors("{tie_word_embeddings: yes}"),
            "o:1:23: error: 'tie_word_embeddings' must be true or false, not "
            "'yes'; write true\n");
  EXPECT_EQ(errors("{rope_theta: .nan}"),
            "o:1:14: error: 'rope_theta' must be finite, not '.nan'\n");
  EXPECT_EQ(errors("{mrope_section: 4}"),
            "o:1:17: error: 'mrope_section' must be a list, not '4'; write "
            "[4]\n");
  EXPECT_EQ(errors("{layer_types: {}}"),
            "o:1:15: error: 'layer_types' must be a list, not a map\n");
  EXPECT_EQ(errors("{hidden_act: gelu}"),
            "o:1:14: error: 'hidden_act' must be 'silu', not 'gelu'\n");
}

TEST_F(ModelConfigTest, SizesAreAtLeastOne) {
  for (StringRef field :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
        "num_attention_heads", "num_key_value_heads", "head_dim",
        "full_attention_interval", "linear_num_key_heads",
        "linear_num_value_heads", "linear_key_head_dim",
        "linear_value_head_dim", "linear_conv_kernel_dim",
        "max_position_embeddings"}) {
    for (StringRef value : {"0", "-1"}) {
      EXPECT_EQ(errors(("{" + field + ": " + value + "}").str()),
                ("o:1:" + llvm::Twine(field.size() + 4) + ": error: '" + field +
                 "' must be at least 1, not " + value + "\n")
                    .str());
    }
  }
}

TEST_F(ModelConfigTest, NumbersOutOfRange) {
  EXPECT_EQ(errors("{rms_norm_eps: 0.0}"),
            "o:1:16: error: 'rms_norm_eps' must be above 0 and at most 1, not "
            "0.0\n");
  EXPECT_EQ(errors("{rope_theta: -1}"),
            "o:1:14: error: 'rope_theta' must be above 0, not -1\n");
  EXPECT_EQ(errors("{partial_rotary_factor: 1.5}"),
            "o:1:25: error: 'partial_rotary_factor' must be above 0 and at "
            "most 1, not 1.5\n");
  EXPECT_EQ(errors("{partial_rotary_factor: 0}"),
            "o:1:25: error: 'partial_rotary_factor' must be above 0 and at "
            "most 1, not 0\n");
  EXPECT_EQ(errors("{initializer_range: -0.1}"),
            "o:1:21: error: 'initializer_range' must be at least 0 and at most "
            "1000, not -0.1\n");
  EXPECT_EQ(errors("{num_hidden_layers: 100000000}"),
            "o:1:21: error: 'num_hidden_layers' must be at most 4096, not "
            "100000000\n");
}

TEST_F(ModelConfigTest, RotaryChannels) {
  EXPECT_EQ(errors("{head_dim: 20}"),
            "o:1:12: error: 'head_dim' * 'partial_rotary_factor' = 20 * 0.25 = "
            "5 channels rotate, which must be an even number above 0\n");
  EXPECT_EQ(errors("{head_dim: 2, partial_rotary_factor: 0.125}"),
            "o:1:38: error: 'head_dim' * 'partial_rotary_factor' = 2 * 0.125 = "
            "0.25 channels rotate, which must be an even number above 0\n");
  EXPECT_EQ(errors("{mrope_section: [2, 1, 2]}"),
            "o:1:17: error: 'mrope_section' adds up to 5, but must add up to "
            "4, half of the 8 channels that rotate ('head_dim' * "
            "'partial_rotary_factor')\n");
  EXPECT_EQ(errors("{mrope_section: [4]}"),
            "o:1:17: error: 'mrope_section' must have 3 entries, for time, "
            "height and width, not 1\n");
  // head_dim is no quotient: 64 / 4 would be 16.
  auto module = import("micro");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->config.getInt("head_dim", 0), 32);
}

TEST_F(ModelConfigTest, HeadsShareKeysEvenly) {
  EXPECT_EQ(refusal("micro", "{num_key_value_heads: 3}"),
            "o:1:23: error: 'num_attention_heads' is 4, which is no multiple "
            "of 'num_key_value_heads' (3): each kv head serves the same number "
            "of heads\n" +
                qwenPath + ":90:26: note: 'num_attention_heads' is here\n" +
                qwenPath +
                ":176:11: note: in module 'self_attn' of kind "
                "GroupedQueryAttention\n");
  EXPECT_EQ(errors("{num_attention_heads: 5}"),
            "o:1:23: error: 'num_attention_heads' is 5, which is no multiple "
            "of 'num_key_value_heads' (2): each kv head serves the same number "
            "of heads\n");
  EXPECT_EQ(errors("{linear_num_value_heads: 5}"),
            "o:1:26: error: 'linear_num_value_heads' is 5, which is no "
            "multiple of 'linear_num_key_heads' (2): each key head serves the "
            "same number of value heads\n");
}

TEST_F(ModelConfigTest, LayerTypes) {
  EXPECT_EQ(errors("{layer_types: [linear_attention, full_attention]}"),
            "o:1:15: error: 'layer_types' has 2 entries, but "
            "'num_hidden_layers' is 4\n");
  EXPECT_EQ(refusal("micro",
                    "{num_hidden_layers: 2, layer_types: [linear_attention, "
                    "full_atention]}"),
            "o:1:56: error: 'layer_types' must be 'linear_attention' or "
            "'full_attention', not 'full_atention'\n"
            "o:1:56: note: did you mean 'full_attention'?\n");
  EXPECT_EQ(errors("{layer_types: []}"),
            "o:1:15: error: 'layer_types' has 0 entries, but "
            "'num_hidden_layers' is 4\n");
}

TEST_F(ModelConfigTest, ProductsThatOverflowAreRefused) {
  std::string text =
      errors("{vocab_size: 2147483647, hidden_size: 2147483647}");
  EXPECT_NE(text.find("parameter 'embed_tokens.weight' would have more than "
                      "17592186044416 elements"),
            std::string::npos)
      << text;
  text = errors("{num_attention_heads: 2147483647, num_key_value_heads: 1, "
                "head_dim: 2147483632, mrope_section: [268435454, 0, 0]}");
  EXPECT_NE(text.find("would have more than"), std::string::npos) << text;
  RunConfig run;
  run.training.localBatchSize.value = 1 << 20;
  run.training.seqLen.value = 1 << 18;
  text = refusal("9B", "{}", &run);
  EXPECT_NE(text.find("would have more than"), std::string::npos) << text;
}

TEST_F(ModelConfigTest, EveryFaultIsReportedOnce) {
  EXPECT_EQ(errors("{hidden_size: 0, head_dim: 64.0, vocab_size: 0}"),
            "o:1:28: error: 'head_dim' must be a decimal integer, not '64.0'; "
            "write 64\n");
  EXPECT_EQ(errors("{hidden_size: 0, vocab_size: 0}"),
            "o:1:30: error: 'vocab_size' must be at least 1, not 0\n"
            "o:1:15: error: 'hidden_size' must be at least 1, not 0\n");
}

TEST_F(ModelConfigTest, LastLayerOfValuesWins) {
  ASSERT_NE(import("micro"), nullptr);
  auto first = parseDocument("{head_dim: 64, rope_theta: 1.0}",
                             log.diag.location("a", 1, 1), log.diag);
  auto second =
      parseDocument("{head_dim: 16}", log.diag.location("b", 1, 1), log.diag);
  auto config =
      resolveConfig(*spec, "micro", {}, {&*first, &*second}, log.diag);
  ASSERT_TRUE(config) << log.text();
  auto value = [&](StringRef name) {
    return ResolvedConfig::toAttribute(*config->find(name));
  };
  EXPECT_EQ(value("head_dim"), Attribute{int64_t(16)});
  EXPECT_EQ(config->find("head_dim")->loc.fileName(), "b");
  EXPECT_EQ(value("rope_theta"), Attribute{1.0});
  EXPECT_EQ(config->find("rope_theta")->loc.fileName(), "a");
  EXPECT_EQ(value("hidden_size"), Attribute{int64_t(64)}); // the flavor
  EXPECT_EQ(value("hidden_act"), Attribute{Word{"silu"}}); // the default
}

} // namespace
