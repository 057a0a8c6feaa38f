//===- AllocationMeter.cpp - Bytes LibTorch has allocated -----------------===//

#include "hp/Runtime/AllocationMeter.h"
#include <atomic>
#include <c10/core/Allocator.h>

using namespace hp;

static std::atomic<int64_t> currentBytes = 0;
static std::atomic<int64_t> peakBytes = 0;

namespace {
/// What the meter remembers of one allocation.
struct Metered {
  c10::DataPtr inner;
  int64_t bytes;
};

class MeteringAllocator final : public c10::Allocator {
public:
  explicit MeteringAllocator(c10::Allocator *base) : base(base) {}

  c10::DataPtr allocate(size_t size) override {
    c10::DataPtr inner = base->allocate(size);
    void *data = inner.get();
    c10::Device device = inner.device();
    auto *metered = new Metered{std::move(inner), int64_t(size)};
    int64_t now = currentBytes += size;
    for (int64_t seen = peakBytes;
         now > seen && !peakBytes.compare_exchange_weak(seen, now);) {
    }
    return {data, metered, &release, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *to, const void *from, size_t count) const override {
    default_copy_data(to, from, count);
  }

private:
  static void release(void *context) {
    auto *metered = static_cast<Metered *>(context);
    currentBytes -= metered->bytes;
    delete metered;
  }
  c10::Allocator *base;
};
} // namespace

static bool installed = false;

void AllocationMeter::install() {
  if (installed) {
    return;
  }
  static MeteringAllocator meter(c10::GetAllocator(c10::DeviceType::CPU));
  c10::SetAllocator(c10::DeviceType::CPU, &meter, /*priority=*/100);
  installed = true;
}

bool AllocationMeter::isInstalled() { return installed; }
int64_t AllocationMeter::current() { return currentBytes; }
int64_t AllocationMeter::peak() { return peakBytes; }
void AllocationMeter::resetPeak() { peakBytes = currentBytes.load(); }
