//===- ParameterStore.h - Weights and optimizer state -----------*- C++ -*-===//
//
// One rank's parameters by full name, with AdamW's two moments. The step
// program names parameters; here are their tensors, each the piece of the whole
// that this rank stores: cut over tensor parallelism, then by rows over the
// storage axes.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_PARAMETERSTORE_H
#define HP_RUNTIME_PARAMETERSTORE_H

#include "hp/Analysis/Placement.h"
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
  Type type;
  Placement placement;         ///< which part of the parameter `value` is
  at::Tensor value;            ///< contiguous, of the stored dtype
  at::Tensor expAvg, expAvgSq; ///< AdamW's moments; undefined before the first
                               ///< update
};

class ParameterStore {
public:
  /// Allocates, without values, what `rank` stores of the parameters of
  /// `module`, in the order in which modules are built.
  explicit ParameterStore(Module &module, int64_t rank = 0);
  /// Allocates all of every parameter, whatever the mesh.
  static ParameterStore whole(Module &module);

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
  ParameterStore() = default;
  void allocate(Module &module,
                llvm::function_ref<Placement(Type)> placementOf);

  std::vector<StoredParameter> parameters;
  std::vector<unsigned> registered;
  llvm::StringMap<unsigned> byName;
};

/// Those of the ranks that one process computes, in their order.
using ParameterStores = std::vector<ParameterStore>;
ParameterStores makeStores(Module &module, llvm::ArrayRef<int64_t> ranks);

/// How weights start; the names of `training.init`.
enum class InitKind { Philox, Torch, Normal };

/// Draws every parameter, the same numbers under every layout: each store gets
/// its pieces of them.
///
///   philox  a function of (seed, parameter name, element index), the same for
///           every dtype: Philox 4x32-10, Box-Muller. Only the pieces are
///           drawn.
///   torch   LibTorch's default initializers in the order modules are built
///   normal  one generator through LibTorch's parameters() order
///
/// torch and normal draw one whole parameter after the other on every process.
/// philox and normal draw matrices from a normal distribution with standard
/// deviation `range` (initializer_range). All draw A_log as log uniform(0, 16)
/// in float32, whatever the dtype of the run.
void initialize(llvm::MutableArrayRef<ParameterStore> stores, InitKind kind,
                uint64_t seed, double range);

} // namespace hp

#endif // HP_RUNTIME_PARAMETERSTORE_H
