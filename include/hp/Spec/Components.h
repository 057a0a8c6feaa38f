//===- Components.h - The library of module kinds ---------------*- C++ -*-===//
//
// `kind: GroupedQueryAttention` in a model spec names a component: what options
// it takes, what parameters it has, and which operations it writes. A component
// knows no model; all that differs between models is an option. One file a
// kind, in lib/Spec/components; docs/ModelSpec.md says how to add one.
//
// A component goes through three steps, each once:
//   configure   takes its options and checks them together
//   declare     makes its parameters, in construction order
//   emit        writes its operations
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_COMPONENTS_H
#define HP_SPEC_COMPONENTS_H

#include "hp/Spec/BodyBuilder.h"
#include "hp/Spec/ModelSpec.h"
#include "hp/Spec/TypedReading.h"

namespace hp {

//===----------------------------------------------------------------------===//
// What the library says of a kind
//===----------------------------------------------------------------------===//

/// The largest value of an option that is an integer: sizes and counts.
constexpr int64_t maxOptionInteger = std::numeric_limits<int32_t>::max();
/// The most layers of a stack.
constexpr int64_t maxLayers = 4096;

/// One option of a component.
struct OptionInfo {
  std::string name;
  FieldKind kind;
  std::string summary;
  IntRange integers = {.min = 1, .max = maxOptionInteger};
  FloatRange floats = {};
  std::vector<std::string> words = {}; ///< what a Word may be; empty: anything
  /// The value of an option left out, as YAML; none: the option is required.
  std::optional<std::string> otherwise = {};
};

/// A required option that is a size or a count.
OptionInfo sizeOption(llvm::StringRef name, llvm::StringRef summary);
/// An option that is off unless it is given.
OptionInfo flagOption(llvm::StringRef name, llvm::StringRef summary);
/// The required option `eps` of a norm.
OptionInfo epsOption(llvm::StringRef summary);

/// A parameter that a component has, or has with some options.
struct ParamInfo {
  std::string name; ///< `q_proj.weight`
  unsigned rank;
};

/// How a kind is used in the tree of modules.
enum class ComponentRole : uint8_t {
  Leaf,  ///< parameters and operations
  Layer, ///< `modules` and `residuals`; in a stack
  Stack  ///< `templates`; at the top
};

class Component;

struct ComponentInfo {
  std::string kind, summary;
  ComponentRole role = ComponentRole::Leaf;
  std::vector<OptionInfo> options;
  std::vector<ParamInfo> params;
  /// Makes one; null for a Stack or a Layer, which Import.cpp builds from their
  /// children.
  std::unique_ptr<Component> (*make)() = nullptr;

  const OptionInfo *findOption(llvm::StringRef name) const;
  const ParamInfo *findParam(llvm::StringRef name) const;
};

/// All kinds, by name.
llvm::ArrayRef<const ComponentInfo *> allComponents();
const ComponentInfo *findComponent(llvm::StringRef kind);

//===----------------------------------------------------------------------===//
// Options with values
//===----------------------------------------------------------------------===//

/// The options of one module with their values, each within its range.
class Options {
public:
  int64_t integer(llvm::StringRef name) const;
  double real(llvm::StringRef name) const;
  bool flag(llvm::StringRef name) const;
  llvm::StringRef word(llvm::StringRef name) const;
  std::vector<int64_t> integers(llvm::StringRef name) const;
  /// The items of a list, with their places.
  llvm::ArrayRef<Node> items(llvm::StringRef name) const;

  /// What the user calls an option: `'num_attention_heads'` if a field gives
  /// it, else `'heads'`.
  std::string label(llvm::StringRef name) const;
  /// An error about the values of options that do not go together. It stands at
  /// the first one that the spec itself does not give, so at what the user set,
  /// or else at the first; notes point to the others and to the module.
  InFlightDiagnostic error(llvm::ArrayRef<llvm::StringRef> names) const;
  /// Where the value of an option was given.
  Location loc(llvm::StringRef name) const;

private:
  friend std::optional<Options> resolveOptions(const ModuleSpec &,
                                               const ResolvedConfig &,
                                               llvm::StringSet<> &,
                                               DiagnosticEngine &);
  struct Entry {
    std::string name, label;
    Node node;
    Attribute value;
    Location loc;
  };
  const Entry &entry(llvm::StringRef name) const;
  std::vector<Entry> entries;
  const ModuleSpec *module = nullptr;
  DiagnosticEngine *diag = nullptr;
};

/// Takes the options of `module` from literals and fields. A field out of range
/// is reported once: `reported` holds those that were.
std::optional<Options> resolveOptions(const ModuleSpec &module,
                                      const ResolvedConfig &config,
                                      llvm::StringSet<> &reported,
                                      DiagnosticEngine &diag);

//===----------------------------------------------------------------------===//
// Component
//===----------------------------------------------------------------------===//

class Component {
public:
  virtual ~Component() = default;

  /// Keeps what it needs of the options. False after an error.
  virtual bool configure(const Options &options) = 0;
  /// Makes the parameters in construction order.
  virtual void declare(ParamMaker &params) = 0;
  /// Writes the operations and returns their result, which is called `name`
  /// where a name is given and where the kind has no name of its own.
  virtual Value *emit(BodyBuilder &body, Value *input,
                      llvm::StringRef name) = 0;
};

// One for each file in lib/Spec/components.
const ComponentInfo &embeddingInfo();
const ComponentInfo &linearInfo();
const ComponentInfo &rmsNormInfo();
const ComponentInfo &swigluInfo();
const ComponentInfo &groupedQueryAttentionInfo();
const ComponentInfo &gatedDeltaNetInfo();
const ComponentInfo &decoderLayerInfo();
const ComponentInfo &stackInfo();

} // namespace hp

#endif // HP_SPEC_COMPONENTS_H
