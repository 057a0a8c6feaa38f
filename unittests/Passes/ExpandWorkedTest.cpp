//===- ExpandWorkedTest.cpp - expand-step against the worked steps --------===//
//
// The steps of test/IR/worked were worked out by hand and run on sixteen ranks.
// Their forward halves, with the two layers as templates, are the plans of
// test/Passes/Inputs/worked-plans. What expand-step makes of a plan must be the
// step, operation by operation: the same operations in the same order on the
// same values, with the same attributes, types and running gradients. Names
// are free, and a worked step has no frees.
//
// Where the two differ on purpose:
//   - the norm's terms and the updates come in the order of parameters(), and
//     there are the operands and results of hp's optimizer; they are compared
//     parameter by parameter;
//   - what prefetch starts early; it is off here;
//   - of the tied embedding's second pass the worked steps gather the table
//     though only its type is read.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/ExpandStep.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include "gtest/gtest.h"
#include <map>

using namespace hp;
using llvm::StringRef;

namespace {
/// A module and the messages about it.
struct Read {
  std::string messages;
  llvm::raw_string_ostream stream{messages};
  DiagnosticEngine diag{stream};
  std::unique_ptr<Module> module;

  explicit Read(const std::string &path) {
    auto buffer = llvm::MemoryBuffer::getFile(path);
    if (buffer) {
      module = parseModule((*buffer)->getBuffer(), path, diag);
    }
  }
};

/// One operation as text in which values have numbers, in the order in which
/// they are made, in place of names.
class Numbering {
public:
  explicit Numbering(Module &module) : module(module) {
    // Tokens, labels, positions; learning rate and step count are hp's.
    for (const Value *argument :
         llvm::ArrayRef<Value *>(step().arguments).take_front(3)) {
      number(argument);
    }
  }

  Block &step() { return *module.findFunction("step")->body; }

  std::string line(const Operation &op) {
    std::string text = op.spelling();
    llvm::raw_string_ostream os(text);
    for (const Operand &operand : op.operands) {
      os << ' ' << name(operand);
    }
    os << " {" << op.symbol << ' ';
    module.mesh.printGroup(os, op.axes);
    os << ':' << op.dim << "->" << op.toDim;
    for (const NamedAttribute &entry : op.attrs.entries()) {
      os << ' ' << entry.name << '=' << str(entry.value, module);
    }
    os << "} acc";
    bool anyAcc = llvm::any_of(
        op.acc, [](const Operand &operand) { return !operand.isNone(); });
    for (const Operand &operand : op.acc) {
      os << (anyAcc ? " " + name(operand) : "");
    }
    for (const Value *result : op.results) {
      os << " -> ";
      if (result) {
        os << number(result) << ": " << typeText(result->type);
      }
    }
    return text;
  }

private:
  unsigned number(const Value *value) {
    return numbers.try_emplace(value, numbers.size()).first->second;
  }
  /// Labels of dims come from where a value was made and are free.
  std::string typeText(Type type) {
    TypeData data = *type;
    for (Dim &dim : data.dims) {
      for (Segment &segment : dim.segments) {
        bool counts = dim.isSegmented() || module.findDim(segment.name);
        segment.name = counts ? segment.name : StringRef();
      }
    }
    return str(module.type(data), module);
  }
  std::string name(const Operand &operand) {
    if (operand.isNone()) {
      return "_";
    }
    std::string text;
    if (operand.value && operand.value->isBundle()) {
      text = operand.value->owner->symbol.str() + ":";
    } else if (operand.value) {
      text = std::to_string(number(operand.value));
    }
    if (operand.param) {
      text += "@" + operand.param->name.str();
    }
    return operand.typeOnly ? "type(" + text + ")" : text;
  }

  Module &module;
  llvm::DenseMap<const Value *, unsigned> numbers;
};

/// A step in the form in which steps are compared.
struct Outline {
  std::vector<std::string> model; ///< up to the last reduction
  std::map<std::string, std::vector<size_t>> bundles; ///< where they change
  std::map<std::string, std::string> updates;         ///< by parameter
  std::vector<std::string> norm;
};
} // namespace

