//===- Mesh.cpp - Named mesh axes -----------------------------------------===//

#include "hp/IR/Mesh.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;

bool Mesh::addAxis(llvm::StringRef name, int64_t size) {
  constexpr int64_t maxRanks = int64_t(1) << 31;
  if (lookup(name) || size < 1 || aliasList.size() || numAxes() == maxAxes ||
      size > maxRanks / numRanks()) {
    return false;
  }
  axisList.push_back({name.str(), size});
  return true;
}

bool Mesh::addAlias(llvm::StringRef name, llvm::ArrayRef<AxisId> axes) {
  if (lookup(name) || axes.empty() || AxisSet(axes).size() != axes.size()) {
    return false;
  }
  aliasList.push_back({name.str(), AxisList(axes)});
  return true;
}

int64_t Mesh::size(llvm::ArrayRef<AxisId> axes) const {
  int64_t product = 1;
  for (AxisId axis : axes) {
    product *= axisList[axis].size;
  }
  return product;
}

int64_t Mesh::numRanks() const {
  int64_t product = 1;
  for (const MeshAxis &axis : axisList) {
    product *= axis.size;
  }
  return product;
}

AxisSet Mesh::all() const {
  AxisSet set;
  for (unsigned axis = 0; axis < numAxes(); ++axis) {
    set.insert(axis);
  }
  return set;
}

std::optional<AxisList> Mesh::lookup(llvm::StringRef name) const {
  for (unsigned axis = 0; axis < axisList.size(); ++axis) {
    if (axisList[axis].name == name) {
      return AxisList{AxisId(axis)};
    }
  }
  for (const AxisAlias &alias : aliasList) {
    if (alias.name == name) {
      return alias.axes;
    }
  }
  return std::nullopt;
}

void Mesh::print(llvm::raw_ostream &os, llvm::ArrayRef<AxisId> axes,
                 llvm::StringRef separator) const {
  llvm::ListSeparator comma(separator);
  while (!axes.empty()) {
    os << comma;
    const AxisAlias *fold = nullptr;
    for (const AxisAlias &alias : aliasList) {
      if (axes.take_front(alias.axes.size()) ==
          llvm::ArrayRef<AxisId>(alias.axes)) {
        fold = &alias;
        break;
      }
    }
    if (fold) {
      os << fold->name;
      axes = axes.drop_front(fold->axes.size());
    } else {
      os << name(axes.front());
      axes = axes.drop_front();
    }
  }
}

void Mesh::printGroup(llvm::raw_ostream &os,
                      llvm::ArrayRef<AxisId> axes) const {
  bool oneWord = axes.size() == 1;
  for (const AxisAlias &alias : aliasList) {
    oneWord |= axes == llvm::ArrayRef<AxisId>(alias.axes);
  }
  os << (oneWord ? "" : "(");
  print(os, axes, ",");
  os << (oneWord ? "" : ")");
}

std::string Mesh::str(AxisSet axes) const {
  std::string text;
  llvm::raw_string_ostream os(text);
  print(os, axes.list());
  return text;
}
