//===- TypedReading.h - Numbers, words and maps from a document -*- C++ -*-===//
//
// Turns Nodes into values by exact rules, so that a slip is an error and not
// another number:
//
//   integer   decimal digits: 4096, -1. Not 010, 0x10, 4_096, 2.0, 1e3, "5".
//   float     1e-6, 1E-6, .5, 2, 1. ; finite; not 010 and not too large or
//             too small for a double.
//   boolean   true or false. Not yes, on, True, 1.
//   string    a plain or quoted word.
//
// `what` is the name that messages give to the value ("training.steps"). Each
// function returns nothing after it reported what is wrong and what would be
// right.
//
//===----------------------------------------------------------------------===//

#ifndef HP_SPEC_TYPEDREADING_H
#define HP_SPEC_TYPEDREADING_H

#include "hp/Spec/Document.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>
#include <limits>

namespace hp {

/// Bounds of an integer, both included.
struct IntRange {
  int64_t min = std::numeric_limits<int64_t>::min();
  int64_t max = std::numeric_limits<int64_t>::max();
  bool orMinusOne = false; ///< -1 is accepted besides.
};

/// Bounds of a float, each included unless it is open.
struct FloatRange {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool minOpen = false;
  bool maxOpen = false;
};

std::optional<int64_t> readInt(const Node &node, llvm::StringRef what,
                               DiagnosticEngine &diag, IntRange range = {});
std::optional<double> readFloat(const Node &node, llvm::StringRef what,
                                DiagnosticEngine &diag, FloatRange range = {});
std::optional<bool> readBool(const Node &node, llvm::StringRef what,
                             DiagnosticEngine &diag);
/// Refuses the empty string, which nothing in a spec or config means.
std::optional<std::string> readString(const Node &node, llvm::StringRef what,
                                      DiagnosticEngine &diag);

/// Reads a list with `readOne` for each item; reports every bad item.
template <typename T>
std::optional<std::vector<T>>
readList(const Node &node, llvm::StringRef what, DiagnosticEngine &diag,
         llvm::function_ref<std::optional<T>(const Node &, llvm::StringRef,
                                             DiagnosticEngine &)>
             readOne);
std::optional<std::vector<int64_t>> readIntList(const Node &node,
                                                llvm::StringRef what,
                                                DiagnosticEngine &diag,
                                                IntRange range = {});
std::optional<std::vector<std::string>>
readStringList(const Node &node, llvm::StringRef what, DiagnosticEngine &diag);

/// One word that a choice accepts, or, with a `refusal`, knows and refuses.
template <typename T> struct Choice {
  llvm::StringRef name;
  T value;
  llvm::StringRef refusal = {};
};

/// The index of the word in `names`; -1 after an error that lists them.
int readWord(const Node &node, llvm::StringRef what,
             llvm::ArrayRef<llvm::StringRef> names, DiagnosticEngine &diag);

template <typename T>
std::optional<T> readChoice(const Node &node, llvm::StringRef what,
                            llvm::ArrayRef<Choice<T>> choices,
                            DiagnosticEngine &diag) {
  std::vector<llvm::StringRef> names;
  for (const Choice<T> &choice : choices) {
    if (!choice.refusal.empty() && node.text == choice.name) {
      diag.error(node.loc) << "'" << what << "': " << choice.refusal;
      return std::nullopt;
    }
    if (choice.refusal.empty()) {
      names.push_back(choice.name);
    }
  }
  int index = readWord(node, what, names, diag);
  if (index < 0) {
    return std::nullopt;
  }
  for (const Choice<T> &choice : choices) {
    if (choice.name == names[index]) {
      return choice.value;
    }
  }
  return std::nullopt;
}

/// The shortest decimal text that reads back as `value`.
std::string formatFloat(double value);

/// Walks a map by the keys that are expected and reports the rest.
///
///   MapReader map(node, "section 'data'", diag);
///   const Node *path = map.required("path");
///   const Node *layout = map.optional("layout");
///   return map.finish();
class MapReader {
public:
  /// `what` names the map in messages. A Null node is an empty map; anything
  /// else that is no map is reported, and every key is then absent.
  MapReader(const Node &map, llvm::StringRef what, DiagnosticEngine &diag);

  /// The value of `key`, or null if it is absent.
  const Node *optional(llvm::StringRef key);
  /// The value of `key`; absence is an error at the map's place.
  const Node *required(llvm::StringRef key);

  /// Reports each key that was never asked for, with the key that may have
  /// been meant. `owner` may say where a key belongs instead ("section
  /// 'training'"), or nothing. Returns whether the map had no error.
  bool finish(llvm::function_ref<std::string(llvm::StringRef)> owner = {});

private:
  const Node &map;
  std::string what;
  DiagnosticEngine &diag;
  std::vector<std::string> expected;
  bool ok = true;
};

template <typename T>
std::optional<std::vector<T>>
readList(const Node &node, llvm::StringRef what, DiagnosticEngine &diag,
         llvm::function_ref<std::optional<T>(const Node &, llvm::StringRef,
                                             DiagnosticEngine &)>
             readOne) {
  if (!node.isSequence()) {
    auto error = diag.error(node.loc);
    error << "'" << what << "' must be a list, not " << describe(node);
    if (node.isScalar()) {
      error << "; write [" << node.text << "]";
    }
    return std::nullopt;
  }
  std::vector<T> values;
  for (const Node &item : node.items) {
    if (std::optional<T> value = readOne(item, what, diag)) {
      values.push_back(std::move(*value));
    }
  }
  if (values.size() != node.items.size()) {
    return std::nullopt;
  }
  return values;
}

} // namespace hp

#endif // HP_SPEC_TYPEDREADING_H
