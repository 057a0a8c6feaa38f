//===- ProcessCommunicator.h - One rank in a process ------------*- C++ -*-===//
//
// Messages between processes, through c10d: Gloo for tensors on the CPU, NCCL,
// from a plugin, for tensors on GPUs. The ranks meet at a TCPStore. Each tuple
// of axes has a process group of its own, made when it is first used; calls are
// in the same order on all ranks, so that is the same moment on all of them.
//
// Sums are sums: nothing is scaled. After all_reduce the ranks of a group have
// the same bytes; the order of a sum is the library's, hence not that of the
// lockstep communicator.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_PROCESSCOMMUNICATOR_H
#define HP_RUNTIME_PROCESSCOMMUNICATOR_H

#include "hp/Runtime/Communicator.h"
#include "hp/Runtime/Launch.h"
#include <c10/core/Device.h>
#include <chrono>

namespace hp {

enum class MessageLibrary : uint8_t { Gloo, Nccl };

/// Lost: another rank is gone. Late: it did not come in time.
enum class MessageFailure : uint8_t { None, Lost, Late };

struct ProcessOptions {
  MessageLibrary library = MessageLibrary::Gloo;
  RankPlace place;
  /// How long ranks wait for each other at the start, and for a message later.
  std::chrono::seconds initTimeout{300}, trainTimeout{100};
  /// What all ranks must have in common, such as the text of the plan. Ranks
  /// whose texts differ are refused.
  std::string agreement;
};

class ProcessCommunicator : public Communicator {
public:
  using Communicator::Communicator;
  /// How the first message that failed did so: the other ranks, or the way to
  /// them, are to blame for what followed.
  virtual MessageFailure failure() const = 0;
  /// Where messages start and end. Tensors elsewhere are copied there and
  /// back.
  virtual at::Device device() const = 0;
};

/// Meets the other ranks, and ignores SIGPIPE from here on. Null, with an
/// error, if they do not come in time, if the mesh is not of as many ranks, or
/// if the library cannot be used; `failure` tells then whether other ranks are
/// to blame.
std::unique_ptr<ProcessCommunicator>
makeProcessCommunicator(const Mesh &mesh, const ProcessOptions &options,
                        MessageFailure &failure, DiagnosticEngine &diag);

/// Whether NCCL can be used: the plugin loads and sees a GPU. False, with an
/// error that says what is missing.
bool checkNccl(DiagnosticEngine &diag);

} // namespace hp

#endif // HP_RUNTIME_PROCESSCOMMUNICATOR_H
