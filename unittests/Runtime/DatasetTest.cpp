//===- DatasetTest.cpp - Samples of text and token files ------------------===//

#include "hp/Runtime/Dataset.h"
#include "FormatsTesting.h"
#include <random>
#include <set>

using namespace hp;
using namespace hp::testing;

using Ids = std::vector<int64_t>;

namespace {
class DatasetFile : public ::testing::Test {
protected:
  DatasetFile() { options.path = folder / "data.bin"; }

  /// Little-endian tokens of `bytes` bytes each.
  static std::string pack(const std::vector<uint32_t> &ids, int bytes) {
    std::string result;
    for (uint32_t id : ids) {
      result += littleEndian(id, bytes);
    }
    return result;
  }
  static std::vector<uint32_t> upTo(uint32_t count) {
    std::vector<uint32_t> ids(count);
    for (uint32_t i = 0; i < count; ++i) {
      ids[i] = i;
    }
    return ids;
  }
  void useTokens(const std::vector<uint32_t> &ids,
                 TokenType dtype = TokenType::UInt16) {
    options.format = DataFormat::Tokens;
    options.dtype = dtype;
    writeFile(options.path, pack(ids, dtype == TokenType::UInt16 ? 2 : 4));
  }
  void useText(const std::string &text) {
    options.format = DataFormat::Text;
    writeFile(options.path, text);
  }
  /// A .npy file with that header dictionary, version 1.0, padded as NumPy
  /// does.
  static std::string npy(const std::string &dictionary,
                         const std::string &data) {
    std::string header = dictionary;
    while ((10 + header.size() + 1) % 64 != 0) {
      header += ' ';
    }
    header += '\n';
    return std::string("\x93NUMPY\x01\x00", 8) +
           littleEndian(header.size(), 2) + header + data;
  }

  std::unique_ptr<Dataset> open(int64_t vocabSize, int64_t seqLen) {
    return Dataset::open(options, vocabSize, seqLen, diag);
  }
  std::string refusal(int64_t vocabSize, int64_t seqLen) {
    EXPECT_FALSE(open(vocabSize, seqLen));
    return diag.only();
  }
  /// Tokens, then labels of a sample.
  std::pair<Ids, Ids> sample(const Dataset &data, uint64_t index) {
    Ids tokens(data.seqLen(), -1), labels(data.seqLen(), -1);
    EXPECT_TRUE(data.fill(index, tokens.data(), labels.data(), diag));
    return {tokens, labels};
  }

  TemporaryFolder folder;
  CapturedDiagnostics diag;
  DatasetOptions options;
};
} // namespace

TEST_F(DatasetFile, stream_windows_overlap_by_their_target) {
  useTokens(upTo(12));
  auto data = open(100, 4);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->tokenCount(), 12u);
  ASSERT_EQ(data->sampleCount(), 2u); // 0..4 and 4..8; 9..11 fill no window
  EXPECT_EQ(sample(*data, 0), std::pair(Ids({0, 1, 2, 3}), Ids({1, 2, 3, 4})));
  EXPECT_EQ(sample(*data, 1), std::pair(Ids({4, 5, 6, 7}), Ids({5, 6, 7, 8})));
  // Epochs repeat, to the largest index there is.
  EXPECT_EQ(sample(*data, 2), sample(*data, 0));
  EXPECT_EQ(sample(*data, ~uint64_t(0)), sample(*data, 1));
}

TEST_F(DatasetFile, stream_window_counts_at_the_edge) {
  for (uint32_t count = 1; count < 30; ++count) {
    useTokens(upTo(count));
    uint64_t windows = 0; // counted one by one
    for (uint32_t begin = 0; begin + 5 <= count; begin += 4) {
      ++windows;
    }
    if (windows == 0) {
      EXPECT_CONTAINS(refusal(100, 4), "holds " + std::to_string(count) +
                                           " tokens, but one window takes 5");
      continue;
    }
    auto data = open(100, 4);
    ASSERT_TRUE(data);
    EXPECT_EQ(data->sampleCount(), windows) << count;
    EXPECT_EQ(sample(*data, windows - 1).second.back(), int64_t(windows * 4));
  }
}

