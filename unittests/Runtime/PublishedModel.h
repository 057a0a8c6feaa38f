//===- PublishedModel.h - The published layers as one program ---*- C++ -*-===//
//
// Two layers, gated delta net and full attention, with norms, MLPs, tied
// embedding and loss, as plain functions on tensors that LibTorch
// differentiates as a whole. What the kernels are compared with, bit for bit.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_PUBLISHEDMODEL_H
#define HP_UNITTESTS_RUNTIME_PUBLISHEDMODEL_H

#include <ATen/ATen.h>
#include <map>
#include <string>

namespace hp::testing {

struct PublishedSizes {
  int64_t hidden = 32, intermediate = 48, vocabulary = 40;
  int64_t heads = 4, groups = 2, headDim = 16, rotary = 8;
  int64_t keyHeads = 2, valueHeads = 4, keyDim = 8, valueDim = 12;
  int64_t taps = 4, chunk = 64;
  double eps = 1e-6, theta = 1e7;
};

using Parameters = std::map<std::string, at::Tensor>;

/// Random parameters; layer 0 is `linear.`, layer 1 is `full.`.
Parameters publishedParameters(const PublishedSizes &sizes, uint64_t seed,
                               at::ScalarType dtype);

at::Tensor publishedLogits(const PublishedSizes &sizes, const Parameters &p,
                           const at::Tensor &tokens,
                           const at::Tensor &positions);

/// Sum of cross entropies over the number of valid targets.
at::Tensor publishedLoss(const at::Tensor &logits, const at::Tensor &labels);

} // namespace hp::testing

#endif // HP_UNITTESTS_RUNTIME_PUBLISHEDMODEL_H
