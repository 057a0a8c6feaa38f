//===- LocalTypes.cpp - The rule of the table, applied --------------------===//
//
// One engine for every local operation: it binds the letters of a rule to the
// dims of the operands here, and finds the state of each axis in
// LocalStates.cpp.
//
// Letters with a meaning beside others, as said in Ops.def: `g` beside `h`
// (groups of heads), `n` beside `s` (blocks, one for each shard), `o` (one).
//
//===----------------------------------------------------------------------===//

#include "LocalRule.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

//===----------------------------------------------------------------------===//
// Binding letters
//===----------------------------------------------------------------------===//

bool BoundRule::mentions(char letter) const {
  auto hasLetter = [&](const std::string &side) {
    return StringRef(side).contains(letter);
  };
  return llvm::any_of(rule.operands, hasLetter) ||
         llvm::any_of(rule.results, hasLetter);
}

llvm::SmallVector<Factor, 6> BoundRule::factorsOf(StringRef side) const {
  llvm::SmallVector<Factor, 6> list;
  if (side.consume_front("*")) {
    for (unsigned i = 0; i < numStarDims; ++i) {
      list.push_back(i);
    }
  }
  list.append(side.begin(), side.end());
  return list;
}

std::string BoundRule::describe(Factor factor) const {
  bool isLetter = factor >= maxStarDims;
  std::string letter(1, char(factor));
  std::string text = isLetter ? "factor '" + letter + "'"
                              : "dim " + std::to_string(unsigned(factor));
  const Dim *dim = dims[factor];
  if (dim && !dim->name().empty() && dim->name() != letter) {
    text += (" ('" + dim->name() + "')").str();
  }
  return text;
}

/// `16`, or `16 | 16 | 48` for segments.
static std::string sizesOf(const Dim &dim) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (const Segment &segment : dim.segments) {
    os << (text.empty() ? "" : " | ") << segment.size();
  }
  return text;
}

/// Whether two dims may be one factor: names count where they are more than
/// labels, that is for segments and for dims the module declares.
static bool namesAgree(const Dim &lhs, const Dim &rhs, const Module &module) {
  for (unsigned i = 0; i < lhs.segments.size(); ++i) {
    StringRef a = lhs.segments[i].name, b = rhs.segments[i].name;
    if (a == b || a.empty() || b.empty()) {
      continue;
    }
    if (lhs.isSegmented() || (module.findDim(a) && module.findDim(b))) {
      return false;
    }
  }
  return true;
}

llvm::Error BoundRule::unify(Factor factor, const Dim &dim, unsigned operand) {
  if (!dims[factor]) {
    dims[factor] = &dim;
    owners[factor] = operand;
    return llvm::Error::success();
  }
  const Dim &first = *dims[factor];
  if (!first.sameSizes(dim)) {
    return query.refuse("the sizes of " + describe(factor) +
                            " differ: " + sizesOf(first) + " in operand " +
                            Twine(owners[factor]) + " and " + sizesOf(dim) +
                            " in operand " + Twine(operand),
                        operand);
  }
  if (!namesAgree(first, dim, query.module)) {
    return query.refuse(describe(factor) + " is another dim in operand " +
                            Twine(operand) + " than in operand " +
                            Twine(owners[factor]) +
                            ", of the same size but another name",
                        operand);
  }
  return llvm::Error::success();
}

llvm::Error BoundRule::bind() {
  bool starBound = false;
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    Type type = query.operands[i];
    StringRef side = rule.operands[i];
    unsigned numLetters = side.size() - side.starts_with("*");
    if (side.starts_with("*") && !starBound && type.rank() >= numLetters &&
        type.rank() - numLetters <= maxStarDims) {
      numStarDims = type.rank() - numLetters;
      starBound = true;
    }
    unsigned expected = numLetters + (side.starts_with("*") ? numStarDims : 0);
    if (type.rank() != expected || (side.starts_with("*") && !starBound)) {
      return query.refuse(
          "operand " + Twine(i) + " has " + Twine(type.rank()) +
              " dims; the rule '" + side.str() + "' asks for " +
              (side.starts_with("*") && !starBound ? "at least " : "") +
              Twine(expected),
          i);
    }
    factors.push_back(factorsOf(side));
    for (unsigned dim = 0; dim < type.rank(); ++dim) {
      if (llvm::Error error = unify(factors[i][dim], type.dims()[dim], i)) {
        return error;
      }
      if (factors[i][dim] == 'o' && type.dims()[dim].size() != 1) {
        return query.refuse("dim " + Twine(dim) + " of operand " + Twine(i) +
                                " must be of size 1, not " +
                                Twine(type.dims()[dim].size()),
                            i);
      }
    }
  }
  return llvm::Error::success();
}

