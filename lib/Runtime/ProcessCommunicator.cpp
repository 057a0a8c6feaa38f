//===- ProcessCommunicator.cpp - One rank in a process --------------------===//

#include "hp/Runtime/ProcessCommunicator.h"
#include "MessageBackend.h"
#include <ATen/ATen.h>
#include <c10/util/Logging.h>
#include <csignal>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;

using StorePointer = c10::intrusive_ptr<c10d::Store>;
using Group = c10::intrusive_ptr<c10d::Backend>;

/// The message of an exception without its C++ backtrace.
static std::string firstLine(const std::exception &failure) {
  return StringRef(failure.what()).split('\n').first.trim().str();
}

/// Whether c10d or Gloo says so that it waited in vain.
static bool isTimeout(StringRef message) {
  return message.contains_insensitive("timed out") ||
         message.contains_insensitive("timeout");
}

//===----------------------------------------------------------------------===//
// Meeting
//===----------------------------------------------------------------------===//

/// Connects to the store where the ranks meet. Rank 0 opens it, unless it is
/// there already.
static StorePointer openStore(const ProcessOptions &options) {
  const RankPlace &place = options.place;
  c10d::TCPStoreOptions how;
  how.port = place.masterPort;
  how.isServer = place.rank == 0 && !place.served;
  how.waitWorkers = false;
  how.timeout = options.initTimeout;
  if (how.isServer && place.masterSocket >= 0) {
    how.masterListenFd = place.masterSocket;
  }
  StorePointer store =
      c10::make_intrusive<c10d::TCPStore>(place.masterAddress, how);
  // torchrun keeps its store over restarts; each has its own keys.
  const char *attempt = std::getenv("TORCHELASTIC_RESTART_COUNT");
  std::string prefix = std::string("hp/") + (attempt ? attempt : "0");
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store);
}

static std::vector<uint8_t> bytes(StringRef text) {
  return std::vector<uint8_t>(text.bytes_begin(), text.bytes_end());
}

/// Waits until all ranks are there, and compares what they must agree on.
static bool meet(c10d::Store &store, const ProcessOptions &options,
                 StringRef agreement, MessageFailure &failure,
                 DiagnosticEngine &diag) {
  const RankPlace &place = options.place;
  try {
    if (place.rank == 0) {
      store.set("agreement", bytes(agreement));
    } else {
      store.wait({"agreement"}, options.initTimeout);
      if (store.get("agreement") != bytes(agreement)) {
        failure = MessageFailure::None;
        return diag.error() << "rank " << place.rank
                            << " was given another configuration or plan than "
                               "rank 0";
      }
    }
    if (store.add("arrived", 1) == place.worldSize) {
      store.set("all", bytes("1"));
    }
    store.wait({"all"}, options.initTimeout);
    return true;
  } catch (const std::exception &reason) {
    if (!isTimeout(reason.what())) {
      throw;
    }
  }
  failure = MessageFailure::Late;
  return diag.error() << "rank " << place.rank << ": "
                      << store.add("arrived", 0) << " of " << place.worldSize
                      << " ranks came to " << place.masterAddress << ":"
                      << place.masterPort << " within "
                      << options.initTimeout.count()
                      << " s (comm.init_timeout_seconds)";
}

//===----------------------------------------------------------------------===//
// The communicator
//===----------------------------------------------------------------------===//

namespace {
class BackendCommunicator : public ProcessCommunicator {
public:
  BackendCommunicator(const Mesh &mesh, const ProcessOptions &options,
                      std::unique_ptr<MessageBackend> backend,
                      StorePointer store)
      : ProcessCommunicator(mesh), options(options),
        backend(std::move(backend)), store(std::move(store)),
        rank(options.place.rank) {}

  ArrayRef<int64_t> localRanks() const override { return rank; }
  MessageFailure failure() const override { return firstFailure; }
  at::Device device() const override { return backend->device(); }

  void barrier() override {
    AxisList all = mesh().all().list();
    Tensors one = {at::ones({1}, at::TensorOptions(device()))};
    doAllReduce(one, all, Reduction::Sum);
    (void)one[0].item<float>(); // on a GPU, waits for it
  }

protected:
  void doAllReduce(Tensors &tensors, ArrayRef<AxisId> axes,
                   Reduction reduction) override {
    finish(doStartAllReduce(tensors, axes, reduction));
  }

