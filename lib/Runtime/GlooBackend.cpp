//===- GlooBackend.cpp - Process groups on CPUs ---------------------------===//

#define USE_C10D_GLOO
#include "MessageBackend.h"
#include "hp/Runtime/ProcessCommunicator.h"
#include <cstdlib>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

using namespace hp;

namespace {
class GlooBackend : public MessageBackend {
public:
  explicit GlooBackend(const ProcessOptions &options)
      : options(options), networkDevice(openDevice()) {}

  c10::intrusive_ptr<c10d::Backend>
  makeGroup(const c10::intrusive_ptr<c10d::Store> &store, int64_t rank,
            int64_t size) override {
    auto how = c10d::ProcessGroupGloo::Options::create(options.initTimeout);
    how->devices = {networkDevice};
    // One call at a time: a second thread would only wait.
    how->threads = 1;
    auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(store, int(rank),
                                                             int(size), how);
    group->setTimeout(options.trainTimeout);
    return group;
  }

  at::Device device() const override { return at::kCPU; }
  bool coalescesMessages() const override { return false; }

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
      return std::string("Gloo cannot reduce ") + c10::toString(dtype) +
             "; reduce in float32";
    }
  }

private:
  /// Ranks of one machine speak over the loopback device. Others use the
  /// interface that GLOO_SOCKET_IFNAME names, or the one of the host's name.
  std::shared_ptr<gloo::transport::Device> openDevice() const {
    using Group = c10d::ProcessGroupGloo;
    const char *interface = std::getenv("GLOO_SOCKET_IFNAME");
    if (interface && *interface) {
      return Group::createDeviceForInterface(interface);
    }
    const std::string &master = options.place.masterAddress;
    return master == "127.0.0.1" || master == "localhost"
               ? Group::createDeviceForHostname("127.0.0.1")
               : Group::createDefaultDevice();
  }

  ProcessOptions options;
  std::shared_ptr<gloo::transport::Device> networkDevice;
};
} // namespace

std::unique_ptr<MessageBackend>
hp::makeGlooBackend(const ProcessOptions &options) {
  return std::make_unique<GlooBackend>(options);
}
