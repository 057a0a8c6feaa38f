//===- Communication.h - What a step sends ----------------------*- C++ -*-===//
//
// Calls and bytes of each primitive over each tuple of axes, from the text of
// a step alone. The runtime's Communicator counts the same quantity on the
// tensors it sends; the two agree exactly.
//
// Bytes are operand elements times element size, on one rank, padding included.
// All ranks send the same.
//
//   all_reduce, all_gather,       one call of that primitive
//   reduce_scatter, all_to_all
//   cross_entropy.vp              three all_reduces: maximum, sum, target
//   cp.ring                       n-1 send_receives of k and v together
//   cp.ring.bwd                   as many, and n of their gradients
//   cp.halo, cp.halo.bwd          one send_receive
//   cp.scan, cp.scan.bwd          n-1 send_receives of the state
//   fsdp.unshard                  one all_gather for each dtype
//   reduce_grad                   see ReductionRun
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_COMMUNICATION_H
#define HP_ANALYSIS_COMMUNICATION_H

#include "hp/IR/Module.h"
#include <map>

namespace hp {

/// The primitives, as they are counted.
enum class Primitive : uint8_t {
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  SendReceive
};
/// `all_reduce`, `all_gather`, `reduce_scatter`, `all_to_all`, `send_receive`.
llvm::StringRef name(Primitive primitive);

/// Bytes by primitive and axes.
struct Traffic {
  struct Key {
    Primitive primitive;
    AxisList axes;
    bool operator<(const Key &other) const {
      return primitive != other.primitive ? primitive < other.primitive
                                          : axes < other.axes;
    }
  };
  struct Count {
    int64_t calls = 0, bytes = 0;
    bool operator==(const Count &) const = default;
  };
  std::map<Key, Count> counts;

  void add(Primitive primitive, llvm::ArrayRef<AxisId> axes, int64_t bytes,
           int64_t calls = 1);
  void add(const Traffic &other);
  bool operator==(const Traffic &other) const;
};

/// What `function`, a flat step, sends.
Traffic predictTraffic(Module &module, Function &function);

/// One line for each primitive and axes, indented by two:
///
///   all_gather      tp             12 calls       98304 bytes
void print(const Traffic &traffic, const Mesh &mesh, llvm::raw_ostream &os);

//===----------------------------------------------------------------------===//
// Messages of more than one parameter
//===----------------------------------------------------------------------===//

/// The parameters that `fsdp.unshard` gathers, in the module's order.
std::vector<Param *> bundleParams(Module &module, const Operation &unshard);

/// `reduce_grad` instructions that follow one another, frees between them
/// aside, with the same `scatter`: their gradients travel together, as one
/// reduce_scatter over `scatter`, each padded to equal pieces of
/// ceil(rows / ranks) rows, then one all_reduce of the pieces for each distinct
/// `sum`. Messages are of one dtype, that of the results.
struct ReductionRun {
  AxisList scatter;
  std::vector<const Operation *> members;
};
std::vector<ReductionRun> reductionRuns(Function &function);

/// What one instruction of a step sends. Of a reduce_grad nothing: its message
/// is that of its run.
Traffic trafficOf(Module &module, const Operation &op);
/// What a run of reduce_grad sends.
Traffic trafficOf(Module &module, const ReductionRun &run);

/// Attribute `name` of a reduce_grad: `scatter` or `sum`; empty if absent.
AxisList reductionAxes(const Operation &reduceGrad, llvm::StringRef name);

/// Elements of one rank's piece of a local tensor of `type` cut over `axes` by
/// rows, padding included.
int64_t paddedElements(Type type, const Mesh &mesh,
                       llvm::ArrayRef<AxisId> axes);

} // namespace hp

#endif // HP_ANALYSIS_COMMUNICATION_H
