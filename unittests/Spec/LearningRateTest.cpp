//===- LearningRateTest.cpp - Schedules against values worked by hand -----===//

#include "DiagnosticLog.h"
#include "hp/Spec/RunConfig.h"
#include <cmath>

using namespace hp;

namespace {

RunConfig config(double lr, int64_t steps, int64_t warmup,
                 Decay decay = Decay::None,
                 std::optional<double> ratio = std::nullopt,
                 double floor = 0.0) {
  RunConfig c;
  c.optimizer.lr = lr;
  c.training.steps = steps;
  c.lrScheduler.warmupSteps = warmup;
  c.lrScheduler.decayType = decay;
  c.lrScheduler.decayRatio = ratio;
  c.lrScheduler.minLRFactor = floor;
  return c;
}

void expectRates(const RunConfig &c, std::vector<double> rates) {
  for (size_t step = 0; step < rates.size(); ++step) {
    EXPECT_NEAR(learningRate(c, step), rates[step], 1e-15) << "step " << step;
  }
}

} // namespace

TEST(LearningRateTest, constant) {
  expectRates(config(0.5, 4, 0), {0.5, 0.5, 0.5, 0.5, 0.5});
}

TEST(LearningRateTest, warmup_begins_above_zero_and_ends_at_the_rate) {
  expectRates(config(1.0, 8, 4), {0.25, 0.5, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0});
}

TEST(LearningRateTest, warmup_longer_than_the_run) {
  expectRates(config(1.0, 2, 10), {0.5, 1.0, 1.0});
  expectRates(config(1.0, 2, 10, Decay::Linear), {0.5, 1.0, 1.0});
}

// Ten steps, two of warmup, four of decay: the virtual eleventh step would
// have the floor, so the decay runs 3/4, 2/4, 1/4 after a last full step.
TEST(LearningRateTest, warmup_stable_linear_decay) {
  expectRates(config(1.0, 10, 2, Decay::Linear, 0.4),
              {0.5, 1, 1, 1, 1, 1, 1, 0.75, 0.5, 0.25});
}

TEST(LearningRateTest, decay_to_a_floor) {
  expectRates(
      config(2.0, 10, 2, Decay::Linear, 0.4, 0.2),
      {1.0, 2, 2, 2, 2, 2, 2, 2 * 0.8, 2 * 0.6, 2 * 0.4, 2 * 0.2, 2 * 0.2});
}

// Without a ratio everything after the warmup decays.
TEST(LearningRateTest, decay_without_ratio) {
  expectRates(config(1.0, 6, 2, Decay::Linear),
              {0.5, 1.0, 1.0, 0.75, 0.5, 0.25});
}

// cos(π/4) = √2/2: (1 + √2/2)/2, 1/2, (1 − √2/2)/2.
TEST(LearningRateTest, cosine) {
  double half = std::sqrt(2.0) / 4;
  expectRates(config(1.0, 5, 0, Decay::Cosine, 0.8),
              {1.0, 1.0, 0.5 + half, 0.5, 0.5 - half});
}

TEST(LearningRateTest, decay_steps_round_half_to_even) {
  // 0.5 · 5 = 2.5 → 2 steps; 0.5 · 7 = 3.5 → 4 steps.
  expectRates(config(1.0, 5, 0, Decay::Linear, 0.5), {1, 1, 1, 1, 0.5});
  expectRates(config(1.0, 7, 0, Decay::Linear, 0.5),
              {1, 1, 1, 1, 0.75, 0.5, 0.25});
}

TEST(LearningRateTest, decay_gives_way_to_warmup) {
  expectRates(config(1.0, 4, 2, Decay::Linear, 1.0), {0.5, 1.0, 1.0, 0.5});
}

TEST(LearningRateTest, a_ratio_of_zero_is_no_decay) {
  expectRates(config(1.0, 3, 0, Decay::Linear, 0.0), {1, 1, 1, 1});
}
