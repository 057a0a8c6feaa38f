//===- FormatsTesting.h - What the file format tests share ------*- C++ -*-===//
//
// A folder of its own for each test, a diagnostic engine that keeps what was
// said, and safetensors files put together by hand.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_RUNTIME_FORMATSTESTING_H
#define HP_UNITTESTS_RUNTIME_FORMATSTESTING_H

#include "hp/Support/Diagnostics.h"
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <string>
#include <unistd.h>
#include <vector>

namespace hp::testing {

/// A fresh folder, removed at the end.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name =
        (std::filesystem::temp_directory_path() / "hp-test-XXXXXX").string();
    root = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(root); }

  std::string operator/(const std::string &name) const {
    return root + "/" + name;
  }
  const std::string &path() const { return root; }

  /// Names in the folder, hidden ones too, sorted.
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto &entry : std::filesystem::directory_iterator(root)) {
      result.push_back(entry.path().filename().string());
    }
    std::sort(result.begin(), result.end());
    return result;
  }

private:
  std::string root;
};

/// Keeps each diagnostic as "file[:line:column]: message".
class CapturedDiagnostics {
public:
  CapturedDiagnostics() {
    engine.setHandler([this](const Diagnostic &diagnostic) {
      std::string text = diagnostic.loc.fileName().str();
      if (diagnostic.loc.line) {
        text += ":" + std::to_string(diagnostic.loc.line) + ":" +
                std::to_string(diagnostic.loc.column);
      }
      messages.push_back(text + ": " + diagnostic.message);
    });
  }
  operator DiagnosticEngine &() { return engine; }

  /// The one message; fails the test if there is another number of them.
  std::string only() {
    EXPECT_EQ(messages.size(), 1u);
    std::string first = messages.empty() ? "" : messages.front();
    messages.clear();
    return first;
  }

  std::vector<std::string> messages;

private:
  DiagnosticEngine engine;
};

inline void writeFile(const std::string &path, const std::string &bytes) {
  // Some file systems go to the disk where a file is cut and written anew.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string readFile(const std::string &path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The `count` low bytes of `number`, little endian.
inline std::string littleEndian(uint64_t number, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) {
    bytes.push_back(char(number >> (8 * i)));
  }
  return bytes;
}

inline bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

/// A .safetensors file of that header and data.
inline std::string safetensorsBytes(const std::string &header,
                                    const std::string &data) {
  return littleEndian(header.size(), 8) + header + data;
}

} // namespace hp::testing

#define EXPECT_CONTAINS(text, part)                                            \
  EXPECT_PRED2(hp::testing::contains, text, part)

#endif // HP_UNITTESTS_RUNTIME_FORMATSTESTING_H
