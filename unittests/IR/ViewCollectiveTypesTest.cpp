//===- ViewCollectiveTypesTest.cpp - Types of views and collectives -------===//

#include "EngineTesting.h"

using namespace hp;
using namespace hp::enginetest;

//===----------------------------------------------------------------------===//
// Views
//===----------------------------------------------------------------------===//

TEST(Views, split_gives_one_value_for_each_segment) {
  EXPECT_EQ(infer("split %0", {"f32[B, (q=4*4 | k=4*4 | v=8*6)@tp]"}),
            "f32[B, (q=4*4)@tp], f32[B, (k=4*4)@tp], f32[B, (v=8*6)@tp]");
  EXPECT_TRUE(
      says(infer("split %0", {"f32[B, 32]"}), {"'split'", "one segment"}));
  EXPECT_TRUE(says(infer("split %0", {"f32[]"}), {"scalar"}));
}

TEST(Views, concat_undoes_split) {
  EXPECT_EQ(
      infer("concat %0, %1", {"f32[B, (q=4*4)@tp]", "f32[B, (k=2*4)@tp]"}),
      "f32[B, (q=4*4 | k=2*4)@tp]");
}

TEST(Views, concat_takes_operands_in_one_state) {
  EXPECT_TRUE(
      says(infer("concat %0, %1", {"f32[B, q=4]", "f32[B, k=4]{repl: tp}"}),
           {"different states", "copy_to"}));
  EXPECT_TRUE(says(infer("concat %0, %1", {"f32[B, q=4@tp]", "f32[B, k=4]"}),
                   {"'tp' in operand 0", "no axis in operand 1"}));
  EXPECT_TRUE(
      says(infer("concat %0, %1", {"f32[B, q=4]", "f32[S, k=4]"}), {"dim 0"}));
  EXPECT_TRUE(
      says(infer("concat %0, %1", {"f32[B, q=4]", "bf16[B, k=4]"}), {"cast"}));
  EXPECT_TRUE(says(infer("concat %0", {"f32[B, q=4]"}), {"two operands"}));
}

TEST(Views, unflatten_keeps_the_cut_on_the_outer_factor) {
  EXPECT_EQ(infer("unflatten %0", {"f32[B, (h=8*6)@tp]"}), "f32[B, h=8@tp, 6]");
  EXPECT_EQ(infer("unflatten %0", {"f32[(h=8*2*6)@tp]{partial: dp}"}),
            "f32[h=8@tp, (2*6)]{partial: dp}");
  EXPECT_TRUE(says(infer("unflatten %0", {"f32[B, 48]"}), {"product"}));
}

TEST(Views, flatten_undoes_unflatten) {
  EXPECT_EQ(infer("flatten %0", {"f32[B, h=8@tp, 6]"}), "f32[B, (h=8*6)@tp]");
}

TEST(Views, flatten_of_a_cut_inner_dim_is_rejected) {
  EXPECT_TRUE(says(infer("flatten %0", {"f32[B, h=8, 6@tp]"}),
                   {"'flatten'", "last dim is cut over 'tp'", "all_gather"}));
  EXPECT_TRUE(says(infer("flatten %0", {"f32[8]"}), {"two dims"}));
  EXPECT_TRUE(says(infer("flatten %0", {"f32[B, (q=2 | k=2)]"}), {"segments"}));
}

TEST(Views, unpack_takes_a_gate_out_head_by_head) {
  EXPECT_EQ(infer("unpack %0", {"f32[B, (h=4*2*8)@tp]"}),
            "f32[B, h=4@tp, 8], f32[B, h=4@tp, 8]");
  EXPECT_TRUE(says(infer("unpack %0", {"f32[B, (h=4*8)]"}), {"(h*n*d)"}));
  EXPECT_TRUE(says(infer("unpack %0", {"f32[(h=4*100000*8)]"}), {"at most"}));
}

TEST(Views, repeat_heads_multiplies_heads) {
  EXPECT_EQ(infer("repeat_heads %0 {r=3}", {"f32[B, S@cp, g=2@tp, 8]"}),
            "f32[B, S@cp, h=6@tp, 8]");
  EXPECT_TRUE(says(
      infer("repeat_heads %0 {r=9223372036854775807}", {"f32[B, S, g=2, 8]"}),
      {"'r'"}));
  EXPECT_TRUE(
      says(infer("repeat_heads %0 {r=2}", {"f32[B, S, 8]"}), {"four dims"}));
}

//===----------------------------------------------------------------------===//
// Between states
//===----------------------------------------------------------------------===//

