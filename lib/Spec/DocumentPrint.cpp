//===- DocumentPrint.cpp - Nodes as YAML and in messages ------------------===//

#include "hp/Spec/Document.h"
#include "llvm/ADT/STLExtras.h"

using namespace hp;
using llvm::StringRef;

/// Whether `text` may stand unquoted anywhere in YAML and read back as itself.
static bool isSafePlain(StringRef text) {
  if (text.empty() || text == "null" || text == "Null" || text == "NULL") {
    return false;
  }
  bool isNegativeNumber =
      text.size() > 1 && text[0] == '-' && (isdigit(text[1]) || text[1] == '.');
  if (text[0] == '-' && !isNegativeNumber) {
    return false;
  }
  return llvm::all_of(text, [](unsigned char c) {
    return isalnum(c) || StringRef("_./+-").contains(c);
  });
}

static void printQuoted(StringRef text, llvm::raw_ostream &os) {
  static const char digits[] = "0123456789abcdef";
  os << '"';
  for (unsigned char c : text) {
    if (c == '"' || c == '\\') {
      os << '\\' << char(c);
    } else if (c == '\n') {
      os << "\\n";
    } else if (c < 0x20 || c == 0x7f) {
      os << "\\x" << digits[c >> 4] << digits[c & 15];
    } else {
      os << char(c);
    }
  }
  os << '"';
}

void hp::printScalar(StringRef text, llvm::raw_ostream &os) {
  if (isSafePlain(text)) {
    os << text;
  } else {
    printQuoted(text, os);
  }
}

void hp::printFlow(const Node &node, llvm::raw_ostream &os) {
  switch (node.kind) {
  case Node::Kind::Null:
    os << "null";
    return;
  case Node::Kind::Scalar:
    if (node.quoted) {
      printQuoted(node.text, os);
    } else {
      printScalar(node.text, os);
    }
    return;
  case Node::Kind::Sequence: {
    os << '[';
    llvm::StringRef separator;
    for (const Node &item : node.items) {
      os << separator;
      printFlow(item, os);
      separator = ", ";
    }
    os << ']';
    return;
  }
  case Node::Kind::Map: {
    os << '{';
    llvm::StringRef separator;
    for (const MapEntry &entry : node.entries) {
      os << separator;
      printScalar(entry.key, os);
      os << ": ";
      printFlow(entry.value, os);
      separator = ", ";
    }
    os << '}';
    return;
  }
  }
}

std::string hp::describe(const Node &node) {
  switch (node.kind) {
  case Node::Kind::Null:
    return "nothing";
  case Node::Kind::Scalar:
    return quoteForMessage(node.text);
  case Node::Kind::Sequence:
    return "a list";
  case Node::Kind::Map:
    return "a map";
  }
  return "nothing";
}
