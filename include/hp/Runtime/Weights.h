//===- Weights.h - Parameters to and from safetensors -----------*- C++ -*-===//
//
// Moves parameters to and from Hugging Face checkpoints: keys by the model
// spec's key map, values in BF16 or F32 (F64 where the run is float64). Files
// hold whole tensors under every layout; each rank reads and takes its pieces,
// and rank 0 writes what is gathered, one tensor at a time.
// Strict: a missing, unexpected, misshapen or mistyped tensor is an error that
// names it, and nothing is changed.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_WEIGHTS_H
#define HP_RUNTIME_WEIGHTS_H

#include "hp/Runtime/Communicator.h"
#include "hp/Runtime/ParameterStore.h"
#include "hp/Runtime/SafetensorsIndex.h"
#include "hp/Spec/CheckpointKeys.h"

namespace hp {

/// What a checkpoint that was read looked like, so that it can be written back
/// the same.
struct WeightFormat {
  std::string spelling; ///< name of the KeySpelling
  /// Element type of each parameter in the file, by full name.
  std::vector<std::pair<std::string, FileDType>> dtypes;
  /// Keys that repeat a tied parameter, with that parameter.
  std::vector<std::pair<std::string, std::string>> tied;
  /// Keys known to be of no use here (vision, multi-token prediction).
  size_t skipped = 0;
};

/// Reads the checkpoint at `path` (a file, an index or a folder) into `stores`.
/// Nothing, with errors, if anything does not fit.
std::optional<WeightFormat>
loadWeights(llvm::MutableArrayRef<ParameterStore> stores, llvm::StringRef path,
            const CheckpointKeys &keys, llvm::ArrayRef<TiedKey> ties,
            DiagnosticEngine &diag);

/// Parameters as whole tensors, wherever their pieces are. Every process asks
/// for the same tensors in the same order.
class WholeParameters {
public:
  /// Of a store that has everything.
  explicit WholeParameters(const ParameterStore &whole)
      : stores(whole), comm(nullptr) {}
  /// Of the pieces of all ranks.
  WholeParameters(llvm::ArrayRef<ParameterStore> stores, Communicator &comm)
      : stores(stores), comm(&comm) {}

  /// Names, types and orders; values may be pieces.
  const ParameterStore &description() const { return stores[0]; }
  /// `value`, `expAvg` or `expAvgSq` of parameter `index` of the store's all().
  at::Tensor get(unsigned index, at::Tensor StoredParameter::*which) const;
  /// Whether this process is the one that writes.
  bool isWriter() const { return !comm || comm->localRanks().front() == 0; }
  /// Whether `ok` holds in all processes.
  bool allAgree(bool ok) const;

private:
  llvm::ArrayRef<ParameterStore> stores;
  Communicator *comm; ///< null: nothing to gather
};

/// The parameters as items to write: keys of `spelling`, each in the element
/// type that `format` recorded, or `otherwise`. `whole` must live until the
/// items are written.
std::vector<SafetensorsItem> weightItems(const WholeParameters &whole,
                                         const KeySpelling &spelling,
                                         const WeightFormat &format,
                                         FileDType otherwise);

/// One tensor as an item, converted to `dtype` when its turn comes.
SafetensorsItem tensorItem(std::string key, const at::Tensor &tensor,
                           FileDType dtype);
/// A tensor of parameter `index` as an item, gathered when its turn comes.
SafetensorsItem gatheredItem(std::string key, const WholeParameters &whole,
                             unsigned index, at::Tensor StoredParameter::*which,
                             FileDType dtype);

/// Writes `items` to `path` in the process that writes, while the others take
/// part in gathering. False in all of them, with an error where it arose, if it
/// failed in any.
bool writeGathered(llvm::StringRef path, std::vector<SafetensorsItem> items,
                   const WholeParameters &whole, DiagnosticEngine &diag);
/// The element type in files of a LibTorch dtype.
FileDType fileDType(at::ScalarType type);

} // namespace hp

#endif // HP_RUNTIME_WEIGHTS_H
