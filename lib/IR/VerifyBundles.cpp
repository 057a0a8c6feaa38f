//===- VerifyBundles.cpp - Proof 7: each parameter in one bucket ----------===//
//
// A bucket is what one fsdp.unshard gathers. A parameter that is stored in
// pieces is in exactly one, so that the messages that gather it and reduce its
// gradient are known; what is read of a bundle stands between its unshard and
// its reshard, see VerifyOperands.cpp.
//
//===----------------------------------------------------------------------===//

#include "BlockProof.h"

using namespace hp;
using llvm::StringRef;

/// `@layers.0.*`, `@*`.
static std::string bucketName(StringRef symbol) {
  return ("'@" + symbol + (symbol.empty() ? "*'" : ".*'")).str();
}

/// The parameters in the bucket that `op` gathers: of the template and of the
/// module.
llvm::SmallVector<Param *, 16> BlockProof::bucketOf(const Operation &op) {
  llvm::SmallVector<Param *, 16> params;
  std::string prefix = op.symbol.str() + ".";
  if (place.owner) {
    for (Param *param : place.owner->params) {
      if (op.symbol.empty() || param->name.starts_with(prefix)) {
        params.push_back(param);
      }
    }
  }
  if (!op.symbol.empty()) {
    for (const Member &member : module.members) {
      if (member.param && member.param->name.starts_with(prefix)) {
        params.push_back(member.param);
      }
    }
  }
  return params;
}

void BlockProof::verifyUnshard(const Operation &op) {
  if (!state.buckets.insert({place.owner, op.symbol.data()}).second) {
    return; // looked at where it was gathered first
  }
  llvm::SmallVector<Param *, 16> params = bucketOf(op);
  if (params.empty() && op.symbol.empty()) {
    state.error(op.loc) << "'@*' are the parameters of a block, and "
                        << place.name << " has none of its own";
  } else if (params.empty()) {
    state.error(op.loc) << "no parameter is in bundle '@" << op.symbol << ".*'";
  }
  for (const Param *param : params) {
    const Operation *&first = state.facts(param).bucket;
    if (first && param->type && param->type->store) {
      state.error(op.loc).note(first->loc, "the other bucket is gathered here")
          << "'@" << param->name << "' is in two buckets, "
          << bucketName(first->symbol) << " and " << bucketName(op.symbol)
          << "; a stored parameter is in one, or its messages are not known";
      return;
    }
    first = &op;
  }
}

void BlockProof::verifyReshard(const Operation &op) {
  for (const Operand &operand : op.operands) {
    if (!operand.value) {
      continue;
    }
    ValueFacts &facts = state.facts(operand.value);
    if (facts.resharded) {
      state.error(op.loc).note(facts.resharded->loc, "resharded first here")
          << "bundle '%" << operand.value->name << "' is resharded twice";
    }
    facts.resharded = &op;
  }
}
