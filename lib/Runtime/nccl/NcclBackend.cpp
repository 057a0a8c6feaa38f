//===- NcclBackend.cpp - Process groups on GPUs ---------------------------===//
//
// All of libhp_nccl.so: c10d's NCCL process groups behind MessageBackend. Each
// rank has one GPU, that of its number on its machine. Calls are issued on the
// group's stream, and the current stream waits for them; the host does not.
//
//===----------------------------------------------------------------------===//

#define USE_C10D_NCCL
#include "../MessageBackend.h"
#include <c10/cuda/CUDAFunctions.h>
#include <cuda_runtime_api.h>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

using namespace hp;

namespace {
class NcclBackend : public MessageBackend {
public:
  NcclBackend(int64_t localRank, std::chrono::seconds timeout)
      : gpu(at::kCUDA, c10::DeviceIndex(localRank)), timeout(timeout) {
    c10::cuda::set_device(gpu.index());
  }

  c10::intrusive_ptr<c10d::Backend>
  makeGroup(const c10::intrusive_ptr<c10d::Store> &store, int64_t rank,
            int64_t size) override {
    auto how = c10d::ProcessGroupNCCL::Options::create();
    how->timeout = timeout;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, int(rank),
                                                             int(size), how);
    group->setBoundDeviceId(gpu);
    group->eagerConnectSingleDevice(gpu);
    return group;
  }

  at::Device device() const override { return gpu; }
  bool coalescesMessages() const override { return true; }

  std::string whyNotReduced(at::ScalarType dtype) const override {
    switch (dtype) {
    case at::kDouble:
    case at::kFloat:
    case at::kHalf:
    case at::kBFloat16:
    case at::kLong:
    case at::kInt:
    case at::kChar:
    case at::kByte:
      return {};
    default:
      return std::string("NCCL cannot reduce ") + c10::toString(dtype) +
             "; reduce in float32";
    }
  }

private:
  at::Device gpu;
  std::chrono::seconds timeout;
};
} // namespace

/// Why no GPU can be used; empty if one can.
static std::string unavailable() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) {
    return std::string("CUDA says '") + cudaGetErrorString(error) + "'";
  }
  return count > 0 ? "" : "CUDA sees none";
}

static MessageBackend *make(int64_t localRank, std::chrono::seconds timeout) {
  int count = c10::cuda::device_count();
  TORCH_CHECK(localRank < count, "local rank ", localRank,
              " has no GPU: this machine has ", count,
              ", and each rank needs one of its own");
  return new NcclBackend(localRank, timeout);
}

extern "C" __attribute__((visibility("default"))) const NcclPlugin *
hpNcclPlugin() {
  static const NcclPlugin plugin = {HP_VERSION, unavailable, make};
  return &plugin;
}
