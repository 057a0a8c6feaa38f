//===- DeltaRule.cpp - The gated delta rule, by chunks --------------------===//
//
// State S [dk, dv] of each value head; token by token
//
//   S <- e^g S;   S <- S + k (beta (v - S^T k))^T;   o = S^T q
//
// The tokens of a chunk are solved for together: with differences of
// cumulated decay formed and masked before they are exponentiated, nothing
// overflows, however fast the decay.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"
#include <limits>

using namespace hp;
using namespace hp::reference;

namespace {
/// The tokens by chunk, [batch, heads, chunks, chunk, ...], and what can be
/// computed of every chunk before the state is known.
struct Chunks {
  int64_t count;
  /// Queries, decayed from the start of the chunk; undefined for a summary.
  at::Tensor query;
  /// Keys, decayed to the end of the chunk.
  at::Tensor key;
  /// What each token would write, were the state before the chunk zero.
  at::Tensor newValues;
  /// How each token reads the state before the chunk.
  at::Tensor stateKeys;
  /// How each token sees the writes of the chunk; undefined for a summary.
  at::Tensor attention;
  /// Decay over a whole chunk, [batch, heads, chunks, 1, 1].
  at::Tensor decay;
};
} // namespace

static at::Tensor normalize(const at::Tensor &x) {
  at::Tensor inverse = at::rsqrt((x * x).sum(-1, /*keepdim=*/true) + 1e-6);
  return x * inverse;
}

/// [batch, tokens, heads, ...] as [batch, heads, tokens, ...], widened.
static at::Tensor headsFirst(const at::Tensor &x, at::ScalarType dtype) {
  return x.transpose(1, 2).to(dtype, /*non_blocking=*/false, /*copy=*/false,
                              at::MemoryFormat::Contiguous);
}

static at::Tensor byChunk(const at::Tensor &x, int64_t chunk) {
  return x.reshape({x.size(0), x.size(1), -1, chunk, x.size(-1)});
}

/// The first phase. `query` may be undefined.
static Chunks prepare(at::Tensor query, at::Tensor key, at::Tensor value,
                      at::Tensor decay, at::Tensor beta, int64_t chunk) {
  TORCH_CHECK_VALUE(chunk > 0, "'chunk' is ", chunk, "; it must be positive");
  // Key head i serves value heads i * r to i * r + r - 1.
  bool queries = query.defined();
  int64_t keyHeads = key.size(2), valueHeads = value.size(2);
  if (keyHeads != valueHeads) {
    if (queries) {
      query = query.repeat_interleave(valueHeads / keyHeads, 2);
    }
    key = key.repeat_interleave(valueHeads / keyHeads, 2);
  }
  at::ScalarType dtype = wideType(key);
  if (queries) {
    query = headsFirst(query, dtype);
  }
  key = headsFirst(key, dtype);
  value = headsFirst(value, dtype);
  beta = headsFirst(beta, dtype);
  decay = headsFirst(decay, dtype);
  if (queries) {
    query = normalize(query);
  }
  key = normalize(key);
  if (queries) {
    query = query * std::pow(double(query.size(-1)), -0.5);
  }

  int64_t tokens = key.size(2);
  int64_t padding = (chunk - tokens % chunk) % chunk;
  if (queries) {
    query = at::constant_pad_nd(query, {0, 0, 0, padding});
  }
  key = at::constant_pad_nd(key, {0, 0, 0, padding});
  value = at::constant_pad_nd(value, {0, 0, 0, padding});
  beta = at::constant_pad_nd(beta, {0, padding});
  decay = at::constant_pad_nd(decay, {0, padding});

  at::Tensor betaValue = value * beta.unsqueeze(-1);
  at::Tensor betaKey = key * beta.unsqueeze(-1);
  if (queries) {
    query = byChunk(query, chunk);
  }
  key = byChunk(key, chunk);
  betaKey = byChunk(betaKey, chunk);
  betaValue = byChunk(betaValue, chunk);
  decay = decay.reshape({decay.size(0), decay.size(1), -1, chunk});

  at::Tensor future =
      at::ones({chunk, chunk}, at::dtype(at::kBool)).triu(/*diagonal=*/1);
  at::Tensor total = decay.cumsum(3);
  at::Tensor totalRow = total.unsqueeze(4);
  at::Tensor totalColumn = total.unsqueeze(3);
  at::Tensor pairwise = totalRow - totalColumn;
  pairwise =
      pairwise.masked_fill(future, -std::numeric_limits<double>::infinity());
  pairwise = pairwise.exp();

  Chunks chunks;
  chunks.count = decay.size(2);
  at::Tensor system = at::matmul(betaKey, key.transpose(-1, -2)) * pairwise;
  if (queries) {
    chunks.attention = at::matmul(query, key.transpose(-1, -2)) * pairwise;
  }
  at::Tensor decayedKey = betaKey * total.exp().unsqueeze(-1);
  chunks.newValues =
      at::linalg_solve_triangular(system, betaValue, /*upper=*/false,
                                  /*left=*/true, /*unitriangular=*/true);
  chunks.stateKeys =
      at::linalg_solve_triangular(system, decayedKey, /*upper=*/false,
                                  /*left=*/true, /*unitriangular=*/true);
  if (queries) {
    chunks.query = query * total.exp().unsqueeze(-1);
  }
  at::Tensor toEnd = total.slice(-1, -1) - total;
  chunks.key = key * toEnd.exp().unsqueeze(-1);
  chunks.decay = total.select(-1, -1).exp().unsqueeze(-1).unsqueeze(-1);
  return chunks;
}

