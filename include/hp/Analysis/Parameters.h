//===- Parameters.h - Every parameter of a model -----------------*- C++
//-*-===//
//
// A module before stage `step` has the parameters of a layer once, in its
// template. Here they are listed as the model has them, one for each layer,
// with full names, in the two orders that matter:
//
//   construction   as modules are built: conv1d.weight, dt_bias, A_log, ...
//   registration   LibTorch's parameters(): a module's own parameters before
//                  those of its submodules: dt_bias, A_log, conv1d.weight, ...
//
// The view of --print-parameters prints one line for each:
//
//   layers.0.mlp.up_proj.weight  f32[96, 64]  init=linear  decays
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_PARAMETERS_H
#define HP_ANALYSIS_PARAMETERS_H

#include "hp/IR/Module.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/GlobPattern.h"
#include <string>
#include <vector>

namespace hp {

struct ParamInstance {
  std::string name; ///< full: `layers.0.mlp.up_proj.weight`
  Param *param;     ///< of the module, or of a layer's template
};

/// In construction order.
std::vector<ParamInstance> allParameters(Module &module);
/// In registration order.
std::vector<ParamInstance> registrationOrder(Module &module);

/// Elements of all parameters, tied ones once.
uint64_t parameterCount(Module &module);

/// Which parameters AdamW decays, by `no_decay` of a module's `optimizer` line:
/// a list of patterns of full names, in which `*` stands for any text and `?`
/// for one character.
class DecayRule {
public:
  /// What is wrong with the line goes to `fault`; the rule then decays all. The
  /// rule refers to `optimizer`, which must outlive it.
  DecayRule(const AttributeList &optimizer, std::string &fault);

  bool decays(llvm::StringRef name) const;

private:
  std::vector<llvm::GlobPattern> exempt;
};

/// Prints every parameter in construction order, with its checkpoint key where
/// `keyOf` gives one, its type, how it starts and whether it decays. The last
/// line counts them.
void printParameters(
    Module &module, llvm::raw_ostream &os,
    llvm::function_ref<std::string(llvm::StringRef)> keyOf = nullptr);

} // namespace hp

#endif // HP_ANALYSIS_PARAMETERS_H
