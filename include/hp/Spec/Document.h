//===- Document.h - One guarded tree from YAML or JSON ----------*- C++ -*-===//
//
// Model specs, run configurations and Hugging Face configs all come in through
// here: YAML (or JSON, which is YAML too) becomes a tree of Nodes, each with
// its place in the text. What YAML allows and a configuration should not hold
// is refused with a located error: duplicate keys, merge keys, anchors and
// aliases, tags, several documents, keys that are not words, nesting deeper
// than `maxDocumentDepth`, texts larger than `maxDocumentBytes`, control
// characters and invalid UTF-8. No text, however broken, throws or recurses
// without bound. CRLF line ends and a UTF-8 byte order mark are accepted.
//
// The tree keeps scalars as text. TypedReading.h turns them into numbers.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_DOCUMENT_H
#define HP_SPEC_DOCUMENT_H

#include "hp/Support/Diagnostics.h"
#include "hp/Support/Quoting.h"
#include <optional>
#include <string>
#include <vector>

namespace hp {

/// Levels of lists and maps that a document may nest.
constexpr unsigned maxDocumentDepth = 64;
/// Bytes that a document may have. The parser can hold about a hundred times
/// as much while it looks for the end of a bracket.
constexpr size_t maxDocumentBytes = size_t(1) << 20;

struct MapEntry;

/// A value of a document. A value left out (`key:` and nothing after it) is
/// Null, and its place is that of its key.
struct Node {
  enum class Kind { Null, Scalar, Sequence, Map };

  Kind kind = Kind::Null;
  Location loc;
  std::string text;              ///< Scalar: after unquoting and unfolding.
  bool quoted = false;           ///< Scalar: quoted or a block; never a number.
  std::vector<Node> items;       ///< Sequence.
  std::vector<MapEntry> entries; ///< Map, in the order of the text.

  bool isNull() const { return kind == Kind::Null; }
  bool isScalar() const { return kind == Kind::Scalar; }
  bool isSequence() const { return kind == Kind::Sequence; }
  bool isMap() const { return kind == Kind::Map; }

  /// The value of `key` in a Map; null if absent or if this is no Map.
  const Node *find(llvm::StringRef key) const;
  Node *find(llvm::StringRef key);

  static Node makeScalar(llvm::StringRef text, Location loc,
                         bool quoted = false);
};

struct MapEntry {
  std::string key;
  Location keyLoc;
  Node value;
};

/// Reads the file at `path`, whose text is given to `diag` for carets.
std::optional<Node> readDocument(llvm::StringRef path, DiagnosticEngine &diag);

/// Reads `text`, whose first character is at `start`. The caller gives the
/// text to `diag` if carets are wanted.
std::optional<Node> parseDocument(llvm::StringRef text, Location start,
                                  DiagnosticEngine &diag);

/// Prints `node` on one line as YAML flow (`{a: 1, b: [2, "x y"]}`), which
/// parseDocument reads back to the same tree.
void printFlow(const Node &node, llvm::raw_ostream &os);

/// Prints `text` as one YAML scalar that readString reads back: plain where
/// that is safe, in double quotes otherwise.
void printScalar(llvm::StringRef text, llvm::raw_ostream &os);

/// What `node` is, for a message: `'2.0'`, `a list`, `a map`, `nothing`.
std::string describe(const Node &node);

} // namespace hp

#endif // HP_SPEC_DOCUMENT_H
