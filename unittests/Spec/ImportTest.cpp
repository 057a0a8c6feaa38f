//===- ImportTest.cpp - From a model spec to the module -------------------===//

#include "ImportFixture.h"
#include "hp/Analysis/Parameters.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

using namespace hp;
using llvm::StringRef;

namespace {

class ImportTest : public ImportFixture {};

const char *const flavors[] = {"",   "0.8B", "2B",   "4B",
                               "9B", "27B",  "tiny", "micro"};

TEST_F(ImportTest, EveryFlavorVerifiesAndRoundTrips) {
  for (StringRef flavor : flavors) {
    auto module = import(flavor);
    ASSERT_NE(module, nullptr) << flavor.str() << "\n" << log.text();
    EXPECT_TRUE(verify(*module, log.diag)) << log.text();
    std::string text = str(*module);
    auto again = parseModule(text, "printed", log.diag);
    ASSERT_NE(again, nullptr) << log.text();
    EXPECT_EQ(str(*again), text);
  }
}

TEST_F(ImportTest, ParameterCountsAreThoseOfThePublishedModels) {
  const std::pair<StringRef, uint64_t> counts[] = {{"0.8B", 752393024},
                                                   {"2B", 1881825088},
                                                   {"4B", 4205751296},
                                                   {"9B", 8953803264},
                                                   {"27B", 26895998464}};
  for (auto [flavor, count] : counts) {
    auto module = import(flavor);
    ASSERT_NE(module, nullptr) << log.text();
    EXPECT_EQ(parameterCount(*module), count) << flavor.str();
  }
}

TEST_F(ImportTest, TinyRegistersItsParametersInTheGoldenOrder) {
  auto file = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR
                                          "/test/golden/tiny_torch_init.json");
  ASSERT_TRUE(file);
  auto golden = llvm::json::parse((*file)->getBuffer());
  ASSERT_TRUE(bool(golden));
  std::vector<std::string> expected;
  for (auto &name : *golden->getAsObject()->getArray("param_order")) {
    expected.push_back(name.getAsString()->str());
  }
  auto module = import("tiny");
  ASSERT_NE(module, nullptr);
  std::vector<std::string> order;
  for (const ParamInstance &instance : registrationOrder(*module)) {
    order.push_back("model." + instance.name);
  }
  EXPECT_EQ(order, expected);
}

TEST_F(ImportTest, ParametersStandInConstructionOrder) {
  auto module = import("micro");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(paramLines(*module, module->findBlock("linear")->params),
            "linear_attn.conv1d.weight f32[(q=2*16 | k=2*16 | v=4*16), 1, 4] "
            "linear\n"
            "linear_attn.dt_bias f32[h=4] ones\n"
            "linear_attn.A_log f32[h=4] log_uniform\n"
            "linear_attn.norm.weight f32[16] ones\n"
            "linear_attn.out_proj.weight f32[64, (h=4*16)] linear\n"
            "linear_attn.in_proj_qkv.weight "
            "f32[(q=2*16 | k=2*16 | v=4*16), 64] linear\n"
            "linear_attn.in_proj_z.weight f32[(h=4*16), 64] linear\n"
            "linear_attn.in_proj_b.weight f32[h=4, 64] linear\n"
            "linear_attn.in_proj_a.weight f32[h=4, 64] linear\n"
            "mlp.gate_proj.weight f32[96, 64] linear\n"
            "mlp.up_proj.weight f32[96, 64] linear\n"
            "mlp.down_proj.weight f32[64, 96] linear\n"
            "input_layernorm.weight f32[64] zeros\n"
            "post_attention_layernorm.weight f32[64] zeros\n");
  auto biased = import("micro", "{attention_bias: true}");
  ASSERT_NE(biased, nullptr);
  EXPECT_EQ(
      paramLines(
          *biased,
          llvm::ArrayRef(biased->findBlock("full")->params).take_front(10)),
      "self_attn.q_proj.weight f32[(h=4*2*32), 64] linear\n"
      "self_attn.q_proj.bias f32[(h=4*2*32)] bias\n"
      "self_attn.k_proj.weight f32[(g=2*32), 64] linear\n"
      "self_attn.k_proj.bias f32[(g=2*32)] bias\n"
      "self_attn.v_proj.weight f32[(g=2*32), 64] linear\n"
      "self_attn.v_proj.bias f32[(g=2*32)] bias\n"
      "self_attn.o_proj.weight f32[64, (h=4*32)] linear\n"
      "self_attn.o_proj.bias f32[64] bias\n"
      "self_attn.q_norm.weight f32[32] zeros\n"
      "self_attn.k_norm.weight f32[32] zeros\n");
}

