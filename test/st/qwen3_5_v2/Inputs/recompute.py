"""Runs each mode of activation checkpointing and compares bits and bytes.

    recompute.py HP_RUN FOLDER

On one rank, and on eight with and without sequence parallelism, for rows that
one chunk of the recurrence holds and for longer ones: loss, logits and each
gradient of a batch, and checkpoint and metrics after two steps, are the same bits
in every mode. The table shows the peak of values, measured and predicted, on
rank 0.
"""

import os
import re
import sys

from runs import Runs, figures, layout, same_bits
from shapes import model, write_inputs

MODE = "activation_checkpoint.mode"
OPTION = "activation_checkpoint.selective_ac_option"
MODES = {
    "none": {MODE: "none"},
    "selective 2": {MODE: "selective", OPTION: "2"},
    "selective op": {MODE: "selective", OPTION: "op"},
    "full": {MODE: "full"},
}
EIGHT = layout(dps=2, cp=2, tp=2)
BASE = {"training.local_batch_size": 2, "training.dtype": "float32", "training.steps": 2}
PLACES = {
    "one rank": layout() | {"training.seq_len": 48},
    "one rank, long": layout() | {"training.seq_len": 96},
    "eight ranks": EIGHT | {"training.seq_len": 48},
    "eight ranks, long": EIGHT
    | {"training.seq_len": 192}
    | {"parallelism.context_parallel_linear": "alltoall"}
    | {"parallelism.context_parallel_attention": "allgather"},
    "eight ranks, no sp": EIGHT
    | {"parallelism.enable_sequence_parallel": "false", "training.seq_len": 48}
    | {"parallelism.fsdp_reshard_after_forward": "never"},
}
PEAK = re.compile(r"peak of values (\d+) bytes measured, (\d+) predicted")


def check(runs, place, settings):
    """The peaks of each mode. All else must agree with mode none."""
    peaks = {}
    for mode, values in MODES.items():
        name = f"{place} {mode}"
        values = BASE | settings | values
        gradients = runs.forward(name, values)
        trained = runs.train(name, values)
        if mode == "none":
            first_gradients, first = gradients, trained
            assert len(gradients) > 50
        differ = same_bits(gradients, first_gradients)
        assert not differ, f"{name}: {len(differ)} tensors differ, {differ[:3]}"
        differ = same_bits(trained.weights, first.weights)
        assert not differ, f"{name}: {len(differ)} parameters differ, {differ[:3]}"
        assert figures(trained.metrics) == figures(first.metrics), name
        measured, predicted = map(int, PEAK.search(trained.said).groups())
        assert measured == predicted, trained.said
        peaks[mode] = measured
    print(f"{place:20}" + "".join(f"{peaks[mode]:14}" for mode in MODES), flush=True)
    # Recomputing more keeps less.
    assert peaks["full"] < peaks["selective op"] < peaks["none"], place
    assert peaks["full"] < peaks["selective 2"] < peaks["none"], place


def main():
    hp_run, folder = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    runs = Runs(hp_run, write_inputs(os.path.abspath(folder)), folder)
    print(f"{'':20}" + "".join(f"{mode:>14}" for mode in MODES))
    failures = 0
    for place, settings in PLACES.items():
        try:
            check(runs, place, settings | model(num_hidden_layers=8))
        except AssertionError as failure:
            print(f"FAILED {failure}")
            failures += 1
    print(f"{len(PLACES)} layouts in {len(MODES)} modes, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