  Tensors doAllGather(const Tensors &operands, ArrayRef<AxisId> axes) override {
    Tensors results;
    finish(doStartAllGather(operands, axes, results));
    return results;
  }

  Tensors doReduceScatter(const Tensors &operands,
                          ArrayRef<AxisId> axes) override {
    Tensors results;
    finish(doStartReduceScatter(operands, axes, results));
    return results;
  }

  std::unique_ptr<Pending> doStartAllReduce(Tensors &tensors,
                                            ArrayRef<AxisId> axes,
                                            Reduction reduction) override {
    checkReducible(tensors[0], "all_reduce");
    at::Tensor moved = onDevice(tensors[0]);
    return start("all_reduce", moved, axes, {tensors[0], moved},
                 [&](c10d::Backend &group) {
                   c10d::AllreduceOptions how;
                   how.reduceOp = reduction == Reduction::Sum
                                      ? c10d::ReduceOp::SUM
                                      : c10d::ReduceOp::MAX;
                   how.timeout = options.trainTimeout;
                   std::vector<at::Tensor> list = {moved};
                   return group.allreduce(list, how);
                 });
  }

  std::unique_ptr<Pending> doStartAllGather(const Tensors &operands,
                                            ArrayRef<AxisId> axes,
                                            Tensors &results) override {
    at::Tensor operand = onDevice(operands[0]);
    at::Tensor moved = slices(operand, groupSize(axes));
    results = {likeOperand(moved, operands[0])};
    return start("all_gather", operand, axes, {results[0], moved},
                 [&](c10d::Backend &group) {
                   c10d::AllgatherOptions how;
                   how.timeout = options.trainTimeout;
                   at::Tensor to = asBytes(moved), from = asBytes(operand);
                   return group._allgather_base(to, from, how);
                 });
  }

  std::unique_ptr<Pending> doStartReduceScatter(const Tensors &operands,
                                                ArrayRef<AxisId> axes,
                                                Tensors &results) override {
    at::Tensor operand = onDevice(operands[0]);
    at::Tensor moved = at::empty(operand.sizes().slice(1), operand.options());
    results = {likeOperand(moved, operands[0])};
    checkReducible(operand, "reduce_scatter");
    return start("reduce_scatter", operand, axes, {results[0], moved},
                 [&](c10d::Backend &group) {
                   c10d::ReduceScatterOptions how;
                   how.reduceOp = c10d::ReduceOp::SUM;
                   how.timeout = options.trainTimeout;
                   at::Tensor to = moved.flatten(), from = operand.flatten();
                   return group._reduce_scatter_base(to, from, how);
                 });
  }

  Tensors doAllToAll(const Tensors &operands, ArrayRef<AxisId> axes) override {
    at::Tensor operand = onDevice(operands[0]);
    at::Tensor result = at::empty_like(operand);
    call("all_to_all", operand, axes, [&](c10d::Backend &group) {
      c10d::AllToAllOptions how;
      how.timeout = options.trainTimeout;
      at::Tensor to = asBytes(result), from = asBytes(operand);
      std::vector<int64_t> equal;
      group.alltoall_base(to, from, equal, equal, how)->wait();
    });
    return {result.to(operands[0].device())};
  }