/// The state after chunk `i`, from the state before and what its tokens write.
static at::Tensor advance(const Chunks &chunks, int64_t i,
                          const at::Tensor &state, const at::Tensor &written) {
  at::Tensor decayed = state * chunks.decay.select(2, i);
  at::Tensor keys = chunks.key.select(2, i).transpose(-1, -2);
  return decayed + at::matmul(keys, written);
}

Tensors reference::gatedDeltaRule(const Call &call, Operands x) {
  Chunks chunks =
      prepare(x[0], x[1], x[2], x[3], x[4], call.attrs().getInt("chunk", 64));
  int64_t batch = x[2].size(0), tokens = x[2].size(1), heads = x[2].size(2);
  int64_t width = x[2].size(3);
  at::Tensor state = x.size() == 6
                         ? x[5].squeeze(1).to(chunks.newValues.scalar_type())
                         : at::zeros({batch, heads, x[1].size(3), width},
                                     chunks.newValues.options());
  at::Tensor out = at::zeros_like(chunks.newValues);
  for (int64_t i = 0; i < chunks.count; ++i) {
    at::Tensor written = chunks.newValues.select(2, i);
    at::Tensor stateKeys = chunks.stateKeys.select(2, i);
    written = written - at::matmul(stateKeys, state);
    at::Tensor fromState = at::matmul(chunks.query.select(2, i), state);
    at::Tensor fromChunk = at::matmul(chunks.attention.select(2, i), written);
    at::Tensor read = fromState + fromChunk;
    out.select(2, i).copy_(read);
    state = advance(chunks, i, state, written);
  }
  out = out.reshape({batch, heads, -1, width}).slice(2, 0, tokens);
  // Dense, in the order of the type: what reads this flattens the heads.
  return {out.transpose(1, 2).to(x[0].scalar_type()).contiguous()};
}

Tensors reference::gdrSummary(const Call &call, Operands x) {
  Chunks chunks =
      prepare({}, x[0], x[1], x[2], x[3], call.attrs().getInt("chunk", 64));
  int64_t batch = x[1].size(0), heads = x[1].size(2), width = x[1].size(3);
  int64_t keyWidth = x[0].size(3);
  at::TensorOptions options = chunks.newValues.options();
  at::Tensor map =
      at::eye(keyWidth, options).expand({batch, heads, keyWidth, keyWidth});
  at::Tensor term = at::zeros({batch, heads, keyWidth, width}, options);
  for (int64_t i = 0; i < chunks.count; ++i) {
    at::Tensor stateKeys = chunks.stateKeys.select(2, i);
    map = advance(chunks, i, map, at::matmul(stateKeys, map).neg());
    at::Tensor written = chunks.newValues.select(2, i);
    written = written - at::matmul(stateKeys, term);
    term = advance(chunks, i, term, written);
  }
  return {map.unsqueeze(1), term.unsqueeze(1)};
}
