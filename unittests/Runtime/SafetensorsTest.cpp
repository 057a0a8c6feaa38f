//===- SafetensorsTest.cpp - Reading and writing one file -----------------===//

#include "hp/Runtime/Safetensors.h"
#include "FormatsTesting.h"
#include "hp/Runtime/AtomicFile.h"
#include <cstdlib>
#include <new>

using namespace hp;
using namespace hp::testing;

//===----------------------------------------------------------------------===//
// The largest single allocation of the program, for the tests below
//===----------------------------------------------------------------------===//

static size_t largestAllocation = 0;

[[gnu::noinline]] void *operator new(size_t size) {
  largestAllocation = std::max(largestAllocation, size);
  if (void *memory = std::malloc(size)) {
    return memory;
  }
  throw std::bad_alloc();
}
[[gnu::noinline]] void *operator new(size_t size,
                                     const std::nothrow_t &) noexcept {
  largestAllocation = std::max(largestAllocation, size);
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void *memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void *memory, size_t) noexcept {
  std::free(memory);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

static std::unique_ptr<SafetensorsFile> openBytes(const std::string &bytes,
                                                  DiagnosticEngine &diag) {
  return SafetensorsFile::fromBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(bytes, "f.safetensors"), diag);
}

/// The message that refuses these bytes, without the file's name.
static std::string refusal(const std::string &bytes) {
  CapturedDiagnostics diag;
  EXPECT_FALSE(openBytes(bytes, diag)) << bytes;
  std::string message = diag.only();
  EXPECT_EQ(message.rfind("f.safetensors: ", 0), 0u) << message;
  return message.substr(std::min<size_t>(message.size(), 15));
}

static std::string refusal(const std::string &header, const std::string &data) {
  return refusal(safetensorsBytes(header, data));
}

static const char twoTensors[] =
    R"({"__metadata__":{"format":"pt","z":""},)"
    R"("b":{"dtype":"F32","shape":[2,1],"data_offsets":[6,14]},)"
    R"("a":{"shape":[3],"data_offsets":[0,6],"dtype":"BF16"}} )";

TEST(Safetensors, gives_tensors_in_the_order_of_the_file) {
  CapturedDiagnostics diag;
  auto file = openBytes(safetensorsBytes(twoTensors, "aabbccDDDDEEEE"), diag);
  ASSERT_TRUE(file);
  ASSERT_EQ(file->entries().size(), 2u);
  const SafetensorsEntry &a = file->entries()[0], &b = file->entries()[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, FileDType::BF16);
  EXPECT_EQ(a.shape, (llvm::SmallVector<int64_t, 4>{3}));
  EXPECT_EQ(b.name, "b");
  EXPECT_EQ(b.dtype, FileDType::F32);
  EXPECT_EQ(b.shape, (llvm::SmallVector<int64_t, 4>{2, 1}));
  auto text = [&](const SafetensorsEntry &entry) {
    auto bytes = file->bytes(entry);
    return std::string(bytes.begin(), bytes.end());
  };
  EXPECT_EQ(text(a), "aabbcc");
  EXPECT_EQ(text(b), "DDDDEEEE");
  EXPECT_EQ(file->find("b"), &b);
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->metadata(),
            (SafetensorsMetadata{{"format", "pt"}, {"z", ""}}));
}

TEST(Safetensors, takes_empty_files_scalars_and_empty_tensors) {
  CapturedDiagnostics diag;
  EXPECT_TRUE(openBytes(safetensorsBytes("{}", ""), diag));
  EXPECT_TRUE(
      openBytes(safetensorsBytes("{\"__metadata__\":{}}   ", ""), diag));
  // Empty tensors at one offset come by name.
  auto file = openBytes(
      safetensorsBytes(
          R"({"y":{"dtype":"F64","shape":[2,0],"data_offsets":[0,0]},)"
          R"("s":{"dtype":"U8","shape":[],"data_offsets":[0,1]},)"
          R"("x":{"dtype":"F64","shape":[0],"data_offsets":[0,0]}})",
          "!"),
      diag);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->entries()[0].name, "x");
  EXPECT_EQ(file->entries()[1].name, "y");
  EXPECT_EQ(file->entries()[2].name, "s");
}

