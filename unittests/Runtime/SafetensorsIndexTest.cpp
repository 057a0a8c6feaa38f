//===- SafetensorsIndexTest.cpp - Checkpoints of several files ------------===//

#include "hp/Runtime/SafetensorsIndex.h"
#include "FormatsTesting.h"

using namespace hp;
using namespace hp::testing;

static const std::string indexFile = "model.safetensors.index.json";

/// A file with one-byte tensors of those names.
static std::string shardOf(const std::vector<std::string> &names) {
  std::string header = "{", data;
  for (const std::string &name : names) {
    header += (data.empty() ? "\"" : ",\"") + name +
              R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" +
              std::to_string(data.size()) + "," +
              std::to_string(data.size() + 1) + "]}";
    data += name[0];
  }
  return safetensorsBytes(header + "}", data);
}

namespace {
class SafetensorsIndex : public ::testing::Test {
protected:
  /// Opens the folder, which must fail, and gives the one message.
  std::string refusal() {
    EXPECT_FALSE(ShardedCheckpoint::open(folder.path(), diag));
    return diag.only();
  }
  void writeIndex(const std::string &weightMap) {
    writeFile(folder / indexFile, "{\"weight_map\": {" + weightMap + "}}\n");
  }

  TemporaryFolder folder;
  CapturedDiagnostics diag;
};
} // namespace

TEST_F(SafetensorsIndex, opens_one_file_by_name_and_by_folder) {
  writeFile(folder / "model.safetensors", shardOf({"b", "a"}));
  for (const std::string &path :
       {folder.path(), folder / "model.safetensors"}) {
    auto checkpoint = ShardedCheckpoint::open(path, diag);
    ASSERT_TRUE(checkpoint);
    ASSERT_EQ(checkpoint->tensors().size(), 2u);
    EXPECT_EQ(checkpoint->tensors()[0].name(), "b");
    EXPECT_EQ(checkpoint->tensors()[1].name(), "a");
    EXPECT_EQ(checkpoint->find("a")->bytes()[0], 'a');
    EXPECT_EQ(checkpoint->find("c"), nullptr);
  }
}

TEST_F(SafetensorsIndex, opens_shards_in_the_order_of_their_names) {
  writeFile(folder / "model-00001-of-00002.safetensors", shardOf({"x", "c"}));
  writeFile(folder / "model-00002-of-00002.safetensors", shardOf({"a"}));
  writeIndex(R"("a":"model-00002-of-00002.safetensors",)"
             R"("c":"model-00001-of-00002.safetensors",)"
             R"("x":"model-00001-of-00002.safetensors")");
  for (const std::string &path : {folder.path(), folder / indexFile}) {
    auto checkpoint = ShardedCheckpoint::open(path, diag);
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ(checkpoint->files().size(), 2u);
    std::string names;
    for (const CheckpointTensor &tensor : checkpoint->tensors()) {
      names += tensor.name();
      EXPECT_EQ(tensor.bytes()[0], tensor.name()[0]);
    }
    EXPECT_EQ(names, "xca");
    EXPECT_EQ(checkpoint->find("a")->file->path(),
              folder / "model-00002-of-00002.safetensors");
  }
}

TEST_F(SafetensorsIndex, follows_links_to_shards) {
  // Download caches keep the bytes elsewhere.
  TemporaryFolder cache;
  writeFile(cache / "blob", shardOf({"a"}));
  std::filesystem::create_symlink(cache / "blob", folder / "s.safetensors");
  writeIndex(R"("a":"s.safetensors")");
  EXPECT_TRUE(ShardedCheckpoint::open(folder.path(), diag));
}

TEST_F(SafetensorsIndex, refuses_folders_with_neither_or_both) {
  EXPECT_CONTAINS(refusal(), folder.path() + ": the folder holds neither "
                                             "'model.safetensors' nor "
                                             "'model.safetensors.index.json'");
  writeFile(folder / "model.safetensors", shardOf({"a"}));
  writeIndex("");
  EXPECT_CONTAINS(refusal(), "the folder holds both 'model.safetensors' and ");
  EXPECT_FALSE(ShardedCheckpoint::open(folder / "none", diag));
  EXPECT_CONTAINS(diag.only(), "No such file or directory");
}

