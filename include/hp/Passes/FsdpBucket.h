//===- FsdpBucket.h - Parameters stored in pieces ---------------*- C++ -*-===//
//
// fsdp-bucket stores every parameter in pieces over dp_shard and cp, and
// gathers those of a bucket together around their use: one bucket for each
// layer, and one for each module outside of layers (embedding, final norm,
// head). A tied head has the embedding's bucket, gathered apart for each use.
//
//   before   param @embed.weight : f32[V=64, 8]{repl: dp_shard}
//            block @l(%x: f32[B@dp_shard, S, 8]) {
//              param @w : f32[6, 8]{repl: dp_shard}
//              %y = linear %x, @w : f32[B@dp_shard, S, 6]
//              ...
//   after    param @embed.weight : f32[V=64, 8]{repl: dp_shard} store=f32@dp_shard
//            block @l(%x: f32[B@dp_shard, S, 8]) {
//              param @w : f32[6, 8]{repl: dp_shard} store=f32@dp_shard~
//              %all = fsdp.unshard @*
//              %y = linear %x, %all@w : f32[B@dp_shard, S, 6]
//              ...
//              fsdp.reshard %all
//
// reshard-after-forward  always   a bucket is given back after its use in the
//                                 forward and gathered again in the backward
//                        never    it is kept for the backward, `{keep}`
//                        default  always, except for buckets after the last
//                                 layer, which the backward reads at once
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_FSDPBUCKET_H
#define HP_PASSES_FSDPBUCKET_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeFsdpBucket();

} // namespace hp

#endif // HP_PASSES_FSDPBUCKET_H
