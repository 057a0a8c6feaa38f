//===- RingAttention.cpp - Causal attention over sequence shards ----------===//
//
// Each rank keeps the queries of its shard; keys and values go round. In step
// i, rank n sees the keys of rank n - i, so it begins with its own:
//
//            step 0   step 1   step 2          of 3 ranks; (j) is masked
//   rank 0   0        (2)      (1)             altogether and not computed
//   rank 1   1        0        (2)
//   rank 2   2        1        0
//
// Blocks are put together by their log-sum-exp: with o and lse of what was seen
// and o', lse' of a new block,
//
//   lse'' = log(e^lse + e^lse'),  o'' = e^(lse - lse'') o + e^(lse' - lse'') o'
//
// Backward, the weights of a block are e^(scores - lse) with the lse of all
// blocks, so no block waits for another; the gradients of keys and values go
// round with them and come home with one more step.
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include <ATen/ATen.h>
#include <cmath>
#include <limits>

using namespace hp;

namespace {
/// One rank's tensors, in at least fp32, with the heads of a group as rows:
/// queries [B, G, r S, D], keys and values [B, G, T, D].
struct Heads {
  int64_t groups, inGroup, tokens;

  Heads(const at::Tensor &query, const at::Tensor &key)
      : groups(key.size(2)), inGroup(query.size(2) / key.size(2)),
        tokens(query.size(1)) {}

  /// [B, S, H, D] -> [B, G, r S, D]. Head h belongs to group h / r.
  at::Tensor rows(const at::Tensor &x) const {
    at::Tensor wide = x.to(wideTypeOf(x));
    return wide.unflatten(2, {groups, inGroup})
        .permute({0, 2, 3, 1, 4})
        .flatten(2, 3);
  }
  /// The reverse.
  at::Tensor heads(const at::Tensor &x) const {
    return x.unflatten(2, {inGroup, tokens})
        .permute({0, 3, 1, 2, 4})
        .flatten(2, 3);
  }
  /// [B, S, G, D] -> [B, G, S, D].
  static at::Tensor keys(const at::Tensor &x) {
    return x.to(wideTypeOf(x)).transpose(1, 2);
  }
  /// Scores [B, G, r S, T]; where `diagonal`, later keys have minus infinity.
  at::Tensor scores(const at::Tensor &query, const at::Tensor &key,
                    bool diagonal) const {
    double scale = std::pow(double(query.size(-1)), -0.5);
    at::Tensor scores = at::matmul(query, key.transpose(2, 3)) * scale;
    if (diagonal) {
      at::Tensor later =
          at::ones({tokens, key.size(2)}, at::kBool).triu(/*diagonal=*/1);
      scores = scores.unflatten(2, {inGroup, tokens})
                   .masked_fill(later, -std::numeric_limits<double>::infinity())
                   .flatten(2, 3);
    }
    return scores;
  }
};
} // namespace

/// Keys and values of each rank as one message, [2, B, T, G, D].
static Ranked packed(const Ranked &keys, const Ranked &values) {
  Ranked messages;
  for (auto [key, value] : llvm::zip(keys, values)) {
    messages.push_back(at::stack({key, value}).contiguous());
  }
  return messages;
}

/// Each rank by itself, where the group is one rank.
static std::vector<Ranked> alone(const Exchange &exchange) {
  std::vector<Ranked> results;
  for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
    auto of = [&](llvm::ArrayRef<Ranked> values) {
      hp::Tensors tensors;
      for (const Ranked &value : values) {
        tensors.push_back(value[rank]);
      }
      return tensors;
    };
    auto operands = exchange.operands;
    hp::Tensors made =
        exchange.op.backward
            ? exchange.kernels[rank]->backward(
                  exchange.op, of(operands.take_front(3)),
                  of(operands.slice(3, 2)), of(operands.drop_front(5)),
                  of(exchange.acc))
            : exchange.kernels[rank]->forward(exchange.op, of(operands));
    results.resize(made.size());
    for (auto [result, tensor] : llvm::zip(results, made)) {
      result.push_back(tensor);
    }
  }
  return results;
}

