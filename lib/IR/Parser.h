//===- Parser.h - From text to a Module -------------------------*- C++ -*-===//
//
// A recursive-descent parser that resolves as it reads: a name is looked up
// where it stands, so a module that comes out has no dangling reference. What
// it cannot know at that place (a stack's templates, the function of a call) is
// kept in `pending` and resolved at the end.
//
//   Parser.cpp            tokens, the module, blocks and functions
//   ParserMembers.cpp     mesh, dims, ties, parameters, stacks
//   ParserTypes.cpp       types, axes, extents
//   ParserAttributes.cpp  attributes, locations
//   ParserOps.cpp         operations
//   ParserNames.cpp       what the names of a body stand for
//
// Functions that read something return false (or nothing) after they have
// reported why. Within a body the parser then goes on with the next line.
//
//===----------------------------------------------------------------------===//

#ifndef HP_LIB_IR_PARSER_H
#define HP_LIB_IR_PARSER_H

#include "Lexer.h"
#include "hp/IR/Module.h"

namespace hp {

class Parser {
public:
  Parser(llvm::StringRef text, llvm::StringRef file, DiagnosticEngine &diag);

  /// Null after an error.
  std::unique_ptr<Module> parse();

private:
  //--- Names in sight ---------------------------------------------------------
  using ParamTable = llvm::StringMap<Param *>;

  /// What a value's name stands for.
  struct Entry {
    Value *value = nullptr;
    bool closed = false; ///< a bundle after its fsdp.reshard: name free again
    bool broken = false; ///< its line had an error; uses are not complained of
  };

  /// A body being read.
  struct Scope {
    Block *block = nullptr;
    const ParamTable *templateParams = nullptr; ///< null in a function
    llvm::StringMap<Entry, llvm::BumpPtrAllocator> values;
    /// Names of the parameters in sight, made when a bundle first asks.
    llvm::SmallVector<llvm::StringRef> sortedParams;
  };

  /// A symbol used before what it names may have been read.
  struct Pending {
    enum Kind { BlockSymbol, StackSymbol, FunctionSymbol, ParamSymbol } kind;
    llvm::StringRef name;
    Location loc;
  };

  //--- Tokens (Parser.cpp) ----------------------------------------------------
  void advance() {
    previousEnd = {file, token.line,
                   token.column + unsigned(token.end - token.begin)};
    token = lexer.next();
  }
  Location here() const { return lexer.location(token); }
  bool consumeIf(TokenKind kind) {
    if (!token.is(kind)) {
      return false;
    }
    advance();
    return true;
  }
  bool consumeWord(llvm::StringRef word);
  /// Reads a token of `kind`; `what` says in an error what was expected.
  bool expect(TokenKind kind, const char *what) {
    return consumeIf(kind) || expected(what);
  }
  InFlightDiagnostic error(Location loc);
  /// "expected <what>" at the current token, or at the end of the line before
  /// it; nothing where the lexer has complained already. Returns false.
  bool expected(const llvm::Twine &what);
  /// "unknown <kind> '<sigil><name>'", with a suggestion.
  bool unknown(Location loc, llvm::StringRef kind, llvm::StringRef name,
               llvm::ArrayRef<llvm::StringRef> candidates,
               llvm::StringRef sigil = "");
  /// "redefinition of <what>", with a note at `previous`.
  bool redefinition(Location loc, const llvm::Twine &what, Location previous);
  /// Whether to stop reading.
  bool tooManyErrors() const { return errorCount() >= maxErrors; }
  unsigned errorCount() const { return errors + lexer.errorCount(); }
  /// Skips to the first line after `line`.
  void recover(unsigned line);
  /// Skips the body of a template or function whose first line is broken.
  void skipBody();

  //--- The module (Parser.cpp) ------------------------------------------------
  bool parseModule();
  bool parseModuleBody();
  /// Reads what follows the member's keyword, which stands at `loc`.
  bool parseMember(llvm::StringRef keyword, Location loc);
  bool parseBlockTemplate(Location loc);
  bool parseFunction(Location loc);
  bool parseArguments(Scope &scope);
  bool parseBody(Scope &scope, BlockTemplate *owner, ParamTable *params);
  bool resolvePending();
  bool checkTies();

  //--- Members of one line (ParserMembers.cpp) --------------------------------
  bool parseMesh(Location loc);
  bool parseAlias(Location loc);
  bool parseDim(Location loc);
  bool parseTie(Location loc);
  bool parseStack(Location loc);
  bool parseStackGroup(StackGroup &group);
  bool parseCount(int64_t &count);
  Param *parseParam(Location loc, ParamTable &table);
  bool parseDeclaredShard(const Attribute &value, Location loc, Param &param);