  Tensors doShift(const Tensors &operands, ArrayRef<AxisId> axes,
                  int64_t distance, bool cyclic) override {
    int64_t count = groupSize(axes), number = groupRank(rank, axes);
    auto place = [&](int64_t at) {
      return cyclic ? (at % count + count) % count
                    : (at < 0 || at >= count ? -1 : at);
    };
    int64_t to = place(number + distance), from = place(number - distance);
    if (from == number) {
      return {operands[0].clone()};
    }
    at::Tensor sent = onDevice(operands[0]);
    at::Tensor result = from < 0 ? at::zeros_like(sent) : at::empty_like(sent);
    call("send_receive", sent, axes, [&](c10d::Backend &group) {
      // Send and receive are under way together: in a ring each rank would
      // wait for the next otherwise.
      std::vector<at::Tensor> out = {asBytes(sent)}, in = {asBytes(result)};
      std::vector<c10::intrusive_ptr<c10d::Work>> works;
      bool together = backend->coalescesMessages() && (to >= 0 || from >= 0);
      if (together) {
        group.startCoalescing();
      }
      if (to >= 0) {
        works.push_back(group.send(out, int(to), /*tag=*/0));
      }
      if (from >= 0) {
        works.push_back(group.recv(in, int(from), /*tag=*/0));
      }
      if (together) {
        works = {group.endCoalescing()};
      }
      for (auto &work : works) {
        work->wait(options.trainTimeout);
      }
    });
    return {result.to(operands[0].device())};
  }

private:
  using Work = c10::intrusive_ptr<c10d::Work>;
  /// What a message fills, and where its content is wanted: the same tensor
  /// unless that is on another device.
  struct Arrival {
    at::Tensor wanted, moved;
  };

  /// What is elsewhere, as the operands of a step on the CPU are for NCCL,
  /// takes the way over the device of the messages.
  at::Tensor onDevice(const at::Tensor &tensor) const {
    return tensor.to(device());
  }

  /// The bytes of `tensor`, in a row: moving them asks nothing of their type.
  static at::Tensor asBytes(const at::Tensor &tensor) {
    return tensor.view({-1}).view(at::kByte);
  }

  /// Room for `count` tensors like `tensor`.
  static at::Tensor slices(const at::Tensor &tensor, int64_t count) {
    std::vector<int64_t> sizes = {count};
    sizes.insert(sizes.end(), tensor.sizes().begin(), tensor.sizes().end());
    return at::empty(sizes, tensor.options());
  }

  /// Room for what arrives in `moved`, where `operand` is: `moved` itself if
  /// that is there.
  static at::Tensor likeOperand(const at::Tensor &moved,
                                const at::Tensor &operand) {
    return moved.device() == operand.device()
               ? moved
               : at::empty(moved.sizes(), operand.options());
  }

  void checkReducible(const at::Tensor &tensor, StringRef what) const {
    std::string why = backend->whyNotReduced(tensor.scalar_type());
    TORCH_CHECK(why.empty(), what.str(), ": ", why);
  }

  std::string axesText(ArrayRef<AxisId> axes) const {
    std::string text;
    llvm::raw_string_ostream os(text);
    mesh().printGroup(os, axes);
    return text;
  }

  /// The group along `axes`, made at its first use.
  c10d::Backend &groupAlong(ArrayRef<AxisId> axes) {
    Group &made = groups[AxisList(axes)];
    if (!made) {
      // One key for each group: its axes in order, and its first rank.
      std::string name;
      llvm::raw_string_ostream os(name);
      for (AxisId axis : axes) {
        os << mesh().name(axis) << ".";
      }
      os << group(rank, axes)[0];
      made = backend->makeGroup(
          c10::make_intrusive<c10d::PrefixStore>(name, store),
          groupRank(rank, axes), groupSize(axes));
    }
    return *made;
  }

  /// A message that a group has taken on.
  class Message : public Pending {
  public:
    Message(BackendCommunicator &comm, StringRef what, ArrayRef<AxisId> axes,
            Work work, Arrival arrival)
        : comm(comm), what(what), axes(axes), work(std::move(work)),
          arrival(std::move(arrival)) {}

    void wait() override {
      comm.guard(what, axes, [&] { work->wait(); });
      if (!arrival.moved.is_same(arrival.wanted)) {
        arrival.wanted.copy_(arrival.moved);
      }
    }

  private:
    BackendCommunicator &comm;
    StringRef what; ///< a literal
    AxisList axes;
    Work work;
    Arrival arrival;
  };

  static void finish(std::unique_ptr<Pending> message) {
    if (message) {
      message->wait();
    }
  }

  /// Starts `send`. Null if `tensor`, what is sent, is empty.
  std::unique_ptr<Pending>
  start(StringRef what, const at::Tensor &tensor, ArrayRef<AxisId> axes,
        Arrival arrival, llvm::function_ref<Work(c10d::Backend &)> send) {
    if (tensor.numel() == 0) {
      return nullptr;
    }
    Work work;
    guard(what, axes, [&] { work = send(groupAlong(axes)); });
    return std::make_unique<Message>(*this, what, axes, std::move(work),
                                     std::move(arrival));
  }

