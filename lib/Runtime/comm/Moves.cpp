//===- Moves.cpp - Collectives that move and sum values -------------------===//
//
// What arrives is dense in the order of the type. Over a group of one rank it
// keeps the strides of the operand, as if nothing had been done: LibTorch may
// choose another order of summation for other strides.
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include "hp/Runtime/Pieces.h"
#include <ATen/ATen.h>

using namespace hp;

/// `arrived`, of the operand's shape, with the operand's strides.
static at::Tensor withStridesOf(const at::Tensor &operand,
                                const at::Tensor &arrived) {
  if (operand.is_contiguous() || operand.sizes() != arrived.sizes()) {
    return arrived;
  }
  at::Tensor result = at::empty_like(operand); // keeps dense strides
  result.copy_(arrived);
  return result;
}

static at::Tensor denseCopy(const at::Tensor &x) {
  return x.clone(at::MemoryFormat::Contiguous);
}

namespace {
/// One of the collectives on all local ranks.
class Move {
public:
  explicit Move(const Exchange &exchange)
      : exchange(exchange), op(exchange.op), comm(exchange.comm),
        mesh(comm.mesh()), x(exchange.operands[0]),
        type(op.operands[0].type(op.parent->module)) {}

  Ranked run() {
    switch (op.kind) {
    case OpKind::CopyTo:
      return x;
    case OpKind::Shard:
      return shard();
    case OpKind::AllReduce:
      return allReduce();
    case OpKind::AllGather:
      return allGather();
    case OpKind::ReduceScatter:
      return reduceScatter();
    default:
      return allToAll();
    }
  }

private:
  /// Ranks over which dim `position` is cut in the operand.
  int64_t cutRanks(int position) const {
    return mesh.size(type.dims()[position].axes);
  }

  /// Parts of dim `position`, which the operand has, one for each rank of the
  /// group: [group, ...].
  at::Tensor partsOf(const at::Tensor &local, int position) const {
    std::vector<at::Tensor> parts;
    for (int64_t i = 0; i < exchange.groupSize(); ++i) {
      parts.push_back(partOf(local, position, type.dims()[position],
                             cutRanks(position), exchange.groupSize(), i));
    }
    return at::stack(parts).contiguous(); // stack may keep channels last
  }

  /// [group, ...] with the parts of dim `position` side by side. The operand
  /// has the dim cut over the group too.
  at::Tensor join(const at::Tensor &stacked, int position) const {
    return joinParts(stacked, position, type.dims()[position],
                     cutRanks(position) / exchange.groupSize());
  }

  Ranked shard() {
    int position = type.findDim(op.dim);
    Ranked results;
    for (auto [index, local] : llvm::enumerate(x)) {
      at::Tensor part =
          partOf(local, position, type.dims()[position], cutRanks(position),
                 exchange.groupSize(), exchange.number(index));
      results.push_back(withStridesOf(local, denseCopy(part)));
    }
    return results;
  }

  Ranked allReduce() {
    Ranked results;
    for (const at::Tensor &local : x) {
      results.push_back(denseCopy(local));
    }
    comm.allReduce(results, op.axes);
    return settled(std::move(results));
  }

  Ranked allGather() {
    int position = type.findDim(op.dim);
    Ranked results = comm.allGather(dense(), op.axes);
    for (at::Tensor &result : results) {
      result = join(result, position);
    }
    return settled(std::move(results));
  }

  Ranked reduceScatter() {
    int position = type.findDim(op.dim);
    Ranked parts;
    for (const at::Tensor &local : x) {
      parts.push_back(partsOf(local, position));
    }
    return settled(comm.reduceScatter(parts, op.axes));
  }

  Ranked allToAll() {
    int from = type.findDim(op.dim), to = type.findDim(op.toDim);
    Ranked parts;
    for (const at::Tensor &local : x) {
      parts.push_back(partsOf(local, to));
    }
    Ranked results = comm.allToAll(parts, op.axes);
    for (at::Tensor &result : results) {
      result = join(result, from);
    }
    return settled(std::move(results));
  }

  Ranked dense() const {
    Ranked results;
    for (const at::Tensor &local : x) {
      results.push_back(local.contiguous());
    }
    return results;
  }

  /// Strides of the operand where the whole operand came back.
  Ranked settled(Ranked results) const {
    if (exchange.groupSize() == 1 || op.is(OpKind::AllReduce)) {
      for (auto [result, local] : llvm::zip(results, x)) {
        result = withStridesOf(local, result);
      }
    }
    return results;
  }

  const Exchange &exchange;
  const Operation &op;
  Communicator &comm;
  const Mesh &mesh;
  const Ranked &x;
  Type type;
};
} // namespace

std::vector<Ranked> hp::moveValue(const Exchange &exchange) {
  return {Move(exchange).run()};
}

std::vector<Ranked> hp::runCollective(const Exchange &exchange) {
  bool backward = exchange.op.backward;
  switch (exchange.op.kind) {
  case OpKind::CrossEntropyVp:
    return backward ? vocabularyLossBackward(exchange)
                    : vocabularyLoss(exchange);
  case OpKind::CpRing:
    return backward ? ringAttentionBackward(exchange) : ringAttention(exchange);
  case OpKind::CpHalo:
    return backward ? haloBackward(exchange) : halo(exchange);
  case OpKind::CpScan:
    return backward ? scanBackward(exchange) : scan(exchange);
  default:
    return moveValue(exchange);
  }
}
