//===- ModelSpecTest.cpp - Model specs that are read or refused -----------===//

#include "ImportFixture.h"
#include "hp/Spec/Components.h"

using namespace hp;
using llvm::StringRef;

namespace {

/// A small spec; tests replace a part of it.
const std::string base = R"(model: small
config:
  vocab: 32
  width: 8
  depth: 2
  eps: 1.0e-6
  tied: false
flavors:
  one: {depth: 1}
modules:
  embed:
    kind: Embedding
    rows: $vocab
    width: $width
    sharding:
      weight: {0: tp}
  layers:
    kind: Stack
    length: $depth
    templates:
      layer:
        kind: DecoderLayer
        modules:
          mlp: {kind: SwiGLU, width: $width, hidden: 16}
          norm: {kind: RMSNorm, width: $width, eps: $eps}
        residuals:
          - {norm: norm, body: mlp}
  head: {kind: Linear, in: $width, out: $vocab, label: V}
tied:
  head.weight: {to: embed.weight, when: $tied}
checkpoint:
  spellings:
    text: {"*": "model.*"}
)";

class ModelSpecTest : public ImportFixture {
protected:
  /// `base` with the first `from` replaced by `to`.
  static std::string edited(StringRef from, StringRef to) {
    std::string text = base;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from.str();
    return text.replace(at, from.size(), to);
  }

  /// What is reported for the edited spec.
  std::string refusal(StringRef from, StringRef to) {
    log.lines.clear();
    EXPECT_FALSE(parseModelSpec(edited(from, to), "s", log.diag)) << to.str();
    EXPECT_TRUE(log.everythingLocated) << log.text();
    return log.text();
  }
};

TEST_F(ModelSpecTest, SmallSpecImports) {
  auto small = parseModelSpec(base, "s", log.diag);
  ASSERT_TRUE(small) << log.text();
  auto module = importFrom(*small, "one");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  EXPECT_EQ(stackText(*module), "[(@layer) x1]");
  auto tied = importFrom(*small, "", "{tied: true}");
  ASSERT_NE(tied, nullptr) << log.text();
  EXPECT_EQ(tied->findParam("head.weight"), nullptr);
}

TEST_F(ModelSpecTest, InitOfTheSpecWins) {
  auto small = parseModelSpec(edited("    sharding:\n      weight: {0: tp}\n",
                                     "    init: {weight: zeros}\n"),
                              "s", log.diag);
  ASSERT_TRUE(small) << log.text();
  auto module = importFrom(*small, "");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_EQ(module->findParam("embed.weight")->init, "zeros");
}

TEST_F(ModelSpecTest, ResidualsMayBeMoreThanTwo) {
  auto small = parseModelSpec(
      edited("        residuals:\n          - {norm: norm, body: mlp}\n",
             "          mlp2: {kind: SwiGLU, width: $width, hidden: 24}\n"
             "          norm2: {kind: RMSNorm, width: $width, eps: $eps}\n"
             "          mlp3: {kind: SwiGLU, width: $width, hidden: 32}\n"
             "          norm3: {kind: RMSNorm, width: $width, eps: $eps}\n"
             "        residuals:\n"
             "          - {norm: norm, body: mlp}\n"
             "          - {norm: norm2, body: mlp2}\n"
             "          - {norm: norm3, body: mlp3}\n"),
      "s", log.diag);
  ASSERT_TRUE(small) << log.text();
  auto module = importFrom(*small, "");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  std::string ops = opLines(*module->findBlock("layer")->body);
  for (StringRef line :
       {"%r = add %x, %d :", "%r_2 = add %r, %d_2 :", "%y = add %r_2, %d_3 :",
        "%m_2 = rms_norm %r_2, @norm3.weight"}) {
    EXPECT_NE(ops.find(line.str()), std::string::npos) << ops;
  }
}

