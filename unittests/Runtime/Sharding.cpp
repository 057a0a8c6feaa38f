//===- Sharding.cpp - What two ranks hold of a value ----------------------===//

#include "Sharding.h"
#include <ATen/CPUGeneratorImpl.h>

using namespace hp;
using namespace hp::testing;

static std::vector<int64_t> segmentSizes(const Dim &dim, int64_t ranks) {
  std::vector<int64_t> sizes;
  for (const Segment &segment : dim.segments) {
    sizes.push_back(segment.size() / ranks);
  }
  return sizes;
}

at::Tensor hp::testing::halfOf(const at::Tensor &x, const Dim &dim,
                               unsigned position, int rank) {
  std::vector<at::Tensor> halves;
  for (const at::Tensor &segment :
       x.split_with_sizes(segmentSizes(dim, 1), position)) {
    halves.push_back(segment.chunk(2, position)[rank]);
  }
  return at::cat(halves, position);
}

at::Tensor hp::testing::joined(const Pair &halves, const Dim &dim,
                               unsigned position) {
  std::vector<int64_t> sizes = segmentSizes(dim, 2);
  auto first = halves[0].split_with_sizes(sizes, position);
  auto second = halves[1].split_with_sizes(sizes, position);
  std::vector<at::Tensor> segments;
  for (size_t i = 0; i < first.size(); ++i) {
    segments.push_back(first[i]);
    segments.push_back(second[i]);
  }
  return at::cat(segments, position);
}

Pair hp::testing::dealOut(Type type, const at::Tensor &x, uint64_t seed) {
  switch (type.state(testAxis)) {
  case State::Sharded: {
    unsigned position = type.shardedDim(testAxis);
    const Dim &dim = type.dims()[position];
    return {halfOf(x, dim, position, 0), halfOf(x, dim, position, 1)};
  }
  case State::Partial: {
    at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
    at::Tensor term =
        x.is_floating_point()
            ? at::randn(x.sizes(), generator, x.options())
            : at::randint(-3, 4, x.sizes(), generator, x.options());
    return {term, x - term};
  }
  case State::Invariant:
  case State::Replicated:
    return {x, x};
  }
  llvm_unreachable("all states are handled above");
}

std::optional<at::Tensor> hp::testing::putTogether(Type type, const Pair &held,
                                                   const Mesh &mesh) {
  auto shape = type.localShape(mesh);
  for (const at::Tensor &x : held) {
    if (x.sizes() != at::IntArrayRef(shape.data(), shape.size())) {
      return std::nullopt;
    }
  }
  switch (type.state(testAxis)) {
  case State::Sharded: {
    unsigned position = type.shardedDim(testAxis);
    return joined(held, type.dims()[position], position);
  }
  case State::Partial:
    return held[0] + held[1];
  case State::Invariant:
  case State::Replicated:
    if (!agree(held[0], held[1])) {
      return std::nullopt;
    }
    return held[0];
  }
  llvm_unreachable("all states are handled above");
}

bool hp::testing::agree(const at::Tensor &x, const at::Tensor &y) {
  if (x.sizes() != y.sizes() || x.scalar_type() != y.scalar_type()) {
    return false;
  }
  if (!x.is_floating_point() || x.numel() == 0) {
    return x.equal(y);
  }
  double scale = 1 + y.abs().max().item<double>();
  return (x - y).abs().max().item<double>() <= 1e-9 * scale;
}

TypeData hp::testing::inState(const TypeData &type, State state, unsigned dim) {
  TypeData data = type;
  switch (state) {
  case State::Sharded:
    data.dims[dim].axes = {testAxis};
    break;
  case State::Replicated:
    data.repl.insert(testAxis);
    break;
  case State::Partial:
    data.partial.insert(testAxis);
    break;
  case State::Invariant:
    break;
  }
  return data;
}

std::vector<TypeData> hp::testing::allStates(const TypeData &type) {
  std::vector<TypeData> list;
  for (State state : {State::Invariant, State::Replicated, State::Partial}) {
    list.push_back(inState(type, state));
  }
  for (unsigned i = 0; i < type.dims.size(); ++i) {
    if (llvm::all_of(type.dims[i].segments, [](const Segment &segment) {
          return segment.factors[0] % 2 == 0;
        })) {
      list.push_back(inState(type, State::Sharded, i));
    }
  }
  return list;
}
