"""Compares loss and gradient norm of metrics files, step by step.

    compare_metrics.py TOLERANCE FILE FILE...
"""

import json
import sys

tolerance, *paths = sys.argv[1:]
runs = []
for path in paths:
    with open(path) as file:
        runs.append([json.loads(line) for line in file])
assert len({len(run) for run in runs}) == 1, [len(run) for run in runs]
for lines in zip(*runs):
    for key in ("step", "loss", "grad_norm"):
        values = [line[key] for line in lines]
        spread = max(values) - min(values)
        assert spread <= float(tolerance) * abs(values[0]), (key, values)
print(f"{len(runs[0])} steps agree in {len(runs)} files")
