//===- TextErrorTest.cpp - What is refused, where, in which words
//----------===//

#include "TextTesting.h"

using namespace hp;
using namespace hp::texttest;
using llvm::StringRef;

namespace {
struct Refused {
  const char *text;
  const char *messages; ///< one a line, without file name and "error: "
};
} // namespace

/// What reading `text` says; "accepted" if nothing.
static std::string messagesOf(StringRef text) {
  DiagnosticLog log;
  bool accepted = parse(text, log) != nullptr;
  EXPECT_EQ(accepted, log.lines.empty());
  std::string all;
  for (StringRef line : log.lines) {
    line.consume_front("t.hp:");
    auto [place, message] = line.split(": ");
    message.consume_front("error: ");
    all += (place + ": " + message + "\n").str();
  }
  return accepted ? "accepted" : all;
}

/// A step with `line` as its line 9, from column 5.
static std::string withLine(StringRef line) {
  return ("model \"m\" stage(step) {\n  mesh <dp=2, tp=2>\n  dim B = 8\n"
          "  dim S = 16\n  tied @tied = @w\n  param @w : f32[32, 32]\n"
          "  param @layers.0.w : f32[32, 32]\n"
          "  func @f(%x: f32[B, S, 32], %t: i64[B, S]) {\n    " +
          line + "\n    return %x\n  }\n}\n")
      .str();
}

