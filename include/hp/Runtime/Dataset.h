//===- Dataset.h - Training data by global sample index ---------*- C++ -*-===//
//
// Token sequences from text or token files. A sample is named by its *global
// sample index*,
//
//   step * global_batch_size + row in the global batch,
//
// and holds the same tokens under every layout, world size and resumption: a
// rank asks for the rows it computes, peers that share rows ask for the same.
// Samples come in the order of the data, epoch after epoch (index modulo
// sampleCount()); there is no shuffling.
//
//   layout   sample i of T tokens                       target of position t
//   stream   tokens [i*S, i*S + S], so it overlaps the  token t+1 of the S+1
//            next by one; (T-1)/S samples
//   rows     tokens [i*S, i*S + S); T/S samples         token t+1 of the row;
//                                                       none at t = S-1
//
// where S is the sequence length. In layout `stream`, the up to S-1 tokens (and
// last target) that fill no window are unused.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_DATASET_H
#define HP_RUNTIME_DATASET_H

#include "hp/Spec/DataKinds.h"
#include "hp/Support/Diagnostics.h"
#include "llvm/Support/MemoryBuffer.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hp {

struct DatasetOptions {
  DataFormat format = DataFormat::Text;
  std::string path;
  TokenType dtype = TokenType::UInt16; ///< of `tokens`
  DataLayout layout = DataLayout::Stream;
  /// Where the run config says so, for errors; the file itself if empty.
  Location pathLoc = {}, dtypeLoc = {};
};

/// An open data set, mapped and not copied. Reading is const and may be done
/// from several threads.
class Dataset {
public:
  /// Target of a position that has none.
  static constexpr int64_t ignoredLabel = -100;

  /// Opens and checks all that can be checked without reading every token.
  /// `vocabSize` and `seqLen` must be at least 1. Null and an error otherwise.
  static std::unique_ptr<Dataset> open(const DatasetOptions &options,
                                       int64_t vocabSize, int64_t seqLen,
                                       DiagnosticEngine &diag);

  /// Samples in one epoch; at least 1.
  uint64_t sampleCount() const { return samples; }
  uint64_t tokenCount() const { return count; }
  int64_t seqLen() const { return sequence; }

  /// Writes the seqLen() tokens and targets of a sample, whose index may be any
  /// number. False, and an error, if an id is not below the vocabulary's size;
  /// the arrays are then half written.
  bool fill(uint64_t sampleIndex, int64_t *tokens, int64_t *labels,
            DiagnosticEngine &diag) const;

  /// A hash of layout, element type, sizes and contents, for a resumed run to
  /// refuse data that changed; paths do not enter. Contents of more than
  /// `wholeBytes` are sampled: `sampledBlocks` blocks of `blockBytes` evenly
  /// spread from the first byte to the last, so that a change between them
  /// that keeps the size goes unnoticed.
  uint64_t fingerprint() const;
  static constexpr uint64_t blockBytes = uint64_t(1) << 20;
  static constexpr uint64_t sampledBlocks = 64;
  static constexpr uint64_t wholeBytes = blockBytes * sampledBlocks;

private:
  /// Tokens of one file.
  struct Piece {
    std::unique_ptr<llvm::MemoryBuffer> buffer;
    llvm::StringRef bytes; ///< the tokens' part of the buffer
    uint64_t first = 0;    ///< tokens in the pieces before
  };
  Dataset() = default;
  bool openText(const DatasetOptions &options, DiagnosticEngine &diag);
  bool openTokens(const DatasetOptions &options, DiagnosticEngine &diag);
  bool checkSize(const DatasetOptions &options, DiagnosticEngine &diag);
  bool addPiece(llvm::StringRef path, DiagnosticEngine &diag, Location loc);
  uint64_t tokenAt(const Piece &piece, uint64_t index) const;

  std::vector<Piece> pieces;
  unsigned elementBytes = 1;
  DataLayout layout = DataLayout::Stream;
  int64_t vocabulary = 0;
  int64_t sequence = 0;
  uint64_t count = 0;   ///< tokens
  uint64_t samples = 0; ///< in an epoch
};

} // namespace hp

#endif // HP_RUNTIME_DATASET_H