TEST_F(DatasetFile, rows_have_no_target_at_their_end) {
  useTokens(upTo(12));
  options.layout = DataLayout::Rows;
  auto data = open(100, 4);
  ASSERT_TRUE(data);
  ASSERT_EQ(data->sampleCount(), 3u);
  EXPECT_EQ(sample(*data, 2),
            std::pair(Ids({8, 9, 10, 11}), Ids({9, 10, 11, -100})));
  EXPECT_EQ(sample(*data, 3), sample(*data, 0));
  EXPECT_CONTAINS(refusal(100, 5),
                  "holds 12 tokens, not a multiple of rows of 5");
  auto single = open(100, 1);
  ASSERT_TRUE(single);
  EXPECT_EQ(sample(*single, 7), std::pair(Ids({7}), Ids({-100})));
}

TEST_F(DatasetFile, wide_tokens_are_unsigned) {
  const std::vector<uint32_t> ids = {4000000000u, 65535, 65536, 248319};
  useTokens(ids, TokenType::UInt32);
  auto data = open(4294967296, 3);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(*data, 0), std::pair(Ids({4000000000, 65535, 65536}),
                                        Ids({65535, 65536, 248319})));
  useTokens({65535, 40000});
  data = open(65536, 1);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(*data, 0), std::pair(Ids({65535}), Ids({40000})));
}

TEST_F(DatasetFile, text_is_bytes) {
  useText("A\n\xff\xc3");
  auto data = open(256, 3);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(*data, 0),
            std::pair(Ids({65, 10, 255}), Ids({10, 255, 195})));
  EXPECT_CONTAINS(refusal(255, 3), "text has 256 possible bytes, more than the "
                                   "vocabulary's 255 ids");
}

TEST_F(DatasetFile, text_folders_are_joined_by_path) {
  const std::filesystem::path root = folder / "text";
  std::filesystem::create_directories(root / "b/deep");
  std::filesystem::create_directories(root / ".hidden");
  writeFile(root / "b/deep/1.txt", "DE");
  writeFile(root / "b/0.txt", "C");
  writeFile(root / "a.txt", "AB");
  writeFile(root / "c.txt", "");
  writeFile(root / "d.txt", "FGHI");
  writeFile(root / ".hidden/x.txt", "no");
  writeFile(root / ".x", "no");
  std::filesystem::create_directory_symlink("..", root / "b/up");
  options.path = root.string();
  auto data = open(256, 2);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->tokenCount(), 9u);
  std::string text;
  for (uint64_t i = 0; i < data->sampleCount(); ++i) {
    auto [tokens, labels] = sample(*data, i);
    text += char(tokens[0]);
    text += char(tokens[1]);
    EXPECT_EQ(labels[0], tokens[1]);
    EXPECT_EQ(labels[1], tokens[1] + 1) << "the next file's first byte";
  }
  EXPECT_EQ(text, "ABCDEFGH");
}

TEST_F(DatasetFile, windows_across_many_small_files_equal_one_file) {
  std::mt19937 random(5);
  std::filesystem::create_directory(folder / "text");
  std::string text;
  for (int i = 0; i < 60; ++i) {
    std::string part(random() % 5, ' ');
    for (char &c : part) {
      c = char(random());
    }
    // Three digits, so that the order of names is that of the numbers.
    writeFile(folder / ("text/" + std::to_string(100 + i)), part);
    text += part;
  }
  useText(text);
  auto whole = open(256, 7);
  options.path = folder / "text";
  auto parts = open(256, 7);
  ASSERT_TRUE(whole && parts);
  ASSERT_EQ(whole->sampleCount(), parts->sampleCount());
  for (uint64_t i = 0; i < whole->sampleCount(); ++i) {
    EXPECT_EQ(sample(*whole, i), sample(*parts, i));
  }
}

