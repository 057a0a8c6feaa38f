//===- Interpreter.h - Runs a step program ----------------------*- C++ -*-===//
//
// Executes the instructions of a flat @step in order over slots, one for each
// value, and decides nothing: what to compute, when to free and what to update
// stands in the text. There is no autograd graph around it.
//
// One interpreter computes the local ranks of a communicator together,
// instruction by instruction: a slot holds one tensor for each of them. No
// instruction depends on the rank, so with one rank in a process and with all
// of them in one, each rank does the same in the same order.
//
// A message with async is started where it stands and finished at its wait, if
// the communicator can; what it fills is allocated, and counted, at the start.
//
// Bytes are measured on the tensors held by each rank, each storage once,
// results charged while operands live; hp::peakOfValues predicts the same
// number. Bytes sent are counted by the communicator; hp::predictTraffic
// predicts them.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_INTERPRETER_H
#define HP_RUNTIME_INTERPRETER_H

#include "hp/Analysis/Communication.h"
#include "hp/Runtime/Communicator.h"
#include "hp/Runtime/Kernels.h"
#include "hp/Runtime/ParameterStore.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace hp {

struct StartedBucket; // comm/Exchange.h

/// What one step is given on one rank. Tokens and labels are int64 [B, S],
/// positions [S], of the local shapes of @step's arguments.
struct StepInputs {
  at::Tensor tokens, labels, positions;
  double learningRate = 0;
};

/// A batch of the global shapes, cut for each of `ranks` as the types of
/// @step's arguments say.
std::vector<StepInputs> cutInputs(const StepInputs &whole, Module &step,
                                  llvm::ArrayRef<int64_t> ranks);

/// What @step returns, the same on all ranks.
struct StepResult {
  double loss = 0;
  double gradNorm = 0;
  int64_t validTargets = 0;
  bool updated = false; ///< false where the step was skipped
};

/// What the forward part alone computes.
struct ForwardResult {
  double loss = 0;
  int64_t validTargets = 0;
  at::Tensor logits; ///< [B, S, vocabulary], whole
};

/// One for each local rank.
using KernelSets = std::vector<std::unique_ptr<KernelSet>>;
/// The oracle's, for the local ranks of `comm`.
KernelSets makeReferenceKernels(const Communicator &comm);

class Interpreter {
public:
  /// Prepares `module`, at stage step on the mesh of `comm`, to run with
  /// `kernels` on `stores`, one for each local rank. Null, with an error, for a
  /// program that cannot run: an operation the runtime does not have, arguments
  /// that are not those of a step, a parameter the stores lack or whose shape
  /// differs.
  static std::unique_ptr<Interpreter> create(Module &module, Communicator &comm,
                                             const KernelSets &kernels,
                                             ParameterStores &stores,
                                             DiagnosticEngine &diag);

  /// Runs the whole step on the inputs of each local rank. Nothing, with an
  /// error, if a kernel failed; the parameters are then as before unless the
  /// optimizer had begun.
  std::optional<StepResult> step(llvm::ArrayRef<StepInputs> inputs,
                                 DiagnosticEngine &diag);

  /// Runs up to the loss.
  std::optional<ForwardResult> forward(llvm::ArrayRef<StepInputs> inputs,
                                       DiagnosticEngine &diag);

  /// Runs up to the optimizer and gives `visit` the gradient of each parameter,
  /// whole, reduced and not yet clipped. With one rank in a process, all
  /// processes must call it.
  using GradientVisitor =
      std::function<void(llvm::StringRef param, const at::Tensor &gradient)>;
  bool gradients(llvm::ArrayRef<StepInputs> inputs,
                 const GradientVisitor &visit, DiagnosticEngine &diag);

  /// Sees each result on the local ranks when it is made: for tests that
  /// compare every value.
  using ValueObserver =
      std::function<void(const Value &, llvm::ArrayRef<at::Tensor>)>;
  void observe(ValueObserver newObserver) { observer = std::move(newObserver); }

  /// The largest number of bytes of values that local rank `local` held so far.
  int64_t peakBytes(size_t local = 0) const { return held[local].peak; }
  /// What one rank sent in all of step() so far.
  const Traffic &traffic() const { return sent; }
  /// The most memory a kernel took beyond its operands and results, if
  /// AllocationMeter is installed.
  int64_t workspaceBytes() const { return workspace; }
  /// Time spent in kernels and in all of step(), in seconds, so far.
  double kernelSeconds() const { return kernelTime; }
  double totalSeconds() const { return totalTime; }

private:
  using Ranked = Communicator::Tensors; ///< one for each local rank

