//===- Communication.cpp - What a step sends ------------------------------===//

#include "hp/Analysis/Communication.h"
#include "hp/Analysis/Placement.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

using namespace hp;
using llvm::ArrayRef;
using llvm::StringRef;

StringRef hp::name(Primitive primitive) {
  switch (primitive) {
  case Primitive::AllReduce:
    return "all_reduce";
  case Primitive::AllGather:
    return "all_gather";
  case Primitive::ReduceScatter:
    return "reduce_scatter";
  case Primitive::AllToAll:
    return "all_to_all";
  case Primitive::SendReceive:
    return "send_receive";
  }
  return {};
}

void Traffic::add(Primitive primitive, ArrayRef<AxisId> axes, int64_t bytes,
                  int64_t calls) {
  if (calls == 0) {
    return;
  }
  Count &count = counts[{primitive, AxisList(axes)}];
  count.calls += calls;
  count.bytes += bytes * calls;
}

void Traffic::add(const Traffic &other) {
  for (const auto &[key, count] : other.counts) {
    counts[key].calls += count.calls;
    counts[key].bytes += count.bytes;
  }
}

bool Traffic::operator==(const Traffic &other) const {
  return std::equal(counts.begin(), counts.end(), other.counts.begin(),
                    other.counts.end(), [](const auto &x, const auto &y) {
                      return x.first.primitive == y.first.primitive &&
                             x.first.axes == y.first.axes &&
                             x.second == y.second;
                    });
}

void hp::print(const Traffic &traffic, const Mesh &mesh,
               llvm::raw_ostream &os) {
  for (const auto &[key, count] : traffic.counts) {
    std::string axes;
    llvm::raw_string_ostream stream(axes);
    mesh.printGroup(stream, key.axes);
    os << "  " << llvm::left_justify(name(key.primitive), 15) << ' '
       << llvm::left_justify(axes, 18)
       << llvm::format(" %6lld calls %14lld bytes\n", (long long)count.calls,
                       (long long)count.bytes);
  }
}

//===----------------------------------------------------------------------===//
// Messages of more than one parameter
//===----------------------------------------------------------------------===//

std::vector<Param *> hp::bundleParams(Module &module,
                                      const Operation &unshard) {
  std::vector<Param *> params;
  StringRef prefix = unshard.symbol;
  for (const Member &member : module.members) {
    if (!member.param) {
      continue;
    }
    StringRef name = member.param->name;
    if (prefix.empty() ||
        (name.consume_front(prefix) && name.consume_front("."))) {
      params.push_back(member.param);
    }
  }
  return params;
}

AxisList hp::reductionAxes(const Operation &reduceGrad, StringRef name) {
  const Attribute *attribute = reduceGrad.attrs.find(name);
  const AxisList *axes = attribute ? attribute->get<AxisList>() : nullptr;
  return axes ? *axes : AxisList();
}

std::vector<ReductionRun> hp::reductionRuns(Function &function) {
  std::vector<ReductionRun> runs;
  bool open = false;
  for (const Operation &op : function.body->ops) {
    if (op.is(OpKind::Free)) {
      continue;
    }
    if (!op.is(OpKind::ReduceGrad)) {
      open = false;
      continue;
    }
    AxisList scatter = reductionAxes(op, "scatter");
    if (!open || runs.back().scatter != scatter) {
      runs.push_back({scatter, {}});
      open = true;
    }
    runs.back().members.push_back(&op);
  }
  return runs;
}

int64_t hp::paddedElements(Type type, const Mesh &mesh, ArrayRef<AxisId> axes) {
  int64_t elements = type.localBytes(mesh) / byteSize(type.dtype());
  if (type.rank() == 0 || axes.empty()) {
    return elements;
  }
  int64_t rows = type.localShape(mesh)[0];
  return elements / rows * paddedRows(rows, mesh.size(axes));
}

//===----------------------------------------------------------------------===//
// Prediction
//===----------------------------------------------------------------------===//

static DType wide(DType dtype) {
  return dtype == DType::F64 ? DType::F64 : DType::F32;
}

