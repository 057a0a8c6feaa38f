//===- Import.cpp - From a model spec to the module -----------------------===//

#include "hp/Spec/Import.h"
#include "hp/Spec/Components.h"
#include "hp/Spec/HFConfig.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

namespace {

/// A component of the model and the entry that asked for it.
struct Instance {
  const ModuleSpec *spec;
  std::unique_ptr<Component> component;
};

/// A layer that occurs in a stack.
struct Layer {
  const ModuleSpec *spec;
  std::vector<Instance> children;
  BlockTemplate *block = nullptr;
};

/// A top-level entry: a component, or a stack of layers.
struct TopLevel {
  Instance instance;
  Stack *stack = nullptr;
  std::vector<Layer> layers;          ///< templates that occur
  std::vector<StringRef> layerBlocks; ///< the template of each layer
};

class Importer {
public:
  Importer(const ModelSpec &spec, const ResolvedConfig &config,
           const RunConfig &run, const ParallelDegrees &degrees,
           DiagnosticEngine &diag)
      : spec(spec), config(config), run(run), degrees(degrees), diag(diag),
        module(std::make_unique<Module>()) {}

  std::unique_ptr<Module> import(StringRef flavor);

private:
  // Components from options.
  bool configure();
  bool configureOne(const ModuleSpec &moduleSpec, Instance &instance);
  bool configureStack(const ModuleSpec &stackSpec, TopLevel &top);

  // The header.
  void writeHeader(StringRef flavor);
  void writeTraining();
  void writeOptimizer();
  void writeParallelism();
  void writeSharding();
  bool writeMesh();

  // Parameters and bodies.
  bool declare();
  bool declareOne(Instance &instance, std::string prefix, BlockTemplate *block);
  void findTies();
  bool writeLayer(Layer &layer, Type residualType);
  bool writeForward();
  bool writeTrain();

  Type integers(llvm::ArrayRef<StringRef> dims);
  Operand positionsOf(BodyBuilder &body) const { return use(body.positions); }

  const ModelSpec &spec;
  const ResolvedConfig &config;
  const RunConfig &run;
  const ParallelDegrees &degrees;
  DiagnosticEngine &diag;
  std::unique_ptr<Module> module;
  std::vector<TopLevel> tops;
  llvm::StringSet<> reported;
  llvm::StringMap<Param *> tied;
  DType dtype = DType::F32;
};

} // namespace

//===----------------------------------------------------------------------===//
// Components from options
//===----------------------------------------------------------------------===//

bool Importer::configureOne(const ModuleSpec &moduleSpec, Instance &instance) {
  instance.spec = &moduleSpec;
  auto options = resolveOptions(moduleSpec, config, reported, diag);
  if (!options) {
    return false;
  }
  instance.component = moduleSpec.info->make();
  return instance.component->configure(*options);
}

/// Matches the type of each layer with a template and configures those that
/// occur, in the order of the spec.
bool Importer::configureStack(const ModuleSpec &stackSpec, TopLevel &top) {
  top.instance.spec = &stackSpec;
  auto options = resolveOptions(stackSpec, config, reported, diag);
  if (!options) {
    return false;
  }
  int64_t length = options->integer("length");
  llvm::ArrayRef<Node> types = options->items("types");
  std::vector<const ModuleSpec *> layers;
  if (types.empty() && stackSpec.children.size() == 1) {
    layers.assign(size_t(length), &stackSpec.children[0]);
  } else if (int64_t(types.size()) != length) {
    auto error = options->error({"types", "length"});
    error << options->label("types") << " has " << types.size()
          << " entries, but " << options->label("length") << " is " << length;
    return error;
  }
  std::vector<StringRef> names;
  for (const ModuleSpec &layer : stackSpec.children) {
    names.push_back(layer.layerType);
  }
  for (const Node &type : types) {
    int index = readWord(type, StringRef(options->label("types")).trim('\''),
                         names, diag);
    if (index < 0) {
      return false;
    }
    layers.push_back(&stackSpec.children[size_t(index)]);
  }
  for (const ModuleSpec *layer : layers) {
    top.layerBlocks.push_back(module->intern(layer->name));
  }
  bool ok = true;
  for (const ModuleSpec &layerSpec : stackSpec.children) {
    if (!llvm::is_contained(layers, &layerSpec)) {
      continue;
    }
    Layer &layer = top.layers.emplace_back();
    layer.spec = &layerSpec;
    for (const ModuleSpec &child : layerSpec.children) {
      ok &= configureOne(child, layer.children.emplace_back());
    }
  }
  return ok;
}

