//===- ModelMutationTest.cpp - Broken model specs do no harm --------------===//
//
// Cuts and changes the published spec at random places (fixed seed) and imports
// what still reads. Whatever happens is either a module that verifies or a
// located error.
//
//===----------------------------------------------------------------------===//

#include "ImportFixture.h"
#include <random>

using namespace hp;
using llvm::StringRef;

namespace {

class ModelMutationTest : public ImportFixture {
protected:
  void SetUp() override {
    auto buffer = llvm::MemoryBuffer::getFile(qwenPath);
    ASSERT_TRUE(buffer);
    text = (*buffer)->getBuffer().str();
  }

  void check(StringRef mutated) {
    log.lines.clear();
    unsigned before = log.diag.errorCount();
    auto read = parseModelSpec(mutated, "m", log.diag);
    auto module = read ? importFrom(*read, "micro") : nullptr;
    if (module) {
      EXPECT_TRUE(verify(*module, log.diag)) << log.text();
      ++imported;
      return;
    }
    EXPECT_GT(log.diag.errorCount(), before);
    EXPECT_TRUE(log.everythingLocated) << log.text();
  }

  std::string text;
  unsigned imported = 0;
};

TEST_F(ModelMutationTest, TruncatedAnywhere) {
  for (size_t size = 0; size < text.size(); size += 11) {
    check(StringRef(text).take_front(size));
  }
}

TEST_F(ModelMutationTest, LinesLeftOut) {
  llvm::SmallVector<StringRef> lines;
  StringRef(text).split(lines, '\n');
  for (size_t left = 0; left < lines.size(); ++left) {
    std::string mutated;
    for (size_t i = 0; i < lines.size(); ++i) {
      if (i != left) {
        mutated += lines[i].str() + "\n";
      }
    }
    check(mutated);
  }
  EXPECT_GT(imported, 10u); // comments, sharding of a weight
}

TEST_F(ModelMutationTest, BytesChanged) {
  std::mt19937 random(7);
  const StringRef characters = "$:{}[],-#*&!'\"0197.e \nabt\xff";
  for (unsigned i = 0; i < 1500; ++i) {
    std::string mutated = text;
    for (unsigned changes = 1 + random() % 3; changes > 0; --changes) {
      size_t at = random() % mutated.size();
      char byte = characters[random() % characters.size()];
      switch (random() % 3) {
      case 0:
        mutated[at] = byte;
        break;
      case 1:
        mutated.insert(at, 1, byte);
        break;
      case 2:
        mutated.erase(at, 1 + random() % 8);
        break;
      }
    }
    check(mutated);
  }
  EXPECT_GT(imported, 100u);
}

} // namespace
