//===- Module.h - Operations, blocks, functions, modules --------*- C++ -*-===//
//
// A Module is one model at one stage: its mesh, its dims, its parameters, one
// block template for each distinct layer, stacks that name the layers, and
// functions. It owns everything in it; pointers and interned strings live as
// long as it does.
//
//   model "qwen3_5_v2" flavor("tiny") stage(spec) {
//     config {hidden_size=256, rms_norm_eps=1e-06, ...}
//     training {dtype=float32, loss=cross_entropy, max_norm=1.0}
//     optimizer {name=adamw, beta1=0.9, ...}
//     mesh <>
//     dim B = 8
//     dim S = 128
//     tied @lm_head.weight = @embed_tokens.weight
//     param @embed_tokens.weight : f32[V=1024, 256] {init=embedding}
//     stack @layers = [(@linear x3, @full) x1]
//     param @norm.weight : f32[256] {init=zeros}
//     block @linear(%x: f32[B, S, 256], %pos: i64[S]) {
//       param @input_layernorm.weight : f32[256] {init=zeros}
//       %n = rms_norm %x, @input_layernorm.weight {eps=1e-06, unit_offset} :
//       f32[B, S, 256]
//       ...
//       return %y
//     }
//     func @forward(%tok: i64[B, S], %pos: i64[S]) { ... return %lg }
//     func @train(%tok: i64[B, S], %lab: i64[B, S], %pos: i64[S]) { ... }
//   }
//
// At stage `step` there are no blocks and stacks; parameters carry their full
// names and the one function is @step.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_MODULE_H
#define HP_IR_MODULE_H

