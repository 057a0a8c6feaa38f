//===- ParameterStore.cpp - Weights and optimizer state -------------------===//

#include "hp/Runtime/ParameterStore.h"
#include "hp/Analysis/Parameters.h"
#include <ATen/ATen.h>

using namespace hp;
using llvm::StringRef;

at::ScalarType hp::scalarType(DType dtype) {
  switch (dtype) {
  case DType::Bool:
    return at::kBool;
  case DType::I64:
    return at::kLong;
  case DType::BF16:
    return at::kBFloat16;
  case DType::F32:
    return at::kFloat;
  case DType::F64:
    return at::kDouble;
  }
  return at::kFloat;
}

ParameterStore::ParameterStore(Module &module) {
  for (const ParamInstance &instance : allParameters(module)) {
    Type type = instance.param->type;
    auto shape = type.localShape(module.mesh);
    byName[instance.name] = parameters.size();
    parameters.push_back({instance.name,
                          instance.param->init,
                          at::empty(at::IntArrayRef(shape.data(), shape.size()),
                                    scalarType(type.dtype())),
                          {},
                          {}});
  }
  for (const ParamInstance &instance : registrationOrder(module)) {
    registered.push_back(byName.lookup(instance.name));
  }
}

StoredParameter *ParameterStore::find(StringRef name) {
  auto it = byName.find(name);
  return it == byName.end() ? nullptr : &parameters[it->second];
}

const StoredParameter *ParameterStore::find(StringRef name) const {
  return const_cast<ParameterStore *>(this)->find(name);
}

int64_t ParameterStore::valueBytes() const {
  int64_t bytes = 0;
  for (const StoredParameter &parameter : parameters) {
    bytes += parameter.value.nbytes();
  }
  return bytes;
}
