//===- Replicas.h - Do ranks that hold the same hold the same? --*- C++ -*-===//
//
// Ranks that differ only in axes that do not cut a parameter hold replicas of
// it: of the value and of AdamW's moments. Each computes its own update, so a
// gradient that misses a sum drives them apart without a word.
//
//===----------------------------------------------------------------------===//

#ifndef HP_RUNTIME_REPLICAS_H
#define HP_RUNTIME_REPLICAS_H

#include "hp/Runtime/Communicator.h"
#include "hp/Runtime/ParameterStore.h"

namespace hp {

/// A parameter whose replicas are not equal to the bit, in value or moments.
struct DifferingReplica {
  std::string name;             ///< empty if all are equal
  int64_t rank = -1, twin = -1; ///< the first rank that differs, from this one
};

/// The first of all parameters whose replicas differ. All processes must call
/// it, and get the same answer.
DifferingReplica differingReplica(llvm::ArrayRef<ParameterStore> stores,
                                  Communicator &comm);

} // namespace hp

#endif // HP_RUNTIME_REPLICAS_H
