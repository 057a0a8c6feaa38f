//===- EngineTesting.h - One operation put to the type engine ----*- C++
//-*-===//
//
// Writes a step around one operation, reads it, and asks for its types:
//
//   infer("add %0, %1", {"f32[8]{partial: tp}", "f32[8]{partial: tp}"})
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_IR_ENGINETESTING_H
#define HP_UNITTESTS_IR_ENGINETESTING_H

#include "../Spec/DiagnosticLog.h"
#include "hp/IR/InferTypes.h"
#include "hp/IR/Text.h"

namespace hp::enginetest {

inline constexpr const char *meshLines =
    "  mesh <dp=2, cp=2, tp=2, tpg=2, tpr=2>\n  dim B = 4\n  dim S = 16\n";

/// How many results the text must show for `operation`, whatever their types.
inline unsigned numResults(llvm::StringRef operation) {
  llvm::StringRef name = operation.take_until([](char c) { return c == ' '; });
  bool backward = name.consume_back(".bwd");
  const OpInfo *info = findOp(name);
  if (!info || info->storage.empty()) {
    return 0;
  }
  unsigned operands = operation.split(" acc[").first.count('%');
  for (const RuleVariant &variant : info->variants) {
    unsigned forward = variant.operands.size();
    unsigned results = variant.results.size();
    unsigned adjoint = forward + info->savedResults().size() +
                       info->cotangentResults(results).size();
    if (backward && adjoint == operands) {
      return info->diffOperands(forward).size();
    }
    if (!backward && forward == operands) {
      return results;
    }
  }
  return 1;
}

/// The types that `operation` gives for operands %0, %1, ... of `types`, or
/// `error: ...`. `params` are lines `param @w : ...`.
inline std::string infer(const std::string &operation,
                         const std::vector<std::string> &types,
                         const std::string &params = "") {
  std::string text = "model \"m\" stage(step) {\n";
  text += meshLines + params + "  func @step(";
  for (size_t i = 0; i < types.size(); ++i) {
    text += (i ? ", %" : "%") + std::to_string(i) + ": " + types[i];
  }
  text += ") {\n    ";
  unsigned results = numResults(operation);
  for (unsigned i = 0; i < results; ++i) {
    text += i ? ", _" : "_";
  }
  text += (results ? " = " : "") + operation + "\n    return\n  }\n}\n";
  DiagnosticLog log;
  std::unique_ptr<Module> module = parseModule(text, "t.hp", log.diag);
  if (!module) {
    return "unread: " + log.text() + text;
  }
  auto inferred = inferTypes(*module, module->functions[0]->body->ops.front());
  if (!inferred) {
    return "error: " + llvm::toString(inferred.takeError());
  }
  std::string result;
  for (Type type : *inferred) {
    result += (result.empty() ? "" : ", ") +
              (type ? str(type, *module) : std::string("bundle"));
  }
  return result;
}

/// Whether `text` is an error that says all of `words`.
inline testing::AssertionResult says(const std::string &text,
                                     const std::vector<std::string> &words) {
  if (!llvm::StringRef(text).starts_with("error: ")) {
    return testing::AssertionFailure() << "not refused: " << text;
  }
  for (const std::string &word : words) {
    if (text.find(word) == std::string::npos) {
      return testing::AssertionFailure()
             << "'" << word << "' is not in: " << text;
    }
  }
  return testing::AssertionSuccess();
}

} // namespace hp::enginetest

#endif // HP_UNITTESTS_IR_ENGINETESTING_H
