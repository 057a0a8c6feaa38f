//===- Views.h - A module shown in another way ------------------*- C++ -*-===//
//
// Reports for people, made from the real thing. None of them is an input: each
// says so in its first line. One file a view.
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_VIEWS_H
#define HP_ANALYSIS_VIEWS_H

#include "hp/IR/Text.h"

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

} // namespace hp

#endif // HP_ANALYSIS_VIEWS_H
