//===- DataKinds.h - The words of the `data` section ------------*- C++ -*-===//

#ifndef HP_SPEC_DATAKINDS_H
#define HP_SPEC_DATAKINDS_H

namespace hp {

/// `text`: a file, or a folder whose files (subfolders included, hidden ones
/// not) are joined by ascending path without a separator; a token is a byte.
/// `tokens`: a file of little-endian ids: a one-dimensional `.npy`, or, under
/// any other name, nothing but the ids.
enum class DataFormat { Text, Tokens };
/// Of a token file.
enum class TokenType { UInt16, UInt32 };
/// Windows of one stream, or rows that stand alone.
enum class DataLayout { Stream, Rows };

} // namespace hp

#endif // HP_SPEC_DATAKINDS_H
