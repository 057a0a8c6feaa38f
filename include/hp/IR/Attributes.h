//===- Attributes.h - Values in braces -------------------------*- C++ -*-===//
//
//   attrs  ::= `{` attr (`,` attr)* `}`
//   attr   ::= name `=` value | flag | axes (`:` dim (`->` dim)?)?
//   value  ::= integer | float | string | word | `true` | `false`
//            | `(` axis (`,` axis)* `)` | `[` value (`,` value)* `]`
//
// A float always shows a point, an exponent, `inf` or `nan`, in the shortest
// form that reads back bit-equal; an integer never does.
//
//===----------------------------------------------------------------------===//

#ifndef HP_IR_ATTRIBUTES_H
#define HP_IR_ATTRIBUTES_H

#include "hp/IR/Mesh.h"
#include <variant>
#include <vector>

namespace hp {

/// A bare word such as `invariant` or `full_attention`.
struct Word {
  std::string text;
  bool operator==(const Word &) const = default;
};

struct Attribute {
  using List = std::vector<Attribute>;
  std::variant<bool, int64_t, double, std::string, Word, AxisList, List> value;

  bool operator==(const Attribute &other) const; ///< doubles by their bits

  template <typename T> const T *get() const { return std::get_if<T>(&value); }
  /// An int or a float as a double.
  std::optional<double> number() const;
};

struct NamedAttribute {
  llvm::StringRef name; ///< interned in the Module
  Attribute value;
  bool operator==(const NamedAttribute &) const = default;
};

/// Attributes in the order they are printed. Flags are `true` and print as
/// their name alone.
class AttributeList {
public:
  const Attribute *find(llvm::StringRef name) const;
  /// Replaces or appends; `name` must be interned.
  void set(llvm::StringRef name, Attribute value);
  bool erase(llvm::StringRef name);

  int64_t getInt(llvm::StringRef name, int64_t otherwise) const;
  double getFloat(llvm::StringRef name, double otherwise) const;
  bool getFlag(llvm::StringRef name) const;
  /// A string or a word; empty if absent.
  llvm::StringRef getText(llvm::StringRef name) const;

  bool empty() const { return list.empty(); }
  llvm::ArrayRef<NamedAttribute> entries() const { return list; }
  bool operator==(const AttributeList &) const = default;

private:
  llvm::SmallVector<NamedAttribute, 2> list;
};

/// Shortest text that reads back to the same bits, and is a float.
std::string floatText(double value);

} // namespace hp

#endif // HP_IR_ATTRIBUTES_H
