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

void ParameterStore::allocate(Module &module,
                              llvm::function_ref<Placement(Type)> placementOf) {
  for (const ParamInstance &instance : allParameters(module)) {
    Type type = instance.param->type;
    DType dtype = type->store ? type->store->dtype : type.dtype();
    StoredParameter parameter;
    parameter.name = instance.name;
    parameter.init = instance.param->init;
    parameter.type = type;
    parameter.placement = placementOf(type);
    const Extents &shape = parameter.placement.shape;
    parameter.value = at::empty(at::IntArrayRef(shape.data(), shape.size()),
                                scalarType(dtype));
    byName[instance.name] = parameters.size();
    parameters.push_back(std::move(parameter));
  }
  for (const ParamInstance &instance : registrationOrder(module)) {
    registered.push_back(byName.lookup(instance.name));
  }
}

ParameterStore::ParameterStore(Module &module, int64_t rank) {
  allocate(module,
           [&](Type type) { return hp::placementOf(type, module.mesh, rank); });
}

ParameterStore ParameterStore::whole(Module &module) {
  ParameterStore store;
  store.allocate(module, Placement::whole);
  return store;
}

ParameterStores hp::makeStores(Module &module, llvm::ArrayRef<int64_t> ranks) {
  ParameterStores stores;
  for (int64_t rank : ranks) {
    stores.emplace_back(module, rank);
  }
  return stores;
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
