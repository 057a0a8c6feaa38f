//===- ExpandStep.h - From a plan to one training step ----------*- C++ -*-===//
//
// expand-step writes out the whole training step as one flat function: forward
// with every layer instance, loss, backward by each operation's adjoint,
// gradient norm, clip, optimizer; then marks last uses.
//
//   before   func @train(%tok, %lab, %pos) {
//              %lg = call @forward(%tok, %pos)
//              %nll = cross_entropy %lg, %lab : f32[]
//              %n = count_valid %lab : i64[]
//              %loss = div %nll, %n : f32[]
//              return %loss
//            }
//   after    func @step(%tok, %lab, %pos, %lr: f64[], %t: i64[]) {
//              %e = embedding %tok, @embed_tokens.weight : f32[B, S, 256]
//              ...
//              %loss = div %nll, %n : f32[]
//              %d.loss = ones : f32[]
//              %d.nll = div.bwd type(%nll), %n, %d.loss : f32[]
//              ...
//              %gnorm = grad_norm %qs : f64[]
//              %coef = clip_coef %gnorm {max_norm=1.0} : f64[]
//              %ok = finite %gnorm, %n : bool[]
//              adamw @norm.weight, %g.norm.weight, %coef, %lr, %t, %ok {...}
//              return %loss, %gnorm, %n, %ok
//            }
//
// Adjoints accumulate: a backward operation takes the running gradient of each
// operand that has one (`acc[...]`) and returns the new one. Nothing is added
// outside, except where one operation reads a value twice.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_EXPANDSTEP_H
#define HP_PASSES_EXPANDSTEP_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeExpandStep();

/// Starts the messages of bundles and of reductions early and waits for them
/// late (OverlapCommunication.cpp): of bundles at most `prefetch` ahead of the
/// one in use. Nothing with a `prefetch` of 0, and in a step without bundles.
/// `block` must hold no `free` yet. Gives the number of messages started early.
unsigned overlapCommunication(Module &module, Block &block, unsigned prefetch);

/// Appends a `free` after the last use of every storage that is neither an
/// argument, a parameter nor returned. `block` must hold no `free` yet.
void markLastUses(Module &module, Block &block);

} // namespace hp

#endif // HP_PASSES_EXPANDSTEP_H
