#!/usr/bin/env python3
"""Measures how long hp-opt takes to plan: by layers, and by ranks.

    bench/planning.py --build build

27B with long sequences, on one rank and on up to 16,384, and with half and twice
the layers. Medians of the wall times that --timing reports for passes and
verifier, without import and output, and ratios of one run: to stage plan the time
should depend neither on layers nor on ranks, to stage step on layers alone, and
linearly. It is no test: a missed aim is printed and is no failure.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile

# dp_replicate, dp_shard, cp, tp. At tp = 8 the four kv heads are replicated.
LAYOUTS = [(1, 1, 1, 1), (2, 2, 2, 2), (2, 8, 4, 8), (4, 16, 4, 8), (16, 32, 4, 8)]
LAYERS = [32, 64, 128]
PUBLISHED = 64
OUTSIDE = ("Import", "Output", "Total")


def milliseconds(hp_opt, config, stage, times):
    """Median milliseconds of passes and verifier."""
    command = [hp_opt, config, f"--compile-to={stage}", "--timing", "-o", os.devnull]
    sums = []
    for _ in range(times):
        report = subprocess.run(command, capture_output=True, text=True, check=True)
        rows = re.findall(r"^ +([\d.]+) \(.*%\)  (.+)$", report.stderr, re.M)
        sums.append(sum(float(s) for s, name in rows if name not in OUTSIDE))
    return statistics.median(sums) * 1e3


def write_config(folder, layout, layers):
    path = os.path.join(folder, f"{'x'.join(map(str, layout))}-{layers}.json")
    keys = ("data_parallel_replicate", "data_parallel_shard", "context_parallel")
    parallelism = {
        f"{key}_degree": size
        for key, size in zip((*keys, "tensor_parallel"), layout)
    }
    with open(path, "w", encoding="utf-8") as file:
        json.dump(
            {
                "model": {
                    "spec": "qwen3_5_v2",
                    "flavor": "27B",
                    "config": {"num_hidden_layers": layers},
                },
                "parallelism": parallelism,
                "training": {"seq_len": 32768, "local_batch_size": 1},
                "activation_checkpoint": {"mode": "full"},
            },
            file,
        )
    return path


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", default="build")
    parser.add_argument("--times", type=int, default=15)
    args = parser.parse_args()
    hp_opt = os.path.join(args.build, "bin", "hp-opt")
    print(f"{'27B':28} {'to plan':>10} {'to step':>10}")
    with tempfile.TemporaryDirectory() as folder:

        def row(name, layout, layers):
            config = write_config(folder, layout, layers)
            plan, step = (
                milliseconds(hp_opt, config, stage, args.times)
                for stage in ("plan", "step")
            )
            print(f"{name:28} {plan:7.2f} ms {step:7.2f} ms", flush=True)
            return plan, step

        ranks = [
            row(f"{a * b * c * d:6} ranks", (a, b, c, d), PUBLISHED)
            for a, b, c, d in LAYOUTS
        ]
        layers = [row(f"16384 ranks, {n} layers", LAYOUTS[-1], n) for n in LAYERS]
    print()
    plans = [plan for plan, _ in ranks[1:] + layers]
    print(f"to plan, slowest layout / fastest        {max(plans) / min(plans):.2f}")
    print(f"to step, 16384 ranks / 16 ranks          {ranks[-1][1] / ranks[1][1]:.2f}")
    grows = layers[-1][1] / layers[0][1]
    print(f"to step, {LAYERS[-1]} layers / {LAYERS[0]}               {grows:.2f}")
    worst = max(plan for plan, _ in ranks)
    print(f"to plan < 5 ms: {'met' if worst < 5 else 'MISSED'}")
    print(f"to step < 50 ms: {'met' if ranks[-1][1] < 50 else 'MISSED'}")


if __name__ == "__main__":
    main()
