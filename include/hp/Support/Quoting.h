//===- Quoting.h - Names and text inside a message --------------*- C++ -*-===//

#ifndef HP_SUPPORT_QUOTING_H
#define HP_SUPPORT_QUOTING_H

#include "llvm/ADT/StringRef.h"
#include <string>

namespace hp {

/// `text` in single quotes for a message: control characters and bytes that
/// are not UTF-8 as \xNN, long text cut, so that a message stays one line.
std::string quoteForMessage(llvm::StringRef text);

} // namespace hp

#endif // HP_SUPPORT_QUOTING_H