TEST(Collectives, copy_to_makes_invariant_replicated) {
  EXPECT_EQ(infer("copy_to %0 {tp}", {"f32[B@dp, 8]"}),
            "f32[B@dp, 8]{repl: tp}");
  EXPECT_TRUE(says(infer("copy_to %0 {tp}", {"f32[B, 8]{partial: tp}"}),
                   {"'copy_to'", "partial over 'tp', not invariant"}));
  EXPECT_TRUE(
      says(infer("copy_to %0 {dp}", {"f32[B@dp, 8]"}), {"sharded over 'dp'"}));
}

TEST(Collectives, all_reduce_makes_partial_invariant) {
  EXPECT_EQ(infer("all_reduce %0 {(dp,tp)}", {"f32[8]{partial: dp, cp, tp}"}),
            "f32[8]{partial: cp}");
}

TEST(Collectives, a_second_reduction_is_rejected) {
  EXPECT_TRUE(says(infer("all_reduce %0 {tp}", {"f32[8]"}),
                   {"'all_reduce'", "invariant over 'tp', not partial",
                    "must not be summed again"}));
  EXPECT_TRUE(says(infer("reduce_scatter %0 {tp: S}", {"f32[S]{repl: tp}"}),
                   {"replicated over 'tp', not partial"}));
}

TEST(Collectives, all_gather_takes_off_the_minor_most_axes) {
  EXPECT_EQ(infer("all_gather %0 {tp: S}", {"f32[B, S@(cp,tp), 8]"}),
            "f32[B, S@cp, 8]{repl: tp}");
  EXPECT_EQ(infer("all_gather %0 {(cp,tp): S, to=invariant}",
                  {"f32[B, S@(cp,tp), 8]"}),
            "f32[B, S, 8]");
  EXPECT_TRUE(
      says(infer("all_gather %0 {cp: S}", {"f32[B, S@(cp,tp), 8]"}),
           {"'cp' are not the minor-most axes of dim 'S'", "'(cp,tp)'"}));
  EXPECT_TRUE(says(infer("all_gather %0 {tp: S}", {"f32[B, S, 8]"}),
                   {"cut over no axis"}));
  EXPECT_TRUE(says(infer("all_gather %0 {tp: V}", {"f32[B, S@tp, 8]"}),
                   {"no dim 'V' in f32[B, S@tp, 8]"}));
  EXPECT_TRUE(says(infer("all_gather %0 {tp: S, to=partial}", {"f32[S@tp]"}),
                   {"'to' can only be 'invariant'"}));
}

TEST(Collectives, reduce_scatter_cuts_minor_most) {
  EXPECT_EQ(
      infer("reduce_scatter %0 {tp: S}", {"f32[B, S@cp, 8]{partial: tp}"}),
      "f32[B, S@(cp,tp), 8]");
}

TEST(Collectives, a_cut_must_divide) {
  EXPECT_TRUE(
      says(infer("reduce_scatter %0 {tp: x}", {"f32[x=7]{partial: tp}"}),
           {"dim 'x' of 7 does not divide over 'tp', 2 ranks"}));
  EXPECT_TRUE(
      says(infer("all_to_all %0 {cp: S->h}", {"f32[B, S@cp, h=4@(dp,tp)]"}),
           {"dim 'h' of 4 does not divide over '(dp,tp,cp)', 8 ranks"}));
}

TEST(Collectives, shard_cuts_what_is_invariant) {
  EXPECT_EQ(infer("shard %0 {tp: V}", {"f32[B, V=32]"}), "f32[B, V=32@tp]");
  EXPECT_TRUE(says(infer("shard %0 {tp: V}", {"f32[B, V=32]{repl: tp}"}),
                   {"replicated over 'tp'", "only an invariant value"}));
  EXPECT_TRUE(says(infer("shard %0 {tp: V}", {"f32[B, V=32]{partial: tp}"}),
                   {"partial over 'tp'", "without communication"}));
  EXPECT_TRUE(says(infer("shard %0 {(cp,tp): V}", {"f32[B, V=32]{repl: tp}"}),
                   {"replicated over 'tp'"}));
}

TEST(Collectives, all_to_all_moves_the_cut) {
  EXPECT_EQ(infer("all_to_all %0 {cp: S->h}", {"f32[B, S@cp, h=8@tp, 4]"}),
            "f32[B, S, h=8@(tp,cp), 4]");
  EXPECT_EQ(infer("all_to_all %0 {cp: h->S}", {"f32[B, S, h=8@(tp,cp), 4]"}),
            "f32[B, S@cp, h=8@tp, 4]");
  EXPECT_TRUE(
      says(infer("all_to_all %0 {cp: S->S}", {"f32[S@cp]"}), {"itself"}));
}