/// The rows of each data-parallel rank, put together, are the global batch,
/// whatever the number of ranks (4 steps of global batch 8).
TEST_F(DatasetFile, samples_do_not_depend_on_the_world_size) {
  useTokens(upTo(1000));
  auto data = open(1000, 6);
  ASSERT_TRUE(data);
  const uint64_t globalBatch = 8;
  std::vector<std::pair<Ids, Ids>> expected;
  for (uint64_t i = 0; i < 4 * globalBatch; ++i) {
    expected.push_back(sample(*data, i));
  }
  for (uint64_t ranks : {1, 2, 4, 8}) {
    std::vector<std::pair<Ids, Ids>> seen(expected.size());
    for (uint64_t step = 0; step < 4; ++step) {
      for (uint64_t rank = 0; rank < ranks; ++rank) {
        // Each rank opens the data by itself.
        auto own = open(1000, 6);
        uint64_t local = globalBatch / ranks;
        for (uint64_t row = rank * local; row < (rank + 1) * local; ++row) {
          seen[step * globalBatch + row] =
              sample(*own, step * globalBatch + row);
        }
      }
    }
    EXPECT_EQ(seen, expected) << ranks;
  }
}

TEST_F(DatasetFile, ids_outside_the_vocabulary_are_errors) {
  std::vector<uint32_t> ids = upTo(13);
  ids[10] = 500;
  useTokens(ids);
  auto data = open(500, 4);
  ASSERT_TRUE(data);
  Ids tokens(4), labels(4);
  EXPECT_TRUE(data->fill(0, tokens.data(), labels.data(), diag));
  EXPECT_FALSE(data->fill(5, tokens.data(), labels.data(), diag)); // epoch 1
  EXPECT_EQ(diag.only(), options.path + ": token 10 of '" + options.path +
                             "' has the id 500, outside the vocabulary of 500 "
                             "(sample 5, position 2)");
  // Also where it is only a target.
  ids = upTo(5);
  ids[4] = 7;
  useTokens(ids);
  data = open(7, 4);
  ASSERT_TRUE(data);
  EXPECT_FALSE(data->fill(0, tokens.data(), labels.data(), diag));
  EXPECT_CONTAINS(diag.only(), "token 4 of");
}

TEST_F(DatasetFile, narrow_tokens_and_a_wide_vocabulary_are_refused_up_front) {
  useTokens(upTo(20));
  EXPECT_TRUE(open(65536, 4));
  options.pathLoc =
      static_cast<DiagnosticEngine &>(diag).location("c.yaml", 7, 9);
  options.dtypeLoc =
      static_cast<DiagnosticEngine &>(diag).location("c.yaml", 8, 9);
  EXPECT_EQ(refusal(248320, 4),
            "c.yaml:8:9: dtype uint16 cannot hold ids of a vocabulary of "
            "248320; use uint32");
}

TEST_F(DatasetFile, refuses_files_of_the_wrong_size) {
  options.format = DataFormat::Tokens;
  writeFile(options.path, std::string(21, 'x'));
  EXPECT_CONTAINS(refusal(65536, 4),
                  "has 21 bytes, not a multiple of the 2 of dtype uint16");
  options.dtype = TokenType::UInt32;
  writeFile(options.path, std::string(22, 'x'));
  EXPECT_CONTAINS(refusal(65536, 4),
                  "has 22 bytes, not a multiple of the 4 of dtype uint32");
  writeFile(options.path, "");
  EXPECT_CONTAINS(refusal(65536, 4), "holds no tokens");
  useText("");
  EXPECT_CONTAINS(refusal(65536, 4), "holds no tokens");
  useText("abc");
  EXPECT_CONTAINS(refusal(65536, 9223372036854775807),
                  "holds 3 tokens, but one window takes 9223372036854775808");
  EXPECT_CONTAINS(refusal(65536, 0), "both must be at least 1");
  EXPECT_CONTAINS(refusal(-1, 4), "both must be at least 1");
}

