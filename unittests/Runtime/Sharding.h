//===- Sharding.h - What two ranks hold of a value --------------*- C++ -*-===//
//
// The meaning of the four states, for one axis of two ranks: a whole tensor is
// dealt out to the ranks by a type, and put together again.
//
//   S  each rank holds its half of every segment of the dim that is cut
//   I  both hold the value
//   R  both hold the value
//   P  the value is the sum of what the two hold
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_SHARDING_H
#define HP_UNITTESTS_RUNTIME_SHARDING_H

#include "hp/IR/Module.h"
#include <ATen/ATen.h>
#include <array>
#include <optional>

namespace hp::testing {

/// The one axis of these tests.
constexpr AxisId testAxis = 0;

/// What rank 0 and rank 1 hold.
using Pair = std::array<at::Tensor, 2>;

/// The half of `x` that `rank` holds where `dim`, number `position`, is cut.
at::Tensor halfOf(const at::Tensor &x, const Dim &dim, unsigned position,
                  int rank);
/// The halves put together.
at::Tensor joined(const Pair &halves, const Dim &dim, unsigned position);

/// `x` as `type` deals it out. Partial values are split at random.
Pair dealOut(Type type, const at::Tensor &x, uint64_t seed);
/// The value that the ranks hold; none if they should agree and do not, or if
/// their shapes are not those of `type`.
std::optional<at::Tensor> putTogether(Type type, const Pair &held,
                                      const Mesh &mesh);

/// Whether two floating tensors agree to 1e-9 of the larger scale.
bool agree(const at::Tensor &x, const at::Tensor &y);

/// `type` with the test axis in another state; `dim` is the dim cut, for S.
TypeData inState(const TypeData &type, State state, unsigned dim = 0);
/// Every state of the test axis: I, R, P, and S for each dim of which all
/// segments have an even first factor.
std::vector<TypeData> allStates(const TypeData &type);

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_SHARDING_H
