//===- FieldValues.cpp - Values of config fields and options --------------===//

#include "FieldValues.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

StringRef hp::describe(FieldKind kind) {
  switch (kind) {
  case FieldKind::Integer:
    return "an integer";
  case FieldKind::Float:
    return "a number";
  case FieldKind::Boolean:
    return "true or false";
  case FieldKind::Word:
    return "a word";
  case FieldKind::IntegerList:
    return "a list of integers";
  case FieldKind::WordList:
    return "a list of words";
  }
  return "a value";
}

bool hp::isConvertible(FieldKind from, FieldKind to) {
  return from == to || (from == FieldKind::Integer && to == FieldKind::Float);
}

/// Whether `node` is meant as a number: a plain scalar that starts like one.
static bool looksNumeric(const Node &node) {
  StringRef text = StringRef(node.text).ltrim("+-.");
  return !node.quoted && !text.empty() && llvm::isDigit(text[0]);
}

std::optional<FieldKind> hp::kindOfDefault(const Node &node, StringRef what,
                                           DiagnosticEngine &diag) {
  switch (node.kind) {
  case Node::Kind::Null:
    diag.error(node.loc) << "'" << what << "' needs a default";
    return std::nullopt;
  case Node::Kind::Map:
    diag.error(node.loc) << "'" << what
                         << "' must be a number, a word, true, false or a "
                            "list, not a map";
    return std::nullopt;
  case Node::Kind::Sequence:
    return node.items.empty() || looksNumeric(node.items[0])
               ? FieldKind::IntegerList
               : FieldKind::WordList;
  case Node::Kind::Scalar:
    break;
  }
  if (looksNumeric(node)) {
    return StringRef(node.text).find_first_of(".eE") == StringRef::npos
               ? FieldKind::Integer
               : FieldKind::Float;
  }
  bool isBoolean =
      !node.quoted && (node.text == "true" || node.text == "false");
  return isBoolean ? FieldKind::Boolean : FieldKind::Word;
}

/// `text` as IR attributes hold it: a word where the IR can spell it as one.
static Attribute wordAttribute(StringRef text) {
  bool isWord =
      (llvm::isAlpha(text[0]) || text[0] == '_') &&
      llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_'; }) &&
      !llvm::is_contained({"true", "false", "inf", "nan"}, text);
  return isWord ? Attribute{Word{text.str()}} : Attribute{text.str()};
}

static std::optional<std::string> readOneOf(const Node &node, StringRef what,
                                            llvm::ArrayRef<std::string> words,
                                            DiagnosticEngine &diag) {
  if (words.empty()) {
    return readString(node, what, diag);
  }
  std::vector<StringRef> names(words.begin(), words.end());
  int index = readWord(node, what, names, diag);
  return index < 0 ? std::nullopt
                   : std::optional<std::string>(words[size_t(index)]);
}

template <typename T>
static std::optional<Attribute> toAttribute(const std::optional<T> &value) {
  if (!value) {
    return std::nullopt;
  }
  return Attribute{*value};
}

std::optional<Attribute> hp::readValue(const Node &node, FieldKind kind,
                                       StringRef what, DiagnosticEngine &diag,
                                       const ValueRange &range) {
  switch (kind) {
  case FieldKind::Integer:
    return toAttribute(readInt(node, what, diag, range.integers));
  case FieldKind::Float:
    return toAttribute(readFloat(node, what, diag, range.floats));
  case FieldKind::Boolean:
    return toAttribute(readBool(node, what, diag));
  case FieldKind::Word: {
    auto value = readOneOf(node, what, range.words, diag);
    if (!value) {
      return std::nullopt;
    }
    return wordAttribute(*value);
  }
  case FieldKind::IntegerList: {
    auto values = readIntList(node, what, diag, range.integers);
    if (!values) {
      return std::nullopt;
    }
    Attribute::List list;
    for (int64_t value : *values) {
      list.push_back(Attribute{value});
    }
    return Attribute{std::move(list)};
  }
  case FieldKind::WordList: {
    auto values = readStringList(node, what, diag);
    if (!values) {
      return std::nullopt;
    }
    Attribute::List list;
    for (const std::string &value : *values) {
      list.push_back(wordAttribute(value));
    }
    return Attribute{std::move(list)};
  }
  }
  return std::nullopt;
}

void hp::suggest(InFlightDiagnostic &error, StringRef word,
                 llvm::ArrayRef<StringRef> candidates, StringRef title) {
  StringRef meant = didYouMean(word, candidates);
  if (!meant.empty()) {
    error.note({}, "did you mean '" + meant + "'?");
  } else if (!candidates.empty()) {
    error.note({}, title + ": " + llvm::join(candidates, ", "));
  }
}