TEST_F(DatasetFile, refuses_paths_that_hold_no_data) {
  options.path = folder / "none";
  EXPECT_EQ(refusal(256, 4), options.path + ": cannot open '" + options.path +
                                 "': No such file or directory");
  options.pathLoc =
      static_cast<DiagnosticEngine &>(diag).location("c.yaml", 7, 9);
  EXPECT_EQ(refusal(256, 4), "c.yaml:7:9: cannot open '" + options.path +
                                 "': No such file or directory");
  options.format = DataFormat::Tokens;
  options.path = folder.path();
  EXPECT_CONTAINS(refusal(256, 4), "is a folder; a file is needed here");
  options.format = DataFormat::Text;
  EXPECT_CONTAINS(refusal(256, 4), "holds no tokens");
  options.path = "/dev/zero";
  EXPECT_CONTAINS(refusal(256, 4), "is not a regular file");
  ASSERT_EQ(::symlink("loop", (folder / "loop").c_str()), 0);
  options.path = folder / "loop";
  EXPECT_CONTAINS(refusal(256, 4), "cannot open");
}

//===----------------------------------------------------------------------===//
// .npy
//===----------------------------------------------------------------------===//

static const char good[] =
    "{'descr': '<u2', 'fortran_order': False, 'shape': (6,), }";

TEST_F(DatasetFile, reads_numpy_files) {
  options.format = DataFormat::Tokens;
  options.path = folder / "t.npy";
  writeFile(options.path, npy(good, pack(upTo(6), 2)));
  auto data = open(100, 5);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->tokenCount(), 6u);
  EXPECT_EQ(sample(*data, 0).second, Ids({1, 2, 3, 4, 5}));

  // Version 2.0, uint32, another order of keys.
  const std::string header =
      "{'shape': (6,), 'descr': '<u4', 'fortran_order': False}  \n";
  writeFile(options.path, std::string("\x93NUMPY\x02\x00", 8) +
                              littleEndian(header.size(), 4) + header +
                              pack(upTo(6), 4));
  options.dtype = TokenType::UInt32;
  data = open(100, 5);
  ASSERT_TRUE(data);
  EXPECT_EQ(sample(*data, 0).first, Ids({0, 1, 2, 3, 4}));
}

TEST_F(DatasetFile, refuses_other_numpy_files) {
  options.format = DataFormat::Tokens;
  options.path = folder / "t.npy";
  auto refused = [&](const std::string &bytes) {
    writeFile(options.path, bytes);
    return refusal(100, 2);
  };
  const std::string ids = pack(upTo(6), 2);
  EXPECT_CONTAINS(
      refused(npy("{'descr': '<i8', 'fortran_order': False, 'shape': (6,), }",
                  pack(upTo(6), 8))),
      "holds elements of type '<i8'; dtype uint16 needs '<u2'");
  EXPECT_CONTAINS(
      refused(npy("{'descr': '>u2', 'fortran_order': False, 'shape': (6,), }",
                  ids)),
      "'>u2'; dtype uint16 needs '<u2'");
  for (const char *shape :
       {"(2, 3)", "(2, 3,)", "()", "(6)", "(-6,)", "(99999999999999999999,)"}) {
    EXPECT_CONTAINS(refused(npy("{'descr': '<u2', 'fortran_order': False, "
                                "'shape': " +
                                    std::string(shape) + ", }",
                                ids)),
                    "its shape is not that of an array of one dimension");
  }
  EXPECT_CONTAINS(refused(npy("{'descr': [('a', '<u2')], 'fortran_order': "
                              "False, 'shape': (6,), }",
                              ids)),
                  "its elements have fields");
  EXPECT_CONTAINS(refused(npy(good, ids + "x")),
                  "holds 13 bytes after its header, which promises 6 elements "
                  "of 2 bytes");
  EXPECT_CONTAINS(refused(npy(good, ids.substr(2))), "holds 10 bytes");
  EXPECT_CONTAINS(
      refused(npy("{'descr': '<u2', 'fortran_order': False, 'shape': "
                  "(9223372036854775808,), }",
                  ids)),
      "promises 9223372036854775808 elements");
  EXPECT_CONTAINS(refused(npy("{'descr': '<u2', 'shape': (6,), }", ids)),
                  "lacks");
  EXPECT_CONTAINS(refused(npy("{'descr': '<u2', 'descr': '<u2'}", ids)),
                  "the key 'descr', unknown or for the second time");
  EXPECT_CONTAINS(refused(npy("[]", ids)), "not a dictionary");
  EXPECT_CONTAINS(refused(npy("{'descr' '<u2'}", ids)), "not a dictionary");
  EXPECT_CONTAINS(refused(npy(std::string(good) + "x", ids)),
                  "does not end in spaces");
  EXPECT_CONTAINS(refused(ids), "does not start as a .npy file");
  EXPECT_CONTAINS(refused(std::string("\x93NUMPY\x04\x00xxxxxx", 14)),
                  "version 4.0");
  EXPECT_CONTAINS(refused(std::string("\x93NUMPY\x01\x00\xff\xff{", 11)),
                  "ends inside its header");
  options.path = folder / "t.bin";
  EXPECT_CONTAINS(refused(npy(good, ids)),
                  "starts as a .npy file; give it that ending");
}

