//===- ModelSpec.h - A model as its YAML file declares it -------*- C++ -*-===//
//
// models/NAME.yaml says what a model is: the fields of its configuration, the
// flavors that set them, the tree of modules with the kind of each, what is
// tied, where weights are sharded, and how a checkpoint calls them. Options of
// modules are literals, or `$field`: the value of a field of the config.
//
//   model: llama
//   config: {hidden_size: 64, ...}
//   flavors:
//     small: {hidden_size: 32}
//   modules:
//     embed_tokens: {kind: Embedding, rows: $vocab_size, width: $hidden_size}
//     layers: {kind: Stack, ...}
//   checkpoint: ...
//
// Two fields mean the same in every spec that has them:
// max_position_embeddings, the longest sequence, and initializer_range, the
// standard deviation of `init: normal`.
//
// Reading a spec checks everything that does not depend on values: kinds,
// options, fields, names of parameters and axes. resolveConfig() makes the
// values of one flavor, and importModel() of Import.h the module.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_MODELSPEC_H
#define HP_SPEC_MODELSPEC_H

#include "hp/IR/Attributes.h"
#include "hp/Spec/CheckpointKeys.h"
#include "hp/Spec/Document.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace hp {

struct ComponentInfo;
struct OptionInfo;

//===----------------------------------------------------------------------===//
// Config fields
//===----------------------------------------------------------------------===//

/// What a field or an option holds.
enum class FieldKind : uint8_t {
  Integer,
  Float,
  Boolean,
  Word,
  IntegerList,
  WordList
};
/// `an integer`, `a list of words`, ...
llvm::StringRef describe(FieldKind kind);

/// A field of the config with a value: its default in a ModelSpec, its final
/// value in a ResolvedConfig.
struct ConfigField {
  std::string name;
  FieldKind kind;
  Node value;
  /// Where the value was given; of a derived value, where the rule stands.
  Location loc;
};

/// `derived: layer_types: {length, every, last, others}`: of every `every`
/// entries the last is `last`.
struct IntervalRule {
  std::string field;         ///< of kind WordList
  std::string length, every; ///< fields of kind Integer
  std::string last, others;
  Location loc;
};

struct Flavor {
  std::string name;
  Location loc;
  Node values; ///< a Map from fields to values
};

//===----------------------------------------------------------------------===//
// Modules
//===----------------------------------------------------------------------===//

/// An option as the spec gives it.
struct OptionBinding {
  const OptionInfo *info;
  /// The field that `$field` names; empty for a literal.
  std::string field;
  Node literal;
  Location loc;
};

/// Where a parameter is cut by compute sharding. The axis cuts the first factor
/// of the dim, of each segment by itself. No dims: replicated.
struct ParamSharding {
  std::string param; ///< relative to its module: `q_proj.weight`
  struct Cut {
    unsigned dim;
    std::string axis;
  };
  llvm::SmallVector<Cut, 1> cuts;
  Location loc;
};

struct ParamInit {
  std::string param;
  std::string init; ///< embedding, linear, bias, log_uniform, ones, zeros
  Location loc;
};

/// `{norm: input_layernorm, body: self_attn}`: y = x + body(norm(x)).
struct Residual {
  unsigned norm, body; ///< positions in the children
  Location loc;
};

/// One entry of the tree of modules.
struct ModuleSpec {
  std::string name;
  const ComponentInfo *info = nullptr;
  Location loc;
  std::vector<OptionBinding> options;
  std::vector<ParamSharding> sharding;
  std::vector<ParamInit> init;
  /// `modules` of a layer, `templates` of a stack.
  std::vector<ModuleSpec> children;
  std::vector<Residual> residuals; ///< of a layer
  std::string layerType;           ///< of a layer: its word in `types`

  const ModuleSpec *child(llvm::StringRef name) const;
};

/// `lm_head.weight: {to: embed_tokens.weight, when: $tie_word_embeddings}`.
struct TieSpec {
  std::string alias, target;
  std::string when; ///< a field of kind Boolean; empty: always
  Location loc;
};

/// The axes that cut a dim of values: `S: tp`.
struct ValueSharding {
  std::string dim;
  std::vector<std::string> axes;
  Location loc;
};

//===----------------------------------------------------------------------===//
// ModelSpec
//===----------------------------------------------------------------------===//

struct ModelSpec {
  std::string name;
  std::string path;
  Location loc;
  std::vector<ConfigField> config;
  std::vector<IntervalRule> derived;
  std::vector<Flavor> flavors;
  /// What cuts values: always, with sequence parallelism, with loss
  /// parallelism.
  std::vector<ValueSharding> batch, sequenceParallel, lossParallel;
  std::vector<ModuleSpec> modules;
  std::vector<TieSpec> ties;
  CheckpointKeys checkpoint;

  const ConfigField *findField(llvm::StringRef name) const;
  const Flavor *findFlavor(llvm::StringRef name) const;
  /// The declaration for a parameter: `sharding("full",
  /// "self_attn.q_proj.weight")`; the template is empty for a parameter outside
  /// the stacks. Null where the spec says nothing, which means replicated.
  const ParamSharding *sharding(llvm::StringRef block,
                                llvm::StringRef param) const;
};

/// Reads the spec at `path`. Reports every error it finds; nothing is returned
/// if there was one.
std::optional<ModelSpec> readModelSpec(llvm::StringRef path,
                                       DiagnosticEngine &diag);
/// The same from a text that is called `name`.
std::optional<ModelSpec> parseModelSpec(llvm::StringRef text,
                                        llvm::StringRef name,
                                        DiagnosticEngine &diag);

/// The folders in which specs are looked up by name: `models` here, and that of
/// the source tree.
std::vector<std::string> modelFolders();
/// The path of the spec called `name`. Reports at `loc` if there is none, with
/// the names that there are.
std::optional<std::string> findModelSpec(llvm::StringRef name,
                                         llvm::ArrayRef<std::string> folders,
                                         Location loc, DiagnosticEngine &diag);

//===----------------------------------------------------------------------===//
// ResolvedConfig
//===----------------------------------------------------------------------===//

/// The config of one model: every field with its value.
class ResolvedConfig {
public:
  std::vector<ConfigField> fields; ///< in the order of the spec, then derived
  Location loc;                    ///< of the flavor, or of the spec

  const ConfigField *find(llvm::StringRef name) const;
  /// The value of a field of kind Boolean.
  bool flag(llvm::StringRef name) const;

  /// The value of field `name` as an attribute: integers, floats, booleans,
  /// words and lists of them.
  static Attribute toAttribute(const ConfigField &field);
};

/// The defaults of `spec`, then the values of the flavor (none if empty), then
/// each of `layers` (Maps from fields to values), then what is derived. An
/// unknown field, a value of the wrong kind or a derived list of the wrong
/// length is reported where it stands.
std::optional<ResolvedConfig>
resolveConfig(const ModelSpec &spec, llvm::StringRef flavor, Location flavorLoc,
              llvm::ArrayRef<const Node *> layers, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_SPEC_MODELSPEC_H
