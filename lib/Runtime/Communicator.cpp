//===- Communicator.cpp - What was sent -----------------------------------===//

#include "hp/Runtime/Communicator.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::ArrayRef;

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
  traffic_.add(primitive, axes, bytes);
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

//===----------------------------------------------------------------------===//
// Started and waited for
//===----------------------------------------------------------------------===//

std::unique_ptr<Pending> Communicator::startAllReduce(Tensors &tensors,
                                                      ArrayRef<AxisId> axes) {
  checkAndCount(Primitive::AllReduce, tensors, axes);
  return doStartAllReduce(tensors, axes, Reduction::Sum);
}

std::unique_ptr<Pending> Communicator::startAllGather(const Tensors &operands,
                                                      ArrayRef<AxisId> axes,
                                                      Tensors &results) {
  checkAndCount(Primitive::AllGather, operands, axes);
  return doStartAllGather(operands, axes, results);
}

std::unique_ptr<Pending>
Communicator::startReduceScatter(const Tensors &operands, ArrayRef<AxisId> axes,
                                 Tensors &results) {
  checkAndCount(Primitive::ReduceScatter, operands, axes);
  checkSlices(operands, groupSize(axes), Primitive::ReduceScatter);
  return doStartReduceScatter(operands, axes, results);
}
