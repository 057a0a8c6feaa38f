//===- VerifierTest.cpp - Form, storage, blocks, one-rank steps -----------===//
//
// Two modules that verify, one of templates and one step; each test breaks one
// thing in one of them. Faults of sharding are in VerifierAxesTest.cpp and
// VerifierWorkedTest.cpp.
//
//===----------------------------------------------------------------------===//

#include "VerifierTesting.h"

using namespace hp;
using namespace hp::verifiertest;
using llvm::StringRef;

static constexpr StringRef templates = R"hp(model "m" stage(spec) {
  mesh <>
  dim B = 2
  dim S = 4
  tied @head = @embed
  param @embed : f32[V=8, 6]
  stack @layers = [(@mlp x2)]
  param @norm : f32[6]
  block @mlp(%x: f32[B, S, 6], %pos: i64[S]) {
    param @up : f32[12, 6]
    param @down : f32[6, 12]
    %u = linear %x, @up : f32[B, S, 12]
    %s = sigmoid %u : f32[B, S, 12]
    %d = linear %s, @down : f32[B, S, 6]
    %y = add %x, %d : f32[B, S, 6]
    return %y
  }
  func @forward(%tok: i64[B, S], %pos: i64[S]) {
    %h = embedding %tok, @embed : f32[B, S, 6]
    %y = stack @layers(%h, %pos) : f32[B, S, 6]
    %n = rms_norm %y, @norm {eps=1e-06} : f32[B, S, 6]
    %lg = linear %n, @embed : f32[B, S, V=8]
    return %lg
  }
  func @train(%tok: i64[B, S], %lab: i64[B, S], %pos: i64[S]) {
    %lg = call @forward(%tok, %pos) : f32[B, S, V=8]
    %nll = cross_entropy %lg, %lab : f32[]
    return %nll
  }
}
)hp";

static constexpr StringRef step = R"hp(model "m" stage(step) {
  mesh <>
  dim B = 2
  dim S = 4
  param @w : f32[V=8, 6]
  param @n : f32[6]
  func @step(%tok: i64[B, S], %lab: i64[B, S], %lr: f64[], %t: i64[]) {
    %e = embedding %tok, @w : f32[B, S, 6]
    %h = rms_norm %e, @n {eps=1e-06} : f32[B, S, 6]
    %r = add %e, %h : f32[B, S, 6]
    free %h
    %lg = linear %r, @w : f32[B, S, V=8]
    %nll = cross_entropy %lg, %lab : f32[]
    %cnt = count_valid %lab : i64[]
    %loss = div %nll, %cnt : f32[]
    free %nll
    %d.loss = ones : f32[]
    %d.nll = div.bwd type(%nll), %cnt, %d.loss : f32[]
    %d.lg = cross_entropy.bwd %lg, %lab, %d.nll : f32[B, S, V=8]
    free %lg
    %d.r, %g.w = linear.bwd %r, @w, %d.lg : f32[B, S, 6], f32[V=8, 6]
    free %r
    %d.e, %d.h = add.bwd type(%e), type(%h), %d.r : f32[B, S, 6], f32[B, S, 6]
    %d.e.2, %g.n = rms_norm.bwd %e, @n, %d.h {eps=1e-06} acc[%d.e, _] : f32[B, S, 6], f32[6]
    free %d.r
    %g.w.2 = embedding.bwd %tok, type(@w), %d.e.2 acc[%g.w] : f32[V=8, 6]
    %q.w = sum_squares %g.w.2 : f64[]
    %q.n = sum_squares %g.n : f64[]
    %qs = sum %q.w, %q.n : f64[]
    %gnorm = grad_norm %qs : f64[]
    %coef = clip_coef %gnorm {max_norm=1.0} : f64[]
    %ok = finite %gnorm, %cnt : bool[]
    adamw @w, %g.w.2, %coef, %lr, %t, %ok {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1}
    adamw @n, %g.n, %coef, %lr, %t, %ok {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.0}
    return %loss, %gnorm
  }
}
)hp";

TEST(Verifier, templates_and_step_verify) {
  EXPECT_EQ(verdict(templates, "\"m\"", "\"m\""), "ok");
  EXPECT_EQ(verdict(step, "\"m\"", "\"m\""), "ok");
}

//===----------------------------------------------------------------------===//
// Symbols and uses
//===----------------------------------------------------------------------===//

