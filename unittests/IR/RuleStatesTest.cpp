//===- RuleStatesTest.cpp - All operand states of all rules ---------------===//
//
// Enumerates the states of the operands of each local operation on one axis,
// and asks that the engine accepts those of rules/accepted.txt, with the
// results given there, and no others.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/InferTypes.h"
#include "hp/IR/Text.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MemoryBuffer.h"
#include <gtest/gtest.h>
#include <map>
#include <set>

using namespace hp;
using llvm::StringRef;

namespace {
/// The operands of one operation, without states.
struct Shape {
  OpKind kind;
  std::vector<std::pair<DType, std::vector<int64_t>>> operands;
};

class RuleStates : public testing::Test {
protected:
  void SetUp() override { module.mesh.addAxis("a", 2); }

  /// All states that a tensor of this shape can be in on axis `a`: one cut of
  /// each even dim, and without a cut I, R, P; for integers I alone.
  std::vector<Type> statesOf(DType dtype, const std::vector<int64_t> &shape) {
    TypeData whole;
    whole.dtype = dtype;
    for (int64_t extent : shape) {
      whole.dims.push_back(Dim("", {extent}));
    }
    std::vector<Type> list;
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] % 2 == 0) {
        TypeData cut = whole;
        cut.dims[i].axes = {0};
        list.push_back(module.type(cut));
      }
    }
    list.push_back(module.type(whole));
    if (isFloat(dtype)) {
      TypeData repl = whole, partial = whole;
      repl.repl = partial.partial = AxisSet::single(0);
      list.push_back(module.type(repl));
      list.push_back(module.type(partial));
    }
    return list;
  }

  std::string line(OpKind kind, llvm::ArrayRef<Type> operands,
                   llvm::ArrayRef<Type> results) {
    std::string text = opInfo(kind).spelling.str() + " ";
    llvm::raw_string_ostream os(text);
    llvm::ListSeparator comma;
    for (Type type : operands) {
      os << comma << str(type, module);
    }
    os << " => ";
    llvm::ListSeparator resultComma;
    for (Type type : results) {
      os << resultComma << str(type, module);
    }
    return text;
  }

  /// What the engine accepts of `shape`, one line each; counts all it was
  /// asked.
  std::set<std::string> accepted(const Shape &shape, unsigned &asked) {
    std::set<std::string> lines;
    std::vector<std::vector<Type>> choices;
    for (const auto &[dtype, dims] : shape.operands) {
      choices.push_back(statesOf(dtype, dims));
    }
    std::vector<size_t> digits(choices.size(), 0);
    Operation like(shape.kind);
    while (true) {
      std::vector<Type> operands;
      for (size_t i = 0; i < digits.size(); ++i) {
        operands.push_back(choices[i][digits[i]]);
      }
      ++asked;
      auto results = inferForward(module, shape.kind, operands, like);
      if (results) {
        lines.insert(line(shape.kind, operands, *results));
      } else {
        EXPECT_FALSE(llvm::toString(results.takeError()).empty());
      }
      size_t i = 0;
      while (i < digits.size() && ++digits[i] == choices[i].size()) {
        digits[i++] = 0;
      }
      if (i == digits.size()) {
        return lines;
      }
    }
  }

  Module module;
};
} // namespace

TEST_F(RuleStates, exactly_the_sound_combinations_are_accepted) {
  constexpr DType F = DType::F64, I = DType::I64;
  const Shape shapes[] = {
      {OpKind::Embedding, {{I, {2, 4}}, {F, {6, 4}}}},
      {OpKind::Linear, {{F, {2, 4, 6}}, {F, {8, 6}}}},
      {OpKind::BiasAdd, {{F, {2, 4, 6}}, {F, {6}}}},
      {OpKind::RmsNorm, {{F, {2, 4, 6}}, {F, {6}}}},
      {OpKind::RmsNormGated, {{F, {2, 4, 2, 6}}, {F, {2, 4, 2, 6}}, {F, {6}}}},
      {OpKind::Sigmoid, {{F, {2, 4, 6}}}},
      {OpKind::Add, {{F, {2, 4, 6}}, {F, {2, 4, 6}}}},
      {OpKind::SiluMul, {{F, {2, 4, 6}}, {F, {2, 4, 6}}}},
      {OpKind::SigmoidMul, {{F, {2, 4, 6}}, {F, {2, 4, 6}}}},
      {OpKind::Decay, {{F, {2, 4, 6}}, {F, {6}}, {F, {6}}}},
      {OpKind::Rope, {{F, {2, 4, 2, 6}}, {I, {4}}}},
      {OpKind::CausalConv1d, {{F, {2, 6, 4}}, {F, {4, 1, 4}}}},
      {OpKind::GatedDeltaRule,
       {{F, {2, 4, 2, 4}},
        {F, {2, 4, 2, 4}},
        {F, {2, 4, 4, 6}},
        {F, {2, 4, 4}},
        {F, {2, 4, 4}}}},
      {OpKind::GdrSummary,
       {{F, {2, 4, 2, 4}}, {F, {2, 4, 4, 6}}, {F, {2, 4, 4}}, {F, {2, 4, 4}}}},
      {OpKind::Sdpa, {{F, {2, 4, 4, 6}}, {F, {2, 4, 2, 6}}, {F, {2, 4, 2, 6}}}},
      {OpKind::Sdpa, {{F, {2, 4, 4, 6}}, {F, {2, 4, 1, 6}}, {F, {2, 4, 1, 6}}}},
      {OpKind::CrossEntropy, {{F, {2, 4, 6}}, {I, {2, 4}}}},
      {OpKind::CountValid, {{I, {2, 4}}}},
      {OpKind::Div, {{F, {}}, {I, {}}}}};

  auto buffer = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR
                                            "/unittests/IR/rules/accepted.txt");
  ASSERT_TRUE(buffer);
  std::set<std::string> expected, got;
  llvm::SmallVector<StringRef, 0> lines;
  (*buffer)->getBuffer().split(lines, '\n');
  for (StringRef line : lines) {
    if (!line.trim().empty() && !line.starts_with("#")) {
      expected.insert(line.str());
    }
  }
  unsigned asked = 0;
  for (const Shape &shape : shapes) {
    got.merge(accepted(shape, asked));
  }
  EXPECT_EQ(got, expected);
  EXPECT_EQ(got.size(), 94u);
  EXPECT_GT(asked, 15000u);
}
