//===- AllocationMeter.cpp - Bytes LibTorch has allocated -----------------===//

#include "hp/Runtime/AllocationMeter.h"
#include "llvm/ADT/DenseMap.h"
#include <atomic>
#include <c10/core/Allocator.h>
#include <mutex>

using namespace hp;

static std::atomic<int64_t> currentBytes = 0;
static std::atomic<int64_t> peakBytes = 0;

namespace {
/// Passes everything on to LibTorch's allocator. LibTorch wants the context of
/// an allocation to be its address, so sizes are kept by address here.
class MeteringAllocator final : public c10::Allocator {
public:
  explicit MeteringAllocator(c10::Allocator *base) : base(base) {}

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr inner = base->allocate(size);
    void *data = inner.get();
    c10::Device device = inner.device();
    if (!data) {
      return inner;
    }
    inner.release_context();
    {
      std::lock_guard<std::mutex> lock(mutex);
      sizes[data] = size;
    }
    int64_t now = currentBytes += size;
    for (int64_t seen = peakBytes;
         now > seen && !peakBytes.compare_exchange_weak(seen, now);) {
    }
    return {data, data, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void *to, const void *from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  static MeteringAllocator *instance;

private:
  static void release(void *data) {
    if (!data) {
      return;
    }
    {
      std::lock_guard<std::mutex> lock(instance->mutex);
      auto it = instance->sizes.find(data);
      currentBytes -= it->second;
      instance->sizes.erase(it);
    }
    instance->base->raw_deleter()(data);
  }

  c10::Allocator *base;
  std::mutex mutex;
  llvm::DenseMap<void *, int64_t> sizes;
};
MeteringAllocator *MeteringAllocator::instance = nullptr;
} // namespace

static bool installed = false;

void AllocationMeter::install() {
  if (installed) {
    return;
  }
  // Lives as long as the process: tensors may be freed while it exits.
  MeteringAllocator::instance =
      new MeteringAllocator(c10::GetAllocator(c10::DeviceType::CPU));
  c10::SetAllocator(c10::DeviceType::CPU, MeteringAllocator::instance,
                    /*priority=*/100);
  installed = true;
}

bool AllocationMeter::isInstalled() { return installed; }
int64_t AllocationMeter::current() { return currentBytes; }
int64_t AllocationMeter::peak() { return peakBytes; }
void AllocationMeter::resetPeak() { peakBytes = currentBytes.load(); }
