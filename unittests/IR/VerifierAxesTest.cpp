//===- VerifierAxesTest.cpp - Axes of gradients, what leaves a block ------===//

#include "VerifierTesting.h"

using namespace hp;
using namespace hp::verifiertest;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Gradients of parameters
//===----------------------------------------------------------------------===//

static constexpr StringRef used = R"hp(model "m" stage(tp) {
  mesh <dp=2, cp=2, tp=2>
  param @w : f32[(h=4*2)@tp, 6]{repl: dp, cp}
  param @n : f32[2]{repl: dp, cp, tp}
  func @forward(%x: f32[4@dp, 2@cp, 6]) {
    %c = copy_to %x {tp} : f32[4@dp, 2@cp, 6]{repl: tp}
    %y = linear %c, @w : f32[4@dp, 2@cp, (h=4*2)@tp]
    %u = unflatten %y : f32[4@dp, 2@cp, 4@tp, 2]
    %z = rms_norm %u, @n {eps=1e-06} : f32[4@dp, 2@cp, 4@tp, 2]
    return %z
  }
}
)hp";

TEST(GradientAxes, are_those_on_which_a_use_differs_between_ranks) {
  DiagnosticLog log;
  auto module = parseModule(used, "t.hp", log.diag);
  ASSERT_TRUE(module) << log.text();
  EXPECT_TRUE(verify(*module, log.diag)) << log.text();
  for (const Operation &op : module->functions[0]->body->ops) {
    if (op.is(OpKind::Linear)) {
      EXPECT_EQ(module->mesh.str(gradientAxes(*module, op, 1)), "dp, cp");
    }
    if (op.is(OpKind::RmsNorm)) {
      EXPECT_EQ(module->mesh.str(gradientAxes(*module, op, 1)), "dp, cp, tp");
    }
  }
}

TEST(GradientAxes, do_not_depend_on_what_the_parameter_declares) {
  // As a pass could leave it that forgets an axis: types are not looked at.
  DiagnosticLog log;
  std::string text = used.str();
  StringRef whole = "{repl: dp, cp, tp}";
  text.replace(text.find(whole), whole.size(), "{repl: dp}");
  auto module = parseModule(text, "t.hp", log.diag);
  ASSERT_TRUE(module) << log.text();
  for (const Operation &op : module->functions[0]->body->ops) {
    if (op.is(OpKind::RmsNorm)) {
      EXPECT_EQ(module->mesh.str(gradientAxes(*module, op, 1)), "dp, cp, tp");
    }
  }
  EXPECT_FALSE(verify(*module, log.diag));
}

//===----------------------------------------------------------------------===//
// What leaves
//===----------------------------------------------------------------------===//

static constexpr StringRef sharded = R"hp(model "m" stage(tp) {
  mesh <tp=2>
  param @w : f32[8, 6@tp]
  func @forward(%x: f32[4, 6@tp]) {
    %y = linear %x, @w : f32[4, 8]{partial: tp}
    return %y
  }
}
)hp";

TEST(Leaving, partial_stays_inside) {
  EXPECT_TRUE(says(verdict(sharded, "\"m\"", "\"m\""),
                   "partial '%y' leaves function '@forward'; reduce it first"));
  EXPECT_TRUE(
      says(verdict(sharded, "@forward", "@train"), "partial '%y' leaves"));
  EXPECT_EQ(verdict(sharded, "    return %y",
                    "    %z = all_reduce %y {tp} : f32[4, 8]\n    return %z"),
            "ok");
}

TEST(Leaving, partial_does_not_enter) {
  EXPECT_TRUE(says(verdict(sharded, "f32[4, 6@tp])", "f32[4, 6]{partial: tp})"),
                   "argument '%x' of function '@forward' is partial"));
}

TEST(Leaving, the_loss_may_be_partial) {
  std::string loss = R"hp(model "m" stage(tp) {
  mesh <dp=2>
  param @w : f32[8, 6]{repl: dp}
  func @train(%x: f32[4@dp, 2, 6], %lab: i64[4@dp, 2]) {
    %y = linear %x, @w : f32[4@dp, 2, 8]
    %l = cross_entropy %y, %lab : f32[]{partial: dp}
    return %l
  }
}
)hp";
  EXPECT_EQ(verdict(loss, "\"m\"", "\"m\""), "ok");
  EXPECT_TRUE(says(verdict(loss, "@train", "@eval"), "partial '%l' leaves"));
}

TEST(Leaving, the_loss_is_not_replicated) {
  std::string loss = R"hp(model "m" stage(tp) {
  mesh <dp=2, tp=2>
  param @w : f32[8, 6]{repl: dp, tp}
  func @train(%x: f32[4@dp, 2, 6], %lab: i64[4@dp, 2]) {
    %c = copy_to %x {tp} : f32[4@dp, 2, 6]{repl: tp}
    %y = linear %c, @w : f32[4@dp, 2, 8]{repl: tp}
    %l = cross_entropy %y, %lab : f32[]{repl: tp; partial: dp}
    return %l
  }
}
)hp";
  EXPECT_TRUE(says(verdict(loss, "\"m\"", "\"m\""),
                   "the loss is replicated over 'tp': it would count once for "
                   "each rank, and gradients come out 2 times too large"));
}

TEST(Leaving, the_loss_is_partial_only_where_tokens_are_cut) {
  std::string loss = R"hp(model "m" stage(tp) {
  mesh <dp=2, tp=2>
  dim S = 2
  param @w : f32[8, 6]{repl: dp, tp}
  func @train(%x: f32[4@dp, S@tp, 6], %lab: i64[4@dp, S]) {
    %y = linear %x, @w : f32[4@dp, S@tp, 8]
    %here = shard %lab {tp: S} : i64[4@dp, S@tp]
    %l = cross_entropy %y, %here : f32[]{partial: dp, tp}
    return %l
  }
}
)hp";
  EXPECT_EQ(verdict(loss, "\"m\"", "\"m\""), "ok");
  // Nothing that types accept makes such a loss; a pass could still print it.
  std::string partial = sharded.str();
  partial.replace(partial.find("@forward"), 8, "@train");
  std::string text =
      verdict(partial, "    return %y",
              "    %l = cross_entropy %y, %y : f32[]{partial: tp}\n"
              "    return %l");
  EXPECT_TRUE(says(text, "the loss is partial over 'tp', which cuts no tokens; "
                         "reduce it there first with all_reduce"));
}