/// Whether an operation between `from` and the next reshard reads a parameter
/// of its bundle.
static bool isRead(const Operation &unshard) {
  const Block &body = *unshard.parent;
  for (auto it = std::next(unshard.getIterator()); it != body.ops.end(); ++it) {
    for (const Operand &operand : it->operands) {
      if (operand.value == unshard.results[0]) {
        if (it->is(OpKind::FsdpReshard)) {
          return false;
        }
        if (!operand.typeOnly) {
          return true;
        }
      }
    }
  }
  return false;
}

static std::string axesOf(const Value *value, const Module &module) {
  return module.mesh.str(value->type->partial);
}

static Outline outline(Module &module) {
  Outline result;
  Numbering numbering(module);
  llvm::DenseSet<const Value *> unread;
  llvm::DenseMap<const Value *, std::string> squares;
  for (const Operation &op : numbering.step().ops) {
    switch (op.kind) {
    case OpKind::Free:
    case OpKind::Sum:
    case OpKind::GradNorm:
    case OpKind::ClipCoef:
    case OpKind::Finite:
    case OpKind::Return:
      continue;
    case OpKind::FsdpUnshard:
      if (isRead(op)) {
        result.bundles[op.symbol.str()].push_back(result.model.size());
      } else {
        unread.insert(op.results[0]);
      }
      continue;
    case OpKind::FsdpReshard: {
      const Value *bundle = op.operands[0].value;
      if (!unread.contains(bundle)) {
        result.bundles[bundle->owner->symbol.str()].push_back(
            result.model.size());
      }
      continue;
    }
    case OpKind::SumSquares:
      result.updates[op.operands[0].value->owner->symbol.str()] =
          axesOf(op.results[0], module);
      continue;
    case OpKind::AdamW: {
      const Operation &reduction = *op.operands[1].value->owner;
      std::string &update = result.updates[op.operands[0].param->name.str()];
      update += " by " + reduction.symbol.str();
      for (const NamedAttribute &entry : op.attrs.entries()) {
        update += " " + entry.name.str() + "=" + str(entry.value, module);
      }
      continue;
    }
    case OpKind::AllReduce:
      if (op.operands[0].value->owner->is(OpKind::Sum)) {
        result.norm.push_back(axesOf(op.operands[0].value, module));
        continue;
      }
      break;
    default:
      break;
    }
    result.model.push_back(numbering.line(op));
  }
  return result;
}

namespace {
class ExpandWorked : public testing::TestWithParam<const char *> {};
} // namespace

TEST_P(ExpandWorked, PlanBecomesTheWorkedStep) {
  std::string file = std::string(GetParam()) + ".hp";
  Read worked(HP_SOURCE_DIR "/test/IR/worked/" + file);
  Read plan(HP_SOURCE_DIR "/test/Passes/Inputs/worked-plans/" + file);
  ASSERT_TRUE(worked.module) << worked.messages;
  ASSERT_TRUE(plan.module) << plan.messages;
  ASSERT_TRUE(verify(*plan.module, plan.diag)) << plan.messages;
  auto pass = makeExpandStep();
  std::string message;
  ASSERT_TRUE(pass->setOption("prefetch", "0", message)) << message;
  ASSERT_EQ(pass->refusal(*plan.module), "");
  ASSERT_TRUE(pass->run(*plan.module, plan.diag)) << plan.messages;
  ASSERT_TRUE(verify(*plan.module, plan.diag)) << plan.messages;

  Outline expected = outline(*worked.module), made = outline(*plan.module);
  for (size_t i = 0; i < std::min(expected.model.size(), made.model.size());
       ++i) {
    ASSERT_EQ(made.model[i], expected.model[i]) << "operation " << i;
  }
  EXPECT_EQ(made.model.size(), expected.model.size());
  EXPECT_EQ(made.bundles, expected.bundles);
  EXPECT_EQ(made.updates, expected.updates);
  EXPECT_EQ(made.norm, expected.norm);
  // Two layers of eleven and more parameters, all of which are reduced.
  EXPECT_GT(expected.model.size(), 150u);
  EXPECT_GT(expected.updates.size(), 25u);
}

INSTANTIATE_TEST_SUITE_P(Steps, ExpandWorked,
                         testing::Values("allgather", "alltoall",
                                         "alltoall_sp_off", "bias",
                                         "bias_sp_off", "kv_replicated",
                                         "kv_replicated_sp_off", "lp_off",
                                         "sp_off", "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });
