//===- LocalStates.cpp - The state of each axis in a local operation ------===//
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
//===----------------------------------------------------------------------===//

#include "LocalRule.h"

using namespace hp;
using llvm::StringRef;
using llvm::Twine;

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
      if (has(i, 'g') && state != State::Replicated) {
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
  // Named is one that no partial value may be, if there is such a one.
  unsigned broken = llvm::find(states, State::Partial) - states.begin();
  for (unsigned i = 0; i < states.size(); ++i) {
    if (states[i] == State::Partial && !isLinearIn(i)) {
      broken = i;
      break;
    }
  }
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
    if (insideGroups.contains(axis) && has(i, 'g')) {
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
