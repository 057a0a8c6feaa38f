//===- DeltaRuleScratch.h - Where a chunk is worked on ----------*- C++ -*-===//
//
// The matrices of one chunk of one head, and for the backward the states before
// every chunk and what every token wrote, laid out in one piece of memory.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULESCRATCH_H
#define HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULESCRATCH_H

#include "DeltaRule.h"
#include <initializer_list>

namespace hp::fused {

/// Rows are whole vectors of any processor.
constexpr int64_t padding = 16;

/// `n` rounded up to a multiple of `to`.
inline int64_t roundUp(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/// From row to row of a matrix with `width` columns: padded, and not a power of
/// two that would put all rows into the same few lines of a cache.
inline int64_t rowStride(int64_t width) {
  int64_t stride = roundUp(width, padding);
  return stride % 128 == 0 ? stride + padding : stride;
}

/// Matrices by their shape: tokens of a chunk (C), channels of a key (K), of
/// the state (W).
template <typename T> struct DeltaRuleScratch {
  /// Places them from `memory` on, which may be null to count only.
  DeltaRuleScratch(const DeltaRule<T> &rule, bool backward, T *memory)
      : chunk(rule.chunk), keys(rule.keyWidth),
        mapWidth(rule.isSummary ? roundUp(rule.keyWidth, padding) : 0),
        width(mapWidth + rule.valueWidth),
        numChunks((rule.tokens + chunk - 1) / chunk),
        chunkStride(rowStride(chunk)), keyStride(rowStride(keys)),
        stateStride(rowStride(width)) {
    const int64_t chunkRows = roundUp(chunk, 4), keyRows = roundUp(keys, 4);
    const int64_t widthRows = roundUp(width, 4);
    auto place = [&](int64_t rows, int64_t stride,
                     std::initializer_list<T **> matrices) {
      for (T **matrix : matrices) {
        *matrix = memory ? memory + size : nullptr;
        size += roundUp(rows * stride, padding);
      }
    };
    place(1, roundUp(chunk, padding),
          {&total, &fromStart, &toEnd, &beta, &keyScale, &queryScale});
    place(chunkRows, keyStride,
          {&key, &keyFromStart, &keyToEnd, &query, &queryFromStart});
    place(keyRows, chunkStride, {&keyTransposed});
    place(chunkRows, chunkStride, {&system, &attention, &pairs, &keyPairs});
    place(chunkRows, stateStride, {&value, &written, &out});
    place(keyRows, stateStride, {&state});
    cleared = size;
    if (backward) {
      place(1, roundUp(chunk, padding), {&decayGradient, &betaGradient});
      place(chunkRows, keyStride, {&keyGradient, &queryGradient, &product});
      place(chunkRows, chunkStride, {&systemGradient, &attentionGradient});
      place(chunkRows, stateStride, {&outGradient, &writtenGradient});
      place(keyRows, stateStride, {&stateGradient});
      place(widthRows, keyStride, {&stateTransposed, &stateGradientTransposed});
      place(widthRows, chunkStride, {&writtenTransposed});
      cleared = size;
      place(numChunks * keyRows, stateStride, {&states});
      place(numChunks * chunkRows, stateStride, {&allWritten});
    }
  }

  int64_t chunk, keys, mapWidth, width, numChunks;
  int64_t chunkStride, keyStride, stateStride;

  T *total;             ///< decay cumulated in the chunk
  T *fromStart, *toEnd; ///< e to the decay from start, and to the end
  T *beta;
  T *keyScale, *queryScale; ///< what normalized them
  T *key, *query;           ///< C K, normalized, queries scaled
  T *keyFromStart, *keyToEnd, *queryFromStart; ///< C K, decayed
  T *keyTransposed;                            ///< K C
  T *pairs;                 ///< C C, decay from column to row
  T *keyPairs;              ///< C C, keys with keys, decayed, strictly lower
  T *system;                ///< C C, rows of keyPairs times beta
  T *attention;             ///< C C, queries with keys, decayed, lower
  T *value, *written, *out; ///< C W
  T *state;                 ///< K W

  T *decayGradient, *betaGradient;
  T *keyGradient, *queryGradient, *product;     ///< C K
  T *systemGradient, *attentionGradient;        ///< C C
  T *outGradient, *writtenGradient;             ///< C W
  T *stateGradient;                             ///< K W
  T *stateTransposed, *stateGradientTransposed; ///< W K
  T *writtenTransposed;                         ///< W C
  T *states;                                    ///< K W before each chunk
  T *allWritten;                                ///< C W of each chunk

  int64_t size = 0;    ///< elements of all
  int64_t cleared = 0; ///< of those that must be zero at first
};

} // namespace hp::fused

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULESCRATCH_H