TEST_F(ImportTest, FunctionsReadTheTiedEmbeddingTwice) {
  auto module = import("tiny");
  ASSERT_NE(module, nullptr);
  ASSERT_EQ(module->ties.size(), 1u);
  EXPECT_EQ(module->ties[0].alias, "lm_head.weight");
  EXPECT_EQ(module->ties[0].target, "embed_tokens.weight");
  EXPECT_EQ(opLines(*module->findFunction("forward")->body),
            "%e0 = embedding %tok, @embed_tokens.weight : f32[B, S, 256]\n"
            "%h = stack @layers(%e0, %pos) : f32[B, S, 256]\n"
            "%fn = rms_norm %h, @norm.weight {eps=1e-06, unit_offset} : "
            "f32[B, S, 256]\n"
            "%lg = linear %fn, @embed_tokens.weight : f32[B, S, V=1024]\n"
            "return %lg\n");
  EXPECT_EQ(opLines(*module->findFunction("train")->body),
            "%lg = call @forward(%tok, %pos) : f32[B, S, V=1024]\n"
            "%nll = cross_entropy %lg, %lab : f32[]\n"
            "%n = count_valid %lab : i64[]\n"
            "%loss = div %nll, %n : f32[]\n"
            "return %loss\n");
}

TEST_F(ImportTest, UntiedHeadIsAParameterOfItsOwn) {
  auto tiny = import("tiny");
  auto untied = import("tiny", "{tie_word_embeddings: false}");
  ASSERT_TRUE(tiny && untied);
  EXPECT_TRUE(untied->ties.empty());
  Param *head = untied->findParam("lm_head.weight");
  ASSERT_NE(head, nullptr);
  EXPECT_EQ(str(head->type, *untied), "f32[V=1024, 256]");
  EXPECT_EQ(head->init, "linear");
  EXPECT_EQ(parameterCount(*untied), parameterCount(*tiny) + 1024 * 256);
  EXPECT_TRUE(verify(*untied, log.diag)) << log.text();
}

TEST_F(ImportTest, WithoutGateQueriesAreUnflattened) {
  auto module = import("micro", "{attn_output_gate: false}");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  EXPECT_EQ(str(module->findBlock("full")->params[0]->type, *module),
            "f32[(h=4*32), 64]");
  std::string ops = opLines(*module->findBlock("full")->body);
  EXPECT_NE(ops.find("%q0 = unflatten %qf"), std::string::npos) << ops;
  EXPECT_NE(ops.find("%of = flatten %o :"), std::string::npos) << ops;
  EXPECT_EQ(ops.find("sigmoid_mul"), std::string::npos) << ops;
}

TEST_F(ImportTest, StacksFoldTheTypesOfTheirLayers) {
  const std::tuple<StringRef, StringRef, StringRef> cases[] = {
      {"tiny", "{}", "[(@linear x3, @full) x1]"},
      {"27B", "{}", "[(@linear x3, @full) x16]"},
      {"tiny", "{num_hidden_layers: 3}", "[(@linear x3) x1]"},
      {"tiny", "{num_hidden_layers: 6}",
       "[(@linear x3, @full, @linear x2) x1]"},
      {"tiny", "{full_attention_interval: 1}", "[(@full x4) x1]"},
      {"tiny",
       "{layer_types: [full_attention, full_attention, linear_attention, "
       "full_attention]}",
       "[(@full x2, @linear, @full) x1]"}};
  for (auto [flavor, config, expected] : cases) {
    auto module = import(flavor, config);
    ASSERT_NE(module, nullptr) << log.text();
    EXPECT_TRUE(verify(*module, log.diag)) << log.text();
    EXPECT_EQ(stackText(*module), expected) << config.str();
  }
}

