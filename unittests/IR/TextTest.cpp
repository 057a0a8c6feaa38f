//===- TextTest.cpp - What is read, and that printing is its inverse ------===//

#include "TextTesting.h"
#include "llvm/ADT/bit.h"
#include <limits>

using namespace hp;
using namespace hp::texttest;
using llvm::StringRef;

namespace {
/// Reads `text`, which must be in order. Its engine stays, for the Locations.
std::unique_ptr<Module> read(StringRef text) {
  static std::deque<DiagnosticLog> logs;
  DiagnosticLog &log = logs.emplace_back();
  std::unique_ptr<Module> module = parse(text, log);
  EXPECT_TRUE(module) << log.text() << text.str();
  EXPECT_TRUE(log.lines.empty()) << log.text();
  return module ? std::move(module) : std::make_unique<Module>();
}

/// A module with `line` as its config.
std::string withConfig(StringRef attrs) {
  return ("model \"m\" stage(spec) {\n  config {" + attrs + "}\n  mesh <>\n}\n")
      .str();
}

/// The type `text`, read on a mesh and printed.
std::string typeText(StringRef text) {
  auto module = read(
      ("model \"m\" stage(step) {\n  mesh <a=2, b=2, c=2>\n  axes ab = (a, b)\n"
       "  dim B = 8\n  dim S = 16\n  param @p : " +
       text + "\n}")
          .str());
  Param *param = module->findParam("p");
  return param ? str(param->type, *module) : "";
}

const Operation &operation(Module &module, unsigned index) {
  return *std::next(module.functions[0]->body->ops.begin(), index);
}
} // namespace

//===----------------------------------------------------------------------===//
// Fixpoints
//===----------------------------------------------------------------------===//

TEST(Text, PrintingGivesBackWhatWasRead) {
  EXPECT_EQ(str(*read(templates)), templates);
  EXPECT_EQ(str(*read(step)), step);
  EXPECT_EQ(faultOf(templates), "");
  EXPECT_EQ(faultOf(step), "");
}

TEST(Text, LayoutAndCommentsDoNotMatter) {
  std::string loose = "// a comment\r\n";
  for (char c : step) {
    loose += c == '\n' ? " // {[(\r\n\r\n" : std::string(1, c);
  }
  EXPECT_EQ(str(*read(loose)), step);
  std::string wide;
  for (char c : step) {
    wide += StringRef(",={}[]()@|").contains(c) && c != '@'
                ? (" \t" + std::string(1, c) + "  ")
                : std::string(1, c);
  }
  EXPECT_EQ(str(*read(wide)), step);
  // An operation may go on on further lines, its operands after a comma.
  auto module = read("model \"m\"\nstage(step)\n{\nmesh\n<\n>\nfunc @f(\n%x:\n"
                     "f32[\n8]) {\n%y,\n%z = add.bwd type(\n%x),\ntype(%x),\n"
                     "%x\n:\nf32[8],\nf32[8]\nreturn\n}}");
  EXPECT_EQ(str(*module),
            "model \"m\" stage(step) {\n  mesh <>\n  func @f(%x: f32[8]) {\n"
            "    %y, %z = add.bwd type(%x), type(%x), %x : f32[8], f32[8]\n"
            "    return\n  }\n}\n");
}

TEST(Text, FloatsKeepEveryBit) {
  struct {
    const char *text;
    double value;
  } floats[] = {{"1e-08", 1e-8},
                {"1e-06", 1e-6},
                {"10000000.0", 1e7},
                {"0.1", 0.1},
                {"0.10000000149011612", double(0.1f)},
                {"-0.0", -0.0},
                {"0.0", 0.0},
                {"inf", std::numeric_limits<double>::infinity()},
                {"-inf", -std::numeric_limits<double>::infinity()},
                {"nan", std::numeric_limits<double>::quiet_NaN()},
                {"-nan", -std::numeric_limits<double>::quiet_NaN()},
                {"5e-324", std::numeric_limits<double>::denorm_min()},
                {"2.225073858507201e-308", 2.225073858507201e-308},
                {"1.7976931348623157e+308", 1.7976931348623157e308},
                {"1e+22", 1e22},
                {"123456789012345680.0", 123456789012345678.0},
                {"9007199254740993.5", 9007199254740993.5},
                {"0.3333333333333333", 1.0 / 3}};
  for (const auto &f : floats) {
    auto module = read(withConfig(("x=" + StringRef(f.text)).str()));
    const Attribute *attr = module->config.find("x");
    ASSERT_TRUE(attr && attr->get<double>()) << f.text;
    EXPECT_EQ(llvm::bit_cast<uint64_t>(*attr->get<double>()),
              llvm::bit_cast<uint64_t>(f.value))
        << f.text;
    EXPECT_EQ(faultOf(withConfig(("x=" + StringRef(f.text)).str())), "");
  }
}

