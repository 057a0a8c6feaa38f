//===- ConfigMutationTest.cpp - Broken configurations never crash ---------===//
//
// Mutates valid texts with a fixed seed and cuts them at every byte. Whatever
// comes out is either read or refused with a located error.
//
//===----------------------------------------------------------------------===//

#include "DiagnosticLog.h"
#include "hp/Spec/HFConfig.h"
#include "hp/Spec/RunConfig.h"
#include <random>

using namespace hp;
using llvm::StringRef;

namespace {

const char *const yamlText = R"(# a run
model:
  spec: qwen3_5_v2
  flavor: tiny
  config: {vocab_size: 1000, mrope_section: [3, 3, 2], layer_types: ["a", 'b']}
parallelism:
  data_parallel_shard_degree: 2
  enable_sequence_parallel: true
training:
  steps: 20
  seq_len: 128
  local_batch_size: 4
  global_batch_size: 8
  max_norm: 1.0
  init: philox
optimizer:
  lr: 1e-3
  no_decay:
    - "*.bias"
    - 'norm'
data:
  format: text
  path: >
    folded
    text
metrics: {jsonl: "m.jsonl"}
)";

const char *const jsonText = R"({
  "model_type": "qwen3_5",
  "text_config": {
    "attention_bias": false, "attention_dropout": 0.0, "head_dim": 256,
    "hidden_act": "silu", "hidden_size": 64, "intermediate_size": 12288,
    "layer_types": ["linear_attention", "full_attention"],
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32,
    "linear_value_head_dim": 128, "max_position_embeddings": 32768,
    "num_attention_heads": 16, "num_hidden_layers": 2,
    "num_key_value_heads": 4, "pad_token_id": null, "rms_norm_eps": 1e-06,
    "rope_parameters": {"mrope_section": [11, 11, 10], "rope_theta": 1e7,
      "partial_rotary_factor": 0.25, "rope_type": "default"},
    "tie_word_embeddings": true, "vocab_size": 248320
  },
  "tie_word_embeddings": true
}
)";

/// A run of either reader, with the properties that must hold of any text.
struct Outcome {
  bool accepted;
  std::string lines;
};

Outcome read(StringRef text, bool isHF) {
  DiagnosticLog log;
  bool accepted;
  if (isHF) {
    std::optional<Node> root =
        parseDocument(text, log.diag.location("t", 1, 1), log.diag);
    accepted = root && extractHFConfig(*root, log.diag);
  } else {
    accepted = parseRunConfig(text, "t", {}, log.diag).has_value();
  }
  EXPECT_EQ(accepted, log.diag.errorCount() == 0) << log.text() << "in\n"
                                                  << text.str();
  EXPECT_TRUE(log.everythingLocated) << log.text() << "in\n" << text.str();
  return {accepted, log.text()};
}

std::string mutate(std::string text, std::mt19937 &random) {
  static const StringRef pieces[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     ":",
                                     ": ",
                                     "- ",
                                     "? ",
                                     ",",
                                     "\n",
                                     "  ",
                                     "\t",
                                     "#",
                                     "'",
                                     "\"",
                                     "*a",
                                     "&a ",
                                     "!!str ",
                                     "<<: ",
                                     "---",
                                     "...",
                                     "|\n",
                                     ">-\n",
                                     "%YAML",
                                     "~",
                                     "null",
                                     "\r\n",
                                     "\r",
                                     "\\u",
                                     "\xff",
                                     "\x04",
                                     "010",
                                     ".nan",
                                     "-1",
                                     "1e999",
                                     "yes",
                                     "true",
                                     "@",
                                     "`",
                                     "\xc3\xa4",
                                     "99999999999999999999"};
  auto pick = [&](size_t bound) {
    return bound == 0 ? size_t(0) : random() % bound;
  };
  unsigned edits = 1 + pick(4);
  for (unsigned i = 0; i < edits; ++i) {
    size_t at = pick(text.size() + 1);
    switch (pick(6)) {
    case 0: // delete a stretch
      text.erase(at, 1 + pick(20));
      break;
    case 1: // insert a piece of syntax
      text.insert(at, pieces[pick(std::size(pieces))].str());
      break;
    case 2: // overwrite a byte
      if (at < text.size()) {
        text[at] = char(random());
      }
      break;
    case 3: { // copy a stretch elsewhere
      std::string stretch = text.substr(at, 1 + pick(60));
      text.insert(pick(text.size() + 1), stretch);
      break;
    }
    case 4: // swap the case of a bit
      if (at < text.size()) {
        text[at] ^= char(1 << pick(8));
      }
      break;
    case 5: { // replace a byte by a piece
      if (at < text.size()) {
        text.replace(at, 1, pieces[pick(std::size(pieces))].str());
      }
      break;
    }
    }
  }
  return text;
}

void mutateMany(StringRef text, bool isHF, unsigned seed, int cases) {
  std::mt19937 random(seed);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    accepted += read(mutate(text.str(), random), isHF).accepted;
  }
  // Both outcomes must be well represented, or the test tests nothing.
  EXPECT_GT(accepted, cases / 100);
  EXPECT_LT(accepted, cases - cases / 4);
}

} // namespace

TEST(ConfigMutationTest, the_texts_are_valid) {
  EXPECT_TRUE(read(yamlText, false).accepted) << read(yamlText, false).lines;
  EXPECT_TRUE(read(jsonText, true).accepted) << read(jsonText, true).lines;
}

TEST(ConfigMutationTest, mutated_run_configs) {
  mutateMany(yamlText, false, 1, 6000);
}

TEST(ConfigMutationTest, mutated_hugging_face_configs) {
  mutateMany(jsonText, true, 2, 4000);
}

TEST(ConfigMutationTest, cut_at_every_byte) {
  StringRef yaml = yamlText, json = jsonText;
  for (size_t i = 0; i < yaml.size(); ++i) {
    read(yaml.take_front(i), false);
    read(yaml.drop_front(i), false);
  }
  for (size_t i = 0; i + 2 < json.size(); ++i) {
    EXPECT_FALSE(read(json.take_front(i), true).accepted) << i;
  }
}

TEST(ConfigMutationTest, mutated_overrides) {
  std::mt19937 random(3);
  for (int i = 0; i < 3000; ++i) {
    std::vector<std::string> overrides = {
        mutate("training.steps=20", random),
        mutate("model.config.mrope_section=[3, 3, 2]", random)};
    DiagnosticLog log;
    bool accepted = parseRunConfig("model: {spec: m}", "t", overrides, log.diag)
                        .has_value();
    EXPECT_EQ(accepted, log.diag.errorCount() == 0) << log.text();
    EXPECT_TRUE(log.everythingLocated);
  }
}

TEST(ConfigMutationTest, accepted_mutants_print_to_a_fixpoint) {
  std::mt19937 random(4);
  int printed = 0;
  for (int i = 0; i < 4000; ++i) {
    DiagnosticLog log;
    auto config = parseRunConfig(mutate(yamlText, random), "t", {}, log.diag);
    if (!config) {
      continue;
    }
    std::string once, twice;
    llvm::raw_string_ostream onceOS(once), twiceOS(twice);
    printRunConfig(*config, onceOS);
    auto again = parseRunConfig(once, "t", {}, log.diag);
    ASSERT_TRUE(again) << log.text() << once;
    printRunConfig(*again, twiceOS);
    EXPECT_EQ(once, twice);
    ++printed;
  }
  EXPECT_GT(printed, 100);
}
