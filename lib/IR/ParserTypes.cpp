//===- ParserTypes.cpp - Reading types, axes and extents ------------------===//

#include "Parser.h"
#include "hp/IR/Verifier.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

// Limits of form, far beyond any real type.
static constexpr size_t maxRank = 16;
static constexpr size_t maxSegments = 64;
static constexpr size_t maxFactors = 8;
static constexpr int64_t maxExtent = int64_t(1) << 62;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

/// The text of the type that starts at the current token, if it is spelled as
/// the printer spells it and nothing behind it could belong to it; else empty.
/// Such a text has one meaning in a module, so that its Type is looked up and
/// not read again.
StringRef Parser::typeSlice() const {
  constexpr size_t maxLength = 512;
  const char *begin = token.begin;
  StringRef rest(begin, std::min<size_t>(maxLength, lexer.textEnd() - begin));
  rest = rest.take_until([](char c) { return c == '\n' || c == '/'; });
  size_t end = rest.find(']');
  if (end == StringRef::npos) {
    return {};
  }
  StringRef tail = rest.drop_front(end + 1);
  if (tail.starts_with("{repl: ") || tail.starts_with("{partial: ")) {
    size_t states = tail.find('}');
    if (states == StringRef::npos) {
      return {};
    }
    tail = tail.drop_front(states + 1);
  }
  StringRef slice = rest.drop_back(tail.size());
  tail = tail.ltrim(" \t\r");
  // A second part of states or storage may follow only as printed above.
  if (tail.starts_with("{") || tail.starts_with("store")) {
    return {};
  }
  return slice;
}

/// type  ::= dtype `[` (dim (`,` dim)*)? `]` states? store?
/// dtype ::= `bool` | `i64` | `bf16` | `f32` | `f64`
bool Parser::parseType(Type &type) {
  bool onNextLine = token.startsLine && !parseDType(token.text);
  if (!token.is(TokenKind::Word) || onNextLine) {
    return expected("a type, such as f32[B, S, 256]");
  }
  StringRef slice = typeSlice();
  if (!slice.empty()) {
    auto it = typeCache.find(slice);
    if (it != typeCache.end()) {
      type = it->second;
      lexer.jumpTo(slice.end());
      token.end = slice.end();
      advance();
      return true;
    }
  }
  Location loc = here();
  TypeData data;
  llvm::SmallVector<UnknownAxis, 1> unknownAxes;
  unknownAxesOfType = &unknownAxes;
  bool read = parseTypeData(data);
  unknownAxesOfType = nullptr;
  if (!read) {
    return false;
  }
  std::string faults = checkType(data, module->mesh);
  if (unknownAxes.size() == 1 && faults.empty()) {
    return unknown(unknownAxes[0].loc, "axis", unknownAxes[0].name,
                   axisNames());
  }
  for (const UnknownAxis &axis : llvm::reverse(unknownAxes)) {
    faults = ("unknown axis '" + axis.name + "'").str() +
             (faults.empty() ? "" : "; ") + faults;
  }
  if (!faults.empty()) {
    return error(loc) << faults;
  }
  type = module->type(data);
  if (!slice.empty()) {
    typeCache[slice] = type;
  }
  return true;
}

bool Parser::parseTypeData(TypeData &data) {
  static constexpr StringRef dtypes[] = {"bool", "i64", "bf16", "f32", "f64"};
  std::optional<DType> dtype = parseDType(token.text);
  if (!dtype) {
    return unknown(here(), "element type", token.text, dtypes);
  }
  data.dtype = *dtype;
  advance();
  if (!expect(TokenKind::LSquare, "'[' after the element type")) {
    return false;
  }
  if (!consumeIf(TokenKind::RSquare)) {
    do {
      if (data.dims.size() == maxRank) {
        return error(here()) << "a type has at most " << maxRank << " dims";
      }
      if (!parseTypeDim(data.dims.emplace_back())) {
        return false;
      }
    } while (consumeIf(TokenKind::Comma));
    if (!expect(TokenKind::RSquare, "',' or ']' in the dims")) {
      return false;
    }
  }
  return parseStates(data) && parseStore(data);
}

/// dim    ::= extent (`@` axes)?
/// extent ::= segment | `(` segment (`|` segment)* `)`
bool Parser::parseTypeDim(Dim &dim) {
  if (consumeIf(TokenKind::LParen)) {
    do {
      if (dim.segments.size() == maxSegments) {
        return error(here())
               << "a dim has at most " << maxSegments << " segments";
      }
      if (!parseSegment(dim.segments.emplace_back())) {
        return false;
      }
    } while (consumeIf(TokenKind::Pipe));
    if (!expect(TokenKind::RParen, "'*', '|' or ')' in the dim")) {
      return false;
    }
  } else if (!parseSegment(dim.segments.emplace_back())) {
    return false;
  }
  bool cut = token.is(TokenKind::Symbol) || token.is(TokenKind::At);
  return !cut || parseAxesSuffix(dim.axes);
}

/// segment ::= word | (word `=`)? integer (`*` integer)*
///
/// A word alone is a declared dim.
bool Parser::parseSegment(Segment &segment) {
  if (token.is(TokenKind::Word)) {
    segment.name = token.text;
    Location loc = here();
    advance();
    if (!consumeIf(TokenKind::Equal)) {
      if (const DimDecl *dim = module->findDim(segment.name)) {
        segment.factors.push_back(dim->size);
        return true;
      }
      llvm::SmallVector<StringRef, 8> names;
      for (const DimDecl &dim : module->dims) {
        names.push_back(dim.name);
      }
      return unknown(loc, "dim", segment.name, names);
    }
  }
  do {
    int64_t extent = 0;
    if (segment.factors.size() == maxFactors) {
      return error(here()) << "a dim is a product of at most " << maxFactors
                           << " factors";
    }
    if (!parseExtent(extent)) {
      return false;
    }
    segment.factors.push_back(extent);
  } while (consumeIf(TokenKind::Star));
  return true;
}

