//===- LocalTypes.cpp - The rule of the table, applied --------------------===//
//
// One engine for every local operation: it binds the letters of a rule to the
// dims of the operands, then asks for each mesh axis what state the result is
// in, or why there is none.
//
// For one axis, with x, y operands and f a factor:
//
//   operands                              result
//   all invariant                         invariant
//   all replicated                        replicated
//   invariant and replicated              refused: a gradient would miss a sum
//   some cut along f, rest replicated     cut along f; partial if f is summed
//   cut along f and along g, f != g       refused
//   f cut in x and whole in y             refused
//   cut in x, y invariant                 refused: a gradient would miss a sum
//   partial, operation not linear         refused
//   partial + partial (Joint)             partial
//   partial * replicated (Multi)          partial
//
// An operand without a gradient (integers: tokens, labels, positions, counts)
// may be invariant where the table above asks for replicated.
//
// Letters with a meaning beside others, as said in Ops.def: `g` beside `h`
// (groups of heads), `n` beside `s` (blocks, one for each shard), `o` (one).
//
//===----------------------------------------------------------------------===//

#include "TypeRules.h"
#include <array>

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

/// A letter of the rule, or, below `firstLetter`, a dim that `*` stands for.
using Factor = unsigned char;
static constexpr unsigned numFactors = 128;
/// More dims than any operation takes.
static constexpr unsigned maxStarDims = 16;

namespace {
/// One variant of a rule, bound to operands.
class BoundRule {
public:
  BoundRule(const TypeQuery &query, const RuleVariant &rule, std::string whole)
      : query(query), rule(rule), whole(std::move(whole)),
        hasGroups(mentions('g') && mentions('h')),
        hasBlocks(mentions('n') && mentions('s')) {}

  /// Letters to dims, and that sizes agree.
  llvm::Error bind();
  /// That dtypes fit one another and the operation.
  llvm::Error checkDTypes();
  /// That the axes of heads and of groups of heads fit.
  llvm::Error checkGroups();
  /// That blocks are one for each shard.
  llvm::Error checkBlocks();
  /// The state of `axis` in the results.
  llvm::Error infer(AxisId axis);
  /// That a factor has the same axes, in the same order, in all operands.
  llvm::Error checkAxisOrder();
  TypeList results(DType dtype);

private:
  bool mentions(char letter) const;
  llvm::SmallVector<Factor, 6> factorsOf(StringRef side) const;
  llvm::Error unify(Factor factor, const Dim &dim, unsigned operand);
  /// What an axis that cuts `factor` cuts: heads and their groups are one, a
  /// sequence and its blocks are one.
  Factor cut(Factor factor) const {
    return hasGroups && factor == 'g'   ? 'h'
           : hasBlocks && factor == 'n' ? 's'
                                        : factor;
  }
  bool reads(unsigned operand, Factor factor) const;
  bool gives(Factor factor) const;
  bool isDifferentiable(unsigned operand) const {
    return isFloat(query.operands[operand].dtype());
  }
  bool isLinearIn(unsigned operand) const {
    return llvm::is_contained(query.info.diffOperands(query.operands.size()),
                              operand);
  }
  /// `factor 'k'`, `dim 0`.
  std::string describe(Factor factor) const;
  llvm::Error refusePartial(AxisId axis, llvm::ArrayRef<State> states,
                            llvm::ArrayRef<Factor> cuts);

  const TypeQuery &query;
  const RuleVariant &rule;
  const std::string whole;
  const bool hasGroups, hasBlocks;
  unsigned numStarDims = 0;
  /// For each operand, the factor of each dim.
  llvm::SmallVector<llvm::SmallVector<Factor, 6>, 6> factors;
  /// For each factor, the first dim bound to it and its operand.
  std::array<const Dim *, numFactors> dims{};
  std::array<unsigned, numFactors> owners{};
  /// Axes that cut heads inside a group: groups are replicated over them.
  AxisSet insideGroups;
  AxisSet repl, partial;
};
} // namespace

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

//===----------------------------------------------------------------------===//
// Groups of heads, blocks of a sequence
//===----------------------------------------------------------------------===//

