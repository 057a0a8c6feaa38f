//===- TpInsert.h - The collectives of tensor parallelism -------*- C++ -*-===//
//
// tp-insert brings the tp axes into force: it writes the collectives between
// values that weights cut and residual values.
//
//   before   %n = rms_norm %x, @norm.weight : f32[B, S, 256]
//            %a = linear %n, @up.weight : f32[B, S, 768]
//            %s = silu_mul %g, %a : f32[B, S, 768]
//            %d = linear %s, @down.weight : f32[B, S, 256]
//            %y = add %x, %d : f32[B, S, 256]
//   after    with sequence parallelism
//            %n = rms_norm %x, @norm.weight : f32[B, S@tp, 256]
//            %n.all = all_gather %n {tp: S} : f32[B, S, 256]{repl: tp}
//            %a = linear %n.all, @up.weight : f32[B, S, 768@tp]
//            %s = silu_mul %g, %a : f32[B, S, 768@tp]
//            %d = linear %s, @down.weight : f32[B, S, 256]{partial: tp}
//            %d.sum = reduce_scatter %d {tp: S} : f32[B, S@tp, 256]
//            %y = add %x, %d.sum : f32[B, S@tp, 256]
//   after    without it
//            %n = rms_norm %x, @norm.weight : f32[B, S, 256]
//            %n.all = copy_to %n {tp} : f32[B, S, 256]{repl: tp}
//            ...
//            %d.sum = all_reduce %d {tp} : f32[B, S, 256]
//
// A cut vocabulary: with loss parallelism cross_entropy becomes
// cross_entropy.vp, which never gathers logits; without it the logits are
// gathered to=invariant, so that every rank has the whole loss and each gradient
// counts once.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_TPINSERT_H
#define HP_PASSES_TPINSERT_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeTpInsert();

} // namespace hp

#endif // HP_PASSES_TPINSERT_H
