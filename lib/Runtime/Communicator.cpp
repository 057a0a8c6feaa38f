//===- Communicator.cpp - Groups, and what was sent -----------------------===//

#include "hp/Runtime/Communicator.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::ArrayRef;

llvm::StringRef hp::name(Primitive primitive) {
  switch (primitive) {
  case Primitive::AllReduce:
    return "all_reduce";
  case Primitive::AllGather:
    return "all_gather";
  case Primitive::ReduceScatter:
    return "reduce_scatter";
  case Primitive::AllToAll:
    return "all_to_all";
  case Primitive::SendReceive:
    return "send_receive";
  }
  return {};
}

//===----------------------------------------------------------------------===//
// Positions
//===----------------------------------------------------------------------===//

/// How far apart two ranks are that are neighbours along `axis`.
static int64_t stride(const Mesh &mesh, AxisId axis) {
  int64_t stride = 1;
  for (unsigned inner = axis + 1; inner < mesh.numAxes(); ++inner) {
    stride *= mesh.size(AxisId(inner));
  }
  return stride;
}

int64_t hp::groupRank(const Mesh &mesh, int64_t rank, ArrayRef<AxisId> axes) {
  int64_t number = 0;
  for (AxisId axis : axes) {
    number =
        number * mesh.size(axis) + rank / stride(mesh, axis) % mesh.size(axis);
  }
  return number;
}

std::vector<int64_t> hp::group(const Mesh &mesh, int64_t rank,
                               ArrayRef<AxisId> axes) {
  // The rank with coordinate 0 along all axes, then one axis after the other,
  // the minor ones fastest.
  for (AxisId axis : axes) {
    rank -= rank / stride(mesh, axis) % mesh.size(axis) * stride(mesh, axis);
  }
  std::vector<int64_t> ranks = {rank};
  for (AxisId axis : axes) {
    std::vector<int64_t> next;
    for (int64_t base : ranks) {
      for (int64_t i = 0; i < mesh.size(axis); ++i) {
        next.push_back(base + i * stride(mesh, axis));
      }
    }
    ranks = std::move(next);
  }
  return ranks;
}

//===----------------------------------------------------------------------===//
// Counting
//===----------------------------------------------------------------------===//

void Communicator::checkAndCount(Primitive primitive, const Tensors &operands,
                                 ArrayRef<AxisId> axes) {
  TORCH_CHECK(operands.size() == localRanks().size(), name(primitive).str(),
              ": one tensor for each local rank is needed");
  for (const at::Tensor &operand : operands) {
    TORCH_CHECK(operand.is_contiguous(), name(primitive).str(),
                ": operands must be contiguous");
    TORCH_CHECK(operand.sizes() == operands[0].sizes() &&
                    operand.scalar_type() == operands[0].scalar_type(),
                name(primitive).str(),
                ": the ranks' operands differ in shape or dtype");
  }
  int64_t bytes =
      operands.empty() ? 0 : operands[0].numel() * operands[0].element_size();
  Traffic::Count &count = traffic_.counts[{primitive, AxisList(axes)}];
  count.calls += 1;
  count.bytes += bytes;
}

/// The operand of a primitive that deals in slices, one for each rank of the
/// group.
static void checkSlices(const Communicator::Tensors &operands, int64_t ranks,
                        Primitive primitive) {
  TORCH_CHECK(operands[0].dim() > 0 && operands[0].size(0) == ranks,
              name(primitive).str(), ": the operand must have ", ranks,
              " slices");
}

void Communicator::allReduce(Tensors &tensors, ArrayRef<AxisId> axes,
                             Reduction reduction) {
  checkAndCount(Primitive::AllReduce, tensors, axes);
  doAllReduce(tensors, axes, reduction);
}

Communicator::Tensors Communicator::allGather(const Tensors &operands,
                                              ArrayRef<AxisId> axes) {
  checkAndCount(Primitive::AllGather, operands, axes);
  return doAllGather(operands, axes);
}

Communicator::Tensors Communicator::reduceScatter(const Tensors &operands,
                                                  ArrayRef<AxisId> axes) {
  checkAndCount(Primitive::ReduceScatter, operands, axes);
  checkSlices(operands, groupSize(axes), Primitive::ReduceScatter);
  return doReduceScatter(operands, axes);
}

Communicator::Tensors Communicator::allToAll(const Tensors &operands,
                                             ArrayRef<AxisId> axes) {
  checkAndCount(Primitive::AllToAll, operands, axes);
  checkSlices(operands, groupSize(axes), Primitive::AllToAll);
  return doAllToAll(operands, axes);
}

Communicator::Tensors Communicator::shift(const Tensors &operands,
                                          ArrayRef<AxisId> axes,
                                          int64_t distance, bool cyclic) {
  checkAndCount(Primitive::SendReceive, operands, axes);
  return doShift(operands, axes, distance, cyclic);
}