std::vector<Ranked> hp::ringAttention(const Exchange &exchange) {
  int64_t ranks = exchange.groupSize();
  if (ranks == 1) {
    return alone(exchange);
  }
  const Ranked &query = exchange.operands[0];
  size_t count = exchange.numLocal();
  Ranked moving = packed(exchange.operands[1], exchange.operands[2]);
  Ranked out(count), lse(count); // [B, G, r S, D], [B, G, r S, 1]
  for (int64_t step = 0; step < ranks; ++step) {
    if (step > 0) {
      moving = exchange.comm.shift(moving, exchange.op.axes, 1,
                                   /*cyclic=*/true);
    }
    for (size_t rank = 0; rank < count; ++rank) {
      if (step > exchange.number(rank)) {
        continue; // keys of a later shard
      }
      Heads heads(query[rank], moving[rank][0]);
      at::Tensor scores =
          heads.scores(heads.rows(query[rank]), Heads::keys(moving[rank][0]),
                       /*diagonal=*/step == 0);
      at::Tensor blockLse = scores.logsumexp(-1, /*keepdim=*/true);
      at::Tensor block = at::matmul(scores.sub_(blockLse).exp_(),
                                    Heads::keys(moving[rank][1]));
      if (step == 0) {
        out[rank] = block;
        lse[rank] = blockLse;
        continue;
      }
      at::Tensor both = at::logaddexp(lse[rank], blockLse);
      out[rank] = out[rank] * (lse[rank] - both).exp() +
                  block * (blockLse - both).exp();
      lse[rank] = both;
    }
  }
  for (size_t rank = 0; rank < count; ++rank) {
    Heads heads(query[rank], moving[rank][0]);
    at::ScalarType dtype = query[rank].scalar_type();
    out[rank] = heads.heads(out[rank]).to(dtype).contiguous();
    lse[rank] = heads.heads(lse[rank]).squeeze(-1).to(dtype).contiguous();
  }
  return {out, lse};
}

std::vector<Ranked> hp::ringAttentionBackward(const Exchange &exchange) {
  int64_t ranks = exchange.groupSize();
  if (ranks == 1) {
    return alone(exchange);
  }
  llvm::ArrayRef<Ranked> x = exchange.operands;
  const Ranked &query = x[0], &out = x[3], &lse = x[4], &cotangent = x[5];
  size_t count = exchange.numLocal();
  Ranked moving = packed(x[1], x[2]), gradients(count), queryGradients(count);
  for (size_t rank = 0; rank < count; ++rank) {
    gradients[rank] = at::zeros_like(moving[rank], wideTypeOf(moving[rank]));
  }
  for (int64_t step = 0; step < ranks; ++step) {
    if (step > 0) {
      moving = exchange.comm.shift(moving, exchange.op.axes, 1,
                                   /*cyclic=*/true);
    }
    for (size_t rank = 0; rank < count; ++rank) {
      if (step > exchange.number(rank)) {
        continue;
      }
      Heads heads(query[rank], moving[rank][0]);
      at::Tensor rows = heads.rows(query[rank]);
      at::Tensor above = heads.rows(cotangent[rank]);
      at::Tensor key = Heads::keys(moving[rank][0]);
      at::Tensor value = Heads::keys(moving[rank][1]);
      at::Tensor weights = heads.scores(rows, key, /*diagonal=*/step == 0)
                               .sub_(heads.rows(lse[rank].unsqueeze(-1)))
                               .exp_();
      // Softmax: ds = p (dp - sum over all keys of p dp), and that sum is
      // o . do.
      at::Tensor total =
          (heads.rows(out[rank]) * above).sum(-1, /*keepdim=*/true);
      double scale = std::pow(double(rows.size(-1)), -0.5);
      at::Tensor scoreGradients =
          (at::matmul(above, value.transpose(2, 3)) - total)
              .mul_(weights)
              .mul_(scale);
      at::Tensor mine = at::matmul(scoreGradients, key);
      queryGradients[rank] = step == 0 ? mine : queryGradients[rank] + mine;
      gradients[rank][0].add_(
          at::matmul(scoreGradients.transpose(2, 3), rows).transpose(1, 2));
      gradients[rank][1].add_(
          at::matmul(weights.transpose(2, 3), above).transpose(1, 2));
    }
    gradients = exchange.comm.shift(gradients, exchange.op.axes, 1,
                                    /*cyclic=*/true);
  }
  std::vector<Ranked> results(3, Ranked(count));
  for (size_t rank = 0; rank < count; ++rank) {
    Heads heads(query[rank], x[1][rank]);
    at::Tensor made[] = {heads.heads(queryGradients[rank]), gradients[rank][0],
                         gradients[rank][1]};
    for (unsigned i = 0; i < 3; ++i) {
      at::Tensor gradient = made[i].to(x[i][rank].scalar_type());
      at::Tensor running = exchange.running(i, rank);
      results[i][rank] = running.defined()
                             ? running + gradient
                             : gradient.clone(at::MemoryFormat::Contiguous);
    }
  }
  return results;
}
