//===- NumpyHeader.cpp - The header of a .npy file ------------------------===//

#include "hp/Runtime/NumpyHeader.h"
#include "hp/Runtime/JsonReader.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

static constexpr StringRef magic = "\x93NUMPY";

bool hp::startsAsNumpy(StringRef bytes) { return bytes.starts_with(magic); }

namespace {
/// A cursor over the header's Python literal.
struct LiteralReader {
  StringRef rest;

  void skipSpace() { rest = rest.ltrim(' '); }
  bool consume(StringRef token) {
    skipSpace();
    return rest.consume_front(token);
  }
  /// A string in single quotes, without escapes.
  bool readString(StringRef &value) {
    if (!consume("'")) {
      return false;
    }
    size_t end = rest.find('\'');
    if (end == StringRef::npos) {
      return false;
    }
    value = rest.take_front(end);
    rest = rest.drop_front(end + 1);
    return true;
  }
  bool readUnsigned(uint64_t &value) {
    skipSpace();
    StringRef digits = rest.take_while(llvm::isDigit);
    rest = rest.drop_front(digits.size());
    return !digits.getAsInteger(10, value);
  }
};
} // namespace

/// header ::= '{' ( key ':' value ',' )* '}' spaces newline, with the keys
/// 'descr': string, 'fortran_order': True | False, 'shape': '(' length ',' ')'
static bool readLiteral(StringRef text, NumpyHeader &header,
                        std::string &problem) {
  auto fail = [&](const Twine &what) {
    problem = what.str();
    return false;
  };
  const char *malformed = "its header is not a dictionary as NumPy writes it";
  LiteralReader reader{text};
  bool hasDescr = false, hasOrder = false, hasShape = false;
  if (!reader.consume("{")) {
    return fail(malformed);
  }
  while (!reader.consume("}")) {
    StringRef key;
    if (!reader.readString(key) || !reader.consume(":")) {
      return fail(malformed);
    }
    if (key == "descr" && !hasDescr) {
      StringRef descr;
      hasDescr = true;
      if (!reader.readString(descr)) {
        return fail("its elements have fields; plain integers are needed");
      }
      header.descr = descr.str();
    } else if (key == "fortran_order" && !hasOrder) {
      hasOrder = true;
      if (!reader.consume("False") && !reader.consume("True")) {
        return fail(malformed);
      }
    } else if (key == "shape" && !hasShape) {
      hasShape = true;
      if (!reader.consume("(")) {
        return fail(malformed);
      }
      if (!reader.readUnsigned(header.length) || !reader.consume(",") ||
          !reader.consume(")")) {
        return fail("its shape is not that of an array of one dimension, such "
                    "as (1000,)");
      }
    } else {
      return fail("its header has the key " + quoteForMessage(key) +
                  ", unknown or for the second time");
    }
    if (!reader.consume(",") && !reader.rest.ltrim(' ').starts_with("}")) {
      return fail(malformed);
    }
  }
  if (reader.rest.trim(' ') != "\n") {
    return fail("its header does not end in spaces and a line feed");
  }
  if (!hasDescr || !hasOrder || !hasShape) {
    return fail("its header lacks 'descr', 'fortran_order' or 'shape'");
  }
  return true;
}

bool hp::readNumpyHeader(StringRef bytes, NumpyHeader &header,
                         std::string &problem) {
  header = {};
  if (!startsAsNumpy(bytes) || bytes.size() < magic.size() + 2) {
    problem = "it does not start as a .npy file";
    return false;
  }
  unsigned major = uint8_t(bytes[6]), minor = uint8_t(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    problem = (Twine("its format is version ") + Twine(major) + "." +
               Twine(minor) + "; 1.0, 2.0 and 3.0 are known")
                  .str();
    return false;
  }
  // The header's length: two bytes in version 1, four later.
  unsigned lengthBytes = major == 1 ? 2 : 4;
  unsigned start = magic.size() + 2 + lengthBytes;
  uint64_t length = 0;
  if (bytes.size() >= start) {
    const char *at = bytes.data() + magic.size() + 2;
    length = major == 1 ? llvm::support::endian::read16le(at)
                        : llvm::support::endian::read32le(at);
  }
  if (bytes.size() < start || length > bytes.size() - start) {
    problem = "it ends inside its header";
    return false;
  }
  header.bytes = start + length;
  return readLiteral(bytes.substr(start, length), header, problem);
}
