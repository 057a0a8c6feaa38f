//===- DeltaRuleChunk-inl.h - One chunk of one head --------------*- C++
//-*-===//
//
// With S the state before the chunk, G the decay cumulated in it, and k and q
// normalized, the chunk's tokens write W and read O:
//
//   (1 + L) W = beta (V - e^G K S)     L_ij = beta_i (k_i . k_j) e^(G_i - G_j)
//   O = e^G Q S + A W                  A_ij = (q_i . k_j) e^(G_i - G_j)
//   S' = e^(G_end) S + (e^(G_end - G) K)^T W
//
// for i > j in L and i >= j in A. The system is solved for W by substitution
// and never inverted. Differences of G are formed and masked before they are
// exponentiated.
//
//===----------------------------------------------------------------------===//

#if defined(HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULECHUNK_INL_H) ==              \
    defined(HWY_TARGET_TOGGLE)
#ifdef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULECHUNK_INL_H
#undef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULECHUNK_INL_H
#else
#define HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULECHUNK_INL_H
#endif

#include "DeltaRuleScratch.h"
#include "Tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

//===----------------------------------------------------------------------===//
// Rows; all but the outer ones are padded
//===----------------------------------------------------------------------===//

/// The sum of the products of two padded rows.
template <typename T>
HWY_INLINE T dotRows(const T *x, const T *y, int64_t width) {
  const Tag<T> d;
  Vec<T> sum = hn::Zero(d);
  for (int64_t i = 0; i < width; i += lanes<T>()) {
    sum = hn::MulAdd(hn::LoadU(d, x + i), hn::LoadU(d, y + i), sum);
  }
  return sumOf<T>(sum);
}

/// to <- factor * from.
template <typename T>
HWY_INLINE void scaleRow(T factor, const T *from, T *to, int64_t width) {
  const Tag<T> d;
  for (int64_t i = 0; i < width; i += lanes<T>()) {
    hn::StoreU(hn::Mul(hn::Set(d, factor), hn::LoadU(d, from + i)), d, to + i);
  }
}

/// to += factor * from.
template <typename T>
HWY_INLINE void addRow(T factor, const T *from, T *to, int64_t width) {
  const Tag<T> d;
  for (int64_t i = 0; i < width; i += lanes<T>()) {
    hn::StoreU(hn::MulAdd(hn::Set(d, factor), hn::LoadU(d, from + i),
                          hn::LoadU(d, to + i)),
               d, to + i);
  }
}

/// outer += row, of which the first `width` elements exist outside.
template <typename T>
HWY_INLINE void addOutside(const T *row, T *outer, int64_t width) {
  const Tag<T> d;
  for (int64_t i = 0; i < width; i += lanes<T>()) {
    const auto sum =
        hn::Add(loadSome(outer + i, width - i), hn::LoadU(d, row + i));
    storeSome<T>(sum, outer + i, width - i);
  }
}

/// Adds the gradient of x to `outer`, where row = factor * x / |x| and
/// `gradient` is that of row; scale = factor / |x|.
template <typename T>
HWY_INLINE void addNormalized(const T *row, T *gradient, T scale, T factor,
                              T *outer, int64_t width) {
  const T along = dotRows(row, gradient, width) / (factor * factor);
  addRow(-along, row, gradient, width);
  scaleRow(scale, gradient, gradient, width);
  addOutside(gradient, outer, width);
}

//===----------------------------------------------------------------------===//
// The chunk
//===----------------------------------------------------------------------===//

