"""Trains shapes that are awkward to cut, under layouts, and compares with one rank.

    shapes.py [--processes] HP_RUN FOLDER [NAME...]

In float64: each parameter's gradient, loss and gradient norm of three steps, and
the parameters after them agree to 1e-9, each relative to its own size.
"""

import argparse
import json
import os
import sys

import numpy
from runs import Runs, farthest, layout, ranks_of

BOUND = 1e-9
COUNT = 24 * 256  # tokens of the file
STATE = {"parallelism.context_parallel_linear": "state"}
HEADS = {"parallelism.context_parallel_linear": "alltoall",
         "parallelism.context_parallel_attention": "alltoall"}
NO_SP = {"parallelism.enable_sequence_parallel": "false"}
NO_LP = {"parallelism.disable_loss_parallel": "true"}
GATHER = {"parallelism.context_parallel_attention": "allgather"}


def model(**config):
    return {f"model.config.{key}": value for key, value in config.items()}


def length(tokens):
    # Rows of 130 do not fill the file.
    rows = "rows" if COUNT % tokens == 0 else "stream"
    return {"training.seq_len": tokens, "data.layout": rows}


ODD = model(intermediate_size=97, vocab_size=997)
EVEN = model(intermediate_size=98, linear_value_head_dim=18)
WIDE = model(num_attention_heads=8, linear_num_key_heads=8, linear_num_value_heads=16)
# name: settings of the layout and of the model, the latter for one rank too.
CASES = {
    # Pieces of unequal size, and ranks that hold none of dt_bias and A_log.
    "four over eight": (layout(dps=8), ODD),
    "odd over three": (layout(dps=3), ODD),
    "odd over replicas and three": (layout(dpr=2, dps=3), ODD),
    "three of two": (layout(dps=3, tp=2), EVEN),
    "three of two, no sp": (layout(dps=3, tp=2) | NO_SP | NO_LP, EVEN),
    "cp three of two": (layout(cp=3, tp=2), EVEN),
    "cp and shard of odd": (layout(dps=2, cp=3), ODD),
    # Few tokens on a rank: chunks of 64 that are cut, and shards no longer than
    # the halo of the convolution.
    "two chunks a rank": (layout(cp=2) | STATE, length(256)),
    "a chunk and a token": (layout(cp=2) | STATE, length(130)),
    "a chunk and a token, heads": (layout(cp=2) | HEADS, length(130)),
    "three tokens a rank": (layout(cp=8) | STATE, length(24)),
    "three tokens a rank, gather": (layout(cp=8) | STATE | GATHER, length(24)),
    "three tokens of sp": (layout(cp=2, tp=2) | STATE, length(12)),
    # Fewer heads of keys and values than ranks.
    "one kv head of four": (layout(tp=4), WIDE | model(num_key_value_heads=1)),
    "two kv heads of eight": (layout(tp=8), WIDE | model(num_key_value_heads=2)),
    "two kv heads, no sp": (layout(tp=4, dps=2) | NO_SP, WIDE),
    "one kv head, cp": (layout(tp=2, cp=2), model(num_key_value_heads=1)),
    # Models of other parts.
    "untied": (layout(dps=2, cp=2, tp=2), model(tie_word_embeddings="false")),
    "untied, no lp": (layout(tp=2) | NO_LP, model(tie_word_embeddings="false")),
    "biases": (layout(dps=2, cp=2, tp=2), model(attention_bias="true")),
    "biases, no sp": (layout(dps=2, tp=2) | NO_SP, model(attention_bias="true")),
    "no gate": (layout(dps=2, tp=2), model(attn_output_gate="false")),
    "full attention alone": (layout(dps=2, cp=2, tp=2), model(full_attention_interval=1)),
    "no full attention": (
        layout(dps=2, cp=2, tp=2),
        model(num_hidden_layers=2, layer_types="[linear_attention, linear_attention]"),
    ),
    "one layer": (
        layout(dpr=2, tp=2),
        model(num_hidden_layers=1, layer_types="[full_attention]"),
    ),
}


def write_inputs(folder):
    config = {
        "model": {"spec": "qwen3_5_v2", "flavor": "micro"},
        "training": {
            "steps": 3, "seq_len": 24, "local_batch_size": 1, "dtype": "float64",
            "init": "philox", "seed": 3, "max_norm": 0.1,
        },
        # Large enough for moments of tiny gradients to agree.
        "optimizer": {"lr": 1e-3, "eps": 1e-6, "no_decay": []},
        "data": {"format": "tokens", "layout": "rows",
                 "path": os.path.join(folder, "tokens.bin")},
    }
    with open(os.path.join(folder, "run.yaml"), "w") as file:
        json.dump(config, file)
    generator = numpy.random.default_rng(11)
    ids = generator.integers(0, 990, COUNT, dtype=numpy.uint32)
    ids.tofile(os.path.join(folder, "tokens.bin"))
    return os.path.join(folder, "run.yaml")


def compare(runs, name):
    """The largest deviations: of gradients, loss and norm, parameters."""
    place, shape = CASES[name]
    batch = place["parallelism.data_parallel_replicate_degree"]
    batch *= place["parallelism.data_parallel_shard_degree"]
    one_rank = layout() | shape | {"training.local_batch_size": batch}
    worst = []
    want = runs.forward("one", one_rank)
    got = runs.forward("many", place | shape)
    worst.append(farthest(got, want))
    want = runs.train("one", one_rank)
    got = runs.train("many", place | shape)
    assert len(want.metrics) == len(got.metrics) == 3
    for ours, theirs in zip(got.metrics, want.metrics):
        assert ours["updated"] and theirs["updated"]
        for key in ("loss", "grad_norm"):
            value = abs(ours[key] - theirs[key]) / abs(theirs[key])
            worst.append((value, f"{key} of step {ours['step']}"))
    worst.append(farthest(got.weights, want.weights))
    for line in ("sent by each rank, as predicted", "as predicted on the others"):
        assert line in got.said, got.said
    return max(worst)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hp_run")
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--processes", action="store_true")
    args = parser.parse_args()
    folder = os.path.abspath(args.folder)
    os.makedirs(folder, exist_ok=True)
    config = write_inputs(folder)
    failures = 0
    for name in args.names or CASES:
        runs = Runs(args.hp_run, config, os.path.join(folder, name), args.processes)
        try:
            value, where = compare(runs, name)
            good = value <= BOUND
            print(f"{name:30} {ranks_of(CASES[name][0])} ranks {value:.1e} {where}"
                  f"{'' if good else '  FAILED'}", flush=True)
        except AssertionError as failure:
            good = False
            print(f"{name:30} FAILED\n{failure}", flush=True)
        failures += not good
    print(f"{len(args.names or CASES)} shapes, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
