//===- PlanFits.cpp - Does a plan fit a configuration? --------------------===//

#include "hp/IR/Text.h"
#include "hp/Runtime/Run.h"
#include "llvm/ADT/MapVector.h"

using namespace hp;
using llvm::StringRef;

namespace {
/// Collects differences as errors at the plan, each with both values. One
/// setting may differ at every parameter, so only the first few are shown.
class PlanComparison {
public:
  PlanComparison(Module &plan, Module &configured, const RunConfig &config,
                 DiagnosticEngine &diag)
      : plan(plan), configured(configured), config(config), diag(diag) {}

  void differ(Location planLoc, const llvm::Twine &what, StringRef inPlan,
              StringRef inConfig) {
    fits = false;
    if (++count <= shown) {
      diag.error(planLoc).note(config.loc, "the configuration says " + inConfig)
          << "the plan does not fit the configuration: " << what.str() << " is "
          << inPlan << " in the plan";
    }
  }

  /// Says how many differences were not shown. True if there were none at all.
  bool finish() {
    if (count > shown) {
      diag.error(plan.loc) << "the plan does not fit the configuration: "
                           << count - shown << " more differences";
    }
    return fits;
  }

  void compare(StringRef line, const AttributeList &inPlan, Location loc,
               const AttributeList &inConfig) {
    auto text = [](const Attribute *attribute, Module &module) {
      return attribute ? str(*attribute, module) : std::string("absent");
    };
    auto check = [&](StringRef name) {
      const Attribute *a = inPlan.find(name), *b = inConfig.find(name);
      if (!a || !b || !(*a == *b)) {
        differ(loc, "'" + name + "' of '" + line + "'", text(a, plan),
               text(b, configured));
      }
    };
    for (const NamedAttribute &entry : inConfig.entries()) {
      check(entry.name);
    }
    for (const NamedAttribute &entry : inPlan.entries()) {
      if (!inConfig.find(entry.name)) {
        check(entry.name);
      }
    }
  }

private:
  static constexpr size_t shown = 10;
  size_t count = 0;
  bool fits = true;
  Module &plan, &configured;
  const RunConfig &config;
  DiagnosticEngine &diag;
};
} // namespace

/// Parameters of a step module by name.
static llvm::MapVector<StringRef, Param *> parametersOf(Module &module) {
  llvm::MapVector<StringRef, Param *> map;
  for (const Member &member : module.members) {
    if (member.param) {
      map[member.param->name] = member.param;
    }
  }
  return map;
}

/// `<dp_shard=4, tp=2>`.
static std::string meshText(const Module &module) {
  std::string text = "<";
  for (const MeshAxis &axis : module.mesh.axes()) {
    text += (text.size() > 1 ? ", " : "") + axis.name + "=" +
            std::to_string(axis.size);
  }
  return text + ">";
}

static const Tie *findTie(const Module &module, StringRef alias) {
  auto it = llvm::find_if(module.ties,
                          [&](const Tie &tie) { return tie.alias == alias; });
  return it == module.ties.end() ? nullptr : &*it;
}

/// The operations that carry constants of the run: clip and optimizer, by what
/// they act on.
static llvm::MapVector<StringRef, Operation *> constantsOf(Module &module) {
  llvm::MapVector<StringRef, Operation *> map;
  for (Operation &op : module.findFunction("step")->body->ops) {
    if (op.is(OpKind::AdamW) && !op.operands.empty() && op.operands[0].param) {
      map[op.operands[0].param->name] = &op;
    } else if (op.is(OpKind::ClipCoef)) {
      map["clip_coef"] = &op;
    }
  }
  return map;
}

bool hp::checkPlanFits(Module &plan, Module &configured,
                       const RunConfig &config, DiagnosticEngine &diag) {
  PlanComparison comparison(plan, configured, config, diag);
  if (plan.name != configured.name) {
    comparison.differ(plan.loc, "the model", plan.name, configured.name);
  }
  comparison.compare("config", plan.config, plan.loc, configured.config);
  comparison.compare("training", plan.training, plan.loc, configured.training);
  comparison.compare("optimizer", plan.optimizer, plan.loc,
                     configured.optimizer);
  if (meshText(plan) != meshText(configured)) {
    comparison.differ(plan.loc, "the mesh", meshText(plan),
                      meshText(configured));
  }
  for (const DimDecl &dim : configured.dims) {
    const DimDecl *found = plan.findDim(dim.name);
    if (!found || found->size != dim.size) {
      comparison.differ(found ? found->loc : plan.loc, "dim " + dim.name,
                        found ? std::to_string(found->size) : "absent",
                        std::to_string(dim.size));
    }
  }

  auto planParams = parametersOf(plan), params = parametersOf(configured);
  for (auto &[name, param] : params) {
    Param *found = planParams.lookup(name);
    std::string want = str(param->type, configured);
    if (std::string have = found ? str(found->type, plan) : "absent";
        have != want) {
      comparison.differ(found ? found->loc : plan.loc,
                        "parameter '@" + name + "'", have, want);
    } else if (found->init != param->init) {
      comparison.differ(found->loc, "'init' of parameter '@" + name + "'",
                        found->init, param->init);
    }
  }
  for (auto &[name, param] : planParams) {
    if (!params.lookup(name)) {
      comparison.differ(param->loc, "parameter '@" + name + "'",
                        str(param->type, plan), "absent");
    }
  }

  for (const Tie &tie : configured.ties) {
    const Tie *found = findTie(plan, tie.alias);
    if (!found || found->target != tie.target) {
      comparison.differ(found ? found->loc : plan.loc,
                        "what '@" + tie.alias + "' is tied to",
                        found ? found->target : "absent", tie.target);
    }
  }
  for (const Tie &tie : plan.ties) {
    if (!findTie(configured, tie.alias)) {
      comparison.differ(tie.loc, "what '@" + tie.alias + "' is tied to",
                        tie.target, "absent");
    }
  }

  auto planConstants = constantsOf(plan);
  for (auto &[name, op] : constantsOf(configured)) {
    if (Operation *found = planConstants.lookup(name)) {
      comparison.compare(found->spelling() + " @" + name.str(), found->attrs,
                         found->loc, op->attrs);
    }
  }
  return comparison.finish();
}