TEST(Text, FloatsPrintShortest) {
  auto printed = [](StringRef text) {
    std::string module = str(*read(withConfig(("x=" + text).str())));
    return StringRef(module).split("{x=").second.split('}').first.str();
  };
  EXPECT_EQ(printed("1e-8"), "1e-08");
  EXPECT_EQ(printed("0.00000001"), "1e-08");
  EXPECT_EQ(printed("1E+07"), "1e+07");
  EXPECT_EQ(printed("1.000"), "1.0");
  EXPECT_EQ(printed("0.1000000000000000055511151231257827"), "0.1");
  EXPECT_EQ(printed("1"), "1"); // an integer stays one
  EXPECT_EQ(printed("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(printed("9223372036854775807"), "9223372036854775807");
}

TEST(Text, WordsThatReadAsSomethingElseAreQuoted) {
  Module module;
  module.name = module.intern("m");
  for (const char *text : {"true", "nan", "two words", "3d", ""}) {
    module.config.set(module.intern("w"), Attribute{Word{text}});
    std::string first = str(module);
    EXPECT_NE(first.find("w=\"" + std::string(text) + "\""), std::string::npos);
    EXPECT_EQ(str(*read(first)), first);
  }
}

//===----------------------------------------------------------------------===//
// What is read
//===----------------------------------------------------------------------===//

TEST(Text, TheHeaderIsRead) {
  auto module = read(templates);
  EXPECT_EQ(module->name, "a \"b\" \\ \x01\n");
  EXPECT_EQ(module->flavor, "tiny");
  EXPECT_EQ(module->stage, Stage::Spec);
  EXPECT_EQ(module->config.getInt("hidden", 0), 32);
  EXPECT_EQ(module->config.getFloat("theta", 0), 1e7);
  EXPECT_TRUE(module->config.getFlag("tied"));
  EXPECT_FALSE(module->config.getFlag("gate"));
  EXPECT_EQ(module->config.getText("name"), "q\t");
  EXPECT_EQ(module->config.getText("kind"), "full_attention");
  EXPECT_EQ(module->findDim("S")->size, 16);
  ASSERT_EQ(module->ties.size(), 1u);
  EXPECT_EQ(module->ties[0].target, "embed_tokens.weight");
  ASSERT_EQ(module->members.size(), 3u);
  EXPECT_EQ(module->members[1].stack->layers().size(), 9u);
  EXPECT_EQ(module->findParam("norm.weight")->init, "zeros");
  auto onMesh = read(step);
  EXPECT_EQ(onMesh->mesh.numRanks(), 16);
  EXPECT_EQ(onMesh->mesh.lookup("dp")->size(), 2u);
}

TEST(Text, TemplateParametersHideThoseOfTheModel) {
  auto module = read(templates);
  const BlockTemplate &block = *module->blocks[0];
  const Operation &norm = block.body->ops.front();
  EXPECT_EQ(norm.operands[1].param, block.params[0]);
  const Operation &embedding = *std::next(block.body->ops.begin(), 3);
  EXPECT_EQ(embedding.operands[1].param,
            module->findParam("embed_tokens.weight"));
}

TEST(Text, DroppedResultsKeepTheirPlace) {
  auto module = read(templates);
  const Operation &split = *std::next(module->blocks[0]->body->ops.begin(), 2);
  ASSERT_EQ(split.results.size(), 3u);
  EXPECT_EQ(split.results[1], nullptr);
  EXPECT_EQ(split.results[2]->name, "v");
  EXPECT_EQ(split.results[2]->index, 2u);
  EXPECT_EQ(split.results[2]->type->dims[2].name(), "v");
}

TEST(Text, OperandsAreResolved) {
  auto module = read(step);
  const Operation &norm = operation(*module, 1);
  EXPECT_EQ(norm.operands[0].value, module->functions[0]->body->arguments[1]);
  EXPECT_EQ(norm.operands[1].value, operation(*module, 0).results[0]);
  EXPECT_EQ(norm.operands[1].param, module->findParam("layers.0.norm"));
  const Operation &again = operation(*module, 9);
  EXPECT_EQ(again.spelling(), "linear.bwd");
  EXPECT_EQ(again.operands[1].value, operation(*module, 8).results[0])
      << "the later bundle of the same name";
  const Operation &typeOnly = operation(*module, 10);
  EXPECT_TRUE(typeOnly.operands[0].typeOnly && typeOnly.operands[1].typeOnly);
  EXPECT_FALSE(typeOnly.operands[2].typeOnly);
  EXPECT_EQ(typeOnly.acc[0].value, again.results[0]);
  EXPECT_TRUE(typeOnly.acc[1].isNone());
  EXPECT_EQ(operation(*module, 12).symbol, "layers.0.w");
}

TEST(Text, BundleParametersGoByEitherName) {
  std::string full = step.str();
  size_t at = full.find("%L0@norm");
  full.replace(at, 8, "%L0@layers.0.norm");
  EXPECT_EQ(str(*read(full)), step);
}

TEST(Text, CollectivesHaveAxesAndDims) {
  auto module = read(step);
  const Operation &gather = operation(*module, 3);
  EXPECT_EQ(gather.axes, (AxisList{2, 3}));
  EXPECT_EQ(gather.dim, "S");
  EXPECT_EQ(gather.attrs.getText("to"), "invariant");
  const Operation &move = operation(*module, 4);
  EXPECT_EQ(move.dim, "S");
  EXPECT_EQ(move.toDim, "h");
}

TEST(Text, TypesPrintInOneSpelling) {
  EXPECT_EQ(typeText("f32[]"), "f32[]");
  EXPECT_EQ(typeText("bool[ 1 ]"), "bool[1]");
  EXPECT_EQ(typeText("bf16[B, B=8, S=8, 8, b=8]"), "bf16[B, B, S=8, 8, b=8]");
  EXPECT_EQ(typeText("f32[8*2, h=8*2, (8), (h=8), (B)]"),
            "f32[(8*2), (h=8*2), 8, h=8, B]");
  EXPECT_EQ(typeText("f32[(q=8 | 4*2 | S)@(a,b)]"), "f32[(q=8 | 4*2 | S)@ab]");
  EXPECT_EQ(typeText("f32[8@(b,a), 8@c]"), "f32[8@(b,a), 8@c]");
  EXPECT_EQ(typeText("f32[8@(ab,c)]"), "f32[8@(ab,c)]");
  EXPECT_EQ(typeText("f64[8@(c)]{partial: b ; repl:a}"),
            "f64[8@c]{repl: a; partial: b}");
  EXPECT_EQ(typeText("f64[8]{repl: c, b, a} store=bf16@(a,b)"),
            "f64[8]{repl: ab, c} store=bf16@ab");
  EXPECT_EQ(typeText("f64[7]{repl: a} store=f64@a ~"),
            "f64[7]{repl: a} store=f64@a~");
  EXPECT_EQ(typeText("f32[4611686018427387904]"), "f32[4611686018427387904]");
}

TEST(Text, ATypeReadTwiceIsOneType) {
  // The second reading comes from the cache, whatever follows the type.
  auto module = read("model \"m\" stage(step) {\n  mesh <a=2>\n"
                     "  param @p : f32[8]\n  param @q : f32[8]{repl: a}\n"
                     "  param @r : f32[8] {repl: a}\n"
                     "  param @s : f32[8] {init=ones}\n"
                     "  param @t : f32[8] // x\n"
                     "  param @u : f32[8]{repl: a} store=f32@a\n"
                     "  param @v : f32[8]{repl: a}  store=f32@a\n"
                     "  param @w : f32[8] loc(\"x\":1:2)\n}");
  auto type = [&](StringRef name) { return module->findParam(name)->type; };
  EXPECT_EQ(type("p"), type("s"));
  EXPECT_EQ(type("p"), type("t"));
  EXPECT_EQ(type("p"), type("w"));
  EXPECT_EQ(type("q"), type("r"));
  EXPECT_EQ(type("u"), type("v"));
  EXPECT_NE(type("p"), type("q"));
  EXPECT_NE(type("q"), type("u"));
}

//===----------------------------------------------------------------------===//
// Locations and comments
//===----------------------------------------------------------------------===//

TEST(Text, EverythingHasAPlaceInTheText) {
  auto module = read(step);
  auto place = [](Location loc) {
    return (loc.fileName() + ":" + llvm::Twine(loc.line) + ":" +
            llvm::Twine(loc.column))
        .str();
  };
  EXPECT_EQ(place(module->loc), "t.hp:1:1");
  EXPECT_EQ(place(module->dims[1].loc), "t.hp:5:3");
  EXPECT_EQ(place(module->findParam("layers.0.norm")->loc), "t.hp:7:3");
  EXPECT_EQ(place(module->functions[0]->loc), "t.hp:9:3");
  EXPECT_EQ(place(module->functions[0]->body->arguments[1]->loc), "t.hp:9:37");
  const Operation &bwd = operation(*module, 10);
  EXPECT_EQ(place(bwd.loc), "t.hp:20:5");
  EXPECT_EQ(place(bwd.results[1]->loc), "t.hp:20:11");
  auto blocks = read(templates);
  EXPECT_EQ(place(blocks->blocks[1]->loc), "t.hp:21:3");
  EXPECT_EQ(place(blocks->members[1].stack->loc), "t.hp:10:3");
  EXPECT_EQ(place(blocks->ties[0].loc), "t.hp:8:3");
}

TEST(Text, AWrittenLocationWins) {
  StringRef text = R"hp(model "m" stage(step) loc("a.yaml":1:2) {
  mesh <>
  param @p : f32[8] {init=ones} loc("a.yaml":3:4)
  func @f(%x: f32[8] loc("b \"q\".yaml":5:6)) loc("a.yaml":0:0) {
    %y = add %x, %x : f32[8] loc("a.yaml":7:8)
    return %y loc(unknown)
  }
}
)hp";
  auto module = read(text);
  const Operation &add = operation(*module, 0);
  EXPECT_EQ(add.loc.fileName(), "a.yaml");
  EXPECT_EQ(add.loc.line, 7u);
  EXPECT_EQ(add.results[0]->loc, add.loc);
  EXPECT_EQ(add.loc.file, module->findParam("p")->loc.file);
  EXPECT_FALSE(operation(*module, 1).loc);
  PrintOptions options;
  options.debugInfo = true;
  EXPECT_EQ(str(*module, options), text);
}

TEST(Text, LocalShapesAreAComment) {
  auto module = read(step);
  PrintOptions options;
  options.localShapes = true;
  std::string text = str(*module, options);
  EXPECT_NE(text.find("    %g = all_gather %n {tp: S} : f32[B@dp, S@cp, 32]"
                      "{repl: tp}  // local f32[2, 8, 32]\n"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("{partial: dp, cp}  // local f32[2, 8, 32], f32[32, 32]"
                      "\n"),
            std::string::npos)
      << text;
  EXPECT_EQ(str(*read(text)), step);
}

TEST(Text, OneOperationPrintsAsItsLine) {
  auto module = read(step);
  std::string text;
  llvm::raw_string_ostream os(text);
  print(operation(*module, 1), os);
  EXPECT_EQ(text, "%n = rms_norm %x, %L0@norm {eps=1e-06} : "
                  "f32[B@dp, S@(cp,tp), 32]");
  EXPECT_EQ(str(operation(*module, 1).operands[1]), "%L0@norm");
  EXPECT_EQ(str(operation(*module, 10).operands[1]), "type(@layers.0.w)");
  EXPECT_EQ(str(Operand()), "_");
}