TEST_F(SafetensorsIndex, refuses_shards_outside_the_folder) {
  TemporaryFolder other;
  writeFile(other / "s.safetensors", shardOf({"a"}));
  std::filesystem::create_directory(folder / "sub");
  writeFile(folder / "sub/s.safetensors", shardOf({"a"}));
  std::string up = "../" +
                   std::filesystem::path(other.path()).filename().string() +
                   "/s.safetensors";
  for (std::string shard :
       {up, other / "s.safetensors", std::string("sub/s.safetensors"),
        std::string("./s.safetensors"), std::string(".."), std::string("."),
        std::string(), std::string("sub\\\\s.safetensors"),
        std::string("s.safetensors\\u0000x")}) {
    writeIndex("\"a\": \"" + shard + "\"");
    std::string message = refusal();
    EXPECT_CONTAINS(message, folder / indexFile + ":1:22: tensor 'a': shard '");
    EXPECT_CONTAINS(message, "is not a plain file name");
  }
}

TEST_F(SafetensorsIndex, refuses_a_missing_or_broken_shard) {
  writeIndex(R"("a":"s.safetensors","b":"s.safetensors")");
  EXPECT_EQ(refusal(), (folder / indexFile) +
                           ": shard 's.safetensors' is missing; the index "
                           "lists 2 tensors in it, such as 'a'");
  writeFile(folder / "s.safetensors", shardOf({"a", "b"}) + "x");
  EXPECT_EQ(refusal(), (folder / "s.safetensors") +
                           ": 1 bytes after the last tensor belong to none");
  std::filesystem::remove(folder / "s.safetensors");
  std::filesystem::create_directory(folder / "s.safetensors");
  EXPECT_CONTAINS(refusal(), "is a folder");
}

TEST_F(SafetensorsIndex, refuses_disagreement_with_the_shards) {
  writeFile(folder / "1.safetensors", shardOf({"a", "b"}));
  writeFile(folder / "2.safetensors", shardOf({"c"}));
  const std::string index = folder / indexFile;
  writeIndex(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors")");
  EXPECT_TRUE(ShardedCheckpoint::open(folder.path(), diag));

  writeIndex(R"("a":"1.safetensors","c":"2.safetensors")");
  EXPECT_EQ(refusal(), index + ": shard '1.safetensors': present in the shard, "
                               "but not listed in the index: 'b'");
  writeIndex(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors",)"
             R"("d":"2.safetensors","e":"2.safetensors","f":"2.safetensors",)"
             R"("g":"2.safetensors","h":"2.safetensors","i":"2.safetensors")");
  EXPECT_EQ(refusal(),
            index + ": shard '2.safetensors': listed in the index, but absent "
                    "from the shard: 'd', 'e', 'f', 'g', 'h' and 1 more");
  // In two shards.
  writeFile(folder / "2.safetensors", shardOf({"c", "a"}));
  writeIndex(R"("a":"1.safetensors","b":"1.safetensors","c":"2.safetensors")");
  EXPECT_EQ(refusal(), index + ": shard '2.safetensors': present in the shard, "
                               "but listed in another: 'a' (listed in "
                               "'1.safetensors')");
  writeIndex(R"("a":"1.safetensors","b":"1.safetensors",)"
             R"("c":"2.safetensors","a":"2.safetensors")");
  EXPECT_EQ(refusal(), index + ":1:77: duplicate key 'a'");
  // Two shards exchanged: every fault is named.
  writeFile(folder / "2.safetensors", shardOf({"c"}));
  writeIndex(R"("a":"2.safetensors","b":"1.safetensors","c":"1.safetensors")");
  EXPECT_FALSE(ShardedCheckpoint::open(folder.path(), diag));
  EXPECT_EQ(diag.messages.size(), 4u);
}

TEST_F(SafetensorsIndex, refuses_indices_of_another_form) {
  auto refused = [&](const std::string &text) {
    writeFile(folder / indexFile, text);
    return refusal();
  };
  const std::string index = folder / indexFile;
  EXPECT_EQ(refused(""), index + ":1:1: expected an object");
  EXPECT_EQ(refused("[]"), index + ":1:1: expected an object");
  EXPECT_EQ(refused("{}"), index + ":1:3: the index has no 'weight_map'");
  EXPECT_EQ(refused("{\n\"weight_map\": []}"),
            index + ":2:15: expected an object");
  EXPECT_EQ(refused("{\"weight_map\": {\"a\": 1}}"),
            index + ":1:22: expected a string");
  EXPECT_EQ(refused("{\"weight_map\": {}} x"),
            index + ":1:20: more text after the end");
  EXPECT_EQ(refused("{\"weight_map\": {\"a\": \"\xff\"}}"),
            index + ":1:23: not UTF-8 text");
  EXPECT_CONTAINS(refused("{\"metadata\": " + std::string(100000, '[')),
                  index + ":1:77: nested more than 64 deep");
}

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

