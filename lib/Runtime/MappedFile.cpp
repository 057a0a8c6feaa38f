//===- MappedFile.cpp - Input files, mapped read only ---------------------===//

#include "hp/Runtime/MappedFile.h"
#include "llvm/Support/FileSystem.h"

using namespace hp;
using llvm::StringRef;
namespace fs = llvm::sys::fs;

std::unique_ptr<llvm::MemoryBuffer>
hp::mapFile(StringRef path, DiagnosticEngine &diag, Location loc) {
  if (!loc) {
    loc = diag.location(path, 0, 0);
  }
  if (path.contains('\0')) {
    diag.error(loc) << "a path cannot hold a NUL byte";
    return nullptr;
  }
  // The kind is looked at before the file is opened: opening a pipe blocks, and
  // reading a device may never end.
  fs::file_status status;
  if (std::error_code code = fs::status(path, status)) {
    diag.error(loc) << "cannot open '" << path << "': " << code.message();
    return nullptr;
  }
  if (!fs::is_regular_file(status)) {
    diag.error(loc) << "'" << path << "' is "
                    << (fs::is_directory(status) ? "a folder"
                                                 : "not a regular file")
                    << "; a file is needed here";
    return nullptr;
  }
  auto buffer = llvm::MemoryBuffer::getFile(path, /*IsText=*/false,
                                            /*RequiresNullTerminator=*/false);
  if (!buffer) {
    diag.error(loc) << "cannot read '" << path
                    << "': " << buffer.getError().message();
    return nullptr;
  }
  return std::move(*buffer);
}
