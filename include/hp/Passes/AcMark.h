//===- AcMark.h - What is computed again for the backward -------*- C++ -*-===//
//
// ac-mark marks forward operations of layers whose results are not kept for the
// backward half. expand-step writes them again before the first adjoint that
// reads them, collectives included.
//
//   before   block @l(%x: f32[B, S@tp, 8]) {
//              %n = rms_norm %x, @norm.weight : f32[B, S@tp, 8]
//              %a = all_gather %n {tp: S} : f32[B, S, 8]{repl: tp}
//              %u = linear %a, @up.weight : f32[B, S, 16@tp]
//              %s = sigmoid %u : f32[B, S, 16@tp]
//              %d = linear %s, @down.weight : f32[B, S, 8]{partial: tp}
//              %y = reduce_scatter %d {tp: S} : f32[B, S@tp, 8]
//              return %y
//            }
//   after    with mode=selective, selective=op
//              %n = rms_norm %x, @norm.weight {recompute} : f32[B, S@tp, 8]
//              %a = all_gather %n {tp: S, recompute} : f32[B, S, 8]{repl: tp}
//              %u = linear %a, @up.weight : f32[B, S, 16@tp]
//              %s = sigmoid %u {recompute} : f32[B, S, 16@tp]
//              %d = linear %s, @down.weight : f32[B, S, 8]{partial: tp}
//              %y = reduce_scatter %d {tp: S} : f32[B, S@tp, 8]
//   after    with mode=none: `%a` alone
//
// mode       none       nothing but what follows for every mode
//            full       every operation of a layer but what makes its result
//            selective  as `selective` says
// selective  op         all but the dear ones: matrix products, attention,
//                       recurrences, and what was summed or moved over ranks
//            N          every N-th layer as with full; it is a template of its
//                       own, `@l.ac`
//
// In every mode activations gathered over tp along the sequence are gathered
// again: kept, they would take up the memory that sequence parallelism saves. A
// view has no storage of its own and is marked as what it is a view of.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_ACMARK_H
#define HP_PASSES_ACMARK_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeAcMark();

} // namespace hp

#endif // HP_PASSES_ACMARK_H