/// Items of one-byte elements with those sizes, named a, b, c ...
static std::vector<SafetensorsItem> itemsOf(const std::vector<int64_t> &sizes,
                                            std::string &storage) {
  storage.assign(1000, 'x');
  std::vector<SafetensorsItem> items;
  for (int64_t size : sizes) {
    llvm::StringRef bytes = llvm::StringRef(storage).take_front(size);
    items.push_back({std::string(1, char('a' + items.size())),
                     FileDType::U8,
                     {size},
                     {bytes.bytes_begin(), bytes.size()}});
  }
  return items;
}

TEST_F(SafetensorsIndex, writes_one_file_where_one_is_enough) {
  std::string storage;
  EXPECT_TRUE(writeShardedCheckpoint(folder.path(), itemsOf({5, 5}, storage),
                                     {}, 10, diag));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.safetensors"});
  EXPECT_TRUE(ShardedCheckpoint::open(folder.path(), diag));
}

TEST_F(SafetensorsIndex, cuts_in_order_and_gives_large_tensors_a_shard) {
  std::string storage;
  // a b | d | e: by size; c, larger than a shard, is closed before a b.
  EXPECT_TRUE(writeShardedCheckpoint(
      folder / "new", itemsOf({4, 6, 20, 9, 2}, storage), {}, 10, diag));
  EXPECT_EQ(readFile(folder / ("new/" + indexFile)),
            R"({
  "metadata": {
    "total_size": 41
  },
  "weight_map": {
    "a": "model-00002-of-00004.safetensors",
    "b": "model-00002-of-00004.safetensors",
    "c": "model-00001-of-00004.safetensors",
    "d": "model-00003-of-00004.safetensors",
    "e": "model-00004-of-00004.safetensors"
  }
}
)");
  auto checkpoint = ShardedCheckpoint::open(folder / "new", diag);
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ(checkpoint->tensors().size(), 5u);
  // Once more into the same folder is fine, and gives the same files.
  std::string index = readFile(folder / ("new/" + indexFile));
  EXPECT_TRUE(writeShardedCheckpoint(
      folder / "new", itemsOf({4, 6, 20, 9, 2}, storage), {}, 10, diag));
  EXPECT_EQ(readFile(folder / ("new/" + indexFile)), index);
}

TEST_F(SafetensorsIndex, refuses_to_mix_two_checkpoints) {
  std::string storage;
  ASSERT_TRUE(writeShardedCheckpoint(folder.path(), itemsOf({5, 5}, storage),
                                     {}, 10, diag));
  EXPECT_FALSE(writeShardedCheckpoint(folder.path(), itemsOf({5, 5}, storage),
                                      {}, 5, diag));
  EXPECT_EQ(diag.only(), folder.path() +
                             ": the folder holds 'model.safetensors' of "
                             "another checkpoint; remove it or choose another "
                             "folder");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"model.safetensors"});
  std::filesystem::rename(folder / "model.safetensors", folder / "my-model");
  EXPECT_TRUE(writeShardedCheckpoint(folder.path(), itemsOf({5, 5}, storage),
                                     {}, 5, diag));
  EXPECT_FALSE(writeShardedCheckpoint(folder.path(), itemsOf({5, 5}, storage),
                                      {}, 10, diag));
  EXPECT_CONTAINS(diag.only(), "'model-00001-of-00002.safetensors' and 2 more "
                               "files of another checkpoint");
}

TEST_F(SafetensorsIndex, refuses_a_name_given_twice) {
  std::string storage;
  auto items = itemsOf({5, 5}, storage);
  items[1].name = "a";
  EXPECT_FALSE(writeShardedCheckpoint(folder.path(), items, {}, 5, diag));
  EXPECT_CONTAINS(diag.only(), "'a': the name is given twice");
  EXPECT_TRUE(folder.names().empty());
}
