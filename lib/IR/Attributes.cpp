//===- Attributes.cpp - Values in braces ----------------------------------===//

#include "hp/IR/Attributes.h"
#include <bit>
#include <charconv>
#include <cmath>

using namespace hp;

bool Attribute::operator==(const Attribute &other) const {
  const double *lhs = get<double>(), *rhs = other.get<double>();
  if (lhs && rhs) {
    return std::bit_cast<uint64_t>(*lhs) == std::bit_cast<uint64_t>(*rhs);
  }
  return value == other.value;
}

std::optional<double> Attribute::number() const {
  if (const int64_t *integer = get<int64_t>()) {
    return double(*integer);
  }
  if (const double *real = get<double>()) {
    return *real;
  }
  return std::nullopt;
}

const Attribute *AttributeList::find(llvm::StringRef name) const {
  for (const NamedAttribute &entry : list) {
    if (entry.name == name) {
      return &entry.value;
    }
  }
  return nullptr;
}

void AttributeList::set(llvm::StringRef name, Attribute value) {
  for (NamedAttribute &entry : list) {
    if (entry.name == name) {
      entry.value = std::move(value);
      return;
    }
  }
  list.push_back({name, std::move(value)});
}

bool AttributeList::erase(llvm::StringRef name) {
  size_t before = list.size();
  llvm::erase_if(
      list, [&](const NamedAttribute &entry) { return entry.name == name; });
  return list.size() != before;
}

int64_t AttributeList::getInt(llvm::StringRef name, int64_t otherwise) const {
  const Attribute *found = find(name);
  const int64_t *integer = found ? found->get<int64_t>() : nullptr;
  return integer ? *integer : otherwise;
}

double AttributeList::getFloat(llvm::StringRef name, double otherwise) const {
  const Attribute *found = find(name);
  return found ? found->number().value_or(otherwise) : otherwise;
}

bool AttributeList::getFlag(llvm::StringRef name) const {
  const Attribute *found = find(name);
  const bool *flag = found ? found->get<bool>() : nullptr;
  return flag && *flag;
}

llvm::StringRef AttributeList::getText(llvm::StringRef name) const {
  const Attribute *found = find(name);
  if (!found) {
    return {};
  }
  if (const std::string *text = found->get<std::string>()) {
    return *text;
  }
  const Word *word = found->get<Word>();
  return word ? llvm::StringRef(word->text) : llvm::StringRef();
}

std::string hp::floatText(double value) {
  if (std::isnan(value)) {
    return std::signbit(value) ? "-nan" : "nan";
  }
  if (std::isinf(value)) {
    return value < 0 ? "-inf" : "inf";
  }
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) {
    text += ".0";
  }
  return text;
}
