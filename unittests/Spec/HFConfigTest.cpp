//===- HFConfigTest.cpp - Hugging Face config.json to model fields --------===//

#include "hp/Spec/HFConfig.h"
#include "DiagnosticLog.h"

using namespace hp;
using llvm::StringRef;

namespace {

/// The text part of a published config of 24 layers, cut to four.
const std::string sizes = R"("attention_bias": false,
"attn_output_gate": true, "head_dim": 256, "hidden_act": "silu",
"hidden_size": 1024, "initializer_range": 0.02, "intermediate_size": 3584,
"linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
"linear_num_key_heads": 16, "linear_num_value_heads": 16,
"linear_value_head_dim": 128, "max_position_embeddings": 262144,
"num_attention_heads": 8, "num_hidden_layers": 4, "num_key_value_heads": 2,
"rms_norm_eps": 1e-06, "vocab_size": 248320)";

const std::string rope =
    R"("rope_parameters": {"mrope_interleaved": true,
"mrope_section": [11, 11, 10], "rope_type": "default",
"rope_theta": 10000000, "partial_rotary_factor": 0.25})";

const std::string types = R"("layer_types": ["linear_attention",
"linear_attention", "linear_attention", "full_attention"])";

std::string flat(const std::string &rest) {
  return "{\"model_type\": \"qwen3_5_text\",\n" + sizes + ",\n" + rest + "}";
}

class HFConfigTest : public testing::Test {
protected:
  std::optional<Node> parse(StringRef text) {
    log.lines.clear();
    std::optional<Node> root =
        parseDocument(text, log.diag.location("c", 1, 1), log.diag);
    return root ? extractHFConfig(*root, log.diag) : std::nullopt;
  }
  std::string value(const Node &config, StringRef field) {
    const Node *node = config.find(field);
    std::string text;
    llvm::raw_string_ostream os(text);
    if (node) {
      printFlow(*node, os);
    }
    return text;
  }
  /// What is reported for a text that must be refused.
  std::string refusal(StringRef text) {
    EXPECT_FALSE(parse(text)) << text.str();
    EXPECT_TRUE(log.everythingLocated);
    return log.text();
  }
  /// The messages without places.
  std::string refusalWords(StringRef text) {
    refusal(text);
    std::string words;
    for (StringRef line : log.lines) {
      words += line.substr(line.find(": ") + 2).str() + "\n";
    }
    return words;
  }
  DiagnosticLog log;
};

} // namespace

TEST_F(HFConfigTest, flat) {
  std::optional<Node> c =
      parse(flat(rope + "," + types + ",\"tie_word_embeddings\": true"));
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(log.text(), "");
  std::string all;
  for (const MapEntry &entry : c->entries) {
    all += entry.key + "=" + value(*c, entry.key) + "\n";
  }
  EXPECT_EQ(all, "vocab_size=248320\n"
                 "hidden_size=1024\n"
                 "intermediate_size=3584\n"
                 "num_hidden_layers=4\n"
                 "num_attention_heads=8\n"
                 "num_key_value_heads=2\n"
                 "head_dim=256\n"
                 "rms_norm_eps=1e-06\n"
                 "attention_bias=false\n"
                 "attn_output_gate=true\n"
                 "tie_word_embeddings=true\n"
                 "rope_theta=10000000\n"
                 "partial_rotary_factor=0.25\n"
                 "mrope_section=[11, 11, 10]\n"
                 "max_position_embeddings=262144\n"
                 "initializer_range=0.02\n"
                 "layer_types=[\"linear_attention\", \"linear_attention\", "
                 "\"linear_attention\", \"full_attention\"]\n"
                 "linear_num_key_heads=16\n"
                 "linear_num_value_heads=16\n"
                 "linear_key_head_dim=128\n"
                 "linear_value_head_dim=128\n"
                 "linear_conv_kernel_dim=4\n");
  EXPECT_EQ(c->find("hidden_size")->loc.line, 4u);
  EXPECT_EQ(c->find("hidden_size")->loc.column, 16u);
}