TEST_F(ImportTest, TemplatesThatDoNotOccurAreLeftOut) {
  auto module = import("tiny", "{full_attention_interval: 1}");
  ASSERT_NE(module, nullptr);
  EXPECT_EQ(module->findBlock("linear"), nullptr);
  EXPECT_NE(module->findBlock("full"), nullptr);
}

TEST_F(ImportTest, ConfigLineHoldsEveryField) {
  auto module = import("micro", "{rope_theta: 5000, rms_norm_eps: 1E-5}");
  ASSERT_NE(module, nullptr);
  std::string text = str(*module);
  EXPECT_NE(
      text.find(
          "  config {vocab_size=1000, hidden_size=64, intermediate_size=96, "
          "num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, "
          "head_dim=32, rms_norm_eps=1e-05, rope_theta=5000.0, "
          "partial_rotary_factor=0.25, mrope_section=[2, 1, 1], "
          "attention_bias=false, attn_output_gate, tie_word_embeddings, "
          "full_attention_interval=4, linear_num_key_heads=2, "
          "linear_num_value_heads=4, linear_key_head_dim=16, "
          "linear_value_head_dim=16, linear_conv_kernel_dim=4, "
          "max_position_embeddings=262144, initializer_range=0.02, "
          "hidden_act=silu, layer_types=[linear_attention, linear_attention, "
          "linear_attention, full_attention]}\n"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("{rotary=8, theta=5000.0}"), std::string::npos) << text;
}

TEST_F(ImportTest, RunGivesDimsTrainingAndOptimizer) {
  auto run = parseRunConfig("model: {spec: qwen3_5_v2, flavor: micro}\n"
                            "training: {seq_len: 64, local_batch_size: 2, "
                            "max_norm: 0.5, dtype: float64}\n"
                            "optimizer: {beta2: 0.99, no_decay: [\"*.bias\"]}\n"
                            "parallelism: {disable_loss_parallel: true}\n",
                            "run.yaml", {}, log.diag);
  ASSERT_TRUE(run) << log.text();
  auto module = importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag);
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  std::string text = str(*module);
  EXPECT_NE(text.find("  training {dtype=float64, loss=cross_entropy, "
                      "max_norm=0.5, seq_len=64, local_batch_size=2}\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  optimizer {name=adamw, beta1=0.9, beta2=0.99, "
                      "eps=1e-08, weight_decay=0.1, no_decay=[\"*.bias\"]}\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  parallelism {sequence_parallel, loss_parallel=false, "
                      "attention=ring, linear=state, "
                      "reshard_after_forward=default, prefetch=1, "
                      "recompute=none, selective=op}\n  sharding {B=dp, S=cp, "
                      "sequence_parallel=[S, tp], loss_parallel=[V, tp]}\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("  mesh <>\n  dim B = 2\n  dim S = 64\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(text.find("f32["), std::string::npos);
  EXPECT_NE(text.find("%loss = div %nll, %n : f64[]"), std::string::npos);
}

TEST_F(ImportTest, MeshHasTheAxesAboveOne) {
  auto run = parseRunConfig("model: {spec: qwen3_5_v2, flavor: micro}\n"
                            "training: {seq_len: 64, local_batch_size: 2}\n"
                            "parallelism: {data_parallel_replicate_degree: 2, "
                            "data_parallel_shard_degree: -1, "
                            "tensor_parallel_degree: 2}\n",
                            "run.yaml", {}, log.diag);
  ASSERT_TRUE(run) << log.text();
  auto module = importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag, 12);
  ASSERT_NE(module, nullptr) << log.text();
  std::string text = str(*module);
  EXPECT_NE(text.find("  mesh <dp_replicate=2, dp_shard=3, tp=2>\n"
                      "  axes dp = (dp_replicate, dp_shard)\n"
                      "  dim B = 12\n"),
            std::string::npos)
      << text;
  run->comm.keepTrivial.value = true;
  module = importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag, 4);
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_NE(
      str(*module).find("  mesh <dp_replicate=2, dp_shard=1, cp=1, tp=2>\n"),
      std::string::npos)
      << str(*module);
}

