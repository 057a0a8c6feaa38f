//===- Dataset.cpp - Training data by global sample index -----------------===//

#include "hp/Runtime/Dataset.h"
#include "hp/Runtime/MappedFile.h"
#include "hp/Runtime/NumpyHeader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

using namespace hp;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;
namespace endian = llvm::support::endian;

static StringRef dtypeName(TokenType dtype) {
  return dtype == TokenType::UInt16 ? "uint16" : "uint32";
}

/// How NumPy spells the type.
static StringRef numpyName(TokenType dtype) {
  return dtype == TokenType::UInt16 ? "<u2" : "<u4";
}

/// Where complaints about the data as a whole point.
static Location pathLocation(const DatasetOptions &options,
                             DiagnosticEngine &diag) {
  return options.pathLoc ? options.pathLoc : diag.location(options.path, 0, 0);
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

std::unique_ptr<Dataset> Dataset::open(const DatasetOptions &options,
                                       int64_t vocabSize, int64_t seqLen,
                                       DiagnosticEngine &diag) {
  Location loc = pathLocation(options, diag);
  if (vocabSize < 1 || seqLen < 1) {
    diag.error(loc) << "vocabulary of " << vocabSize
                    << " and sequence length of " << seqLen
                    << "; both must be at least 1";
    return nullptr;
  }
  std::unique_ptr<Dataset> data(new Dataset);
  data->layout = options.layout;
  data->vocabulary = vocabSize;
  data->sequence = seqLen;
  bool isText = options.format == DataFormat::Text;
  bool opened =
      isText ? data->openText(options, diag) : data->openTokens(options, diag);
  if (!opened || !data->checkSize(options, diag)) {
    return nullptr;
  }
  return data;
}

bool Dataset::addPiece(StringRef path, DiagnosticEngine &diag, Location loc) {
  std::unique_ptr<llvm::MemoryBuffer> buffer = mapFile(path, diag, loc);
  if (!buffer) {
    return false;
  }
  StringRef bytes = buffer->getBuffer();
  pieces.push_back({std::move(buffer), bytes, count});
  count += bytes.size() / elementBytes;
  return true;
}

/// The regular files in a folder and its subfolders by ascending path. Names
/// that start with a dot are left out, links to folders not followed.
static bool listFolder(StringRef folder, std::vector<std::string> &files,
                       Location loc, DiagnosticEngine &diag) {
  std::error_code code;
  for (fs::recursive_directory_iterator
           it(folder, code, /*follow_symlinks=*/false),
       end;
       it != end && !code; it.increment(code)) {
    if (path::filename(it->path()).starts_with(".")) {
      it.no_push();
    } else if (fs::is_regular_file(it->path())) {
      files.push_back(it->path());
    }
  }
  if (code) {
    return diag.error(loc) << "cannot list '" << folder
                           << "': " << code.message();
  }
  llvm::sort(files);
  return true;
}

bool Dataset::openText(const DatasetOptions &options, DiagnosticEngine &diag) {
  Location loc = pathLocation(options, diag);
  constexpr int64_t byteValues = 256;
  if (vocabulary < byteValues) {
    return diag.error(loc) << "text has " << byteValues
                           << " possible bytes, more than the vocabulary's "
                           << vocabulary << " ids";
  }
  if (!fs::is_directory(options.path)) {
    return addPiece(options.path, diag, options.pathLoc);
  }
  std::vector<std::string> files;
  if (!listFolder(options.path, files, loc, diag)) {
    return false;
  }
  for (const std::string &file : files) {
    if (!addPiece(file, diag, options.pathLoc)) {
      return false;
    }
  }
  return true;
}

bool Dataset::openTokens(const DatasetOptions &options,
                         DiagnosticEngine &diag) {
  Location loc = pathLocation(options, diag);
  constexpr int64_t uint16Values = 65536;
  if (options.dtype == TokenType::UInt16 && vocabulary > uint16Values) {
    return diag.error(options.dtypeLoc ? options.dtypeLoc : loc)
           << "dtype uint16 cannot hold ids of a vocabulary of " << vocabulary
           << "; use uint32";
  }
  elementBytes = options.dtype == TokenType::UInt16 ? 2 : 4;
  if (!addPiece(options.path, diag, options.pathLoc)) {
    return false;
  }
  Piece &piece = pieces.front();
  bool isNumpy = StringRef(options.path).ends_with(".npy");
  if (isNumpy) {
    NumpyHeader header;
    std::string problem;
    if (!readNumpyHeader(piece.bytes, header, problem)) {
      return diag.error(loc)
             << "cannot read '" << options.path << "': " << problem;
    }
    if (header.descr != numpyName(options.dtype)) {
      return diag.error(options.dtypeLoc ? options.dtypeLoc : loc)
             << "'" << options.path << "' holds elements of type '"
             << header.descr << "'; dtype " << dtypeName(options.dtype)
             << " needs '" << numpyName(options.dtype) << "'";
    }
    piece.bytes = piece.bytes.drop_front(header.bytes);
    if (piece.bytes.size() / elementBytes != header.length ||
        piece.bytes.size() % elementBytes != 0) {
      return diag.error(loc)
             << "'" << options.path << "' holds " << piece.bytes.size()
             << " bytes after its header, which promises " << header.length
             << " elements of " << elementBytes << " bytes";
    }
    count = header.length;
    return true;
  }
  if (startsAsNumpy(piece.bytes)) {
    return diag.error(loc) << "'" << options.path
                           << "' starts as a .npy file; give it that ending";
  }
  if (piece.bytes.size() % elementBytes != 0) {
    return diag.error(loc) << "'" << options.path << "' has "
                           << piece.bytes.size()
                           << " bytes, not a multiple of the " << elementBytes
                           << " of dtype " << dtypeName(options.dtype);
  }
  return true;
}

/// Counts the samples; an error if there is not one, or a broken one.
bool Dataset::checkSize(const DatasetOptions &options, DiagnosticEngine &diag) {
  Location loc = pathLocation(options, diag);
  const uint64_t length = sequence;
  if (count == 0) {
    return diag.error(loc) << "'" << options.path << "' holds no tokens";
  }
  if (layout == DataLayout::Rows) {
    if (count % length != 0) {
      return diag.error(loc) << "'" << options.path << "' holds " << count
                             << " tokens, not a multiple of rows of " << length;
    }
    samples = count / length;
    return true;
  }
  if (count - 1 < length) {
    return diag.error(loc) << "'" << options.path << "' holds " << count
                           << " tokens, but one window takes " << length + 1
                           << ", the sequence length and one more";
  }
  samples = (count - 1) / length;
  return true;
}

//===----------------------------------------------------------------------===//
// Samples
//===----------------------------------------------------------------------===//

uint64_t Dataset::tokenAt(const Piece &piece, uint64_t index) const {
  const char *at = piece.bytes.data() + index * elementBytes;
  switch (elementBytes) {
  case 1:
    return uint8_t(*at);
  case 2:
    return endian::read16le(at);
  default:
    return endian::read32le(at);
  }
}

bool Dataset::fill(uint64_t sampleIndex, int64_t *tokens, int64_t *labels,
                   DiagnosticEngine &diag) const {
  const uint64_t length = sequence;
  const bool hasLast = layout == DataLayout::Stream;
  const uint64_t begin = sampleIndex % samples * length;
  // The piece that holds `begin`: the last that starts at or before it and is
  // not empty, as those start where the next one does.
  auto piece = std::prev(
      llvm::upper_bound(pieces, begin, [](uint64_t at, const Piece &candidate) {
        return at < candidate.first;
      }));
  uint64_t pieceTokens = piece->bytes.size() / elementBytes;
  for (uint64_t t = 0; t < length + hasLast; ++t) {
    uint64_t inPiece = begin + t - piece->first;
    while (inPiece == pieceTokens) {
      ++piece;
      pieceTokens = piece->bytes.size() / elementBytes;
      inPiece = 0;
    }
    uint64_t id = tokenAt(*piece, inPiece);
    if (id >= uint64_t(vocabulary)) {
      StringRef file = piece->buffer->getBufferIdentifier();
      return diag.error(diag.location(file, 0, 0))
             << "token " << inPiece << " of '" << file << "' has the id " << id
             << ", outside the vocabulary of " << vocabulary << " (sample "
             << sampleIndex << ", position " << t << ")";
    }
    if (t < length) {
      tokens[t] = int64_t(id);
    }
    if (t > 0) {
      labels[t - 1] = int64_t(id);
    }
  }
  if (!hasLast) {
    labels[length - 1] = ignoredLabel;
  }
  return true;
}

uint64_t Dataset::fingerprint() const {
  std::string digest = "hp data 1"; // to change when the rule does
  auto add = [&](uint64_t number) {
    char bytes[8];
    endian::write64le(bytes, number);
    digest.append(bytes, sizeof(bytes));
  };
  uint64_t total = 0;
  add(elementBytes);
  add(uint64_t(layout));
  for (const Piece &piece : pieces) {
    total += piece.bytes.size();
    add(piece.bytes.size());
  }
  // Blocks of the joined contents: all of them, or some at even distances, of
  // which the last ends where the contents do.
  const bool isWhole = total <= wholeBytes;
  const uint64_t blocks =
      isWhole ? llvm::divideCeil(total, blockBytes) : sampledBlocks;
  const uint64_t lastStart = total - std::min(total, blockBytes);
  for (uint64_t block = 0; block < blocks; ++block) {
    uint64_t begin = isWhole
                         ? block * blockBytes
                         : lastStart / (blocks - 1) * block +
                               lastStart % (blocks - 1) * block / (blocks - 1);
    uint64_t end = std::min(begin + blockBytes, total);
    uint64_t pieceBegin = 0;
    for (const Piece &piece : pieces) {
      uint64_t pieceEnd = pieceBegin + piece.bytes.size();
      uint64_t from = std::max(begin, pieceBegin);
      uint64_t to = std::min(end, pieceEnd);
      if (from < to) {
        add(llvm::xxh3_64bits(
            piece.bytes.slice(from - pieceBegin, to - pieceBegin)));
      }
      pieceBegin = pieceEnd;
    }
  }
  return llvm::xxh3_64bits(digest);
}
