//===- ParserOps.cpp - Reading operations ---------------------------------===//

#include "Parser.h"
#include "llvm/ADT/SmallString.h"

using namespace hp;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Spellings
//===----------------------------------------------------------------------===//

namespace {
struct Spelling {
  OpKind kind;
  bool backward;
};
} // namespace

static llvm::StringMap<Spelling> makeSpellings() {
  llvm::StringMap<Spelling> table;
  for (const OpInfo &row : allOps()) {
    table[row.spelling] = {row.kind, false};
    if (row.hasBackwardOp()) {
      table[(row.spelling + ".bwd").str()] = {row.kind, true};
    }
  }
  return table;
}

/// Every operation by its spelling, `.bwd` ones included.
static const llvm::StringMap<Spelling> &spellings() {
  static const llvm::StringMap<Spelling> table = makeSpellings();
  return table;
}

bool Parser::parseOpName(OpKind &kind, bool &backward) {
  if (!token.is(TokenKind::Word) ||
      (token.startsLine && token.line != statementLine)) {
    return expected("the name of an operation");
  }
  auto it = spellings().find(token.text);
  if (it != spellings().end()) {
    kind = it->second.kind;
    backward = it->second.backward;
    advance();
    return true;
  }
  StringRef forward = token.text;
  if (forward.consume_back(".bwd") && findOp(forward)) {
    return error(here()) << "'" << forward << "' has no backward operation";
  }
  StringRef rest(token.end, lexer.textEnd() - token.end);
  if (rest.ltrim(" \t").starts_with("=")) {
    return expected("a result with its percent sign, such as %" + token.text);
  }
  llvm::SmallVector<StringRef> names;
  for (const OpInfo &row : allOps()) {
    names.push_back(row.spelling);
    auto it = spellings().find((row.spelling + ".bwd").str());
    if (it != spellings().end()) {
      names.push_back(it->getKey());
    }
  }
  return unknown(here(), "operation", token.text, names);
}

//===----------------------------------------------------------------------===//
// Operations
//===----------------------------------------------------------------------===//

/// operation ::= (results `=`)? word inputs op-attrs? acc? types? loc?
bool Parser::parseOperation(Scope &scope) {
  Location loc = here();
  if (scope.block->terminator()) {
    return error(loc) << "operation after 'return'";
  }
  ResultNames names;
  OpKind kind;
  bool backward = false;
  if (!parseResultNames(names) || !parseOpName(kind, backward)) {
    defineBroken(scope, names);
    return false;
  }
  Operation *op = module->makeOp(kind, loc);
  op->backward = backward;
  op->parent = scope.block;
  scope.block->ops.push_back(op);
  if (!parseOpTail(scope, *op, names)) {
    defineBroken(scope, names);
    return false;
  }
  return true;
}

/// results ::= (value | `_`) (`,` (value | `_`))*
bool Parser::parseResultNames(ResultNames &results) {
  if (token.is(TokenKind::Word)) {
    return true;
  }
  do {
    if (token.is(TokenKind::Value)) {
      results.push_back({token.text, here()});
      advance();
    } else if (token.is(TokenKind::Underscore)) {
      results.push_back({StringRef(), here()});
      advance();
    } else {
      return expected(results.empty() ? "an operation"
                                      : "the name of a result, such as %x");
    }
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::Equal, "',' or '=' after the results");
}

/// inputs ::= bundle | call | operands?
bool Parser::parseOpTail(Scope &scope, Operation &op,
                         const ResultNames &names) {
  bool isCall = op.is(OpKind::Stack) || op.is(OpKind::Call);
  bool isUnshard = op.is(OpKind::FsdpUnshard);
  bool ok = isCall      ? parseCallOperands(scope, op)
            : isUnshard ? parseBundlePrefix(scope, op)
                        : parseOperands(scope, op);
  llvm::SmallVector<Type, 4> types;
  bool locationGiven = false;
  if (!ok || !parseOperationAttributes(op) ||
      !parseRunningGradients(scope, op) || !checkCounts(op, names.size()) ||
      !parseResultTypes(op, names, types) ||
      !parseOptionalLocation(op.loc, &locationGiven)) {
    return false;
  }
  if (!token.startsLine && !token.is(TokenKind::RBrace) &&
      !token.is(TokenKind::End)) {
    return expected("the end of the line");
  }
  if (op.is(OpKind::FsdpReshard)) {
    for (const Operand &operand : op.operands) {
      if (operand.value) { // else the verifier says so
        scope.values[operand.value->name].closed = true;
      }
    }
  }
  bool defined = true;
  size_t nextType = 0;
  for (const ResultName &name : names) {
    if (name.name.empty()) {
      op.results.push_back(nullptr);
      continue;
    }
    Type type = isUnshard ? Type() : types[nextType++];
    Value *value = module->addResult(&op, name.name, type);
    if (!locationGiven) {
      value->loc = name.loc;
    }
    defined &= define(scope, value);
  }
  return defined;
}

