//===- SplitInput.cpp - Several inputs in one file ------------------------===//

#include "hp/Support/SplitInput.h"

using namespace hp;
using llvm::StringRef;

std::optional<std::vector<std::string>>
hp::splitInput(StringRef text, StringRef file, DiagnosticEngine &diag) {
  // Each piece is padded to its place, so their number bounds the memory.
  constexpr size_t maxPieces = 1000;
  std::vector<std::string> pieces(1);
  unsigned line = 0;
  while (!text.empty()) {
    size_t end = text.find('\n');
    StringRef whole = text.take_front(end == StringRef::npos ? end : end + 1);
    text = text.drop_front(whole.size());
    ++line;
    if (whole.rtrim() != splitMarker) {
      pieces.back() += whole;
      continue;
    }
    if (pieces.size() == maxPieces) {
      diag.error(diag.location(file, line, 1))
          << "the file has more than " << maxPieces << " pieces";
      return std::nullopt;
    }
    pieces.emplace_back(line, '\n');
  }
  return pieces;
}