  struct Source {
    enum Kind : uint8_t { None, Slot, Parameter, Placeholder } kind = None;
    unsigned index = 0;
  };
  struct Instruction {
    const Operation *op;
    llvm::SmallVector<Source, 4> operands; ///< then the running gradients
    llvm::SmallVector<int, 3> results;     ///< slots; -1 where dropped
    unsigned numForward = 0, numSaved = 0, numCotangents = 0;
    llvm::SmallVector<unsigned, 2> frees; ///< slots
    /// Of fsdp.unshard: what it gathers, one for each result.
    std::vector<const Param *> gathered;
    std::vector<unsigned> gatheredFrom; ///< positions in the stores
    /// Of reduce_grad: its run, and which member it is.
    unsigned run = 0, member = 0;
  };
  /// reduce_grad instructions that travel together. The first one reduces for
  /// all; each takes its own when its turn comes.
  struct Reduction {
    ReductionRun run;
    std::vector<Source> gradients;
    std::vector<Ranked> pending;
  };
  /// Bytes that one rank holds.
  struct Holdings {
    llvm::DenseMap<const void *, unsigned> storages; ///< holders of each
    int64_t live = 0, peak = 0;
  };

  Interpreter(Module &module, Communicator &comm, const KernelSets &kernels,
              ParameterStores &stores)
      : module(module), comm(comm), kernels(kernels), stores(stores),
        held(stores.size()) {}
  bool prepare(DiagnosticEngine &diag);
  bool prepareArguments(Function &function, DiagnosticEngine &diag);
  bool prepareInstruction(const Operation &op, DiagnosticEngine &diag);
  bool prepareBundle(const Operation &op, Instruction &instruction,
                     DiagnosticEngine &diag);
  void prepareResults(const Operation &op, Instruction &instruction);
  bool prepareReturn(const Operation &op, DiagnosticEngine &diag);
  std::optional<Source> source(const Operand &operand, const Operation &op,
                               DiagnosticEngine &diag);
  std::optional<unsigned> storedAt(const Param &param, const Operation &op,
                                   DiagnosticEngine &diag);
  unsigned slotOf(const Value *value);
  unsigned bundleSlot(const Value *bundle, const Param *param);

  bool begin(llvm::ArrayRef<StepInputs> inputs, DiagnosticEngine &diag);
  bool run(size_t first, size_t last, DiagnosticEngine &diag);
  bool execute(Instruction &instruction, DiagnosticEngine &diag);
  std::vector<Ranked> compute(Instruction &instruction);
  std::vector<Ranked> computeCollective(const Instruction &instruction);
  std::vector<Ranked> computeUnshard(const Instruction &instruction);
  Ranked computeReduction(const Instruction &instruction);
  std::vector<Ranked> started(const Operation &op, StartedBucket bucket);
  void wait(const Operation &op);
  Tensors computeLocal(const Instruction &instruction, size_t rank);
  at::Tensor read(const Source &source, size_t rank) const;
  Ranked readAll(const Source &source) const;
  void hold(unsigned slot, size_t rank, const at::Tensor &tensor);
  void release(unsigned slot);
  void releaseAll();
  size_t numLocal() const { return stores.size(); }

  Module &module;
  Communicator &comm;
  const KernelSets &kernels;
  ParameterStores &stores;
  ValueObserver observer;

  std::vector<Instruction> program;
  std::vector<Reduction> reductions;
  /// What finishes the messages that are under way, by what started them.
  llvm::DenseMap<const Operation *, std::function<void()>> underWay;
  size_t lossEnd = 0;     ///< the instruction after the loss: `ones`
  size_t updateBegin = 0; ///< the first of the optimizer
  std::vector<Ranked> slots;
  std::vector<at::Tensor> placeholders;
  llvm::DenseMap<const Value *, unsigned> slotIndex;
  llvm::DenseMap<std::pair<const Value *, const Param *>, unsigned> bundleIndex;
  llvm::DenseMap<const Operation *, std::pair<unsigned, unsigned>> runOf;
  /// Slots that share the storage that a slot is the root of, itself included.
  llvm::DenseMap<unsigned, llvm::SmallVector<unsigned, 2>> sharing;
  llvm::DenseMap<unsigned, unsigned> rootOf;
  unsigned tokens = 0, labels = 0, positions = 0, learningRate = 0, updates = 0;
  unsigned loss = 0, gradNorm = 0, updated = 0;
  int validTargets = -1, logits = -1; ///< -1: the program has none
  Type logitsType;

  std::vector<Holdings> held; ///< of each local rank
  Traffic sent;
  int64_t workspace = 0;
  double kernelTime = 0, totalTime = 0;
};

} // namespace hp

#endif // HP_RUNTIME_INTERPRETER_H
