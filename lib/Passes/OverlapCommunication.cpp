//===- OverlapCommunication.cpp - Started early, waited for late ----------===//
//
// Moves the messages of bundles to where they run beside computation. A bundle
// is started right after the wait for the one that is used `prefetch` bundles
// before it, and waited for right before its first use:
//
//   before                          after, with prefetch 1
//     %L0 = fsdp.unshard @l.0.*       %L0 = fsdp.unshard @l.0.*
//     (layer 0)                       %L1 = fsdp.unshard @l.1.* {async}
//     fsdp.reshard %L0                (layer 0)
//     %L1 = fsdp.unshard @l.1.*       fsdp.reshard %L0
//     (layer 1)                       wait %L1
//                                     %L2 = fsdp.unshard @l.2.* {async}
//                                     (layer 1)
//
// Reductions start where they stand, and are waited for before the next bucket
// but one starts, so that two are under way at most.
//
// Operations that compute keep their places, so every value has the same bits.
// The text is one order for all ranks, so messages are issued in one order.
//
//===----------------------------------------------------------------------===//

#include "hp/Passes/ExpandStep.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

using namespace hp;

namespace {
class Overlap {
public:
  Overlap(Module &module, Block &body) : module(module), body(body) {}

  void startBundles(unsigned prefetch);
  void startReductions();

  unsigned started = 0; ///< messages with async

private:
  struct Bundle {
    Operation *unshard;
    Operation *firstUse = nullptr; ///< that reads it, or its reshard
    unsigned firstUseAt = 0;
    /// The last operation that it must not be started before; null: none.
    Operation *limit = nullptr;
    unsigned limitAt = 0;
  };
  using Run = std::vector<Operation *>;
  std::vector<Bundle> findBundles();
  std::vector<Run> findRuns(Operation *&end);
  Operation *makeWait(llvm::ArrayRef<Operation *> starts);
  void markAsync(Operation &op);

  Module &module;
  Block &body;
};
} // namespace

/// A wait for the results of `starts`, not yet in the step.
Operation *Overlap::makeWait(llvm::ArrayRef<Operation *> starts) {
  Operation *wait = module.makeOp(OpKind::Wait, starts.front()->loc);
  wait->parent = &body;
  for (Operation *start : starts) {
    wait->operands.push_back({start->results[0]});
  }
  return wait;
}

void Overlap::markAsync(Operation &op) {
  op.attrs.set(module.intern("async"), {true});
}

//===----------------------------------------------------------------------===//
// Bundles
//===----------------------------------------------------------------------===//

/// All bundles in the order of their first uses. A bundle is not started while
/// another of the same parameters is open, which has its name; nor one of the
/// backward half in the forward half, where it would add to the peak.
std::vector<Overlap::Bundle> Overlap::findBundles() {
  std::vector<Bundle> bundles;
  llvm::DenseMap<const Value *, unsigned> indexOf;
  llvm::StringMap<std::pair<Operation *, unsigned>> lastReshard;
  std::pair<Operation *, unsigned> backward = {nullptr, 0};
  unsigned at = 0;
  for (Operation &op : body.ops) {
    ++at;
    if (op.is(OpKind::Ones)) {
      backward = {&op, at};
    }
    if (op.is(OpKind::FsdpUnshard)) {
      Bundle bundle{&op};
      auto [reshard, reshardAt] = lastReshard.lookup(op.symbol);
      bool isLater = reshardAt > backward.second;
      bundle.limit = isLater ? reshard : backward.first;
      bundle.limitAt = isLater ? reshardAt : backward.second;
      indexOf[op.results[0]] = bundles.size();
      bundles.push_back(bundle);
    }
    for (const Operand &operand : op.operands) {
      if (!operand.value || !operand.value->isBundle() || operand.typeOnly) {
        continue;
      }
      Bundle &bundle = bundles[indexOf.lookup(operand.value)];
      if (!bundle.firstUse) {
        bundle.firstUse = &op;
        bundle.firstUseAt = at;
      }
      if (op.is(OpKind::FsdpReshard)) {
        lastReshard[operand.value->owner->symbol] = {&op, at};
      }
    }
  }
  llvm::stable_sort(bundles, [](const Bundle &lhs, const Bundle &rhs) {
    return lhs.firstUseAt < rhs.firstUseAt;
  });
  return bundles;
}