bool Importer::configure() {
  bool ok = true;
  for (const ModuleSpec &moduleSpec : spec.modules) {
    TopLevel &top = tops.emplace_back();
    ok &= moduleSpec.info->role == ComponentRole::Stack
              ? configureStack(moduleSpec, top)
              : configureOne(moduleSpec, top.instance);
  }
  return ok;
}

//===----------------------------------------------------------------------===//
// The header
//===----------------------------------------------------------------------===//

void Importer::writeTraining() {
  AttributeList &list = module->training;
  auto set = [&](StringRef name, Attribute value) {
    list.set(module->intern(name), std::move(value));
  };
  set("dtype", Attribute{Word{spelling(*run.training.dtype).str()}});
  set("loss", Attribute{Word{spelling(*run.training.loss).str()}});
  set("max_norm", Attribute{*run.training.maxNorm});
  set("seq_len", Attribute{*run.training.seqLen});
  set("local_batch_size", Attribute{*run.training.localBatchSize});
}

/// What the passes read where their options say nothing.
void Importer::writeParallelism() {
  AttributeList &list = module->parallelism;
  auto set = [&](StringRef name, Attribute value) {
    list.set(module->intern(name), std::move(value));
  };
  const ParallelismConfig &parallelism = run.parallelism;
  set("sequence_parallel", Attribute{*parallelism.enableSequenceParallel});
  set("loss_parallel", Attribute{!*parallelism.disableLossParallel});
  set("attention",
      Attribute{Word{spelling(*parallelism.contextAttention).str()}});
  set("linear", Attribute{Word{spelling(*parallelism.contextLinear).str()}});
  set("reshard_after_forward",
      Attribute{Word{spelling(*parallelism.reshardAfterForward).str()}});
  set("prefetch", Attribute{*parallelism.prefetch});
  const ActivationCheckpointConfig &recompute = run.activationCheckpoint;
  set("recompute", Attribute{Word{spelling(*recompute.mode).str()}});
  int64_t layers = 0;
  if (!StringRef(*recompute.selectiveOption).getAsInteger(10, layers)) {
    set("selective", Attribute{layers});
  } else {
    set("selective", Attribute{Word{*recompute.selectiveOption}});
  }
}

/// `sharding {B=dp, S=cp, sequence_parallel=[S, tp], loss_parallel=[V, tp]}`.
void Importer::writeSharding() {
  AttributeList &list = module->sharding;
  auto word = [](StringRef text) { return Attribute{Word{text.str()}}; };
  for (const ValueSharding &cut : spec.batch) {
    Attribute::List axes;
    llvm::append_range(axes, llvm::map_range(cut.axes, word));
    list.set(module->intern(cut.dim),
             axes.size() == 1 ? axes[0] : Attribute{std::move(axes)});
  }
  auto choice = [&](StringRef name, llvm::ArrayRef<ValueSharding> cuts) {
    Attribute::List pairs;
    for (const ValueSharding &cut : cuts) {
      for (StringRef axis : cut.axes) {
        pairs.push_back(word(cut.dim));
        pairs.push_back(word(axis));
      }
    }
    if (!pairs.empty()) {
      list.set(module->intern(name), Attribute{std::move(pairs)});
    }
  };
  choice("sequence_parallel", spec.sequenceParallel);
  choice("loss_parallel", spec.lossParallel);
}

