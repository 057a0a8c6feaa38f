//===- JsonReader.h - A strict pull reader for untrusted JSON ---*- C++ -*-===//
//
// Reads JSON (RFC 8259) from files hp does not trust, where llvm::json is too
// kind: that parser recurses, keeps the last of duplicate keys, takes 1.0 for
// an integer and builds a tree some fifteen times the size of the text. Here
// the caller asks for what its format wants next:
//
//   JsonReader json(text);
//   std::string key;
//   if (json.beginObject()) {
//     while (json.nextKey(key)) {
//       json.readUnsigned(value);
//     }
//   }
//   json.expectEnd();
//   if (json.failed()) { ... json.message(), json.offset() ... }
//
// The first failure sticks: every later call returns false, so that it need
// be looked at once, after the loop.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_JSONREADER_H
#define HP_RUNTIME_JSONREADER_H

#include "hp/Support/Quoting.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/ADT/Twine.h"
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace hp {

class JsonReader {
public:
  /// Objects and arrays inside one another; deeper text is refused.
  static constexpr size_t maxDepth = 64;

  /// `text` must outlive the reader. Text that is not UTF-8 fails at once.
  explicit JsonReader(llvm::StringRef text);

  /// Enters an object.
  bool beginObject();
  /// Reads the next key of the innermost object and its colon. False at the
  /// end of the object, which is left, or on failure, a duplicate key included.
  bool nextKey(std::string &key);

  /// Enters an array.
  bool beginArray();
  /// True if the innermost array has another element; false at its end, which
  /// is left, or on failure.
  bool nextElement();

  /// Reads a string, escapes decoded. Half a surrogate pair is refused.
  bool readString(std::string &value);
  /// Reads an integer of 0 to 2^64-1, without sign, fraction or exponent.
  bool readUnsigned(uint64_t &value);
  /// Reads any value and forgets it. Needs no stack, however deep the text.
  bool skipValue();
  /// Fails unless only white space is left.
  bool expectEnd();

  /// Fails by the caller's own rule, at the value read last.
  bool fail(const llvm::Twine &what) { return failAt(tokenStart, what); }

  bool failed() const { return !error.empty(); }
  /// What is wrong; a phrase that fits after a colon.
  llvm::StringRef message() const { return error; }
  /// Where the failure is, in bytes from the start of the text.
  size_t offset() const { return errorOffset; }
  /// Line and column of a byte, both from 1.
  std::pair<unsigned, unsigned> lineAndColumn(size_t offset) const;

private:
  struct Level {
    bool isObject;
    bool isFirst = true;
    llvm::StringSet<> keys; ///< those seen so far, for duplicates
  };

  bool failAt(size_t where, const llvm::Twine &what);
  /// Skips white space and gives the next character, NUL at the end. Sets
  /// tokenStart.
  char peek();
  bool enter(char bracket, bool isObject);
  /// Common part of nextKey and nextElement: comma or closing bracket.
  bool advance(bool isObject);
  bool readEscape(std::string &value);
  bool readHex4(unsigned &unit);
  bool skipNumber();
  bool skipWord(llvm::StringRef word);

  llvm::StringRef text;
  size_t position = 0;
  size_t tokenStart = 0;
  std::vector<Level> levels;
  std::string error;
  size_t errorOffset = 0;
};

} // namespace hp

#endif // HP_RUNTIME_JSONREADER_H