  /// Runs `send`, unless there is nothing to send.
  void call(StringRef what, const at::Tensor &tensor, ArrayRef<AxisId> axes,
            llvm::function_ref<void(c10d::Backend &)> send) {
    if (tensor.numel() > 0) {
      guard(what, axes, [&] { send(groupAlong(axes)); });
    }
  }

  /// Makes of whatever `run` throws one sentence that names the call.
  void guard(StringRef what, ArrayRef<AxisId> axes,
             llvm::function_ref<void()> run) {
    std::string why;
    try {
      run();
      return;
    } catch (const std::exception &failure) {
      why = firstLine(failure);
    }
    fail(what, axes, why);
  }

  [[noreturn]] void fail(StringRef what, ArrayRef<AxisId> axes,
                         const std::string &why) {
    StringRef text = why;
    bool late = isTimeout(text);
    if (firstFailure == MessageFailure::None) {
      firstFailure = late ? MessageFailure::Late : MessageFailure::Lost;
    }
    std::string where = "rank " + std::to_string(rank) + ": " + what.str() +
                        " over " + axesText(axes) + ": ";
    TORCH_CHECK(!late, where, "another rank did not come within ",
                options.trainTimeout.count(),
                " s (comm.train_timeout_seconds)");
    bool gone = text.contains("onnection closed by peer") ||
                text.contains("onnection reset by peer") ||
                text.contains("roken pipe");
    TORCH_CHECK(!gone, where, "another rank is gone");
    TORCH_CHECK(false, where, why);
  }

  ProcessOptions options;
  std::unique_ptr<MessageBackend> backend;
  StorePointer store;
  int64_t rank;
  std::map<AxisList, Group> groups;
  MessageFailure firstFailure = MessageFailure::None;
};
} // namespace

std::unique_ptr<ProcessCommunicator>
hp::makeProcessCommunicator(const Mesh &mesh, const ProcessOptions &options,
                            MessageFailure &failure, DiagnosticEngine &diag) {
  failure = MessageFailure::None;
  const RankPlace &place = options.place;
  if (mesh.numRanks() != place.worldSize) {
    diag.error() << "the plan is of " << mesh.numRanks()
                 << (mesh.numRanks() == 1 ? " rank" : " ranks")
                 << ", but there " << (place.worldSize == 1 ? "is " : "are ")
                 << place.worldSize;
    return nullptr;
  }
  // Gloo writes to its connections as one writes to a file: without this a
  // rank would be killed by the loss of another, and not say so.
  std::signal(SIGPIPE, SIG_IGN);
  // c10d warns, with backtraces, of what ends as an error of hp's.
  setenv("TORCH_CPP_LOG_LEVEL", "ERROR", /*replace=*/0);
  c10::initLogging();
  try {
    std::unique_ptr<MessageBackend> backend =
        options.library == MessageLibrary::Nccl ? makeNcclBackend(options, diag)
                                                : makeGlooBackend(options);
    if (!backend) {
      return nullptr;
    }
    std::string agreement;
    llvm::raw_string_ostream os(agreement);
    for (const MeshAxis &axis : mesh.axes()) {
      os << axis.name << "=" << axis.size << "\n";
    }
    os << options.agreement;
    // To open a store depends on nobody, to reach one does.
    bool opens = place.rank == 0 && !place.served;
    failure = opens ? MessageFailure::None : MessageFailure::Lost;
    StorePointer store = openStore(options);
    failure = MessageFailure::Lost;
    if (!meet(*store, options, agreement, failure, diag)) {
      return nullptr;
    }
    failure = MessageFailure::None;
    return std::make_unique<BackendCommunicator>(
        mesh, options, std::move(backend), std::move(store));
  } catch (const std::exception &reason) {
    diag.error() << "rank " << place.rank << " cannot meet the others at "
                 << place.masterAddress << ":" << place.masterPort << ": "
                 << firstLine(reason);
    return nullptr;
  }
}