/// h = g * r heads. Axes of h beyond those of g cut inside a group: legal when
/// the groups are used up and their operands are replicated there.
llvm::Error BoundRule::checkGroups() {
  if (!hasGroups) {
    return llvm::Error::success();
  }
  const Dim &heads = *dims['h'], &groups = *dims['g'];
  unsigned operand = owners['g'];
  if (heads.isSegmented() || groups.isSegmented() ||
      heads.size() % groups.size() != 0) {
    return query.refuse(Twine(heads.size()) +
                            " heads do not divide into groups of " +
                            Twine(groups.size()),
                        operand);
  }
  llvm::ArrayRef<AxisId> headAxes = heads.axes, groupAxes = groups.axes;
  if (headAxes.take_front(groupAxes.size()) != groupAxes) {
    return query.refuse("heads are cut over " + query.group(headAxes) +
                            ", which must begin with the axes of the groups, " +
                            query.group(groupAxes),
                        operand);
  }
  llvm::ArrayRef<AxisId> inside = headAxes.drop_front(groupAxes.size());
  if (!inside.empty() && query.mesh().size(groupAxes) != groups.size()) {
    return query.refuse(query.group(inside) +
                            " cuts heads inside a group "
                            "while " +
                            Twine(groups.size()) + " groups over " +
                            query.group(groupAxes) +
                            " are not used up; cut the groups as well, or "
                            "repeat them first",
                        operand);
  }
  insideGroups = AxisSet(inside);
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    for (AxisId axis : inside) {
      State state = query.operands[i].state(axis);
      if (reads(i, 'g') && state != State::Replicated) {
        return query.refuse("on axis " + query.quoted(axis) + " operand " +
                                Twine(i) + ", a group for several ranks, is " +
                                stateName(state) +
                                "; it must be replicated (copy_to)",
                            i);
      }
    }
  }
  return llvm::Error::success();
}

