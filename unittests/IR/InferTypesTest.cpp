//===- InferTypesTest.cpp - The type engine, rule by rule -----------------===//
//
// Local operations: shapes, dtypes, segments, groups, blocks, and the words of
// each refusal. Which states fit is the matter of RuleStatesTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "EngineTesting.h"

using namespace hp;
using namespace hp::enginetest;

//===----------------------------------------------------------------------===//
// States: what is said
//===----------------------------------------------------------------------===//

TEST(LocalRules, add_of_partial_and_partial_is_partial) {
  EXPECT_EQ(infer("add %0, %1", {"f32[8]{partial: tp}", "f32[8]{partial: tp}"}),
            "f32[8]{partial: tp}");
}

TEST(LocalRules, add_of_partial_and_replicated_is_rejected) {
  EXPECT_TRUE(says(
      infer("add %0, %1", {"f32[8]{partial: tp}", "f32[8]{repl: tp}"}),
      {"'add'", "axis 'tp'", "operand 0 is partial", "operand 1 is replicated",
       "count operand 1 once for each rank", "all_reduce or reduce_scatter"}));
}

TEST(LocalRules, add_of_invariant_and_partial_is_rejected) {
  EXPECT_TRUE(says(infer("add %0, %1", {"f32[8]", "f32[8]{partial: tp}"}),
                   {"operand 1 is partial and operand 0 is invariant"}));
}

TEST(LocalRules, bias_on_a_partial_value_is_rejected) {
  EXPECT_TRUE(says(infer("bias_add %0, %1",
                         {"f32[B, S, 16]{partial: tp}", "f32[16]{repl: tp}"}),
                   {"'bias_add'", "'tp'", "once for each rank"}));
}

TEST(LocalRules, partial_into_a_norm_is_rejected) {
  EXPECT_EQ(
      infer("rms_norm %0, %1 {eps=1e-06}",
            {"f32[B, S, 16]{partial: tp}", "f32[16]{repl: tp}"}),
      "error: 'rms_norm': a partial value on axis 'tp' (operand 0) enters "
      "a non-linear operation; reduce it first with all_reduce or "
      "reduce_scatter");
}

TEST(LocalRules, partial_times_replicated_is_partial) {
  EXPECT_EQ(infer("linear %0, %1",
                  {"f32[B, S, 16]{partial: tp}", "f32[8, 16]{repl: tp}"}),
            "f32[B, S, 8]{partial: tp}");
}

TEST(LocalRules, partial_times_partial_is_rejected) {
  EXPECT_TRUE(says(infer("linear %0, %1", {"f32[B, S, 16]{partial: tp}",
                                           "f32[8, 16]{partial: tp}"}),
                   {"operand 0 is partial and operand 1 is partial",
                    "needs the other one replicated"}));
}

TEST(LocalRules, a_partial_count_is_not_a_divisor) {
  EXPECT_TRUE(
      says(infer("div %0, %1", {"f32[]{repl: dp}", "i64[]{partial: dp}"}),
           {"'div'", "operand 1", "non-linear"}));
}

TEST(LocalRules, reduced_cut_factor_gives_partial) {
  EXPECT_EQ(infer("linear %0, %1",
                  {"f32[B@dp, S, 16@tp]", "f32[8, 16@tp]{repl: dp}"}),
            "f32[B@dp, S, 8]{partial: tp}");
  EXPECT_EQ(infer("count_valid %0", {"i64[B@dp, S@cp]"}),
            "i64[]{partial: dp, cp}");
}

TEST(LocalRules, vocabulary_cut_makes_the_embedding_partial) {
  EXPECT_EQ(
      infer("embedding %0, %1", {"i64[B@dp, S]", "f32[V=32@tp, 16]{repl: dp}"}),
      "f32[B@dp, S, 16]{partial: tp}");
}

TEST(LocalRules, forgotten_copy_to_is_rejected) {
  EXPECT_TRUE(says(infer("linear %0, %1", {"f32[B, S, 16]", "f32[8@tp, 16]"}),
                   {"'linear'", "axis 'tp'", "invariant operand 0",
                    "operand 1, cut along factor 'n'", "miss a sum over 'tp'",
                    "copy_to"}));
}

