//===- Flops.cpp - Floating-point operations ------------------------------===//

#include "hp/Analysis/Flops.h"

using namespace hp;
using llvm::StringRef;

namespace {
/// The size of each factor letter of a rule; '*' is the product of the leading
/// dims that it stands for.
struct Factors {
  double size[128] = {};

  void bind(StringRef letters, Type type) {
    unsigned leading = 0;
    if (letters.consume_front("*")) {
      size[unsigned('*')] = 1;
      leading = type.rank() - std::min<size_t>(letters.size(), type.rank());
      for (unsigned i = 0; i < leading; ++i) {
        size[unsigned('*')] *= type.dims()[i].size();
      }
    }
    for (size_t i = 0; i < letters.size() && leading + i < type.rank(); ++i) {
      size[unsigned(letters[i]) & 127] = type.dims()[leading + i].size();
    }
  }
};
} // namespace

/// formula ::= term (`+` term)*;  term ::= coefficient factors
static double evaluate(StringRef formula, const Factors &factors) {
  double total = 0;
  while (!formula.empty()) {
    auto [term, rest] = formula.split('+');
    formula = rest;
    auto [coefficient, letters] = term.trim().split(' ');
    double product = 0;
    coefficient.getAsDouble(product);
    for (char letter : letters.trim()) {
      product *= factors.size[unsigned(letter) & 127];
    }
    total += product;
  }
  return total;
}

double hp::flops(Module &module, const Operation &op) {
  const OpInfo &row = op.info();
  if (row.flops.empty()) {
    return 0;
  }
  unsigned count = op.numForwardOperands();
  for (const RuleVariant &variant : row.variants) {
    if (variant.operands.size() != count) {
      continue;
    }
    Factors factors;
    for (unsigned i = 0; i < count; ++i) {
      if (Type type = op.operands[i].type(module)) {
        factors.bind(variant.operands[i], type);
      }
    }
    return evaluate(row.flops, factors) * (op.backward ? 2 : 1);
  }
  return 0;
}

double hp::flops(Module &module, Function &function) {
  double total = 0;
  for (const Operation &op : function.body->ops) {
    total += flops(module, op);
  }
  return total;
}