TEST(Collectives, an_axis_is_named_once) {
  Module module;
  module.mesh.addAxis("a", 2);
  Operation op(OpKind::AllReduce);
  TypeData data;
  data.partial = AxisSet::single(0);
  Type type = module.type(data);
  for (AxisList axes : {AxisList{}, AxisList{0, 0}, AxisList{7}}) {
    op.axes = axes;
    auto types = inferForward(module, OpKind::AllReduce, type, op);
    ASSERT_FALSE(types);
    EXPECT_NE(llvm::toString(types.takeError()), "");
  }
}

//===----------------------------------------------------------------------===//
// Along the sequence, and the vocabulary
//===----------------------------------------------------------------------===//

TEST(Collectives, halo_has_one_block_for_each_shard) {
  EXPECT_EQ(
      infer("cp.halo %0 {cp: S, k=3}", {"f32[B@dp, S@cp, (q=4 | k=4)@tp]"}),
      "f32[B@dp, (n=2*3)@cp, (q=4 | k=4)@tp]");
  EXPECT_TRUE(says(infer("cp.halo %0 {cp: S, k=3}", {"f32[B, S@(cp,tp), 8]"}),
                   {"must be cut over 'cp', not over '(cp,tp)'"}));
  EXPECT_TRUE(says(infer("cp.halo %0 {cp: S, k=9}", {"f32[B, S@cp, 8]"}),
                   {"'k' is 9", "8 tokens of a shard"}));
  EXPECT_TRUE(
      says(infer("cp.halo %0 {cp: S, k=3}", {"f32[B, S@cp, 8]{partial: tp}"}),
           {"partial over 'tp'"}));
  EXPECT_TRUE(says(infer("cp.halo %0 {cp: B, k=1}", {"f32[B@cp, S, 8]"}),
                   {"not the sequence"}));
}

TEST(Collectives, scan_hands_one_state_to_each_shard) {
  EXPECT_EQ(infer("cp.scan %0, %1 {cp}", {"f32[B, n=2@cp, v=8@tp, 4, 4]",
                                          "f32[B, n=2@cp, v=8@tp, 4, 6]"}),
            "f32[B, n=2@cp, v=8@tp, 4, 6]");
  EXPECT_TRUE(says(infer("cp.scan %0, %1 {cp}", {"f32[B, n=4@cp, v=8, 4, 4]",
                                                 "f32[B, n=4@cp, v=8, 4, 6]"}),
                   {"4 maps for 2 ranks"}));
  EXPECT_TRUE(says(infer("cp.scan %0, %1 {cp}",
                         {"f32[B, n=2, v=8, 4, 4]", "f32[B, n=2, v=8, 4, 6]"}),
                   {"dim 1 of operand 0 must be cut over 'cp'"}));
  EXPECT_TRUE(says(infer("cp.scan %0, %1 {cp}", {"f32[B, n=2@cp, v=8, 4, 5]",
                                                 "f32[B, n=2@cp, v=8, 4, 6]"}),
                   {"square"}));
  EXPECT_TRUE(says(
      infer("cp.scan %0, %1 {cp}", {"f32[B, n=2@cp, v=8, 4, 4]",
                                    "f32[B, n=2@cp, v=8, 4, 6]{repl: tp}"}),
      {"differ in state"}));
}

TEST(Collectives, ring_cuts_queries_and_keys_alike) {
  EXPECT_EQ(infer("cp.ring %0, %1, %2 {cp}",
                  {"f32[B, S@cp, h=4@tp, 8]", "f32[B, S@cp, g=2@tp, 8]",
                   "f32[B, S@cp, g=2@tp, 8]"}),
            "f32[B, S@cp, h=4@tp, 8], f32[B, S@cp, h=4@tp]");
  EXPECT_TRUE(
      says(infer("cp.ring %0, %1, %2 {cp}",
                 {"f32[B, S@cp, h=4, 8]", "f32[B, S, g=2, 8]{repl: cp}",
                  "f32[B, S, g=2, 8]{repl: cp}"}),
           {"dim 1 of operand 1 must be cut over 'cp', not over no axis"}));
  EXPECT_TRUE(says(infer("cp.ring %0, %1, %2 {cp}",
                         {"f32[B, S@cp, h=4, 8@tp]", "f32[B, S@cp, g=2, 8@tp]",
                          "f32[B, S@cp, g=2, 8@tp]"}),
                   {"factor 'd' must be whole"}));
}