TEST(LocalRules, invariant_meets_replicated_is_rejected) {
  EXPECT_TRUE(
      says(infer("linear %0, %1", {"f32[B, S, 16]", "f32[8, 16]{repl: tp}"}),
           {"invariant operand 0 meets replicated operand 1", "copy_to"}));
}

TEST(LocalRules, cut_in_one_operand_and_whole_in_the_other_is_rejected) {
  EXPECT_TRUE(
      says(infer("add %0, %1", {"f32[B, S@cp, 16]", "f32[B, S, 16]{repl: cp}"}),
           {"'add'", "dim 1 ('S')", "over 'cp' in operand 0",
            "whole in operand 1"}));
}

TEST(LocalRules, one_axis_cuts_one_factor) {
  EXPECT_TRUE(says(
      infer("linear %0, %1", {"f32[B, S, 16@tp]", "f32[8@tp, 16]"}),
      {"operand 0 is cut along factor 'k'", "operand 1 along factor 'n'"}));
}

TEST(LocalRules, the_order_of_axes_must_agree) {
  EXPECT_TRUE(says(infer("add %0, %1", {"f32[16@(cp,tp)]", "f32[16@(tp,cp)]"}),
                   {"dim 0", "'(cp,tp)' in operand 0", "'(tp,cp)' in operand 1",
                    "order must agree"}));
}

TEST(LocalRules, whole_factors_may_not_be_cut) {
  EXPECT_TRUE(says(
      infer("rms_norm %0, %1 {eps=1e-06}", {"f32[B, S, 16@tp]", "f32[16@tp]"}),
      {"factor 'e' must be whole", "operand 0 is cut over 'tp'",
       "all_gather"}));
  EXPECT_TRUE(
      says(infer("cross_entropy %0, %1", {"f32[B, S, V=32@tp]", "i64[B, S]"}),
           {"factor 'v' ('V') must be whole"}));
}

TEST(LocalRules, axes_are_independent_of_one_another) {
  EXPECT_EQ(infer("linear %0, %1", {"f32[B@dp, S@cp, 16]{repl: tp}",
                                    "f32[8@tp, 16]{repl: dp, cp}"}),
            "f32[B@dp, S@cp, 8@tp]");
}

//===----------------------------------------------------------------------===//
// Shapes, names, dtypes
//===----------------------------------------------------------------------===//

TEST(LocalRules, sizes_of_a_factor_must_agree) {
  EXPECT_TRUE(says(infer("linear %0, %1", {"f32[B, S, 16]", "f32[8, 12]"}),
                   {"sizes of factor 'k' differ: 16 in operand 0 and 12 in "
                    "operand 1"}));
}

TEST(LocalRules, products_and_plain_extents_of_one_size_agree) {
  EXPECT_EQ(infer("linear %0, %1", {"f32[B, S, (h=4*8)]", "f32[16, 32]"}),
            "f32[B, S, 16]");
}

TEST(LocalRules, segments_must_agree_one_by_one) {
  EXPECT_TRUE(
      says(infer("causal_conv1d %0, %1", {"f32[B, S, (q=8 | k=8 | v=16)]",
                                          "f32[(q=8 | k=16 | v=8), 1, 4]"}),
           {"8 | 8 | 16 in operand 0 and 8 | 16 | 8 in operand 1"}));
  EXPECT_TRUE(says(infer("causal_conv1d %0, %1",
                         {"f32[B, S, (q=8 | k=8)]", "f32[(k=8 | q=8), 1, 4]"}),
                   {"another dim"}));
}

TEST(LocalRules, a_plain_dim_does_not_stand_for_segments) {
  // Cut contiguously, 32 rows over tp would fall across the segments.
  EXPECT_TRUE(
      says(infer("causal_conv1d %0, %1",
                 {"f32[B, S, (q=8 | k=8 | v=16)@tp]", "f32[32@tp, 1, 4]"}),
           {"sizes of factor 'c' differ"}));
}

TEST(LocalRules, declared_dims_of_one_size_are_still_two) {
  EXPECT_TRUE(says(infer("add %0, %1", {"f32[S, 8]", "f32[B, 8]"}), {"dim 0"}));
}