TEST(Form, every_parameter_is_used) {
  EXPECT_TRUE(says(verdict(templates, "  param @norm : f32[6]\n",
                           "  param @norm : f32[6]\n  param @x : f32[6]\n"),
                   "parameter '@x' is never used"));
  EXPECT_TRUE(says(verdict(templates, "    param @up",
                           "    param @bias : f32[6]\n    param @up"),
                   "parameter '@bias' is never used"));
}

TEST(Form, every_block_and_stack_is_run) {
  EXPECT_TRUE(says(verdict(templates, "  func @forward",
                           "  block @idle(%x: f32[B]) {\n    return %x\n  }\n"
                           "  func @forward"),
                   "block '@idle' is in no stack"));
  EXPECT_TRUE(says(verdict(templates, "stack @layers(%h, %pos)", "sigmoid %h"),
                   "stack '@layers' is never run"));
}

TEST(Form, both_uses_of_a_tie_are_required) {
  EXPECT_TRUE(
      says(verdict(templates, "tied @head = @embed", "tied @head = @norm"),
           "no 'embedding' reads it; both uses are required"));
}

TEST(Form, a_tied_name_is_no_parameter) {
  // The parser refuses the text; a pass could still make it.
  DiagnosticLog log;
  auto module = parseModule(templates, "t.hp", log.diag);
  ASSERT_TRUE(module);
  module->ties[0].alias = "norm";
  EXPECT_FALSE(verify(*module, log.diag));
  EXPECT_TRUE(says(log.text(), "parameter '@norm' is tied and must not be a "
                               "parameter of its own"));
}

TEST(Form, stages_have_their_operations) {
  EXPECT_TRUE(says(verdict(templates, "    return %nll",
                           "    %o = ones : f32[]\n    return %nll"),
                   "'ones' at stage 'spec'; it is legal at stage 'step' only"));
  EXPECT_TRUE(says(verdict(templates, "    return %nll",
                           "    %o = sigmoid.bwd %nll, %nll : f32[]\n"
                           "    return %nll"),
                   "'sigmoid.bwd' at stage 'spec'"));
}

TEST(Form, a_step_is_flat) {
  EXPECT_TRUE(says(verdict(templates, "stage(spec)", "stage(step)"),
                   "one function, '@step'"));
  EXPECT_TRUE(says(verdict(step, "@step", "@other"), "one function, '@step'"));
}

TEST(Form, a_function_calls_only_what_stands_above) {
  EXPECT_TRUE(says(verdict(templates, "call @forward(%tok, %pos)",
                           "call @train(%tok, %tok, %pos)"),
                   "a function calls only what stands above it"));
}

TEST(Form, arguments_of_calls_and_layers_fit) {
  EXPECT_TRUE(says(
      verdict(templates, "call @forward(%tok, %pos)", "call @forward(%tok)"),
      "'@forward' takes 2 arguments, not 1"));
  EXPECT_TRUE(says(
      verdict(templates, "stack @layers(%h, %pos)", "stack @layers(%h, %tok)"),
      "block '@mlp' takes i64[S]"));
}

TEST(Form, a_layer_hands_on_the_type_it_takes) {
  EXPECT_TRUE(says(verdict(templates, "return %y", "return %u"),
                   "layers in a stack hand on one type"));
  EXPECT_TRUE(says(verdict(templates, "return %y", "return %y, %y"),
                   "returns 2 values"));
}

TEST(Form, channels_that_rope_turns_are_there) {
  auto withHeads = [&](const std::string &rotary) {
    std::string text = templates.str();
    size_t at = text.find("    param @up");
    text.insert(at, "    param @heads : f32[(h=3*4), 6]\n");
    return verdict(text, "    %d = linear",
                   "    %w = linear %x, @heads : f32[B, S, (h=3*4)]\n"
                   "    %q = unflatten %w : f32[B, S, h=3, 4]\n"
                   "    %r = rope %q, %pos {rotary=" +
                       rotary +
                       ", theta=10000.0} : f32[B, S, h=3, 4]\n"
                       "    %d = linear");
  };
  EXPECT_EQ(withHeads("4"), "ok");
  EXPECT_TRUE(says(withHeads("3"), "it must be even"));
  EXPECT_TRUE(says(withHeads("6"), "at most the 4 channels of a head"));
}

//===----------------------------------------------------------------------===//
// Storage
//===----------------------------------------------------------------------===//

TEST(Storage, what_was_freed_is_not_read) {
  EXPECT_TRUE(says(
      verdict(step, "    %d.loss = ones", "    free %r\n    %d.loss = ones"),
      "'linear.bwd' reads '%r' after its storage was freed"));
}