static const Refused refusedLines[] = {
    {"%y = ad %x, %x : f32[8]", "9:10: unknown operation 'ad'\n"
                                "9:10: note: did you mean 'add'?\n"},
    {"%y = linear %x, @v : f32[8]", "9:21: unknown parameter '@v'\n"
                                    "9:21: note: did you mean '@w'?\n"},
    {"%y = linear %x, @layers.0.v : f32[8]",
     "9:21: unknown parameter '@layers.0.v'\n"
     "9:21: note: did you mean '@layers.0.w'?\n"},
    {"%y = linear %x, @tied : f32[8]", "9:21: '@tied' is tied; write '@w'\n"
                                       "5:3: note: tied here\n"},
    {"%y = linear %xx, @w : f32[8]",
     "9:17: '%xx' is not defined before this line\n"
     "8:11: note: did you mean '%x', defined here?\n"},
    {"%y = linear %zzzzz, @w : f32[8]",
     "9:17: '%zzzzz' is not defined before this line\n"},
    {"%x = linear %x, @w : f32[8]", "9:5: redefinition of value '%x'\n"
                                    "8:11: note: first defined here\n"},
    {"%y, %y = unpack %x : f32[8], f32[8]", "9:9: redefinition of value '%y'\n"
                                            "9:5: note: first defined here\n"},
    {"%y = linear %x : f32[8]", "9:5: 'linear' has 2 operands, not 1\n"},
    {"%y = linear %x, @w", "9:23: expected ':' and the types of the results\n"},
    {"%y = linear %x, @w :", "9:25: expected a type, such as f32[B, S, 256]\n"},
    {"%y = linear %x, @w : f32[8], f32[8]", "9:24: 2 types for 1 result\n"},
    {"%y, %z = linear %x, @w : f32[8], f32[8]",
     "9:5: 'linear' has 1 result, not 2\n"},
    {"%y, %z = unpack %x : f32[8]", "9:24: 1 type for 2 results\n"},
    {"linear %x, @w : f32[8]",
     "9:5: the result of 'linear' needs a name, or '_' to drop it\n"},
    {"%y = free %x : f32[8]", "9:5: 'free' has no results, not 1\n"},
    {"free %x : f32[8]", "9:13: 'free' has no result that needs a type here\n"},
    {"%y = copy_to.bwd %x {tp} : f32[8]",
     "9:10: 'copy_to' has no backward operation\n"},
    {"%y = adamw.bwd %x : f32[8]", "9:10: 'adamw' has no backward operation\n"},
    {"%y = rms_norm %x, @w : f32[8]",
     "9:5: 'rms_norm' needs the attribute 'eps'\n"},
    {"%y = rms_norm %x, @w {epss=1.0} : f32[8]",
     "9:27: 'rms_norm' has no attribute 'epss'\n"
     "9:27: note: did you mean 'eps'?\n"},
    {"%y = rms_norm %x, @w {eps=1} : f32[8]",
     "9:31: 'eps' takes a float, such as 1.0 or 1e-06\n"},
    {"%y = rms_norm %x, @w {eps} : f32[8]",
     "9:27: 'eps' takes a float, such as 1.0 or 1e-06\n"},
    {"%y = rms_norm %x, @w {eps=1.0, eps=1.0} : f32[8]",
     "9:36: second 'eps' in one pair of braces\n"},
    {"%y = rms_norm %x, @w {eps=1.0, unit_offset=3} : f32[8]",
     "9:48: 'unit_offset' takes no value: it is a flag\n"},
    {"%y = rms_norm %x, @w {eps=1.0 unit_offset} : f32[8]",
     "9:35: expected ',' or '}' after the attribute\n"},
    {"%y = rms_norm %x, @w {eps=1e999} : f32[8]",
     "9:31: float 1e999 is out of range\n"},
    {"%y = rope %x, %t {rotary=4.0, theta=1.0} : f32[8]",
     "9:30: 'rotary' takes an integer, such as 4\n"},
    {"%y = rope %x, %t {rotary=99999999999999999999, theta=1.0} : f32[8]",
     "9:30: integer 99999999999999999999 does not fit 64 bits\n"},
    {"%y = cast %x {to=\"f32\"} : f32[8]", "9:22: 'to' takes a word\n"},
    {"%y = add %x, %x {eps=1.0} : f32[8]",
     "9:22: 'add' has no attribute 'eps'\n"},
    {"%y = all_reduce %x : f32[8]",
     "9:24: expected the axes of 'all_reduce' in the form {tp}\n"},
    {"%y = all_reduce %x {} : f32[8]",
     "9:25: expected the axes of 'all_reduce' in the form {tp}\n"},
    {"%y = all_reduce %x {tq} : f32[8]", "9:25: unknown axis 'tq'\n"
                                         "9:25: note: did you mean 'tp'?\n"},
    {"%y = all_reduce %x {tp: S} : f32[8]",
     "9:27: expected the axes of 'all_reduce' in the form {tp}\n"},
    {"%y = all_reduce %x {dp, tp} : f32[8]",
     "9:29: 'all_reduce' has no attribute 'tp'\n"
     "9:29: note: several axes are written as one group: (a,b)\n"},
    {"%y = all_reduce %x {(tp,tp)} : f32[8]", "9:26: axis 'tp' occurs twice\n"},
    {"%y = all_reduce %x {(dp tp)} : f32[8]",
     "9:29: expected ',' or ')' in the axes\n"},
    {"%y = all_gather %x {tp} : f32[8]",
     "9:27: expected the axes of 'all_gather' in the form {tp: S}\n"},
    {"%y = all_gather %x {tp: S->h} : f32[8]",
     "9:30: expected the axes of 'all_gather' in the form {tp: S}\n"},
    {"%y = all_gather %x {to=invariant} : f32[8]",
     "9:25: expected the axes of 'all_gather' in the form {tp: S}\n"},
    {"%y = all_to_all %x {tp: S} : f32[8]",
     "9:30: expected the axes of 'all_to_all' in the form {tp: S->h}\n"},
    {"%y = all_to_all %x {tp: S->} : f32[8]",
     "9:32: expected the axes of 'all_to_all' in the form {tp: S->h}\n"},
    {"%y = reduce_grad %x {param=ww} : f32[8]",
     "9:32: unknown parameter '@ww'\n"
     "9:32: note: did you mean '@w'?\n"},
    {"%y = reduce_grad %x {scatter=(tp)} : f32[8]",
     "9:5: 'reduce_grad' needs the attribute 'param'\n"},
    {"%y = reduce_grad %x {param=w, scatter=tp} : f32[8]",
     "9:43: 'scatter' takes axes, such as (dp,cp)\n"},
    {"%y = add %x, %x : f33[8]", "9:23: unknown element type 'f33'\n"
                                 "9:23: note: did you mean 'f32'?\n"},
    {"%y = add %x, %x : f32[Bb]", "9:27: unknown dim 'Bb'\n"
                                  "9:27: note: did you mean 'B'?\n"},
    {"%y = add %x, %x : f32[0]",
     "9:27: extent 0 is out of range; it is from 1 to 2^62\n"},
    {"%y = add %x, %x : f32[-1]",
     "9:27: extent -1 is out of range; it is from 1 to 2^62\n"},
    {"%y = add %x, %x : f32[9223372036854775808]",
     "9:27: extent 9223372036854775808 is out of range; it is from 1 to "
     "2^62\n"},
    {"%y = add %x, %x : f32[4611686018427387905]",
     "9:27: extent 4611686018427387905 is out of range; it is from 1 to "
     "2^62\n"},
    {"%y = add %x, %x : f32[3@tp]",
     "9:23: dim 0, size 3, does not divide over (tp), 2 ranks\n"},
    {"%y = add %x, %x : f32[8@tp, 8@tp]",
     "9:23: axis 'tp' is used twice, in dim 0 and in dim 1\n"},
    {"%y = add %x, %x : f32[8@tq]", "9:28: unknown axis 'tq'\n"
                                    "9:28: note: did you mean 'tp'?\n"},
    {"%y = add %x, %x : f32[8@(tp]", "9:32: expected ',' or ')' in the axes\n"},
    {"%y = add %x, %x : f32[8@]", "9:29: expected an axis or '(' after '@'\n"},
    {"%y = add %x, %x : f32[8", "9:28: expected ',' or ']' in the dims\n"},
    {"%y = add %x, %x : f32[(q=8 | k=8]",
     "9:37: expected '*', '|' or ')' in the dim\n"},
    {"%y = add %x, %x : f32[4*]",
     "9:29: expected an extent: a whole number from 1 on\n"},
    {"%y = add %x, %x : f32[4294967296, 4294967296, 4294967296]",
     "9:23: the tensor has more than 2^62 elements\n"},
    {"%y = add %x, %x : f32[8]{repl: tp, tp}",
     "9:36: axis 'tp' occurs twice\n"},
    {"%y = add %x, %x : f32[8]{repl: tp; repl: dp}",
     "9:40: second 'repl' in one type\n"},
    {"%y = add %x, %x : f32[8]{repl: tp; partial: tp}",
     "9:23: axis 'tp' is used twice, in 'repl' and in 'partial'\n"},
    {"%y = add %x, %x : f32[8]{part: tp}",
     "9:30: expected 'repl' or 'partial'\n"},
    {"%y = add %x, %x : f32[8] store=f32@tq",
     "9:39: unknown axis 'tq'\n"
     "9:39: note: did you mean 'tp'?\n"},
    {"%y = add %x, %x : f32[8] store=f31@tp",
     "9:36: unknown element type 'f31'\n"
     "9:36: note: did you mean 'f32'?\n"},
    {"%y = add %x, %x : f32[8] store=f32",
     "9:39: expected '@' and the axes of the storage\n"},
    {"%y = add %x, %x : f32[7] store=f32@tp",
     "9:23: storage of 7 local rows does not divide over 2 ranks; spell it "
     "with '~'\n"},
    {"%y = add %x, %x : f32", "9:26: expected '[' after the element type\n"},
    {"%y = add %x, %x f32[8]",
     "9:21: expected ':' and the types of the results\n"},
    {"%y = add %x %x : f32[8]", "9:17: expected ',' between operands\n"},
    {"%y = add %x, : f32[8]",
     "9:18: expected an operand: %value, @parameter, type(...) or _\n"},
    {"%y = add type(%x, %x : f32[8]", "9:21: expected ')' after 'type('\n"},
    {"%y = add type %x, %x : f32[8]", "9:19: expected '(' after 'type'\n"},
    {"%y = add %x, 3 : f32[8]",
     "9:18: expected an operand: %value, @parameter, type(...) or _\n"},
    {"%y = add %x, %x acc[%x] : f32[8]",
     "9:21: 'add' is no backward operation and has no acc[...]\n"},
    {"%y, %z = linear.bwd %x, @w, %x acc[%x] : f32[8], f32[8]",
     "9:5: 1 running gradient in acc[...] for 2 results\n"},
    {"%y, %z = linear.bwd %x, @w, %x acc[@w, _] : f32[8], f32[8]",
     "9:40: expected a running gradient: %value or _\n"},
    {"%y, %z = linear.bwd %x, @w : f32[8], f32[8]",
     "9:5: 'linear.bwd' has 3 operands, not 2\n"},
    {"%y = linear.bwd %x, @w, %x : f32[8]",
     "9:5: 'linear.bwd' has 2 results, not 1\n"},
    {"%L = fsdp.unshard @layer.*", "9:23: no parameter is named '@layer.*'\n"},
    {"%L = fsdp.unshard @layers.0.w",
     "9:23: expected the parameters to unshard, such as @layers.0.*\n"},
    {"%L = fsdp.unshard @layers.0.* : f32[8]",
     "9:35: 'fsdp.unshard' has no result that needs a type here\n"},
    {"%L, %M = fsdp.unshard @layers.0.*",
     "9:5: 'fsdp.unshard' has 1 result, not 2\n"},
    {"fsdp.unshard @layers.0.*",
     "9:5: the result of 'fsdp.unshard' needs a name, or '_' to drop it\n"},
    {"%y = linear %x, %x@w : f32[8]",
     "9:21: '%x' is a value, not a bundle of parameters\n"
     "8:11: note: defined here\n"},
    {"fsdp.reshard %x", "9:18: '%x' is not a bundle of fsdp.unshard\n"
                        "8:11: note: defined here\n"},
    {"%y = call @g(%x) : f32[8]", "9:15: unknown function '@g'\n"
                                  "9:15: note: did you mean '@f'?\n"},
    {"%y = stack @layers(%x) : f32[8]", "9:16: unknown stack '@layers'\n"},
    {"%y = call %x : f32[8]", "9:15: expected a function, such as @forward\n"},
    {"%y = call @f %x : f32[8]", "9:18: expected '(' and the operands\n"},
    {"param @z : f32[8]", "9:5: a function has no parameters of its own; "
                          "declare them in the model or in a block\n"},
    {"%y = add %x, %x : f32[8] loc(\"a\":1)",
     "9:39: expected ':' and a number in the location\n"},
    {"%y = add %x, %x : f32[8] loc(a:1:1)",
     "9:34: expected a file name in quotes, or 'unknown'\n"},
    {"%y = add %x, %x : f32[8] loc(\"a\":-1:1)",
     "9:38: expected a line or column, from 0 to 2^32 - 1\n"},
    {"%y = add %x, %x : f32[8] loc(\"a\":4294967296:1)",
     "9:38: expected a line or column, from 0 to 2^32 - 1\n"},
    {"%y = add %x, %x : f32[8] junk", "9:30: expected the end of the line\n"},
    {"%y = add %x, %x : f32[8] %z = add %x, %x : f32[8]",
     "9:30: expected the end of the line\n"},
    {"%y add %x, %x : f32[8]", "9:8: expected ',' or '=' after the results\n"},
    {"%y =", "9:9: expected the name of an operation\n"},
    {"= add", "9:5: expected an operation\n"},
    {"y = add %x, %x : f32[8]",
     "9:5: expected a result with its percent sign, such as %y\n"},
    {"return %x", "10:5: operation after 'return'\n"},
    {"%L = fsdp.unshard @layers.0.*\n%M = fsdp.unshard @layers.0.*\n%y = "
     "linear %x, %L@v : f32[8]",
     "11:19: '@v' is not in the bundle '@layers.0.*'\n"
     "9:5: note: unsharded here\n"
     "11:19: note: did you mean '@w'?\n"},
    {"%L = fsdp.unshard @layers.0.*\n%y = linear %x, %L : f32[8]",
     "10:17: '%L' is a bundle; name one of its parameters: %L@...\n"
     "9:5: note: defined here\n"},
    {"%L = fsdp.unshard @layers.0.*\n%L = fsdp.unshard @layers.0.*",
     "10:1: redefinition of value '%L'\n"
     "9:5: note: first defined here\n"},
    {"%L = fsdp.unshard @layers.0.*\n    fsdp.reshard %L\n%L = add %x, %x : "
     "f32[8]",
     "11:1: redefinition of value '%L'\n"
     "9:5: note: first defined here\n"},
    {"%y = ad %x, %x : f32[8]\n%z = add %y, %y : f32[8]\n%w = add %q, %x : "
     "f32[8]",
     "9:10: unknown operation 'ad'\n"
     "9:10: note: did you mean 'add'?\n"
     "11:10: '%q' is not defined before this line\n"
     "8:30: note: did you mean '%t', defined here?\n"},
    {"%y = add %x, %x : f33[8]\n%y = add %x, %y : f32[8]\n%z = add %x, %y {a} "
     ": f32[8]",
     "9:23: unknown element type 'f33'\n"
     "9:23: note: did you mean 'f32'?\n"
     "11:18: 'add' has no attribute 'a'\n"},
};

