//===- Quoting.cpp - Names and text inside a message ----------------------===//

#include "hp/Support/Quoting.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include <algorithm>

using llvm::StringRef;

std::string hp::quoteForMessage(StringRef text) {
  constexpr size_t limit = 120;
  bool isText = llvm::json::isUTF8(text);
  size_t cut = std::min(limit, text.size());
  // Not in the middle of a character.
  while (isText && cut < text.size() && (unsigned char)text[cut] >> 6 == 2) {
    --cut;
  }
  std::string result = "'";
  for (char c : text.take_front(cut)) {
    unsigned char byte = c;
    if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !isText)) {
      result += "\\x";
      result += llvm::hexdigit(byte >> 4);
      result += llvm::hexdigit(byte & 15);
    } else {
      result += c;
    }
  }
  return result + (cut < text.size() ? "...'" : "'");
}
