//===- Listings.cpp - What there is: passes, operations, models -----------===//

#include "hp/Analysis/Parameters.h"
#include "hp/Driver/OptDriver.h"
#include "hp/Spec/Import.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// --list-passes
//===----------------------------------------------------------------------===//

void hp::listPasses(llvm::raw_ostream &os) {
  for (const PassInfo &info : allPasses()) {
    std::unique_ptr<Pass> pass = info.make();
    os << pass->name() << '\n'
       << "    " << pass->summary() << '\n'
       << "    requires: " << pass->needs() << '\n'
       << "    produces: stage " << name(pass->produces()) << '\n';
    os << "    options:  " << (pass->options().empty() ? "none\n" : "\n");
    for (const PassOption &option : pass->options()) {
      os << "        " << option.name << '=' << option.defaultValue;
      if (!option.choices.empty()) {
        os << " (" << llvm::join(option.choices, ", ") << ')';
      }
      os << "  " << option.summary << '\n';
    }
  }
}

//===----------------------------------------------------------------------===//
// --list-ops
//===----------------------------------------------------------------------===//

static StringRef kindName(char kind) {
  switch (kind) {
  case 'i':
    return "integer";
  case 'f':
    return "float";
  case 'b':
    return "flag";
  case 'w':
    return "word";
  case 'a':
    return "axes";
  case 'd':
    return "dim";
  default:
    return "value";
  }
}

void hp::listOps(llvm::raw_ostream &os) {
  for (const OpInfo &row : allOps()) {
    os << row.spelling << (row.hasBackwardOp() ? ", " : "")
       << (row.hasBackwardOp() ? row.spelling.str() + ".bwd" : "") << '\n'
       << "    " << row.summary << '\n';
    // Views, collectives and what frames them have code in place of a rule.
    if (!row.variants.empty()) {
      os << "    rule: " << row.ruleText << '\n';
    }
    if (!row.attributes.empty()) {
      os << "    attributes: ";
      llvm::ListSeparator comma;
      for (const AttributeSpec &attribute : row.attributes) {
        os << comma << attribute.name << ' ' << kindName(attribute.kind)
           << (attribute.optional ? " (optional)" : "");
      }
      os << '\n';
    }
    os << "    stages: " << name(row.firstStage);
    if (row.firstStage != row.lastStage) {
      os << " to " << name(row.lastStage);
    }
    os << '\n';
  }
}

//===----------------------------------------------------------------------===//
// --list-models
//===----------------------------------------------------------------------===//

bool hp::listModels(llvm::raw_ostream &os, DiagnosticEngine &diag) {
  llvm::StringSet<> names, folders;
  for (const std::string &folder : modelFolders()) {
    llvm::SmallString<128> path;
    if (llvm::sys::fs::real_path(folder, path) ||
        !folders.insert(path).second) {
      continue;
    }
    auto models = listModels(folder, parameterCount, diag);
    if (!models) {
      return false;
    }
    for (const ModelListing &model : *models) {
      // The first folder that has a name is where it is found.
      if (!names.insert(model.name).second) {
        continue;
      }
      os << model.name << "  " << model.path << '\n';
      for (const ModelListing::FlavorListing &flavor : model.flavors) {
        os << "    " << llvm::left_justify(flavor.name, 8) << ' '
           << llvm::right_justify(std::to_string(flavor.parameters), 12)
           << " parameters\n";
      }
    }
  }
  return true;
}
