//===- SafetensorsMutationTest.cpp - Broken files are refused cleanly -----===//
//
// Every mutation of a valid file is either refused with one error at the file,
// or stands a check of its own: its tensors fill the file exactly.
//
//===----------------------------------------------------------------------===//

#include "FormatsTesting.h"
#include "hp/Runtime/Safetensors.h"
#include "hp/Runtime/SafetensorsIndex.h"
#include <random>

using namespace hp;
using namespace hp::testing;

static const std::string headerText =
    R"({"__metadata__":{"format":"pt"},)"
    R"("layers.0.w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
    R"("layers.0.b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},)"
    R"("step":{"dtype":"I64","shape":[],"data_offsets":[32,40]},)"
    R"("none":{"dtype":"U8","shape":[3,0],"data_offsets":[40,40]}}   )";

static std::string seedFile() {
  std::string data;
  for (int i = 0; i < 40; ++i) {
    data.push_back(char(i * 7));
  }
  return safetensorsBytes(headerText, data);
}

namespace {
struct Counts {
  int accepted = 0;
  int refused = 0;
};
} // namespace

static void tryBytes(const std::string &bytes, Counts &counts) {
  CapturedDiagnostics diag;
  auto file = SafetensorsFile::fromBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(bytes, "m.safetensors"), diag);
  if (!file) {
    ++counts.refused;
    ASSERT_EQ(diag.messages.size(), 1u);
    ASSERT_EQ(diag.messages[0].rfind("m.safetensors: ", 0), 0u);
    ASSERT_LT(diag.messages[0].size(), 500u);
    return;
  }
  ++counts.accepted;
  ASSERT_TRUE(diag.messages.empty());
  uint64_t end = 0;
  for (const SafetensorsEntry &entry : file->entries()) {
    ASSERT_EQ(entry.begin, end);
    end = entry.end;
    uint64_t size = fileDTypeSize(entry.dtype);
    for (int64_t dim : entry.shape) {
      size *= uint64_t(dim);
    }
    ASSERT_EQ(size, entry.end - entry.begin);
    // Every byte can be read.
    unsigned sum = 0;
    for (uint8_t byte : file->bytes(entry)) {
      sum += byte;
    }
    ASSERT_LE(sum, 255u * size);
    ASSERT_EQ(file->find(entry.name), &entry);
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) {
    length = length << 8 | uint8_t(bytes[i]);
  }
  ASSERT_EQ(8 + length + end, bytes.size());
}

TEST(SafetensorsMutation, truncated_at_every_byte) {
  const std::string seed = seedFile();
  Counts counts;
  tryBytes(seed, counts);
  ASSERT_EQ(counts.accepted, 1);
  for (size_t size = 0; size < seed.size(); ++size) {
    tryBytes(seed.substr(0, size), counts);
  }
  EXPECT_EQ(counts.accepted, 1) << "only the whole file";
}

TEST(SafetensorsMutation, extended) {
  Counts counts;
  for (int extra = 1; extra < 40; ++extra) {
    tryBytes(seedFile() + std::string(extra, ' '), counts);
  }
  EXPECT_EQ(counts.accepted, 0);
}

TEST(SafetensorsMutation, every_single_bit) {
  Counts counts;
  const std::string seed = seedFile();
  for (size_t bit = 0; bit < seed.size() * 8; ++bit) {
    std::string bytes = seed;
    bytes[bit / 8] ^= char(1 << bit % 8);
    tryBytes(bytes, counts);
  }
  EXPECT_GE(counts.accepted, 40 * 8) << "flips in the data, at the least";
  EXPECT_GT(counts.refused, 1000);
}

