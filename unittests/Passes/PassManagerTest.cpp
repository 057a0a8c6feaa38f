//===- PassManagerTest.cpp - What surrounds passes ------------------------===//
//
// With passes of its own: some that fail, break the module, or change nothing.
//
//===----------------------------------------------------------------------===//

#include "hp/IR/Text.h"
#include "hp/Passes/IRPrinting.h"
#include "hp/Passes/PassReports.h"
#include "hp/Passes/RoundTrip.h"
#include <gtest/gtest.h>

using namespace hp;
using llvm::StringRef;

static const char text[] = R"(model "m" stage(spec) {
  mesh <>
  dim B = 2
  func @f(%x: f32[B, 8]) {
    %y = sigmoid %x : f32[B, 8]
    return %y
  }
}
)";

namespace {

/// A pass that does what it is given.
class TestPass : public Pass {
public:
  using Action = std::function<bool(Module &, DiagnosticEngine &)>;
  TestPass(StringRef name, Action action)
      : passName(name), action(std::move(action)) {}

  StringRef name() const override { return passName; }
  StringRef summary() const override { return "for tests"; }
  StringRef needs() const override { return "anything"; }
  Stage produces() const override { return Stage::Spec; }
  std::string refusal(Module &module) const override {
    return module.flavor == "refused" ? "it is refused" : "";
  }
  llvm::ArrayRef<PassOption> options() const override {
    static const PassOption list[] = {
        {"mode", "fast", "how", {"fast", "slow"}},
        {"path", "", "where", {}},
    };
    return list;
  }
  bool run(Module &module, DiagnosticEngine &diag) override {
    count("runs", "how often it ran", 1);
    return action(module, diag);
  }

private:
  std::string passName;
  Action action;
};

/// Notes what it is told.
class Recorder : public PassObserver {
public:
  std::string log;
  bool agrees = true;

  void before(const Pass &pass, Module &) override {
    log += "before " + pass.name().str() + ";";
  }
  bool after(const Pass &pass, Module &, const PassOutcome &outcome) override {
    log += (outcome.failed ? "failed " : "after ") + pass.name().str() + ";";
    return agrees;
  }
};

class PassManagerTest : public testing::Test {
protected:
  std::string messages;
  llvm::raw_string_ostream stream{messages};
  DiagnosticEngine diag{stream};
  std::unique_ptr<Module> module = parseModule(text, "m.hp", diag);
  PassManager manager;
  Recorder recorder;

  void add(StringRef name, TestPass::Action action) {
    manager.add(std::make_unique<TestPass>(name, std::move(action)));
  }
  bool run() {
    manager.observe(&recorder);
    return manager.run(*module, diag);
  }
  /// The sigmoid of the module.
  Operation &sigmoid() { return module->findFunction("f")->body->ops.front(); }
};

bool nothing(Module &, DiagnosticEngine &) { return true; }

/// Gives the sigmoid a type that it cannot have.
bool breakType(Module &module, DiagnosticEngine &) {
  Operation &op = module.findFunction("f")->body->ops.front();
  op.results[0]->type = module.scalar(DType::F32);
  return true;
}

} // namespace

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

TEST_F(PassManagerTest, ObserversAreToldInOrder) {
  add("a", nothing);
  add("b", nothing);
  EXPECT_TRUE(run());
  EXPECT_EQ(recorder.log, "before a;after a;before b;after b;");
  EXPECT_EQ(messages, "");
}

TEST_F(PassManagerTest, AFailedPassEndsThePipeline) {
  add("a", [](Module &module, DiagnosticEngine &diag) -> bool {
    return diag.error(module.loc) << "no";
  });
  add("b", nothing);
  EXPECT_FALSE(run());
  EXPECT_EQ(recorder.log, "before a;failed a;");
  EXPECT_EQ(diag.errorCount(), 1u);
}

TEST_F(PassManagerTest, ARefusedModuleIsNotRun) {
  module->flavor = "refused";
  add("a", nothing);
  EXPECT_FALSE(run());
  EXPECT_EQ(recorder.log, "");
  EXPECT_EQ(diag.firstError(), "pass 'a': it is refused");
}

TEST_F(PassManagerTest, ABrokenModuleIsTheFaultOfItsPass) {
  add("a", breakType);
  add("b", nothing);
  EXPECT_FALSE(run());
  EXPECT_EQ(recorder.log, "before a;failed a;");
  EXPECT_NE(messages.find("the module does not verify after pass 'a'"),
            std::string::npos)
      << messages;
}

TEST_F(PassManagerTest, WithoutVerifyEachNobodyLooks) {
  add("a", breakType);
  manager.verifyEach(false);
  EXPECT_TRUE(run());
  EXPECT_EQ(recorder.log, "before a;after a;");
}

