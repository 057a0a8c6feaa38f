//===- ExpandBundles.cpp - Parameters gathered for use --------------------===//
//
// The forward half unshards and reshards where the plan does. The backward half
// is its mirror image: where the forward reshards, it unshards, and the other
// way round, but only where an operation in between reads a parameter. A bundle
// that the plan keeps is not given back in the forward half; its mirror image
// only reshards.
//
//===----------------------------------------------------------------------===//

#include "StepBuilder.h"

using namespace hp;
using llvm::StringRef;

/// The name of a bundle of `symbol` to be opened now. Bundles that are not open
/// together share one, as the text allows.
std::string StepBuilder::bundleName(StringRef symbol, StringRef base) {
  BundleName &known = bundleNames[symbol];
  if (known.open == 0 && !known.name.empty()) {
    return known.name;
  }
  std::string name = uniqueName(base);
  if (known.open == 0) {
    known.name = name;
  }
  return name;
}

/// An unshard of what `like` gathers, not yet in the step.
Operation *StepBuilder::makeUnshard(const Operation &like, std::string name) {
  Operation *op = module.makeOp(OpKind::FsdpUnshard, like.loc);
  op->parent = body;
  op->symbol = like.symbol;
  module.addResult(op, name, Type());
  ++written.unshards;
  return op;
}

Operation *StepBuilder::makeReshard(Value *bundle, Location loc) {
  Operation *op = append(OpKind::FsdpReshard, loc);
  op->operands.push_back({bundle});
  return op;
}

//===----------------------------------------------------------------------===//
// Forward
//===----------------------------------------------------------------------===//

void StepBuilder::appendUnshard(const Operation &op, ValueMap &values,
                                const Instance &instance) {
  // `@*` is the instance, and a prefix may be one of its parameters' names.
  std::string symbol = op.symbol.str(), base;
  if (symbol.empty()) {
    symbol = instance.paramPrefix;
    base = instance.bundleName;
  } else {
    base = instance.valuePrefix + op.results[0]->name.str();
    bool own = instance.params &&
               llvm::any_of(*instance.params, [&](const auto &entry) {
                 return entry.first->name.starts_with(symbol + ".");
               });
    symbol = own ? instance.paramPrefix + "." + symbol : symbol;
  }
  Operation like(OpKind::FsdpUnshard);
  like.loc = op.loc;
  like.symbol = module.intern(symbol);
  Operation *copy = makeUnshard(like, bundleName(symbol, base));
  body->ops.push_back(copy);
  ++bundleNames[symbol].open;
  values[op.results[0]] = copy->results[0];
  bundles[copy->results[0]];
  forwardOps.push_back(copy);
}

void StepBuilder::appendReshard(const Operation &op, ValueMap &values,
                                const Instance &instance) {
  Value *value = mapped(op.operands[0], values, instance).value;
  Operation *copy = makeReshard(value, op.loc);
  Bundle &bundle = bundles[value];
  bundle.reshard = copy;
  bundle.keep = op.attrs.getFlag("keep");
  bundleNames[value->owner->symbol].open -= !bundle.keep;
  forwardOps.push_back(copy);
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

/// The walk comes to where the forward half gives a bundle back.
void StepBuilder::reachReshard(const Operation &forward) {
  Bundle &bundle = bundles[forward.operands[0].value];
  bundle.inReach = true;
  bundle.openAfter = &body->ops.back();
}

/// The walk comes to where the forward half gathers a bundle.
void StepBuilder::reachUnshard(const Operation &forward) {
  Value *value = forward.results[0];
  Bundle &bundle = bundles[value];
  bundle.inReach = false;
  if (bundle.keep) {
    --bundleNames[forward.symbol].open;
    if (bundle.readInBackward) {
      body->ops.erase(bundle.reshard->getIterator());
      makeReshard(value, forward.loc);
    }
  } else if (bundle.again) {
    --bundleNames[forward.symbol].open;
    makeReshard(bundle.again, forward.loc);
  }
}

/// The bundle from which the backward half reads what the forward half read
/// from `value`. What is out of reach is gathered for one operation.
Value *StepBuilder::openBundle(Value *value) {
  Bundle &bundle = bundles[value];
  if (bundle.keep) {
    bundle.readInBackward = true;
    return value;
  }
  Value *&again = bundle.inReach ? bundle.again : temporaryBundles[value];
  if (again) {
    return again;
  }
  const Operation &forward = *value->owner;
  Operation *op = makeUnshard(
      forward, bundleName(forward.symbol, bundleNames[forward.symbol].name));
  ++bundleNames[forward.symbol].open;
  if (bundle.inReach) {
    body->ops.insertAfter(bundle.openAfter->getIterator(), op);
  } else {
    body->ops.push_back(op);
  }
  return again = op->results[0];
}

/// The bundle to name where only the type of a parameter is read; it may be
/// gone.
Value *StepBuilder::bundleForType(Value *value) const {
  auto it = bundles.find(value);
  bool open = it != bundles.end() && it->second.inReach && it->second.again;
  return open ? it->second.again : value;
}

void StepBuilder::closeTemporaryBundles() {
  for (auto &[value, temporary] : temporaryBundles) {
    --bundleNames[value->owner->symbol].open;
    makeReshard(temporary, temporary->loc);
  }
  temporaryBundles.clear();
}
