//===- VerifierWorkedTest.cpp - Faults planted in the worked steps --------===//
//
// Each worked step verifies; each of the faults below, planted in it, is
// refused. Where a fault changes a type, the lines after it are changed along,
// so that shapes and printed types still agree and only the proof can tell.
//
//===----------------------------------------------------------------------===//

#include "../Spec/DiagnosticLog.h"
#include "hp/IR/Text.h"
#include "hp/IR/Verifier.h"
#include "llvm/Support/MemoryBuffer.h"
#include <regex>

using namespace hp;

namespace {
/// One change of a step: a regular expression and what to put in its place.
struct Change {
  std::string pattern, replacement;
};

struct Fault {
  const char *name;
  const char *step; ///< of test/IR/worked
  std::vector<Change> changes;
  std::string error; ///< in the first error
};

std::string read(const std::string &step) {
  auto buffer = llvm::MemoryBuffer::getFile(HP_SOURCE_DIR "/test/IR/worked/" +
                                            step + ".hp");
  EXPECT_TRUE(buffer) << step;
  return buffer ? (*buffer)->getBuffer().str() : "";
}

void PrintTo(const Fault &fault, std::ostream *os) { *os << fault.name; }

class WorkedSteps : public testing::TestWithParam<const char *> {};
class PlantedFaults : public testing::TestWithParam<Fault> {};
} // namespace

TEST_P(WorkedSteps, verify_without_a_word) {
  DiagnosticLog log;
  auto module = parseModule(read(GetParam()), "t.hp", log.diag);
  ASSERT_TRUE(module) << log.text();
  EXPECT_TRUE(verify(*module, log.diag));
  EXPECT_EQ(log.text(), "");
}

INSTANTIATE_TEST_SUITE_P(All, WorkedSteps,
                         testing::Values("allgather", "alltoall",
                                         "alltoall_sp_off", "bias",
                                         "bias_sp_off", "kv_replicated",
                                         "kv_replicated_sp_off", "lp_off",
                                         "sp_off", "sp_off_lp_off", "sp_on"),
                         [](const auto &info) { return info.param; });

TEST_P(PlantedFaults, are_refused) {
  const Fault &fault = GetParam();
  std::string text = read(fault.step);
  for (const Change &change : fault.changes) {
    std::string changed = std::regex_replace(text, std::regex(change.pattern),
                                             change.replacement);
    ASSERT_NE(changed, text) << "nothing to change: " << change.pattern;
    text = changed;
  }
  DiagnosticLog log;
  auto module = parseModule(text, "t.hp", log.diag);
  ASSERT_TRUE(module) << log.text();
  EXPECT_FALSE(verify(*module, log.diag));
  EXPECT_TRUE(log.everythingLocated);
  EXPECT_NE(log.text().find(fault.error), std::string::npos)
      << "expected: " << fault.error << "\n"
      << log.text();
}