TEST(Storage, the_type_of_what_was_freed_may_be_read) {
  // %nll and %h are freed before their adjoints name their types.
  EXPECT_EQ(verdict(step, "type(%nll)", "type(%nll)"), "ok");
  EXPECT_TRUE(says(verdict(step, "type(%nll)", "%nll"),
                   "'div.bwd' reads '%nll' after its storage was freed"));
}

TEST(Storage, a_storage_is_freed_once) {
  EXPECT_TRUE(says(verdict(step, "    free %r\n", "    free %r, %h\n"),
                   "'%h' is freed twice"));
}

TEST(Storage, views_go_with_their_root) {
  // The gradients of add share the storage of its cotangent.
  EXPECT_TRUE(says(verdict(step, "    %d.e.2, %g.n = rms_norm.bwd",
                           "    free %d.r\n    %d.e.2, %g.n = rms_norm.bwd"),
                   "reads '%d.h' after its storage, which it shares with "
                   "'%d.r', was freed"));
  EXPECT_TRUE(says(verdict(step, "free %d.r", "free %d.e"),
                   "shares the storage of '%d.r'; free that one"));
}

TEST(Storage, arguments_and_parameters_are_not_freed) {
  EXPECT_TRUE(
      says(verdict(step, "free %nll", "free %tok"), "the step does not own"));
  EXPECT_TRUE(says(verdict(step, "free %nll", "free @w"), "must be a value"));
}

//===----------------------------------------------------------------------===//
// One rank: no reduction, the same proofs
//===----------------------------------------------------------------------===//

TEST(OneRank, norm_and_update_see_the_final_gradient) {
  EXPECT_TRUE(says(verdict(step, "sum_squares %g.w.2", "sum_squares %g.w"),
                   "'@w' is updated by '%g.w.2', but the norm counts '%g.w'"));
}

TEST(OneRank, gradients_of_one_value_may_be_added_where_it_is_read_twice) {
  std::string text = step.str();
  auto put = [&](const std::string &from, const std::string &to) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  put("%r = add %e, %h", "%r = add %h, %h");
  put("    free %h\n", "");
  put("%d.e, %d.h = add.bwd type(%e), type(%h), %d.r",
      "%d.h1, %d.h2 = add.bwd type(%h), type(%h), %d.r");
  put("    %d.e.2, %g.n = rms_norm.bwd %e, @n, %d.h {eps=1e-06} acc[%d.e, _]",
      "    %d.h = add %d.h1, %d.h2 : f32[B, S, 6]\n"
      "    %d.e.2, %g.n = rms_norm.bwd %e, @n, %d.h {eps=1e-06}");
  EXPECT_EQ(verdict(text, "\"m\"", "\"m\""), "ok");
  EXPECT_TRUE(says(verdict(text, "add %d.h1, %d.h2", "add %d.h1, %e"),
                   "'%e' is no gradient"));
}

TEST(OneRank, a_gradient_enters_no_forward_operation) {
  EXPECT_TRUE(
      says(verdict(step, "    free %r\n",
                   "    free %r\n    %z = sigmoid %d.r : f32[B, S, 6]\n"),
           "gradient '%d.r' enters 'sigmoid'"));
}

TEST(OneRank, there_is_one_loss) {
  EXPECT_TRUE(says(
      verdict(step, "    %d.nll =", "    %d.two = ones : f32[]\n    %d.nll ="),
      "a second 'ones'"));
}

TEST(OneRank, parameters_are_read_before_their_update) {
  EXPECT_TRUE(says(verdict(step, "    return %loss",
                           "    %z = linear %e, @w : f32[B, S, V=8]\n"
                           "    return %loss"),
                   "'linear' reads '@w' after its update"));
}

TEST(OneRank, a_parameter_is_updated_once) {
  EXPECT_TRUE(says(verdict(step, "adamw @n, %g.n", "adamw @w, %g.n"),
                   "'@n' is never updated"));
}

TEST(OneRank, a_recomputed_operation_stands_for_the_first) {
  // Drop %r after its forward use and compute it again for the adjoint.
  std::string text = step.str();
  auto put = [&](const std::string &from, const std::string &to) {
    size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  };
  put("    %d.r, %g.w = linear.bwd %r,",
      "    %r.2 = add %e, %h : f32[B, S, 6]\n"
      "    %d.r, %g.w = linear.bwd %r.2,");
  put("    free %h\n", "");
  EXPECT_EQ(verdict(text, "\"m\"", "\"m\""), "ok");
}