TEST(Safetensors, refuses_lengths_that_lie_without_allocating_them) {
  std::string body = safetensorsBytes(twoTensors, "aabbccDDDDEEEE").substr(8);
  largestAllocation = 0;
  EXPECT_EQ(refusal(littleEndian(~uint64_t(0), 8) + body),
            "header of 18446744073709551615 bytes; at most 100000000 are "
            "accepted");
  EXPECT_EQ(refusal(littleEndian(100'000'001, 8) + body),
            "header of 100000001 bytes; at most 100000000 are accepted");
  EXPECT_EQ(refusal(littleEndian(100'000'000, 8) + body),
            "header of 100000000 bytes, but only 164 bytes follow");
  EXPECT_EQ(refusal(littleEndian(body.size() + 1, 8) + body),
            "header of 165 bytes, but only 164 bytes follow");
  EXPECT_EQ(refusal(""), "not a safetensors file: 0 bytes, but the header's "
                         "length alone takes 8");
  EXPECT_EQ(refusal("1234567"), "not a safetensors file: 7 bytes, but the "
                                "header's length alone takes 8");
  EXPECT_EQ(refusal(littleEndian(0, 8)),
            "not a safetensors file: the header does not start with '{'");
  EXPECT_EQ(
      refusal(R"({"w":{"dtype":"F32","shape":[1099511627776],"data_offsets":)"
              R"([0,4398046511104]}})",
              "1234"),
      "tensor 'w': its bytes [0, 4398046511104) pass the end of the file, "
      "which has 4 bytes of data (at byte 84)");
  EXPECT_LT(largestAllocation, 10000u);
}

/// A header with one tensor 'w' of those JSON values.
static std::string oneTensor(const std::string &dtype, const std::string &shape,
                             const std::string &offsets) {
  return R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape +
         R"(,"data_offsets":)" + offsets + "}}";
}

TEST(Safetensors, refuses_bad_offsets) {
  const std::string f32 = "\"F32\"";
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "[4,0]"), "1234"),
                  "tensor 'w': 'data_offsets' begins after its end: [4, 0)");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "[4,8]"), "1234"),
                  "tensor 'w': its bytes [4, 8) pass the end of the file");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "[0,4]"), "123"),
                  "tensor 'w': its bytes [0, 4) pass the end of the file, "
                  "which has 3 bytes of data");
  EXPECT_EQ(refusal(oneTensor(f32, "[1]", "[0,4]"), "12345"),
            "1 bytes after the last tensor belong to none");
  EXPECT_EQ(refusal(oneTensor(f32, "[1]", "[1,5]"), "12345"),
            "tensor 'w': bytes [0, 1) before it belong to no tensor");
  EXPECT_EQ(refusal("{}", "x"), "1 bytes after the last tensor belong to none");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "[0]"), "1234"),
                  "tensor 'w': 'data_offsets' needs two numbers");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "[0,4,4]"), "1234"),
                  "tensor 'w': 'data_offsets' has more than two numbers");
  EXPECT_CONTAINS(
      refusal(oneTensor(f32, "[1]", "[18446744073709551612,0]"), "1234"),
      "begins after its end: [18446744073709551612, 0)");
  EXPECT_CONTAINS(
      refusal(oneTensor(f32, "[1]", "[0,18446744073709551620]"), "1234"),
      "tensor 'w': integer '18446744073709551620' does not fit in 64 bits");
}

TEST(Safetensors, refuses_overlaps_and_holes) {
  auto pair = [](const std::string &first, const std::string &second) {
    return R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + first +
           R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}";
  };
  EXPECT_EQ(refusal(pair("[0,4]", "[3,7]"), "1234567"),
            "tensor 'b': its bytes [3, 7) overlap those of 'a' [0, 4)");
  EXPECT_EQ(refusal(pair("[0,4]", "[0,4]"), "1234"),
            "tensor 'b': its bytes [0, 4) overlap those of 'a' [0, 4)");
  EXPECT_EQ(refusal(pair("[5,9]", "[0,4]"), "123456789"),
            "tensor 'a': bytes [4, 5) before it belong to no tensor");
  // An empty tensor inside another.
  EXPECT_EQ(refusal(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                    R"("b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})",
                    "1234"),
            "tensor 'b': its bytes [2, 2) overlap those of 'a' [0, 4)");
}

