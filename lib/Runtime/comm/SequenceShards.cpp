//===- SequenceShards.cpp - What one shard needs of the one before --------===//
//
//   cp.halo   the last k tokens of the shard before; zeros for the first
//   cp.scan   s_0 = 0, s_(n+1) = M_n s_n + U_n: the state that enters shard n
//
// The scan hands the state from rank to rank: after i steps ranks 0 to i have
// theirs. All ranks compute in every step; what the others have by then is not
// final and is replaced.
//
//===----------------------------------------------------------------------===//

#include "Exchange.h"
#include <ATen/ATen.h>

using namespace hp;

/// `running + gradient`, or a gradient of its own.
static at::Tensor accumulated(const at::Tensor &running,
                              const at::Tensor &gradient) {
  return running.defined() ? running + gradient
                           : gradient.clone(at::MemoryFormat::Contiguous);
}

//===----------------------------------------------------------------------===//
// Halo
//===----------------------------------------------------------------------===//

std::vector<Ranked> hp::halo(const Exchange &exchange) {
  int64_t window = exchange.op.attrs.getInt("k", 1);
  Ranked tails;
  for (const at::Tensor &x : exchange.operands[0]) {
    tails.push_back(x.slice(1, x.size(1) - window).contiguous());
  }
  return {exchange.comm.shift(tails, exchange.op.axes, 1, /*cyclic=*/false)};
}

std::vector<Ranked> hp::haloBackward(const Exchange &exchange) {
  int64_t window = exchange.op.attrs.getInt("k", 1);
  Ranked given;
  for (const at::Tensor &gradient : exchange.operands[1]) {
    given.push_back(gradient.contiguous());
  }
  Ranked arrived =
      exchange.comm.shift(given, exchange.op.axes, -1, /*cyclic=*/false);
  Ranked results;
  for (auto [index, gradient] : llvm::enumerate(arrived)) {
    const at::Tensor &x = exchange.operands[0][index];
    at::Tensor running = exchange.running(0, index);
    at::Tensor result = running.defined()
                            ? running.clone()
                            : at::zeros(x.sizes(), gradient.options());
    // Adding zeros would turn -0 into 0.
    if (exchange.groupSize() > 1) {
      result.slice(1, x.size(1) - window).add_(gradient);
    }
    results.push_back(result);
  }
  return {results};
}

//===----------------------------------------------------------------------===//
// Scan
//===----------------------------------------------------------------------===//

std::vector<Ranked> hp::scan(const Exchange &exchange) {
  const Ranked &map = exchange.operands[0], &term = exchange.operands[1];
  Ranked state;
  for (const at::Tensor &local : term) {
    state.push_back(at::zeros(local.sizes(), local.options()));
  }
  for (int64_t step = 1; step < exchange.groupSize(); ++step) {
    for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
      state[rank] =
          (at::matmul(map[rank], state[rank]) + term[rank]).contiguous();
    }
    state = exchange.comm.shift(state, exchange.op.axes, 1, /*cyclic=*/false);
  }
  return {state};
}

std::vector<Ranked> hp::scanBackward(const Exchange &exchange) {
  const Ranked &map = exchange.operands[0], &state = exchange.operands[2],
               &cotangent = exchange.operands[3];
  // The gradient of the state that leaves a shard; none leaves the last.
  Ranked leaving;
  for (const at::Tensor &local : state) {
    leaving.push_back(at::zeros(local.sizes(), local.options()));
  }
  for (int64_t step = 1; step < exchange.groupSize(); ++step) {
    for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
      leaving[rank] = (cotangent[rank] +
                       at::matmul(map[rank].transpose(-1, -2), leaving[rank]))
                          .contiguous();
    }
    leaving =
        exchange.comm.shift(leaving, exchange.op.axes, -1, /*cyclic=*/false);
  }
  Ranked maps, terms;
  for (size_t rank = 0; rank < exchange.numLocal(); ++rank) {
    maps.push_back(
        accumulated(exchange.running(0, rank),
                    at::matmul(leaving[rank], state[rank].transpose(-1, -2))));
    terms.push_back(accumulated(exchange.running(1, rank), leaving[rank]));
  }
  return {maps, terms};
}