TEST(OneRank, a_step_without_gradients_needs_no_updates) {
  std::string text = step.str();
  size_t from = text.find("    %d.loss = ones"), to = text.find("    return");
  text.erase(from, to - from);
  EXPECT_EQ(verdict(text, "return %loss, %gnorm", "return %loss"), "ok");
}

TEST(OneRank, numbers_of_the_update_are_in_range) {
  // One fault, told for each of the two updates and for nothing else.
  auto faults = [&](StringRef from, StringRef to) {
    std::string text = verdict(step, from, to);
    return StringRef(text).count("error: ") == 2 ? text : "not two: " + text;
  };
  EXPECT_TRUE(says(faults("beta1=0.9,", "beta1=1.0,"),
                   "'beta1' of 'adamw' must be a float from 0 to below 1, not "
                   "1.0"));
  EXPECT_TRUE(says(faults("beta2=0.95", "beta2=-0.5"), "'beta2' of 'adamw'"));
  EXPECT_TRUE(says(faults("beta2=0.95", "beta2=nan"), "'beta2' of 'adamw'"));
  EXPECT_TRUE(says(faults("eps=1e-08", "eps=-1e-08"),
                   "'eps' of 'adamw' must be a float from 0, not -1e-08"));
  EXPECT_TRUE(
      says(verdict(step, "weight_decay=0.1", "weight_decay=inf"),
           "'weight_decay' of 'adamw' must be a float from 0, not inf"));
  EXPECT_TRUE(says(verdict(step, "max_norm=1.0", "max_norm=0.0"),
                   "'max_norm' of 'clip_coef' must be a float above 0"));
  EXPECT_EQ(verdict(step, "beta1=0.9,", "beta1=0.0,"), "ok");
  EXPECT_EQ(verdict(step, "eps=1e-08", "eps=0.0"), "ok");
  EXPECT_EQ(verdict(step, "max_norm=1.0", "max_norm=inf"), "ok");
}

TEST(OneRank, a_fault_of_an_operation_is_not_told_again_of_its_adjoint) {
  // The value printed is another one than it makes.
  std::string text = verdict(step,
                             "%h = rms_norm %e, @n {eps=1e-06} : f32[B, "
                             "S, 6]",
                             "%h = rms_norm %e, @n {eps=1e-06} : f32[B, S, 3]");
  EXPECT_TRUE(says(text, "'rms_norm': result '%h' is f32[B, S, 6], not"));
  EXPECT_EQ(text.find("rms_norm.bwd"), std::string::npos) << text;
  // It has no type at all.
  text = verdict(step, "%nll = cross_entropy %lg, %lab",
                 "%nll = cross_entropy %lg, %lr");
  EXPECT_TRUE(says(text, "'cross_entropy': "));
  EXPECT_EQ(StringRef(text).count("error: "), 1u) << text;
}

//===----------------------------------------------------------------------===//
// Modules that no text gives
//===----------------------------------------------------------------------===//

namespace {
class HandMade : public testing::Test {
protected:
  void SetUp() override {
    module = parseModule(step, "t.hp", log.diag);
    ASSERT_TRUE(module);
  }
  Block &body() { return *module->functions[0]->body; }
  Operation &find(OpKind kind, bool backward = false) {
    for (Operation &op : body().ops) {
      if (op.kind == kind && op.backward == backward) {
        return op;
      }
    }
    ADD_FAILURE() << "no such operation";
    return body().ops.front();
  }
  /// What verification says now; empty if it holds.
  std::string verdict() {
    bool holds = verify(*module, log.diag);
    EXPECT_EQ(holds, log.lines.empty());
    return log.text();
  }

  DiagnosticLog log;
  std::unique_ptr<Module> module;
};
} // namespace

TEST_F(HandMade, a_value_is_defined_before_its_use) {
  Operation &norm = find(OpKind::RmsNorm);
  body().ops.remove(norm.getIterator());
  body().ops.push_front(&norm);
  EXPECT_TRUE(says(verdict(), "'rms_norm' reads '%e', which is not defined "
                              "before it in function '@step'"));
}

TEST_F(HandMade, a_name_is_given_once) {
  find(OpKind::Add).results[0]->name = find(OpKind::RmsNorm).results[0]->name;
  EXPECT_TRUE(says(verdict(), "'%h' is defined twice in function '@step'"));
}