TEST_F(HFConfigTest, nested_as_published) {
  std::optional<Node> c = parse(
      "{\"architectures\": [\"Qwen3_5ForConditionalGeneration\"],\n"
      "\"image_token_id\": 248056, \"model_type\": \"qwen3_5\",\n"
      "\"text_config\": {\"model_type\": \"qwen3_5_text\", " +
      sizes + "," + rope + "," + types +
      ", \"attention_dropout\": 0.0, \"dtype\": \"bfloat16\","
      "\"eos_token_id\": 248044, \"full_attention_interval\": 4,"
      "\"mlp_only_layers\": [], \"mtp_num_hidden_layers\": 1,"
      "\"mtp_use_dedicated_embeddings\": false, \"use_cache\": true,"
      "\"mamba_ssm_dtype\": \"float32\", \"tie_word_embeddings\": true},\n"
      "\"tie_word_embeddings\": true, \"transformers_version\": \"4.57.0\",\n"
      "\"video_token_id\": 248057, \"vision_config\": {\"depth\": 12,"
      "\"hidden_size\": 768, \"model_type\": \"qwen3_5\"},"
      "\"vision_end_token_id\": 248054, \"vision_start_token_id\": 248053}");
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(log.text(), "");
  EXPECT_EQ(value(*c, "hidden_size"), "1024"); // not the vision tower's
  EXPECT_EQ(value(*c, "full_attention_interval"), "4");
}

TEST_F(HFConfigTest, old_rope_keys) {
  std::optional<Node> c = parse(
      flat("\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.25, "
           "\"rope_scaling\": {\"type\": \"mrope\", \"mrope_interleaved\": "
           "true, \"mrope_section\": [11, 11, 10]}, "
           "\"tie_word_embeddings\": false"));
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(value(*c, "rope_theta"), "1e7");
  EXPECT_EQ(value(*c, "mrope_section"), "[11, 11, 10]");
  c = parse(flat("\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.25, "
                 "\"rope_scaling\": null, \"tie_word_embeddings\": false"));
  ASSERT_TRUE(c) << log.text();
}

TEST_F(HFConfigTest, rope_theta_in_neither_place) {
  EXPECT_EQ(refusal(flat("\"tie_word_embeddings\": true")),
            "c:1:1: error: the Hugging Face config lacks 'rope_theta', which "
            "has no default\n");
  EXPECT_EQ(refusal(flat("\"tie_word_embeddings\": true, \"rope_theta\": "
                         "null, \"rope_parameters\": {\"rope_type\": "
                         "\"default\"}")),
            "c:1:1: error: the Hugging Face config lacks 'rope_theta', which "
            "has no default\n");
}

TEST_F(HFConfigTest, rope_theta_in_both_places) {
  EXPECT_TRUE(
      parse(flat(rope + ",\"rope_theta\": 1e7, \"tie_word_embeddings\": true")))
      << log.text();
  EXPECT_EQ(refusal(flat("\"rope_theta\": 10000,\n\"rope_parameters\": "
                         "{\"rope_theta\": 1e7, \"partial_rotary_factor\": "
                         "0.25},\n\"tie_word_embeddings\": true")),
            "c:10:15: error: 'rope_theta' is 10000 here and 1e7 elsewhere in "
            "the same file\n"
            "c:11:35: note: the other one is here\n");
}

TEST_F(HFConfigTest, ties_that_differ) {
  EXPECT_EQ(
      refusal("{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false,\n"
              "\"text_config\": {" +
              sizes + "," + rope + ",\n\"tie_word_embeddings\": true}}"),
      "c:1:50: error: 'tie_word_embeddings' is false here and true elsewhere "
      "in the same file\n"
      "c:12:24: note: the other one is here\n");
}

TEST_F(HFConfigTest, one_place_is_enough_for_the_tie) {
  std::optional<Node> c =
      parse("{\"model_type\": \"qwen3_5\", \"tie_word_embeddings\": false,\n"
            "\"text_config\": {" +
            sizes + "," + rope + "}}");
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(value(*c, "tie_word_embeddings"), "false");
}

