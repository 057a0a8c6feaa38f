//===- Attention.cpp - Rotary positions and softmax attention -------------===//
//
// The published model computes both on [batch, heads, tokens, channels]; the
// types here say [batch, tokens, heads, channels], a view of the same.
//
//===----------------------------------------------------------------------===//

#include "Reference.h"
#include <limits>

using namespace hp;
using namespace hp::reference;

/// The first or second half of the last dim.
static at::Tensor half(const at::Tensor &x, bool second) {
  int64_t middle = x.size(-1) / 2;
  return second ? x.slice(-1, middle) : x.slice(-1, 0, middle);
}

/// (a, b) as (-b, a), by halves of the last dim.
static at::Tensor rotateHalf(const at::Tensor &x) {
  at::Tensor first = half(x, false);
  at::Tensor second = half(x, true);
  return at::cat({second.neg(), first}, -1);
}

/// The angle of each position and rotary channel, [1, tokens, rotary].
static at::Tensor angles(const at::Tensor &positions, int64_t rotary,
                         double theta, at::ScalarType dtype) {
  at::Tensor channels = at::arange(0, rotary, 2, at::dtype(dtype));
  at::Tensor inverse =
      at::pow(at::Scalar(theta), channels / rotary).reciprocal();
  return positions.view({1, -1, 1}).to(dtype) * inverse;
}

Tensors reference::rope(const Call &call, Operands x) {
  int64_t rotary = call.attrs().getInt("rotary", 0);
  at::Tensor states = x[0].transpose(1, 2);
  at::Tensor angle = angles(x[1], rotary, call.attrs().getFloat("theta", 1e4),
                            wideType(states));
  at::Tensor cos = angle.cos(), sin = angle.sin();
  cos = at::cat({cos, cos}, -1).to(states.scalar_type()).unsqueeze(1);
  sin = at::cat({sin, sin}, -1).to(states.scalar_type()).unsqueeze(1);

  at::Tensor turning = states.slice(-1, 0, rotary);
  at::Tensor passing = states.slice(-1, rotary);
  at::Tensor straight = turning * cos;
  at::Tensor crossed = rotateHalf(turning) * sin;
  at::Tensor turned = straight + crossed;
  return {at::cat({turned, passing}, -1).transpose(1, 2)};
}

/// The most negative finite number of a floating type.
static double lowest(at::ScalarType dtype) {
  switch (dtype) {
  case at::kDouble:
    return std::numeric_limits<double>::lowest();
  case at::kBFloat16:
    return std::numeric_limits<at::BFloat16>::lowest();
  default:
    return std::numeric_limits<float>::lowest();
  }
}

/// 0 where query i, at position `first + i`, may see key j, else the most
/// negative number; [1, 1, queries, keys].
static at::Tensor causalMask(int64_t first, int64_t queries, int64_t keys,
                             at::ScalarType dtype) {
  at::Tensor query = at::arange(first, first + queries).unsqueeze(1);
  at::Tensor visible = at::arange(keys).unsqueeze(0).le(query);
  at::Tensor mask = at::where(visible, at::zeros({}, dtype),
                              at::full({}, lowest(dtype), dtype));
  return mask.unsqueeze(0).unsqueeze(0);
}

at::Tensor reference::repeatedHeads(const at::Tensor &x, int64_t times) {
  if (times == 1) {
    return x;
  }
  at::Tensor wide = x.unsqueeze(2).expand(
      {x.size(0), x.size(1), times, x.size(2), x.size(3)});
  return wide.reshape({x.size(0), x.size(1) * times, x.size(2), x.size(3)});
}

Tensors reference::sdpa(const Call &call, Operands x) {
  at::Tensor query = x[0].transpose(1, 2);
  at::Tensor key = x[1].transpose(1, 2);
  at::Tensor value = x[2].transpose(1, 2);
  double scale = std::pow(double(query.size(-1)), -0.5);
  int64_t groupSize = query.size(1) / key.size(1);
  at::Tensor keys = repeatedHeads(key, groupSize);
  at::Tensor values = repeatedHeads(value, groupSize);

  // Queries may be a shard of the sequence; keys are whole.
  int64_t first = call.position(call.dims(0)[1].axes) * query.size(2);
  at::Tensor scores = at::matmul(query, keys.transpose(2, 3)) * scale;
  scores = scores +
           causalMask(first, query.size(2), keys.size(2), query.scalar_type());
  at::Tensor weights = at::softmax(scores, -1, wideType(scores));
  weights = weights.to(query.scalar_type());
  return {at::matmul(weights, values).transpose(1, 2).contiguous()};
}

Tensors reference::ringOfOne(const Call &call, Operands x) {
  at::Tensor query = x[0].detach().transpose(1, 2);
  at::Tensor keys =
      repeatedHeads(x[1].detach().transpose(1, 2), x[0].size(2) / x[1].size(2));
  double scale = std::pow(double(query.size(-1)), -0.5);
  at::Tensor scores = at::matmul(query, keys.transpose(2, 3)) * scale;
  scores =
      scores + causalMask(0, query.size(2), keys.size(2), query.scalar_type());
  at::Tensor lse = scores.to(wideType(scores)).logsumexp(-1);
  return {sdpa(call, x)[0],
          lse.to(query.scalar_type()).transpose(1, 2).contiguous()};
}