TEST_F(HandMade, an_operand_is_there) {
  find(OpKind::Linear).operands[0] = Operand();
  EXPECT_TRUE(says(verdict(), "operand 0 is '_'"));
}

TEST_F(HandMade, the_value_is_read_and_not_its_type) {
  find(OpKind::Linear).operands[0].typeOnly = true;
  EXPECT_TRUE(says(verdict(), "is type(..), but its value is read"));
}

TEST_F(HandMade, a_result_has_a_type_and_belongs_where_it_stands) {
  find(OpKind::Add).results[0]->type = Type();
  EXPECT_TRUE(says(verdict(), "'%r' has no type"));
  find(OpKind::RmsNorm).results[0]->owner = nullptr;
  EXPECT_TRUE(says(verdict(), "'%h' does not belong where it stands"));
}

TEST_F(HandMade, an_illegal_type_is_reported_once_and_not_computed_with) {
  TypeData data = *find(OpKind::Embedding).results[0]->type;
  data.dims[0].segments[0].factors = {INT64_MAX, INT64_MAX};
  find(OpKind::Embedding).results[0]->type = module->type(data);
  std::string text = verdict();
  EXPECT_TRUE(says(text, "the type of '%e' is not legal: the tensor has more "
                         "than 2^62 elements"));
}

TEST_F(HandMade, attributes_are_those_of_the_table) {
  Operation &norm = find(OpKind::RmsNorm);
  norm.attrs.erase("eps");
  norm.attrs.set(module->intern("speed"), {int64_t(3)});
  std::string text = verdict();
  EXPECT_TRUE(says(text, "'rms_norm' lacks 'eps'"));
  EXPECT_TRUE(says(text, "'rms_norm' has no attribute 'speed'"));
}

TEST_F(HandMade, attributes_are_of_their_kind_and_in_range) {
  find(OpKind::RmsNorm).attrs.set(module->intern("eps"), {-1.0});
  EXPECT_TRUE(says(verdict(), "'eps' of 'rms_norm' must be a float from 0"));
}

TEST_F(HandMade, axes_stand_where_they_belong) {
  find(OpKind::Sum).axes = {0};
  EXPECT_TRUE(says(verdict(), "'sum' takes no axes"));
}

TEST_F(HandMade, a_body_ends_in_return) {
  Operation *end = body().terminator();
  body().ops.remove(end->getIterator());
  EXPECT_TRUE(says(verdict(), "function '@step' does not end in 'return'"));
  body().ops.push_front(end);
  EXPECT_TRUE(says(verdict(), "stands after 'return'"));
}

TEST_F(HandMade, a_parameter_of_another_module_is_a_stranger) {
  Module other;
  TypeData data;
  data.dims.push_back(Dim("", {6}));
  find(OpKind::RmsNorm).operands[1].param =
      other.makeParam("n", other.type(data), "zeros");
  EXPECT_TRUE(says(verdict(), "'@n' is no parameter of function '@step'"));
}

TEST_F(HandMade, an_adjoint_without_operands_is_refused) {
  for (Operation &op : body().ops) {
    if (op.backward) {
      op.operands.clear();
      op.acc.clear();
    }
  }
  EXPECT_NE(verdict(), "");
}

TEST_F(HandMade, all_operands_shuffled_are_refused_and_nothing_breaks) {
  // Each operation gets the operands of the one before.
  llvm::SmallVector<Operand, 4> previous;
  for (Operation &op : body().ops) {
    std::swap(previous, op.operands);
  }
  EXPECT_NE(verdict(), "");
}

TEST_F(HandMade, faults_beyond_fifty_are_counted_and_not_shown) {
  for (int i = 0; i < 80; ++i) {
    Operation *op = module->makeOp(OpKind::Sigmoid, module->loc);
    op->parent = &body();
    body().ops.push_front(op);
  }
  std::string text = verdict();
  size_t errors = 0;
  for (const std::string &line : log.lines) {
    errors += line.find(": error: ") != std::string::npos;
  }
  EXPECT_EQ(errors, 51u);
  EXPECT_TRUE(says(text, "30 more errors are not shown"));
}

TEST_F(HandMade, stacks_without_end_are_refused) {
  Stack *stack = module->makeStack("deep", module->loc);
  stack->groups.push_back({{{"no", INT64_MAX}}, INT64_MAX});
  module->addStack(stack);
  EXPECT_TRUE(says(verdict(), "stack '@deep' has more than 1048576 layers"));
}
