//===- ExpandStep.cpp - From a plan to one training step ------------------===//

#include "hp/Passes/ExpandStep.h"
#include "ParallelChoices.h"
#include "StepBuilder.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// StepBuilder: what its parts share
//===----------------------------------------------------------------------===//

Operation *StepBuilder::append(OpKind kind, Location loc) {
  Operation *op = module.makeOp(kind, loc);
  op->parent = body;
  body->ops.push_back(op);
  return op;
}

std::string StepBuilder::uniqueName(StringRef base) {
  unsigned &uses = names[base];
  if (++uses == 1) {
    return base.str();
  }
  return uniqueName((base + "." + llvm::Twine(uses)).str());
}

bool StepBuilder::build() {
  auto step = std::make_unique<Function>();
  step->name = module.intern("step");
  step->body = std::make_unique<Block>(module);
  body = step->body.get();

  if (!expandForward() || !expandBackward() || !expandOptimizer()) {
    return false;
  }
  step->loc = module.findFunction("train")->loc;
  module.functions.clear();
  module.functions.push_back(std::move(step));
  module.blocks.clear();
  module.stage = Stage::Step;
  return true;
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {
class ExpandStep : public Pass {
public:
  StringRef name() const override { return "expand-step"; }
  StringRef summary() const override {
    return "write out forward, backward, clip and optimizer as one flat step";
  }
  StringRef needs() const override {
    return "stage plan, or any before step on one rank; a function @train";
  }
  Stage produces() const override { return Stage::Step; }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"prefetch",
         "auto",
         "how many bundles are gathered ahead of the one in use: 0, 1, ...; 0 "
         "starts no message early",
         {}}};
    return list;
  }

  std::string refusal(Module &module) const override {
    if (module.stage == Stage::Step) {
      return "the module is at stage 'step' already";
    }
    if (module.mesh.numAxes() != 0 && module.stage != Stage::Plan) {
      return "a module on " + std::to_string(module.mesh.numRanks()) +
             " ranks must be at stage 'plan', and this one is at stage '" +
             hp::name(module.stage).str() +
             "'; run the passes that lead there first";
    }
    if (!module.findFunction("train")) {
      return "the module has no function @train to expand";
    }
    return {};
  }

  bool run(Module &module, DiagnosticEngine &diag) override {
    std::string text = chosen(*this, "prefetch", module, "prefetch", "1");
    unsigned prefetch;
    if (StringRef(text).getAsInteger(10, prefetch)) {
      return diag.error(module.loc)
             << "pass 'expand-step': 'prefetch' is auto or a number of bundles "
                "from 0, not '"
             << text << "'";
    }
    StepBuilder builder(module, diag);
    if (!builder.build()) {
      return false;
    }
    Block &body = *module.functions.front()->body;
    unsigned started = overlapCommunication(module, body, prefetch);
    count("instructions", "operations written, without frees", body.ops.size());
    const StepBuilder::Counts &counts = builder.counts();
    count("recomputed", "forward operations written again in the backward",
          counts.recomputed);
    count("unshards", "bundles of parameters gathered", counts.unshards);
    count("reductions", "gradients reduced", counts.reductions);
    count("async", "messages started early", started);
    markLastUses(module, body);
    return true;
  }
};
} // namespace

std::unique_ptr<Pass> hp::makeExpandStep() {
  return std::make_unique<ExpandStep>();
}
