"""Compares three steps in float32 with three in float64.

    compare_precisions.py NARROW WIDE FLOAT32

FLOAT32 is the float64 run's export in float32.
"""

import json
import sys

import numpy
from safetensors.numpy import load_file


def metrics(name):
    with open(name + ".jsonl") as file:
        return [json.loads(line) for line in file]


narrow, wide, float32 = sys.argv[1:]
for ours, theirs in zip(metrics(narrow), metrics(wide), strict=True):
    for key in ("loss", "grad_norm"):
        difference = abs(ours[key] / theirs[key] - 1)
        assert 0 < difference < 1e-5, (key, difference)  # 0: not wide at all
last = "/step-00000003/"
ours = load_file(narrow + last + "model.safetensors")
theirs = load_file(wide + last + "model.safetensors")
exported = load_file(float32 + "/model.safetensors")
assert ours.keys() == theirs.keys() == exported.keys()
rounded = 0
for name, tensor in theirs.items():
    assert tensor.dtype == numpy.float64 and ours[name].dtype == numpy.float32
    assert (exported[name] == tensor.astype(numpy.float32)).all(), name
    rounded += (exported[name] != tensor).mean() > 0.5
    # AdamW divides by the gradient's size, so an element may be off by a step.
    scale = max(numpy.linalg.norm(tensor), 1e-3)
    assert numpy.linalg.norm(ours[name] - tensor) / scale < 1e-2, name
assert rounded > 40, rounded  # the values use float64's digits
moments = load_file(wide + last + "optimizer.safetensors")
assert all(tensor.dtype == numpy.float64 for tensor in moments.values())
print(f"metrics and {len(theirs)} parameters agree, {len(moments)} moments are F64")
