//===- BackwardTypes.cpp - Types of backward operations -------------------===//
//
// A backward operation names the operands of its forward operation, the results
// it saved and the cotangents; what it makes are the duals of the operands that
// have a gradient:
//
//   %dx, %dw = linear.bwd %x, @w, %dy acc[%g, _]
//
//===----------------------------------------------------------------------===//

#include "TypeRules.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::Twine;

llvm::Expected<TypeList> hp::inferBackward(Module &module, const Operation &op,
                                           llvm::ArrayRef<Type> operands,
                                           llvm::ArrayRef<Type> acc) {
  const OpInfo &info = op.info();
  auto refuse = [&](const Twine &what, int operand = -1) {
    return typeFault(op.spelling(), what, operand);
  };
  if (!info.isDifferentiable()) {
    return refuse("'" + info.spelling + "' has no gradient");
  }
  if (!info.hasBackwardOp()) {
    return refuse("the adjoint of '" + info.spelling +
                  "' is another collective, not an operation of its own");
  }

  unsigned numForward = op.numForwardOperands();
  auto forward =
      inferForward(module, op.kind, operands.take_front(numForward), op);
  if (!forward) {
    return forward.takeError();
  }
  auto saved = info.savedResults();
  auto cotangents = info.cotangentResults(forward->size());
  unsigned firstCotangent = numForward + saved.size();
  if (operands.size() != firstCotangent + cotangents.size()) {
    return refuse("takes " + Twine(numForward) + " forward operands, " +
                  Twine(saved.size()) + " saved results and " +
                  Twine(cotangents.size()) + " cotangents, not " +
                  Twine(operands.size()) + " operands in all");
  }

  for (unsigned i = 0; i < saved.size(); ++i) {
    unsigned position = numForward + i;
    Type expected = (*forward)[saved[i]];
    if (!operands[position] || !operands[position].matches(expected)) {
      return refuse("operand " + Twine(position) + " must be result " +
                        Twine(saved[i]) + " of the forward operation, " +
                        str(expected, module),
                    position);
    }
  }

  bool anyCotangent = false;
  for (unsigned i = 0; i < cotangents.size(); ++i) {
    unsigned position = firstCotangent + i;
    if (op.operands[position].isNone()) {
      continue; // this result has no gradient
    }
    anyCotangent = true;
    Type expected = module.dual((*forward)[cotangents[i]]);
    if (!operands[position] || !operands[position].matches(expected)) {
      return refuse("cotangent " + Twine(i) + " is " +
                        (operands[position] ? str(operands[position], module)
                                            : std::string("a bundle")) +
                        " but the dual of the forward result is " +
                        str(expected, module),
                    position);
    }
  }
  if (!anyCotangent) {
    return refuse("has no cotangent, so its gradients are zero; leave it out");
  }

  TypeList results;
  for (unsigned position : info.diffOperands(numForward)) {
    if (position >= numForward) {
      return refuse("lacks operand " + Twine(position));
    }
    results.push_back(module.dual(operands[position]));
  }
  if (!acc.empty() && acc.size() != results.size()) {
    return refuse("acc[] names " + Twine(acc.size()) +
                  " running gradients for " + Twine(results.size()) +
                  " gradients; write '_' for one that has none");
  }
  for (unsigned i = 0; i < acc.size(); ++i) {
    if (!op.acc[i].isNone() && (!acc[i] || !acc[i].matches(results[i]))) {
      return refuse("running gradient " + Twine(i) + " is " +
                    (acc[i] ? str(acc[i], module) : std::string("a bundle")) +
                    " but the gradient it joins is " + str(results[i], module));
    }
  }
  return results;
}