TEST(Safetensors, refuses_shapes_that_do_not_fit) {
  const std::string f32 = "\"F32\"", one = "[0,4]";
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[2]", one), "1234"),
                  "tensor 'w': its shape takes 8 bytes as F32, its "
                  "'data_offsets' give 4");
  // Products that come out right, or as 0, only modulo 2^64.
  for (const char *shape :
       {"[4611686018427387904,4]", "[4294967296,4294967296]",
        "[9223372036854775807,9223372036854775807,0]", "[2305843009213693953]",
        "[3,6148914691236517205,1]"}) {
    EXPECT_CONTAINS(refusal(oneTensor(f32, shape, one), "1234"),
                    "tensor 'w': the product of its dimensions overflows");
  }
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[9223372036854775808]", one), "1234"),
                  "tensor 'w': dimension 9223372036854775808 is too large");
  std::string ones = "[1";
  for (int i = 0; i < 63; ++i) {
    ones += ",1";
  }
  CapturedDiagnostics diag;
  EXPECT_TRUE(openBytes(
      safetensorsBytes(oneTensor(f32, ones + "]", one), "1234"), diag));
  EXPECT_CONTAINS(refusal(oneTensor(f32, ones + ",1]", one), "1234"),
                  "tensor 'w': more than 64 dimensions");
}

TEST(Safetensors, refuses_wrong_json_types) {
  const std::string f32 = "\"F32\"", one = "[0,4]";
  EXPECT_CONTAINS(refusal(oneTensor("\"F31\"", "[1]", one), "1234"),
                  "tensor 'w': unknown dtype 'F31'; known are BOOL, U8, ");
  EXPECT_CONTAINS(refusal(oneTensor("\"f32\"", "[1]", one), "1234"),
                  "tensor 'w': unknown dtype 'f32'");
  EXPECT_CONTAINS(refusal(oneTensor("32", "[1]", one), "1234"),
                  "tensor 'w': expected a string");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "1", one), "1234"),
                  "tensor 'w': expected an array");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[1]", "{}"), "1234"),
                  "tensor 'w': expected an array");
  for (const char *number : {"-1", "-0", "1.0", "1e0", "0.5"}) {
    EXPECT_CONTAINS(
        refusal(oneTensor(f32, std::string("[") + number + "]", one), "1234"),
        std::string("tensor 'w': expected a non-negative integer, not '") +
            number + "'");
  }
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[[1]]", one), "1234"),
                  "tensor 'w': expected a non-negative integer");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[null]", one), "1234"),
                  "tensor 'w': expected a non-negative integer");
  EXPECT_CONTAINS(refusal(oneTensor(f32, "[-1]", one), "1234"), "not '-1'");
  EXPECT_CONTAINS(refusal("{\"w\":[]}", ""), "tensor 'w': expected an object");
  EXPECT_CONTAINS(refusal("{\"w\":{}}", ""), "tensor 'w': 'dtype' is missing");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","data_offsets":[0,0]}})", ""),
                  "tensor 'w': 'shape' is missing");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtype":"U8","shape":[0]}})", ""),
                  "tensor 'w': 'data_offsets' is missing");
  EXPECT_CONTAINS(refusal(R"({"w":{"dtpye":"U8"}})", ""),
                  "tensor 'w': unknown key 'dtpye'");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":{"a":1}})", ""),
                  "header: expected a string (at byte 29)");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":"a"})", ""),
                  "header: expected an object");
}

