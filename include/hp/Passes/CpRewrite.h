//===- CpRewrite.h - Cutting the sequence over ranks ------------*- C++ -*-===//
//
// cp-rewrite brings context parallelism into force: arguments are cut along the
// sequence, `S@cp`, types are inferred again from there, and operations that
// demand the whole sequence are rewritten.
//
//   before   %o = sdpa %q, %k, %v : f32[B, S, h=4, 8]
//   after    %o, %lse = cp.ring %q, %k, %v {cp}
//              : f32[B, S@cp, h=4, 8], f32[B, S@cp, h=4]
//
//   before   %cv = causal_conv1d %x, @w : f32[B, S, 48]
//   after    %halo = cp.halo %x {cp: S, k=3} : f32[B, (n=2*3)@cp, 48]
//            %cv = causal_conv1d %x, %halo, @w : f32[B, S@cp, 48]
//
//   before   %o = gated_delta_rule %q, %k, %v, %g, %beta {chunk=64}
//   after    %M, %U = gdr.summary %k, %v, %g, %beta {chunk=64}
//            %s0 = cp.scan %M, %U {cp}
//            %o = gated_delta_rule %q, %k, %v, %g, %beta, %s0 {chunk=64}
//
// Attention goes by ring, by all-gather of k and v, or by all-to-all over
// heads; the recurrence by handing its state on, or by all-to-all over heads.
// A mesh without an axis `cp` only changes the stage.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_CPREWRITE_H
#define HP_PASSES_CPREWRITE_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeCpRewrite();

} // namespace hp

#endif // HP_PASSES_CPREWRITE_H
