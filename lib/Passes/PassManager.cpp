//===- PassManager.cpp - Running passes in order --------------------------===//

#include "hp/Passes/PassManager.h"
#include "hp/IR/Verifier.h"
#include "hp/Support/Debug.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"
#include <chrono>

using namespace hp;
using llvm::StringRef;

/// Runs `body` and adds the seconds it takes to `seconds`.
static bool timed(double &seconds, llvm::function_ref<bool()> body) {
  auto start = std::chrono::steady_clock::now();
  bool ok = body();
  seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count();
  return ok;
}

bool PassManager::run(Module &module, DiagnosticEngine &diag) {
  for (const auto &pass : passes) {
    if (std::string why = pass->refusal(module); !why.empty()) {
      return diag.error(module.loc) << "pass '" << pass->name() << "': " << why;
    }
    HP_DEBUG("pass-manager", debugStream() << "pass-manager: running '"
                                           << pass->spelling()
                                           << "' on a module at stage '"
                                           << name(module.stage) << "'\n");
    for (PassObserver *observer : observers) {
      observer->before(*pass, module);
    }
    PassOutcome outcome;
    bool ok =
        timed(outcome.passSeconds, [&] { return pass->run(module, diag); });
    if (ok && verifies) {
      ok = timed(outcome.verifySeconds, [&] { return verify(module, diag); });
      HP_DEBUG("pass-manager",
               debugStream() << "pass-manager: the module "
                             << (ok ? "verifies\n" : "does not verify\n"));
      if (!ok) {
        diag.error(module.loc)
            << "the module does not verify after pass '" << pass->name() << "'";
      }
    }
    HP_DEBUG("pass-manager",
             debugStream() << "pass-manager: '" << pass->name()
                           << (ok ? "' made stage '" : "' failed at stage '")
                           << name(module.stage) << "'\n");
    outcome.failed = !ok;
    for (PassObserver *observer : observers) {
      ok &= observer->after(*pass, module, outcome);
    }
    if (!ok) {
      return false;
    }
  }
  return true;
}

std::string PassManager::spelling() const {
  llvm::SmallVector<std::string> parts;
  for (const auto &pass : passes) {
    parts.push_back(pass->spelling());
  }
  return llvm::join(parts, ",");
}

bool hp::reportUnknownPass(StringRef name, InFlightDiagnostic report) {
  report << "unknown pass '" << name << "'";
  llvm::SmallVector<StringRef> names;
  for (const PassInfo &info : allPasses()) {
    names.push_back(info.name);
  }
  if (StringRef near = didYouMean(name, names); !near.empty()) {
    report.note({}, "did you mean '" + near + "'?");
  } else {
    report.note({}, "passes are " + llvm::join(names, ", "));
  }
  return false;
}

//===----------------------------------------------------------------------===//
// Reading a pipeline
//===----------------------------------------------------------------------===//

namespace {
/// Reads `text` from left to right; columns in messages count from 1.
class PipelineParser {
public:
  PipelineParser(StringRef text, PassManager &manager, DiagnosticEngine &diag)
      : text(text), manager(manager), diag(diag) {
    diag.addBuffer(file, text);
  }

  bool parse() {
    if (text.trim().empty()) {
      return true;
    }
    do {
      if (!parsePass()) {
        return false;
      }
    } while (consume(','));
    return pos == text.size() || error() << "expected ',' between passes";
  }

private:
  static constexpr const char *file = "<pass-pipeline>";

  InFlightDiagnostic error() {
    return diag.error(diag.location(file, 1, pos + 1));
  }
  void skipSpace() {
    while (pos < text.size() && text[pos] == ' ') {
      ++pos;
    }
  }
  bool consume(char c) {
    skipSpace();
    if (pos < text.size() && text[pos] == c) {
      ++pos;
      return true;
    }
    return false;
  }
  StringRef word(StringRef stops) {
    skipSpace();
    StringRef found = text.drop_front(pos).take_until(
        [&](char c) { return stops.contains(c); });
    pos += found.size();
    return found;
  }

  bool parsePass() {
    skipSpace();
    size_t start = pos;
    StringRef name = word(",{} ");
    if (name.empty()) {
      return error() << "expected the name of a pass";
    }
    std::unique_ptr<Pass> pass = makePass(name);
    if (!pass) {
      pos = start;
      return reportUnknownPass(name, error());
    }
    if (consume('{')) {
      while (!consume('}')) {
        size_t optionStart = pos;
        StringRef option = word("=,{} ");
        if (option.empty() || !consume('=')) {
          return error() << "expected 'name=value' or '}'";
        }
        StringRef value = word(",{} ");
        std::string message;
        if (!pass->setOption(option, value, message)) {
          pos = optionStart;
          return error() << message;
        }
        consume(',');
      }
    }
    manager.add(std::move(pass));
    return true;
  }

  StringRef text;
  PassManager &manager;
  DiagnosticEngine &diag;
  size_t pos = 0;
};
} // namespace

bool hp::parsePipeline(StringRef text, PassManager &manager,
                       DiagnosticEngine &diag) {
  return PipelineParser(text, manager, diag).parse();
}

bool hp::addPassesTo(Stage to, Module &module, PassManager &manager,
                     DiagnosticEngine &diag) {
  if (to == module.stage) {
    return true;
  }
  if (to < module.stage) {
    return diag.error(module.loc)
           << "cannot compile to stage '" << name(to)
           << "': the input is at stage '" << name(module.stage) << "' already";
  }
  // The registry is in pipeline order.
  std::vector<std::unique_ptr<Pass>> chain;
  for (const PassInfo &info : allPasses()) {
    std::unique_ptr<Pass> pass = info.make();
    if (pass->produces() > module.stage && pass->produces() <= to) {
      chain.push_back(std::move(pass));
    }
  }
  if (!chain.empty() && chain.back()->produces() == to) {
    for (std::unique_ptr<Pass> &pass : chain) {
      manager.add(std::move(pass));
    }
    return true;
  }
  InFlightDiagnostic report = diag.error(module.loc);
  report << "no pass makes stage '" << name(to) << "'";
  llvm::SmallVector<StringRef> stages;
  for (const PassInfo &info : allPasses()) {
    stages.push_back(name(info.make()->produces()));
  }
  report.note({}, "stages that passes make: " + llvm::join(stages, ", "));
  return false;
}
