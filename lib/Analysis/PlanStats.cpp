//===- PlanStats.cpp - What a plan costs ----------------------------------===//

#include "hp/Analysis/PlanStats.h"
#include "hp/Analysis/Flops.h"
#include "hp/Analysis/Memory.h"
#include "hp/Analysis/Parameters.h"
#include "hp/Analysis/Placement.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"

using namespace hp;

/// Bytes of a parameter as rank 0 stores it: the largest piece.
static int64_t storedBytes(const Param &param, const Mesh &mesh) {
  int64_t bytes = heldBytes(param.type, mesh, /*rank=*/0);
  if (const auto &store = param.type->store) {
    bytes = bytes / byteSize(param.type.dtype()) * byteSize(store->dtype);
  }
  return bytes;
}

static PlanStats::Step stepStats(Module &module, Function &function) {
  PlanStats::Step step;
  bool pastLoss = false;
  for (const Operation &op : function.body->ops) {
    ++step.instructions;
    pastLoss |= op.is(OpKind::Ones);
    if (op.is(OpKind::Free)) {
      ++step.frees;
    } else if (op.info().category == OpCategory::Step) {
      ++step.optimizer;
    } else if (pastLoss) {
      step.backward += !op.is(OpKind::Return);
    } else {
      ++step.forward;
    }
  }
  MemoryPeak peak = peakOfValues(module, function);
  step.flops = flops(module, function);
  step.inputBytes = peak.argumentBytes;
  step.peakBytes = peak.bytes;
  if (peak.at && !peak.at->results.empty() && peak.at->results[0]) {
    step.peakAt = ("%" + peak.at->results[0]->name).str();
  }
  step.traffic = predictTraffic(module, function);
  return step;
}

PlanStats hp::planStats(Module &module) {
  PlanStats stats;
  stats.model = module.name.str();
  stats.flavor = module.flavor.str();
  stats.stage = module.stage;
  stats.ranks = module.mesh.numRanks();
  stats.mesh = module.mesh;
  for (const ParamInstance &instance : allParameters(module)) {
    ++stats.tensors;
    stats.parameters += instance.param->type.numElements();
    int64_t bytes = storedBytes(*instance.param, module.mesh);
    stats.parameterBytes += bytes;
    stats.optimizerBytes += 2 * bytes;
  }
  if (Function *step = module.findFunction("step");
      step && module.stage == Stage::Step) {
    stats.step = stepStats(module, *step);
  }
  return stats;
}

/// 752,393,024
static std::string grouped(uint64_t value) {
  std::string digits = std::to_string(value), text;
  for (size_t i = 0; i < digits.size(); ++i) {
    text += i > 0 && (digits.size() - i) % 3 == 0 ? "," : "";
    text += digits[i];
  }
  return text;
}

void hp::print(const PlanStats &stats, llvm::raw_ostream &os) {
  auto line = [&](llvm::StringRef label) -> llvm::raw_ostream & {
    return os << llvm::left_justify(label, 22);
  };
  line("model") << stats.model;
  if (!stats.flavor.empty()) {
    os << ' ' << stats.flavor;
  }
  os << ", stage " << name(stats.stage) << ", " << stats.ranks
     << (stats.ranks == 1 ? " rank\n" : " ranks\n");
  line("parameters") << grouped(stats.parameters) << " in " << stats.tensors
                     << " tensors\n";
  line("parameter bytes") << grouped(stats.parameterBytes) << " a rank\n";
  line("optimizer bytes") << grouped(stats.optimizerBytes) << " a rank\n";
  if (!stats.step) {
    return;
  }
  const PlanStats::Step &step = *stats.step;
  line("instructions") << grouped(step.instructions) << ": " << step.forward
                       << " forward, " << step.backward << " backward, "
                       << step.optimizer << " optimizer, " << step.frees
                       << " frees\n";
  line("flops") << llvm::format("%.4g", step.flops) << " a step\n";
  line("input bytes") << grouped(step.inputBytes) << " a rank\n";
  line("peak bytes of values")
      << grouped(step.peakBytes) << " a rank, at " << step.peakAt << "\n";
  if (!step.traffic.counts.empty()) {
    os << "sent a step by each rank\n";
    print(step.traffic, stats.mesh, os);
  }
}

void hp::printJson(const PlanStats &stats, llvm::raw_ostream &os) {
  llvm::json::OStream json(os, /*IndentSize=*/2);
  json.object([&] {
    json.attribute("model", stats.model);
    json.attribute("flavor", stats.flavor);
    json.attribute("stage", name(stats.stage));
    json.attribute("ranks", stats.ranks);
    json.attribute("parameters", int64_t(stats.parameters));
    json.attribute("tensors", int64_t(stats.tensors));
    json.attribute("parameter_bytes", stats.parameterBytes);
    json.attribute("optimizer_bytes", stats.optimizerBytes);
    if (stats.step) {
      const PlanStats::Step &step = *stats.step;
      json.attributeObject("step", [&] {
        json.attribute("instructions", int64_t(step.instructions));
        json.attribute("forward", int64_t(step.forward));
        json.attribute("backward", int64_t(step.backward));
        json.attribute("optimizer", int64_t(step.optimizer));
        json.attribute("frees", int64_t(step.frees));
        json.attribute("flops", step.flops);
        json.attribute("input_bytes", step.inputBytes);
        json.attribute("peak_bytes", step.peakBytes);
        json.attribute("peak_at", step.peakAt);
        json.attributeArray("sent", [&] {
          for (const auto &[key, count] : step.traffic.counts) {
            json.object([&, &key = key, &count = count] {
              json.attribute("primitive", name(key.primitive));
              json.attributeArray("axes", [&] {
                for (AxisId axis : key.axes) {
                  json.value(stats.mesh.name(axis));
                }
              });
              json.attribute("calls", count.calls);
              json.attribute("bytes", count.bytes);
            });
          }
        });
      });
    }
  });
  os << '\n';
}
