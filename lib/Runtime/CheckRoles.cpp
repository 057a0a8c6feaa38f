//===- CheckRoles.cpp - Which scalar is which in a step -------------------===//
//
// After the last gradient all values are scalars of two types, and types cannot
// tell a learning rate from a clip coefficient. A plan that mixes them up would
// train other numbers without a word, so what each one is gets checked by the
// operation that makes it.
//
//===----------------------------------------------------------------------===//

#include "CheckRoles.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;

namespace {
class RoleChecker {
public:
  RoleChecker(Function &step, DiagnosticEngine &diag)
      : step(step), diag(diag) {}

  bool check() {
    for (const Operation &op : step.body->ops) {
      if (op.backward) {
        continue;
      }
      switch (op.kind) {
      case OpKind::ClipCoef:
        expectMadeBy(op, 0, OpKind::GradNorm, "the norm");
        break;
      case OpKind::Finite:
        expectMadeBy(op, 0, OpKind::GradNorm, "the norm");
        if (op.operands.size() > 1) {
          expectMadeBy(op, 1, OpKind::CountValid, "the number of targets");
        }
        hasCount |= op.operands.size() > 1;
        break;
      case OpKind::AdamW:
        expectMadeBy(op, 2, OpKind::ClipCoef, "the clip coefficient");
        expectArgument(op, 3, "lr");
        expectArgument(op, 4, "t");
        expectMadeBy(op, 5, OpKind::Finite, "whether to update");
        break;
      case OpKind::CrossEntropy:
      case OpKind::CrossEntropyVp:
        expectArgument(op, 1, "lab");
        lossKind = op.kind;
        break;
      case OpKind::CountValid:
        expectArgument(op, 0, "lab");
        counts = true;
        break;
      case OpKind::Div:
        expectMadeBy(op, 0, lossKind, "the sum of losses");
        expectMadeBy(op, 1, OpKind::CountValid, "the number of targets");
        divides = true;
        break;
      case OpKind::Return:
        checkReturn(op);
        break;
      default:
        break;
      }
    }
    return ok;
  }

private:
  /// Whether `kind` made the operand, or terms that all_reduce summed to it.
  static bool isMadeBy(const Operand &operand, OpKind kind) {
    const Operand *from = &operand;
    while (from->value && !from->param && from->value->owner) {
      const Operation &owner = *from->value->owner;
      if (owner.is(kind)) {
        return true;
      }
      if (!owner.is(OpKind::AllReduce)) {
        return false;
      }
      from = &owner.operands[0];
    }
    return false;
  }
  void expectMadeBy(const Operation &op, unsigned index, OpKind kind,
                    StringRef role) {
    if (index < op.operands.size() && !isMadeBy(op.operands[index], kind)) {
      ok = diag.error(op.loc)
           << "'" << op.spelling() << "': operand " << index << " is " << role
           << ", a result of '" << opInfo(kind).spelling << "', and not '"
           << str(op.operands[index]) << "'";
    }
  }
  void expectArgument(const Operation &op, unsigned index, StringRef name) {
    if (index >= op.operands.size()) {
      return;
    }
    const Operand &operand = op.operands[index];
    if (operand.param || !operand.value || !operand.value->isArgument() ||
        operand.value->name != name) {
      ok = diag.error(op.loc) << "'" << op.spelling() << "': operand " << index
                              << " is the step's argument '%" << name
                              << "', and not '" << str(operand) << "'";
    }
  }
  /// loss, norm, number of targets if there is one, whether it updated.
  void checkReturn(const Operation &op) {
    expectMadeBy(op, 0, divides ? OpKind::Div : lossKind, "the loss");
    expectMadeBy(op, 1, OpKind::GradNorm, "the norm");
    if (op.operands.size() > 3) {
      expectMadeBy(op, 2, OpKind::CountValid, "the number of targets");
    }
    if (op.operands.size() > 2) {
      expectMadeBy(op, op.operands.size() - 1, OpKind::Finite,
                   "whether it updated");
    }
    if (counts && (!hasCount || op.operands.size() < 4)) {
      ok = diag.error(op.loc)
           << "'finite' and 'return' must take the number of targets too: a "
              "batch without any would update";
    }
  }

  Function &step;
  DiagnosticEngine &diag;
  OpKind lossKind = OpKind::CrossEntropy; ///< the one that was seen
  bool ok = true;
  bool divides = false, counts = false, hasCount = false;
};
} // namespace

bool hp::checkRoles(Function &step, DiagnosticEngine &diag) {
  return RoleChecker(step, diag).check();
}
