//===- Interpreter.h - Runs a step program ----------------------*- C++ -*-===//
//
// Executes the instructions of a flat @step in order over slots, one for each
// value, and decides nothing: what to compute, when to free and what to update
// stands in the text. There is no autograd graph around it.
//
// Bytes are measured on the tensors held, each storage once, results charged
// while operands live; hp::peakOfValues predicts the same number.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_INTERPRETER_H
#define HP_RUNTIME_INTERPRETER_H

#include "hp/Runtime/Kernels.h"
#include "hp/Runtime/ParameterStore.h"
#include "llvm/ADT/DenseMap.h"

namespace hp {

/// What one step is given. Tokens and labels are int64 [B, S], positions [S].
struct StepInputs {
  at::Tensor tokens, labels, positions;
  double learningRate = 0;
};

/// What @step returns.
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
  at::Tensor logits; ///< [B, S, vocabulary]
};

class Interpreter {
public:
  /// Prepares `module`, at stage step on one rank, to run with `kernels` on
  /// `store`. Null, with an error, for a program that cannot run: ranks, an
  /// operation the runtime does not have, arguments that are not those of a
  /// step, a parameter the store lacks or whose shape differs.
  static std::unique_ptr<Interpreter> create(Module &module, KernelSet &kernels,
                                             ParameterStore &store,
                                             DiagnosticEngine &diag);

  /// Runs the whole step. Nothing, with an error, if a kernel failed; the
  /// parameters are then as before unless the optimizer had begun.
  std::optional<StepResult> step(const StepInputs &inputs,
                                 DiagnosticEngine &diag);

  /// Runs up to the loss.
  std::optional<ForwardResult> forward(const StepInputs &inputs,
                                       DiagnosticEngine &diag);

  /// Runs up to the optimizer and gives `visit` the gradient of each parameter,
  /// complete and not yet clipped.
  using GradientVisitor =
      std::function<void(llvm::StringRef param, const at::Tensor &gradient)>;
  bool gradients(const StepInputs &inputs, const GradientVisitor &visit,
                 DiagnosticEngine &diag);

  /// Sees each result when it is made: for tests that compare every value.
  using ValueObserver = std::function<void(const Value &, const at::Tensor &)>;
  void observe(ValueObserver newObserver) { observer = std::move(newObserver); }

  /// The largest number of bytes of values held so far.
  int64_t peakBytes() const { return peak; }
  /// The most memory a kernel took beyond its operands and results, if
  /// AllocationMeter is installed.
  int64_t workspaceBytes() const { return workspace; }
  /// Time spent in kernels and in all of step(), in seconds, so far.
  double kernelSeconds() const { return kernelTime; }
  double totalSeconds() const { return totalTime; }

private:
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
  };

  Interpreter(Module &module, KernelSet &kernels, ParameterStore &store)
      : module(module), kernels(kernels), store(store) {}
  bool prepare(DiagnosticEngine &diag);
  bool prepareArguments(Function &function, DiagnosticEngine &diag);
  bool prepareInstruction(const Operation &op, DiagnosticEngine &diag);
  std::optional<Source> source(const Operand &operand, const Operation &op,
                               DiagnosticEngine &diag);
  unsigned slotOf(const Value *value);

  bool begin(const StepInputs &inputs, DiagnosticEngine &diag);
  bool run(size_t first, size_t last, DiagnosticEngine &diag);
  bool execute(const Instruction &instruction, DiagnosticEngine &diag);
  void compute(const Instruction &instruction,
               llvm::ArrayRef<at::Tensor> operands, Tensors &results);
  at::Tensor read(const Source &source) const;
  void hold(unsigned slot, const at::Tensor &tensor);
  void release(unsigned slot);
  void releaseAll();

  Module &module;
  KernelSet &kernels;
  ParameterStore &store;
  ValueObserver observer;

  std::vector<Instruction> program;
  size_t lossEnd = 0;     ///< the instruction after the loss: `ones`
  size_t updateBegin = 0; ///< the first of the optimizer
  std::vector<at::Tensor> slots;
  std::vector<at::Tensor> placeholders;
  llvm::DenseMap<const Value *, unsigned> slotIndex;
  /// Slots that share the storage that a slot is the root of, itself included.
  llvm::DenseMap<unsigned, llvm::SmallVector<unsigned, 2>> sharing;
  llvm::DenseMap<unsigned, unsigned> rootOf;
  unsigned tokens = 0, labels = 0, positions = 0, learningRate = 0, updates = 0;
  unsigned loss = 0, gradNorm = 0, updated = 0;
  int validTargets = -1, logits = -1; ///< -1: the program has none

  llvm::DenseMap<const void *, unsigned> storages; ///< holders of each
  int64_t live = 0, peak = 0, workspace = 0;
  double kernelTime = 0, totalTime = 0;
};

} // namespace hp

#endif // HP_RUNTIME_INTERPRETER_H
