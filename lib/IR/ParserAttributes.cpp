//===- ParserAttributes.cpp - Reading attributes and locations ------------===//

#include "Parser.h"
#include <charconv>
#include <limits>

using namespace hp;
using llvm::StringRef;

/// Deeper lists are refused; nothing real nests more than once.
static constexpr unsigned maxDepth = 32;
/// More attributes in one pair of braces are refused.
static constexpr size_t maxAttributes = 1024;

//===----------------------------------------------------------------------===//
// Values
//===----------------------------------------------------------------------===//

bool Parser::parseInteger(int64_t &value) {
  if (!token.is(TokenKind::Integer)) {
    return expected("an integer");
  }
  if (token.text.getAsInteger(10, value)) {
    return error(here()) << "integer " << token.text.take_front(40)
                         << " does not fit 64 bits";
  }
  advance();
  return true;
}

/// A float token, or the word `inf` or `nan`.
bool Parser::parseFloat(double &value) {
  StringRef text = token.text;
  bool negative = text.consume_front("-");
  if (text == "inf") {
    value = std::numeric_limits<double>::infinity();
  } else if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (std::from_chars(text.begin(), text.end(), value).ec !=
             std::errc()) {
    return error(here()) << "float " << token.text.take_front(40)
                         << " is out of range";
  }
  value = negative ? -value : value;
  advance();
  return true;
}

/// attr-value ::= integer | float | string | word | `true` | `false`
///              | `(` axis (`,` axis)* `)`
///              | `[` (attr-value (`,` attr-value)*)? `]`
bool Parser::parseAttributeValue(Attribute &value, unsigned depth) {
  switch (token.kind) {
  case TokenKind::Integer:
    return parseInteger(value.value.emplace<int64_t>());
  case TokenKind::Float:
    return parseFloat(value.value.emplace<double>());
  case TokenKind::String:
    value.value = unescape(token.text);
    advance();
    return true;
  case TokenKind::Word:
    if (token.text == "inf" || token.text == "nan") {
      return parseFloat(value.value.emplace<double>());
    }
    if (token.text == "true" || token.text == "false") {
      value.value = token.text == "true";
    } else {
      value.value = Word{token.text.str()};
    }
    advance();
    return true;
  case TokenKind::LParen:
    advance();
    return parseAxesInParens(value.value.emplace<AxisList>());
  case TokenKind::LSquare: {
    if (depth == maxDepth) {
      return error(here()) << "lists nested deeper than " << maxDepth;
    }
    advance();
    auto &list = value.value.emplace<Attribute::List>();
    if (consumeIf(TokenKind::RSquare)) {
      return true;
    }
    do {
      if (!parseAttributeValue(list.emplace_back(), depth + 1)) {
        return false;
      }
    } while (consumeIf(TokenKind::Comma));
    return expect(TokenKind::RSquare, "',' or ']' in the list");
  }
  default:
    return expected("a value: a number, a string, a word, (axes) or [list]");
  }
}

/// attrs ::= `{` (attr (`,` attr)*)? `}`
/// attr  ::= word (`=` attr-value)?
bool Parser::parseAttributeDict(AttributeList &attrs) {
  if (!expect(TokenKind::LBrace, "'{' and attributes")) {
    return false;
  }
  if (consumeIf(TokenKind::RBrace)) {
    return true;
  }
  do {
    StringRef name = token.text;
    Location loc = here();
    if (!expect(TokenKind::Word, "the name of an attribute")) {
      return false;
    }
    if (attrs.find(name)) {
      return error(loc) << "second '" << name << "' in one pair of braces";
    }
    if (attrs.entries().size() == maxAttributes) {
      return error(loc) << "more than " << maxAttributes
                        << " attributes in one pair of braces";
    }
    Attribute value{true};
    if (consumeIf(TokenKind::Equal) && !parseAttributeValue(value)) {
      return false;
    }
    attrs.set(module->intern(name), std::move(value));
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::RBrace, "',' or '}' after the attribute");
}

//===----------------------------------------------------------------------===//
// Attributes of operations
//===----------------------------------------------------------------------===//

/// op-attrs ::= `{` ((axes-attr | attr) (`,` attr)*)? `}`
bool Parser::parseOperationAttributes(Operation &op) {
  bool hasAxes = op.info().findAttribute("axes") != nullptr;
  if (!consumeIf(TokenKind::LBrace)) {
    return hasAxes ? expectedAxes(op) : checkRequiredAttributes(op);
  }
  if (!hasAxes && consumeIf(TokenKind::RBrace)) {
    return checkRequiredAttributes(op);
  }
  if (hasAxes) {
    if (!parseAxesAttribute(op)) {
      return false;
    }
    if (!consumeIf(TokenKind::Comma)) {
      return expect(TokenKind::RBrace, "',' or '}' after the axes") &&
             checkRequiredAttributes(op);
    }
  }
  do {
    if (!parseNamedAttribute(op)) {
      return false;
    }
  } while (consumeIf(TokenKind::Comma));
  return expect(TokenKind::RBrace, "',' or '}' after the attribute") &&
         checkRequiredAttributes(op);
}

bool Parser::expectedAxes(const Operation &op) {
  bool hasDim = op.info().findAttribute("dim") != nullptr;
  StringRef shape = op.kind == OpKind::AllToAll ? "{tp: S->h}"
                    : hasDim                    ? "{tp: S}"
                                                : "{tp}";
  return expected("the axes of '" + op.spelling() + "' in the form " + shape);
}

