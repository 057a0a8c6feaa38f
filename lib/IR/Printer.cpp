//===- Printer.cpp - Writing modules --------------------------------------===//
//
// The inverse of the parser: what is written here reads back to the same
// module, and that prints to the same bytes.
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"
#include "hp/IR/Text.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::raw_ostream;
using llvm::StringRef;

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

static void printSegment(const Segment &segment, const Module &module,
                         raw_ostream &os) {
  if (!segment.name.empty()) {
    const DimDecl *decl = module.findDim(segment.name);
    os << segment.name;
    if (decl && segment.factors.size() == 1 &&
        segment.factors[0] == decl->size) {
      return;
    }
    os << '=';
  }
  llvm::ListSeparator star("*");
  for (int64_t factor : segment.factors) {
    os << star << factor;
  }
}

static void printDim(const Dim &dim, const Module &module, raw_ostream &os) {
  bool parens = dim.isSegmented() ||
                (!dim.segments.empty() && dim.segments[0].factors.size() > 1);
  os << (parens ? "(" : "");
  llvm::ListSeparator bar(" | ");
  for (const Segment &segment : dim.segments) {
    os << bar;
    printSegment(segment, module, os);
  }
  os << (parens ? ")" : "");
  if (!dim.axes.empty()) {
    os << '@';
    module.mesh.printGroup(os, dim.axes);
  }
}

static void printType(Type type, const Module &module, raw_ostream &os) {
  os << name(type.dtype()) << '[';
  llvm::ListSeparator comma;
  for (const Dim &dim : type.dims()) {
    os << comma;
    printDim(dim, module, os);
  }
  os << ']';
  if (!type->repl.empty() || !type->partial.empty()) {
    os << '{';
    if (!type->repl.empty()) {
      os << "repl: ";
      module.mesh.print(os, type->repl.list());
    }
    os << (type->repl.empty() || type->partial.empty() ? "" : "; ");
    if (!type->partial.empty()) {
      os << "partial: ";
      module.mesh.print(os, type->partial.list());
    }
    os << '}';
  }
  if (type->store) {
    os << " store=" << name(type->store->dtype) << '@';
    module.mesh.printGroup(os, type->store->axes);
    os << (type->store->uneven ? "~" : "");
  }
}

//===----------------------------------------------------------------------===//
// Attributes, locations, operands
//===----------------------------------------------------------------------===//

static void printValue(const Attribute &attribute, const Mesh &mesh,
                       raw_ostream &os) {
  if (const auto *flag = attribute.get<bool>()) {
    os << (*flag ? "true" : "false");
  } else if (const auto *integer = attribute.get<int64_t>()) {
    os << *integer;
  } else if (const auto *real = attribute.get<double>()) {
    os << floatText(*real);
  } else if (const auto *text = attribute.get<std::string>()) {
    printQuoted(*text, os);
  } else if (const auto *word = attribute.get<Word>()) {
    // A word that would read as something else goes out as a string.
    static constexpr StringRef taken[] = {"true", "false", "inf", "nan"};
    if (isWord(word->text) && !llvm::is_contained(taken, word->text)) {
      os << word->text;
    } else {
      printQuoted(word->text, os);
    }
  } else if (const auto *axes = attribute.get<AxisList>()) {
    os << '(';
    mesh.print(os, *axes, ",");
    os << ')';
  } else {
    os << '[';
    llvm::ListSeparator comma;
    for (const Attribute &element : *attribute.get<Attribute::List>()) {
      os << comma;
      printValue(element, mesh, os);
    }
    os << ']';
  }
}

static void printEntry(const NamedAttribute &entry, const Mesh &mesh,
                       raw_ostream &os) {
  os << entry.name;
  const bool *flag = entry.value.get<bool>();
  if (!flag || !*flag) {
    os << '=';
    printValue(entry.value, mesh, os);
  }
}

static void printLocation(Location loc, raw_ostream &os) {
  if (!loc) {
    os << " loc(unknown)";
    return;
  }
  os << " loc(";
  printQuoted(loc.fileName(), os);
  os << ':' << loc.line << ':' << loc.column << ')';
}

static void printReference(const Operand &operand, raw_ostream &os) {
  if (operand.value) {
    os << '%' << operand.value->name;
  }
  if (!operand.param) {
    return;
  }
  StringRef name = operand.param->name;
  if (operand.value && operand.value->owner) {
    // Relative to the prefix of the bundle.
    StringRef rest = name;
    if (rest.consume_front(operand.value->owner->symbol) &&
        rest.consume_front(".")) {
      name = rest;
    }
  }
  os << '@' << name;
}