TEST(Safetensors, refuses_duplicates) {
  const std::string entry =
      R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  EXPECT_CONTAINS(refusal("{\"w\":" + entry + ",\"w\":" + entry + "}", ""),
                  "header: duplicate key 'w'");
  EXPECT_CONTAINS(
      refusal("{\"w\":" + entry + ",\"\\u0077\":" + entry + "}", ""),
      "header: duplicate key 'w'");
  EXPECT_CONTAINS(
      refusal(R"({"w":{"dtype":"U8","shape":[0],"dtype":"I8"}})", ""),
      "tensor 'w': duplicate key 'dtype'");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":{"a":"","a":""}})", ""),
                  "header: duplicate key 'a'");
  EXPECT_CONTAINS(refusal(R"({"__metadata__":{},"__metadata__":{}})", ""),
                  "header: duplicate key '__metadata__'");
}

TEST(Safetensors, refuses_what_is_not_json) {
  EXPECT_CONTAINS(refusal("[]", ""), "does not start with '{'");
  EXPECT_CONTAINS(refusal(" {}", ""), "does not start with '{'");
  EXPECT_CONTAINS(refusal("{\"a\"", ""), "header: expected ':' after key 'a'");
  EXPECT_CONTAINS(refusal("{", ""), "header: expected a key in double quotes");
  EXPECT_CONTAINS(refusal("{}{}", ""), "header: more text after the end");
  EXPECT_CONTAINS(refusal(std::string("{}\0\0", 4), ""),
                  "header: more text after the end (at byte 10)");
  EXPECT_CONTAINS(refusal("{\"\xff\":{}}", ""),
                  "header: not UTF-8 text (at byte 10)");
  EXPECT_CONTAINS(refusal(std::string("{\"a\0b\":{}}", 10), ""),
                  "header: control character in a string");
  EXPECT_CONTAINS(
      refusal(R"({"a\u0000b":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
              ""),
      "tensor 'a\\x00b': a tensor's name cannot hold a NUL byte");
}

TEST(Safetensors, refuses_deep_nesting_without_recursion) {
  const std::string deep(5'000'000, '[');
  EXPECT_CONTAINS(refusal("{\"w\":" + deep, ""),
                  "tensor 'w': expected an object");
  EXPECT_CONTAINS(refusal(oneTensor("\"U8\"", deep, "[0,0]"), ""),
                  "tensor 'w': expected a non-negative integer");
  std::string objects;
  for (int i = 0; i < 1'000'000; ++i) {
    objects += "{\"a\":";
  }
  EXPECT_CONTAINS(refusal(objects, ""), "tensor 'a': unknown key 'a'");
  EXPECT_CONTAINS(refusal("{\"__metadata__\":{\"a\":" + deep, ""),
                  "header: expected a string");
}

TEST(Safetensors, messages_stay_short_for_long_names) {
  std::string message =
      refusal("{\"" + std::string(1'000'000, 'n') + "\":1}", "");
  EXPECT_LT(message.size(), 300u);
}

TEST(Safetensors, refuses_paths_that_are_no_files) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  EXPECT_FALSE(SafetensorsFile::open(folder / "none", diag));
  EXPECT_CONTAINS(diag.only(), "none': No such file or directory");
  EXPECT_FALSE(SafetensorsFile::open(folder.path(), diag));
  EXPECT_CONTAINS(diag.only(), "is a folder; a file is needed here");
  EXPECT_FALSE(SafetensorsFile::open("/dev/zero", diag));
  EXPECT_CONTAINS(diag.only(), "is not a regular file");
  EXPECT_FALSE(SafetensorsFile::open(std::string("a\0b", 3), diag));
  EXPECT_CONTAINS(diag.only(), "NUL byte");
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

static llvm::ArrayRef<uint8_t> bytesOf(llvm::StringRef text) {
  return {text.bytes_begin(), text.size()};
}

