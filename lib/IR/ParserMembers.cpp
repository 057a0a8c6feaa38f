//===- ParserMembers.cpp - Reading the members of a module ----------------===//
//
// Mesh, dims, ties, parameters and stacks: the members of one line.
//
//===----------------------------------------------------------------------===//

#include "Parser.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Mesh and dims
//===----------------------------------------------------------------------===//

/// mesh      ::= `mesh` `<` (mesh-axis (`,` mesh-axis)*)? `>`
/// mesh-axis ::= word `=` integer
bool Parser::parseMesh(Location loc) {
  if (!expect(TokenKind::Less, "'<' after 'mesh'")) {
    return false;
  }
  if (consumeIf(TokenKind::Greater)) {
    return true;
  }
  do {
    Location nameLoc = here();
    StringRef name = token.text;
    int64_t size = 0;
    if (!expect(TokenKind::Word, "the name of an axis") ||
        !expect(TokenKind::Equal, "'=' after the axis")) {
      return false;
    }
    Location sizeLoc = here();
    if (!parseInteger(size)) {
      return false;
    }
    if (module->mesh.lookup(name)) {
      return error(nameLoc) << "redefinition of axis '" << name << "'";
    }
    if (size < 1) {
      return error(sizeLoc) << "axis '" << name << "' has size " << size
                            << "; it must be at least 1";
    }
    if (module->mesh.numAxes() == Mesh::maxAxes) {
      return error(nameLoc)
             << "a mesh has at most " << Mesh::maxAxes << " axes";
    }
    if (!module->mesh.addAxis(name, size)) {
      return error(sizeLoc) << "the mesh has more than 2^31 ranks";
    }
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::Greater, "',' or '>' in the mesh");
}

/// alias ::= `axes` word `=` `(` axis (`,` axis)* `)`
bool Parser::parseAlias(Location loc) {
  constexpr size_t maxAliases = 64;
  StringRef name = token.text;
  Location nameLoc = here();
  AxisList axes;
  if (!expect(TokenKind::Word, "a name for the axes") ||
      !expect(TokenKind::Equal, "'=' after the name") ||
      !expect(TokenKind::LParen, "'(' and the axes") ||
      !parseAxesInParens(axes)) {
    return false;
  }
  if (module->mesh.lookup(name)) {
    return error(nameLoc) << "redefinition of axis '" << name << "'";
  }
  if (module->mesh.aliases().size() == maxAliases) {
    return error(loc) << "a mesh has at most " << maxAliases
                      << " names for lists of axes";
  }
  return module->mesh.addAlias(name, axes) ||
         error(loc) << "'" << name << "' cannot stand for these axes";
}