TEST_F(PassManagerTest, AnObserverCanEndThePipeline) {
  add("a", nothing);
  add("b", nothing);
  recorder.agrees = false;
  EXPECT_FALSE(run());
  EXPECT_EQ(recorder.log, "before a;after a;");
}

TEST_F(PassManagerTest, StatisticsCount) {
  add("a", nothing);
  EXPECT_TRUE(run());
  std::string report;
  llvm::raw_string_ostream os(report);
  printStatistics(manager, os);
  EXPECT_NE(report.find("'a' pass\n  (S) 1 runs - how often it ran\n"),
            std::string::npos)
      << report;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

TEST_F(PassManagerTest, OptionsAreCheckedAndSpelled) {
  TestPass pass("p", nothing);
  std::string message;
  EXPECT_EQ(pass.spelling(), "p{mode=fast,path=}");
  EXPECT_TRUE(pass.setOption("mode", "slow", message));
  EXPECT_TRUE(pass.setOption("path", "x", message));
  EXPECT_EQ(pass.spelling(), "p{mode=slow,path=x}");
  EXPECT_TRUE(pass.setOption("mode", "fast", message));
  EXPECT_EQ(pass.option("mode"), "fast");
  EXPECT_FALSE(pass.setOption("mode", "warp", message));
  EXPECT_EQ(message, "option 'mode' of pass 'p' is one of fast, slow, not "
                     "'warp'");
  EXPECT_FALSE(pass.setOption("speed", "1", message));
  EXPECT_EQ(message, "pass 'p' has no option 'speed'; it has mode, path");
}

//===----------------------------------------------------------------------===//
// Round trips
//===----------------------------------------------------------------------===//

TEST_F(PassManagerTest, ATextThatReadsBackPasses) {
  RoundTripChecker checker(diag);
  manager.observe(&checker);
  add("a", nothing);
  EXPECT_TRUE(run());
  EXPECT_EQ(messages, "");
}

TEST_F(PassManagerTest, ATextThatDoesNotReadBackIsAnError) {
  RoundTripChecker checker(diag);
  manager.observe(&checker);
  manager.verifyEach(false);
  add("a", [&](Module &, DiagnosticEngine &) {
    sigmoid().results[0]->name = "not a name";
    return true;
  });
  EXPECT_FALSE(run());
  EXPECT_NE(messages.find("the module after pass 'a' does not read back"),
            std::string::npos)
      << messages;
}

TEST_F(PassManagerTest, ATextThatReadsBackAsAnotherIsAnError) {
  // Reads as two functions, which are printed on lines of their own.
  module->findFunction("f")->name = "e(%x: f32[B, 8]) { return %x } func @f";
  EXPECT_FALSE(checkRoundTrip(*module, "the input", diag));
  EXPECT_NE(messages.find("the input does not read back: line 4 of its text is "
                          "'  func @e(%x: f32[B, 8]) { return %x } func @f"),
            std::string::npos)
      << messages;
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

namespace {
class IRPrintingTest : public PassManagerTest {
protected:
  std::string dumps;
  llvm::raw_string_ostream os{dumps};

  void runWith(const IRPrintingOptions &options) {
    IRPrinter printer(options, os, diag);
    manager.observe(&printer);
    add("same", nothing);
    add("other", [&](Module &, DiagnosticEngine &) {
      sigmoid().results[0]->name = "z";
      return true;
    });
    add("broken", breakType);
    EXPECT_FALSE(run());
  }
  /// The headers of the dumps, without what is common to them.
  std::string headers() const {
    std::string list;
    llvm::SmallVector<StringRef> lines;
    StringRef(dumps).split(lines, '\n');
    for (StringRef line : lines) {
      if (line.consume_front("// -----// IR Dump ") &&
          line.consume_back(" //----- //")) {
        list += line.str() + ";";
      }
    }
    return list;
  }
};
} // namespace

TEST_F(IRPrintingTest, AfterAll) {
  runWith({.afterAll = true});
  EXPECT_EQ(headers(), "After same;After other;After broken Failed;");
}

TEST_F(IRPrintingTest, AfterChange) {
  runWith({.afterChange = true});
  EXPECT_EQ(headers(), "After other;");
}

TEST_F(IRPrintingTest, AfterFailure) {
  runWith({.afterFailure = true});
  EXPECT_EQ(headers(), "After broken Failed;");
}

TEST_F(IRPrintingTest, AfterChangeOfChosenPasses) {
  runWith({.after = {"same"}, .afterChange = true});
  EXPECT_EQ(headers(), "");
}

TEST_F(IRPrintingTest, BeforeSomeAndAfterSome) {
  runWith({.before = {"other", "broken"}, .after = {"same"}});
  EXPECT_EQ(headers(), "After same;Before other;Before broken;");
}