static const Fault faults[] = {
    //--- Gradients that get lost or count twice -------------------------------
    {"dropped_residual_gradient",
     "sp_on",
     {{" acc\\[%d\\.1\\.r, _\\]", ""}},
     "gradient '%d.1.r' of '%1.r' is never used"},
    {"dropped_running_gradient_of_a_fanned_out_value",
     "sp_off",
     {{" acc\\[%d\\.0\\.ng\\.2, _\\]", ""}},
     "'%d.0.ng.2' of '%0.ng' is never used"},
    {"tied_weight_without_the_gradient_of_the_head",
     "sp_on",
     {{" acc\\[%g\\.embed_tokens\\.weight\\]", ""}},
     "gradient '%g.embed_tokens.weight' of '@embed_tokens.weight' is never "
     "used"},
    {"gradient_used_twice",
     "sp_on",
     {{"%d\\.1\\.p = all_gather %d\\.1\\.att", "%d.1.p = all_gather %d.1.f"}},
     "gradient '%d.1.f' of '%1.f' is used again by 'all_gather'"},
    {"dropped_result_of_an_adjoint",
     "sp_on",
     {{"%d\\.1\\.o, %d\\.1\\.gate = sigmoid_mul\\.bwd(.*) : .*",
       "%d.1.o, _ = sigmoid_mul.bwd$1 : f64[B@dp, S@cp, h=4@tp, 8]"},
      {"%d\\.1\\.q0, %d\\.1\\.gate :", "%d.1.q0, _ :"}},
     "drops the gradient of '%1.gate'"},
    {"adjoint_written_twice",
     "sp_on",
     {{"( *)%d\\.0\\.b = sigmoid\\.bwd %0\\.b, %d\\.0\\.beta\\.2(.*)\n",
       "$1%d.0.b = sigmoid.bwd %0.b, %d.0.beta.2$2\n"
       "$1%d.0.bb = sigmoid.bwd %0.b, %d.0.beta.2 acc[%d.0.b]$2\n"},
      {"in_proj_b\\.weight, %d\\.0\\.b ", "in_proj_b.weight, %d.0.bb "}},
     "second adjoint of one operation"},
    {"cotangent_of_another_value",
     "sp_on",
     {{"silu_mul\\.bwd %1\\.g1, %1\\.u1, %d\\.1\\.s",
       "silu_mul.bwd %1.g1, %1.u1, %d.x"},
      {"(%d\\.1\\.)s(, %g\\.layers\\.1\\.mlp\\.down)", "$1swap$2"},
      {"%d\\.x", "%d.1.swap"},
      {"linear\\.bwd %1\\.s, ", "linear.bwd %0.s, "}},
     "no 'linear' above reads the operands of 'linear.bwd'"},
    {"swapped_gradients_of_one_type",
     "sp_on",
     {{"linear\\.bwd (%1\\.mg.*up_proj\\.weight), %d\\.1\\.u1",
       "linear.bwd $1, %d.1.g1"},
      {"linear\\.bwd (%1\\.mg.*gate_proj\\.weight), %d\\.1\\.g1",
       "linear.bwd $1, %d.1.u1"}},
     "cotangent '%d.1.g1' is the gradient of '%1.g1', not of the forward "
     "result '%1.u1'"},
    {"running_gradient_of_another_value",
     "sp_on",
     {{"acc\\[%d\\.1\\.r, _\\]", "acc[%d.1.f, _]"},
      {"all_gather %d\\.1\\.f ", "all_gather %d.1.r "}},
     "running gradient '%d.1.f' is one of '%1.f', but joins the gradient of "
     "'%1.r'"},
    {"adjoint_with_other_attributes",
     "sp_on",
     {{"(%d\\.1\\.q1 = rope\\.bwd.*rotary=)4", "$012"}},
     "differs from its forward operation in attributes or axes"},
    {"collective_on_the_gradient_of_what_came_from_none",
     "sp_off",
     {{"(    %d\\.1\\.r\\.2, .*acc\\[)%d\\.1\\.r, _\\](.*)\n",
       "    %x = shard %d.1.r {tp: S} : f64[B@dp, S@(cp,tp), 16]\n"
       "    %y = all_gather %x {tp: S, to=invariant} : f64[B@dp, S@cp, 16]\n"
       "$1%y, _]$2\n"}},
     "'shard' of gradient '%d.1.r', but '%1.r' does not come from a "
     "collective"},
    {"adjoint_of_another_collective",
     "lp_off",
     {{"(%lgf = )all_gather %lg \\{tp: V, to=invariant\\}(.*)\n",
       "$1all_gather %lg {tp: V, to=invariant}$2\n"
       "    %lgs = shard %lgf {tp: V} : f64[B@dp, S@cp, V=32@tp]\n"
       "    %lgt = all_gather %lgs {tp: V, to=invariant}$2\n"},
      {"cross_entropy %lgf", "cross_entropy %lgt"},
      {"%d\\.lgf = cross_entropy\\.bwd %lgf",
       "%d.lgf = cross_entropy.bwd %lgt"}},
     "cotangent '%d.lg' is the gradient of '%lgs'"},
    {"value_where_only_the_type_is_read",
     "sp_on",
     {{"add\\.bwd type\\(%1\\.r\\)", "add.bwd %1.r"}},
     "reads only the type of operand 0; write 'type(%1.r)'"},
    {"type_where_the_value_is_read",
     "sp_on",
     {{"sigmoid\\.bwd %0\\.b", "sigmoid.bwd type(%0.b)"}},
     "reads the value of operand 0; write '%0.b'"},

    //--- Sums over ranks ------------------------------------------------------
    {"missing_sum_for_q_norm",
     "sp_on",
     {{"(reduce_grad.*q_norm.*)sum=\\(dp_replicate,tp\\)",
       "$1sum=(dp_replicate)"}},
     "the gradient of '@layers.1.self_attn.q_norm.weight' must be summed over "
     "'(dp,cp,tp)'"},
    {"q_norm_declared_without_tp",
     "sp_on",
     {{"(param @layers\\.1\\.self_attn\\.q_norm\\.weight : "
       "f64\\[8\\]\\{repl: dp, cp), tp",
       "$1"}},
     "'rms_norm': on axis 'tp' invariant operand 1 meets operand 0"},
    {"double_reduction",
     "sp_on",
     {{"(reduce_grad.*layers\\.0\\.mlp\\.up_proj.*)sum=\\(dp_replicate\\)",
       "$1sum=(dp_replicate,cp)"}},
     "the gradient of '@layers.0.mlp.up_proj.weight' is reduced twice over "
     "'cp'"},
    {"parameter_never_reduced",
     "sp_on",
     {{" *%s\\.norm\\.weight = reduce_grad.*\n", ""},
      {"sum_squares %s\\.norm\\.weight", "sum_squares %g.norm.weight"},
      {"adamw @norm\\.weight, %s\\.norm", "adamw @norm.weight, %g.norm"}},
     "is still to be reduced over"},
    {"value_reduced_twice",
     "sp_off",
     {{"(%0\\.att) = all_reduce %0\\.p \\{tp\\}(.*)\n",
       "%0.att0 = all_reduce %0.p {tp}$2\n"
       "    $1 = all_reduce %0.att0 {tp}$2\n"}},
     "'all_reduce': the operand is invariant over 'tp', not partial"},
    {"residual_added_to_a_partial_value",
     "sp_off",
     {{"%0\\.r = add %h0, %0\\.att", "%0.r = add %h0, %0.p"}},
     "'add': on axis 'tp' operand 1 is partial and operand 0 is invariant"},
    {"bias_added_to_a_partial_value",
     "bias_sp_off",
     {{"(bias_add) %1\\.att0?,", "$1 %1.p,"}},
     "'bias_add': on axis 'tp' operand 0 is partial"},
    {"partial_value_into_a_norm",
     "sp_off",
     {{"%0\\.n = rms_norm %h0", "%0.n = rms_norm %e0"}},
     "'rms_norm': a partial value on axis 'tp'"},
    {"forgotten_copy_to",
     "sp_off",
     {{" *%0\\.ng = copy_to.*\n", ""}, {"%0\\.ng\\b", "%0.n"}},
     "invariant operand 0 meets operand 1, cut along factor 'n'"},
    {"forgotten_all_gather",
     "sp_on",
     {{" *%0\\.ng = all_gather.*\n", ""}, {"%0\\.ng\\b", "%0.n"}},
     "'linear': on axis 'tp' operand 0 is cut along dim 1 ('S')"},
    {"logits_gathered_as_replicated",
     "lp_off",
     {{"(%lgf = all_gather %lg \\{tp: V), to=invariant\\}(.*)\n",
       "$1}$2{repl: tp}\n"},
      {"(%nll = cross_entropy.* : f64\\[\\])\\{", "$1{repl: tp; "},
      {"(%loss = div.* : f64\\[\\])\\{", "$1{repl: tp; "},
      {"(%d\\.loss = ones : f64\\[\\]\\{repl: dp, cp)", "$1; partial: tp"},
      {"(%d\\.nll = div\\.bwd.* : f64\\[\\]\\{repl: dp, cp)",
       "$1; partial: tp"}},
     "'ones': a constant is not a term of a sum over 'tp': the loss is "
     "replicated there"},
    {"gradient_of_the_loss_replicated_where_it_is_invariant",
     "sp_on",
     {{"(%d\\.loss = ones : f64\\[\\]\\{repl: dp, cp)\\}", "$1, tp}"}},
     "'div.bwd': cotangent 0"},
    {"count_of_targets_not_summed",
     "sp_on",
     {{"div %nll, %n ", "div %nll, %cnt "},
      {"div\\.bwd (.*), %n, ", "div.bwd $1, %cnt, "}},
     "'div': a partial value on axis 'dp_replicate' (operand 1)"},
    //--- Shards ---------------------------------------------------------------
    {"contiguous_cut_of_q_k_v",
     "sp_on",
     {{"(in_proj_qkv\\.weight : f64\\[)\\(q=4\\*4 \\| k=4\\*4 \\| "
       "v=8\\*6\\)@tp",
       "$0180@tp"},
      {"(%0\\.qkv = linear.*)\\(q=4\\*4 \\| k=4\\*4 \\| v=8\\*6\\)@tp",
       "$0180@tp"}},
     "the sizes of factor 'c' differ"},
    {"convolution_without_halo",
     "sp_on",
     {{"causal_conv1d %0\\.qkv, %0\\.halo,", "causal_conv1d %0.qkv,"}},
     "'causal_conv1d': factor 's' ('S') must be whole but operand 0 is cut "
     "over 'cp'"},
    {"recurrence_without_incoming_state",
     "sp_on",
     {{"(gated_delta_rule %0\\.q,.*%0\\.beta), %0\\.s0", "$1"}},
     "'gated_delta_rule': factor 's' ('S') must be whole"},
    {"keys_of_one_shard_only",
     "allgather",
     {{"sdpa %1\\.q, %1\\.kg, %1\\.vg", "sdpa %1.q, %1.k, %1.v"}},
     "'sdpa': "},
    {"positions_of_the_whole_sequence",
     "sp_on",
     {{"%pos: i64\\[S@cp\\]", "%pos: i64[S]"}},
     "'rope': factor 's' ('S') is cut over 'cp' in operand 0 and whole in "
     "operand 1"},
    {"kv_heads_invariant_over_the_ranks_that_share_them",
     "kv_replicated",
     {{"(%1\\.k = .*g=2@tpg, 8\\])\\{repl: tpr\\}", "$1"}},
     "'rope': result '%1.k' is"},

    //--- Norm and update ------------------------------------------------------
    {"norm_counts_replicas",
     "sp_on",
     {{"(%q\\.norm\\.weight = sum_squares.*\\{partial: dp_shard, cp)",
       "$1, tp"}},
     "'sum_squares': result '%q.norm.weight' is f64[]{partial: dp_shard, cp}"},
    {"norm_counts_a_parameter_twice",
     "sp_on",
     {{"(%qs\\.dp_shard\\.cp = sum )", "$1%q.norm.weight, "}},
     "'%q.norm.weight' is counted in the norm twice"},
    {"norm_leaves_out_a_parameter",
     "sp_on",
     {{" *%q\\.norm\\.weight = sum_squares.*\n", ""},
      {", %q\\.norm\\.weight", ""}},
     "the norm leaves out '@norm.weight'"},
    {"term_left_out_of_the_sum",
     "sp_on",
     {{", %q\\.norm\\.weight", ""}},
     "'%q.norm.weight' is not counted in the norm"},
    {"norm_of_local_squares",
     "sp_on",
     {{"grad_norm %qt\\.dp_shard\\.cp\\.tp,", "grad_norm %qs.dp_shard.cp.tp,"}},
     "'grad_norm': operand 0 must be f64[], the same on all ranks"},
    {"parameter_never_updated",
     "sp_on",
     {{" *adamw @norm\\.weight.*\n", ""}},
     "'@norm.weight' is never updated"},
    {"parameter_updated_by_anothers_gradient",
     "sp_on",
     {{"adamw @layers\\.0\\.input_layernorm\\.weight, "
       "%s\\.layers\\.0\\.input_layernorm",
       "adamw @layers.0.input_layernorm.weight, "
       "%s.layers.1.input_layernorm"}},
     "'@layers.0.input_layernorm.weight' is updated by "
     "'%s.layers.1.input_layernorm.weight', a gradient of "
     "'@layers.1.input_layernorm.weight'"},

    //--- Parameters and bundles -----------------------------------------------
    {"tie_without_the_head",
     "sp_on",
     {{"(  param @embed_tokens)", "  tied @lm_head.weight = @norm.weight\n$1"}},
     "'@lm_head.weight' is tied to '@norm.weight', but no 'embedding' reads "
     "it; both uses are required"},
    {"read_after_reshard",
     "sp_on",
     {{"(%1\\.y = add .*\n) *fsdp\\.reshard %L1\n", "$1"},
      {"(    %1\\.m = rms_norm)", "    fsdp.reshard %L1\n$1"}},
     "after its bundle '%L1' was resharded"},
    {"stored_parameter_read_in_place",
     "sp_on",
     {{"rms_norm %1\\.y, %final@(norm\\.)?weight \\{",
       "rms_norm %1.y, @norm.weight {"}},
     "is stored in pieces; read it from a bundle"},
    {"bundle_never_given_back",
     "sp_on",
     {{" *fsdp\\.reshard %final\n", ""}},
     "bundle '%final' is never given back"},
};

INSTANTIATE_TEST_SUITE_P(All, PlantedFaults, testing::ValuesIn(faults),
                         [](const auto &info) { return info.param.name; });