void Importer::writeOptimizer() {
  AttributeList &list = module->optimizer;
  auto set = [&](StringRef name, Attribute value) {
    list.set(module->intern(name), std::move(value));
  };
  set("name", Attribute{Word{spelling(*run.optimizer.name).lower()}});
  set("beta1", Attribute{*run.optimizer.beta1});
  set("beta2", Attribute{*run.optimizer.beta2});
  set("eps", Attribute{*run.optimizer.eps});
  set("weight_decay", Attribute{*run.optimizer.weightDecay});
  Attribute::List patterns;
  for (const std::string &pattern : *run.optimizer.noDecay) {
    patterns.push_back(Attribute{pattern});
  }
  set("no_decay", Attribute{std::move(patterns)});
}

bool Importer::writeMesh() {
  const std::pair<StringRef, int64_t> axes[] = {
      {"dp_replicate", degrees.replicate},
      {"dp_shard", degrees.shard},
      {"cp", degrees.context},
      {"tp", degrees.tensor}};
  for (auto [name, size] : axes) {
    if (size == 1 && !*run.comm.keepTrivial) {
      continue;
    }
    if (!module->mesh.addAxis(name, size)) {
      return diag.error(run.parallelism.loc)
             << "the mesh has too many ranks: axis '" << name << "' of size "
             << size << " does not fit";
    }
  }
  std::optional<AxisList> replicate = module->mesh.lookup("dp_replicate");
  std::optional<AxisList> shard = module->mesh.lookup("dp_shard");
  if (replicate && shard) {
    AxisList both = *replicate;
    both.append(*shard);
    module->mesh.addAlias("dp", both);
  }
  return true;
}

