//===- VocabularyLoss.cpp - Cross entropy over a sharded vocabulary -------===//
//
// The logits of a token lie on several ranks and are never gathered: their
// maximum, the sum of their exponentials and the one of the target are reduced,
// one number a token each.
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include <ATen/ATen.h>

using namespace hp;

/// The target of a position that does not count.
static constexpr int64_t ignored = -100;

namespace {
/// Targets as rows of this rank's shard of the vocabulary.
struct Targets {
  at::Tensor valid; ///< counts at all, [B, S]
  at::Tensor here;  ///< lies in this shard, [B, S]
  at::Tensor row;   ///< in the shard; 0 where it lies elsewhere, [B, S, 1]

  Targets(const at::Tensor &labels, int64_t shard, int64_t rows,
          int64_t vocabulary) {
    valid = labels.ne(ignored);
    at::Tensor legal = labels.ge(0).logical_and(labels.lt(vocabulary));
    TORCH_CHECK_INDEX(legal.logical_or(valid.logical_not()).all().item<bool>(),
                      "a target is out of bounds: not below ", vocabulary);
    at::Tensor local = labels - shard * rows;
    here = valid.logical_and(local.ge(0)).logical_and(local.lt(rows));
    row = local.masked_fill(here.logical_not(), 0).unsqueeze(-1);
  }
};
} // namespace

static Targets targetsOf(const Exchange &exchange, size_t rank) {
  int64_t rows = exchange.operands[0][rank].size(2);
  return Targets(exchange.operands[1][rank], exchange.number(rank), rows,
                 rows * exchange.groupSize());
}

/// Each rank by itself, where the group is one rank.
static std::vector<Ranked> alone(const Exchange &exchange) {
  std::vector<Ranked> results;
  for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
    const Operation &op = exchange.op;
    hp::Tensors x;
    for (const Ranked &operand : exchange.operands) {
      x.push_back(operand[rank]);
    }
    llvm::ArrayRef<at::Tensor> all = x;
    hp::Tensors running;
    for (const Ranked &value : exchange.acc) {
      running.push_back(value[rank]);
    }
    hp::Tensors made = op.backward ? exchange.kernels[rank]->backward(
                                         op, all.take_front(2), all.slice(2, 1),
                                         all.drop_front(3), running)
                                   : exchange.kernels[rank]->forward(op, all);
    results.resize(made.size());
    for (auto [result, tensor] : llvm::zip(results, made)) {
      result.push_back(tensor);
    }
  }
  return results;
}

std::vector<Ranked> hp::vocabularyLoss(const Exchange &exchange) {
  const Ranked &logits = exchange.operands[0];
  size_t count = exchange.numLocal();
  Ranked wide, highest, total, target;
  for (const at::Tensor &local : logits) {
    wide.push_back(local.to(wideTypeOf(local)));
    highest.push_back(wide.back().amax(-1));
  }
  exchange.comm.allReduce(highest, exchange.op.axes, Reduction::Max);
  for (size_t rank = 0; rank < count; ++rank) {
    total.push_back((wide[rank] - highest[rank].unsqueeze(-1)).exp_().sum(-1));
    Targets targets = targetsOf(exchange, rank);
    target.push_back(wide[rank]
                         .gather(-1, targets.row)
                         .squeeze(-1)
                         .masked_fill(targets.here.logical_not(), 0)
                         .contiguous());
  }
  exchange.comm.allReduce(total, exchange.op.axes);
  exchange.comm.allReduce(target, exchange.op.axes);
  if (exchange.groupSize() == 1) {
    return alone(exchange);
  }
  Ranked losses, lse;
  for (size_t rank = 0; rank < count; ++rank) {
    lse.push_back(highest[rank] + total[rank].log());
    at::Tensor each = lse[rank] - target[rank];
    losses.push_back(
        each.masked_fill(exchange.operands[1][rank].eq(ignored), 0).sum());
    lse[rank] = lse[rank].to(logits[rank].scalar_type());
  }
  return {losses, lse};
}

std::vector<Ranked> hp::vocabularyLossBackward(const Exchange &exchange) {
  if (exchange.groupSize() == 1) {
    return alone(exchange);
  }
  const Ranked &logits = exchange.operands[0], &lse = exchange.operands[2],
               &cotangent = exchange.operands[3];
  Ranked results;
  for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
    const at::Tensor &local = logits[rank];
    Targets targets = targetsOf(exchange, rank);
    at::Tensor gradient =
        (local.to(wideTypeOf(local)) - lse[rank].unsqueeze(-1)).exp_();
    gradient.scatter_add_(
        -1, targets.row,
        targets.here.to(gradient.scalar_type()).neg().unsqueeze(-1));
    // A logit that is not finite gives NaN even where no target counts.
    gradient.mul_(cotangent[rank]);
    gradient.masked_fill_(targets.valid.logical_not().unsqueeze(-1), 0);
    at::Tensor result = gradient.to(local.scalar_type());
    at::Tensor running = exchange.running(0, rank);
    results.push_back(running.defined() ? running + result : result);
  }
  return {results};
}
