"""Exports and resumes across layouts, against one rank that never stopped.

    hand_over.py HP_RUN FOLDER

A checkpoint as others write it, in bfloat16 and float32 and with the prefix of
multimodal models, is loaded under layouts that cut everything, and exported again:
the same bytes. What is trained there is exported as one rank exports it, each
element to 1e-6 in float32 and to 1e-9 in float64. Runs that stop on one layout and go on under another
end as the run that did not; on the same layout, in the same bits.
"""

import filecmp
import json
import os
import shutil
import subprocess
import sys

from runs import Runs, farthest, layout
from safetensors.numpy import load_file
from shapes import write_inputs

BATCH = {"training.init": "philox", "training.steps": 6, "checkpoint.interval": 3}
LAYOUTS = {
    "1": layout(),
    "2": layout(tp=2),
    "3x2": layout(dps=3, tp=2),
    "4": layout(dps=2, cp=2),
    "8": layout(dpr=2, cp=2, tp=2),
    "4x2": layout(dps=4, tp=2),
}
STOPS = [("4x2", "1"), ("4x2", "2"), ("4x2", "4"), ("1", "4x2"), ("2", "8"), ("4", "8")]
BATCH_SIZE = 12


def settings(name, dtype):
    place = LAYOUTS[name]
    ranks = place["parallelism.data_parallel_replicate_degree"]
    ranks *= place["parallelism.data_parallel_shard_degree"]
    rows = {"training.local_batch_size": BATCH_SIZE // ranks}
    return BATCH | place | rows | {"training.dtype": dtype}


def start(runs, name, dtype="float32", steps=6, resume=False, **more):
    values = settings(name, dtype) | {"training.steps": steps}
    return runs.train(
        more.pop("folder", f"{name}-{dtype}"),
        values | {key.replace("__", "."): value for key, value in more.items()},
        *(["--resume"] if resume else []),
    )


def same_files(one, other):
    names = sorted(os.listdir(one))
    assert names == sorted(os.listdir(other)), (names, os.listdir(other))
    _, differ, errors = filecmp.cmpfiles(one, other, names, shallow=False)
    assert not differ and not errors, (differ, errors)


class HandOver:
    def __init__(self, hp_run, folder):
        self.runs = Runs(hp_run, write_inputs(folder), folder)
        self.trained = {}

    def export(self, folder, name, dtype="float32", *options):
        """Exports a run's last checkpoint to folder `name`, and gives its path."""
        out = self.runs.path(name)
        config = f"--config={self.runs.config}"
        line = [self.runs.hp_run, "export", folder, out, config, *options]
        line += ["--set", f"training.dtype={dtype}"]
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return out

    def whole(self, name, dtype):
        """Six steps that do not stop."""
        key = (name, dtype)
        if key not in self.trained:
            self.trained[key] = start(self.runs, name, dtype)
        return self.trained[key]

    def published(self):
        """A checkpoint with keys of multimodal models, matrices in bfloat16."""
        source = self.runs.path("source")
        if not os.path.exists(source):
            first = start(self.runs, "1", steps=2, folder="source-run")
            options = ("float32", "--dtype=bfloat16", "--keys=multimodal")
            self.export(os.path.dirname(first.folder), "source", *options)
        return source

    # --- The checks: each gives what it found, or fails ------------------------

    def loads_and_exports(self, name):
        """Loaded, trained with a learning rate of 0, and exported: the same bytes."""
        still = start(
            self.runs, name, steps=1, folder=f"still-{name}", optimizer__lr=0,
            checkpoint__initial_load_path=self.published(),
        )
        out = self.export(os.path.dirname(still.folder), f"still-export-{name}")
        same_files(out, self.published())
        tensors = load_bits(out)
        kinds = {kind for kind, _ in tensors.values()}
        assert kinds == {"BF16", "F32"}, kinds
        assert all(key.startswith("model.language_model.") for key in tensors)
        return f"{len(tensors)} tensors, the same bytes"

    def exports_what_one_rank_does(self, name, dtype, bound):
        one = self.export(os.path.dirname(self.whole("1", dtype).folder), f"one-{dtype}", dtype)
        many = self.export(
            os.path.dirname(self.whole(name, dtype).folder), f"many-{name}-{dtype}", dtype
        )
        assert sorted(os.listdir(one)) == sorted(os.listdir(many))
        want = load_file(os.path.join(one, "model.safetensors"))
        got = load_file(os.path.join(many, "model.safetensors"))
        assert set(got) == set(want) and len(want) == 55
        value, where = max((float(abs(got[key] - want[key]).max()), key) for key in want)
        assert value <= bound, f"an element of {where} is off by {value:.1e}"
        return f"elements off by {value:.1e}"

    def goes_on(self, before, after):
        """Three steps here, three there. Float64."""
        folder = f"stop-{before}-{after}"
        stopped = start(self.runs, before, "float64", steps=3, folder=folder)
        assert len(stopped.metrics) == 3
        done = start(self.runs, after, "float64", resume=True, folder=folder)
        assert "step-00000003 after step 3" in done.said, done.said
        want = self.whole("1", "float64")
        assert [line["step"] for line in done.metrics] == [1, 2, 3, 4, 5, 6]
        for ours, theirs in zip(done.metrics, want.metrics):
            assert ours["tokens_seen"] == theirs["tokens_seen"]
            off = abs(ours["loss"] - theirs["loss"]) / theirs["loss"]
            assert off < 1e-9, f"step {ours['step']}: loss is off by {off:.1e}"
        value, where = farthest(done.weights, want.weights)
        assert value <= 1e-9, f"{where} is off by {value:.1e}"
        return f"off by {value:.1e}"

    def goes_on_bit_for_bit(self, name, dtype):
        folder = f"again-{name}"
        start(self.runs, name, dtype, steps=3, folder=folder)
        done = start(self.runs, name, dtype, resume=True, folder=folder)
        same_files(done.folder, self.whole(name, dtype).folder)
        return "the same bits"


def load_bits(folder):
    """The element type and bytes of each tensor of a file, whatever the type."""
    with open(os.path.join(folder, "model.safetensors"), "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        body = file.read()
    header.pop("__metadata__", None)
    return {
        key: (entry["dtype"], body[slice(*entry["data_offsets"])])
        for key, entry in header.items()
    }


def main():
    hp_run, folder = sys.argv[1:]
    folder = os.path.abspath(folder)
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    over = HandOver(hp_run, folder)
    checks = [(over.loads_and_exports, name) for name in LAYOUTS]
    checks += [(over.exports_what_one_rank_does, "4x2", "float32", 1e-6)]
    checks += [
        (over.exports_what_one_rank_does, name, "float64", 1e-9) for name in ("4x2", "3x2")
    ]
    checks += [(over.goes_on, *pair) for pair in STOPS]
    checks += [(over.goes_on_bit_for_bit, "4x2", "float64")]
    checks += [(over.goes_on_bit_for_bit, "8", "float32")]
    failures = 0
    for check, *arguments in checks:
        name = " ".join([check.__name__, *map(str, arguments)])
        try:
            print(f"{name}: {check(*arguments)}", flush=True)
        except AssertionError as failure:
            failures += 1
            print(f"{name}: FAILED {failure}", flush=True)
    print(f"{len(checks)} checks, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