static const Refused refusedModules[] = {
    {"", "1:1: expected 'model'\n"},
    {"modle \"m\" stage(step) {", "1:1: expected 'model'\n"},
    {"model m stage(step) {", "1:7: expected the model's name in quotes\n"},
    {"model \"m\" {", "1:11: expected 'stage(...)'\n"},
    {"model \"m\" stage(stp) {\n}", "1:17: unknown stage 'stp'\n"
                                    "1:17: note: did you mean 'tp'?\n"},
    {"model \"m\" stage(step {", "1:22: expected ')' after the stage\n"},
    {"model \"m\" flavor(tiny) stage(step) {",
     "1:18: expected the flavor's name in quotes\n"},
    {"model \"m\" stage(step)", "1:22: expected '{' to open the model\n"},
    {"model \"m\" stage(step) {", "1:24: expected '}' to close the model\n"},
    {"model \"m\" stage(step) {\n} x",
     "2:3: expected the end of the file after the model\n"},
    {"model \"m\" stage(step) {\n  mash <>\n}",
     "2:3: unknown member of a model 'mash'\n"
     "2:3: note: did you mean 'mesh'?\n"},
    {"model \"m\" stage(step) {\n  \"x\"\n}",
     "2:3: expected a member of the model: config, mesh, dim, param, stack, "
     "block, func, ...\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  mesh <>\n}",
     "3:3: second 'mesh' in one model\n"},
    {"model \"m\" stage(step) {\n  dim B = 1\n  mesh <>\n}",
     "3:3: 'mesh' must come before 'dim'\n"},
    {"model \"m\" stage(step) {\n  config {a=1, a=2}\n}",
     "2:16: second 'a' in one pair of braces\n"},
    {"model \"m\" stage(step) {\n  config {a=}\n}",
     "2:13: expected a value: a number, a string, a word, (axes) or [list]\n"},
    {"model \"m\" stage(step) {\n  config {a=[1 2]}\n}",
     "2:16: expected ',' or ']' in the list\n"},
    {"model \"m\" stage(step) {\n  config {a=(tp)}\n}",
     "2:14: unknown axis 'tp'\n"},
    {"model \"m\" stage(step) {\n  config {1=2}\n}",
     "2:11: expected the name of an attribute\n"},
    {"model \"m\" stage(step) {\n  mesh <a=0>\n}",
     "2:11: axis 'a' has size 0; it must be at least 1\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2, a=2>\n}",
     "2:14: redefinition of axis 'a'\n"},
    {"model \"m\" stage(step) {\n  mesh <a=65536, b=65536>\n}",
     "2:20: the mesh has more than 2^31 ranks\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2\n}",
     "2:12: expected ',' or '>' in the mesh\n"},
    {"model \"m\" stage(step) {\n  mesh <a=x>\n}",
     "2:11: expected an integer\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2>\n  axes b = (c)\n}",
     "3:13: unknown axis 'c'\n"
     "3:13: note: did you mean 'a'?\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2>\n  axes a = (a)\n}",
     "3:8: redefinition of axis 'a'\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2>\n  axes b = (a, a)\n}",
     "3:13: axis 'a' occurs twice\n"},
    {"model \"m\" stage(step) {\n  mesh <a=2>\n  axes b = ()\n}",
     "3:13: expected the name of an axis\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  dim B = 0\n}",
     "3:11: extent 0 is out of range; it is from 1 to 2^62\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  dim B = -1\n}",
     "3:11: extent -1 is out of range; it is from 1 to 2^62\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  dim B = 9223372036854775808\n}",
     "3:11: extent 9223372036854775808 is out of range; it is from 1 to "
     "2^62\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  dim B = 4\n  dim B = 4\n}",
     "4:7: redefinition of dim 'B'\n"
     "3:3: note: first defined here\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  tied @a = @b\n}",
     "3:13: unknown parameter '@b'\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  tied @a = @b\n  param @a : "
     "f32[8]\n  param @b : f32[8]\n}",
     "4:3: parameter '@a' is tied to '@b' and is not one of its own\n"
     "3:3: note: tied here\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  tied @a = @b\n  tied @a = @c\n}",
     "4:8: redefinition of tied parameter '@a'\n"
     "3:3: note: first defined here\n"
     "3:13: unknown parameter '@b'\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a : f32[8]\n  param @a : "
     "f32[8]\n}",
     "4:9: redefinition of parameter '@a'\n"
     "3:3: note: first defined here\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a f32[8]\n}",
     "3:12: expected ':' and the parameter's type\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a : f32[8] {init=zero}\n}",
     "3:21: 'init' is one of embedding, linear, bias, log_uniform, ones, "
     "zeros\n"
     "3:21: note: did you mean 'zeros'?\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a : f32[8] {init=3}\n}",
     "3:21: 'init' is one of embedding, linear, bias, log_uniform, ones, "
     "zeros\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a : f32[8] {int=zeros}\n}",
     "3:21: unknown attribute of a parameter 'int'\n"
     "3:21: note: did you mean 'init'?\n"},
    {"model \"m\" stage(step) {\n  mesh <>\n  param @a : f32[9x]\n  param @b : "
     "f33[8]\n  func @f(%x: f32[8]) {\n    %y = linear %x, @a : f32[8]\n    "
     "return\n  }\n}",
     "3:18: '9x' is not a number\n"
     "4:14: unknown element type 'f33'\n"
     "4:14: note: did you mean 'f32'?\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [(@blok x2) x1]\n  "
     "block @block() {\n    return\n  }\n}",
     "3:16: unknown block '@blok'\n"
     "3:16: note: did you mean '@block'?\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [(@b x0)]\n}",
     "3:19: expected a count from x1 on, such as x3\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [(@b 3)]\n}",
     "3:19: expected ',' or ')' in the group\n"
     "3:16: unknown block '@b'\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [(@b x99999999999) "
     "x99999999999]\n}",
     "3:15: stack '@s' has more than 1048576 layers\n"
     "3:16: unknown block '@b'\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [(@b "
     "x99999999999999999999)]\n}",
     "3:19: expected a count from x1 on, such as x3\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = [@b]\n}",
     "3:15: expected '(' and the blocks of a group\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  stack @s = []\n  stack @s = "
     "[]\n}",
     "4:9: redefinition of stack '@s'\n"
     "3:9: note: first defined here\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  block @b() {\n    return\n  }\n  "
     "block @b() {\n    return\n  }\n}",
     "6:9: redefinition of block '@b'\n"
     "3:9: note: first defined here\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func @f() {\n    return\n  }\n  "
     "func @f() {\n    return\n  }\n}",
     "6:8: redefinition of function '@f'\n"
     "3:8: note: first defined here\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func @f(%x: f32[8], %x: f32[8]) "
     "{\n    return\n  }\n}",
     "3:23: redefinition of value '%x'\n"
     "3:11: note: first defined here\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func @f(%x f32[8]) {\n    return "
     "%x\n  }\n  func @g() {\n    return %q\n  }\n}",
     "3:14: expected ':' and the argument's type\n"
     "7:12: '%q' is not defined before this line\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func @f() {\n  }\n}",
     "4:3: expected 'return' before '}'\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func @f() {\n    return\n",
     "4:11: expected an operation or '}'\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  func f() {\n    return\n  }\n}",
     "3:8: expected the function's name, such as @forward\n"},
    {"model \"m\" stage(spec) {\n  mesh <>\n  block @b() {\n    %y = ones : "
     "f32[]\n    param @p : f32[8]\n    return\n  }\n}",
     "5:5: 'param' must come before the operations of its block\n"},
};

