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
static void setWord(Attribute &attribute, StringRef text) {
  bool isWord =
      (llvm::isAlpha(text[0]) || text[0] == '_') &&
      llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_'; }) &&
      !llvm::is_contained({"true", "false", "inf", "nan"}, text);
  if (isWord) {
    attribute.value = Word{text.str()};
  } else {
    attribute.value = text.str();
  }
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

/// A list attribute of `values`, each entered by `set`.
template <typename T, typename Set>
static void setList(std::optional<Attribute> &attribute,
                    const std::optional<std::vector<T>> &values, Set set) {
  if (!values) {
    return;
  }
  Attribute::List &list =
      attribute.emplace().value.template emplace<Attribute::List>();
  for (const T &value : *values) {
    set(list.emplace_back(), value);
  }
}

std::optional<Attribute> hp::readValue(const Node &node, FieldKind kind,
                                       StringRef what, DiagnosticEngine &diag,
                                       const ValueRange &range) {
  std::optional<Attribute> result;
  switch (kind) {
  case FieldKind::Integer:
    if (auto value = readInt(node, what, diag, range.integers)) {
      result.emplace().value = *value;
    }
    break;
  case FieldKind::Float:
    if (auto value = readFloat(node, what, diag, range.floats)) {
      result.emplace().value = *value;
    }
    break;
  case FieldKind::Boolean:
    if (auto value = readBool(node, what, diag)) {
      result.emplace().value = *value;
    }
    break;
  case FieldKind::Word:
    if (auto value = readOneOf(node, what, range.words, diag)) {
      setWord(result.emplace(), *value);
    }
    break;
  case FieldKind::IntegerList:
    setList(result, readIntList(node, what, diag, range.integers),
            [](Attribute &item, int64_t value) { item.value = value; });
    break;
  case FieldKind::WordList:
    setList(result, readStringList(node, what, diag), setWord);
    break;
  }
  return result;
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