bool Parser::parseExtent(int64_t &extent) {
  if (!token.is(TokenKind::Integer)) {
    return expected("an extent: a whole number from 1 on");
  }
  if (token.text.getAsInteger(10, extent) || extent < 1 || extent > maxExtent) {
    return error(here()) << "extent " << token.text.take_front(40)
                         << " is out of range; it is from 1 to 2^62";
  }
  advance();
  return true;
}

/// states ::= `{` state (`;` state)* `}`
/// state  ::= (`repl` | `partial`) `:` axis (`,` axis)*
///
/// On the line of the type.
bool Parser::parseStates(TypeData &data) {
  // Braces with `name =` in them belong to what the type stands in.
  StringRef rest(token.end, lexer.textEnd() - token.end);
  rest = rest.take_front(64).ltrim(" \t").drop_while(llvm::isAlpha);
  if (!token.is(TokenKind::LBrace) || token.startsLine ||
      !rest.ltrim(" \t").starts_with(":")) {
    return true;
  }
  advance();
  bool seen[2] = {false, false};
  do {
    bool partial = token.isWord("partial");
    if (!partial && !token.isWord("repl")) {
      return expected("'repl' or 'partial'");
    }
    if (seen[partial]) {
      return error(here()) << "second '" << token.text << "' in one type";
    }
    seen[partial] = true;
    advance();
    if (!expect(TokenKind::Colon, "':' after the state")) {
      return false;
    }
    AxisList axes;
    Location loc = here();
    do {
      if (!parseAxis(axes)) {
        return false;
      }
    } while (consumeIf(TokenKind::Comma));
    if (!checkDistinct(axes, loc)) {
      return false;
    }
    (partial ? data.partial : data.repl) = AxisSet(axes);
  } while (consumeIf(TokenKind::Semicolon));
  return expect(TokenKind::RBrace, "',', ';' or '}' in the states");
}

/// store ::= `store` `=` dtype `@` axes `~`?
///
/// On the line of the type.
bool Parser::parseStore(TypeData &data) {
  if (!token.isWord("store") || token.startsLine) {
    return true;
  }
  advance();
  if (!expect(TokenKind::Equal, "'=' after 'store'")) {
    return false;
  }
  if (!token.is(TokenKind::Word)) {
    return expected("the element type of the storage");
  }
  std::optional<DType> dtype = parseDType(token.text);
  if (!dtype) {
    return unknown(here(), "element type", token.text,
                   {"bool", "i64", "bf16", "f32", "f64"});
  }
  data.store.emplace();
  data.store->dtype = *dtype;
  advance();
  if (!token.is(TokenKind::Symbol) && !token.is(TokenKind::At)) {
    return expected("'@' and the axes of the storage");
  }
  if (!parseAxesSuffix(data.store->axes)) {
    return false;
  }
  data.store->uneven = consumeIf(TokenKind::Tilde);
  return true;
}

//===----------------------------------------------------------------------===//
// Axes
//===----------------------------------------------------------------------===//

llvm::SmallVector<StringRef, 16> Parser::axisNames() const {
  llvm::SmallVector<StringRef, 16> names;
  for (const MeshAxis &axis : module->mesh.axes()) {
    names.push_back(axis.name);
  }
  for (const AxisAlias &alias : module->mesh.aliases()) {
    names.push_back(alias.name);
  }
  return names;
}

/// axis ::= word
///
/// Of the mesh, or a name for several of its axes.
bool Parser::parseAxis(AxisList &axes) {
  if (!token.is(TokenKind::Word) && !token.is(TokenKind::Symbol)) {
    return expected("the name of an axis");
  }
  std::optional<AxisList> found = module->mesh.lookup(token.text);
  if (!found && unknownAxesOfType) {
    unknownAxesOfType->push_back({here(), token.text});
    advance();
    return true;
  }
  if (!found) {
    return unknown(here(), "axis", token.text, axisNames());
  }
  if (axes.size() + found->size() > 2 * Mesh::maxAxes) {
    return error(here()) << "more than " << 2 * Mesh::maxAxes << " axes";
  }
  axes.append(*found);
  advance();
  return true;
}

bool Parser::parseAxesInParens(AxisList &axes) {
  Location loc = here();
  do {
    if (token.is(TokenKind::Symbol)) {
      return expected("the name of an axis");
    }
    if (!parseAxis(axes)) {
      return false;
    }
  } while (consumeIf(TokenKind::Comma));
  // Of a type, checkType tells along with all else.
  return (unknownAxesOfType || checkDistinct(axes, loc)) &&
         expect(TokenKind::RParen, "',' or ')' in the axes");
}

/// axes ::= axis | `(` axis (`,` axis)* `)`
bool Parser::parseAxesSuffix(AxisList &axes) {
  if (token.is(TokenKind::Symbol)) {
    return parseAxis(axes);
  }
  return expect(TokenKind::At, "'@' and axes") &&
         expect(TokenKind::LParen, "an axis or '(' after '@'") &&
         parseAxesInParens(axes);
}

bool Parser::checkDistinct(llvm::ArrayRef<AxisId> axes, Location loc) {
  AxisSet seen;
  for (AxisId axis : axes) {
    if (seen.contains(axis)) {
      return error(loc) << "axis '" << module->mesh.name(axis)
                        << "' occurs twice";
    }
    seen.insert(axis);
  }
  return true;
}
