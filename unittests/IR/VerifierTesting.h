//===- VerifierTesting.h - What the verifier says of a text -----*- C++ -*-===//

#ifndef HP_UNITTESTS_IR_VERIFIERTESTING_H
#define HP_UNITTESTS_IR_VERIFIERTESTING_H

#include "../Spec/DiagnosticLog.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"

namespace hp::verifiertest {

/// What verification says of `text` once `from` is `to` in all places; `ok`, or
/// all diagnostics.
inline std::string verdict(llvm::StringRef text, llvm::StringRef from,
                           llvm::StringRef to) {
  std::string changed;
  if (!text.contains(from)) {
    return "nothing to change: " + from.str();
  }
  while (text.contains(from)) {
    auto [before, after] = text.split(from);
    changed += before.str() + to.str();
    text = after;
  }
  changed += text.str();
  DiagnosticLog log;
  auto module = parseModule(changed, "t.hp", log.diag);
  if (!module) {
    return "unread: " + log.text();
  }
  bool holds = verify(*module, log.diag);
  EXPECT_EQ(holds, log.lines.empty());
  EXPECT_TRUE(log.everythingLocated);
  return holds ? "ok" : log.text();
}

inline testing::AssertionResult says(const std::string &text,
                                     const std::string &words) {
  if (text.find("error: ") != std::string::npos &&
      !llvm::StringRef(text).starts_with("unread") &&
      text.find(words) != std::string::npos) {
    return testing::AssertionSuccess();
  }
  return testing::AssertionFailure() << "not '" << words << "' but: " << text;
}

} // namespace hp::verifiertest

#endif // HP_UNITTESTS_IR_VERIFIERTESTING_H