void Overlap::startBundles(unsigned prefetch) {
  std::vector<Bundle> bundles = findBundles();
  std::vector<Operation *> waits;
  for (const Bundle &bundle : bundles) {
    waits.push_back(makeWait(bundle.unshard));
    body.ops.insert(bundle.firstUse->getIterator(), waits.back());
  }
  // What was started last after each operation.
  llvm::DenseMap<Operation *, Operation *> lastAfter;
  for (unsigned i = 1; i < bundles.size(); ++i) {
    const Bundle &bundle = bundles[i];
    unsigned inUse = i > prefetch ? i - prefetch : 0;
    Operation *after = bundle.limitAt >= bundles[inUse].firstUseAt
                           ? bundle.limit
                           : waits[inUse];
    Operation *&last = lastAfter[after];
    body.ops.remove(bundle.unshard);
    body.ops.insertAfter((last ? last : after)->getIterator(), bundle.unshard);
    last = bundle.unshard;
  }
  // What would be waited for at once is not async.
  for (auto [bundle, wait] : llvm::zip(bundles, waits)) {
    if (&*std::next(bundle.unshard->getIterator()) == wait) {
      body.ops.erase(wait->getIterator());
    } else {
      markAsync(*bundle.unshard);
      ++started;
    }
  }
}

//===----------------------------------------------------------------------===//
// Reductions
//===----------------------------------------------------------------------===//

/// Reductions that follow one another and are cut over the same axes, which
/// travel together; and `end`, the first operation that reads one's result.
std::vector<Overlap::Run> Overlap::findRuns(Operation *&end) {
  std::vector<Run> runs;
  llvm::DenseSet<const Value *> reduced;
  Operation *previous = nullptr;
  auto scatterOf = [](const Operation &op) {
    const Attribute *scatter = op.attrs.find("scatter");
    const AxisList *axes = scatter ? scatter->get<AxisList>() : nullptr;
    return axes ? *axes : AxisList();
  };
  end = nullptr;
  for (Operation &op : body.ops) {
    if (op.is(OpKind::ReduceGrad)) {
      bool isFirst = !previous || !previous->is(OpKind::ReduceGrad) ||
                     scatterOf(*previous) != scatterOf(op);
      if (isFirst) {
        runs.emplace_back();
      }
      runs.back().push_back(&op);
      reduced.insert(op.results[0]);
    } else if (!end && llvm::any_of(op.operands, [&](const Operand &operand) {
                 return reduced.contains(operand.value);
               })) {
      end = &op;
    }
    previous = &op;
  }
  return runs;
}

void Overlap::startReductions() {
  Operation *end;
  std::vector<Run> runs = findRuns(end);
  for (unsigned i = 0; i < runs.size(); ++i) {
    Operation *before = i + 2 < runs.size() ? runs[i + 2].front() : end;
    if (&*std::next(runs[i].back()->getIterator()) == before) {
      continue; // would be waited for at once
    }
    body.ops.insert(before->getIterator(), makeWait(runs[i]));
    for (Operation *member : runs[i]) {
      markAsync(*member);
    }
    ++started;
  }
}

unsigned hp::overlapCommunication(Module &module, Block &body,
                                  unsigned prefetch) {
  bool anyBundle = llvm::any_of(
      body.ops, [](const Operation &op) { return op.is(OpKind::FsdpUnshard); });
  if (prefetch == 0 || !anyBundle) {
    return 0;
  }
  Overlap overlap(module, body);
  overlap.startBundles(prefetch);
  overlap.startReductions();
  return overlap.started;
}