/// The blocks an operand carries across shards: one for each shard of `s`, each
/// t - 1 long where the rule has a window `t`.
llvm::Error BoundRule::checkBlocks() {
  if (!hasBlocks || !dims['n']) {
    return llvm::Error::success();
  }
  unsigned operand = owners['n'];
  if (dims['n']->axes != dims['s']->axes) {
    return query.refuse("factor 'n' of operand " + Twine(operand) +
                            " is cut over " + query.group(dims['n']->axes) +
                            " but the sequence over " +
                            query.group(dims['s']->axes) +
                            "; there must be one block for each shard",
                        operand);
  }
  int64_t window = dims['t'] ? dims['t']->size() - 1 : 1;
  int64_t expected = query.mesh().size(dims['s']->axes) * window;
  if (dims['n']->size() != expected) {
    return query.refuse("factor 'n' of operand " + Twine(operand) + " is " +
                            Twine(dims['n']->size()) + " but " +
                            Twine(expected) + " is asked for: " +
                            Twine(window) + " for each shard of the sequence",
                        operand);
  }
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

bool BoundRule::reads(unsigned operand, Factor factor) const {
  return llvm::any_of(factors[operand],
                      [&](Factor other) { return cut(other) == cut(factor); });
}

bool BoundRule::gives(Factor factor) const {
  return llvm::any_of(rule.results, [&](const std::string &side) {
    return llvm::any_of(factorsOf(side), [&](Factor other) {
      return cut(other) == cut(factor);
    });
  });
}

llvm::Error BoundRule::refusePartial(AxisId axis, llvm::ArrayRef<State> states,
                                     llvm::ArrayRef<Factor> cuts) {
  unsigned broken = llvm::find(states, State::Partial) - states.begin();
  const char *remedy = "reduce it first with all_reduce or reduce_scatter";
  if (query.info.linearity == Linearity::None || !isLinearIn(broken)) {
    return query.refuse("a partial value on axis " + query.quoted(axis) +
                            " (operand " + Twine(broken) +
                            ") enters a non-linear operation; " + remedy,
                        broken);
  }
  bool joint = query.info.linearity == Linearity::Joint;
  for (unsigned i = 0; i < states.size(); ++i) {
    bool fits =
        joint ? states[i] == State::Partial
              : i == broken || states[i] == State::Replicated ||
                    (states[i] == State::Invariant && !isDifferentiable(i));
    if (fits) {
      continue;
    }
    std::string other = stateName(states[i]).str();
    if (states[i] == State::Sharded) {
      other += " along " + describe(cuts[i]);
    }
    std::string number = std::to_string(broken),
                otherNumber = std::to_string(i);
    std::string why =
        joint ? "the sum would count operand " + otherNumber +
                    " once for each rank"
              : "a product with a partial value needs the other one replicated";
    return query.refuse("on axis " + query.quoted(axis) + " operand " + number +
                            " is partial and operand " + otherNumber + " is " +
                            other + "; " + why + "; reduce operand " + number +
                            " first with all_reduce or reduce_scatter",
                        broken);
  }
  return llvm::Error::success();
}

llvm::Error BoundRule::infer(AxisId axis) {
  llvm::SmallVector<State, 6> states;
  llvm::SmallVector<Factor, 6> cuts;
  int sharded = -1, invariant = -1, replicated = -1;
  bool anyPartial = false;
  for (unsigned i = 0; i < query.operands.size(); ++i) {
    Type type = query.operands[i];
    State state = type.state(axis);
    Factor factor = 0;
    if (insideGroups.contains(axis) && reads(i, 'h') &&
        llvm::is_contained(factors[i], Factor('g'))) {
      state = State::Sharded; // each rank uses its heads' group alone
      factor = 'h';
    } else if (state == State::Sharded) {
      factor = cut(factors[i][type.shardedDim(axis)]);
    }
    states.push_back(state);
    cuts.push_back(factor);
    anyPartial |= state == State::Partial;
    if (state == State::Sharded) {
      if (sharded >= 0 && cuts[sharded] != factor) {
        return query.refuse("on axis " + query.quoted(axis) + " operand " +
                                Twine(sharded) + " is cut along " +
                                describe(cuts[sharded]) + " and operand " +
                                Twine(i) + " along " + describe(factor) +
                                "; gather one of them first",
                            i);
      }
      sharded = sharded < 0 ? i : sharded;
    } else if (state == State::Replicated) {
      replicated = replicated < 0 ? i : replicated;
    } else if (state == State::Invariant && isDifferentiable(i)) {
      invariant = invariant < 0 ? i : invariant;
    }
  }

  if (anyPartial) {
    partial.insert(axis);
    return refusePartial(axis, states, cuts);
  }
  if (sharded < 0) {
    if (invariant >= 0 && replicated >= 0) {
      return query.refuse("on axis " + query.quoted(axis) +
                              " invariant operand " + Twine(invariant) +
                              " meets replicated operand " + Twine(replicated) +
                              "; make it replicated first with copy_to",
                          invariant);
    }
    if (replicated >= 0) {
      repl.insert(axis);
    }
    return llvm::Error::success();
  }

  Factor factor = cuts[sharded];
  if (factor >= maxStarDims && StringRef(whole).contains(char(factor))) {
    bool sequence = !StringRef(query.info.whole).contains(char(factor));
    return query.refuse(
        describe(factor) + " must be whole but operand " + Twine(sharded) +
            " is cut over " + query.quoted(axis) + "; " +
            (sequence ? "pass what comes from the shard before as another "
                        "operand (cp.halo, cp.scan), or gather it first"
                      : "gather it first with all_gather"),
        sharded);
  }
  if (invariant >= 0) {
    return query.refuse(
        "on axis " + query.quoted(axis) + " invariant operand " +
            Twine(invariant) + " meets operand " + Twine(sharded) +
            ", cut along " + describe(factor) +
            ": its gradient would miss a sum over " + query.quoted(axis) +
            "; make it replicated first with copy_to",
        invariant);
  }
  for (unsigned i = 0; i < states.size(); ++i) {
    if (states[i] != State::Sharded && reads(i, factor)) {
      return query.refuse(describe(factor) + " is cut over " +
                              query.quoted(axis) + " in operand " +
                              Twine(sharded) + " and whole in operand " +
                              Twine(i) + "; cut both or neither",
                          i);
    }
  }
  if (!gives(factor)) {
    partial.insert(axis);
  }
  return llvm::Error::success();
}

llvm::Error BoundRule::checkAxisOrder() {
  for (unsigned i = 0; i < factors.size(); ++i) {
    for (unsigned dim = 0; dim < factors[i].size(); ++dim) {
      Factor factor = factors[i][dim];
      const Dim &here = query.operands[i].dims()[dim];
      if (here.axes != dims[factor]->axes) {
        return query.refuse(
            describe(factor) + " is cut over " +
                query.group(dims[factor]->axes) + " in operand " +
                Twine(owners[factor]) + " and over " + query.group(here.axes) +
                " in operand " + Twine(i) + "; axes and their order must agree",
            i);
      }
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

/// The factors that no axis may cut in this variant. Where another variant
/// takes blocks from the shard before, this one needs the sequence whole.
static std::string wholeFactors(const OpInfo &info, const RuleVariant &rule) {
  auto takesBlocks = [](const RuleVariant &variant) {
    bool blocks = false, sequence = false;
    for (const std::string &side : variant.operands) {
      blocks |= StringRef(side).contains('n');
      sequence |= StringRef(side).contains('s');
    }
    return blocks && sequence;
  };
  std::string whole = info.whole.str();
  if (llvm::any_of(info.variants, takesBlocks) && !takesBlocks(rule)) {
    whole += 's';
  }
  return whole;
}

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

  BoundRule bound(query, *rule, wholeFactors(query.info, *rule));
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