static void addUnshard(Module &module, const Operation &op, Traffic &traffic) {
  // Parameters stored over the same axes and used in the same dtype travel
  // together.
  std::map<std::pair<AxisList, DType>, int64_t> messages;
  for (const Param *param : bundleParams(module, op)) {
    if (param->type->store) {
      const AxisList &axes = param->type->store->axes;
      messages[{axes, param->type.dtype()}] +=
          paddedElements(param->type, module.mesh, axes) *
          byteSize(param->type.dtype());
    }
  }
  for (const auto &[key, bytes] : messages) {
    traffic.add(Primitive::AllGather, key.first, bytes);
  }
}

Traffic hp::trafficOf(Module &module, const ReductionRun &run) {
  Traffic traffic;
  std::map<DType, int64_t> scattered;
  std::map<std::pair<AxisList, DType>, int64_t> summed;
  int64_t ranks = module.mesh.size(run.scatter);
  for (const Operation *op : run.members) {
    Type gradient = op->operands[0].type(module);
    DType dtype =
        op->results[0] ? op->results[0]->type.dtype() : gradient.dtype();
    int64_t piece =
        paddedElements(gradient, module.mesh, run.scatter) * byteSize(dtype);
    scattered[dtype] += piece * ranks;
    summed[{reductionAxes(*op, "sum"), dtype}] += piece;
  }
  if (!run.scatter.empty()) {
    for (const auto &[dtype, bytes] : scattered) {
      traffic.add(Primitive::ReduceScatter, run.scatter, bytes);
    }
  }
  for (const auto &[key, bytes] : summed) {
    if (!key.first.empty()) {
      traffic.add(Primitive::AllReduce, key.first, bytes);
    }
  }
  return traffic;
}

/// A ring of one rank passes nothing round.
static void addRing(Module &module, const Operation &op, Traffic &traffic) {
  Type key = op.operands[1].type(module);
  int64_t ranks = module.mesh.size(op.axes);
  int64_t bytes = 2 * key.localBytes(module.mesh);
  traffic.add(Primitive::SendReceive, op.axes, bytes, ranks - 1);
  if (op.backward && ranks > 1) {
    traffic.add(Primitive::SendReceive, op.axes,
                bytes / byteSize(key.dtype()) * byteSize(wide(key.dtype())),
                ranks);
  }
}

static void addCollective(Module &module, const Operation &op,
                          Traffic &traffic) {
  const Mesh &mesh = module.mesh;
  int64_t bytes = op.operands[0].type(module).localBytes(mesh);
  switch (op.kind) {
  case OpKind::AllReduce:
    return traffic.add(Primitive::AllReduce, op.axes, bytes);
  case OpKind::AllGather:
    return traffic.add(Primitive::AllGather, op.axes, bytes);
  case OpKind::ReduceScatter:
    return traffic.add(Primitive::ReduceScatter, op.axes, bytes);
  case OpKind::AllToAll:
    return traffic.add(Primitive::AllToAll, op.axes, bytes);
  case OpKind::CrossEntropyVp:
    if (!op.backward) {
      // One number a token, in at least fp32.
      Type logits = op.operands[0].type(module);
      int64_t tokens =
          bytes / byteSize(logits.dtype()) / logits.localShape(mesh).back();
      traffic.add(Primitive::AllReduce, op.axes,
                  tokens * byteSize(wide(logits.dtype())), 3);
    }
    return;
  case OpKind::CpRing:
    return addRing(module, op, traffic);
  case OpKind::CpHalo: {
    // k of the tokens of the shard.
    Type type = op.operands[0].type(module);
    traffic.add(Primitive::SendReceive, op.axes,
                bytes / type.localShape(mesh)[1] * op.attrs.getInt("k", 1));
    return;
  }
  case OpKind::CpScan:
    return traffic.add(Primitive::SendReceive, op.axes,
                       op.operands[1].type(module).localBytes(mesh),
                       mesh.size(op.axes) - 1);
  default: // copy_to and shard send nothing
    return;
  }
}

Traffic hp::trafficOf(Module &module, const Operation &op) {
  Traffic traffic;
  if (op.info().category == OpCategory::Collective) {
    addCollective(module, op, traffic);
  } else if (op.is(OpKind::FsdpUnshard)) {
    addUnshard(module, op, traffic);
  }
  return traffic;
}

Traffic hp::predictTraffic(Module &module, Function &function) {
  Traffic traffic;
  for (const Operation &op : function.body->ops) {
    traffic.add(trafficOf(module, op));
  }
  for (const ReductionRun &run : reductionRuns(function)) {
    traffic.add(trafficOf(module, run));
  }
  return traffic;
}
