//===- MessageBackend.h - What makes c10d process groups --------*- C++ -*-===//
//
// The one thing in which Gloo and NCCL differ for the communicator. NCCL's is
// made by libhp_nccl.so, which is loaded when it is asked for and shares only
// this header, so nothing of LLVM's is in it.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_RUNTIME_MESSAGEBACKEND_H
#define HP_LIB_RUNTIME_MESSAGEBACKEND_H

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>
#include <chrono>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hp {

class DiagnosticEngine;
struct ProcessOptions;

class MessageBackend {
public:
  virtual ~MessageBackend() = default;
  /// A group of `size` processes that meet in `store`. Throws if they do not
  /// within the initial timeout.
  virtual c10::intrusive_ptr<c10d::Backend>
  makeGroup(const c10::intrusive_ptr<c10d::Store> &store, int64_t rank,
            int64_t size) = 0;
  virtual at::Device device() const = 0;
  /// Whether a send and a receive are issued as one, between startCoalescing()
  /// and endCoalescing(), lest each waits for the other.
  virtual bool coalescesMessages() const = 0;
  /// Why tensors of `dtype` cannot be reduced; empty if they can.
  virtual std::string whyNotReduced(at::ScalarType dtype) const = 0;
};

std::unique_ptr<MessageBackend> makeGlooBackend(const ProcessOptions &options);

/// Null, with an error, without the plugin or a GPU.
std::unique_ptr<MessageBackend> makeNcclBackend(const ProcessOptions &options,
                                                DiagnosticEngine &diag);

/// What libhp_nccl.so exports, as the symbol `hpNcclPlugin`. Both sides are
/// built together; `version` tells when they were not.
struct NcclPlugin {
  const char *version;
  /// Why no GPU can be used; empty if one can.
  std::string (*unavailable)();
  /// Groups of the GPU with the number `localRank`, whose calls may take
  /// `timeout`. Throws if there is no such GPU.
  MessageBackend *(*make)(int64_t localRank, std::chrono::seconds timeout);
};

} // namespace hp

#endif // HP_LIB_RUNTIME_MESSAGEBACKEND_H
