//===- Rope.cpp - Rotary positions in one pass ----------------------------===//

#include "RowTensors.h"
#include <cmath>

using namespace hp;
using namespace hp::fused;

/// Cosines, then sines, of the angles of each position: [tokens, 2, rotary /
/// 2]. Angles are float64: they grow with the position, and their error with
/// them.
template <typename T>
static at::Tensor angles(const Call &call, const at::Tensor &positions,
                         const at::Tensor &like) {
  int64_t half = call.attrs().getInt("rotary", 0) / 2;
  double theta = call.attrs().getFloat("theta", 1e4);
  at::Tensor where = positions.contiguous();
  const int64_t *position = where.const_data_ptr<int64_t>();
  std::vector<double> inverse;
  for (int64_t i = 0; i < half; ++i) {
    inverse.push_back(1 / std::pow(theta, double(2 * i) / double(2 * half)));
  }
  at::Tensor table = at::empty({positions.numel(), 2, half}, like.options());
  T *out = table.data_ptr<T>();
  forEachRange(positions.numel(), 64, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        double angle = double(position[t]) * inverse[i];
        out[t * 2 * half + i] = T(std::cos(angle));
        out[t * 2 * half + half + i] = T(std::sin(angle));
      }
    }
  });
  return table;
}

/// Turns the first 2 * half channels of each head by the angle, or, `back`, by
/// its negative; the others pass. Adds `running` if it is defined.
template <typename T>
static at::Tensor turned(const at::Tensor &x, const at::Tensor &table,
                         bool back, at::Tensor running) {
  at::Tensor from = withUnitStride(x);
  running = running.defined() ? withUnitStride(running) : running;
  at::Tensor y = emptyOf(x);
  const T *angles = table.const_data_ptr<T>();
  const T *all = from.const_data_ptr<T>();
  const T *more = running.defined() ? running.const_data_ptr<T>() : nullptr;
  T *made = y.data_ptr<T>();
  int64_t tokens = x.size(1), heads = x.size(2), width = x.size(3);
  int64_t half = table.size(2);
  auto turnToken = [&](int64_t batch, int64_t t) {
    const T *cosine = angles + t * 2 * half, *sine = cosine + half;
    for (int64_t head = 0; head < heads; ++head) {
      const T *in = all + batch * from.stride(0) + t * from.stride(1) +
                    head * from.stride(2);
      T *out = made + ((batch * tokens + t) * heads + head) * width;
      for (int64_t i = 0; i < half; ++i) {
        T a = in[i], b = in[half + i], s = back ? -sine[i] : sine[i];
        out[i] = a * cosine[i] - b * s;
        out[half + i] = b * cosine[i] + a * s;
      }
      std::copy(in + 2 * half, in + width, out + 2 * half);
      if (more) {
        const T *add = more + batch * running.stride(0) +
                       t * running.stride(1) + head * running.stride(2);
        for (int64_t i = 0; i < width; ++i) {
          out[i] += add[i];
        }
      }
    }
  };
  forEachRange(x.size(0) * tokens, grainOfRows(heads * width),
               [&](int64_t first, int64_t last) {
                 for (int64_t i = first; i < last; ++i) {
                   turnToken(i / tokens, i % tokens);
                 }
               });
  return y;
}

template <typename T>
static Tensors turn(const Call &call, const at::Tensor &x,
                    const at::Tensor &positions, bool back,
                    const at::Tensor &running) {
  return {turned<T>(x, angles<T>(call, positions, x), back, running)};
}

const Row fused::rope = {
    [](const Call &call, Operands x) {
      return x[0].scalar_type() == at::kDouble
                 ? turn<double>(call, x[0], x[1], /*back=*/false, {})
                 : turn<float>(call, x[0], x[1], /*back=*/false, {});
    },
    [](const Call &call, const Adjoint &adjoint) {
      const at::Tensor &positions = adjoint.operands[1];
      const at::Tensor &gradient = adjoint.cotangents[0];
      return gradient.scalar_type() == at::kDouble
                 ? turn<double>(call, gradient, positions, /*back=*/true,
                                adjoint.running(0))
                 : turn<float>(call, gradient, positions, /*back=*/true,
                               adjoint.running(0));
    }};
