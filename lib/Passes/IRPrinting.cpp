//===- IRPrinting.cpp - Text before and after passes ----------------------===//

#include "hp/Passes/IRPrinting.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/xxhash.h"

using namespace hp;
using llvm::StringRef;

bool hp::checkPassNames(const IRPrintingOptions &options,
                        DiagnosticEngine &diag) {
  bool ok = true;
  for (const auto *names : {&options.before, &options.after}) {
    for (const std::string &name : *names) {
      if (!makePass(name)) {
        ok = reportUnknownPass(name, diag.error());
      }
    }
  }
  return ok;
}

bool IRPrinter::prints(const Pass &pass, bool all,
                       const std::vector<std::string> &names) const {
  return all || llvm::is_contained(names, pass.name());
}

void IRPrinter::before(const Pass &pass, Module &module) {
  if (options.afterChange) {
    hashBefore = llvm::xxh3_64bits(str(module));
  }
  if (prints(pass, options.beforeAll, options.before)) {
    dump(module, pass, "Before " + pass.name().str(), ".before");
  }
}

bool IRPrinter::after(const Pass &pass, Module &module,
                      const PassOutcome &outcome) {
  // Conditions without passes to choose from hold for every pass.
  bool chosen = !options.before.empty() || options.beforeAll;
  bool all =
      options.afterAll ||
      (options.after.empty() && (options.afterChange || options.afterFailure ||
                                 (!options.treeFolder.empty() && !chosen)));
  bool wanted = prints(pass, all, options.after);
  if (outcome.failed) {
    wanted &= !options.afterChange || options.afterFailure;
  } else {
    wanted &= !options.afterFailure || options.afterAll;
    wanted &=
        !options.afterChange || hashBefore != llvm::xxh3_64bits(str(module));
  }
  if (wanted) {
    dump(module, pass,
         "After " + pass.name().str() + (outcome.failed ? " Failed" : ""), "");
  }
  ++passesRun;
  return !filesFailed;
}

/// A name of a file from a name of a model: nothing that leads elsewhere.
static std::string fileName(StringRef text) {
  std::string name;
  for (char c : text) {
    name += llvm::isAlnum(c) || c == '-' || c == '_' || c == '.' ? c : '_';
  }
  return name.empty() || name[0] == '.' ? "_" + name : name;
}

/// Prints the module under a header that says `when`; `suffix` tells files of
/// one pass apart.
bool IRPrinter::dump(Module &module, const Pass &pass, StringRef when,
                     StringRef suffix) {
  std::string header = ("// -----// IR Dump " + when + " //----- //\n").str();
  if (options.treeFolder.empty()) {
    os << header;
    print(module, os, options.print);
    os << '\n';
    return true;
  }
  std::string model = module.name.str();
  if (!module.flavor.empty()) {
    model += "_" + module.flavor.str();
  }
  llvm::SmallString<128> path(options.treeFolder);
  llvm::sys::path::append(path, fileName(model));
  std::error_code error = llvm::sys::fs::create_directories(path);
  if (!error) {
    llvm::sys::path::append(path, llvm::Twine(passesRun) + "_" + pass.name() +
                                      suffix + ".hp");
    llvm::raw_fd_ostream file(path, error);
    if (!error) {
      file << header;
      print(module, file, options.print);
      file.close();
      error = file.error();
      file.clear_error();
    }
  }
  if (error) {
    filesFailed = true;
    return diag.error() << "cannot write '" << path << "': " << error.message();
  }
  return true;
}
