//===- Import.h - From a model spec to the module -----------------*- C++
//-*-===//
//
// Import lowers one flavor of a spec to a module at stage `spec`: its config,
// one block template for each kind of layer that occurs, a stack that names the
// layers, and two functions,
//
//   func @forward(%tok: i64[B, S], %pos: i64[S])                  -> logits
//   func @train(%tok: i64[B, S], %lab: i64[B, S], %pos: i64[S])   -> loss
//
// The loss is the sum of the cross entropy over the valid targets divided by
// their number. Every parameter and operation has the place of the entry of the
// spec that made it.
//
// From a run come the dims B (sequences of a step over all ranks) and S, the
// mesh, the dtype of all floats, and the header lines
//
//   training {dtype=float32, loss=cross_entropy, max_norm=1.0, seq_len=128,
//             local_batch_size=8}
//   optimizer {name=adamw, beta1=0.9, beta2=0.95, eps=1e-08,
//              weight_decay=0.1, no_decay=["*.bias"]}
//   parallelism {sequence_parallel, loss_parallel, attention=ring,
//                linear=state, reshard_after_forward=default, prefetch=1,
//                recompute=none, selective=op}
//   sharding {B=dp, S=cp, sequence_parallel=[S, tp], loss_parallel=[V, tp]}
//
// Axes of size 1 are dropped unless `comm.keep_trivial` keeps them. Parameters
// carry the spec's declarations (`shard=[0, tp]`); shard-annotate applies them.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_IMPORT_H
#define HP_SPEC_IMPORT_H

#include "hp/IR/Module.h"
#include "hp/Spec/ModelSpec.h"
#include "hp/Spec/RunConfig.h"

namespace hp {

/// Imports a flavor of `spec` (the spec's defaults if empty) with `overrides`,
/// each a Map from fields to values, the last one wins. Without `run`, the
/// defaults of RunConfig hold, on one rank. `worldSize` is the number of ranks
/// (none: as many as the degrees ask for). Null after an error.
std::unique_ptr<Module>
importModel(const ModelSpec &spec, llvm::StringRef flavor,
            llvm::ArrayRef<const Node *> overrides, const RunConfig *run,
            DiagnosticEngine &diag,
            std::optional<int64_t> worldSize = std::nullopt);

/// Imports the model that a run names: finds the spec (a name among `folders`,
/// or a path), reads `model.hf_config`, applies `model.config`.
std::unique_ptr<Module>
importRun(const RunConfig &run, llvm::ArrayRef<std::string> folders,
          DiagnosticEngine &diag,
          std::optional<int64_t> worldSize = std::nullopt);

/// The spec that a run names.
std::optional<ModelSpec> readModelSpec(const RunConfig &run,
                                       llvm::ArrayRef<std::string> folders,
                                       DiagnosticEngine &diag);

/// A spec with its flavors; of a spec without flavors, one without a name.
struct ModelListing {
  std::string name, path;
  struct FlavorListing {
    std::string name;
    uint64_t parameters;
  };
  std::vector<FlavorListing> flavors;
};

/// The specs in `folder`, by name. `countParameters` is parameterCount of
/// hp/Analysis/Parameters.h.
std::optional<std::vector<ModelListing>>
listModels(llvm::StringRef folder,
           llvm::function_ref<uint64_t(Module &)> countParameters,
           DiagnosticEngine &diag);

} // namespace hp

#endif // HP_SPEC_IMPORT_H
