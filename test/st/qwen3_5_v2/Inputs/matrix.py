"""Trains every layout of up to eight ranks and compares with one rank.

    matrix.py HP_RUN FOLDER [--processes] [--cases N] [--only NAME]

Every legal layout dp_replicate x dp_shard x cp x tp with a product of at most
eight, and one of sixteen ranks, with the other choices varied so that each pair
of choices occurs: sequence and loss parallelism, recomputation, attention and
linear attention across cp, resharding, and two models (few heads, many heads).
Layouts that are not legal must be refused. Ranks run in lockstep in one process,
or with --processes as processes over Gloo. Against one rank on the same batch:

  float64   each parameter's gradient, loss, gradient norm, and the parameters
            after three steps to 1e-9 relative (of the tensor's norm)
  float32   loss and gradient norm of three steps to 1e-5 relative

hp-run itself checks that replicas are bitwise equal (--check-replicas), and that
bytes sent and peaks of values are those predicted. The last line counts failures.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time

import numpy
from safetensors.numpy import load_file

SEQ_LEN, VOCAB, INTERMEDIATE = 48, 1000, 96
# num_attention_heads, num_key_value_heads, linear key heads, linear value heads.
MODELS = {"few": (4, 2, 2, 4), "many": (8, 2, 8, 16)}
CHOICES = {
    "model": list(MODELS),
    "sp": [True, False],
    "lp": [True, False],
    "ac": ["none", "full", "selective", "2"],
    "attention": ["ring", "allgather", "alltoall"],
    "linear": ["state", "alltoall"],
    "reshard": ["always", "never"],
}
AXES = ("dpr", "dps", "cp", "tp")


def layouts(most):
    """Every (dp_replicate, dp_shard, cp, tp) with a product up to `most`."""
    sizes = range(1, most + 1)
    for layout in itertools.product(sizes, repeat=4):
        if numpy.prod(layout) <= most:
            yield layout


def is_legal(layout, choice):
    """What docs/Passes.md says of divisibility."""
    _, _, cp, tp = layout
    heads, groups, keys, values = MODELS[choice["model"]]
    legal = SEQ_LEN % (cp * (tp if choice["sp"] else 1)) == 0
    legal &= VOCAB % tp == 0 and INTERMEDIATE % tp == 0
    legal &= heads % tp == 0 and keys % tp == 0 and values % tp == 0
    legal &= groups % tp == 0 or tp % groups == 0
    if cp > 1 and choice["attention"] == "alltoall":
        legal &= heads % (tp * cp) == 0 and groups % tp == 0
    if cp > 1 and choice["linear"] == "alltoall":
        legal &= values % (tp * cp) == 0
    return legal


def relevant(layout, choice):
    """The choices that make a difference, and which axes there are."""
    dpr, dps, cp, tp = layout
    facts = {"model": choice["model"], "ac": choice["ac"]}
    if tp > 1:
        facts |= {"sp": choice["sp"], "lp": choice["lp"]}
    if cp > 1:
        facts |= {"attention": choice["attention"], "linear": choice["linear"]}
    if dps * cp > 1:
        facts["reshard"] = choice["reshard"]
    facts |= {axis: True for axis, size in zip(AXES, layout) if size > 1}
    return facts


def pairs(layout, choice):
    facts = sorted(relevant(layout, choice).items())
    return set(itertools.combinations(facts, 2))


def cover(most):
    """(layout, choice) for each layout, then more until each pair occurs."""
    combos = [dict(zip(CHOICES, c)) for c in itertools.product(*CHOICES.values())]
    legal = {
        layout: [choice for choice in combos if is_legal(layout, choice)]
        for layout in layouts(most)
    }
    wanted = set()
    for layout, choices in legal.items():
        for choice in choices:
            wanted |= pairs(layout, choice)
    cases, refused = [], []

    def take(candidates):
        # Where nothing new is to be had, another choice each time.
        start = 37 * len(cases) % len(candidates)
        candidates = candidates[start:] + candidates[:start]
        best = max(candidates, key=lambda case: len(pairs(*case) & wanted))
        wanted.difference_update(pairs(*best))
        return best

    for layout, choices in legal.items():
        if choices:
            cases.append(take([(layout, choice) for choice in choices]))
        # The first choice that is not legal must be refused.
        broken = [choice for choice in combos if not is_legal(layout, choice)]
        if broken:
            refused.append((layout, broken[len(refused) % len(broken)]))
    everything = [
        (layout, choice) for layout, choices in legal.items() for choice in choices
    ]
    while wanted:
        cases.append(take(everything))
    return cases, refused


def name_of(layout, choice):
    facts = relevant(layout, choice)
    words = ["x".join(map(str, layout)), choice["model"], "ac=" + choice["ac"]]
    words += [key if facts[key] else "no-" + key for key in ("sp", "lp") if key in facts]
    words += [facts[key] for key in ("attention", "linear", "reshard") if key in facts]
    return " ".join(words)


def settings(layout, choice, dtype):
    heads, groups, keys, values = MODELS[choice["model"]]
    config = {
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "linear_num_key_heads": keys,
        "linear_num_value_heads": values,
    }
    result = {f"model.config.{key}": value for key, value in config.items()}
    dpr, dps, cp, tp = layout
    lower = lambda flag: str(flag).lower()
    ac = choice["ac"]
    result |= {
        "parallelism.data_parallel_replicate_degree": dpr,
        "parallelism.data_parallel_shard_degree": dps,
        "parallelism.context_parallel_degree": cp,
        "parallelism.tensor_parallel_degree": tp,
        "parallelism.enable_sequence_parallel": lower(choice["sp"]),
        "parallelism.disable_loss_parallel": lower(not choice["lp"]),
        "parallelism.context_parallel_attention": choice["attention"],
        "parallelism.context_parallel_linear": choice["linear"],
        "parallelism.fsdp_reshard_after_forward": choice["reshard"],
        "activation_checkpoint.mode": "selective" if ac == "2" else ac,
        "training.dtype": dtype,
    }
    if ac == "2":
        result["activation_checkpoint.selective_ac_option"] = "2"
    return result


class Runner:
    def __init__(self, hp_run, folder, processes):
        self.hp_run, self.folder, self.processes = hp_run, folder, processes
        self.references = {}
        self.config = os.path.join(folder, "run.yaml")
        with open(self.config, "w") as file:
            json.dump(
                {
                    "model": {"spec": "qwen3_5_v2", "flavor": "micro"},
                    "training": {
                        "steps": 3, "seq_len": SEQ_LEN, "local_batch_size": 1,
                        "init": "philox", "seed": 7, "max_norm": 0.1,
                    },
                    # Large enough for moments of tiny gradients to agree.
                    "optimizer": {"lr": 1e-3, "eps": 1e-6, "no_decay": []},
                    "data": {
                        "format": "tokens", "layout": "rows",
                        "path": os.path.join(folder, "tokens.bin"),
                    },
                },
                file,
            )
        generator = numpy.random.default_rng(5)
        ids = generator.integers(0, VOCAB, (64, SEQ_LEN), dtype=numpy.uint32)
        ids.tofile(os.path.join(folder, "tokens.bin"))

    def run(self, command, out, values, ranks, *arguments):
        line = [self.hp_run, command, self.config]
        values = values | {"checkpoint.folder": out}
        if command == "train":
            values["metrics.jsonl"] = os.path.join(out, "metrics.jsonl")
        for key, value in values.items():
            line += ["--set", f"{key}={value}"]
        if ranks > 1:
            line += ["--nproc" if self.processes else "--simulate-ranks", str(ranks)]
            if command == "train":
                line.append("--check-replicas")
        return subprocess.run(
            [*line, *arguments], capture_output=True, text=True, timeout=600,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )

    def results(self, values, ranks, dtype, folder):
        """Gradients (float64), metrics and parameters of three steps."""
        os.makedirs(folder, exist_ok=True)
        gradients = {}
        if dtype == "float64":
            out = os.path.join(folder, "gradients.safetensors")
            done = self.run("forward", folder, values, ranks, "--out", out, "--gradients")
            if done.returncode:
                raise RuntimeError(done.stderr)
            gradients = {
                key: value for key, value in load_file(out).items() if key != "logits"
            }
        done = self.run("train", folder, values, ranks)
        if done.returncode:
            raise RuntimeError(done.stderr)
        with open(os.path.join(folder, "metrics.jsonl")) as file:
            metrics = [json.loads(line) for line in file]
        last = os.path.join(folder, f"step-{len(metrics):08}", "model.safetensors")
        return gradients, metrics, load_file(last), done.stdout

    def reference(self, layout, choice, dtype):
        batch = layout[0] * layout[1]
        key = (batch, choice["model"], dtype)
        if key not in self.references:
            one = dict(choice, ac="none")
            values = settings((1, 1, 1, 1), one, dtype)
            values["training.local_batch_size"] = batch
            folder = os.path.join(self.folder, "-".join(map(str, key)))
            self.references[key] = self.results(values, 1, dtype, folder)
        return self.references[key]

    def compare(self, layout, choice, dtype, number):
        """The largest relative deviation of gradients, of loss and norm, and of
        parameters."""
        ranks = int(numpy.prod(layout))
        folder = os.path.join(self.folder, f"{number}-{dtype}")
        want = self.reference(layout, choice, dtype)
        got = self.results(settings(layout, choice, dtype), ranks, dtype, folder)
        worst = [0.0, 0.0, 0.0]
        for where, index in ((0, 0), (2, 2)):
            assert set(got[index]) == set(want[index])
            for key, value in want[index].items():
                assert got[index][key].shape == value.shape, key
                assert numpy.isfinite(got[index][key]).all(), key
                size = numpy.linalg.norm(value.astype(numpy.float64))
                off = numpy.linalg.norm((got[index][key] - value).astype(numpy.float64))
                worst[where] = max(worst[where], float(off / max(size, 1e-30)))
        assert len(got[1]) == len(want[1]) == 3
        for ours, theirs in zip(got[1], want[1]):
            assert ours["updated"] and theirs["updated"]
            for key in ("loss", "grad_norm"):
                off = abs(ours[key] - theirs[key]) / abs(theirs[key])
                worst[1] = max(worst[1], off)
        return worst, got[3]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("hp_run")
    parser.add_argument("folder")
    parser.add_argument("--processes", action="store_true")
    parser.add_argument("--cases", type=int, help="this many, spread over all")
    parser.add_argument("--only", help="cases whose name has this in it")
    args = parser.parse_args()
    os.makedirs(args.folder, exist_ok=True)
    runner = Runner(args.hp_run, os.path.abspath(args.folder), args.processes)

    cases, refused = cover(8)
    total = len(cases)
    if not args.processes:
        sixteen = dict(zip(CHOICES, (values[0] for values in CHOICES.values())))
        cases.append(((2, 2, 2, 2), sixteen))
        cases.append(((2, 2, 2, 2), sixteen | {"sp": False, "ac": "full", "model": "many",
                                               "attention": "allgather"}))
    if args.only:
        cases = [case for case in cases if args.only in name_of(*case)]
        refused = [case for case in refused if args.only in name_of(*case)]
    elif args.cases:
        several = [case for case in cases if numpy.prod(case[0]) > 1]
        cases = several[:: max(1, len(several) // args.cases)]
        refused = refused[:: max(1, len(refused) // args.cases)]

    failures = []
    print(f"{'dpr x dps x cp x tp, choices':72} {'grad f64':>9} {'loss f64':>9} "
          f"{'param f64':>9} {'loss f32':>9} seconds")
    for number, case in enumerate(cases):
        began = time.monotonic()
        name = name_of(*case)
        try:
            wide, report = runner.compare(*case, "float64", number)
            narrow, _ = runner.compare(*case, "float32", number)
        except (RuntimeError, AssertionError, subprocess.TimeoutExpired) as error:
            print(f"{name:72} FAILED\n{error}")
            failures.append(name)
            continue
        good = max(wide) <= 1e-9 and narrow[1] <= 1e-5
        if numpy.prod(case[0]) > 1:
            for line in ("replicas are bitwise equal", "sent by each rank, as predicted",
                         "and as predicted on the others"):
                if line not in report:
                    good = False
                    print(f"not said: {line}\n{report}")
        print(f"{name:72} {wide[0]:9.1e} {wide[1]:9.1e} {wide[2]:9.1e} {narrow[1]:9.1e} "
              f"{time.monotonic() - began:5.1f}{'' if good else '  FAILED'}", flush=True)
        if not good:
            failures.append(name)
    for layout, choice in refused:
        name = name_of(layout, choice)
        values = settings(layout, choice, "float64")
        ranks = int(numpy.prod(layout))
        done = runner.run("train", os.path.join(args.folder, "refused"), values, max(ranks, 2))
        # One line that says where, and no more than its notes.
        said = [line for line in done.stderr.splitlines() if ": error: " in line]
        if done.returncode != 1 or not said:
            print(f"{name:72} NOT REFUSED: exit {done.returncode}\n{done.stderr}")
            failures.append(name)
        else:
            print(f"{name:72} refused: {said[0].split(': error: ')[1][:90]}", flush=True)
    print(f"{len(cases)} layouts of {total} and more, {len(refused)} refusals")
    print(f"{len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
