//===- AtomicFileTest.cpp - Files appear whole or not at all --------------===//

#include "hp/Runtime/AtomicFile.h"
#include "FormatsTesting.h"
#include <csignal>
#include <sys/resource.h>
#include <sys/stat.h>

using namespace hp;
using namespace hp::testing;

TEST(AtomicFile, writes_small_and_large_parts_in_order) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  std::string expected;
  auto file = AtomicFile::create(folder / "a.bin", diag);
  ASSERT_TRUE(file);
  // Around the size at which writes are joined.
  for (size_t size : {1u, 0u, 65535u, 65536u, 65537u, 3u, 300000u, 7u}) {
    std::string part(size, char('a' + size % 26));
    ASSERT_TRUE(file->write(part));
    expected += part;
    EXPECT_EQ(file->size(), expected.size());
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "a.bin"));
  EXPECT_EQ(folder.names().size(), 1u) << "the temporary, in the same folder";
  ASSERT_TRUE(file->commit());
  EXPECT_EQ(readFile(folder / "a.bin"), expected);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a.bin"});
  EXPECT_TRUE(diag.messages.empty());
}

TEST(AtomicFile, replaces_only_at_commit) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  writeFile(folder / "a", "old");
  {
    auto file = AtomicFile::create(folder / "a", diag);
    ASSERT_TRUE(file && file->write(llvm::StringRef("new")));
    EXPECT_EQ(readFile(folder / "a"), "old");
  } // given up
  EXPECT_EQ(readFile(folder / "a"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(writeAtomically(folder / "a", "new", diag));
  EXPECT_EQ(readFile(folder / "a"), "new");
}

TEST(AtomicFile, makes_missing_folders) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  EXPECT_TRUE(writeAtomically(folder / "x/y/z.json", "{}", diag));
  EXPECT_EQ(readFile(folder / "x/y/z.json"), "{}");
}

TEST(AtomicFile, takes_the_usual_permissions) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  mode_t old = ::umask(027);
  EXPECT_TRUE(writeAtomically(folder / "a", "", diag));
  ::umask(old);
  struct stat status;
  ASSERT_EQ(::stat((folder / "a").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST(AtomicFile, two_writers_of_one_name_do_not_mix) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  auto first = AtomicFile::create(folder / "a", diag);
  auto second = AtomicFile::create(folder / "a", diag);
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->write(llvm::StringRef("first")));
  EXPECT_TRUE(second->write(llvm::StringRef("second")));
  EXPECT_TRUE(second->commit());
  EXPECT_TRUE(first->commit());
  EXPECT_EQ(readFile(folder / "a"), "first");
}

TEST(AtomicFile, a_leftover_temporary_is_stepped_over) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  auto probe = AtomicFile::create(folder / "a", diag);
  ASSERT_EQ(folder.names().size(), 1u);
  std::string name = folder.names()[0]; // .hp-<process>-<number>.tmp
  size_t dash = name.rfind('-');
  int number = std::stoi(name.substr(dash + 1));
  std::string next =
      name.substr(0, dash + 1) + std::to_string(number + 1) + ".tmp";
  writeFile(folder / next, "left by another");
  EXPECT_TRUE(writeAtomically(folder / "b", "content", diag));
  EXPECT_EQ(readFile(folder / "b"), "content");
  EXPECT_EQ(readFile(folder / next), "left by another");
}

/// Makes every file that passes `bytes` fail to grow.
class FileSizeLimit {
public:
  explicit FileSizeLimit(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &saved);
    handler = std::signal(SIGXFSZ, SIG_IGN);
    rlimit limit = saved;
    limit.rlim_cur = bytes;
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &saved);
    std::signal(SIGXFSZ, handler);
  }

private:
  rlimit saved;
  void (*handler)(int);
};

TEST(AtomicFile, a_failed_write_is_reported_once_and_leaves_the_old_file) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  writeFile(folder / "a", "old");
  {
    FileSizeLimit limit(1000);
    auto file = AtomicFile::create(folder / "a", diag);
    ASSERT_TRUE(file);
    EXPECT_FALSE(file->write(std::string(200000, 'x')));
    EXPECT_FALSE(file->write(llvm::StringRef("more")));
    EXPECT_FALSE(file->commit());
    EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
    EXPECT_EQ(diag.only(), (folder / "a") + ": cannot write '" +
                               (folder / "a") + "': File too large");
    // Bytes that were only joined fail at the commit.
    file = AtomicFile::create(folder / "b", diag);
    EXPECT_TRUE(file->write(std::string(2000, 'x')));
    EXPECT_FALSE(file->commit());
    EXPECT_CONTAINS(diag.only(), "cannot write");
  }
  EXPECT_EQ(readFile(folder / "a"), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(AtomicFile, refuses_what_cannot_be_written) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  writeFile(folder / "file", "");
  EXPECT_FALSE(writeAtomically(folder / "file/below", "", diag));
  EXPECT_CONTAINS(diag.only(), "Not a directory");
  EXPECT_FALSE(writeAtomically(folder / "file/x/below", "", diag));
  EXPECT_CONTAINS(diag.only(), "cannot make folder '" + (folder / "file/x'"));
  EXPECT_FALSE(writeAtomically(folder.path(), "", diag));
  EXPECT_CONTAINS(diag.only(), "it is a folder");
  EXPECT_FALSE(writeAtomically("", "", diag));
  EXPECT_CONTAINS(diag.only(), "an empty name");
  EXPECT_FALSE(writeAtomically(std::string("a\0b", 3), "", diag));
  EXPECT_CONTAINS(diag.only(), "a NUL byte");
  EXPECT_FALSE(writeAtomically(folder / std::string(300, 'n'), "", diag));
  EXPECT_CONTAINS(diag.only(), "File name too long");
  EXPECT_FALSE(writeAtomically("/proc/hp-none", "", diag));
  EXPECT_CONTAINS(diag.only(), "/proc/hp-none: cannot write '/proc/hp-none'");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"file"});
}

TEST(AtomicFile, refuses_a_folder_without_permission) {
  if (::geteuid() == 0) {
    GTEST_SKIP() << "root may write everywhere";
  }
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  std::filesystem::create_directory(folder / "locked");
  ::chmod((folder / "locked").c_str(), 0555);
  EXPECT_FALSE(writeAtomically(folder / "locked/a", "", diag));
  EXPECT_CONTAINS(diag.only(), "Permission denied");
}