TEST(Collectives, vocabulary_parallel_loss_is_invariant_over_the_vocabulary) {
  EXPECT_EQ(infer("cross_entropy.vp %0, %1 {tp: V}",
                  {"f32[B@dp, S@cp, V=32@tp]", "i64[B@dp, S@cp]"}),
            "f32[]{partial: dp, cp}, f32[B@dp, S@cp]");
  EXPECT_TRUE(says(infer("cross_entropy.vp %0, %1 {tp: V}",
                         {"f32[B, S, V=32]", "i64[B, S]"}),
                   {"cut along 'V' over 'tp', not over no axis"}));
  EXPECT_TRUE(says(infer("cross_entropy.vp %0, %1 {tp: V}",
                         {"f32[B, S, V=32@tp]{partial: dp}", "i64[B, S]"}),
                   {"partial value on axis 'dp'", "non-linear"}));
}

//===----------------------------------------------------------------------===//
// Reduction, norm, clip, update
//===----------------------------------------------------------------------===//

static const char *storedParam =
    "  param @w : f32[16@tp, 8]{repl: dp, cp} store=f32@(dp,cp)\n";

static std::string reduce(const std::string &gradient, const std::string &how) {
  return infer("reduce_grad %0 {param=w" + how + "}", {gradient}, storedParam);
}

TEST(Update, reduce_grad_sums_over_all_replicated_axes) {
  EXPECT_EQ(reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(dp,cp)"),
            "f32[16@tp, 8] store=f32@(dp,cp)");
}

TEST(Update, reduce_grad_over_fewer_or_more_axes_is_rejected) {
  EXPECT_TRUE(says(reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(dp)"),
                   {"'@w' must be summed over '(dp,cp)'", "summed over 'dp'"}));
  EXPECT_TRUE(says(
      reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(dp,cp), sum=(tp)"),
      {"summed over '(dp,cp,tp)'"}));
  EXPECT_TRUE(says(
      reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(dp,cp), sum=(cp)"),
      {"reduced twice"}));
}

TEST(Update, reduce_grad_scatters_over_the_axes_of_storage) {
  EXPECT_TRUE(
      says(reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(dp), sum=(cp)"),
           {"'scatter' is over 'dp'", "stored over '(dp,cp)'"}));
  EXPECT_TRUE(
      says(reduce("f32[16@tp, 8]{partial: dp, cp}", ", scatter=(cp,dp)"),
           {"'scatter'"}));
}

TEST(Update, reduce_grad_takes_the_dual_of_the_parameter) {
  EXPECT_TRUE(
      says(reduce("f32[16@tp, 8]{partial: dp}", ", scatter=(dp,cp)"),
           {"the gradient is f32[16@tp, 8]{partial: dp}", "dual of '@w'"}));
}

TEST(Update, a_sum_of_squares_is_partial_over_what_cuts_the_tensor) {
  EXPECT_EQ(infer("sum_squares %0", {"f32[16@tp, 8]"}), "f64[]{partial: tp}");
  EXPECT_EQ(infer("sum_squares %0", {"f32[16]"}), "f64[]");
  EXPECT_TRUE(says(infer("sum_squares %0", {"f32[16]{partial: tp}"}),
                   {"'tp'", "reduce_grad"}));
}

TEST(Update, terms_of_a_sum_are_in_one_state) {
  EXPECT_EQ(infer("sum %0, %1", {"f64[]{partial: tp}", "f64[]{partial: tp}"}),
            "f64[]{partial: tp}");
  EXPECT_TRUE(says(infer("sum %0, %1", {"f64[]{partial: tp}", "f64[]"}),
                   {"operand 1 is f64[]", "one state"}));
  EXPECT_TRUE(says(infer("sum %0", {"f64[8]"}), {"scalars"}));
}

TEST(Update, norm_and_clip_are_the_same_on_all_ranks) {
  EXPECT_EQ(infer("grad_norm %0, %1", {"f64[]", "f64[]"}), "f64[]");
  EXPECT_EQ(infer("clip_coef %0 {max_norm=1.0}", {"f64[]"}), "f64[]");
  EXPECT_EQ(infer("finite %0, %1", {"f64[]", "i64[]"}), "bool[]");
  EXPECT_TRUE(says(infer("grad_norm %0", {"f64[]{partial: tp}"}),
                   {"operand 0", "the same on all ranks"}));
  EXPECT_TRUE(says(infer("clip_coef %0 {max_norm=1.0}", {"f32[]"}), {"f64[]"}));
  EXPECT_TRUE(says(infer("finite %0, %1", {"f64[]", "i64[]{partial: dp}"}),
                   {"operand 1"}));
}

