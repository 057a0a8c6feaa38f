//===- MappedFile.h - Input files, mapped read only -------------*- C++ -*-===//
//
// The one way the runtime opens an input file: a regular file, mapped and not
// copied (LLVM reads files below 16 KiB instead), or a located error.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_MAPPEDFILE_H
#define HP_RUNTIME_MAPPEDFILE_H

#include "hp/Support/Diagnostics.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>

namespace hp {

/// Maps the regular file `path`. The bytes are not null-terminated. Missing
/// paths, folders, pipes and devices are errors at `loc`, or, if that is
/// empty, at the file; null is returned then.
std::unique_ptr<llvm::MemoryBuffer>
mapFile(llvm::StringRef path, DiagnosticEngine &diag, Location loc = {});

} // namespace hp

#endif // HP_RUNTIME_MAPPEDFILE_H