  //--- Types (ParserTypes.cpp) ------------------------------------------------
  bool parseType(Type &type);
  bool parseTypeData(TypeData &data);
  bool parseTypeDim(Dim &dim);
  bool parseSegment(Segment &segment);
  bool parseExtent(int64_t &extent);
  bool parseStates(TypeData &data);
  bool parseStore(TypeData &data);
  bool parseAxis(AxisList &axes);
  llvm::SmallVector<llvm::StringRef, 16> axisNames() const;
  /// The axes between parentheses, to the closing one.
  bool parseAxesInParens(AxisList &axes);
  /// The axes after `@`.
  bool parseAxesSuffix(AxisList &axes);
  /// Refuses axes that occur twice or are too many.
  bool checkDistinct(llvm::ArrayRef<AxisId> axes, Location loc);
  llvm::StringRef typeSlice() const;
  struct UnknownAxis {
    Location loc;
    llvm::StringRef name;
  };
  /// While a type is read: its axes that are none, to be told with what else is
  /// wrong with it.
  llvm::SmallVectorImpl<UnknownAxis> *unknownAxesOfType = nullptr;

  //--- Attributes (ParserAttributes.cpp) --------------------------------------
  bool parseAttributeDict(AttributeList &attrs);
  bool parseAttributeValue(Attribute &value, unsigned depth = 0);
  bool parseInteger(int64_t &value);
  bool parseFloat(double &value);
  bool parseOperationAttributes(Operation &op);
  bool expectedAxes(const Operation &op);
  bool parseAxesAttribute(Operation &op);
  bool parseNamedAttribute(Operation &op);
  bool checkAttributeKind(const AttributeSpec &spec, const Attribute &value,
                          Location loc);
  bool checkRequiredAttributes(const Operation &op);
  /// `loc(...)` if there is one; else leaves `loc` alone.
  bool parseOptionalLocation(Location &loc, bool *given = nullptr);

  //--- Operations (ParserOps.cpp) ---------------------------------------------
  struct ResultName {
    llvm::StringRef name; ///< empty for `_`
    Location loc;
  };
  using ResultNames = llvm::SmallVector<ResultName, 4>;

  bool parseOperation(Scope &scope);
  bool parseResultNames(ResultNames &results);
  bool parseOpName(OpKind &kind, bool &backward);
  /// All behind the operation's name.
  bool parseOpTail(Scope &scope, Operation &op, const ResultNames &names);
  bool parseOperands(Scope &scope, Operation &op);
  bool parseCallOperands(Scope &scope, Operation &op);
  bool parseBundlePrefix(Scope &scope, Operation &op);
  bool parseOperand(Scope &scope, Operand &operand, const Operation &op);
  bool parseReference(Scope &scope, Operand &operand, const Operation &op);
  bool parseRunningGradients(Scope &scope, Operation &op);
  bool parseResultTypes(Operation &op, const ResultNames &names,
                        llvm::SmallVectorImpl<Type> &types);
  bool checkCounts(const Operation &op, size_t numResults);

  //--- Names (ParserNames.cpp) ------------------------------------------------
  bool define(Scope &scope, Value *value);
  /// Enters the results of a line with an error, so that their uses pass.
  void defineBroken(Scope &scope, const ResultNames &names);
  Entry *findValue(Scope &scope, llvm::StringRef name, Location loc);
  /// The parameter, in the template first; reports where there is none. A
  /// null `param` with true is one whose line had an error.
  bool findParam(const Scope &scope, llvm::StringRef name, Location loc,
                 Param *&param);
  bool findBundleParam(const Scope &scope, const Value &bundle,
                       llvm::StringRef name, Location loc, Param *&param);
  /// The parameters in sight, or those of a bundle relative to its prefix.
  llvm::SmallVector<llvm::StringRef> paramNames(const Scope &scope,
                                                llvm::StringRef prefix) const;
  bool lookup(const Scope &scope, llvm::StringRef name, Param *&param) const;

  static constexpr unsigned maxErrors = 20;

  DiagnosticEngine &diag;
  const char *file; ///< interned
  Lexer lexer;
  Token token;
  Location previousEnd;       ///< behind the last token that was read
  unsigned statementLine = 0; ///< where the member or operation began
  unsigned errors = 0;
  std::unique_ptr<Module> module;
  ParamTable params; ///< of the module; null where the line had an error
  llvm::StringMap<Location> stackNames, blockNames, functionNames;
  std::vector<Pending> pending;
  /// Types by their text, as a step has few and names them often.
  llvm::StringMap<Type> typeCache;
  const char *locationFile = nullptr; ///< of the last `loc(...)`
};

} // namespace hp

#endif // HP_LIB_IR_PARSER_H