static void printOperand(const Operand &operand, raw_ostream &os) {
  if (operand.isNone()) {
    os << '_';
    return;
  }
  os << (operand.typeOnly ? "type(" : "");
  printReference(operand, os);
  os << (operand.typeOnly ? ")" : "");
}

static void printOperands(llvm::ArrayRef<Operand> operands, raw_ostream &os) {
  llvm::ListSeparator comma;
  for (const Operand &operand : operands) {
    os << comma;
    printOperand(operand, os);
  }
}

//===----------------------------------------------------------------------===//
// Printer
//===----------------------------------------------------------------------===//

namespace {
class Printer {
public:
  Printer(Module &module, raw_ostream &os, PrintOptions options)
      : module(module), os(os), options(options) {}

  void printModule();
  void printOperation(const Operation &op);

private:
  void printHeader();
  void printDict(StringRef keyword, const AttributeList &attrs);
  void printParam(const Param &param, unsigned indent);
  void printStack(const Stack &stack);
  void printArguments(const Block &block);
  void printBody(const Block &block);
  void printResults(const Operation &op);
  void printAttributes(const Operation &op);
  void printTypes(const Operation &op);
  void printLocalShapes(const Operation &op);
  void print(Type type) { os << typeText(type); }
  StringRef typeText(Type type);
  void location(Location loc) {
    if (options.debugInfo) {
      printLocation(loc, os);
    }
  }

  Module &module;
  raw_ostream &os;
  PrintOptions options;
  llvm::DenseMap<const TypeData *, std::string> typeTexts;
};
} // namespace

StringRef Printer::typeText(Type type) {
  std::string &text = typeTexts[&*type];
  if (text.empty()) {
    llvm::raw_string_ostream stream(text);
    printType(type, module, stream);
  }
  return text;
}

void Printer::printModule() {
  os << "model ";
  printQuoted(module.name, os);
  if (!module.flavor.empty()) {
    os << " flavor(";
    printQuoted(module.flavor, os);
    os << ')';
  }
  os << " stage(" << name(module.stage) << ')';
  location(module.loc);
  os << " {\n";
  printHeader();
  for (const Member &member : module.members) {
    if (member.param) {
      printParam(*member.param, 2);
    } else {
      printStack(*member.stack);
    }
  }
  for (const auto &block : module.blocks) {
    os << "  block @" << block->name;
    printArguments(*block->body);
    location(block->loc);
    os << " {\n";
    for (const Param *param : block->params) {
      printParam(*param, 4);
    }
    printBody(*block->body);
  }
  for (const auto &function : module.functions) {
    os << "  func @" << function->name;
    printArguments(*function->body);
    location(function->loc);
    os << " {\n";
    printBody(*function->body);
  }
  os << "}\n";
}

void Printer::printHeader() {
  printDict("config", module.config);
  printDict("training", module.training);
  printDict("optimizer", module.optimizer);
  printDict("parallelism", module.parallelism);
  printDict("sharding", module.sharding);
  os << "  mesh <";
  llvm::ListSeparator comma;
  for (const MeshAxis &axis : module.mesh.axes()) {
    os << comma << axis.name << '=' << axis.size;
  }
  os << ">\n";
  for (const AxisAlias &alias : module.mesh.aliases()) {
    os << "  axes " << alias.name << " = (";
    llvm::ListSeparator comma;
    for (AxisId axis : alias.axes) {
      os << comma << module.mesh.name(axis);
    }
    os << ")\n";
  }
  for (const DimDecl &dim : module.dims) {
    os << "  dim " << dim.name << " = " << dim.size << '\n';
  }
  for (const Tie &tie : module.ties) {
    os << "  tied @" << tie.alias << " = @" << tie.target << '\n';
  }
}

void Printer::printDict(StringRef keyword, const AttributeList &attrs) {
  if (attrs.empty()) {
    return;
  }
  os << "  " << keyword << " {";
  llvm::ListSeparator comma;
  for (const NamedAttribute &entry : attrs.entries()) {
    os << comma;
    printEntry(entry, module.mesh, os);
  }
  os << "}\n";
}

void Printer::printParam(const Param &param, unsigned indent) {
  os.indent(indent) << "param @" << param.name << " : ";
  print(param.type);
  if (!param.init.empty() || param.declared) {
    os << " {";
    llvm::ListSeparator comma;
    if (!param.init.empty()) {
      os << comma << "init=" << param.init;
    }
    if (param.declared && param.declared->empty()) {
      os << comma << "shard=replicated";
    } else if (param.declared) {
      os << comma << "shard=[";
      llvm::ListSeparator inner;
      for (const Param::Cut &cut : *param.declared) {
        os << inner << cut.dim << ", " << cut.axis;
      }
      os << ']';
    }
    os << '}';
  }
  location(param.loc);
  os << '\n';
}

