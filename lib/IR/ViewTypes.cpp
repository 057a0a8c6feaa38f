//===- ViewTypes.cpp - Types of views -------------------------------------===//
//
// Views rearrange dims and move no data between ranks. They keep the state of
// every axis: a cut of the dim they take apart stays on the outer factor.
//
//===----------------------------------------------------------------------===//

#include "TypeRules.h"

using namespace hp;
using llvm::Twine;

/// The most results `unpack` gives; more is a mistyped extent.
static constexpr int64_t maxUnpacked = 256;

static TypeData withoutLastDim(Type type) {
  TypeData data = *type;
  data.dims.pop_back();
  return data;
}

/// (q=a | k=b)@tp -> q=a@tp and k=b@tp
static llvm::Expected<TypeList> split(const TypeQuery &query, Type operand) {
  const Dim &last = operand.dims().back();
  if (!last.isSegmented()) {
    return query.refuse("the last dim has one segment; only a dim of several "
                        "segments, as (q=.. | k=..), can be split",
                        0);
  }
  TypeList results;
  for (const Segment &segment : last.segments) {
    TypeData data = withoutLastDim(operand);
    data.dims.emplace_back(segment.name, segment.factors, last.axes);
    results.push_back(query.module.type(data));
  }
  return results;
}

/// q=a@tp and k=b@tp -> (q=a | k=b)@tp
static llvm::Expected<TypeList> concat(const TypeQuery &query) {
  TypeData data = *query.operands[0];
  for (unsigned i = 1; i < query.operands.size(); ++i) {
    Type other = query.operands[i];
    if (other.rank() != data.dims.size()) {
      return query.refuse("operand " + Twine(i) + " has " +
                              Twine(other.rank()) + " dims, operand 0 has " +
                              Twine(data.dims.size()),
                          i);
    }
    if (other.dtype() != data.dtype) {
      return query.refuse("operand " + Twine(i) + " is " + name(other.dtype()) +
                              ", operand 0 is " + name(data.dtype) +
                              "; cast one of them",
                          i);
    }
    for (unsigned dim = 0; dim + 1 < other.rank(); ++dim) {
      if (!data.dims[dim].sameSizes(other.dims()[dim]) ||
          data.dims[dim].axes != other.dims()[dim].axes) {
        return query.refuse("dim " + Twine(dim) + " of operand 0 and operand " +
                                Twine(i) +
                                " differs in size or axes; only the last dim "
                                "may differ",
                            i);
      }
    }
    if (other.dims().back().axes != data.dims.back().axes) {
      return query.refuse(
          "the last dim is cut over " + query.group(data.dims.back().axes) +
              " in operand 0 and over " +
              query.group(other.dims().back().axes) + " in operand " +
              Twine(i) + "; all must be cut alike",
          i);
    }
    if (other->repl != data.repl || other->partial != data.partial) {
      return query.refuse("operand 0 and operand " + Twine(i) +
                              " are in different states; make them alike "
                              "with copy_to, or reduce what is partial",
                          i);
    }
    llvm::append_range(data.dims.back().segments, other.dims().back().segments);
  }
  return TypeList{query.module.type(data)};
}

/// h=a*b@tp -> h=a@tp, b
static llvm::Expected<TypeList> unflatten(const TypeQuery &query,
                                          Type operand) {
  const Dim &last = operand.dims().back();
  if (last.isSegmented() || last.segments[0].factors.size() < 2) {
    return query.refuse("the last dim must be a product (a*b)", 0);
  }
  llvm::ArrayRef<int64_t> factors = last.segments[0].factors;
  TypeData data = withoutLastDim(operand);
  data.dims.emplace_back(last.name(), factors.take_front(), last.axes);
  data.dims.emplace_back("", factors.drop_front());
  return TypeList{query.module.type(data)};
}

/// h=a@tp, b -> h=a*b@tp
static llvm::Expected<TypeList> flatten(const TypeQuery &query, Type operand) {
  if (operand.rank() < 2) {
    return query.refuse("takes a value of at least two dims", 0);
  }
  const Dim &outer = operand.dims().drop_back().back();
  const Dim &inner = operand.dims().back();
  if (inner.isSegmented() || outer.isSegmented()) {
    return query.refuse("a dim of several segments cannot become a factor", 0);
  }
  if (!inner.axes.empty()) {
    return query.refuse("the last dim is cut over " + query.group(inner.axes) +
                            "; only the first factor of a product can be, so "
                            "gather it first with all_gather",
                        0);
  }
  TypeData data = withoutLastDim(operand);
  llvm::append_range(data.dims.back().segments[0].factors,
                     inner.segments[0].factors);
  return TypeList{query.module.type(data)};
}

/// h=a*n*d@tp -> n times h=a@tp, d
static llvm::Expected<TypeList> unpack(const TypeQuery &query, Type operand) {
  const Dim &last = operand.dims().back();
  if (last.isSegmented() || last.segments[0].factors.size() < 3) {
    return query.refuse("the last dim must be a product (h*n*d)", 0);
  }
  llvm::ArrayRef<int64_t> factors = last.segments[0].factors;
  if (factors[1] < 1 || factors[1] > maxUnpacked) {
    return query.refuse("would give " + Twine(factors[1]) +
                            " results; at most " + Twine(maxUnpacked) +
                            " are possible",
                        0);
  }
  TypeData data = withoutLastDim(operand);
  data.dims.emplace_back(last.name(), factors.take_front(), last.axes);
  data.dims.emplace_back("", factors.drop_front(2));
  return TypeList(factors[1], query.module.type(data));
}

/// g=a@tp -> h=a*r@tp
static llvm::Expected<TypeList> repeatHeads(const TypeQuery &query,
                                            Type operand) {
  if (operand.rank() != 4 || operand.dims()[2].isSegmented()) {
    return query.refuse("takes a value of four dims, batch, sequence, heads "
                        "and channels",
                        0);
  }
  int64_t times = query.like.attrs.getInt("r", 0);
  int64_t heads = 0;
  if (times < 1 ||
      __builtin_mul_overflow(operand.dims()[2].size(), times, &heads)) {
    return query.refuse("'r' must be at least 1 and give a possible number of "
                        "heads, not " +
                        Twine(times));
  }
  TypeData data = *operand;
  data.dims[2] = Dim("h", {heads}, data.dims[2].axes);
  return TypeList{query.module.type(data)};
}

llvm::Expected<TypeList> hp::inferView(const TypeQuery &query) {
  if (query.info.kind == OpKind::Concat) {
    if (query.operands.size() < 2) {
      return query.refuse("takes two operands or more");
    }
  } else if (llvm::Error error = query.expectOperands(1)) {
    return error;
  }
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    if (query.operands[i].rank() == 0) {
      return query.refuse("operand " + Twine(i) + " is a scalar", i);
    }
  }
  switch (query.info.kind) {
  case OpKind::Split:
    return split(query, query.operands[0]);
  case OpKind::Concat:
    return concat(query);
  case OpKind::Unflatten:
    return unflatten(query, query.operands[0]);
  case OpKind::Flatten:
    return flatten(query, query.operands[0]);
  case OpKind::Unpack:
    return unpack(query, query.operands[0]);
  case OpKind::RepeatHeads:
    return repeatHeads(query, query.operands[0]);
  default:
    return query.refuse("is no view");
  }
}
