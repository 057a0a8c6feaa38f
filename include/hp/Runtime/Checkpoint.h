//===- Checkpoint.h - Saving and resuming a run -----------------*- C++ -*-===//
//
// A checkpoint is a folder that appears whole or not at all:
//
//   checkpoint.folder/step-00000200/
//     model.safetensors       weights, under Hugging Face's keys
//     optimizer.safetensors   AdamW's moments: exp_avg.NAME, exp_avg_sq.NAME
//     manifest.json           what the run was and where it stood
//
// It is written under a temporary name, every file synced, and renamed. Tensors
// are whole, so a run resumes under any layout.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_CHECKPOINT_H
#define HP_RUNTIME_CHECKPOINT_H

#include "hp/Runtime/Weights.h"

namespace hp {

/// Where a run stands.
struct RunState {
  int64_t step = 0;        ///< steps done, skipped ones included
  int64_t samplesSeen = 0; ///< the next global sample index
  int64_t tokensSeen = 0;
  /// Of the data; a resumed run must see the same.
  uint64_t dataFingerprint = 0;
  int64_t globalBatchSize = 0, seqLen = 0;
};

/// What a manifest says beyond the state.
struct Manifest {
  RunState state;
  int64_t updates = 0;
  std::string model, flavor;
  std::string config; ///< the module's config line, as text
  WeightFormat format;
  bool hasOptimizer = false;
};

/// A manifest of `module`'s model at step 0.
Manifest manifestOf(Module &module);

/// The first field of the model's configuration in which two manifests differ,
/// with both values; empty if they are of the same model.
std::string modelDifference(const Manifest &saved, const Manifest &configured);

/// Writes `folder`/step-N with N of `manifest.state.step`, replacing one of the
/// same step. All processes call it and rank 0's writes. Gives its path; empty,
/// with errors, if it could not be written, what was there before is then still
/// there.
std::string saveCheckpoint(llvm::StringRef folder, const WholeParameters &whole,
                           const CheckpointKeys &keys, Manifest manifest,
                           DiagnosticEngine &diag);

/// Makes `folder` and sees that files can be written there: better before a run
/// than after it.
bool checkCheckpointFolder(llvm::StringRef folder, DiagnosticEngine &diag);

/// The checkpoint with the highest step in `folder`; empty if there is none.
std::string latestCheckpoint(llvm::StringRef folder);

/// Reads the manifest of the checkpoint at `path`.
std::optional<Manifest> readManifest(llvm::StringRef path,
                                     DiagnosticEngine &diag);

/// Reads weights, moments and the number of updates of the checkpoint at `path`
/// into `stores`, which must be of the same model. Gives the manifest.
std::optional<Manifest>
loadCheckpoint(llvm::StringRef path,
               llvm::MutableArrayRef<ParameterStore> stores,
               const CheckpointKeys &keys, llvm::ArrayRef<TiedKey> ties,
               DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_CHECKPOINT_H
