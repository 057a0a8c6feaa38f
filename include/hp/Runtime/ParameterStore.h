//===- ParameterStore.h - Weights and optimizer state -----------*- C++ -*-===//
//
// One rank's parameters by full name, with AdamW's two moments. The step
// program names parameters; here are their tensors.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_PARAMETERSTORE_H
#define HP_RUNTIME_PARAMETERSTORE_H

#include "hp/IR/Module.h"
#include <ATen/core/Tensor.h>
#include <string>
#include <vector>

namespace hp {

/// LibTorch's name of a dtype.
at::ScalarType scalarType(DType dtype);

struct StoredParameter {
  std::string name; ///< full: `layers.0.mlp.up_proj.weight`
  llvm::StringRef init;
  at::Tensor value; ///< contiguous, of the parameter's dtype and local shape
  at::Tensor expAvg, expAvgSq; ///< AdamW's moments; undefined before the first
                               ///< update
};

class ParameterStore {
public:
  /// Allocates, without values, the parameters of `module` in the order in
  /// which modules are built.
  explicit ParameterStore(Module &module);

  std::vector<StoredParameter> &all() { return parameters; }
  const std::vector<StoredParameter> &all() const { return parameters; }
  StoredParameter *find(llvm::StringRef name);
  const StoredParameter *find(llvm::StringRef name) const;
  /// Positions in all(), in the order of LibTorch's parameters().
  const std::vector<unsigned> &registration() const { return registered; }
  /// Bytes of the values and of the moments.
  int64_t valueBytes() const;

  /// Updates that were done; skipped steps do not count.
  int64_t updates = 0;

private:
  std::vector<StoredParameter> parameters;
  std::vector<unsigned> registered;
  llvm::StringMap<unsigned> byName;
};

/// How weights start; the names of `training.init`.
enum class InitKind { Philox, Torch, Normal };

/// Draws every parameter.
///
///   philox  a function of (seed, parameter name, element index), the same for
///           every layout and dtype: Philox 4x32-10, Box-Muller
///   torch   LibTorch's default initializers in the order modules are built
///   normal  one generator through LibTorch's parameters() order
///
/// philox and normal draw matrices from a normal distribution with standard
/// deviation `range` (initializer_range). All draw A_log as log uniform(0, 16)
/// in float32, whatever the dtype of the run.
void initialize(ParameterStore &store, InitKind kind, uint64_t seed,
                double range);

} // namespace hp

#endif // HP_RUNTIME_PARAMETERSTORE_H