/// dim-decl ::= `dim` word `=` integer
bool Parser::parseDim(Location loc) {
  constexpr size_t maxDims = 64;
  StringRef name = token.text;
  Location nameLoc = here();
  int64_t size = 0;
  if (!expect(TokenKind::Word, "the name of a dim") ||
      !expect(TokenKind::Equal, "'=' after the dim") || !parseExtent(size)) {
    return false;
  }
  if (const DimDecl *previous = module->findDim(name)) {
    return redefinition(nameLoc, "dim '" + name + "'", previous->loc);
  }
  if (module->dims.size() == maxDims) {
    return error(loc) << "a model declares at most " << maxDims << " dims";
  }
  module->dims.push_back({module->intern(name), size, loc});
  return true;
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

/// tie ::= `tied` symbol `=` symbol
bool Parser::parseTie(Location loc) {
  StringRef alias = token.text;
  Location aliasLoc = here();
  if (!expect(TokenKind::Symbol, "the tied parameter, such as "
                                 "@lm_head.weight") ||
      !expect(TokenKind::Equal, "'=' after the tied parameter")) {
    return false;
  }
  StringRef target = token.text;
  Location targetLoc = here();
  if (!expect(TokenKind::Symbol, "the parameter that it is tied to")) {
    return false;
  }
  constexpr size_t maxTies = 64;
  for (const Tie &tie : module->ties) {
    if (tie.alias == alias) {
      return redefinition(aliasLoc, "tied parameter '@" + alias + "'", tie.loc);
    }
  }
  if (module->ties.size() == maxTies) {
    return error(loc) << "a model ties at most " << maxTies << " parameters";
  }
  module->ties.push_back({module->intern(alias), module->intern(target), loc});
  pending.push_back(
      {Pending::ParamSymbol, module->ties.back().target, targetLoc});
  return true;
}

/// cuts ::= `replicated` | `[` cut (`,` cut)* `]`
/// cut  ::= integer `,` axis
///
/// Dims and the axes that cut them. Whether they are there, the verifier tells.
bool Parser::parseDeclaredShard(const Attribute &value, Location loc,
                                Param &param) {
  constexpr int64_t maxDeclaredDim = 1024;
  auto &cuts = param.declared.emplace();
  if (const Word *word = value.get<Word>();
      word && word->text == "replicated") {
    return true;
  }
  const Attribute::List *list = value.get<Attribute::List>();
  bool legal = list && !list->empty() && list->size() % 2 == 0;
  for (size_t i = 0; legal && i < list->size(); i += 2) {
    const int64_t *dim = (*list)[i].get<int64_t>();
    const Word *axis = (*list)[i + 1].get<Word>();
    legal = dim && axis && *dim >= 0 && *dim <= maxDeclaredDim;
    if (legal) {
      cuts.push_back({unsigned(*dim), module->intern(axis->text)});
    }
  }
  return legal || error(loc) << "'shard' is 'replicated', or a list of a dim "
                                "and its axis in turn, such as [0, tp]";
}

/// param ::= `param` symbol `:` type
///           (`{` `init` `=` word (`,` `shard` `=` cuts)? `}`)? loc?
Param *Parser::parseParam(Location loc, ParamTable &table) {
  static constexpr StringRef inits[] = {"embedding",   "linear", "bias",
                                        "log_uniform", "ones",   "zeros"};
  StringRef name = token.text;
  Location nameLoc = here();
  if (!expect(TokenKind::Symbol, "the parameter's name, such as "
                                 "@norm.weight")) {
    return nullptr;
  }
  auto [it, isNew] = table.try_emplace(name, nullptr);
  if (!isNew) {
    redefinition(nameLoc, "parameter '@" + name + "'",
                 it->second ? it->second->loc : Location());
    return nullptr;
  }
  Type type;
  if (!expect(TokenKind::Colon, "':' and the parameter's type") ||
      !parseType(type)) {
    return nullptr;
  }
  AttributeList attrs;
  Location attrsLoc = here();
  if (token.is(TokenKind::LBrace) && !parseAttributeDict(attrs)) {
    return nullptr;
  }
  for (const NamedAttribute &entry : attrs.entries()) {
    const Word *word = entry.value.get<Word>();
    if (entry.name == "shard") {
      continue;
    }
    if (entry.name != "init") {
      unknown(attrsLoc, "attribute of a parameter", entry.name,
              {"init", "shard"});
      return nullptr;
    }
    if (!word || !llvm::is_contained(inits, word->text)) {
      InFlightDiagnostic report = error(attrsLoc);
      report << "'init' is one of embedding, linear, bias, log_uniform, ones, "
                "zeros";
      StringRef near = word ? didYouMean(word->text, inits) : StringRef();
      if (!near.empty()) {
        report.note({}, "did you mean '" + near + "'?");
      }
      return nullptr;
    }
  }
  if (!parseOptionalLocation(loc)) {
    return nullptr;
  }
  Param *param = module->makeParam(name, type, attrs.getText("init"), loc);
  const Attribute *declared = attrs.find("shard");
  if (declared && !parseDeclaredShard(*declared, attrsLoc, *param)) {
    return nullptr;
  }
  return it->second = param;
}

//===----------------------------------------------------------------------===//
// Stacks
//===----------------------------------------------------------------------===//

/// stack ::= `stack` symbol `=` `[` (group (`,` group)*)? `]` loc?
bool Parser::parseStack(Location loc) {
  constexpr int64_t maxLayers = 1 << 20;
  StringRef name = token.text;
  Location nameLoc = here();
  if (!expect(TokenKind::Symbol, "the stack's name, such as @layers") ||
      !expect(TokenKind::Equal, "'=' after the stack") ||
      !expect(TokenKind::LSquare, "'[' and the stack's layers")) {
    return false;
  }
  auto [it, isNew] = stackNames.try_emplace(name, nameLoc);
  if (!isNew) {
    return redefinition(nameLoc, "stack '@" + name + "'", it->second);
  }
  Stack *stack = module->makeStack(name, loc);
  int64_t layers = 0;
  if (!consumeIf(TokenKind::RSquare)) {
    do {
      Location groupLoc = here();
      StackGroup group;
      if (!parseStackGroup(group)) {
        return false;
      }
      int64_t period = 0;
      for (const StackRun &run : group.runs) {
        period = std::min(period + std::min(run.count, maxLayers), maxLayers);
      }
      layers += period * std::min(group.count, maxLayers);
      if (layers > maxLayers) {
        return error(groupLoc) << "stack '@" << name << "' has more than "
                               << maxLayers << " layers";
      }
      stack->groups.push_back(std::move(group));
    } while (consumeIf(TokenKind::Comma));
    if (!expect(TokenKind::RSquare, "',' or ']' in the stack")) {
      return false;
    }
  }
  if (!parseOptionalLocation(stack->loc)) {
    return false;
  }
  module->addStack(stack);
  return true;
}

/// group ::= `(` run (`,` run)* `)` count?
/// run   ::= symbol count?
bool Parser::parseStackGroup(StackGroup &group) {
  if (!expect(TokenKind::LParen, "'(' and the blocks of a group")) {
    return false;
  }
  do {
    StackRun run{module->intern(token.text), 1};
    Location loc = here();
    if (!expect(TokenKind::Symbol, "the name of a block, such as @linear") ||
        !parseCount(run.count)) {
      return false;
    }
    pending.push_back({Pending::BlockSymbol, run.block, loc});
    group.runs.push_back(run);
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::RParen, "',' or ')' in the group") &&
         parseCount(group.count);
}

/// count ::= `x` integer
///
/// In one word.
bool Parser::parseCount(int64_t &count) {
  if (!token.is(TokenKind::Word)) {
    return true;
  }
  StringRef digits = token.text;
  if (!digits.consume_front("x") || digits.starts_with("0") ||
      digits.getAsInteger(10, count) || count < 1) {
    return expected("a count from x1 on, such as x3");
  }
  advance();
  return true;
}
