//===- PlanStats.h - What a plan costs --------------------------*- C++ -*-===//
//
// The figures of --print-plan-stats: parameters, storage, work, and for a step
// the instructions, the peak of values and what is sent. One report for people,
// the same as JSON for programs. Bytes are those of rank 0, which has the most.
//
//===----------------------------------------------------------------------===//

#ifndef HP_ANALYSIS_PLANSTATS_H
#define HP_ANALYSIS_PLANSTATS_H

#include "hp/Analysis/Communication.h"
#include "hp/IR/Module.h"
#include <optional>

namespace hp {

struct PlanStats {
  std::string model, flavor;
  Stage stage = Stage::Spec;
  int64_t ranks = 1;
  uint64_t parameters = 0;    ///< elements, tied ones once
  uint64_t tensors = 0;       ///< parameters as tensors
  int64_t parameterBytes = 0; ///< on one rank
  int64_t optimizerBytes = 0; ///< AdamW's two moments, on one rank

  /// Of a flat step.
  struct Step {
    uint64_t instructions = 0; ///< frees and return included
    uint64_t forward = 0, backward = 0, optimizer = 0, frees = 0;
    double flops = 0; ///< over all ranks
    int64_t inputBytes = 0;
    int64_t peakBytes = 0; ///< of values, inputs included, on one rank
    std::string peakAt;    ///< the instruction, by its first result
    Traffic traffic;       ///< by one rank
  };
  std::optional<Step> step;
  Mesh mesh;
};

PlanStats planStats(Module &module);
void print(const PlanStats &stats, llvm::raw_ostream &os);
void printJson(const PlanStats &stats, llvm::raw_ostream &os);

} // namespace hp

#endif // HP_ANALYSIS_PLANSTATS_H