TEST_F(HFConfigTest, nothing_that_matters_is_assumed) {
  std::string text = flat(rope + ",\"tie_word_embeddings\": true");
  for (const char *key :
       {"head_dim", "hidden_size", "intermediate_size",
        "linear_conv_kernel_dim", "linear_key_head_dim", "linear_num_key_heads",
        "linear_num_value_heads", "linear_value_head_dim",
        "num_attention_heads", "num_hidden_layers", "num_key_value_heads",
        "rms_norm_eps", "vocab_size", "rope_theta", "tie_word_embeddings"}) {
    std::string without = text;
    size_t at = without.find(("\"" + llvm::Twine(key) + "\"").str());
    ASSERT_NE(at, std::string::npos) << key;
    // A key that is passed over takes its place.
    without.replace(at, strlen(key) + 2,
                    key == StringRef("rope_theta") ? "\"type\": null, \"type2\""
                                                   : "\"use_cache\"");
    std::string message = refusal(without);
    EXPECT_NE(message.find("lacks '" + std::string(key) + "'"),
              std::string::npos)
        << message;
  }
}

TEST_F(HFConfigTest, partial_rotary_factor_of_old_files) {
  std::optional<Node> c =
      parse(flat("\"rope_theta\": 1e7, \"tie_word_embeddings\": true"));
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(value(*c, "partial_rotary_factor"), "0.25");
  EXPECT_EQ(log.text(),
            "c:10:15: warning: the Hugging Face config lacks "
            "'partial_rotary_factor'; its format means 0.25 then\n");
}

TEST_F(HFConfigTest, model_types) {
  EXPECT_EQ(refusal("{\"model_type\": \"llama\"}"),
            "c:1:16: error: 'model_type' is 'llama', which is not known; known "
            "are 'qwen3_5' and 'qwen3_5_text'\n");
  EXPECT_EQ(refusal("{\"model_type\": \"qwen3_5\", \"text_config\": "
                    "{\"model_type\": \"qwen3_5_moe_text\"}}")
                .substr(0, 60),
            "c:1:57: error: 'model_type' is 'qwen3_5_moe_text', which is ");
  EXPECT_EQ(refusal("{}"),
            "c:1:1: error: the Hugging Face config lacks 'model_type'; known "
            "are 'qwen3_5' and 'qwen3_5_text'\n");
  EXPECT_EQ(refusal("[]"),
            "c:1:1: error: a Hugging Face config must be a map, not a list\n");
  EXPECT_EQ(refusal("{\"model_type\": \"qwen3_5\", \"text_config\": 1}"),
            "c:1:42: error: 'text_config' must be a map, not '1'\n");
}

TEST_F(HFConfigTest, layer_types) {
  const std::string tail = "," + rope + ",\"tie_word_embeddings\": true";
  EXPECT_EQ(refusalWords(flat("\"layer_types\": [\"full_attention\"]" + tail)),
            "error: 'layer_types' lists 1 layers, but 'num_hidden_layers' is "
            "4\nnote: 'num_hidden_layers' is given here\n");
  EXPECT_EQ(refusalWords(flat("\"layer_types\": [\"full_attention\", "
                              "\"full\", \"linear_atention\", \"x\"]" +
                              tail)),
            "error: 'layer_types' must be 'linear_attention' or "
            "'full_attention', not 'full'\n"
            "error: 'layer_types' must be 'linear_attention' or "
            "'full_attention', not 'linear_atention'\n"
            "note: did you mean 'linear_attention'?\n"
            "error: 'layer_types' must be 'linear_attention' or "
            "'full_attention', not 'x'\n");
}

TEST_F(HFConfigTest, an_explicit_list_of_layers_wins_with_a_warning) {
  std::optional<Node> c =
      parse(flat("\"layer_types\": [\"full_attention\", \"linear_attention\", "
                 "\"linear_attention\", \"full_attention\"],\n"
                 "\"full_attention_interval\": 4," +
                 rope + ",\"tie_word_embeddings\": true"));
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(log.text(),
            "c:10:17: warning: layer 0 is 'full_attention', but "
            "'full_attention_interval' 4 makes it 'linear_attention'; the list "
            "of 'layer_types' is taken\n"
            "c:11:28: note: 'full_attention_interval' is given here\n");
  EXPECT_EQ(c->find("full_attention_interval"), nullptr);
  EXPECT_EQ(c->find("layer_types")->items.size(), 4u);
}

