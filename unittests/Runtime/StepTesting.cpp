//===- StepTesting.cpp - A step program beside the reference --------------===//

#include "StepTesting.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassManager.h"
#include "hp/Runtime/Pieces.h"
#include "hp/Spec/Import.h"
#include <ATen/ATen.h>
#include <cstring>
#include <stdexcept>

using namespace hp;
using namespace hp::testing;

std::unique_ptr<StepProgram> testing::makeStep(const StepOptions &options) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "model:\n  spec: qwen3_5_v2\n  flavor: " << options.flavor << "\n";
  if (!options.config.empty()) {
    os << "  config: " << options.config << "\n";
  }
  os << "parallelism: " << options.parallelism << "\n"
     << "training:\n  steps: 10\n  seq_len: " << options.seqLen
     << "\n  local_batch_size: " << options.batch
     << "\n  init: " << options.init << "\n  dtype: " << options.dtype
     << "\n  max_norm: " << options.maxNorm << "\n  seed: " << options.seed
     << "\noptimizer:\n  lr: 1e-3\n  no_decay: " << options.noDecay << "\n";

  auto program = std::make_unique<StepProgram>();
  DiagnosticEngine &diag = program->diag;
  auto fail = [&]() -> std::unique_ptr<StepProgram> {
    throw std::runtime_error(diag.firstError());
  };
  std::optional<RunConfig> config = parseRunConfig(text, "step.yaml", {}, diag);
  if (!config) {
    return fail();
  }
  program->config = *config;
  program->module = importRun(*config, modelFolders(), diag, std::nullopt);
  PassManager manager;
  if (!program->module || !verify(*program->module, diag) ||
      !addPassesTo(Stage::Step, *program->module, manager, diag) ||
      !manager.run(*program->module, diag)) {
    return fail();
  }
  program->comm = makeLockstepCommunicator(program->module->mesh);
  program->stores = makeStores(*program->module, program->comm->localRanks());
  program->store = &program->stores[0];
  InitKind init = options.init == "torch"    ? InitKind::Torch
                  : options.init == "normal" ? InitKind::Normal
                                             : InitKind::Philox;
  initialize(program->stores, init, options.seed, 0.02);
  program->kernels = makeReferenceKernels(*program->comm);
  program->interpreter =
      Interpreter::create(*program->module, *program->comm, program->kernels,
                          program->stores, diag);
  return program->interpreter ? std::move(program) : fail();
}

reference::Qwen35Model testing::makeReference(const StepProgram &program) {
  const AttributeList &config = program.module->config;
  auto integer = [&](llvm::StringRef name) { return config.getInt(name, -1); };
  reference::Qwen35Config out;
  out.vocabSize = integer("vocab_size");
  out.hiddenSize = integer("hidden_size");
  out.intermediateSize = integer("intermediate_size");
  out.numHiddenLayers = integer("num_hidden_layers");
  out.numAttentionHeads = integer("num_attention_heads");
  out.numKeyValueHeads = integer("num_key_value_heads");
  out.headDim = integer("head_dim");
  out.rmsNormEps = config.getFloat("rms_norm_eps", -1);
  out.attentionBias = config.getFlag("attention_bias");
  out.attnOutputGate = config.getFlag("attn_output_gate");
  out.tieWordEmbeddings = config.getFlag("tie_word_embeddings");
  out.ropeTheta = config.getFloat("rope_theta", -1);
  out.partialRotaryFactor = config.getFloat("partial_rotary_factor", -1);
  out.linearNumKeyHeads = integer("linear_num_key_heads");
  out.linearNumValueHeads = integer("linear_num_value_heads");
  out.linearKeyHeadDim = integer("linear_key_head_dim");
  out.linearValueHeadDim = integer("linear_value_head_dim");
  out.linearConvKernelDim = integer("linear_conv_kernel_dim");
  for (const Attribute &layer :
       *config.find("layer_types")->get<Attribute::List>()) {
    const Word *word = layer.get<Word>();
    out.layerTypes.push_back(word ? word->text : *layer.get<std::string>());
  }
  out.dtype = program.store->all().front().value.scalar_type();
  return reference::Qwen35Model(out);
}

std::string testing::hpName(const std::string &referenceName) {
  llvm::StringRef name = referenceName;
  name.consume_front("model.");
  return name.str();
}

void testing::copyToReference(const StepProgram &program,
                              reference::Qwen35Model &model) {
  std::map<std::string, at::Tensor> values;
  for (const reference::NamedTensor &entry : model.parameters) {
    Communicator::Tensors pieces;
    for (const ParameterStore &store : program.stores) {
      const StoredParameter *stored = store.find(hpName(entry.name));
      if (!stored) {
        throw std::runtime_error("no parameter " + entry.name);
      }
      pieces.push_back(stored->value.clone());
    }
    Type type = program.store->find(hpName(entry.name))->type;
    values[entry.name] = assemble(*program.comm, type, pieces);
  }
  model.copyParameters(values);
}

StepInputs testing::makeInputs(const StepProgram &program, uint64_t firstState,
                               double learningRate) {
  int64_t rows = program.module->findDim("B")->size;
  int64_t length = program.module->findDim("S")->size;
  int64_t vocabulary = program.module->config.getInt("vocab_size", 1);
  StepInputs inputs;
  inputs.tokens = at::empty({rows, length}, at::kLong);
  uint64_t x = firstState;
  int64_t *out = inputs.tokens.data_ptr<int64_t>();
  for (int64_t i = 0; i < rows * length; ++i) {
    x = 6364136223846793005u * x + 1442695040888963407u;
    out[i] = int64_t((x >> 33) % uint64_t(vocabulary));
  }
  inputs.labels = at::full({rows, length}, -100, at::kLong);
  if (length > 1) {
    inputs.labels.narrow(1, 0, length - 1)
        .copy_(inputs.tokens.narrow(1, 1, length - 1));
  }
  inputs.positions = at::arange(length, at::kLong);
  inputs.learningRate = learningRate;
  return inputs;
}

bool testing::sameBits(const at::Tensor &lhs, const at::Tensor &rhs) {
  if (lhs.sizes() != rhs.sizes() || lhs.scalar_type() != rhs.scalar_type()) {
    return false;
  }
  at::Tensor a = lhs.detach().contiguous(), b = rhs.detach().contiguous();
  return std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}
