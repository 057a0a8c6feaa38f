//===- Weights.h - Parameters to and from safetensors -----------*- C++ -*-===//
//
// Moves a ParameterStore to and from Hugging Face checkpoints: keys by the
// model spec's key map, values in BF16 or F32 (F64 where the run is float64).
// Strict: a missing, unexpected, misshapen or mistyped tensor is an error that
// names it, and nothing is changed.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_WEIGHTS_H
#define HP_RUNTIME_WEIGHTS_H

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

/// Reads the checkpoint at `path` (a file, an index or a folder) into `store`.
/// Nothing, with errors, if anything does not fit.
std::optional<WeightFormat> loadWeights(ParameterStore &store,
                                        llvm::StringRef path,
                                        const CheckpointKeys &keys,
                                        llvm::ArrayRef<TiedKey> ties,
                                        DiagnosticEngine &diag);

/// The tensors of `store` as items to write: keys of `spelling`, each in the
/// element type that `format` recorded, or `otherwise`. The tensors must live
/// until the items are written.
std::vector<SafetensorsItem> weightItems(const ParameterStore &store,
                                         const KeySpelling &spelling,
                                         const WeightFormat &format,
                                         FileDType otherwise);

/// One tensor as an item, converted to `dtype` when its turn comes.
SafetensorsItem tensorItem(std::string key, const at::Tensor &tensor,
                           FileDType dtype);
/// The element type in files of a LibTorch dtype.
FileDType fileDType(at::ScalarType type);

} // namespace hp

#endif // HP_RUNTIME_WEIGHTS_H
