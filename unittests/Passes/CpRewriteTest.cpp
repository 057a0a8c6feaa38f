//===- CpRewriteTest.cpp - Against the forward halves of worked steps -----===//
//
// test/IR/worked has training steps that were written by hand and run on
// sixteen ranks. Their forward halves, without bundles and without what tensor
// parallelism adds, must be what cp-rewrite makes of the same model: the same
// operations in the same order, on the same values, with the same types.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "hp/Passes/PassManager.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>

using namespace hp;
using llvm::StringRef;

namespace {
struct Plan {
  const char *step, *options;
};
class CpRewriteWorked : public testing::TestWithParam<Plan> {};
} // namespace

static std::unique_ptr<Module> read(const std::string &path,
                                    DiagnosticEngine &diag) {
  auto buffer = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR "/test/" + path);
  return buffer ? parseModule((*buffer)->getBuffer(), path, diag) : nullptr;
}

static std::string line(const Operation &op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(op, os);
  return StringRef(text).trim().str();
}

//===----------------------------------------------------------------------===//
// The worked step
//===----------------------------------------------------------------------===//

static Type withoutAxes(Module &module, Type type, AxisSet axes) {
  TypeData data = *type;
  data.repl = data.repl - axes;
  data.partial = data.partial - axes;
  for (Dim &dim : data.dims) {
    llvm::erase_if(dim.axes, [&](AxisId axis) { return axes.contains(axis); });
  }
  return module.type(data);
}

/// The forward half of a step, as it would be before tensor parallelism.
static std::vector<std::string> forwardHalf(Module &step) {
  std::vector<std::string> lines;
  AxisSet tensor = step.tensorAxes();
  llvm::DenseMap<Value *, Value *> sameAs;
  for (Operation &op : step.functions[0]->body->ops) {
    for (Operand &operand : op.operands) {
      if (operand.value && operand.value->isBundle()) {
        operand.value = nullptr;
      } else if (Value *other = sameAs.lookup(operand.value)) {
        operand.value = other;
      }
    }
    if (op.is(OpKind::FsdpUnshard) || op.is(OpKind::FsdpReshard)) {
      continue;
    }
    if (op.info().category == OpCategory::Collective &&
        tensor.containsAll(AxisSet(op.axes))) {
      if (!op.is(OpKind::CrossEntropyVp)) {
        sameAs[op.results[0]] = op.operands[0].value;
        continue;
      }
      op.kind = OpKind::CrossEntropy;
      op.axes.clear();
      op.dim = {};
      op.results.pop_back();
    }
    for (Value *result : op.results) {
      result->type = withoutAxes(step, result->type, tensor);
    }
    lines.push_back(line(op));
    if (op.is(OpKind::Div)) {
      break; // the loss
    }
  }
  return lines;
}

//===----------------------------------------------------------------------===//
// The templates, put together
//===----------------------------------------------------------------------===//

/// Appends the operations of `body` but for its return, names prefixed.
static void append(Block &body, StringRef prefix,
                   std::vector<std::string> &lines) {
  for (Operation &op : body.ops) {
    for (Value *result : op.results) {
      result->name = body.module.intern((prefix + result->name).str());
    }
    if (!op.is(OpKind::Return) && !op.is(OpKind::Stack) &&
        !op.is(OpKind::Call)) {
      lines.push_back(line(op));
    }
  }
}

/// The lines of @forward and @train with the two layers where the stack runs.
static std::vector<std::string> inlined(Module &module) {
  std::vector<std::string> lines;
  StringRef inputs[] = {"e0", "0.y"};
  std::vector<std::string> layers;
  for (unsigned i = 0; i < 2; ++i) {
    BlockTemplate &block = *module.blocks[i];
    std::string number = std::to_string(i);
    block.body->arguments[0]->name = module.intern(inputs[i]);
    for (Param *param : block.params) {
      param->name =
          module.intern(("layers." + number + "." + param->name).str());
    }
    append(*block.body, number + ".", layers);
  }
  for (const auto &function : module.functions) {
    for (Operation &op : function->body->ops) {
      if (op.is(OpKind::Stack)) {
        op.results[0]->name = module.intern("1.y");
      }
    }
    append(*function->body, "", lines);
  }
  lines.insert(lines.begin() + 1, layers.begin(), layers.end()); // %e0 first
  return lines;
}

TEST_P(CpRewriteWorked, WritesTheForwardHalf) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  DiagnosticEngine diag(os);
  auto step = read(std::string("IR/worked/") + GetParam().step + ".hp", diag);
  auto module = read("Passes/Inputs/worked-annotated.hp", diag);
  ASSERT_TRUE(step && module) << messages;
  PassManager manager;
  std::string pipeline = std::string("cp-rewrite{") + GetParam().options + "}";
  ASSERT_TRUE(parsePipeline(pipeline, manager, diag)) << messages;
  ASSERT_TRUE(manager.run(*module, diag)) << messages;
  EXPECT_TRUE(verify(*module, diag)) << messages;
  EXPECT_EQ(module->stage, Stage::CP);

  std::vector<std::string> expected = forwardHalf(*step);
  std::vector<std::string> written = inlined(*module);
  EXPECT_GT(expected.size(), 55u);
  ASSERT_EQ(written.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(written[i], expected[i]);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, CpRewriteWorked,
    testing::Values(Plan{"sp_on", "attention=ring,linear=state"},
                    Plan{"sp_off", "attention=ring"},
                    Plan{"lp_off", "linear=state"},
                    Plan{"allgather", "attention=allgather"},
                    Plan{"alltoall", "attention=alltoall,linear=alltoall"},
                    Plan{"alltoall_sp_off",
                         "attention=alltoall,linear=alltoall"}),
    [](const auto &info) { return info.param.step; });