TEST_F(ImportTest, PlacesAreThoseOfTheModules) {
  auto module = import("tiny");
  ASSERT_NE(module, nullptr);
  auto buffer = llvm::MemoryBuffer::getFile(qwenPath);
  ASSERT_TRUE(buffer);
  llvm::SmallVector<StringRef> lines;
  (*buffer)->getBuffer().split(lines, '\n');
  // The key that stands at a place of the spec.
  auto keyAt = [&](Location loc) -> StringRef {
    EXPECT_EQ(loc.fileName(), qwenPath);
    StringRef line = lines[loc.line - 1].drop_front(loc.column - 1);
    return line.take_until([](char c) { return c == ':'; });
  };
  for (const auto &block : module->blocks) {
    EXPECT_EQ(keyAt(block->loc), block->name);
    for (Param *param : block->params) {
      EXPECT_EQ(keyAt(param->loc), param->name.split('.').first);
    }
    for (const Operation &op : block->body->ops) {
      for (const Operand &operand : op.operands) {
        if (operand.param) {
          EXPECT_EQ(op.loc, operand.param->loc);
        }
      }
      EXPECT_TRUE(op.loc);
    }
  }
  Block &forward = *module->findFunction("forward")->body;
  EXPECT_EQ(keyAt(forward.ops.front().loc), "embed_tokens");
  EXPECT_EQ(keyAt(std::next(forward.ops.begin())->loc), "layers");
}

TEST_F(ImportTest, HuggingFaceConfigIsTheSourceUnderOverrides) {
  auto run = parseRunConfig(
      "model: {spec: qwen3_5_v2, hf_config: " HP_SOURCE_DIR
      "/test/Spec/Inputs/hf_tiny_config.json, config: {rope_theta: 5000.0}}\n",
      "run.yaml", {}, log.diag);
  ASSERT_TRUE(run) << log.text();
  auto module = importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag);
  auto tiny = import("tiny", "{rope_theta: 5000.0}");
  ASSERT_TRUE(module && tiny) << log.text();
  // All but the name of the flavor.
  EXPECT_EQ(StringRef(str(*module)).split('\n').second,
            StringRef(str(*tiny)).split('\n').second);
}

TEST_F(ImportTest, SequenceLongerThanTheModelAllows) {
  auto run = parseRunConfig("model: {spec: qwen3_5_v2, flavor: micro}\n"
                            "training:\n"
                            "  seq_len: 300000\n",
                            "run.yaml", {}, log.diag);
  ASSERT_TRUE(run) << log.text();
  EXPECT_EQ(importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag), nullptr);
  ASSERT_EQ(log.lines.size(), 2u) << log.text();
  EXPECT_EQ(log.lines[0],
            "run.yaml:3:12: error: 'training.seq_len' is 300000, but the model "
            "goes up to 262144 positions");
  EXPECT_TRUE(StringRef(log.lines[1])
                  .ends_with("note: 'max_position_embeddings' is here"));
}

TEST_F(ImportTest, UnknownSpecAndFlavor) {
  auto run =
      parseRunConfig("model:\n  spec: qwen3_5_v3\n", "run.yaml", {}, log.diag);
  ASSERT_TRUE(run) << log.text();
  EXPECT_EQ(importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag), nullptr);
  EXPECT_EQ(log.text(),
            "run.yaml:2:9: error: there is no model spec 'qwen3_5_v3'\n"
            "run.yaml:2:9: note: did you mean 'qwen3_5_v2'?\n");
  log.lines.clear();
  run = parseRunConfig("model:\n  spec: qwen3_5_v2\n  flavor: tinny\n",
                       "run.yaml", {}, log.diag);
  ASSERT_TRUE(run);
  EXPECT_EQ(importRun(*run, {HP_SOURCE_DIR "/models"}, log.diag), nullptr);
  EXPECT_EQ(log.text(), "run.yaml:3:11: error: model 'qwen3_5_v2' has no "
                        "flavor 'tinny'\n"
                        "run.yaml:3:11: note: did you mean 'tiny'?\n");
}