TEST_F(DatasetFile, damaged_numpy_files_do_no_harm) {
  options.format = DataFormat::Tokens;
  options.path = folder / "t.npy";
  const std::string seed = npy(good, pack(upTo(6), 2));
  std::mt19937 random(31);
  int refused = 0;
  for (size_t round = 0; round < seed.size() + 3000; ++round) {
    std::string bytes = seed;
    if (round < seed.size()) {
      bytes.resize(round);
    } else {
      bytes[random() % 75] = char(random());
    }
    writeFile(options.path, bytes);
    auto data = open(65536, 5);
    refused += !data;
    if (data) {
      EXPECT_EQ(data->tokenCount(), 6u);
      sample(*data, random());
    } else {
      diag.only();
    }
  }
  EXPECT_GT(refused, 1500);
}

//===----------------------------------------------------------------------===//
// Fingerprint
//===----------------------------------------------------------------------===//

TEST_F(DatasetFile, the_fingerprint_sees_every_byte_and_no_path) {
  auto fingerprint = [&] { return open(65536, 4)->fingerprint(); };
  const std::string text(300, 'x');
  useText(text);
  const uint64_t original = fingerprint();
  EXPECT_EQ(fingerprint(), original);
  std::set<uint64_t> seen = {original};
  for (size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = 'y';
    useText(changed);
    EXPECT_TRUE(seen.insert(fingerprint()).second) << at;
  }
  useText(text + "x");
  EXPECT_TRUE(seen.insert(fingerprint()).second);
  useText(text);
  options.layout = DataLayout::Rows;
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "another layout";
  options.layout = DataLayout::Stream;
  options.format = DataFormat::Tokens;
  EXPECT_TRUE(seen.insert(fingerprint()).second) << "another element type";
  options.dtype = TokenType::UInt32;
  EXPECT_TRUE(seen.insert(fingerprint()).second);
  options.path = folder / "elsewhere";
  useText(text);
  EXPECT_EQ(fingerprint(), original);
}

TEST_F(DatasetFile, the_fingerprint_of_huge_files_samples_both_ends) {
  const uint64_t size = Dataset::wholeBytes + 12345;
  auto fingerprint = [&](uint64_t changedAt) {
    writeFile(options.path, "");
    std::filesystem::resize_file(options.path, size); // sparse
    std::fstream stream(options.path,
                        std::ios::binary | std::ios::in | std::ios::out);
    stream.seekp(std::streamoff(changedAt));
    stream.put('y');
    stream.close();
    return open(256, 4)->fingerprint();
  };
  std::set<uint64_t> seen;
  for (uint64_t at :
       {uint64_t(0), Dataset::blockBytes - 1, size / 2, size - 1}) {
    EXPECT_TRUE(seen.insert(fingerprint(at)).second) << at;
  }
  // The gap between the first two blocks is about 12345 / 63 bytes, and is the
  // price of sampling.
  EXPECT_EQ(fingerprint(Dataset::blockBytes + 100),
            fingerprint(Dataset::blockBytes + 120));
}