TEST(LocalRules, labels_do_not_count) {
  EXPECT_EQ(infer("sigmoid_mul %0, %1", {"f32[B, v=8]", "f32[B, h=8]"}),
            "f32[B, v=8]");
}

TEST(LocalRules, any_leading_dims_are_taken) {
  EXPECT_EQ(infer("sigmoid %0", {"f32[]"}), "f32[]");
  EXPECT_EQ(infer("linear %0, %1", {"f32[16]", "f32[8, 16]"}), "f32[8]");
  EXPECT_EQ(
      infer("rms_norm %0, %1 {eps=1e-06}", {"f32[B, S, h=4, 8]", "f32[8]"}),
      "f32[B, S, h=4, 8]");
  EXPECT_TRUE(says(infer("linear %0, %1", {"f32[]", "f32[8, 16]"}),
                   {"operand 0 has 0 dims", "at least 1"}));
  EXPECT_TRUE(says(infer("add %0, %1", {"f32[2, 3]", "f32[3]"}),
                   {"operand 1 has 1 dims", "asks for 2"}));
}

TEST(LocalRules, more_dims_than_any_operation_takes_are_rejected) {
  Module module;
  TypeData deep;
  deep.dims.assign(41, Dim("", {1}));
  Operation op(OpKind::Sigmoid);
  auto types = inferForward(module, op.kind, module.type(deep), op);
  ASSERT_FALSE(types);
  EXPECT_TRUE(says("error: " + llvm::toString(types.takeError()), {"41 dims"}));
}

TEST(LocalRules, integers_and_floats_each_have_their_place) {
  EXPECT_TRUE(says(infer("embedding %0, %1", {"f32[B, S]", "f32[8, 16]"}),
                   {"operand 0 is f32", "must be i64"}));
  EXPECT_TRUE(says(infer("add %0, %1", {"i64[8]", "i64[8]"}),
                   {"operand 0 is i64", "floating"}));
  EXPECT_TRUE(says(infer("count_valid %0", {"bool[B, S]"}), {"bool"}));
}

TEST(LocalRules, linear_operations_do_not_mix_dtypes) {
  EXPECT_TRUE(says(infer("linear %0, %1", {"bf16[16]", "f32[8, 16]"}),
                   {"operand 1 is f32, operand 0 is bf16", "cast"}));
  // What computes in fp32 inside takes fp32 parameters.
  EXPECT_EQ(infer("decay %0, %1, %2", {"bf16[B, S, 8]", "f32[8]", "f32[8]"}),
            "bf16[B, S, 8]");
}

TEST(LocalRules, cast_takes_the_type_it_names_and_keeps_the_state) {
  EXPECT_EQ(infer("cast %0 {to=bf16}", {"f32[B, 8]{partial: tp}"}),
            "bf16[B, 8]{partial: tp}");
  EXPECT_TRUE(says(infer("cast %0 {to=i64}", {"f32[B, 8]"}),
                   {"'to' must name a floating type", "'i64'"}));
}

TEST(LocalRules, the_loss_is_a_scalar_of_the_logits_dtype) {
  EXPECT_EQ(
      infer("cross_entropy %0, %1", {"f32[B@dp, S, V=32]", "i64[B@dp, S]"}),
      "f32[]{partial: dp}");
  EXPECT_EQ(infer("div %0, %1", {"f32[]{partial: dp}", "i64[]"}),
            "f32[]{partial: dp}");
}

TEST(LocalRules, rope_cuts_positions_like_the_sequence) {
  EXPECT_EQ(infer("rope %0, %1 {rotary=4, theta=10000.0}",
                  {"f32[B, S@cp, h=4@tp, 8]", "i64[S@cp]"}),
            "f32[B, S@cp, h=4@tp, 8]");
  EXPECT_TRUE(says(infer("rope %0, %1 {rotary=4, theta=10000.0}",
                         {"f32[B, S@cp, h=4@tp, 8]", "i64[S]"}),
                   {"factor 's'", "whole in operand 1"}));
}

//===----------------------------------------------------------------------===//
// Groups of heads
//===----------------------------------------------------------------------===//

static std::string attend(std::string q, std::string kv) {
  return infer("sdpa %0, %1, %2", {q, kv, kv});
}

