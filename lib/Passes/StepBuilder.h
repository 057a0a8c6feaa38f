//===- StepBuilder.h - The state of one expansion ---------------*- C++ -*-===//
//
// expand-step's parts share this:
//
//   ExpandForward.cpp    appends every instance of every layer
//   ExpandBackward.cpp   walks them in reverse and appends the adjoints
//   ExpandBundles.cpp    gathers parameters for both halves
//   ExpandRecompute.cpp  computes again what was not kept
//   ExpandOptimizer.cpp  reduces gradients, ends the step
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_PASSES_STEPBUILDER_H
#define HP_LIB_PASSES_STEPBUILDER_H

#include "hp/IR/Module.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace hp {

class StepBuilder {
public:
  StepBuilder(Module &module, DiagnosticEngine &diag)
      : module(module), diag(diag) {}

  /// Fills the body of @step and replaces functions, blocks and stacks.
  bool build();

  /// What was written, for statistics.
  struct Counts {
    unsigned recomputed = 0, unshards = 0, reductions = 0;
  };
  const Counts &counts() const { return written; }

private:
  using ValueMap = llvm::DenseMap<Value *, Value *>;
  using ParamMap = llvm::DenseMap<Param *, Param *>;

  /// A copy of a template, or of a function with neither names nor parameters
  /// of its own.
  struct Instance {
    std::string valuePrefix = {}; ///< `12.`, before names of values
    std::string paramPrefix = {}; ///< `layers.12`, before names of parameters
    std::string bundleName = {};  ///< `L12`, of all its parameters
    const ParamMap *params = nullptr; ///< template parameter -> instance

    Param *mapped(Param *param) const {
      Param *own = params ? params->lookup(param) : nullptr;
      return own ? own : param;
    }
  };

  /// Parameters gathered in the forward half, and what becomes of that in the
  /// backward half.
  struct Bundle {
    Operation *reshard = nullptr; ///< in the forward half
    /// Not given back before the backward, if that reads it.
    bool keep = false;
    bool readInBackward = false;
    /// The walk is between the mirror images of reshard and unshard.
    bool inReach = false;
    Operation *openAfter = nullptr; ///< where a second unshard would stand
    Value *again = nullptr;         ///< gathered a second time
  };

  //--- ExpandForward.cpp ------------------------------------------------------
  bool expandForward();
  void flattenParameters();
  bool inlineBlock(Block &source, llvm::ArrayRef<Value *> arguments,
                   const Instance &instance,
                   llvm::SmallVectorImpl<Value *> &returned);
  bool inlineStack(const Operation &op, ValueMap &values);
  bool inlineCall(const Operation &op, ValueMap &values,
                  const Instance &instance);
  void appendForward(const Operation &op, ValueMap &values,
                     const Instance &instance);
  static Operand mapped(Operand operand, const ValueMap &values,
                        const Instance &instance);
  bool countVisit(Location loc);

  //--- ExpandBackward.cpp -----------------------------------------------------
  bool expandBackward();
  void appendLossGradient();
  bool appendAdjoint(Operation &forward);
  bool appendBackwardOp(Operation &forward, llvm::ArrayRef<Operand> cotangents);
  bool appendCollectiveAdjoint(Operation &forward, Value *cotangent);
  void joinGradient(const Operand &operand, Value *gradient, Location loc);
  Operand readInBackward(Operand operand, bool needsValue);
  void markTrained(const Operation &forward);
  bool isTrained(const Operand &operand) const;
  Value *&runningGradient(const Operand &operand);

  //--- ExpandBundles.cpp ------------------------------------------------------
  void appendUnshard(const Operation &op, ValueMap &values,
                     const Instance &instance);
  void appendReshard(const Operation &op, ValueMap &values,
                     const Instance &instance);
  void reachReshard(const Operation &forward);
  void reachUnshard(const Operation &forward);
  Value *openBundle(Value *bundle);
  Value *bundleForType(Value *bundle) const;
  void closeTemporaryBundles();
  std::string bundleName(llvm::StringRef symbol, llvm::StringRef base);
  Operation *makeUnshard(const Operation &like, std::string name);
  Operation *makeReshard(Value *bundle, Location loc);

  //--- ExpandRecompute.cpp ----------------------------------------------------
  void recompute(llvm::ArrayRef<Value *> values);
  void appendCopy(const Operation &forward);

  //--- ExpandOptimizer.cpp ----------------------------------------------------
  void scheduleReductions();
  void appendReductions(unsigned index);
  void reduceGradient(Param *param);
  bool expandOptimizer();
  llvm::SmallVector<Operand, 2> appendNormTerms(llvm::ArrayRef<Param *> order,
                                                Location loc);

  Operation *append(OpKind kind, Location loc);
  /// `base`, or `base.2`, `base.3`, ... if taken.
  std::string uniqueName(llvm::StringRef base);

  Module &module;
  DiagnosticEngine &diag;
  Block *body = nullptr; ///< of @step
  Value *loss = nullptr;
  Value *validTargets = nullptr; ///< the divisor of the loss; may be null
  Value *lossOfAll = nullptr;    ///< reduced over its partial axes
  std::vector<Operation *> forwardOps;
  /// Values that depend on a parameter: the others need no gradient.
  llvm::DenseSet<const Value *> trained;
  unsigned visits = 0, callDepth = 0;
  std::vector<Param *> parameters; ///< flat, in construction order
  /// For each layer of each stack, template parameter → instance.
  llvm::StringMap<std::vector<ParamMap>> instances;
  /// For each stack, the template of each layer.
  llvm::StringMap<std::vector<llvm::StringRef>> stackLayers;
  llvm::DenseMap<Value *, Value *> valueGradients;
  llvm::DenseMap<Param *, Value *> paramGradients;
  llvm::StringMap<unsigned> names;

  //--- Bundles ----------------------------------------------------------------
  llvm::DenseMap<Value *, Bundle> bundles; ///< by the forward value
  /// Of each symbol the name in use, and how many such bundles may be open.
  struct BundleName {
    std::string name;
    unsigned open = 0;
  };
  llvm::StringMap<BundleName> bundleNames;
  /// Gathered for one operation: forward value -> its second one.
  llvm::MapVector<Value *, Value *> temporaryBundles;

  //--- Recomputation ----------------------------------------------------------
  /// Forward operations that are marked, with their positions.
  llvm::DenseMap<const Operation *, unsigned> marked;
  /// Forward value -> the same value, computed again.
  llvm::DenseMap<Value *, Value *> copies;

  //--- Reductions -------------------------------------------------------------
  /// Which parameters are reduced together: those of a layer, or those of the
  /// model whose names begin alike.
  llvm::DenseMap<Param *, unsigned> buckets;
  /// Forward position -> the parameters whose gradients are complete when the
  /// walk has passed it.
  llvm::DenseMap<unsigned, std::vector<Param *>> reductions;
  Counts written;
};

} // namespace hp

#endif // HP_LIB_PASSES_STEPBUILDER_H