#include "hp/IR/Attributes.h"
#include "hp/IR/Ops.h"
#include "hp/IR/Type.h"
#include "hp/Support/Diagnostics.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/ilist.h"
#include "llvm/ADT/ilist_node.h"
#include "llvm/Support/Allocator.h"
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace hp {

class Block;
class Module;
class Operation;

/// A value: an argument of a block or a result of an operation.
struct Value {
  llvm::StringRef name;       ///< without '%', interned
  Type type;                  ///< null for a bundle of parameters
  Operation *owner = nullptr; ///< null for arguments
  unsigned index = 0;         ///< which result or argument
  Location loc;

  bool isArgument() const { return owner == nullptr; }
  bool isBundle() const { return !type; }
};

/// A parameter of a module or of a block template.
struct Param {
  llvm::StringRef name; ///< without '@', interned; relative in a template
  Type type;
  /// How it starts: embedding, linear, bias, log_uniform, ones or zeros.
  llvm::StringRef init;
  Location loc;
  /// What the model spec declares of its placement, at stage spec;
  /// shard-annotate turns it into the type. Nothing: the spec is silent. No
  /// cuts: whole on every rank.
  struct Cut {
    unsigned dim;
    llvm::StringRef axis; ///< of the mesh, an alias, or one of size 1 that the
                          ///< mesh does not have
    bool operator==(const Cut &) const = default;
  };
  std::optional<llvm::SmallVector<Cut, 1>> declared = std::nullopt;
};

/// What an operation reads: a value, a parameter, a parameter of an unsharded
/// bundle (`%L0@norm.weight`), or nothing (`_`).
struct Operand {
  Value *value = nullptr;
  Param *param = nullptr;
  /// `type(%x)`: only the type is read; the value may be gone by now.
  bool typeOnly = false;

  bool isNone() const { return !value && !param; }
  /// The type read. Of a parameter its compute type: without storage, and
  /// with the axes that are in force alone.
  Type type(Module &module) const;
  bool operator==(const Operand &) const = default;
};

/// One operation, forward or `.bwd`.
class Operation : public llvm::ilist_node<Operation> {
public:
  OpKind kind;
  bool backward = false; ///< the adjoint of `kind`
  Location loc;
  llvm::SmallVector<Operand, 4> operands;
  /// Running gradients, one for each result of a backward operation, or empty.
  llvm::SmallVector<Operand, 3> acc;
  llvm::SmallVector<Value *, 2> results; ///< null where the text has `_`
  AttributeList attrs;
  /// The axes of a collective, and the dims of `{tp: S}`, `{cp: S->h}`.
  AxisList axes;
  llvm::StringRef dim, toDim;
  /// `@name` of stack and call, the prefix of fsdp.unshard (`@layers.0.*`
  /// without `.*`), the parameter of reduce_grad.
  llvm::StringRef symbol;
  Block *parent = nullptr;

  explicit Operation(OpKind kind) : kind(kind) {}
  const OpInfo &info() const { return opInfo(kind); }
  bool is(OpKind other) const { return kind == other && !backward; }
  /// `rms_norm` or `rms_norm.bwd`.
  std::string spelling() const;
  /// Of a backward operation: how many of its operands are the forward one's.
  /// The rest are saved results and cotangents.
  unsigned numForwardOperands() const;
  /// The operand whose storage result `index` shares: of a view, or the
  /// cotangent that a backward operation passes on. Null if the result is
  /// fresh.
  const Operand *sharesStorageWith(unsigned index) const;
};

/// A straight list of operations with arguments: the body of a template or of a
/// function.
class Block {
public:
  explicit Block(Module &module) : module(module) {}
  Module &module;
  llvm::SmallVector<Value *, 4> arguments;
  llvm::ilist<Operation> ops;

  /// The final `return`; null while the block is being built.
  Operation *terminator();
};

/// A layer template: parameters with names relative to the instance.
struct BlockTemplate {
  llvm::StringRef name;
  Location loc;
  std::vector<Param *> params;
  std::unique_ptr<Block> body;
};

struct Function {
  llvm::StringRef name;
  Location loc;
  std::unique_ptr<Block> body;
};

/// `[(@linear x3, @full) x8]`: groups of runs, each repeated.
struct StackRun {
  llvm::StringRef block;
  int64_t count;
  bool operator==(const StackRun &) const = default;
};
struct StackGroup {
  llvm::SmallVector<StackRun, 2> runs;
  int64_t count = 1;
  bool operator==(const StackGroup &) const = default;
};
struct Stack {
  llvm::StringRef name;
  Location loc;
  llvm::SmallVector<StackGroup, 2> groups;

  int64_t numLayers() const;
  /// The template of each layer, in order. Refuses nothing: verify first.
  std::vector<llvm::StringRef> layers() const;
  /// The shortest groups for a list of layers: whole periods first, a rest
  /// after.
  static llvm::SmallVector<StackGroup, 2>
  fold(llvm::ArrayRef<llvm::StringRef> layers);
};

/// `dim B = 8`.
struct DimDecl {
  llvm::StringRef name;
  int64_t size;
  Location loc;
};

/// `tied @alias = @target`.
struct Tie {
  llvm::StringRef alias, target;
  Location loc;
};

/// One line of a module that has an order: a parameter or a stack.
struct Member {
  Param *param = nullptr;
  Stack *stack = nullptr;
};

class Module {
public:
  Module() = default;
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  llvm::StringRef name;   ///< of the model
  llvm::StringRef flavor; ///< may be empty
  Stage stage = Stage::Spec;
  Location loc;
  AttributeList config;    ///< the model's configuration, as resolved
  AttributeList training;  ///< dtype, loss, max_norm, ...
  AttributeList optimizer; ///< name, beta1, ...
  /// What the passes are to choose: sequence_parallel, attention, recompute,
  /// ...
  AttributeList parallelism;
  /// What cuts values: B=dp, S=cp, sequence_parallel=[S, tp], ...
  AttributeList sharding;
  Mesh mesh;
  llvm::SmallVector<DimDecl, 4> dims;
  llvm::SmallVector<Tie, 1> ties;
  /// Parameters and stacks in model order: the order in which modules are
  /// built. Append with addParam and addStack.
  std::vector<Member> members;
  std::vector<std::unique_ptr<BlockTemplate>> blocks;
  std::vector<std::unique_ptr<Function>> functions;

  //--- Interning and making -------------------------------------------------
  llvm::StringRef intern(llvm::StringRef text) {
    auto it = strings.find(text);
    return it != strings.end() ? *it
                               : *strings.insert(text.copy(allocator)).first;
  }
  Type type(const TypeData &data);
  Value *makeValue(llvm::StringRef name, Type type, Location loc = {});
  Operation *makeOp(OpKind kind, Location loc = {});
  Param *makeParam(llvm::StringRef name, Type type, llvm::StringRef init,
                   Location loc = {});
  Stack *makeStack(llvm::StringRef name, Location loc = {});
  /// Makes a result value of `op`.
  Value *addResult(Operation *op, llvm::StringRef name, Type type);

  void addParam(Param *param);
  void addStack(Stack *stack);

  //--- Looking up ------------------------------------------------------------
  Param *findParam(llvm::StringRef name); ///< module level
  Stack *findStack(llvm::StringRef name);
  BlockTemplate *findBlock(llvm::StringRef name);
  Function *findFunction(llvm::StringRef name);
  const DimDecl *findDim(llvm::StringRef name) const;
  /// The declared dim as a Dim: `B`. Must exist.
  Dim namedDim(llvm::StringRef name) const;

  /// The type with states dualized: R and P exchanged, storage dropped.
  Type dual(Type type);
  Type scalar(DType dtype);

  /// The axes of context parallelism (`cp`) and of tensor parallelism (`tp`, or
  /// what an alias of that name stands for); empty where the mesh has none.
  AxisSet contextAxes() const;
  AxisSet tensorAxes() const;
  /// The axes that values mention at this stage. Parameters carry their whole
  /// placement from stage annotated on, and passes bring its axes into force:
  /// shard-annotate all but those of context and tensor parallelism, cp-rewrite
  /// and tp-insert theirs.
  AxisSet axesInForce() const;

private:
  llvm::BumpPtrAllocator allocator;
  llvm::DenseSet<llvm::StringRef> strings;
  struct TypeKey {
    static const TypeData *getEmptyKey();
    static const TypeData *getTombstoneKey();
    static unsigned getHashValue(const TypeData *data);
    static bool isEqual(const TypeData *lhs, const TypeData *rhs);
  };
  llvm::DenseSet<const TypeData *, TypeKey> typeSet;
  std::deque<TypeData> types; ///< owns; addresses are stable
  std::deque<Value> values;
  std::deque<Param> params;
  std::deque<Stack> stacks;
  llvm::StringMap<Param *> paramIndex;
};

} // namespace hp

#endif // HP_IR_MODULE_H