TEST(Groups, heads_and_groups_cut_over_the_same_axes) {
  EXPECT_EQ(attend("f32[B, S, h=4@tp, 8]", "f32[B, S, g=2@tp, 8]"),
            "f32[B, S, h=4@tp, 8]");
}

TEST(Groups, queries_may_be_cut_along_the_sequence_with_keys_replicated) {
  EXPECT_EQ(attend("f32[B, S@cp, h=4, 8]", "f32[B, S, g=2, 8]{repl: cp}"),
            "f32[B, S@cp, h=4, 8]");
  EXPECT_TRUE(says(attend("f32[B, S@cp, h=4, 8]", "f32[B, S@cp, g=2, 8]"),
                   {"cut along factor 's'", "factor 't'"}));
}

TEST(Groups, an_axis_inside_used_up_groups_needs_them_replicated) {
  EXPECT_EQ(
      attend("f32[B, S, h=4@(tpg,tpr), 8]", "f32[B, S, g=2@tpg, 8]{repl: tpr}"),
      "f32[B, S, h=4@(tpg,tpr), 8]");
  EXPECT_TRUE(
      says(attend("f32[B, S, h=4@(tpg,tpr), 8]", "f32[B, S, g=2@tpg, 8]"),
           {"axis 'tpr'", "operand 1", "is invariant",
            "must be replicated (copy_to)"}));
}

TEST(Groups, an_axis_inside_groups_that_are_left_is_rejected) {
  EXPECT_TRUE(says(
      attend("f32[B, S, h=8@(tpg,tpr), 8]", "f32[B, S, g=4@tpg, 8]{repl: tpr}"),
      {"'tpr'", "4 groups over 'tpg' are not used up"}));
  EXPECT_TRUE(
      says(attend("f32[B, S, h=4@tp, 8]", "f32[B, S, g=2, 8]{repl: tp}"),
           {"not used up"}));
}

TEST(Groups, heads_begin_with_the_axes_of_groups) {
  EXPECT_TRUE(says(
      attend("f32[B, S, h=4@(tpr,tpg), 8]", "f32[B, S, g=2@tpg, 8]{repl: tpr}"),
      {"must begin with the axes of the groups, 'tpg'"}));
  EXPECT_TRUE(
      says(attend("f32[B, S, h=4, 8]{repl: tp}", "f32[B, S, g=2@tp, 8]"),
           {"heads are cut over no axis"}));
}

TEST(Groups, heads_must_divide_into_groups) {
  EXPECT_TRUE(says(attend("f32[B, S, h=4, 8]", "f32[B, S, g=3, 8]"),
                   {"4 heads do not divide into groups of 3"}));
}

//===----------------------------------------------------------------------===//
// Blocks: halo and state
//===----------------------------------------------------------------------===//

TEST(Blocks, a_convolution_without_halo_needs_the_sequence_whole) {
  EXPECT_EQ(
      infer("causal_conv1d %0, %1", {"f32[B, S, 8@tp]", "f32[8@tp, 1, 4]"}),
      "f32[B, S, 8@tp]");
  EXPECT_TRUE(says(infer("causal_conv1d %0, %1",
                         {"f32[B, S@cp, 8]", "f32[8, 1, 4]{repl: cp}"}),
                   {"'causal_conv1d'", "factor 's' ('S') must be whole", "'cp'",
                    "cp.halo"}));
}

static std::string convolve(std::string x, std::string halo) {
  return infer("causal_conv1d %0, %1, %2", {x, halo, "f32[8, 1, 4]{repl: cp}"});
}

TEST(Blocks, a_halo_lets_the_sequence_be_cut) {
  EXPECT_EQ(convolve("f32[B, S@cp, 8]", "f32[B, (n=2*3)@cp, 8]"),
            "f32[B, S@cp, 8]");
}

TEST(Blocks, the_halo_is_cut_like_the_sequence) {
  EXPECT_TRUE(says(convolve("f32[B, S@cp, 8]", "f32[B, (n=2*3), 8]{repl: cp}"),
                   {"factor 's'", "over 'cp' in operand 0", "operand 1"}));
}

