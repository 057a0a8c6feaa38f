//===- PassRegistry.cpp - Every pass, in pipeline order -------------------===//

#include "hp/Passes/AcMark.h"
#include "hp/Passes/CpRewrite.h"
#include "hp/Passes/ExpandStep.h"
#include "hp/Passes/FsdpBucket.h"
#include "hp/Passes/Pass.h"
#include "hp/Passes/ShardAnnotate.h"
#include "hp/Passes/TpInsert.h"

using namespace hp;

llvm::ArrayRef<PassInfo> hp::allPasses() {
  static const PassInfo passes[] = {
      {"shard-annotate", makeShardAnnotate},
      {"cp-rewrite", makeCpRewrite},
      {"tp-insert", makeTpInsert},
      {"ac-mark", makeAcMark},
      {"fsdp-bucket", makeFsdpBucket},
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
