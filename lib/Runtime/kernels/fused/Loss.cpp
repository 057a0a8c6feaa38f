//===- Loss.cpp - Cross entropy, and the gradient of the embedding --------===//

#include "RowTensors.h"

using namespace hp;
using namespace hp::fused;

/// The target of a position that does not count.
static constexpr int64_t ignored = -100;

//===----------------------------------------------------------------------===//
// cross_entropy
//===----------------------------------------------------------------------===//

template <typename T>
static Loss<T> lossOf(const at::Tensor &logits, const at::Tensor &labels) {
  Loss<T> loss;
  loss.width = logits.size(-1);
  loss.logits = rowsOf<const T>(logits, 1);
  loss.labels = rowsOf<const int64_t>(labels, 0);
  for (int64_t i = 0; i < labels.numel(); ++i) {
    int64_t label = *loss.labels.at(i);
    TORCH_CHECK_INDEX(label == ignored || (label >= 0 && label < loss.width),
                      "Target ", label, " is out of bounds.");
  }
  return loss;
}

template <typename T>
static Tensors computeLoss(const at::Tensor &logits, const at::Tensor &labels) {
  Loss<T> loss = lossOf<T>(logits, labels);
  int64_t rows = labels.numel();
  at::Tensor losses = at::empty({rows}, at::kDouble);
  loss.losses = losses.data_ptr<double>();
  forEachRange(rows, grainOfRows(loss.width), [&](int64_t first, int64_t last) {
    lossForward(loss, first, last);
  });
  double sum = 0;
  for (int64_t i = 0; i < rows; ++i) {
    sum += loss.losses[i];
  }
  return {at::full({}, sum, logits.options())};
}

template <typename T>
static Tensors differentiateLoss(const at::Tensor &logits,
                                 const at::Tensor &labels,
                                 const Adjoint &adjoint) {
  Loss<T> loss = lossOf<T>(logits, labels);
  at::Tensor running = inRows(adjoint.running(0), 1);
  at::Tensor gradient = emptyOf(logits);
  loss.lossGradient = adjoint.cotangents[0].template item<T>();
  loss.running = rowsOf<const T>(running, 1);
  loss.gradient = rowsOf<T>(gradient, 1);
  forEachRange(
      labels.numel(), grainOfRows(loss.width),
      [&](int64_t first, int64_t last) { lossBackward(loss, first, last); });
  return {gradient};
}

const Row fused::crossEntropy = {
    [](const Call &call, Operands x) {
      at::Tensor logits = inRows(x[0], 1), labels = inRows(x[1], 0);
      return logits.scalar_type() == at::kDouble
                 ? computeLoss<double>(logits, labels)
                 : computeLoss<float>(logits, labels);
    },
    [](const Call &call, const Adjoint &adjoint) {
      at::Tensor logits = inRows(adjoint.operands[0], 1);
      at::Tensor labels = inRows(adjoint.operands[1], 0);
      return logits.scalar_type() == at::kDouble
                 ? differentiateLoss<double>(logits, labels, adjoint)
                 : differentiateLoss<float>(logits, labels, adjoint);
    }};

//===----------------------------------------------------------------------===//
// embedding, backward
//===----------------------------------------------------------------------===//

/// The tokens of each row of a table: counted, then sorted by row and position.
namespace {
struct TokensOfRows {
  std::vector<int64_t> first;     ///< of each row, and the end
  std::vector<int64_t> positions; ///< in the batch

  /// Rows [begin, begin + rows) of `vocabulary` are here.
  TokensOfRows(const at::Tensor &tokens, int64_t begin, int64_t rows,
               int64_t vocabulary)
      : first(rows + 1) {
    at::Tensor dense = tokens.contiguous();
    const int64_t *ids = dense.const_data_ptr<int64_t>();
    auto forEach = [&](auto body) {
      for (int64_t i = 0; i < dense.numel(); ++i) {
        TORCH_CHECK_INDEX(ids[i] >= 0 && ids[i] < vocabulary,
                          "index out of range in self");
        if (ids[i] >= begin && ids[i] < begin + rows) {
          body(ids[i] - begin, i);
        }
      }
    };
    forEach([&](int64_t row, int64_t) { ++first[row + 1]; });
    for (int64_t row = 0; row < rows; ++row) {
      first[row + 1] += first[row];
    }
    positions.resize(first[rows]);
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    forEach([&](int64_t row, int64_t i) { positions[next[row]++] = i; });
  }
};
} // namespace

template <typename T>
static Tensors embeddingBackward(const Call &call, const Adjoint &adjoint) {
  const at::Tensor &table = adjoint.operands[1];
  int64_t rows = table.size(0), width = table.size(1);
  const Dim &dim = call.dims(1)[0];
  int64_t begin = dim.axes.empty() ? 0 : call.position(dim.axes) * rows;
  TokensOfRows tokens(adjoint.operands[0], begin, rows,
                      dim.axes.empty() ? rows : dim.size());
  at::Tensor cotangent = inRows(adjoint.cotangents[0], 1);
  at::Tensor running = inRows(adjoint.running(0), 1);
  at::Tensor gradient = emptyOf(table);
  Rows<const T> from = rowsOf<const T>(cotangent, 1);
  Rows<const T> old = rowsOf<const T>(running, 1);
  T *made = gradient.data_ptr<T>();
  forEachRange(rows, grainOfRows(width), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      T *to = made + row * width;
      if (old) {
        std::copy_n(old.at(row), width, to);
      } else {
        std::fill_n(to, width, T(0));
      }
      for (int64_t i = tokens.first[row]; i < tokens.first[row + 1]; ++i) {
        const T *part = from.at(tokens.positions[i]);
        for (int64_t j = 0; j < width; ++j) {
          to[j] += part[j];
        }
      }
    }
  });
  return {gradient};
}

const Row fused::embedding = {
    nullptr, // LibTorch's is one pass already
    [](const Call &call, const Adjoint &adjoint) {
      return adjoint.cotangents[0].scalar_type() == at::kDouble
                 ? embeddingBackward<double>(call, adjoint)
                 : embeddingBackward<float>(call, adjoint);
    }};
