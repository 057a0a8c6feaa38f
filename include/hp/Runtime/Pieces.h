//===- Pieces.h - Cutting tensors and putting them together -----*- C++ -*-===//
//
// Between whole tensors and what the ranks hold of them.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_PIECES_H
#define HP_RUNTIME_PIECES_H

#include "hp/Analysis/Placement.h"
#include "hp/Runtime/Communicator.h"

namespace hp {

/// A rank's piece of `whole`: contiguous, with storage of its own.
at::Tensor cutPiece(const at::Tensor &whole, const Placement &placement);
/// Copies `piece` to its place in `whole`.
void putPiece(const at::Tensor &whole, const at::Tensor &piece,
              const Placement &placement);

/// The whole tensor of `type` from the pieces of the local ranks. All processes
/// must call it; all get the tensor. Dims that no axis cuts, and axes that cut
/// none, are taken from the first rank that has them.
at::Tensor assemble(Communicator &comm, Type type,
                    const Communicator::Tensors &pieces);

/// Part `number` of `parts` of dim `position` of `local`: of each segment as
/// this rank has it. `dim` is the dim's type and may be cut over `ranks` ranks
/// already. A view where the dim has one segment.
at::Tensor partOf(const at::Tensor &local, int64_t position, const Dim &dim,
                  int64_t ranks, int64_t parts, int64_t number);
/// The reverse: [parts, ...] becomes [...] with the parts side by side in each
/// segment of dim `position`. `dim` is the dim's type, cut over `ranks` ranks
/// still. Contiguous.
at::Tensor joinParts(const at::Tensor &stacked, int64_t position,
                     const Dim &dim, int64_t ranks);

} // namespace hp

#endif // HP_RUNTIME_PIECES_H
