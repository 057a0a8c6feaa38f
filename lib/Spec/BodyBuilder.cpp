//===- BodyBuilder.cpp - Writing parameters and operations ----------------===//

#include "hp/Spec/BodyBuilder.h"
#include "hp/IR/InferTypes.h"
#include "llvm/ADT/StringExtras.h"

using namespace hp;
using llvm::StringRef;

/// Elements of `dims`; nothing if there are more than maxElements.
static std::optional<int64_t> countElements(llvm::ArrayRef<Dim> dims) {
  int64_t total = 1;
  for (const Dim &dim : dims) {
    int64_t extent = 0;
    for (const Segment &segment : dim.segments) {
      int64_t size = 1;
      for (int64_t factor : segment.factors) {
        if (__builtin_mul_overflow(size, factor, &size)) {
          return std::nullopt;
        }
      }
      if (__builtin_add_overflow(extent, size, &extent)) {
        return std::nullopt;
      }
    }
    if (__builtin_mul_overflow(total, extent, &total) || total > maxElements) {
      return std::nullopt;
    }
  }
  return total;
}

//===----------------------------------------------------------------------===//
// ParamMaker
//===----------------------------------------------------------------------===//

Param *ParamMaker::make(StringRef name, llvm::ArrayRef<Dim> dims,
                        StringRef init) {
  std::string fullName = prefix + name.str();
  TypeData data;
  data.dtype = dtype;
  data.dims.assign(dims.begin(), dims.end());
  if (!countElements(dims)) {
    failed = true;
    diag.error(spec.loc) << "parameter '" << fullName
                         << "' would have more than " << maxElements
                         << " elements";
    return nullptr;
  }
  Type type = module.type(data);
  auto tie = block ? tied.end() : tied.find(fullName);
  if (tie != tied.end()) {
    Param *target = tie->second;
    if (target && !target->type.matches(type)) {
      failed = true;
      diag.error(spec.loc) << "'" << fullName << "' cannot be tied to '"
                           << target->name << "': their shapes differ";
      return nullptr;
    }
    return target;
  }
  for (const ParamInit &choice : spec.init) {
    if (choice.param == name) {
      init = choice.init;
    }
  }
  Param *param = module.makeParam(fullName, type, init, spec.loc);
  for (const ParamSharding &sharding : spec.sharding) {
    if (sharding.param != name) {
      continue;
    }
    auto &cuts = param->declared.emplace();
    for (const ParamSharding::Cut &cut : sharding.cuts) {
      cuts.push_back({cut.dim, module.intern(cut.axis)});
    }
  }
  if (block) {
    block->params.push_back(param);
  } else {
    module.addParam(param);
  }
  return param;
}

//===----------------------------------------------------------------------===//
// BodyBuilder
//===----------------------------------------------------------------------===//

std::string BodyBuilder::unique(StringRef name) {
  std::string candidate = name.str();
  for (unsigned i = 2; !names.insert(candidate).second; ++i) {
    candidate = name.str() + "_" + llvm::utostr(i);
  }
  return candidate;
}

Value *BodyBuilder::argument(StringRef name, Type type) {
  Value *value = module.makeValue(unique(name), type, loc);
  value->index = block.arguments.size();
  block.arguments.push_back(value);
  return value;
}

Operation *BodyBuilder::append(OpKind kind, llvm::ArrayRef<Operand> operands) {
  for (const Operand &operand : operands) {
    if (operand.isNone()) {
      failed = true; // reported where the operand was to be made
      return nullptr;
    }
  }
  Operation *op = module.makeOp(kind, loc);
  op->operands.assign(operands.begin(), operands.end());
  op->parent = &block;
  block.ops.push_back(op);
  return op;
}

bool BodyBuilder::checkSize(const Operation &op, Type type) {
  if (countElements(type.dims())) {
    return true;
  }
  failed = true;
  return diag.error(op.loc)
         << "a result of '" << op.spelling() << "' would have more than "
         << maxElements << " elements";
}

llvm::SmallVector<Value *, 3> BodyBuilder::ops(llvm::ArrayRef<StringRef> names,
                                               OpKind kind,
                                               llvm::ArrayRef<Operand> operands,
                                               Attributes attributes) {
  llvm::SmallVector<Value *, 3> results(names.size(), nullptr);
  Operation *op = append(kind, operands);
  if (!op) {
    return results;
  }
  for (const auto &[name, value] : attributes) {
    op->attrs.set(module.intern(name), value);
  }
  auto types = inferTypes(module, *op);
  if (!types) {
    failed = true;
    diag.error(loc) << llvm::toString(types.takeError());
    return results;
  }
  if (types->size() != names.size()) {
    failed = true;
    diag.error(loc) << "'" << op->spelling() << "' gives " << types->size()
                    << " results, not " << names.size();
    return results;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    if (checkSize(*op, (*types)[i])) {
      results[i] = module.addResult(op, unique(names[i]), (*types)[i]);
    }
  }
  return results;
}

Value *BodyBuilder::op(StringRef name, OpKind kind,
                       llvm::ArrayRef<Operand> operands,
                       Attributes attributes) {
  return ops({name}, kind, operands, attributes)[0];
}

Value *BodyBuilder::rmsNorm(StringRef name, Value *input, Param *weight,
                            double eps, bool unitOffset) {
  std::pair<StringRef, Attribute> attributes[] = {
      {"eps", Attribute{eps}}, {"unit_offset", Attribute{true}}};
  return op(name, OpKind::RmsNorm, {use(input), use(weight)},
            Attributes(attributes).take_front(unitOffset ? 2 : 1));
}

Value *BodyBuilder::run(StringRef name, OpKind kind, StringRef symbol,
                        llvm::ArrayRef<Operand> operands, Type type) {
  Operation *op = append(kind, operands);
  if (!op) {
    return nullptr;
  }
  op->symbol = module.intern(symbol);
  return module.addResult(op, unique(name), type);
}

void BodyBuilder::ret(Value *value) { append(OpKind::Return, {use(value)}); }
