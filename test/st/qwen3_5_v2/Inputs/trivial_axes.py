"""Axes of size 1, spelled out, beside the same layout without them.

    trivial_axes.py HP_RUN FOLDER

With comm.keep_trivial the mesh has all four axes, parameters are stored in pieces
and gathered (one piece), and every collective is issued. In float32, in each mode
of activation checkpointing: gradients and loss of a batch, metrics of three steps,
and the checkpoint after them (weights, moments and manifest) are the same bytes.
"""

import filecmp
import os
import sys

from recompute import MODES
from runs import Runs, figures, layout, same_bits
from shapes import HEADS, NO_LP, NO_SP, write_inputs

BASE = {"training.dtype": "float32", "training.local_batch_size": 2}
# One rank, with all axes of size 1; then two ranks along each axis, where the
# other three have size 1. What is not there cannot make a difference.
PLACES = {
    "one rank": layout(),
    "one rank, other choices": layout() | HEADS | NO_SP | NO_LP,
    "replicas": layout(dpr=2),
    "shards": layout(dps=2),
    "cp": layout(cp=2),
    "tp": layout(tp=2),
}


def check(runs, place, mode):
    plain = BASE | PLACES[place] | MODES[mode]
    spelled = plain | {"comm.keep_trivial": "true"}
    name = f"{place} {mode}"
    got = runs.forward(name + " spelled", spelled)
    differ = same_bits(got, runs.forward(name, plain))
    assert not differ, f"{len(differ)} tensors differ: {differ[:3]}"
    ours = runs.train(name + " spelled", spelled)
    want = runs.train(name, plain)
    assert "mesh dp_replicate=" in ours.said or place.startswith("one"), ours.said
    assert "sent by each rank, as predicted" in ours.said, ours.said
    for file in ("model.safetensors", "optimizer.safetensors", "manifest.json"):
        pair = [os.path.join(run.folder, file) for run in (ours, want)]
        assert filecmp.cmp(*pair, shallow=False), f"{file} differs"
    assert len(ours.metrics) == 3 and figures(ours.metrics) == figures(want.metrics)


def main():
    hp_run, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    runs = Runs(hp_run, write_inputs(os.path.abspath(folder)), folder)
    failures = count = 0
    for place in PLACES:
        # Modes on one rank; on two, one with and one without recomputation.
        for mode in MODES if place == "one rank" else ("none", "full"):
            count += 1
            try:
                check(runs, place, mode)
                print(f"{place}, {mode}: the same", flush=True)
            except AssertionError as failure:
                print(f"{place}, {mode}: FAILED {failure}", flush=True)
                failures += 1
    print(f"{count} layouts, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
