//===- Parser.cpp - Reading a module --------------------------------------===//
//
// Tokens, the module, blocks and functions. Members of one line are in
// ParserMembers.cpp, operations in ParserOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "Parser.h"
#include "hp/IR/Text.h"

using namespace hp;
using llvm::StringRef;

std::unique_ptr<Module> hp::parseModule(StringRef text, StringRef file,
                                        DiagnosticEngine &diag) {
  diag.addBuffer(file, text);
  return Parser(text, file, diag).parse();
}

Parser::Parser(StringRef text, StringRef file, DiagnosticEngine &diag)
    : diag(diag), file(diag.location(file, 0, 0).file),
      lexer(text, this->file, diag), module(std::make_unique<Module>()) {
  token = lexer.next();
}

std::unique_ptr<Module> Parser::parse() {
  bool ok = parseModule();
  if (tooManyErrors()) {
    diag.error(here()) << "too many errors; reading stops here";
  }
  return ok && errorCount() == 0 ? std::move(module) : nullptr;
}

//===----------------------------------------------------------------------===//
// Tokens and errors
//===----------------------------------------------------------------------===//

bool Parser::consumeWord(StringRef word) {
  if (!token.isWord(word)) {
    return false;
  }
  advance();
  return true;
}

InFlightDiagnostic Parser::error(Location loc) {
  ++errors;
  return diag.error(loc);
}

bool Parser::expected(const llvm::Twine &what) {
  if (token.is(TokenKind::Error)) {
    return false;
  }
  bool lineEnded =
      token.startsLine && token.line != statementLine && previousEnd.line;
  return error(lineEnded ? previousEnd : here()) << "expected " << what.str();
}

bool Parser::unknown(Location loc, StringRef kind, StringRef name,
                     llvm::ArrayRef<StringRef> candidates, StringRef sigil) {
  InFlightDiagnostic report = error(loc);
  report << "unknown " << kind << " '" << sigil << name << "'";
  StringRef near = didYouMean(name, candidates);
  if (!near.empty()) {
    report.note({}, "did you mean '" + sigil + near + "'?");
  }
  return false;
}

bool Parser::redefinition(Location loc, const llvm::Twine &what,
                          Location previous) {
  return error(loc).note(previous, "first defined here")
         << "redefinition of " << what.str();
}

void Parser::recover(unsigned line) {
  while (!token.is(TokenKind::End) &&
         !(token.startsLine && token.line > line)) {
    lexer.skipLine();
    advance();
  }
}

void Parser::skipBody() {
  while (!token.is(TokenKind::End) &&
         !(token.startsLine && token.is(TokenKind::RBrace))) {
    recover(token.line);
  }
  consumeIf(TokenKind::RBrace);
}

//===----------------------------------------------------------------------===//
// The module
//===----------------------------------------------------------------------===//

/// module ::= `model` string (`flavor` `(` string `)`)? `stage` `(` stage `)`
///            loc? `{` member* `}`
/// stage  ::= `spec` | `annotated` | `cp` | `tp` | `ac` | `plan` | `step`
bool Parser::parseModule() {
  module->loc = here();
  if (!consumeWord("model")) {
    return expected("'model'");
  }
  if (!token.is(TokenKind::String)) {
    return expected("the model's name in quotes");
  }
  module->name = module->intern(unescape(token.text));
  advance();
  if (consumeWord("flavor")) {
    if (!expect(TokenKind::LParen, "'(' after 'flavor'")) {
      return false;
    }
    if (!token.is(TokenKind::String)) {
      return expected("the flavor's name in quotes");
    }
    module->flavor = module->intern(unescape(token.text));
    advance();
    if (!expect(TokenKind::RParen, "')' after the flavor")) {
      return false;
    }
  }
  if (!consumeWord("stage")) {
    return expected("'stage(...)'");
  }
  if (!expect(TokenKind::LParen, "'(' after 'stage'")) {
    return false;
  }
  if (!token.is(TokenKind::Word)) {
    return expected("the name of a stage");
  }
  std::optional<Stage> stage = parseStage(token.text);
  if (!stage) {
    llvm::SmallVector<StringRef, 8> names;
    for (unsigned i = 0; i <= unsigned(Stage::Step); ++i) {
      names.push_back(name(Stage(i)));
    }
    return unknown(here(), "stage", token.text, names);
  }
  module->stage = *stage;
  advance();
  return expect(TokenKind::RParen, "')' after the stage") &&
         parseOptionalLocation(module->loc) &&
         expect(TokenKind::LBrace, "'{' to open the model") &&
         parseModuleBody();
}

