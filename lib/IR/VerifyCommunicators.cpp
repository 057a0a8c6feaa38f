//===- VerifyCommunicators.cpp - Proof 4: one order of issue --------------===//
//
// Every rank runs every instruction, in the order of the text: there is no
// control flow that could depend on a rank. So the ranks of a communicator
// issue the same messages in the same order, provided that a group of ranks has
// one communicator. That holds if a set of axes is named in one order
// everywhere:
//
//   all_reduce %x {(dp,cp)}   and   all_reduce %y {(cp,dp)}
//
// would be two over the same ranks, with nothing that orders one after the
// other.
//
//===----------------------------------------------------------------------===//

#include "VerifierState.h"
#include "llvm/ADT/STLFunctionalExtras.h"

using namespace hp;
using llvm::StringRef;

namespace {
class CommunicatorProof {
public:
  explicit CommunicatorProof(VerifierState &state) : state(state) {}

  void visit(const Operation &op);
  /// `what()` is what names the axes, for the report.
  void name(llvm::ArrayRef<AxisId> axes, Location loc,
            llvm::function_ref<std::string()> what);

private:
  struct Use {
    AxisList axes;
    Location loc;
  };
  VerifierState &state;
  llvm::DenseMap<uint32_t, Use> uses; ///< by set of axes
};
} // namespace

static std::string group(const Mesh &mesh, llvm::ArrayRef<AxisId> axes) {
  std::string text;
  llvm::raw_string_ostream os(text);
  mesh.printGroup(os, axes);
  return text;
}

void CommunicatorProof::name(llvm::ArrayRef<AxisId> axes, Location loc,
                             llvm::function_ref<std::string()> what) {
  const Mesh &mesh = state.module.mesh;
  bool onMesh =
      llvm::all_of(axes, [&](AxisId axis) { return axis < mesh.numAxes(); });
  if (axes.size() < 2 || !onMesh) {
    return;
  }
  auto [it, isNew] =
      uses.try_emplace(AxisSet(axes).raw(), Use{AxisList(axes), loc});
  if (isNew || it->second.axes == axes) {
    return;
  }
  const Use &first = it->second;
  state.error(loc).note(first.loc,
                        "named '" + group(mesh, first.axes) + "' here")
      << what() << " names the axes '" << group(mesh, axes) << "', which are '"
      << group(mesh, first.axes)
      << "' elsewhere: two communicators over the same ranks, whose messages "
         "nothing puts in one order";
}

void CommunicatorProof::visit(const Operation &op) {
  auto what = [&] { return "'" + op.spelling() + "'"; };
  if (op.info().category == OpCategory::Collective) {
    name(op.axes, op.loc, what);
  }
  if (op.is(OpKind::ReduceGrad)) {
    for (StringRef key : {"scatter", "sum"}) {
      const Attribute *axes = op.attrs.find(key);
      if (const AxisList *list = axes ? axes->get<AxisList>() : nullptr) {
        name(*list, op.loc, what);
      }
    }
  }
}

void hp::verifyCommunicators(VerifierState &state) {
  CommunicatorProof proof(state);
  auto visitParam = [&](const Param *param) {
    if (param && param->type && param->type->store) {
      proof.name(param->type->store->axes, param->loc, [&] {
        return ("the storage of '@" + param->name + "'").str();
      });
    }
  };
  auto visitBody = [&](const std::unique_ptr<Block> &body) {
    if (body) {
      for (const Operation &op : body->ops) {
        proof.visit(op);
      }
    }
  };
  for (const Member &member : state.module.members) {
    visitParam(member.param);
  }
  for (const auto &block : state.module.blocks) {
    if (block) {
      llvm::for_each(block->params, visitParam);
      visitBody(block->body);
    }
  }
  for (const auto &function : state.module.functions) {
    if (function) {
      visitBody(function->body);
    }
  }
}
