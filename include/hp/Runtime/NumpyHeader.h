//===- NumpyHeader.h - The header of a .npy file ----------------*- C++ -*-===//
//
// The little of NumPy's array format that token files need: one dimension,
// little-endian unsigned elements, nothing before or after.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_NUMPYHEADER_H
#define HP_RUNTIME_NUMPYHEADER_H

#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <string>

namespace hp {

/// What the header of a one-dimensional array says.
struct NumpyHeader {
  std::string descr;   ///< element type, such as "<u2"
  uint64_t length = 0; ///< elements
  uint64_t bytes = 0;  ///< of the header; the elements follow
};

/// Whether the bytes start as a .npy file does.
bool startsAsNumpy(llvm::StringRef bytes);

/// Reads the header at the start of `bytes`, written as NumPy writes it (any
/// order of keys). False, with what is wrong in `problem`, for anything else
/// and for arrays of another rank.
bool readNumpyHeader(llvm::StringRef bytes, NumpyHeader &header,
                     std::string &problem);

} // namespace hp

#endif // HP_RUNTIME_NUMPYHEADER_H
