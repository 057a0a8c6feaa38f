//===- Schedule.cpp - The messages of a step in order ---------------------===//
//
// Each line is one message, at the instruction that sends it:
//
//   instruction  computed before  what  axes  bytes
//
// Bytes are those of its operand on one rank. An instruction that is more than
// one message, a ring, says how many. What is started async has a line of its
// own where it is waited for, with what is computed beside it:
//
//   instruction  computed since its start  wait  what
//
//===----------------------------------------------------------------------===//

#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Placement.h"
#include "hp/Analysis/Views.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

using namespace hp;
using llvm::StringRef;

/// Larger groups are counted and not listed.
static constexpr int64_t maxMembers = 64;

namespace {
class ScheduleView {
public:
  ScheduleView(Module &module, std::optional<int64_t> rank,
               llvm::raw_ostream &os)
      : module(module), rank(rank), os(os) {}

  void print(Function &step);

private:
  void printMessages(const Traffic &traffic, const Operation &start,
                     std::string what);
  void printWait(const Operation &wait);
  void countComputed(const Operation &op);

  Module &module;
  std::optional<int64_t> rank;
  llvm::raw_ostream &os;
  unsigned instruction = 0; ///< from 0
  unsigned computed = 0;    ///< since the message before
  unsigned allComputed = 0;
  struct Start {
    std::string what;
    unsigned computedBefore; ///< of allComputed
  };
  /// Messages that are under way, by what they fill.
  llvm::DenseMap<const Value *, Start> started;
  unsigned messages = 0;
  Traffic total;
};
} // namespace

/// `all_gather %0.n`, `fsdp.unshard @layers.0.*`.
static std::string describe(const Operation &op) {
  std::string text = op.spelling();
  if (op.is(OpKind::FsdpUnshard)) {
    return text + " @" + op.symbol.str() + (op.symbol.empty() ? "*" : ".*");
  }
  for (const Operand &operand : op.operands) {
    if (operand.value && !operand.param) {
      return text + " %" + operand.value->name.str();
    }
  }
  return text;
}

static std::string describe(const ReductionRun &run) {
  std::string text = ("reduce_grad @" + run.members.front()->symbol).str();
  if (run.members.size() > 1) {
    text += " and " + std::to_string(run.members.size() - 1) + " more";
  }
  return text;
}

/// Of a run of reductions pieces are made first and summed then.
static std::vector<std::pair<Traffic::Key, Traffic::Count>>
inOrderOfIssue(const Traffic &traffic) {
  std::vector<std::pair<Traffic::Key, Traffic::Count>> messages(
      traffic.counts.begin(), traffic.counts.end());
  llvm::stable_sort(messages, [](const auto &x, const auto &y) {
    return (x.first.primitive == Primitive::ReduceScatter) >
           (y.first.primitive == Primitive::ReduceScatter);
  });
  return messages;
}

/// Of the message or messages that `start` sends.
void ScheduleView::printMessages(const Traffic &traffic, const Operation &start,
                                 std::string what) {
  if (start.attrs.getFlag("async")) {
    started[start.results[0]] = {what, allComputed};
    what += " async";
  }
  for (const auto &[key, count] : inOrderOfIssue(traffic)) {
    std::string axes;
    llvm::raw_string_ostream stream(axes);
    module.mesh.printGroup(stream, key.axes);
    os << llvm::format("%6u  +%-5u ", instruction, computed)
       << llvm::left_justify(name(key.primitive), 14) << ' '
       << llvm::left_justify(axes, 17)
       << llvm::format("%12lld  ", (long long)(count.bytes / count.calls));
    if (count.calls > 1) {
      os << 'x' << count.calls << "  ";
    }
    os << what;
    if (rank && module.mesh.size(key.axes) <= maxMembers) {
      llvm::ListSeparator comma;
      os << "  ranks ";
      for (int64_t member : group(module.mesh, *rank, key.axes)) {
        os << comma << member;
      }
    } else if (rank) {
      os << "  " << module.mesh.size(key.axes) << " ranks";
    }
    os << '\n';
    messages += count.calls;
    computed = 0;
  }
  total.add(traffic);
}

void ScheduleView::printWait(const Operation &wait) {
  for (const Operand &operand : wait.operands) {
    auto it = started.find(operand.value);
    if (it == started.end()) {
      continue; // travels with another, or nothing is sent
    }
    os << llvm::format("%6u  +%-5u ", instruction,
                       allComputed - it->second.computedBefore)
       << llvm::left_justify("wait", 46) << it->second.what << '\n';
    started.erase(it);
  }
}

void ScheduleView::countComputed(const Operation &op) {
  OpCategory category = op.info().category;
  bool computes =
      (category == OpCategory::Local || category == OpCategory::Step) &&
      !op.is(OpKind::ReduceGrad);
  computed += computes;
  allComputed += computes;
}

void ScheduleView::print(Function &step) {
  // A run of reductions goes out when its last gradient is there.
  llvm::DenseMap<const Operation *, const ReductionRun *> ends;
  std::vector<ReductionRun> runs = reductionRuns(step);
  for (const ReductionRun &run : runs) {
    ends[run.members.back()] = &run;
  }
  os << "// instruction, instructions computed since the message before, "
        "primitive, axes, bytes\n";
  for (const Operation &op : step.body->ops) {
    Traffic traffic = trafficOf(module, op);
    if (!traffic.counts.empty()) {
      printMessages(traffic, op, describe(op));
    } else if (const ReductionRun *run = ends.lookup(&op)) {
      printMessages(trafficOf(module, *run), op, describe(*run));
    } else if (op.is(OpKind::Wait)) {
      printWait(op);
    } else {
      countComputed(op);
    }
    ++instruction;
  }
  os << "// " << messages << (messages == 1 ? " message" : " messages")
     << " in " << instruction << " instructions\n";
  hp::print(total, module.mesh, os);
}

bool hp::printSchedule(Module &module, std::optional<int64_t> rank,
                       llvm::raw_ostream &os, DiagnosticEngine &diag) {
  Function *step = module.findFunction("step");
  if (module.stage != Stage::Step || !step) {
    return diag.error()
           << "a schedule is that of a step, and the module is at stage '"
           << name(module.stage) << "'; add --compile-to=step";
  }
  int64_t ranks = module.mesh.numRanks();
  if (rank && (*rank < 0 || *rank >= ranks)) {
    return diag.error() << "there is no rank " << *rank
                        << "; the mesh has ranks 0 to " << ranks - 1;
  }
  ScheduleView(module, rank, os).print(*step);
  return true;
}