llvm::Error BoundRule::checkDTypes() {
  std::optional<unsigned> first;
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    DType dtype = query.operands[i].dtype();
    if (isLinearIn(i) != isFloat(dtype) || dtype == DType::Bool) {
      return query.refuse("operand " + Twine(i) + " is " + name(dtype) +
                              "; it must be " +
                              (isLinearIn(i) ? "of a floating type" : "i64"),
                          i);
    }
    if (!isFloat(dtype)) {
      continue;
    }
    if (!first) {
      first = i;
      continue;
    }
    // What computes in fp32 inside takes fp32 parameters beside bf16 values.
    DType other = query.operands[*first].dtype();
    bool mixed = query.info.linearity == Linearity::None &&
                 dtype != DType::F64 && other != DType::F64;
    if (dtype != other && !mixed) {
      return query.refuse("operand " + Twine(i) + " is " + name(dtype) +
                              ", operand " + Twine(*first) + " is " +
                              name(other) + "; cast one of them",
                          i);
    }
  }
  return llvm::Error::success();
}

TypeList BoundRule::results(DType dtype) {
  TypeList list;
  for (const std::string &side : rule.results) {
    TypeData data;
    data.dtype = dtype;
    data.repl = repl;
    data.partial = partial;
    for (Factor factor : factorsOf(side)) {
      if (hasBlocks && factor == 'n' && !dims['n']) {
        const AxisList &axes = dims['s']->axes;
        data.dims.push_back(Dim("n", {query.mesh().size(axes)}, axes));
      } else {
        data.dims.push_back(*dims[factor]);
      }
    }
    list.push_back(query.module.type(data));
  }
  return list;
}

//===----------------------------------------------------------------------===//
// The engine
//===----------------------------------------------------------------------===//

/// The dtype of the results: that of the first floating operand, but for what
/// changes it.
static llvm::Expected<DType> resultDType(const TypeQuery &query) {
  if (query.info.kind == OpKind::CountValid) {
    return DType::I64;
  }
  if (query.info.kind == OpKind::Cast) {
    StringRef to = query.like.attrs.getText("to");
    std::optional<DType> dtype = parseDType(to);
    if (!dtype || !isFloat(*dtype)) {
      return query.refuse("'to' must name a floating type, not '" + to + "'");
    }
    return *dtype;
  }
  for (Type type : query.operands) {
    if (isFloat(type.dtype())) {
      return type.dtype();
    }
  }
  return query.refuse("has no floating operand");
}

/// `ones` decides nothing: its type is the one it was given.
static llvm::Expected<TypeList> inferOnes(const TypeQuery &query) {
  if (llvm::Error error = query.expectOperands(0)) {
    return error;
  }
  const Value *result =
      query.like.results.size() == 1 ? query.like.results[0] : nullptr;
  if (!result || !result->type) {
    return query.refuse("must have one result, with a type");
  }
  Type type = result->type;
  if (type.rank() != 0 || !isFloat(type.dtype()) || type->store) {
    return query.refuse("makes a floating scalar, not " + query.text(type));
  }
  if (!type->partial.empty()) {
    return query.refuse("a constant is not a term of a sum over " +
                        query.group(type->partial.list()) +
                        ": the loss is replicated there and would count once "
                        "for each rank; make the loss partial or invariant");
  }
  return TypeList{type};
}

llvm::Expected<TypeList> hp::inferByRule(const TypeQuery &query) {
  if (query.info.kind == OpKind::Ones) {
    return inferOnes(query);
  }
  const RuleVariant *rule = nullptr;
  std::string counts;
  for (const RuleVariant &variant : query.info.variants) {
    if (variant.operands.size() == query.operands.size()) {
      rule = &variant;
    }
    counts += (counts.empty() ? "" : " or ") +
              std::to_string(variant.operands.size());
  }
  if (!rule) {
    return query.refuse("takes " + counts +
                        (counts == "1" ? " operand" : " operands") + ", not " +
                        Twine(query.operands.size()));
  }

  BoundRule bound(query, *rule, query.info.wholeFactors(*rule));
  if (llvm::Error error = bound.checkDTypes()) {
    return error;
  }
  if (llvm::Error error = bound.bind()) {
    return error;
  }
  if (llvm::Error error = bound.checkGroups()) {
    return error;
  }
  for (unsigned axis = 0; axis < query.mesh().numAxes(); ++axis) {
    if (llvm::Error error = bound.infer(axis)) {
      return error;
    }
  }
  if (llvm::Error error = bound.checkBlocks()) {
    return error;
  }
  if (llvm::Error error = bound.checkAxisOrder()) {
    return error;
  }
  auto dtype = resultDType(query);
  if (!dtype) {
    return dtype.takeError();
  }
  return bound.results(*dtype);
}