/// The members of a module in the order in which they stand.
static constexpr const char *memberOrder[] = {
    "config", "training", "optimizer", "parallelism", "sharding",
    "mesh",   "axes",     "dim",       "tied",        "param",
    "stack",  "block",    "func"};

/// Position in memberOrder, `stack` ranking with `param`; -1 for another word.
static int memberRank(StringRef keyword) {
  for (unsigned i = 0; i < std::size(memberOrder); ++i) {
    if (keyword == memberOrder[i]) {
      return keyword == "stack" ? int(i) - 1 : int(i);
    }
  }
  return -1;
}

bool Parser::parseModuleBody() {
  int rank = -1;
  StringRef last;
  while (!token.is(TokenKind::RBrace) && !token.is(TokenKind::End) &&
         !tooManyErrors()) {
    unsigned line = statementLine = token.line;
    if (!token.is(TokenKind::Word)) {
      expected("a member of the model: config, mesh, dim, param, stack, block, "
               "func, ...");
      recover(line);
      continue;
    }
    StringRef keyword = token.text;
    Location loc = here();
    int newRank = memberRank(keyword);
    if (newRank < 0) {
      unknown(loc, "member of a model", keyword,
              llvm::SmallVector<StringRef, 12>(std::begin(memberOrder),
                                               std::end(memberOrder)));
      recover(line);
      continue;
    }
    static const int meshRank = memberRank("mesh"), dimRank = memberRank("dim");
    bool oncePerModel = newRank <= meshRank;
    if (newRank < rank || (oncePerModel && newRank == rank)) {
      if (newRank == rank) {
        error(loc) << "second '" << keyword << "' in one model";
      } else {
        error(loc) << "'" << keyword << "' must come before '" << last << "'";
      }
    }
    rank = std::max(rank, newRank);
    last = newRank == rank ? keyword : last;
    advance();
    if (!parseMember(keyword, loc)) {
      // Without mesh and dims no type can be read.
      if (newRank >= meshRank && newRank <= dimRank) {
        return false;
      }
      if (keyword == "block" || keyword == "func") {
        skipBody();
      } else {
        recover(line);
      }
      if (token.is(TokenKind::End)) {
        return false;
      }
    }
  }
  if (tooManyErrors()) {
    return false;
  }
  if (!expect(TokenKind::RBrace, "'}' to close the model")) {
    return false;
  }
  if (!token.is(TokenKind::End)) {
    return expected("the end of the file after the model");
  }
  return resolvePending() && checkTies();
}

/// member ::= dict attrs
///          | mesh | alias | dim-decl | tie | param | stack | block | func
/// dict   ::= `config` | `training` | `optimizer` | `parallelism` | `sharding`
bool Parser::parseMember(StringRef keyword, Location loc) {
  if (keyword == "config") {
    return parseAttributeDict(module->config);
  }
  if (keyword == "training") {
    return parseAttributeDict(module->training);
  }
  if (keyword == "optimizer") {
    return parseAttributeDict(module->optimizer);
  }
  if (keyword == "parallelism") {
    return parseAttributeDict(module->parallelism);
  }
  if (keyword == "sharding") {
    return parseAttributeDict(module->sharding);
  }
  if (keyword == "mesh") {
    return parseMesh(loc);
  }
  if (keyword == "axes") {
    return parseAlias(loc);
  }
  if (keyword == "dim") {
    return parseDim(loc);
  }
  if (keyword == "tied") {
    return parseTie(loc);
  }
  if (keyword == "param") {
    Param *param = parseParam(loc, params);
    if (param) {
      module->addParam(param);
    }
    return param != nullptr;
  }
  if (keyword == "stack") {
    return parseStack(loc);
  }
  return keyword == "block" ? parseBlockTemplate(loc) : parseFunction(loc);
}

//===----------------------------------------------------------------------===//
// Blocks and functions
//===----------------------------------------------------------------------===//

/// block ::= `block` symbol arguments loc? `{` param* operation* `}`
bool Parser::parseBlockTemplate(Location loc) {
  StringRef name = token.text;
  Location nameLoc = here();
  if (!expect(TokenKind::Symbol, "the block's name, such as @linear")) {
    return false;
  }
  auto [it, isNew] = blockNames.try_emplace(name, nameLoc);
  if (!isNew) {
    return redefinition(nameLoc, "block '@" + name + "'", it->second);
  }
  auto block = std::make_unique<BlockTemplate>();
  block->name = module->intern(name);
  block->loc = loc;
  block->body = std::make_unique<Block>(*module);
  BlockTemplate *owner = block.get();
  module->blocks.push_back(std::move(block));

  ParamTable table;
  Scope scope;
  scope.block = owner->body.get();
  scope.templateParams = &table;
  return parseArguments(scope) && parseOptionalLocation(owner->loc) &&
         expect(TokenKind::LBrace, "'{' to open the block") &&
         parseBody(scope, owner, &table);
}

