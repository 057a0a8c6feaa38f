//===- Golden.h - The recorded figures of the original model --------------===//
//
// Reads a file of test/golden: a configuration, a run, and the figures that the
// original implementation gave for it.
//
//===----------------------------------------------------------------------===//
#ifndef HP_UNITTESTS_REFERENCE_GOLDEN_H
#define HP_UNITTESTS_REFERENCE_GOLDEN_H

#include "Qwen35Reference.h"

#include "llvm/Support/Error.h"

namespace reference {

struct Golden {
  struct Checksum {
    double sum;
    double l2;
  };
  struct Sample {
    int64_t row, position, id;
    double value;
  };
  /// The first pass over the first batch.
  struct Forward {
    double loss = 0.0;
    double logitsSum = 0.0;
    double logitsL2 = 0.0;
    std::vector<Sample> samples;
  };
  struct Step {
    double loss;
    double gradNorm;
  };

  Qwen35Config config;
  uint64_t seed = 0;
  /// "torch_default" or "normal_0.02".
  std::string init;
  int64_t batch = 0;
  int64_t seq = 0;
  AdamWSettings optimizer;
  double clip = 0.0;

  std::vector<std::string> paramOrder;
  std::map<std::string, Checksum> paramChecksums;
  Forward forward;
  std::map<std::string, double> gradL2;
  std::vector<Step> train;
  std::map<std::string, double> paramL2Final;

  /// The model, initialized as the file says.
  Qwen35Model makeModel() const;

  /// Token ids [steps,batch,seq] by the files' generator, and each row's next
  /// ids, -100 in the last position.
  at::Tensor makeTokens() const;
  static at::Tensor shiftedLabels(const at::Tensor &tokens);
};

/// Reads test/golden/`name`.json. An error names the file and what is missing
/// in it.
llvm::Expected<Golden> readGolden(const std::string &name);

} // namespace reference

#endif // HP_UNITTESTS_REFERENCE_GOLDEN_H