TEST(SafetensorsWriter, lays_out_by_alignment_then_name) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  std::vector<SafetensorsItem> items = {
      {"z", FileDType::U8, {3}, bytesOf("zzz")},
      {"m", FileDType::F32, {}, bytesOf("mmmm")},
      {"b", FileDType::BF16, {1, 2}, bytesOf("bbbb")},
      {"a", FileDType::F32, {1}, bytesOf("aaaa")},
  };
  ASSERT_TRUE(writeSafetensors(folder / "a", items, {{"format", "pt"}}, diag));
  std::string header =
      R"({"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
      R"("m":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
      R"("b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]},)"
      R"("z":{"dtype":"U8","shape":[3],"data_offsets":[12,15]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(readFile(folder / "a"),
            safetensorsBytes(header, "aaaammmmbbbbzzz"));

  std::reverse(items.begin(), items.end());
  ASSERT_TRUE(writeSafetensors(folder / "b", items, {{"format", "pt"}}, diag));
  EXPECT_EQ(readFile(folder / "a"), readFile(folder / "b"));
  EXPECT_TRUE(SafetensorsFile::open(folder / "b", diag));
}

TEST(SafetensorsWriter, takes_bytes_as_they_are_produced) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  SafetensorsItem item{"w", FileDType::U8, {200000}};
  item.produce = [](AtomicFile &file) {
    for (int i = 0; i < 2000; ++i) {
      if (!file.write(std::string(100, char(i)))) {
        return false;
      }
    }
    return true;
  };
  ASSERT_TRUE(writeSafetensors(folder / "a", {item}, {}, diag));
  auto file = SafetensorsFile::open(folder / "a", diag);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->bytes(file->entries()[0])[123456], uint8_t(1234));
}

TEST(SafetensorsWriter, a_wrong_count_of_bytes_leaves_no_file) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  SafetensorsItem item{"w", FileDType::F32, {2}, bytesOf("1234")};
  EXPECT_FALSE(writeSafetensors(folder / "a", {item}, {}, diag));
  EXPECT_CONTAINS(diag.only(), "cannot write tensor 'w': its shape takes 8 "
                               "bytes, 4 are given");
  item.produce = [](AtomicFile &file) {
    return file.write(llvm::StringRef("1234567"));
  };
  EXPECT_FALSE(writeSafetensors(folder / "a", {item}, {}, diag));
  EXPECT_CONTAINS(diag.only(), "its shape takes 8 bytes, 7 were produced");
  item.produce = [](AtomicFile &) { return false; };
  EXPECT_FALSE(writeSafetensors(folder / "a", {item}, {}, diag));
  EXPECT_TRUE(folder.names().empty());
}

TEST(SafetensorsWriter, refuses_what_no_reader_would_take) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  auto refused = [&](std::vector<SafetensorsItem> items,
                     SafetensorsMetadata metadata = {}) {
    EXPECT_FALSE(writeSafetensors(folder / "a", items, metadata, diag));
    return diag.only();
  };
  auto empty = [](const std::string &name) {
    return SafetensorsItem{name, FileDType::U8, {0}};
  };
  EXPECT_CONTAINS(refused({empty("w"), empty("w")}), "given twice");
  EXPECT_CONTAINS(refused({empty("__metadata__")}), "not allow this name");
  EXPECT_CONTAINS(refused({empty("\xff")}), "not allow this name");
  EXPECT_CONTAINS(refused({empty(std::string(1, '\0'))}),
                  "not allow this name");
  EXPECT_CONTAINS(refused({{"w", FileDType::U8, {-1}}}),
                  "negative or too large");
  EXPECT_CONTAINS(refused({{"w", FileDType::U8, {1ll << 62, 1ll << 62}}}),
                  "negative or too large");
  EXPECT_CONTAINS(refused({}, {{"a", ""}, {"a", ""}}), "metadata key 'a'");
  EXPECT_TRUE(folder.names().empty());
}

TEST(SafetensorsWriter, names_with_quotes_and_controls_come_back) {
  TemporaryFolder folder;
  CapturedDiagnostics diag;
  const std::string name = "a\"\\\n\t\x01\xc3\xa9\xf0\x9f\x98\x80/";
  ASSERT_TRUE(writeSafetensors(folder / "a", {{name, FileDType::U8, {0}}},
                               {{name, name}}, diag));
  auto file = SafetensorsFile::open(folder / "a", diag);
  ASSERT_TRUE(file && file->find(name));
  EXPECT_EQ(file->metadata(), (SafetensorsMetadata{{name, name}}));
}