/// axes-attr ::= axes (`:` word (`->` word)?)?
///
/// The dim is there where the table has it, the arrow for all_to_all.
bool Parser::parseAxesAttribute(Operation &op) {
  bool hasDim = op.info().findAttribute("dim") != nullptr;
  bool moves = op.kind == OpKind::AllToAll;
  auto readDim = [&](StringRef &dim) {
    if (!token.is(TokenKind::Word)) {
      return expectedAxes(op);
    }
    dim = module->intern(token.text);
    advance();
    return true;
  };
  if (consumeIf(TokenKind::LParen)) {
    if (!parseAxesInParens(op.axes)) {
      return false;
    }
  } else if (!token.is(TokenKind::Word) ||
             (op.info().findAttribute(token.text) &&
              !module->mesh.lookup(token.text))) {
    return expectedAxes(op);
  } else if (!parseAxis(op.axes)) {
    return false;
  }
  if (!hasDim) {
    return token.is(TokenKind::Colon) ? expectedAxes(op) : true;
  }
  if (!consumeIf(TokenKind::Colon)) {
    return expectedAxes(op);
  }
  if (!readDim(op.dim)) {
    return false;
  }
  if (moves != token.is(TokenKind::Arrow)) {
    return expectedAxes(op);
  }
  return !consumeIf(TokenKind::Arrow) || readDim(op.toDim);
}

/// attr, of a name that the table has
bool Parser::parseNamedAttribute(Operation &op) {
  StringRef name = token.text;
  Location loc = here();
  if (!expect(TokenKind::Word, "the name of an attribute")) {
    return false;
  }
  const AttributeSpec *spec = op.info().findAttribute(name);
  if (!spec || name == "axes" || name == "dim") {
    InFlightDiagnostic report = error(loc);
    report << "'" << op.spelling() << "' has no attribute '" << name << "'";
    llvm::SmallVector<StringRef, 4> names;
    for (const AttributeSpec &known : op.info().attributes) {
      names.push_back(known.name);
    }
    StringRef near = didYouMean(name, names);
    if (!op.axes.empty() && module->mesh.lookup(name)) {
      report.note({}, "several axes are written as one group: (a,b)");
    } else if (!near.empty()) {
      report.note({}, "did you mean '" + near + "'?");
    }
    return false;
  }
  bool isParam = op.kind == OpKind::ReduceGrad && name == "param";
  if (op.attrs.find(name) || (isParam && !op.symbol.empty())) {
    return error(loc) << "second '" << name << "' in one pair of braces";
  }
  Attribute value{true};
  Location valueLoc = loc;
  if (consumeIf(TokenKind::Equal)) {
    valueLoc = here();
    if (!parseAttributeValue(value)) {
      return false;
    }
  }
  if (!checkAttributeKind(*spec, value, valueLoc)) {
    return false;
  }
  if (!isParam) {
    op.attrs.set(module->intern(name), std::move(value));
    return true;
  }
  const Word *word = value.get<Word>();
  op.symbol = module->intern(word ? word->text : *value.get<std::string>());
  pending.push_back({Pending::ParamSymbol, op.symbol, valueLoc});
  return true;
}

bool Parser::checkAttributeKind(const AttributeSpec &spec,
                                const Attribute &value, Location loc) {
  bool fits = false;
  StringRef what;
  switch (spec.kind) {
  case 'i':
    fits = value.get<int64_t>();
    what = "an integer, such as 4";
    break;
  case 'f':
    fits = value.get<double>();
    what = "a float, such as 1.0 or 1e-06";
    break;
  case 'b':
    fits = value.get<bool>();
    what = "no value: it is a flag";
    break;
  case 'w':
    fits =
        value.get<Word>() || (spec.name == "param" && value.get<std::string>());
    what = "a word";
    break;
  case 'a':
    fits = value.get<AxisList>();
    what = "axes, such as (dp,cp)";
    break;
  default:
    break;
  }
  return fits || error(loc) << "'" << spec.name << "' takes " << what;
}

bool Parser::checkRequiredAttributes(const Operation &op) {
  for (const AttributeSpec &spec : op.info().attributes) {
    bool isParam = op.kind == OpKind::ReduceGrad && spec.name == "param";
    bool given = spec.name == "axes"  ? !op.axes.empty()
                 : spec.name == "dim" ? !op.dim.empty()
                 : isParam            ? !op.symbol.empty()
                                      : op.attrs.find(spec.name) != nullptr;
    if (!given && !spec.optional) {
      return error(op.loc) << "'" << op.spelling() << "' needs the attribute '"
                           << spec.name << "'";
    }
  }
  return true;
}

//===----------------------------------------------------------------------===//
// Locations
//===----------------------------------------------------------------------===//

/// loc ::= `loc` `(` (string `:` integer `:` integer | `unknown`) `)`
bool Parser::parseOptionalLocation(Location &loc, bool *given) {
  if (!token.isWord("loc") || token.startsLine) {
    return true;
  }
  advance();
  if (given) {
    *given = true;
  }
  if (!expect(TokenKind::LParen, "'(' after 'loc'")) {
    return false;
  }
  if (consumeWord("unknown")) {
    loc = {};
    return expect(TokenKind::RParen, "')' after the location");
  }
  if (!token.is(TokenKind::String)) {
    return expected("a file name in quotes, or 'unknown'");
  }
  std::string name = unescape(token.text);
  if (!locationFile || name != locationFile) {
    locationFile = diag.location(name, 0, 0).file;
  }
  loc.file = locationFile;
  advance();
  for (unsigned *number : {&loc.line, &loc.column}) {
    if (!expect(TokenKind::Colon, "':' and a number in the location")) {
      return false;
    }
    if (!token.is(TokenKind::Integer) || token.text.getAsInteger(10, *number)) {
      return expected("a line or column, from 0 to 2^32 - 1");
    }
    advance();
  }
  return expect(TokenKind::RParen, "')' after the location");
}