TEST(TextErrors, LinesAreRefusedInTheseWords) {
  EXPECT_EQ(messagesOf(withLine("%y = add %x, %x : f32[8]")), "accepted");
  for (const Refused &refused : refusedLines) {
    EXPECT_EQ(messagesOf(withLine(refused.text)), refused.messages)
        << refused.text;
  }
}

TEST(TextErrors, ModulesAreRefusedInTheseWords) {
  for (const Refused &refused : refusedModules) {
    EXPECT_EQ(messagesOf(refused.text), refused.messages) << refused.text;
  }
}

TEST(TextErrors, EveryBrokenLineIsNamedOnce) {
  EXPECT_EQ(messagesOf(withLine("%a = ad %x, %x : f32[8]\n"
                                "%b = add %a, %x : f32[0]\n"
                                "%c = add %b, %a : f32[8] ]\n"
                                "%d = add %c, %b : f32[8]\n"
                                "%e = sub %d, \"\n"
                                "%f = add %d, $ : f32[8]")),
            "9:10: unknown operation 'ad'\n"
            "9:10: note: did you mean 'add'?\n"
            "10:23: extent 0 is out of range; it is from 1 to 2^62\n"
            "11:26: expected the end of the line\n"
            "13:6: unknown operation 'sub'\n"
            "13:6: note: did you mean 'sum'?\n"
            "14:14: unexpected character '$'\n");
}

TEST(TextErrors, ReadingStopsAfterTwentyErrors) {
  std::string lines;
  for (unsigned i = 0; i < 100; ++i) {
    lines += "%y = nonsense %x : f32[8]\n";
  }
  DiagnosticLog log;
  EXPECT_FALSE(parse(withLine(lines), log));
  EXPECT_EQ(log.diag.errorCount(), 21u);
  EXPECT_EQ(log.lines.back(),
            "t.hp:29:1: error: too many errors; reading stops here");
}

TEST(TextErrors, PrintsWithCaretAndNotes) {
  std::string text;
  llvm::raw_string_ostream os(text);
  DiagnosticEngine diag(os);
  EXPECT_FALSE(
      parseModule(withLine("%y = linear %x, @ww : f32[8]"), "t.hp", diag));
  EXPECT_EQ(text, "t.hp:9:21: error: unknown parameter '@ww'\n"
                  "    %y = linear %x, @ww : f32[8]\n"
                  "                    ^\n"
                  "t.hp:9:21: note: did you mean '@w'?\n"
                  "    %y = linear %x, @ww : f32[8]\n"
                  "                    ^\n");
}
