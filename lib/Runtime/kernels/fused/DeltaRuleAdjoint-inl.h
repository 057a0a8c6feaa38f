//===- DeltaRuleAdjoint-inl.h - One chunk of one head, backward --*- C++
//-*-===//
//
// With dO the gradient of what the tokens read and D that of the state after
// the chunk (see DeltaRuleChunk-inl.h for the forward):
//
//   dW = A^T dO + e^(G_end - G) K D       R = (1 + L)^-T dW
//   dA = dO W^T      dL = -R W^T          dV = beta R
//
// and from these the gradients of queries, keys, decay and beta, and of the
// state before. A gradient of a pair's decay e^(G_i - G_j) counts for G_i and
// against G_j. Chunks are walked from the last; the states before them and what
// their tokens wrote are computed again first.
//
//===----------------------------------------------------------------------===//

#if defined(HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULEADJOINT_INL_H) ==            \
    defined(HWY_TARGET_TOGGLE)
#ifdef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULEADJOINT_INL_H
#undef HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULEADJOINT_INL_H
#else
#define HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULEADJOINT_INL_H
#endif

#include "DeltaRuleChunk-inl.h"

HWY_BEFORE_NAMESPACE();
namespace hp::fused::HWY_NAMESPACE {

template <typename T> class ChunkAdjoint : public Chunk<T> {
  using Base = Chunk<T>;
  using Base::batch;
  using Base::count;
  using Base::decayOfAll;
  using Base::head;
  using Base::m;
  using Base::outerState;
  using Base::rule;
  using Base::stateIsZero;
  using Base::token;
  using Base::valueRow;

public:
  ChunkAdjoint(const DeltaRule<T> &rule, T *memory)
      : Base(rule, /*backward=*/true, memory), ownState(m.state),
        ownWritten(m.written) {}

  /// All of one value head.
  void run(int64_t newBatch, int64_t newHead) {
    m.state = ownState;
    m.written = ownWritten;
    this->start(newBatch, newHead);
    const bool startsAtZero = stateIsZero;
    for (int64_t i = 0; i < m.numChunks; ++i) {
      std::memcpy(stateBefore(i), m.state, this->stateBytes());
      this->load(i, /*queries=*/false);
      this->solve();
      std::memcpy(writtenIn(i), m.written, writtenSize() * sizeof(T));
      if (i + 1 < m.numChunks) {
        this->advance();
      }
    }
    startGradient();
    for (int64_t i = m.numChunks - 1; i >= 0; --i) {
      m.state = stateBefore(i);
      m.written = writtenIn(i);
      stateIsZero = startsAtZero && i == 0;
      this->load(i, !rule.isSummary);
      differentiate();
    }
    if (rule.stateGradient) {
      for (int64_t k = 0; k < m.keys; ++k) {
        addOutside(m.stateGradient + k * m.stateStride,
                   outerState(rule.stateGradient, rule.valueWidth) +
                       k * rule.valueWidth,
                   rule.valueWidth);
      }
    }
  }

private:
  T *stateBefore(int64_t chunk) const {
    return m.states + chunk * roundUp(m.keys, 4) * m.stateStride;
  }
  int64_t writtenSize() const { return roundUp(m.chunk, 4) * m.stateStride; }
  T *writtenIn(int64_t chunk) const {
    return m.allWritten + chunk * writtenSize();
  }

  /// The gradient of the last state: what is known of a summary's, else zero.
  void startGradient() {
    std::memset(m.stateGradient, 0, this->stateBytes());
    gradientIsZero = !rule.isSummary;
    for (int64_t k = 0; k < m.keys && rule.isSummary; ++k) {
      T *row = m.stateGradient + k * m.stateStride;
      if (rule.mapGradient) {
        std::memcpy(row, outerState(rule.mapGradient, m.keys) + k * m.keys,
                    m.keys * sizeof(T));
      }
      if (rule.termGradient) {
        std::memcpy(row + m.mapWidth,
                    outerState(rule.termGradient, rule.valueWidth) +
                        k * rule.valueWidth,
                    rule.valueWidth * sizeof(T));
      }
    }
  }

  /// Adds the gradients of the chunk that is loaded, and passes that of its
  /// state on.
  void differentiate() {
    const bool queries = !rule.isSummary;
    std::fill_n(m.decayGradient, roundUp(count, padding), T(0));
    for (int64_t i = 0; i < count && queries; ++i) {
      std::memcpy(m.outGradient + i * m.stateStride,
                  token(rule.outGradient, head, i),
                  rule.valueWidth * sizeof(T));
    }
    transpose(count, m.width, m.written, m.stateStride, m.writtenTransposed,
              m.chunkStride);
    if (!stateIsZero) {
      transpose(m.keys, m.width, m.state, m.stateStride, m.stateTransposed,
                m.keyStride);
    }
    if (!gradientIsZero) {
      transpose(m.keys, m.width, m.stateGradient, m.stateStride,
                m.stateGradientTransposed, m.keyStride);
    }
    ofWritten(queries);
    if (queries) {
      ofReadingTheState();
      multiply<Into::Set>(count, count, m.width,
                          plain(m.outGradient, m.stateStride),
                          m.writtenTransposed, m.chunkStride,
                          m.attentionGradient, m.chunkStride, Half::WantLower);
    }
    multiply<Into::Set>(count, count, m.width,
                        plain(m.writtenGradient, m.stateStride),
                        m.writtenTransposed, m.chunkStride, m.systemGradient,
                        m.chunkStride, Half::WantLower);
    ofPredicting();
    ofAdvancing();
    ofPairs(queries);
    fromPairs(queries);
    ofValues();
    passOn(queries);
    addToTokens(queries);
  }

  /// R, in writtenGradient.
  void ofWritten(bool queries) {
    T *const to = m.writtenGradient;
    if (queries) {
      multiply<Into::Set>(count, m.width, count,
                          transposed(m.attention, m.chunkStride), m.outGradient,
                          m.stateStride, to, m.stateStride, Half::LeftIsUpper);
      if (!gradientIsZero) {
        multiply<Into::Add>(count, m.width, m.keys,
                            plain(m.keyToEnd, m.keyStride), m.stateGradient,
                            m.stateStride, to, m.stateStride);
      }
    } else {
      multiply<Into::Set>(count, m.width, m.keys,
                          plain(m.keyToEnd, m.keyStride), m.stateGradient,
                          m.stateStride, to, m.stateStride);
    }
    solveLowerTransposed(count, m.width, m.system, m.chunkStride, to,
                         m.stateStride);
  }

  /// Of O = e^G Q S: queries and decay.
  void ofReadingTheState() {
    if (stateIsZero) {
      return;
    }
    multiply<Into::Set>(count, m.keys, m.width,
                        plain(m.outGradient, m.stateStride), m.stateTransposed,
                        m.keyStride, m.queryGradient, m.keyStride);
    for (int64_t i = 0; i < count; ++i) {
      T *row = m.queryGradient + i * m.keyStride;
      scaleRow(m.fromStart[i], row, row, m.keys);
      m.decayGradient[i] += dotRows(m.query + i * m.keyStride, row, m.keys);
    }
  }

  /// Of beta (V - e^G K S): beta, decay and keys.
  void ofPredicting() {
    if (!stateIsZero) {
      multiply<Into::Set>(
          count, m.keys, m.width, plain(m.writtenGradient, m.stateStride),
          m.stateTransposed, m.keyStride, m.product, m.keyStride);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = i * m.stateStride;
      T sum = dotRows(m.writtenGradient + at, m.value + at, m.width);
      T *keyGradient = m.keyGradient + i * m.keyStride;
      if (stateIsZero) {
        scaleRow(T(0), m.key + i * m.keyStride, keyGradient, m.keys);
      } else {
        const T *row = m.product + i * m.keyStride;
        const T part = dotRows(m.keyFromStart + i * m.keyStride, row, m.keys);
        scaleRow(-m.beta[i] * m.fromStart[i], row, keyGradient, m.keys);
        m.decayGradient[i] -= m.beta[i] * part;
        sum -= part;
      }
      m.betaGradient[i] = sum;
    }
  }

  /// Of S' = ... + (e^(G_end - G) K)^T W: keys and decay.
  void ofAdvancing() {
    if (gradientIsZero) {
      return;
    }
    multiply<Into::Set>(count, m.keys, m.width, plain(m.written, m.stateStride),
                        m.stateGradientTransposed, m.keyStride, m.product,
                        m.keyStride);
    for (int64_t i = 0; i < count; ++i) {
      const T *row = m.product + i * m.keyStride;
      addRow(m.toEnd[i], row, m.keyGradient + i * m.keyStride, m.keys);
      const T part = dotRows(m.keyToEnd + i * m.keyStride, row, m.keys);
      m.decayGradient[i] -= part;
      m.decayGradient[count - 1] += part;
    }
  }

  /// From gradients of L and A to those of the products of keys and queries;
  /// of decay and beta.
  void ofPairs(bool queries) {
    const Tag<T> d;
    const int64_t n = lanes<T>();
    for (int64_t i = 0; i < count; ++i) {
      T *system = m.systemGradient + i * m.chunkStride;
      T *attention = m.attentionGradient + i * m.chunkStride;
      const int64_t row = i * m.chunkStride;
      const auto beta = hn::Set(d, m.beta[i]);
      Vec<T> sum = hn::Zero(d), betaSum = hn::Zero(d);
      int64_t j = 0;
      for (; j <= i; j += n) {
        const auto decay = hn::LoadU(d, m.pairs + row + j);
        const auto ofSystem = hn::Neg(
            hn::IfThenElseZero(firstOf<T>(i - j), hn::LoadU(d, system + j)));
        const auto ofKeys =
            hn::Mul(ofSystem, hn::LoadU(d, m.keyPairs + row + j));
        betaSum = hn::Add(betaSum, ofKeys);
        auto both = hn::Mul(beta, ofKeys);
        hn::StoreU(hn::Mul(hn::Mul(beta, ofSystem), decay), d, system + j);
        if (queries) {
          const auto ofAttention = hn::IfThenElseZero(
              firstOf<T>(i + 1 - j), hn::LoadU(d, attention + j));
          both = hn::MulAdd(ofAttention, hn::LoadU(d, m.attention + row + j),
                            both);
          hn::StoreU(hn::Mul(ofAttention, decay), d, attention + j);
        }
        sum = hn::Add(sum, both);
        hn::StoreU(hn::Sub(hn::LoadU(d, m.decayGradient + j), both), d,
                   m.decayGradient + j);
      }
      for (; j < roundUp(i + 1, tileRows); j += n) {
        hn::StoreU(hn::Zero(d), d, system + j);
        hn::StoreU(hn::Zero(d), d, attention + j);
      }
      m.decayGradient[i] += sumOf<T>(sum);
      m.betaGradient[i] += sumOf<T>(betaSum);
    }
  }

  /// From products of keys and queries to keys and queries.
  void fromPairs(bool queries) {
    const auto add = [&](Left<T> left, const T *right, T *to, Half half) {
      multiply<Into::Add>(count, m.keys, count, left, right, m.keyStride, to,
                          m.keyStride, half);
    };
    if (queries) {
      const auto attention = plain(m.attentionGradient, m.chunkStride);
      if (stateIsZero) {
        multiply<Into::Set>(count, m.keys, count, attention, m.key, m.keyStride,
                            m.queryGradient, m.keyStride, Half::LeftIsLower);
      } else {
        add(attention, m.key, m.queryGradient, Half::LeftIsLower);
      }
      add(transposed(m.attentionGradient, m.chunkStride), m.query,
          m.keyGradient, Half::LeftIsUpper);
    }
    add(plain(m.systemGradient, m.chunkStride), m.key, m.keyGradient,
        Half::LeftIsLower);
    add(transposed(m.systemGradient, m.chunkStride), m.key, m.keyGradient,
        Half::LeftIsUpper);
  }

  /// beta R, in writtenGradient and outside.
  void ofValues() {
    for (int64_t i = 0; i < count; ++i) {
      T *row = m.writtenGradient + i * m.stateStride;
      scaleRow(m.beta[i], row, row, m.width);
      addOutside(valueRow(m.writtenGradient, i),
                 token(rule.valueGradient, head, i), rule.valueWidth);
    }
  }

  /// From the gradient of the state after the chunk to that of the one before.
  void passOn(bool queries) {
    if (stateIsZero) {
      return;
    }
    const T decay = decayOfAll();
    T sum = 0;
    for (int64_t k = 0; k < m.keys && !gradientIsZero; ++k) {
      T *row = m.stateGradient + k * m.stateStride;
      scaleRow(decay, row, row, m.width);
      sum += dotRows(m.state + k * m.stateStride, row, m.width);
    }
    m.decayGradient[count - 1] += sum;
    if (queries) {
      multiply<Into::Add>(
          m.keys, m.width, count, transposed(m.queryFromStart, m.keyStride),
          m.outGradient, m.stateStride, m.stateGradient, m.stateStride);
    }
    multiply<Into::Subtract>(
        m.keys, m.width, count, transposed(m.keyFromStart, m.keyStride),
        m.writtenGradient, m.stateStride, m.stateGradient, m.stateStride);
    gradientIsZero = false;
  }

  /// Adds what is known of each token to the gradients outside.
  void addToTokens(bool queries) {
    const int64_t keyHead = head / (rule.valueHeads / rule.keyHeads);
    T later = 0;
    for (int64_t i = count - 1; i >= 0; --i) {
      later += m.decayGradient[i];
      *token(rule.decayGradient, head, i) += later;
      *token(rule.betaGradient, head, i) += m.betaGradient[i];
      const int64_t at = i * m.keyStride;
      addNormalized(m.key + at, m.keyGradient + at, m.keyScale[i], T(1),
                    token(rule.keyGradient, keyHead, i), m.keys);
      if (queries) {
        addNormalized(m.query + at, m.queryGradient + at, m.queryScale[i],
                      this->queryFactor, token(rule.queryGradient, keyHead, i),
                      m.keys);
      }
    }
  }

  T *const ownState, *const ownWritten;
  bool gradientIsZero = true; ///< stateGradient, still
};

} // namespace hp::fused::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif // HP_LIB_RUNTIME_KERNELS_FUSED_DELTARULEADJOINT_INL_H