/// `no results`, `1 result`, `2 results`.
static std::string counted(size_t count, StringRef noun) {
  std::string number = count == 0 ? "no" : std::to_string(count);
  return (number + " " + noun + (count == 1 ? "" : "s")).str();
}

/// types ::= `:` type (`,` type)*
///
/// One for each result that has a name.
bool Parser::parseResultTypes(Operation &op, const ResultNames &names,
                              llvm::SmallVectorImpl<Type> &types) {
  size_t wanted = llvm::count_if(
      names, [](const ResultName &name) { return !name.name.empty(); });
  if (op.is(OpKind::FsdpUnshard)) {
    wanted = 0;
  }
  if (wanted == 0) {
    return !token.is(TokenKind::Colon) ||
           error(here()) << "'" << op.spelling()
                         << "' has no result that needs a type here";
  }
  Location loc = here();
  if (!expect(TokenKind::Colon, "':' and the types of the results")) {
    return false;
  }
  do {
    if (!parseType(types.emplace_back())) {
      return false;
    }
  } while (consumeIf(TokenKind::Comma));
  return types.size() == wanted || error(loc)
                                       << counted(types.size(), "type")
                                       << " for " << counted(wanted, "result");
}

/// Numbers of operands, results and running gradients, where the table knows
/// them without looking at types.
bool Parser::checkCounts(const Operation &op, size_t numResults) {
  const OpInfo &row = op.info();
  auto wrong = [&](llvm::ArrayRef<size_t> counts, StringRef what,
                   size_t given) {
    InFlightDiagnostic report = error(op.loc);
    report << "'" << op.spelling() << "' has ";
    for (size_t count : counts.drop_back()) {
      report << count << " or ";
    }
    report << counted(counts.back(), what) << ", not " << given;
    return false;
  };
  bool mayHaveResults = !row.storage.empty();
  if (!mayHaveResults && numResults > 0) {
    return wrong({0}, "result", numResults);
  }
  bool mayHaveNone = op.is(OpKind::Call) || op.is(OpKind::Stack);
  if (mayHaveResults && numResults == 0 && !mayHaveNone) {
    return error(op.loc) << "the result of '" << op.spelling()
                         << "' needs a name, or '_' to drop it";
  }
  if (op.is(OpKind::FsdpUnshard) && numResults != 1) {
    return wrong({1}, "result", numResults);
  }
  llvm::SmallVector<size_t, 2> operands, results;
  for (const RuleVariant &variant : row.variants) {
    size_t inputs = variant.operands.size(), outputs = variant.results.size();
    if (op.backward) {
      operands.push_back(inputs + row.savedResults().size() +
                         row.cotangentResults(outputs).size());
      results.push_back(row.diffOperands(inputs).size());
    } else {
      operands.push_back(inputs);
      results.push_back(outputs);
    }
  }
  if (!operands.empty()) {
    auto *match = llvm::find(operands, op.operands.size());
    if (match == operands.end()) {
      return wrong(operands, "operand", op.operands.size());
    }
    size_t outputs = results[match - operands.begin()];
    if (numResults != outputs) {
      return wrong({outputs}, "result", numResults);
    }
  }
  if (!op.acc.empty() && op.acc.size() != numResults) {
    return error(op.loc) << counted(op.acc.size(), "running gradient")
                         << " in acc[...] for "
                         << counted(numResults, "result");
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

static bool startsOperand(const Token &token) {
  return token.is(TokenKind::Value) || token.is(TokenKind::Symbol) ||
         token.is(TokenKind::Underscore) || token.isWord("type");
}

/// operands ::= operand (`,` operand)*
bool Parser::parseOperands(Scope &scope, Operation &op) {
  if (!startsOperand(token) || token.startsLine) {
    return true;
  }
  do {
    if (!parseOperand(scope, op.operands.emplace_back(), op)) {
      return false;
    }
  } while (consumeIf(TokenKind::Comma));
  bool commaMissing = startsOperand(token) && !token.startsLine;
  return !commaMissing || expected("',' between operands");
}

/// call ::= symbol `(` operands? `)`
bool Parser::parseCallOperands(Scope &scope, Operation &op) {
  bool isStack = op.is(OpKind::Stack);
  StringRef name = token.text;
  Location loc = here();
  if (!expect(TokenKind::Symbol, isStack ? "a stack, such as @layers"
                                         : "a function, such as @forward") ||
      !expect(TokenKind::LParen, "'(' and the operands")) {
    return false;
  }
  op.symbol = module->intern(name);
  pending.push_back({isStack ? Pending::StackSymbol : Pending::FunctionSymbol,
                     op.symbol, loc});
  return parseOperands(scope, op) &&
         expect(TokenKind::RParen, "',' or ')' after the operands");
}

/// bundle: the common prefix of parameters that are unsharded together; `@*` in
/// a template are its own
bool Parser::parseBundlePrefix(Scope &scope, Operation &op) {
  if (!token.is(TokenKind::Bundle)) {
    return expected("the parameters to unshard, such as @layers.0.*");
  }
  if (token.text.empty()) {
    if (!scope.templateParams) {
      return error(here()) << "'@*' are the parameters of a block, and this is "
                              "none; name their prefix, as @norm.*";
    }
    advance();
    return true;
  }
  if (scope.sortedParams.empty()) {
    scope.sortedParams = paramNames(scope, "");
  }
  llvm::SmallString<128> prefix(token.text);
  prefix += '.';
  auto it = llvm::lower_bound(scope.sortedParams, StringRef(prefix));
  if (it == scope.sortedParams.end() || !it->starts_with(prefix)) {
    return error(here()) << "no parameter is named '@" << token.text << ".*'";
  }
  op.symbol = module->intern(token.text);
  advance();
  return true;
}

/// operand ::= `_` | `type` `(` reference `)` | reference
bool Parser::parseOperand(Scope &scope, Operand &operand, const Operation &op) {
  if (consumeIf(TokenKind::Underscore)) {
    return true;
  }
  if (!consumeWord("type")) {
    return parseReference(scope, operand, op);
  }
  operand.typeOnly = true;
  return expect(TokenKind::LParen, "'(' after 'type'") &&
         parseReference(scope, operand, op) &&
         expect(TokenKind::RParen, "')' after 'type('");
}

/// reference ::= value | symbol | value symbol
///
/// The last names a parameter of an unsharded bundle, relative to its prefix.
bool Parser::parseReference(Scope &scope, Operand &operand,
                            const Operation &op) {
  StringRef name = token.text;
  Location loc = here();
  if (consumeIf(TokenKind::Symbol)) {
    return findParam(scope, name, loc, operand.param);
  }
  if (!expect(TokenKind::Value, "an operand: %value, @parameter, type(...) "
                                "or _")) {
    return false;
  }
  Entry *entry = findValue(scope, name, loc);
  if (!entry) {
    return false;
  }
  operand.value = entry->value;
  bool isBundle = entry->value->isBundle() && !entry->broken;
  StringRef paramName = token.text;
  Location paramLoc = here();
  if (!token.startsLine && consumeIf(TokenKind::Symbol)) {
    if (entry->broken) {
      return true;
    }
    if (!isBundle) {
      return error(loc).note(entry->value->loc, "defined here")
             << "'%" << name << "' is a value, not a bundle of parameters";
    }
    return findBundleParam(scope, *entry->value, paramName, paramLoc,
                           operand.param);
  }
  if (isBundle != op.is(OpKind::FsdpReshard) && !op.is(OpKind::Wait) &&
      !entry->broken) {
    InFlightDiagnostic report = error(loc);
    report.note(entry->value->loc, "defined here");
    if (isBundle) {
      report << "'%" << name << "' is a bundle; name one of its parameters: %"
             << name << "@...";
    } else {
      report << "'%" << name << "' is not a bundle of fsdp.unshard";
    }
    return report;
  }
  return true;
}

/// acc ::= `acc` `[` operand (`,` operand)* `]`
bool Parser::parseRunningGradients(Scope &scope, Operation &op) {
  if (!token.isWord("acc") || token.startsLine) {
    return true;
  }
  if (!op.backward) {
    return error(here()) << "'" << op.spelling()
                         << "' is no backward operation and has no acc[...]";
  }
  advance();
  if (!expect(TokenKind::LSquare, "'[' after 'acc'")) {
    return false;
  }
  do {
    Operand &operand = op.acc.emplace_back();
    if (!token.is(TokenKind::Value) && !token.is(TokenKind::Underscore)) {
      return expected("a running gradient: %value or _");
    }
    if (!parseOperand(scope, operand, op)) {
      return false;
    }
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::RSquare, "',' or ']' after the running gradient");
}