TEST(SafetensorsMutation, random_edits) {
  const std::string seed = seedFile();
  std::mt19937 random(4711);
  Counts counts;
  for (int round = 0; round < 6000; ++round) {
    std::string bytes = seed;
    for (int edits = 1 + int(random() % 3); edits > 0; --edits) {
      size_t at = random() % bytes.size();
      size_t length = 1 + random() % 20;
      switch (random() % 5) {
      case 0:
        bytes[at] = char(random());
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(random() % bytes.size(), length));
        break;
      case 3:
        bytes[at] = "{}[]\",:0129-.e\\ "[random() % 16];
        break;
      default:
        bytes[random() % 8] = char(random());
      }
      if (bytes.size() < 8) {
        break;
      }
    }
    tryBytes(bytes, counts);
  }
  EXPECT_GT(counts.accepted, 50);
  EXPECT_GT(counts.refused, 3000);
}

/// Edits that keep the header's length right, so that most get past the JSON
/// and meet the checks behind it.
TEST(SafetensorsMutation, header_edits) {
  const std::string data = seedFile().substr(8 + headerText.size());
  const std::vector<std::string> replacements = {"0",
                                                 "1",
                                                 "2",
                                                 "3",
                                                 "24",
                                                 "32",
                                                 "40",
                                                 "41",
                                                 "-1",
                                                 "1.0",
                                                 "1e9",
                                                 "null",
                                                 "true",
                                                 "\"\"",
                                                 "[]",
                                                 "{}",
                                                 "[0]",
                                                 "[0,24]",
                                                 "\"F32\"",
                                                 "\"F64\"",
                                                 "9223372036854775807",
                                                 "18446744073709551615",
                                                 "99999999999999999999"};
  std::mt19937 random(815);
  Counts counts;
  for (int round = 0; round < 6000; ++round) {
    std::string header = headerText;
    for (int edits = 1 + int(random() % 3); edits > 0; --edits) {
      // A number, string or bracket of the header gives way.
      size_t at =
          header.find_first_of("0123456789\"[{", random() % header.size());
      if (at == std::string::npos) {
        continue;
      }
      size_t end = at + 1;
      if (header[at] == '"') {
        end = header.find('"', at + 1);
        end = end == std::string::npos ? header.size() : end + 1;
      } else if (std::isdigit(header[at])) {
        end = header.find_first_not_of("0123456789", at);
        end = end == std::string::npos ? header.size() : end;
      }
      header.replace(at, end - at,
                     replacements[random() % replacements.size()]);
    }
    tryBytes(safetensorsBytes(header, data), counts);
  }
  EXPECT_GT(counts.accepted, 20);
  EXPECT_GT(counts.refused, 3000);
}

TEST(SafetensorsMutation, index_files) {
  TemporaryFolder folder;
  writeFile(folder / "s1.safetensors", seedFile());
  const std::string seed =
      R"({"metadata":{"total_size":40,"x":[1,{"y":null}]},"weight_map":{)"
      R"("layers.0.w":"s1.safetensors","layers.0.b":"s1.safetensors",)"
      R"("step":"s1.safetensors","none":"s1.safetensors"}})";
  const std::string path = folder / "model.safetensors.index.json";
  std::mt19937 random(99);
  int accepted = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text = seed;
    for (int edits = int(random() % 3); edits > 0; --edits) {
      size_t at = random() % text.size();
      switch (random() % 3) {
      case 0:
        text[at] = char(random());
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      default:
        text.insert(at, text.substr(random() % text.size(), 1 + random() % 30));
      }
      if (text.empty()) {
        break;
      }
    }
    writeFile(path, text);
    CapturedDiagnostics diag;
    if (auto checkpoint = ShardedCheckpoint::open(path, diag)) {
      ++accepted;
      ASSERT_EQ(checkpoint->tensors().size(), 4u);
      ASSERT_TRUE(diag.messages.empty());
    } else {
      ++refused;
      ASSERT_FALSE(diag.messages.empty());
      ASSERT_EQ(diag.messages[0].rfind(path, 0), 0u) << diag.messages[0];
    }
  }
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 1000);
}
