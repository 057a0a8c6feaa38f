//===- AllocationMeter.h - Bytes LibTorch has allocated ---------*- C++ -*-===//
//
// Counts what LibTorch's CPU allocator hands out, so that kernel workspace can
// be told apart from the values a step program names. Memory that libraries
// below LibTorch allocate by themselves is not seen.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_ALLOCATIONMETER_H
#define HP_RUNTIME_ALLOCATIONMETER_H

#include <cstdint>

namespace hp {

class AllocationMeter {
public:
  /// Puts the meter in front of LibTorch's CPU allocator, once for the process.
  /// Tensors made earlier are not counted.
  static void install();
  static bool isInstalled();
  /// Bytes handed out and not yet returned.
  static int64_t current();
  /// The largest value of current() since resetPeak().
  static int64_t peak();
  static void resetPeak();
};

} // namespace hp

#endif // HP_RUNTIME_ALLOCATIONMETER_H
