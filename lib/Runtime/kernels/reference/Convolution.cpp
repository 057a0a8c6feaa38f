//===- Convolution.cpp - The causal convolution before the delta rule -----===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

Tensors reference::causalConv1d(const Call &call, Operands x) {
  at::Tensor states = x[0].transpose(1, 2);
  at::Tensor taps = x.back().squeeze(1);
  int64_t channels = states.size(1), tokens = states.size(2);
  int64_t padding = taps.size(-1) - 1;
  // Before the only shard of a sequence is nothing but the padding.
  llvm::ArrayRef<AxisId> axes = call.dims(0)[1].axes;
  bool isOnlyShard = !axes.empty() && call.numRanks(axes) == 1;
  if (x.size() == 3 && !isOnlyShard) {
    // The halo takes the place of the padding.
    states = at::cat({x[1].transpose(1, 2), states}, -1);
    padding = 0;
  }
  at::Tensor mixed =
      at::conv1d(states.to(taps.scalar_type()), taps.unsqueeze(1), /*bias=*/{},
                 /*stride=*/1, padding, /*dilation=*/1, /*groups=*/channels);
  at::Tensor activated = at::silu(mixed.slice(2, 0, tokens));
  return {activated.to(x[0].scalar_type()).transpose(1, 2)};
}
