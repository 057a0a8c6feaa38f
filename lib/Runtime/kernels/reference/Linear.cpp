//===- Linear.cpp - Embedding and matrix product --------------------------===//

#include "Reference.h"

using namespace hp;
using namespace hp::reference;

Tensors reference::embedding(const Call &call, Operands x) {
  const at::Tensor &tokens = x[0], &table = x[1];
  const Dim &vocabulary = call.dims(1)[0];
  if (vocabulary.axes.empty()) {
    return {at::embedding(table, tokens)};
  }
  // A shard of the table: other ranks have the rows of the other tokens. A
  // token that no rank has is an error as it is on one rank.
  TORCH_CHECK_INDEX(tokens.numel() == 0 ||
                        (tokens.min().item<int64_t>() >= 0 &&
                         tokens.max().item<int64_t>() < vocabulary.size()),
                    "index out of range in self");
  int64_t rows = table.size(0);
  at::Tensor local = tokens - call.position(vocabulary.axes) * rows;
  at::Tensor elsewhere = local.lt(0).logical_or(local.ge(rows));
  at::Tensor found =
      at::embedding(table, local.masked_fill(elsewhere, /*value=*/0));
  return {found.masked_fill(elsewhere.unsqueeze(-1), 0)};
}

Tensors reference::linear(const Call &call, Operands x) {
  // A matrix product of more than two dims takes another path when the weight
  // is trained. It always is here, in the forward operation too.
  at::Tensor weight = x[1];
  if (!weight.requires_grad()) {
    weight = weight.detach().requires_grad_();
  }
  return {at::linear(x[0], weight)};
}