TEST(Blocks, the_halo_has_the_length_of_the_window) {
  EXPECT_TRUE(says(convolve("f32[B, S@cp, 8]", "f32[B, (n=2*2)@cp, 8]"),
                   {"factor 'n' of operand 1 is 4 but 6", "3 for each shard"}));
}

TEST(Blocks, the_window_may_not_be_cut_and_is_depthwise) {
  EXPECT_TRUE(says(infer("causal_conv1d %0, %1",
                         {"f32[B, S, 8]{repl: tp}", "f32[8, 1, 4@tp]"}),
                   {"factor 't' must be whole"}));
  EXPECT_TRUE(
      says(infer("causal_conv1d %0, %1", {"f32[B, S, 8]", "f32[8, 2, 4]"}),
           {"must be of size 1, not 2"}));
}

static std::string recur(std::string sequence, std::string state = "") {
  std::vector<std::string> types = {"f32[B, " + sequence + ", k=2@tp, 4]",
                                    "f32[B, " + sequence + ", k=2@tp, 4]",
                                    "f32[B, " + sequence + ", v=4@tp, 6]",
                                    "f32[B, " + sequence + ", h=4@tp]",
                                    "f32[B, " + sequence + ", h=4@tp]"};
  if (state.empty()) {
    return infer("gated_delta_rule %0, %1, %2, %3, %4 {chunk=64}", types);
  }
  types.push_back(state);
  return infer("gated_delta_rule %0, %1, %2, %3, %4, %5 {chunk=64}", types);
}

TEST(Blocks, a_recurrence_without_state_needs_the_sequence_whole) {
  EXPECT_EQ(recur("S"), "f32[B, S, v=4@tp, 6]");
  EXPECT_TRUE(says(recur("S@cp"), {"'gated_delta_rule'", "factor 's' ('S')",
                                   "'cp'", "cp.scan"}));
}

TEST(Blocks, an_incoming_state_lets_the_sequence_be_cut) {
  EXPECT_EQ(recur("S@cp", "f32[B, n=2@cp, v=4@tp, 4, 6]"),
            "f32[B, S@cp, v=4@tp, 6]");
  EXPECT_TRUE(says(recur("S@cp", "f32[B, n=4@cp, v=4@tp, 4, 6]"),
                   {"4 but 2 is asked for"}));
  EXPECT_TRUE(says(recur("S@cp", "f32[B, n=2, v=4@tp, 4, 6]{repl: cp}"),
                   {"whole in operand 5"}));
}

TEST(Blocks, a_summary_gives_one_map_for_each_shard) {
  EXPECT_EQ(infer("gdr.summary %0, %1, %2, %3 {chunk=64}",
                  {"f32[B, S@cp, k=2@tp, 4]", "f32[B, S@cp, v=4@tp, 6]",
                   "f32[B, S@cp, h=4@tp]", "f32[B, S@cp, h=4@tp]"}),
            "f32[B, n=2@cp, v=4@tp, 4, 4], f32[B, n=2@cp, v=4@tp, 4, 6]");
}

//===----------------------------------------------------------------------===//
// ones
//===----------------------------------------------------------------------===//

/// The error of `ones` with a result of `type`; empty if there is none.
static std::string onesOf(const std::string &type) {
  DiagnosticLog log;
  std::string text = std::string("model \"m\" stage(step) {\n") + meshLines +
                     "  func @step() {\n    %x = ones : " + type +
                     "\n    return\n  }\n}\n";
  auto module = parseModule(text, "t.hp", log.diag);
  EXPECT_TRUE(module) << log.text();
  auto types = inferTypes(*module, module->functions[0]->body->ops.front());
  return types ? "" : "error: " + llvm::toString(types.takeError());
}

TEST(Ones, a_constant_is_never_partial) {
  EXPECT_EQ(onesOf("f32[]{repl: dp, cp}"), "");
  EXPECT_TRUE(says(onesOf("f32[]{partial: tp}"),
                   {"'ones'", "sum over 'tp'", "loss is replicated"}));
}

TEST(Ones, it_is_a_floating_scalar) {
  EXPECT_TRUE(says(onesOf("f32[8]"), {"floating scalar"}));
  EXPECT_TRUE(says(onesOf("i64[]"), {"floating scalar"}));
}