void Importer::writeHeader(StringRef flavor) {
  module->name = module->intern(spec.name);
  module->flavor = module->intern(flavor);
  module->stage = Stage::Spec;
  module->loc = config.loc;
  for (const ConfigField &field : config.fields) {
    module->config.set(module->intern(field.name),
                       ResolvedConfig::toAttribute(field));
  }
  dtype = *run.training.dtype == Precision::Float64 ? DType::F64 : DType::F32;
  writeTraining();
  writeOptimizer();
  writeParallelism();
  writeSharding();
  int64_t batch = *run.training.localBatchSize * degrees.dataParallel();
  module->dims.push_back(
      {module->intern("B"), batch, run.training.localBatchSize.loc});
  module->dims.push_back(
      {module->intern("S"), *run.training.seqLen, run.training.seqLen.loc});
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// Enters the ties that hold; the target is filled in once it is made.
void Importer::findTies() {
  for (const TieSpec &tie : spec.ties) {
    if (!tie.when.empty() && !config.flag(tie.when)) {
      continue;
    }
    tied[tie.alias] = nullptr;
    module->ties.push_back(
        {module->intern(tie.alias), module->intern(tie.target), tie.loc});
  }
}

bool Importer::declareOne(Instance &instance, std::string prefix,
                          BlockTemplate *block) {
  for (const Tie &tie : module->ties) {
    tied[tie.alias] = module->findParam(tie.target);
  }
  ParamMaker params(*module, block, *instance.spec,
                    prefix + instance.spec->name + ".", dtype, tied, diag);
  instance.component->declare(params);
  return !params.hadError();
}

bool Importer::declare() {
  findTies();
  bool ok = true;
  for (TopLevel &top : tops) {
    const ModuleSpec &moduleSpec = *top.instance.spec;
    if (moduleSpec.info->role != ComponentRole::Stack) {
      ok &= declareOne(top.instance, "", nullptr);
      continue;
    }
    top.stack = module->makeStack(moduleSpec.name, moduleSpec.loc);
    top.stack->groups = Stack::fold(top.layerBlocks);
    module->addStack(top.stack);
    for (Layer &layer : top.layers) {
      auto block = std::make_unique<BlockTemplate>();
      block->name = module->intern(layer.spec->name);
      block->loc = layer.spec->loc;
      block->body = std::make_unique<Block>(*module);
      layer.block = block.get();
      module->blocks.push_back(std::move(block));
      for (Instance &child : layer.children) {
        ok &= declareOne(child, "", layer.block);
      }
    }
  }
  return ok;
}

//===----------------------------------------------------------------------===//
// Bodies
//===----------------------------------------------------------------------===//

Type Importer::integers(llvm::ArrayRef<StringRef> dims) {
  TypeData data;
  data.dtype = DType::I64;
  for (StringRef dim : dims) {
    data.dims.push_back(module->namedDim(dim));
  }
  return module->type(data);
}

/// y = x + body(norm(x)) for each residual. The first norm is called n, the
/// others m; the last sum y, the others r.
bool Importer::writeLayer(Layer &layer, Type residualType) {
  BodyBuilder body(*module, *layer.block->body, diag);
  body.loc = layer.spec->loc;
  Value *x = body.argument("x", residualType);
  body.positions = body.argument("pos", integers({"S"}));
  const std::vector<Residual> &residuals = layer.spec->residuals;
  for (size_t i = 0; i < residuals.size(); ++i) {
    Instance &norm = layer.children[residuals[i].norm];
    Instance &inner = layer.children[residuals[i].body];
    body.loc = norm.spec->loc;
    Value *normed = norm.component->emit(body, x, i == 0 ? "n" : "m");
    body.loc = inner.spec->loc;
    Value *change = inner.component->emit(body, normed, "f");
    body.loc = residuals[i].loc;
    StringRef name = i + 1 == residuals.size() ? "y" : "r";
    x = body.op(name, OpKind::Add, {use(x), use(change)});
  }
  body.ret(x);
  if (!body.hadError() && !x->type.matches(residualType)) {
    return diag.error(layer.spec->loc)
           << "a layer must give what it takes, so that layers can follow one "
              "another";
  }
  return !body.hadError();
}

bool Importer::writeForward() {
  auto function = std::make_unique<Function>();
  function->name = module->intern("forward");
  function->loc = spec.loc;
  function->body = std::make_unique<Block>(*module);
  BodyBuilder body(*module, *function->body, diag);
  body.loc = spec.loc;
  Value *value = body.argument("tok", integers({"B", "S"}));
  body.positions = body.argument("pos", integers({"S"}));
  bool ok = true;
  for (TopLevel &top : tops) {
    const ModuleSpec &moduleSpec = *top.instance.spec;
    body.loc = moduleSpec.loc;
    if (moduleSpec.info->role != ComponentRole::Stack) {
      StringRef name = moduleSpec.info == &embeddingInfo() ? "e0"
                       : moduleSpec.info == &rmsNormInfo() ? "fn"
                       : &top == &tops.back()              ? "lg"
                                                           : "x";
      value = top.instance.component->emit(body, value, name);
    } else if (value) {
      for (Layer &layer : top.layers) {
        ok &= writeLayer(layer, value->type);
      }
      value = body.run("h", OpKind::Stack, moduleSpec.name,
                       {use(value), use(body.positions)}, value->type);
    }
  }
  body.ret(value);
  module->functions.push_back(std::move(function));
  return ok && !body.hadError();
}

bool Importer::writeTrain() {
  Block &forward = *module->findFunction("forward")->body;
  Type logits = forward.terminator()->operands[0].value->type;
  auto function = std::make_unique<Function>();
  function->name = module->intern("train");
  function->loc = spec.loc;
  function->body = std::make_unique<Block>(*module);
  BodyBuilder body(*module, *function->body, diag);
  body.loc = tops.back().instance.spec->loc;
  Value *tokens = body.argument("tok", integers({"B", "S"}));
  Value *labels = body.argument("lab", integers({"B", "S"}));
  body.positions = body.argument("pos", integers({"S"}));
  Value *lg = body.run("lg", OpKind::Call, "forward",
                       {use(tokens), use(body.positions)}, logits);
  Value *nll = body.op("nll", OpKind::CrossEntropy, {use(lg), use(labels)});
  Value *n = body.op("n", OpKind::CountValid, {use(labels)});
  Value *loss = body.op("loss", OpKind::Div, {use(nll), use(n)});
  body.ret(loss);
  module->functions.push_back(std::move(function));
  return !body.hadError();
}

std::unique_ptr<Module> Importer::import(StringRef flavor) {
  writeHeader(flavor);
  if (!configure() || !writeMesh() || !declare() || !writeForward() ||
      !writeTrain()) {
    return nullptr;
  }
  return std::move(module);
}

//===----------------------------------------------------------------------===//
// Entry points
//===----------------------------------------------------------------------===//

/// RoPE has no positions past the longest sequence the model was made for.
static bool checkLength(const ResolvedConfig &config, const RunConfig &run,
                        DiagnosticEngine &diag) {
  const ConfigField *limit = config.find("max_position_embeddings");
  if (!limit) {
    return true;
  }
  int64_t longest = *ResolvedConfig::toAttribute(*limit).get<int64_t>();
  if (*run.training.seqLen <= longest) {
    return true;
  }
  Location loc = run.training.seqLen.loc;
  auto error = diag.error(loc ? loc : limit->loc);
  error << "'training.seq_len' is " << *run.training.seqLen
        << ", but the model goes up to " << longest << " positions";
  error.note(limit->loc, "'max_position_embeddings' is here");
  return error;
}

std::unique_ptr<Module> hp::importModel(const ModelSpec &spec, StringRef flavor,
                                        llvm::ArrayRef<const Node *> overrides,
                                        const RunConfig *run,
                                        DiagnosticEngine &diag,
                                        std::optional<int64_t> worldSize) {
  static const RunConfig defaults;
  Location flavorLoc = run ? run->model.flavor.loc : Location();
  auto config = resolveConfig(spec, flavor, flavorLoc, overrides, diag);
  const RunConfig &runConfig = run ? *run : defaults;
  ParallelDegrees degrees;
  if (run) {
    auto resolved = resolveParallelism(*run, worldSize, diag);
    if (!resolved) {
      return nullptr;
    }
    degrees = *resolved;
  }
  if (!config || !checkLength(*config, runConfig, diag)) {
    return nullptr;
  }
  return Importer(spec, *config, runConfig, degrees, diag).import(flavor);
}

std::optional<ModelSpec> hp::readModelSpec(const RunConfig &run,
                                           llvm::ArrayRef<std::string> folders,
                                           DiagnosticEngine &diag) {
  const Located<std::string> &name = run.model.spec;
  if (!isSpecName(*name)) {
    return readModelSpec(resolveInputPath(run, name), diag);
  }
  auto path = findModelSpec(*name, folders, name.loc, diag);
  return path ? readModelSpec(*path, diag) : std::nullopt;
}

std::unique_ptr<Module> hp::importRun(const RunConfig &run,
                                      llvm::ArrayRef<std::string> folders,
                                      DiagnosticEngine &diag,
                                      std::optional<int64_t> worldSize) {
  auto spec = readModelSpec(run, folders, diag);
  if (!spec) {
    return nullptr;
  }
  std::vector<const Node *> overrides;
  std::optional<Node> published;
  if (!run.model.hfConfig->empty()) {
    published = readHFConfig(resolveInputPath(run, run.model.hfConfig), diag);
    if (!published) {
      return nullptr;
    }
    overrides.push_back(&*published);
  }
  overrides.push_back(&*run.model.config);
  return importModel(*spec, *run.model.flavor, overrides, &run, diag,
                     worldSize);
}