TEST_F(HFConfigTest, what_the_dense_model_does_not_compute) {
  const std::string tail = "," + rope + ",\"tie_word_embeddings\": true";
  auto words = [&](const std::string &pair) {
    return refusalWords(flat(pair + tail));
  };
  EXPECT_EQ(words("\"num_experts\": 8"),
            "error: 'num_experts' belongs to a mixture of experts; only the "
            "dense model is supported\n");
  EXPECT_EQ(words("\"attention_dropout\": 0.1"),
            "error: 'attention_dropout' is 0.1; only 0 is supported\n");
  EXPECT_EQ(words("\"use_sliding_window\": true"),
            "error: a sliding window is not supported\n");
  EXPECT_EQ(words("\"mlp_only_layers\": [1]"),
            "error: 'mlp_only_layers' must be an empty list in a dense "
            "model\n");
  EXPECT_EQ(words("\"quantization_config\": {}"),
            "error: quantized weights are not supported\n");
  EXPECT_EQ(words("\"rope_scaling\": {\"rope_type\": \"yarn\"}"),
            "error: rope type 'yarn' is not supported; only 'default' is\n");
  EXPECT_EQ(words("\"rope_scaling\": {\"factor\": 4.0}"),
            "error: rope parameter 'factor' is not supported\n");
  EXPECT_EQ(words("\"mrope_interleaved\": false"),
            "error: only interleaved sections are supported: "
            "'mrope_interleaved' must be true\n");
  std::string gelu = flat(rope + ",\"tie_word_embeddings\": true");
  gelu.replace(gelu.find("silu"), 4, "gelu");
  EXPECT_EQ(refusalWords(gelu),
            "error: 'hidden_act' is 'gelu'; only 'silu' is supported\n");
  EXPECT_TRUE(parse(flat("\"num_experts\": null, \"use_sliding_window\": "
                         "false, \"attention_dropout\": 0" +
                         tail)))
      << log.text();
}

TEST_F(HFConfigTest, values_of_wrong_type_or_range) {
  const std::string tail = "," + rope + ",\"tie_word_embeddings\": true";
  std::string text = flat(rope + ",\"tie_word_embeddings\": true");
  auto with = [&](StringRef from, StringRef to) {
    std::string changed = text;
    changed.replace(changed.find(from.str()), from.size(), to.str());
    return refusalWords(changed);
  };
  EXPECT_EQ(with("\"hidden_size\": 1024", "\"hidden_size\": \"1024\""),
            "error: 'hidden_size' must be a decimal integer, not the quoted "
            "text '1024'; write 1024\n");
  EXPECT_EQ(with("\"head_dim\": 256", "\"head_dim\": 0"),
            "error: 'head_dim' must be at least 1, not 0\n");
  EXPECT_EQ(with("\"rms_norm_eps\": 1e-06", "\"rms_norm_eps\": 0"),
            "error: 'rms_norm_eps' must be above 0, not 0\n");
  EXPECT_EQ(with("0.25", "1.25"), "error: 'partial_rotary_factor' must be "
                                  "above 0 and at most 1, not 1.25\n");
  EXPECT_EQ(with("[11, 11, 10]", "[11, 11.0, 10]"),
            "error: 'mrope_section' must be a decimal integer, not '11.0'; "
            "write 11\n");
  EXPECT_EQ(with("\"attention_bias\": false", "\"attention_bias\": 0"),
            "error: 'attention_bias' must be true or false, not '0'; write "
            "false\n");
}

TEST_F(HFConfigTest, unknown_keys_are_warned_of) {
  std::optional<Node> c =
      parse(flat(rope + ",\"tie_word_embeddings\": true,\n"
                        "\"full_attention_intervals\": 4, \"zzz\": 1"));
  ASSERT_TRUE(c) << log.text();
  EXPECT_EQ(log.lines,
            (std::vector<std::string>{
                "c:13:1: warning: unknown key 'full_attention_intervals' in "
                "the Hugging Face config is ignored",
                "c:13:1: note: did you mean 'full_attention_interval'?",
                "c:13:32: warning: unknown key 'zzz' in the Hugging Face "
                "config is ignored"}));
}

TEST_F(HFConfigTest, files_that_cannot_be_read) {
  EXPECT_FALSE(readHFConfig("/no/such/config.json", log.diag));
  EXPECT_EQ(log.text(), "error: cannot read '/no/such/config.json': No such "
                        "file or directory\n");
}