template <typename T> class Chunk {
public:
  Chunk(const DeltaRule<T> &rule, bool backward, T *memory)
      : rule(rule), m(rule, backward, memory),
        queryFactor(T(1 / std::sqrt(double(rule.keyWidth)))) {
    std::memset(memory, 0, size_t(m.cleared) * sizeof(T));
  }

  /// Makes the state that the first chunk finds.
  void start(int64_t newBatch, int64_t newHead) {
    batch = newBatch;
    head = newHead;
    stateIsZero = !rule.stateBefore && !rule.isSummary;
    std::memset(m.state, 0, stateBytes());
    for (int64_t k = 0; k < m.keys; ++k) {
      T *row = m.state + k * m.stateStride;
      if (rule.isSummary) {
        row[k] = 1;
      } else if (rule.stateBefore) {
        std::memcpy(row,
                    outerState(rule.stateBefore, rule.valueWidth) +
                        k * rule.valueWidth,
                    rule.valueWidth * sizeof(T));
      }
    }
  }

  /// Reads the tokens of chunk `index` and makes what does not depend on the
  /// state; with queries, if asked for.
  void load(int64_t index, bool queries) {
    first = index * m.chunk;
    count = std::min(m.chunk, rule.tokens - first);
    loadDecay();
    const int64_t keyHead = head / (rule.valueHeads / rule.keyHeads);
    for (int64_t i = 0; i < count; ++i) {
      T *key = m.key + i * m.keyStride;
      m.keyScale[i] = loadNormalized(rule.key, keyHead, i, T(1), key);
      scaleRow(m.fromStart[i], key, m.keyFromStart + i * m.keyStride, m.keys);
      scaleRow(m.toEnd[i], key, m.keyToEnd + i * m.keyStride, m.keys);
      if (queries) {
        T *query = m.query + i * m.keyStride;
        m.queryScale[i] =
            loadNormalized(rule.query, keyHead, i, queryFactor, query);
        scaleRow(m.fromStart[i], query, m.queryFromStart + i * m.keyStride,
                 m.keys);
      }
      std::memcpy(valueRow(m.value, i), token(rule.value, head, i),
                  rule.valueWidth * sizeof(T));
    }
    transpose(count, m.keys, m.key, m.keyStride, m.keyTransposed,
              m.chunkStride);
    multiply<Into::Set>(count, count, m.keys, plain(m.key, m.keyStride),
                        m.keyTransposed, m.chunkStride, m.keyPairs,
                        m.chunkStride, Half::WantLower);
    if (queries) {
      multiply<Into::Set>(count, count, m.keys, plain(m.query, m.keyStride),
                          m.keyTransposed, m.chunkStride, m.attention,
                          m.chunkStride, Half::WantLower);
    }
    decayPairs(queries);
  }

  /// What the tokens write, into `written`.
  void solve() {
    if (!stateIsZero) {
      multiply<Into::Set>(count, m.width, m.keys,
                          plain(m.keyFromStart, m.keyStride), m.state,
                          m.stateStride, m.written, m.stateStride);
    }
    const Tag<T> d;
    for (int64_t i = 0; i < count; ++i) {
      const T *value = m.value + i * m.stateStride;
      T *row = m.written + i * m.stateStride;
      const auto beta = hn::Set(d, m.beta[i]);
      for (int64_t j = 0; j < m.width; j += lanes<T>()) {
        auto rest = hn::LoadU(d, value + j);
        if (!stateIsZero) {
          rest = hn::Sub(rest, hn::LoadU(d, row + j));
        }
        hn::StoreU(hn::Mul(beta, rest), d, row + j);
      }
    }
    solveLower(count, m.width, m.system, m.chunkStride, m.written,
               m.stateStride);
  }

  /// What the tokens read, to the result.
  void read() {
    if (stateIsZero) {
      multiply<Into::Set>(
          count, m.width, count, plain(m.attention, m.chunkStride), m.written,
          m.stateStride, m.out, m.stateStride, Half::LeftIsLower);
    } else {
      multiply<Into::Set>(count, m.width, m.keys,
                          plain(m.queryFromStart, m.keyStride), m.state,
                          m.stateStride, m.out, m.stateStride);
      multiply<Into::Add>(
          count, m.width, count, plain(m.attention, m.chunkStride), m.written,
          m.stateStride, m.out, m.stateStride, Half::LeftIsLower);
    }
    for (int64_t i = 0; i < count; ++i) {
      std::memcpy(rule.out.at(batch, head) + (first + i) * rule.out.tokenStride,
                  m.out + i * m.stateStride, rule.valueWidth * sizeof(T));
    }
  }

  /// The state after the chunk, in the place of the one before.
  void advance() {
    const auto keys = transposed(m.keyToEnd, m.keyStride);
    if (stateIsZero) {
      multiply<Into::Set>(m.keys, m.width, count, keys, m.written,
                          m.stateStride, m.state, m.stateStride);
    } else {
      for (int64_t k = 0; k < m.keys; ++k) {
        T *row = m.state + k * m.stateStride;
        scaleRow(decayOfAll(), row, row, m.width);
      }
      multiply<Into::Add>(m.keys, m.width, count, keys, m.written,
                          m.stateStride, m.state, m.stateStride);
    }
    stateIsZero = false;
  }

  /// Writes the map and the term that a summary ends with.
  void finishSummary() {
    for (int64_t k = 0; k < m.keys; ++k) {
      const T *row = m.state + k * m.stateStride;
      std::memcpy(outerState(rule.map, m.keys) + k * m.keys, row,
                  m.keys * sizeof(T));
      std::memcpy(outerState(rule.term, rule.valueWidth) + k * rule.valueWidth,
                  row + m.mapWidth, rule.valueWidth * sizeof(T));
    }
  }

protected:
  /// e to the decay of the whole chunk.
  T decayOfAll() const { return m.fromStart[count - 1]; }

  size_t stateBytes() const {
    return size_t(roundUp(m.keys, 4) * m.stateStride) * sizeof(T);
  }

  /// This head's state among dense ones of this width.
  template <typename Pointer>
  Pointer *outerState(Pointer *states, int64_t width) const {
    return states + (batch * rule.valueHeads + head) * m.keys * width;
  }

  /// Token `i` of the chunk among those of a head.
  template <typename Pointer>
  Pointer *token(const Heads<Pointer> &heads, int64_t of, int64_t i) const {
    return heads.at(batch, of) + (first + i) * heads.tokenStride;
  }

  /// The part of a row that is not of a summary's map.
  T *valueRow(T *matrix, int64_t i) const {
    return matrix + i * m.stateStride + m.mapWidth;
  }

  void loadDecay() {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) {
      sum += *token(rule.decay, head, i);
      m.total[i] = T(sum);
      m.beta[i] = *token(rule.beta, head, i);
    }
    const Tag<T> d;
    const auto all = hn::Set(d, m.total[count - 1]);
    for (int64_t i = 0; i < count; i += lanes<T>()) {
      const auto total = hn::LoadU(d, m.total + i);
      hn::StoreU(decayExp<T>(total), d, m.fromStart + i);
      hn::StoreU(decayExp<T>(hn::Sub(all, total)), d, m.toEnd + i);
    }
  }

  /// row <- factor * x / |x| of token `i`; gives factor / |x|.
  T loadNormalized(const Heads<const T> &heads, int64_t of, int64_t i, T factor,
                   T *row) {
    std::memcpy(row, token(heads, of, i), m.keys * sizeof(T));
    const T squares = dotRows(row, row, m.keys);
    const T scale = factor / std::sqrt(squares + T(1e-6));
    scaleRow(scale, row, row, m.keys);
    return scale;
  }

  /// From products of keys and queries to `keyPairs`, `system`, `attention`,
  /// and what decays them.
  void decayPairs(bool queries) {
    const Tag<T> d;
    const int64_t n = lanes<T>();
    const auto never = hn::Set(d, T(-1e30));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = i * m.chunkStride;
      const auto total = hn::Set(d, m.total[i]);
      const auto beta = hn::Set(d, m.beta[i]);
      int64_t j = 0;
      for (; j <= i; j += n) {
        const auto notLater = firstOf<T>(i + 1 - j);
        const auto earlier = firstOf<T>(i - j);
        const auto difference = hn::IfThenElse(
            notLater, hn::Sub(total, hn::LoadU(d, m.total + j)), never);
        const auto decay = decayExp<T>(difference);
        const auto keys = hn::IfThenElseZero(
            earlier, hn::Mul(hn::LoadU(d, m.keyPairs + row + j), decay));
        hn::StoreU(decay, d, m.pairs + row + j);
        hn::StoreU(keys, d, m.keyPairs + row + j);
        hn::StoreU(hn::Mul(beta, keys), d, m.system + row + j);
        if (queries) {
          const auto both = hn::Mul(hn::LoadU(d, m.attention + row + j), decay);
          hn::StoreU(hn::IfThenElseZero(notLater, both), d,
                     m.attention + row + j);
        }
      }
      for (; j < roundUp(i + 1, tileRows); j += n) {
        hn::StoreU(hn::Zero(d), d, m.system + row + j);
        hn::StoreU(hn::Zero(d), d, m.attention + row + j);
      }
    }
  }

  const DeltaRule<T> &rule;
  DeltaRuleScratch<T> m;
  const T queryFactor;
  int64_t batch = 0, head = 0;  ///< of the values
  int64_t first = 0, count = 0; ///< tokens of the chunk
  bool stateIsZero = true;
};

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULECHUNK_INL_H