void Printer::printStack(const Stack &stack) {
  os << "  stack @" << stack.name << " = [";
  llvm::ListSeparator groupComma;
  for (const StackGroup &group : stack.groups) {
    os << groupComma << '(';
    llvm::ListSeparator comma;
    for (const StackRun &run : group.runs) {
      os << comma << '@' << run.block;
      if (run.count != 1) {
        os << " x" << run.count;
      }
    }
    os << ") x" << group.count;
  }
  os << ']';
  location(stack.loc);
  os << '\n';
}

void Printer::printArguments(const Block &block) {
  os << '(';
  llvm::ListSeparator comma;
  for (const Value *argument : block.arguments) {
    os << comma << '%' << argument->name << ": ";
    print(argument->type);
    location(argument->loc);
  }
  os << ')';
}

void Printer::printBody(const Block &block) {
  for (const Operation &op : block.ops) {
    os << "    ";
    printOperation(op);
    os << '\n';
  }
  os << "  }\n";
}

void Printer::printOperation(const Operation &op) {
  printResults(op);
  os << op.info().spelling << (op.backward ? ".bwd" : "");
  if (op.is(OpKind::Stack) || op.is(OpKind::Call)) {
    os << " @" << op.symbol << '(';
    printOperands(op.operands, os);
    os << ')';
  } else if (op.is(OpKind::FsdpUnshard)) {
    os << " @" << op.symbol << (op.symbol.empty() ? "*" : ".*");
  } else if (!op.operands.empty()) {
    os << ' ';
    printOperands(op.operands, os);
  }
  printAttributes(op);
  if (!op.acc.empty()) {
    os << " acc[";
    printOperands(op.acc, os);
    os << ']';
  }
  printTypes(op);
  location(op.loc);
  if (options.localShapes) {
    printLocalShapes(op);
  }
}

void Printer::printResults(const Operation &op) {
  if (op.results.empty()) {
    return;
  }
  llvm::ListSeparator comma;
  for (const Value *result : op.results) {
    os << comma;
    if (result) {
      os << '%' << result->name;
    } else {
      os << '_';
    }
  }
  os << " = ";
}

void Printer::printAttributes(const Operation &op) {
  bool namesParam = op.is(OpKind::ReduceGrad);
  if (op.axes.empty() && op.attrs.empty() && !namesParam) {
    return;
  }
  os << " {";
  llvm::ListSeparator comma;
  if (!op.axes.empty()) {
    os << comma;
    module.mesh.printGroup(os, op.axes);
    if (!op.dim.empty()) {
      os << ": " << op.dim;
    }
    if (!op.toDim.empty()) {
      os << "->" << op.toDim;
    }
  }
  if (namesParam) {
    os << comma << "param=";
    printValue({Word{op.symbol.str()}}, module.mesh, os);
  }
  for (const NamedAttribute &entry : op.attrs.entries()) {
    os << comma;
    printEntry(entry, module.mesh, os);
  }
  os << '}';
}

void Printer::printTypes(const Operation &op) {
  StringRef separator = " : ";
  for (const Value *result : op.results) {
    if (result && result->type) {
      os << separator;
      print(result->type);
      separator = ", ";
    }
  }
}

void Printer::printLocalShapes(const Operation &op) {
  StringRef separator = "  // local ";
  for (const Value *result : op.results) {
    if (result && result->type) {
      os << separator << name(result->type.dtype()) << '[';
      llvm::ListSeparator comma;
      for (int64_t extent : result->type.localShape(module.mesh)) {
        os << comma << extent;
      }
      os << ']';
      separator = ", ";
    }
  }
}

//===----------------------------------------------------------------------===//
// Text.h
//===----------------------------------------------------------------------===//

void hp::print(Module &module, raw_ostream &os, PrintOptions options) {
  Printer(module, os, options).printModule();
}

void hp::print(const Operation &op, raw_ostream &os, PrintOptions options) {
  Printer(op.parent->module, os, options).printOperation(op);
}

std::string hp::str(Module &module, PrintOptions options) {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(module, os, options);
  return text;
}

std::string hp::str(Type type, const Module &module) {
  if (!type) {
    return "a bundle of parameters";
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  printType(type, module, os);
  return text;
}

std::string hp::str(const Operand &operand) {
  std::string text;
  llvm::raw_string_ostream os(text);
  printOperand(operand, os);
  return text;
}

std::string hp::str(const Attribute &attribute, const Module &module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  printValue(attribute, module.mesh, os);
  return text;
}