TEST_F(ModelSpecTest, ShardingIsFoundByTemplateAndParameter) {
  auto qwen = readModelSpec(qwenPath, log.diag);
  ASSERT_TRUE(qwen) << log.text();
  const ParamSharding *q = qwen->sharding("full", "self_attn.q_proj.weight");
  ASSERT_NE(q, nullptr);
  ASSERT_EQ(q->cuts.size(), 1u);
  EXPECT_EQ(q->cuts[0].dim, 0u);
  EXPECT_EQ(q->cuts[0].axis, "tp");
  const ParamSharding *down = qwen->sharding("linear", "mlp.down_proj.weight");
  ASSERT_NE(down, nullptr);
  EXPECT_EQ(down->cuts[0].dim, 1u);
  const ParamSharding *norm = qwen->sharding("", "norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_TRUE(norm->cuts.empty());
  EXPECT_EQ(qwen->sharding("full", "self_attn.z_proj.weight"), nullptr);
  EXPECT_EQ(qwen->sharding("linear", "self_attn.q_proj.weight"), nullptr);
  ASSERT_EQ(qwen->batch.size(), 2u);
  EXPECT_EQ(qwen->batch[1].dim, "S");
  EXPECT_EQ(qwen->batch[1].axes, std::vector<std::string>{"cp"});
}

TEST_F(ModelSpecTest, EveryParameterOfQwenHasASharding) {
  for (StringRef config : {"{}", "{attention_bias: true, "
                                 "tie_word_embeddings: false}"}) {
    auto module = import("tiny", config);
    ASSERT_NE(module, nullptr);
    for (const Member &member : module->members) {
      if (member.param) {
        EXPECT_NE(spec->sharding("", member.param->name), nullptr)
            << member.param->name.str();
      }
    }
    for (const auto &block : module->blocks) {
      for (Param *param : block->params) {
        const ParamSharding *found = spec->sharding(block->name, param->name);
        ASSERT_NE(found, nullptr) << param->name.str();
        for (const ParamSharding::Cut &cut : found->cuts) {
          EXPECT_LT(cut.dim, param->type.rank());
        }
      }
    }
  }
}

TEST_F(ModelSpecTest, Sections) {
  EXPECT_EQ(refusal("flavors:", "flavours:"),
            "s:8:1: error: unknown key 'flavours' in the model spec\n"
            "s:8:1: note: did you mean 'flavors'?\n");
  EXPECT_EQ(refusal("model: small\n", ""),
            "s:1:1: error: the model spec lacks the key 'model'\n");
  EXPECT_EQ(refusal("model: small", "model: a b"),
            "s:1:8: error: model 'a b' must be made of letters, digits and "
            "'_', '.', '-'\n");
  log.lines.clear();
  EXPECT_FALSE(parseModelSpec("[]", "s", log.diag));
  EXPECT_EQ(log.text(), "s:1:1: error: a model spec must be a map with "
                        "'model', 'config' and 'modules', not a list\n");
}

TEST_F(ModelSpecTest, Fields) {
  EXPECT_EQ(refusal("vocab: 32", "vocab: 032"),
            "s:3:10: error: 'vocab' must be a decimal integer, not '032'; "
            "write 32\n");
  EXPECT_EQ(refusal("  depth: 2\n", "  depth: 2\n  unused: 3\n"),
            "s:6:11: error: nothing uses field 'unused'\n");
  EXPECT_EQ(refusal("  depth: 2\n", "  depth: 2\n  nothing:\n"),
            "s:6:3: error: 'nothing' needs a default\n");
  EXPECT_EQ(
      refusal("  depth: 2\n", "  depth: 2\n  max_position_embeddings: 1.5\n"),
      "s:6:28: error: 'max_position_embeddings' must be an integer, not "
      "a number\n");
}

TEST_F(ModelSpecTest, Kinds) {
  EXPECT_EQ(refusal("kind: SwiGLU", "kind: SwiGlu"),
            "s:24:23: error: 'kind' must be 'Embedding', 'GatedDeltaNet', "
            "'GroupedQueryAttention', 'Linear', 'RMSNorm' or 'SwiGLU', not "
            "'SwiGlu'\n"
            "s:24:23: note: did you mean 'SwiGLU'?\n");
  EXPECT_EQ(refusal("kind: DecoderLayer", "kind: Stack"),
            "s:22:15: error: 'kind' must be 'DecoderLayer', not 'Stack'\n");
  EXPECT_EQ(refusal("    kind: Embedding\n", ""),
            "s:12:5: error: module 'embed' lacks the key 'kind'\n");
  EXPECT_EQ(refusal("  embed:\n", "  first: {kind: RMSNorm, width: 8, eps: "
                                  "1e-6}\n  embed:\n"),
            "s:11:3: error: the first module takes tokens and must be of kind "
            "Embedding, not RMSNorm\n");
  EXPECT_EQ(refusal("tied:\n  head", "  last: {kind: RMSNorm, width: 8, eps: "
                                     "1e-6}\ntied:\n  head"),
            "s:29:3: error: the last module gives logits and must be of kind "
            "Linear, not RMSNorm\n");
}

TEST_F(ModelSpecTest, Options) {
  EXPECT_EQ(refusal("    rows: $vocab\n", "    row: $vocab\n"),
            "s:12:5: error: module 'embed' lacks the key 'rows'\n"
            "s:13:5: error: unknown key 'row' in module 'embed'\n"
            "s:13:5: note: did you mean 'rows'?\n");
  EXPECT_EQ(refusal("hidden: 16", "hidden: 0"),
            "s:24:54: error: 'hidden' must be at least 1, not 0\n");
  EXPECT_EQ(refusal("rows: $vocab", "rows: $vocabulary"),
            "s:13:11: error: 'config' has no field 'vocabulary'\n"
            "s:13:11: note: its fields: vocab, width, depth, eps, tied\n");
  EXPECT_EQ(refusal("rows: $vocab", "rows: $eps"),
            "s:13:11: error: 'rows' must be an integer, but field 'eps' is a "
            "number\n");
  EXPECT_EQ(refusal("label: V", "label: W"),
            "s:28:56: error: 'label' must be 'V' or 'none', not 'W'\n"
            "s:28:56: note: did you mean 'V'?\n");
}

TEST_F(ModelSpecTest, Sharding) {
  EXPECT_EQ(refusal("weight: {0: tp}", "wieght: {0: tp}"),
            "s:16:7: error: Embedding has no parameter 'wieght'\n"
            "s:16:7: note: did you mean 'weight'?\n");
  EXPECT_EQ(refusal("weight: {0: tp}", "weight: {2: tp}"),
            "s:16:16: error: 'dim' must be at most 1, not 2\n");
  EXPECT_EQ(refusal("weight: {0: tp}", "weight: {V: tp}"),
            "s:16:16: error: 'dim' must be a decimal integer, not 'V'\n");
  EXPECT_EQ(refusal("weight: {0: tp}", "weight: {0: dp_shard}"),
            "s:16:19: error: 'axis' must be 'tp', not 'dp_shard'\n");
  EXPECT_EQ(refusal("weight: {0: tp}", "weight: {0: tp, 1: tp}"),
            "s:16:26: error: axis 'tp' cuts another dim of 'weight' already\n");
  EXPECT_EQ(refusal("weight: {0: tp}", "weight: whole"),
            "s:16:15: error: the sharding of 'weight' must be 'replicated' or "
            "a map from dims to axes, as in {0: tp}, not 'whole'\n");
  EXPECT_EQ(refusal("modules:\n  embed",
                    "sharding:\n  batch: {B: [dp, dp], T: cp}\nmodules:\n"
                    "  embed"),
            "s:11:19: error: axis 'dp' cuts 'B' already\n"
            "s:11:24: error: unknown key 'T' in 'batch'\n"
            "s:11:24: note: did you mean 'B'?\n");
  EXPECT_EQ(refusal("    sharding:\n      weight: {0: tp}\n",
                    "    init: {weight: random}\n"),
            "s:15:20: error: 'weight' must be 'embedding', 'linear', 'bias', "
            "'log_uniform', 'ones' or 'zeros', not 'random'\n");
}

TEST_F(ModelSpecTest, Layers) {
  EXPECT_EQ(refusal("body: mlp}", "body: mpl}"),
            "s:27:32: error: 'body' must be 'mlp' or 'norm', not 'mpl'\n");
  EXPECT_EQ(refusal("body: mlp}", "body: norm}"),
            "s:24:11: error: module 'mlp' must stand in 'residuals' once, not "
            "0 times\n"
            "s:25:11: error: module 'norm' must stand in 'residuals' once, not "
            "2 times\n");
  EXPECT_EQ(refusal("          - {norm: norm, body: mlp}\n", "          []\n"),
            "s:27:11: error: 'residuals' must be a list of {norm: ..., body: "
            "...}, not a list\n");
}

TEST_F(ModelSpecTest, TemplatesOfTwoStacks) {
  StringRef layers =
      StringRef(base).slice(base.find("  layers:"), base.find("  head:"));
  std::string more = layers.str() + "  more:" + layers.drop_front(9).str();
  EXPECT_EQ(refusal(layers, more),
            "s:32:7: error: another stack has a template 'layer'; names of "
            "templates must differ\n"
            "s:21:7: note: it is here\n");
  more.replace(more.rfind("      layer:"), 12, "      other:");
  auto two = parseModelSpec(edited(layers, more), "s", log.diag);
  ASSERT_TRUE(two) << log.text();
  auto module = importFrom(*two, "");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  std::string ops = opLines(*module->findFunction("forward")->body);
  EXPECT_NE(ops.find("%h_2 = stack @more(%h, %pos)"), std::string::npos) << ops;
}

TEST_F(ModelSpecTest, Ties) {
  EXPECT_EQ(
      refusal("head.weight: {to: embed.weight", "head.wait: {to: embed.weight"),
      "s:30:3: error: 'head.wait' is no parameter of a module outside "
      "the stacks\n");
  EXPECT_EQ(refusal("head.weight: {to: embed.weight",
                    "embed.weight: {to: head.weight"),
            "s:30:22: error: 'head.weight' must belong to a module before "
            "'embed'\n");
  EXPECT_EQ(refusal("when: $tied", "when: $eps"),
            "s:30:41: error: 'when' must be true or false, but field 'eps' is "
            "a number\n");
  auto wide =
      parseModelSpec(edited("in: $width, out", "in: 4, out"), "s", log.diag);
  ASSERT_TRUE(wide) << log.text();
  log.lines.clear();
  EXPECT_EQ(importFrom(*wide, "", "{tied: true}"), nullptr);
  EXPECT_EQ(log.text(), "s:28:3: error: 'head.weight' cannot be tied to "
                        "'embed.weight': their shapes differ\n");
}

TEST_F(ModelSpecTest, ShapesThatDoNotFitAreReportedAtTheModule) {
  auto narrow = parseModelSpec(edited("norm: {kind: RMSNorm, width: $width",
                                      "norm: {kind: RMSNorm, "
                                      "width: 4"),
                               "s", log.diag);
  ASSERT_TRUE(narrow) << log.text();
  EXPECT_EQ(importFrom(*narrow, ""), nullptr);
  ASSERT_FALSE(log.lines.empty());
  EXPECT_TRUE(StringRef(log.lines[0]).starts_with("s:25:11: error: "))
      << log.text();
  EXPECT_EQ(log.lines.size(), 1u) << log.text();
}

TEST_F(ModelSpecTest, Checkpoint) {
  EXPECT_EQ(refusal("{\"*\": \"model.*\"}", "{\"*\": model}"),
            "s:33:12: error: a parameter and its key must have one '*' each, "
            "or none\n");
  EXPECT_EQ(refusal("    text: {\"*\": \"model.*\"}\n", "    {}\n"),
            "s:33:5: error: 'spellings' must have an entry\n");
}

/// The row of an option in docs/ModelSpec.md.
std::string documentedRow(const OptionInfo &option) {
  StringRef kind = describe(option.kind);
  kind.consume_front("an ");
  kind.consume_front("a ");
  std::string text = "| `" + option.name + "` | ";
  text += option.kind == FieldKind::Boolean ? "boolean"
          : option.kind == FieldKind::Float ? "float"
                                            : kind;
  text += " | ";
  text += option.otherwise ? "`" + *option.otherwise + "` | " : "| ";
  return text + option.summary + " |";
}

TEST_F(ModelSpecTest, ThePageDescribesEveryKind) {
  auto page = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR "/docs/ModelSpec.md");
  ASSERT_TRUE(page);
  std::string text = (*page)->getBuffer().str();
  size_t rows = 0;
  for (const ComponentInfo *info : allComponents()) {
    size_t start = text.find("### " + info->kind + "\n");
    ASSERT_NE(start, std::string::npos) << info->kind;
    std::string section = text.substr(start, text.find("\n##", start) - start);
    for (const OptionInfo &option : info->options) {
      EXPECT_NE(section.find(documentedRow(option)), std::string::npos)
          << documentedRow(option);
    }
    rows += info->options.size();
  }
  EXPECT_EQ(StringRef(text).count("\n| `"), rows);
  // The example is the spec of these tests but for its sharding and layout.
  StringRef example = StringRef(text).split("```yaml\n").second;
  auto read =
      parseModelSpec(example.take_front(example.find("```")), "page", log.diag);
  ASSERT_TRUE(read) << log.text();
  auto small = parseModelSpec(base, "s", log.diag);
  ASSERT_TRUE(small);
  std::string declared = str(*importFrom(*small, "one"));
  size_t shard = declared.find(", shard=[0, tp]");
  ASSERT_NE(shard, std::string::npos);
  declared.erase(shard, StringRef(", shard=[0, tp]").size());
  EXPECT_EQ(str(*importFrom(*read, "one")), declared);
}

TEST_F(ModelSpecTest, EveryComponentSaysWhatItIs) {
  StringRef last;
  for (const ComponentInfo *info : allComponents()) {
    EXPECT_LT(last, info->kind);
    last = info->kind;
    EXPECT_FALSE(info->summary.empty());
    EXPECT_EQ(info->make == nullptr, info->role != ComponentRole::Leaf);
    for (const OptionInfo &option : info->options) {
      EXPECT_FALSE(option.summary.empty()) << info->kind << option.name;
    }
  }
}

} // namespace
