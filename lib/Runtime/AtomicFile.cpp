//===- AtomicFile.cpp - Files that appear whole or not at all -------------===//

#include "hp/Runtime/AtomicFile.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Errno.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <unistd.h>

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;
namespace fs = llvm::sys::fs;
using llvm::sys::StrError;

/// Writes below this size are joined to one of about this size.
static constexpr size_t bufferBytes = 64 * 1024;

/// The folder that holds `path`, "." for a plain name.
static StringRef folderOf(StringRef path) {
  StringRef parent = llvm::sys::path::parent_path(path);
  return parent.empty() ? StringRef(".") : parent;
}

//===----------------------------------------------------------------------===//
// Folders
//===----------------------------------------------------------------------===//

bool hp::syncFolder(StringRef folder, DiagnosticEngine &diag) {
  Location loc = diag.location(folder, 0, 0);
  int descriptor =
      ::open(folder.str().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return diag.error(loc) << "cannot open folder '" << folder
                           << "': " << StrError(errno);
  }
  int code = ::fsync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  if (code != 0 && code != EINVAL && code != ENOTSUP && code != EROFS) {
    return diag.error(loc) << "cannot sync folder '" << folder
                           << "': " << StrError(code);
  }
  return true;
}

bool hp::createFolder(StringRef folder, DiagnosticEngine &diag) {
  Location loc = diag.location(folder, 0, 0);
  if (folder.contains('\0')) {
    return diag.error(loc) << "a path cannot hold a NUL byte";
  }
  // The parents that get a new entry, innermost first.
  std::vector<StringRef> changed;
  for (StringRef at = folder; !at.empty() && at != "." && !fs::exists(at);
       at = llvm::sys::path::parent_path(at)) {
    changed.push_back(folderOf(at));
  }
  if (std::error_code code = fs::create_directories(folder)) {
    return diag.error(loc) << "cannot make folder '" << folder
                           << "': " << code.message();
  }
  for (StringRef parent : changed) {
    if (!syncFolder(parent, diag)) {
      return false;
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// AtomicFile
//===----------------------------------------------------------------------===//

std::unique_ptr<AtomicFile> AtomicFile::create(StringRef path,
                                               DiagnosticEngine &diag) {
  static std::atomic<unsigned> counter{0};
  Location loc = diag.location(path, 0, 0);
  if (path.empty() || path.contains('\0')) {
    diag.error(loc) << "cannot write a file with "
                    << (path.empty() ? "an empty name"
                                     : "a NUL byte in its name");
    return nullptr;
  }
  if (fs::is_directory(path)) {
    diag.error(loc) << "cannot write '" << path << "': it is a folder";
    return nullptr;
  }
  // Renaming over a device or a pipe would take it from everybody.
  if (fs::exists(path) && !fs::is_regular_file(path)) {
    diag.error(loc) << "cannot write '" << path
                    << "': it is not a regular file";
    return nullptr;
  }
  StringRef folder = folderOf(path);
  if (!createFolder(folder, diag)) {
    return nullptr;
  }
  std::unique_ptr<AtomicFile> file(new AtomicFile(path.str(), diag));
  // A name of a process that was killed may be taken: go on to the next.
  for (int attempt = 0; attempt < 1000 && file->descriptor < 0; ++attempt) {
    llvm::SmallString<256> name(folder);
    llvm::sys::path::append(name, ".hp-" + llvm::Twine(::getpid()) + "-" +
                                      llvm::Twine(counter++) + ".tmp");
    file->temporary = name.str().str();
    file->descriptor = ::open(file->temporary.c_str(),
                              O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file->descriptor < 0 && errno != EEXIST && errno != EINTR) {
      break;
    }
  }
  if (file->descriptor < 0) {
    file->fail("write", errno);
    return nullptr;
  }
  return file;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor >= 0) {
    ::close(descriptor);
    descriptor = -1;
    ::unlink(temporary.c_str());
  }
}

bool AtomicFile::fail(const char *doing, int code) {
  hasFailed = true;
  discard();
  return diag.error(diag.location(path, 0, 0))
         << "cannot " << doing << " '" << path << "': " << StrError(code);
}

bool AtomicFile::writeOut(ArrayRef<uint8_t> bytes) {
  // Linux writes at most 2 GiB a call.
  constexpr size_t largest = size_t(1) << 30;
  while (!bytes.empty()) {
    ssize_t count =
        ::write(descriptor, bytes.data(), std::min(bytes.size(), largest));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return fail("write", count < 0 ? errno : ENOSPC);
    }
    bytes = bytes.drop_front(count);
  }
  return true;
}

bool AtomicFile::flush() {
  bool done = writeOut(buffer);
  buffer.clear();
  return done;
}

bool AtomicFile::write(ArrayRef<uint8_t> bytes) {
  if (hasFailed || descriptor < 0) {
    return false;
  }
  written += bytes.size();
  if (buffer.size() + bytes.size() <= bufferBytes) {
    buffer.insert(buffer.end(), bytes.begin(), bytes.end());
    return true;
  }
  return flush() && writeOut(bytes);
}

bool AtomicFile::commit() {
  if (hasFailed || descriptor < 0 || !flush()) {
    return false;
  }
  if (::fsync(descriptor) != 0) {
    return fail("sync", errno);
  }
  // Some file systems report a full disk only here.
  int closed = ::close(descriptor);
  descriptor = -1;
  int code = closed != 0 ? errno : 0;
  if (code == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) {
    code = errno;
  }
  if (code != 0) {
    ::unlink(temporary.c_str());
    return fail("write", code);
  }
  return syncFolder(folderOf(path), diag);
}

bool hp::writeAtomically(StringRef path, StringRef bytes,
                         DiagnosticEngine &diag) {
  std::unique_ptr<AtomicFile> file = AtomicFile::create(path, diag);
  return file && file->write(bytes) && file->commit();
}
