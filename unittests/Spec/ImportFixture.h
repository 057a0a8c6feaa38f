//===- ImportFixture.h - Importing models in tests --------------*- C++ -*-===//

#ifndef HP_UNITTESTS_SPEC_IMPORTFIXTURE_H
#define HP_UNITTESTS_SPEC_IMPORTFIXTURE_H

#include "DiagnosticLog.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Spec/Import.h"
#include "llvm/ADT/StringExtras.h"

namespace hp {

inline const std::string qwenPath = HP_SOURCE_DIR "/models/qwen3_5_v2.yaml";

class ImportFixture : public testing::Test {
protected:
  /// Imports a flavor of the Qwen3.5 spec with `config`, a map in YAML called
  /// "o" in messages.
  std::unique_ptr<Module> import(llvm::StringRef flavor,
                                 llvm::StringRef config = "{}",
                                 const RunConfig *run = nullptr) {
    if (!spec) {
      spec = readModelSpec(qwenPath, log.diag);
    }
    return spec ? importFrom(*spec, flavor, config, run) : nullptr;
  }

  std::unique_ptr<Module> importFrom(const ModelSpec &from,
                                     llvm::StringRef flavor,
                                     llvm::StringRef config = "{}",
                                     const RunConfig *run = nullptr) {
    auto overrides =
        parseDocument(config, log.diag.location("o", 1, 1), log.diag);
    if (!overrides) {
      return nullptr;
    }
    return importModel(from, flavor, {&*overrides}, run, log.diag);
  }

  /// What is reported where `config` must be refused.
  std::string refusal(llvm::StringRef flavor, llvm::StringRef config,
                      const RunConfig *run = nullptr) {
    log.lines.clear();
    EXPECT_EQ(import(flavor, config, run), nullptr) << config.str();
    EXPECT_TRUE(log.everythingLocated) << log.text();
    return log.text();
  }

  DiagnosticLog log;
  std::optional<ModelSpec> spec;
};

/// The parameters of a block or of the module, one line each.
inline std::string paramLines(Module &module, llvm::ArrayRef<Param *> params) {
  std::string text;
  for (Param *param : params) {
    text += param->name.str() + " " + str(param->type, module) + " " +
            param->init.str() + "\n";
  }
  return text;
}

inline std::string opLines(Block &block) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const Operation &op : block.ops) {
    print(op, os);
    if (!llvm::StringRef(text).ends_with("\n")) {
      os << "\n";
    }
  }
  return text;
}

/// `[(@linear x3, @full) x1]` of the stack `layers`.
inline std::string stackText(Module &module) {
  std::string text = str(module);
  for (llvm::StringRef line : llvm::split(text, '\n')) {
    if (line.trim().consume_front("stack @layers = ")) {
      return line.trim().drop_front(16).str();
    }
  }
  return "";
}

} // namespace hp

#endif // HP_UNITTESTS_SPEC_IMPORTFIXTURE_H
