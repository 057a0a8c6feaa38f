//===- TextTesting.h - Modules as text, for tests of the text form *- C++
//-*-===//
//
// Two modules that between them use every construct of the grammar, spelled as
// the printer spells them, and what tests do with text over and over.
//
//===----------------------------------------------------------------------===//

#ifndef HP_UNITTESTS_IR_TEXTTESTING_H
#define HP_UNITTESTS_IR_TEXTTESTING_H

#include "../Spec/DiagnosticLog.h"
#include "hp/IR/Text.h"

namespace hp::texttest {

/// A model at stage spec: config, stack, block, calls, ties.
inline constexpr llvm::StringLiteral templates =
    R"hp(model "a \"b\" \\ \01\n" flavor("tiny") stage(spec) {
  config {hidden=32, eps=1e-06, theta=1e+07, tied, gate=false, name="q\t", kind=full_attention, empty=[], types=[linear, full, [1, -2, 2.5]]}
  training {dtype=float32, max_norm=1.0}
  optimizer {name=adamw, beta1=0.9, lr=inf}
  mesh <>
  dim B = 8
  dim S = 16
  tied @lm_head.weight = @embed_tokens.weight
  param @embed_tokens.weight : f32[V=64, 32] {init=embedding}
  stack @layers = [(@linear x3, @full) x2, (@full) x1]
  param @norm.weight : f32[32] {init=zeros}
  block @linear(%x: f32[B, S, 32], %pos: i64[S]) {
    param @norm.weight : f32[32] {init=zeros}
    param @proj.weight : f32[(q=4*4 | k=4*4 | v=8*6), 32] {init=linear}
    %n = rms_norm %x, @norm.weight {eps=1e-06, unit_offset} : f32[B, S, 32]
    %qkv = linear %n, @proj.weight : f32[B, S, (q=4*4 | k=4*4 | v=8*6)]
    %q, _, %v = split %qkv : f32[B, S, (q=4*4)], f32[B, S, (v=8*6)]
    %e = embedding %pos, @embed_tokens.weight : f32[B, S, 32]
    return %e
  }
  block @full(%x: f32[B, S, 32], %pos: i64[S]) {
    return %x
  }
  func @forward(%tok: i64[B, S], %pos: i64[S]) {
    %h = embedding %tok, @embed_tokens.weight : f32[B, S, 32]
    %y = stack @layers(%h, %pos) : f32[B, S, 32]
    %lg = linear %y, @embed_tokens.weight : f32[B, S, V=64]
    return %lg
  }
  func @train(%tok: i64[B, S], %lab: i64[B, S], %pos: i64[S]) {
    %lg = call @forward(%tok, %pos) : f32[B, S, V=64]
    %nll = cross_entropy %lg, %lab : f32[]
    return %nll
  }
}
)hp";

/// A piece of a step on a mesh: collectives, bundles, backward, storage.
inline constexpr llvm::StringLiteral step =
    R"hp(model "m" stage(step) {
  mesh <dp_replicate=2, dp_shard=2, cp=2, tp=2>
  axes dp = (dp_replicate, dp_shard)
  dim B = 8
  dim S = 16
  param @layers.0.w : f32[64@tp, 32]{repl: dp, cp} store=f32@(dp_shard,cp)
  param @layers.0.norm : f32[6]{repl: dp, cp, tp} store=f64@(dp_shard,cp)~
  param @bias : bf16[32]{repl: dp_shard; partial: cp} store=f32@dp_shard
  func @step(%tok: i64[B@dp, S@cp], %x: f32[B@dp, S@(cp,tp), 32], %pos: i64[S]{repl: tp}) {
    %L0 = fsdp.unshard @layers.0.*
    %n = rms_norm %x, %L0@norm {eps=1e-06} : f32[B@dp, S@(cp,tp), 32]
    %g = all_gather %n {tp: S} : f32[B@dp, S@cp, 32]{repl: tp}
    %i = all_gather %n {(cp,tp): S, to=invariant} : f32[B@dp, S, 32]
    %q = all_to_all %g {cp: S->h} : f32[B@dp, S, h=32@cp]{repl: tp}
    %r = rope %q, %pos {rotary=4, theta=10000.0} : f32[B@dp, S, (h=4*8)@cp]
    %one = ones : f32[]{repl: dp, cp}
    fsdp.reshard %L0
    %L0 = fsdp.unshard @layers.0.*
    %d.x, _ = linear.bwd %g, %L0@w, %q acc[_, _] : f32[B@dp, S@cp, 32]{partial: tp}
    %d.y, %gw = linear.bwd type(%g), type(@layers.0.w), %d.x acc[%d.x, _] : f32[B@dp, S@cp, 32]{partial: tp}, f32[64@tp, 32]{partial: dp, cp}
    fsdp.reshard %L0
    %s = reduce_grad %gw {param=layers.0.w, scatter=(dp_shard,cp), sum=(dp_replicate)} : f32[64@tp, 32] store=f32@(dp_shard,cp)
    %sq = sum_squares %s : f64[]{partial: dp_shard, cp, tp}
    %all = all_reduce %sq {(dp_shard,cp,tp)} : f64[]
    %c = clip_coef %all {max_norm=0.25} : f64[]
    adamw @layers.0.w, %s, %c {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1}
    free %n, %g
    return %all, _
  }
}
)hp";

/// Reads `text` as t.hp; what it says is in `log`.
inline std::unique_ptr<Module> parse(llvm::StringRef text, DiagnosticLog &log) {
  return parseModule(text, "t.hp", log.diag);
}

/// Whether reading `text` ends well: with a module whose print is a fixpoint,
/// or with a located error. Says what is wrong otherwise.
inline std::string faultOf(llvm::StringRef text) {
  DiagnosticLog log;
  std::unique_ptr<Module> module = parse(text, log);
  if (!log.everythingLocated) {
    return "a diagnostic without a place";
  }
  if (!module) {
    return log.lines.empty() ? "null without an error" : "";
  }
  if (!log.lines.empty()) {
    return "a module in spite of: " + log.text();
  }
  PrintOptions everything;
  everything.debugInfo = everything.localShapes = true;
  for (PrintOptions options : {PrintOptions(), everything}) {
    std::string first = str(*module, options);
    DiagnosticLog again;
    std::unique_ptr<Module> reread = parse(first, again);
    if (!reread) {
      return "the printed module does not parse: " + again.text() + first;
    }
    std::string second = str(*reread, options);
    if (second != first) {
      return "no fixpoint:\n" + first + "then\n" + second;
    }
  }
  return "";
}

} // namespace hp::texttest

#endif // HP_UNITTESTS_IR_TEXTTESTING_H
