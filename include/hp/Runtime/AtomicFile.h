//===- AtomicFile.h - Files that appear whole or not at all -----*- C++ -*-===//
//
// Writes to a temporary name in the folder of the file; commit() syncs it,
// renames it over the file's own name and syncs the folder. Whoever opens the
// name sees the old content or the new one, also after a crash or power loss.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_ATOMICFILE_H
#define HP_RUNTIME_ATOMICFILE_H

#include "hp/Support/Diagnostics.h"
#include "llvm/ADT/ArrayRef.h"
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace hp {

/// A file being written. Unless commit() succeeds, the destructor removes the
/// temporary and whatever was at `path` before stays. Only a killed process
/// leaves a temporary behind, named `.hp-<process>-<number>.tmp`.
class AtomicFile {
public:
  /// Starts to write `path`, making missing folders. Null, and an error at the
  /// file, if that cannot be.
  static std::unique_ptr<AtomicFile> create(llvm::StringRef path,
                                            DiagnosticEngine &diag);
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  /// Appends bytes. The first failure is reported (disk full, for one); after
  /// it, every call returns false and commit() does too.
  bool write(llvm::ArrayRef<uint8_t> bytes);
  bool write(llvm::StringRef bytes) {
    return write(llvm::ArrayRef(bytes.bytes_begin(), bytes.size()));
  }

  /// Bytes given to write() so far.
  uint64_t size() const { return written; }

  /// Puts the file in its place. Call once, at the end.
  bool commit();

private:
  AtomicFile(std::string path, DiagnosticEngine &diag)
      : path(std::move(path)), diag(diag) {}
  bool fail(const char *doing, int code);
  bool flush();
  bool writeOut(llvm::ArrayRef<uint8_t> bytes);
  void discard();

  std::string path;
  std::string temporary;
  DiagnosticEngine &diag;
  int descriptor = -1;
  uint64_t written = 0;
  std::vector<uint8_t> buffer; ///< joins small writes
  bool hasFailed = false;
};

/// Writes a whole file at once, as AtomicFile does.
bool writeAtomically(llvm::StringRef path, llvm::StringRef bytes,
                     DiagnosticEngine &diag);

/// Makes `folder` and its missing parents, and syncs what it made.
bool createFolder(llvm::StringRef folder, DiagnosticEngine &diag);

/// Makes renames and new files in `folder` last through a power loss. Where the
/// file system cannot sync folders, that is not an error.
bool syncFolder(llvm::StringRef folder, DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_ATOMICFILE_H