TEST_F(ImportTest, ListsModelsWithCounts) {
  auto models = listModels(HP_SOURCE_DIR "/models", parameterCount, log.diag);
  ASSERT_TRUE(models) << log.text();
  auto it = llvm::find_if(*models, [](const ModelListing &model) {
    return model.name == "qwen3_5_v2";
  });
  ASSERT_NE(it, models->end());
  EXPECT_EQ(it->path, qwenPath);
  ASSERT_EQ(it->flavors.size(), 7u);
  EXPECT_EQ(it->flavors[0].name, "0.8B");
  EXPECT_EQ(it->flavors[0].parameters, 752393024u);
  EXPECT_EQ(it->flavors[5].name, "tiny");
}

TEST_F(ImportTest, AnotherArchitectureNeedsASpecAlone) {
  auto llama = readModelSpec(HP_SOURCE_DIR "/test/Spec/Inputs/llama_like.yaml",
                             log.diag);
  ASSERT_TRUE(llama) << log.text();
  auto module = importFrom(*llama, "wide");
  ASSERT_NE(module, nullptr) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  EXPECT_EQ(stackText(*module), "[(@decoder x3) x1]");
  EXPECT_EQ(
      opLines(*module->findBlock("decoder")->body),
      "%n = rms_norm %x, @input_layernorm.weight {eps=1e-05} : f32[B, S, 96]\n"
      "%qf = linear %n, @self_attn.q_proj.weight : f32[B, S, (h=4*16)]\n"
      "%q0 = unflatten %qf : f32[B, S, h=4, 16]\n"
      "%k0 = linear %n, @self_attn.k_proj.weight : f32[B, S, (g=2*16)]\n"
      "%k1 = unflatten %k0 : f32[B, S, g=2, 16]\n"
      "%v0 = linear %n, @self_attn.v_proj.weight : f32[B, S, (g=2*16)]\n"
      "%v = unflatten %v0 : f32[B, S, g=2, 16]\n"
      "%q = rope %q0, %pos {rotary=16, theta=5e+05} : f32[B, S, h=4, 16]\n"
      "%k = rope %k1, %pos {rotary=16, theta=5e+05} : f32[B, S, g=2, 16]\n"
      "%o = sdpa %q, %k, %v : f32[B, S, h=4, 16]\n"
      "%of = flatten %o : f32[B, S, (h=4*16)]\n"
      "%p = linear %of, @self_attn.o_proj.weight : f32[B, S, 96]\n"
      "%r = add %x, %p : f32[B, S, 96]\n"
      "%m = rms_norm %r, @post_attention_layernorm.weight {eps=1e-05} : "
      "f32[B, S, 96]\n"
      "%g1 = linear %m, @mlp.gate_proj.weight : f32[B, S, 160]\n"
      "%u1 = linear %m, @mlp.up_proj.weight : f32[B, S, 160]\n"
      "%s = silu_mul %g1, %u1 : f32[B, S, 160]\n"
      "%d = linear %s, @mlp.down_proj.weight : f32[B, S, 96]\n"
      "%y = add %r, %d : f32[B, S, 96]\n"
      "return %y\n");
  EXPECT_EQ(str(module->findParam("lm_head.weight")->type, *module),
            "f32[V=500, 96]");
  EXPECT_EQ(module->findParam("norm.weight")->init, "ones");
  // 2 tables of 500x96; 3 layers of q, o 2*64*96, k, v 2*32*96, mlp 3*160*96
  // and two norms of 96; the last norm.
  EXPECT_EQ(parameterCount(*module),
            2 * 500 * 96 +
                3 * (2 * 64 * 96 + 2 * 32 * 96 + 3 * 160 * 96 + 2 * 96) + 96u);
}

} // namespace
