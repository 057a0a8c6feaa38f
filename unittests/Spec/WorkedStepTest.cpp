//===- WorkedStepTest.cpp - Import against the worked steps ---------------===//
//
// The worked steps under test/IR/worked were typed by hand for sixteen ranks.
// Without what parallelism adds (collectives, halo, incoming state,
// placements), a layer's forward part is what import must write, operation for
// operation.
//
//===----------------------------------------------------------------------===//

#include "ImportFixture.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSwitch.h"

using namespace hp;
using llvm::StringRef;

namespace {

/// A type without placements, as text.
std::string bareType(Module &module, Type type) {
  TypeData data;
  data.dtype = type.dtype();
  for (const Dim &dim : type.dims()) {
    data.dims.push_back(dim.withAxes({}));
  }
  return str(module.type(data), module);
}

/// What parallelism adds to a forward pass.
bool isParallel(OpKind kind) {
  switch (kind) {
  case OpKind::AllGather:
  case OpKind::AllReduce:
  case OpKind::ReduceScatter:
  case OpKind::CopyTo:
  case OpKind::CpHalo:
  case OpKind::GdrSummary:
  case OpKind::CpScan:
    return true;
  default:
    return false;
  }
}

/// Writes the forward operations of layer `index` of a worked step as a
/// template on one rank has them.
class WorkedLayer {
public:
  WorkedLayer(Module &module, unsigned index)
      : module(module), prefix(std::to_string(index) + ".") {}

  std::vector<std::string> lines() {
    bool inside = false;
    std::vector<std::string> result;
    for (const Operation &op : module.findFunction("step")->body->ops) {
      if (op.is(OpKind::FsdpUnshard)) {
        inside = op.symbol == "layers." + prefix.substr(0, prefix.size() - 1);
      } else if (inside && op.is(OpKind::FsdpReshard)) {
        return result;
      } else if (inside && isParallel(op.kind)) {
        replaced[op.results[0]] = op.operands[0].value;
      } else if (inside) {
        result.push_back(line(op));
      }
    }
    return result;
  }

private:
  std::string name(const Value *value) {
    while (replaced.contains(value)) {
      value = replaced[value];
    }
    StringRef text = value->name;
    if (text.consume_front(prefix) || text == "pos") {
      return ("%" + text).str();
    }
    return "%x"; // comes from before the layer
  }

  std::string line(const Operation &op) {
    std::string text;
    for (Value *result : op.results) {
      if (result->name.ends_with(".lse")) {
        continue; // of the ring
      }
      text += (llvm::Twine(text.empty() ? "" : ", ") + name(result)).str();
    }
    text += " = ";
    text += op.kind == OpKind::CpRing ? "sdpa" : op.info().spelling.str();
    bool isFirst = true;
    for (const Operand &operand : op.operands) {
      const Operation *owner = operand.value ? operand.value->owner : nullptr;
      if (owner && (owner->is(OpKind::CpHalo) || owner->is(OpKind::CpScan))) {
        continue;
      }
      text += isFirst ? " " : ", ";
      isFirst = false;
      StringRef param = operand.param ? operand.param->name : "";
      param.consume_front("layers." + prefix);
      text += operand.param ? ("@" + param).str() : name(operand.value);
    }
    text += " :";
    for (Value *result : op.results) {
      if (!result->name.ends_with(".lse")) {
        text += (llvm::Twine(" ") + bareType(module, result->type)).str();
      }
    }
    return text;
  }

  Module &module;
  std::string prefix;
  llvm::DenseMap<const Value *, const Value *> replaced;
};

std::vector<std::string> importedLines(Module &module, StringRef block) {
  std::vector<std::string> result;
  for (const Operation &op : module.findBlock(block)->body->ops) {
    if (op.is(OpKind::Return)) {
      continue;
    }
    std::string text;
    for (Value *value : op.results) {
      text += (llvm::Twine(text.empty() ? "%" : ", %") + value->name).str();
    }
    text += " = " + op.spelling();
    for (const Operand &operand : op.operands) {
      text += (&operand == op.operands.begin() ? " " : ", ") + str(operand);
    }
    text += " :";
    for (Value *value : op.results) {
      text += (llvm::Twine(" ") + str(value->type, module)).str();
    }
    result.push_back(text);
  }
  return result;
}

class WorkedStepTest : public ImportFixture,
                       public testing::WithParamInterface<const char *> {};

TEST_P(WorkedStepTest, LayersAreTheWorkedOnesWithoutParallelism) {
  std::string path =
      std::string(HP_SOURCE_DIR "/test/IR/worked/") + GetParam() + ".hp";
  auto buffer = llvm::MemoryBuffer::getFile(path);
  ASSERT_TRUE(buffer);
  auto worked = parseModule((*buffer)->getBuffer(), path, log.diag);
  ASSERT_NE(worked, nullptr) << log.text();

  RunConfig run;
  run.training.localBatchSize.value = 4;
  run.training.seqLen.value = 16;
  run.training.dtype.value = Precision::Float64;
  std::string config =
      "{vocab_size: 32, hidden_size: 16, intermediate_size: 24, "
      "num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2, "
      "head_dim: 8, partial_rotary_factor: 0.5, mrope_section: [1, 1, 0], "
      "linear_num_key_heads: 4, linear_num_value_heads: 8, "
      "linear_key_head_dim: 4, linear_value_head_dim: 6, "
      "layer_types: [linear_attention, full_attention], attention_bias: ";
  config += StringRef(GetParam()).starts_with("bias") ? "true}" : "false}";
  auto module = import("tiny", config, &run);
  ASSERT_NE(module, nullptr) << log.text();

  std::vector<std::string> linear = WorkedLayer(*worked, 0).lines();
  EXPECT_EQ(linear.size(), 24u);
  EXPECT_EQ(importedLines(*module, "linear"), linear);
  EXPECT_EQ(importedLines(*module, "full"), WorkedLayer(*worked, 1).lines());

  // Parameters: the same types; the worked steps list norms first.
  for (const Member &member : worked->members) {
    StringRef name = member.param->name;
    Param *param = module->findParam(name);
    if (name.consume_front("layers.")) {
      BlockTemplate *block =
          module->findBlock(name[0] == '0' ? "linear" : "full");
      for (Param *candidate : block->params) {
        if (candidate->name == name.drop_front(2)) {
          param = candidate;
        }
      }
    }
    ASSERT_NE(param, nullptr) << name.str();
    EXPECT_EQ(str(param->type, *module), bareType(*worked, member.param->type))
        << name.str();
  }
}

INSTANTIATE_TEST_SUITE_P(Steps, WorkedStepTest,
                         testing::Values("sp_on", "sp_off", "bias",
                                         "bias_sp_off"));

} // namespace