/// func ::= `func` symbol arguments loc? `{` operation* `}`
bool Parser::parseFunction(Location loc) {
  StringRef name = token.text;
  Location nameLoc = here();
  if (!expect(TokenKind::Symbol, "the function's name, such as @forward")) {
    return false;
  }
  auto [it, isNew] = functionNames.try_emplace(name, nameLoc);
  if (!isNew) {
    return redefinition(nameLoc, "function '@" + name + "'", it->second);
  }
  auto function = std::make_unique<Function>();
  function->name = module->intern(name);
  function->loc = loc;
  function->body = std::make_unique<Block>(*module);
  Function *owner = function.get();
  module->functions.push_back(std::move(function));

  Scope scope;
  scope.block = owner->body.get();
  return parseArguments(scope) && parseOptionalLocation(owner->loc) &&
         expect(TokenKind::LBrace, "'{' to open the function") &&
         parseBody(scope, nullptr, nullptr);
}

/// arguments ::= `(` (argument (`,` argument)*)? `)`
/// argument  ::= value `:` type loc?
bool Parser::parseArguments(Scope &scope) {
  if (!expect(TokenKind::LParen, "'(' and the arguments")) {
    return false;
  }
  if (consumeIf(TokenKind::RParen)) {
    return true;
  }
  do {
    StringRef name = token.text;
    Location loc = here();
    Type type;
    if (!expect(TokenKind::Value, "an argument, such as %x: f32[B, S]") ||
        !expect(TokenKind::Colon, "':' and the argument's type") ||
        !parseType(type)) {
      return false;
    }
    Value *value = module->makeValue(name, type, loc);
    value->index = scope.block->arguments.size();
    if (!define(scope, value) || !parseOptionalLocation(value->loc)) {
      return false;
    }
    scope.block->arguments.push_back(value);
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::RParen, "',' or ')' in the arguments");
}

/// The lines between braces, to the closing one. `owner` and `params` belong to
/// a template and are null in a function.
bool Parser::parseBody(Scope &scope, BlockTemplate *owner, ParamTable *params) {
  while (!token.is(TokenKind::RBrace) && !token.is(TokenKind::End) &&
         !tooManyErrors()) {
    unsigned line = statementLine = token.line;
    Location loc = here();
    bool ok = false;
    if (token.isWord("param")) {
      advance();
      if (!owner) {
        error(loc) << "a function has no parameters of its own; declare them "
                      "in the model or in a block";
      } else if (!scope.block->ops.empty()) {
        error(loc) << "'param' must come before the operations of its block";
      } else if (Param *param = parseParam(loc, *params)) {
        owner->params.push_back(param);
        ok = true;
      }
    } else {
      ok = parseOperation(scope);
    }
    if (!ok) {
      recover(line);
    }
  }
  if (tooManyErrors()) {
    return true;
  }
  Location loc = here();
  if (token.is(TokenKind::RBrace) && !scope.block->terminator() &&
      errorCount() == 0) {
    return error(loc) << "expected 'return' before '}'";
  }
  return expect(TokenKind::RBrace, "an operation or '}'");
}

//===----------------------------------------------------------------------===//
// What is resolved at the end
//===----------------------------------------------------------------------===//

bool Parser::resolvePending() {
  auto known = [&](const auto &table, const Pending &use, StringRef kind) {
    if (table.count(use.name)) {
      return true;
    }
    llvm::SmallVector<StringRef> names;
    for (const auto &entry : table) {
      names.push_back(entry.getKey());
    }
    llvm::sort(names);
    return unknown(use.loc, kind, use.name, names, "@");
  };
  bool ok = true;
  for (const Pending &use : pending) {
    if (tooManyErrors()) {
      return false;
    }
    switch (use.kind) {
    case Pending::BlockSymbol:
      ok &= known(blockNames, use, "block");
      break;
    case Pending::StackSymbol:
      ok &= known(stackNames, use, "stack");
      break;
    case Pending::FunctionSymbol:
      ok &= known(functionNames, use, "function");
      break;
    case Pending::ParamSymbol:
      ok &= known(params, use, "parameter");
      break;
    }
  }
  return ok;
}

bool Parser::checkTies() {
  for (const Tie &tie : module->ties) {
    auto it = params.find(tie.alias);
    if (it != params.end()) {
      return error(it->second ? it->second->loc : tie.loc)
                 .note(tie.loc, "tied here")
             << "parameter '@" << tie.alias << "' is tied to '@" << tie.target
             << "' and is not one of its own";
    }
  }
  return true;
}
