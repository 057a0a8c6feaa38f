//===- Views.h - A module shown in another way ------------------*- C++ -*-===//
//
// Reports for people, made from the real thing. None of them is an input: each
// says so in its first line. One file a view.
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_VIEWS_H
#define HP_ANALYSIS_VIEWS_H

#include "hp/IR/Text.h"
#include "llvm/ADT/STLFunctionalExtras.h"

namespace hp {

/// `--expand-layers=0,31` (ExpandLayers.cpp): the layers of every stack with
/// these numbers as they run, with the full names of their parameters:
///
///   // @layers.31, of block @full
///     %31.n = rms_norm %31.x, @layers.31.input_layernorm.weight {...} : ...
///
/// False, after an error, for a number that no stack has and for a step, in
/// which every layer stands written out.
bool printLayers(Module &module, llvm::ArrayRef<int64_t> layers,
                 llvm::raw_ostream &os, DiagnosticEngine &diag,
                 PrintOptions options = {});

/// `--fold-repeats` (FoldRepeats.cpp): the text of a step, in which
/// neighbouring layers with equal instructions up to the number of the layer
/// are printed once, as the first of them:
///
///   // layers 0-2: x3
///   %0.n = rms_norm %e0, ...
///   // layer 3
///   ...
///   // end of layers
///
/// Other stages, which have templates, are printed as they are.
void printFolded(Module &module, llvm::raw_ostream &os,
                 PrintOptions options = {});

/// `--print-grad-reductions` (GradReductions.cpp): over which axes the gradient
/// of each parameter is summed, by which primitive, and in which bucket:
///
///   norm.weight  reduce_scatter (dp_shard,cp), all_reduce tp  bucket @norm.*
///
/// Before stage step as the plan has it; of a step what its reduce_grad
/// instructions do, with the number of the message.
void printGradReductions(Module &module, llvm::raw_ostream &os);

/// What the spec declares of a parameter's placement, as `{0: tp}` or
/// `replicated`; null where it is not known any more.
using DeclarationOf =
    llvm::function_ref<const std::string *(const Param &param)>;

/// `--print-sharding-origins` (ShardingOrigins.cpp): why each parameter is
/// placed as it is: what the spec declares and where, what each axis that its
/// gradient is summed over comes from, and what is left whole on every rank of
/// tp. Takes stages from tp on, where all axes are in force.
void printShardingOrigins(Module &module, llvm::raw_ostream &os,
                          DeclarationOf declarationOf);

/// `--print-shard-map=NAME` (ShardMap.cpp): which ranges of the whole tensor
/// each rank stores of a parameter. On more than 64 ranks a line stands for all
/// that store the same. False, after an error, for a name that no parameter
/// has.
bool printShardMap(Module &module, llvm::StringRef name, llvm::raw_ostream &os,
                   DiagnosticEngine &diag);

/// `--print-schedule`, `--print-schedule=RANK` (Schedule.cpp): the messages of
/// a step in the order of issue, with their bytes and how much is computed
/// between them; with a rank, also the ranks it shares each message with.
/// False, after an error, for a module that is no step and a rank that the mesh
/// does not have.
bool printSchedule(Module &module, std::optional<int64_t> rank,
                   llvm::raw_ostream &os, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_ANALYSIS_VIEWS_H
