//===- ShardAnnotate.h - Placements into types ------------------*- C++ -*-===//
//
// shard-annotate reads the declarations of the model spec (`shard=` of a
// parameter, the module's `sharding` line) and writes them into the types.
//
//   before   sharding {B=dp, S=cp, sequence_parallel=[S, tp]}
//            mesh <dp_shard=2, tp=2>
//            param @q_proj.weight : f32[(h=4*2*64), 256] {shard=[0, tp]}
//            param @q_norm.weight : f32[64] {shard=replicated}
//            ... %x: f32[B, S, 256] ...
//            %n = count_valid %lab : i64[]
//   after    param @q_proj.weight : f32[(h=4*2*64)@tp, 256]{repl: dp_shard}
//            param @q_norm.weight : f32[64]{repl: dp_shard, tp}
//            ... %x: f32[B@dp_shard, S, 256] ...
//            %n = count_valid %lab : i64[]{partial: dp_shard}
//            %n.all = all_reduce %n {dp_shard} : i64[]
//
// A dim is cut between its first factors, each segment by itself: q_proj with
// its gate is heads * 2 * head_dim and falls apart between heads; q|k|v is cut
// three times. A whole parameter is replicated over the axes that cut what it
// meets, and its gradient is summed there: batch and sequence always, tp for a
// norm of cut heads, or of a residual value under sequence parallelism.
//
// Groups of kv heads fewer than tp: the axis is split, `axes tp = (tpg, tpr)`,
// groups are cut over tpg and replicated over tpr. This needs tp % groups == 0.
//
//===----------------------------------------------------------------------===//

#ifndef HP_PASSES_SHARDANNOTATE_H
#define HP_PASSES_SHARDANNOTATE_H

#include "hp/Passes/Pass.h"

namespace hp {

std::unique_ptr<Pass> makeShardAnnotate();

} // namespace hp

#endif // HP_PASSES_SHARDANNOTATE_H
