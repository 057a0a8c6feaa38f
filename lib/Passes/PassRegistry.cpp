//===- PassRegistry.cpp - Every pass, in pipeline order -------------------===//

#include "hp/Passes/ExpandStep.h"
#include "hp/Passes/Pass.h"

using namespace hp;

llvm::ArrayRef<PassInfo> hp::allPasses() {
  static const PassInfo passes[] = {
      {"expand-step", makeExpandStep},
  };
  return passes;
}

std::unique_ptr<Pass> hp::makePass(llvm::StringRef name) {
  for (const PassInfo &info : allPasses()) {
    if (info.name == name) {
      return info.make();
    }
  }
  return nullptr;
}