static const char *adamwAttributes =
    " {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1}";

TEST(Update, adamw_takes_the_reduced_gradient) {
  std::string op = std::string("adamw @w, %0, %1") + adamwAttributes;
  EXPECT_EQ(infer(op, {"f32[16]", "f64[]"}, "  param @w : f32[16]\n"), "");
  EXPECT_TRUE(
      says(infer(op, {"f32[16@tp, 8]{partial: dp, cp}", "f64[]"}, storedParam),
           {"'@w' is updated by f32[16@tp, 8] store=f32@(dp,cp)"}));
  EXPECT_TRUE(
      says(infer(op, {"f32[16]", "f64[]{repl: tp}"}, "  param @w : f32[16]\n"),
           {"operand 2", "the same on all ranks"}));
}

TEST(Update, adamw_takes_rate_count_and_condition) {
  std::string op =
      std::string("adamw @w, %0, %1, %2, %3, %4") + adamwAttributes;
  EXPECT_EQ(infer(op, {"f32[16]", "f64[]", "f64[]", "i64[]", "bool[]"},
                  "  param @w : f32[16]\n"),
            "");
  EXPECT_TRUE(says(infer(op, {"f32[16]", "f64[]", "f64[]", "f64[]", "bool[]"},
                         "  param @w : f32[16]\n"),
                   {"operand 4 must be i64[]"}));
}

//===----------------------------------------------------------------------===//
// Backward
//===----------------------------------------------------------------------===//

TEST(Backward, gradients_are_the_duals_of_the_operands) {
  EXPECT_EQ(infer("linear.bwd %0, %1, %2",
                  {"f32[B@dp, S, 16]{repl: tp}", "f32[8@tp, 16]{repl: dp}",
                   "f32[B@dp, S, 8@tp]"}),
            "f32[B@dp, S, 16]{partial: tp}, f32[8@tp, 16]{partial: dp}");
}

TEST(Backward, a_cotangent_is_the_dual_of_the_result) {
  EXPECT_EQ(infer("linear.bwd %0, %1, %2",
                  {"f32[B, 16@tp]", "f32[8, 16@tp]", "f32[B, 8]{repl: tp}"}),
            "f32[B, 16@tp], f32[8, 16@tp]");
  EXPECT_TRUE(
      says(infer("linear.bwd %0, %1, %2",
                 {"f32[B, 16@tp]", "f32[8, 16@tp]", "f32[B, 8]{partial: tp}"}),
           {"'linear.bwd'", "cotangent 0 is f32[B, 8]{partial: tp}",
            "dual of the forward result is f32[B, 8]{repl: tp}"}));
}

TEST(Backward, a_running_gradient_has_the_type_of_the_gradient) {
  EXPECT_EQ(infer("sigmoid.bwd %0, %1 acc[%2]", {"f32[8]", "f32[8]", "f32[8]"}),
            "f32[8]");
  EXPECT_TRUE(says(infer("sigmoid.bwd %0, %1 acc[%2]",
                         {"f32[8]", "f32[8]", "f32[8]{repl: tp}"}),
                   {"running gradient 0 is f32[8]{repl: tp}", "f32[8]"}));
}

TEST(Backward, saved_results_have_the_types_of_the_forward_ones) {
  std::vector<std::string> types = {"f32[B, S, V=32@tp]", "i64[B, S]",
                                    "f32[B, S]", "f32[]"};
  EXPECT_EQ(infer("cross_entropy.vp.bwd %0, %1, %2, %3 {tp: V}", types),
            "f32[B, S, V=32@tp]");
  types[2] = "f32[B, S]{repl: tp}";
  EXPECT_TRUE(says(infer("cross_entropy.vp.bwd %0, %1, %2, %3 {tp: V}", types),
                   {"operand 2 must be result 1 of the forward operation"}));
}

TEST(Backward, an_adjoint_without_cotangents_is_rejected) {
  EXPECT_TRUE(says(infer("split.bwd %0, _, _", {"f32[(q=2 | k=2)]"}),
                   {"no cotangent"}));
  EXPECT_EQ(infer("split.bwd %0, _, %1", {"f32[(q=2 | k=2)]", "f32[k=2]"}),
            "f32[(q=2 | k=2)]");
}

TEST(Backward, the_fault_of_the_forward_operation_is_the_adjoints_too) {
  EXPECT_TRUE(
      says(infer("sigmoid.bwd %0, %1", {"f32[8]{partial: tp}", "f32[8]"}),
           {"'sigmoid.bwd'", "non-linear"}));
}
