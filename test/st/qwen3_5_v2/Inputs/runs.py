"""Runs of hp-run, for tests that compare one layout with another."""

import json
import os
import subprocess
from dataclasses import dataclass

import numpy
from safetensors.numpy import load_file

DEGREES = {
    "dpr": "parallelism.data_parallel_replicate_degree",
    "dps": "parallelism.data_parallel_shard_degree",
    "cp": "parallelism.context_parallel_degree",
    "tp": "parallelism.tensor_parallel_degree",
}


def layout(**degrees):
    """Settings of a layout: layout(dps=4, tp=2)."""
    return {key: degrees.get(name, 1) for name, key in DEGREES.items()}


def ranks_of(settings):
    return int(numpy.prod([settings.get(key, 1) for key in DEGREES.values()]))


@dataclass
class Trained:
    metrics: list  # of each step
    weights: dict  # of the last checkpoint
    folder: str  # of the last checkpoint
    said: str


class Runs:
    """Runs of one configuration, each in a folder of its own."""

    def __init__(self, hp_run, config, folder, processes=False):
        self.hp_run, self.config = hp_run, config
        self.folder = os.path.abspath(folder)
        # Several ranks: processes over Gloo, or lockstep in one.
        self.ranks = "--nproc" if processes else "--simulate-ranks"
        os.makedirs(self.folder, exist_ok=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def start(self, command, settings, *arguments):
        line = [self.hp_run, command, self.config]
        for key, value in settings.items():
            line += ["--set", f"{key}={value}"]
        if ranks_of(settings) > 1:
            line += [self.ranks, str(ranks_of(settings))]
        return subprocess.run(
            [*line, *arguments],
            capture_output=True,
            text=True,
            timeout=1200,
            env={"OMP_NUM_THREADS": "1"} | os.environ,
        )

    def run(self, command, settings, *arguments):
        done = self.start(command, settings, *arguments)
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stderr}"
        return done

    def train(self, name, settings, *arguments):
        """Trains in folder `name`, whose last checkpoint is the result."""
        own = {
            "checkpoint.folder": self.path(name),
            "metrics.jsonl": self.path(name + ".jsonl"),
        }
        if ranks_of(settings) > 1:
            arguments = ("--check-replicas", *arguments)
        done = self.run("train", settings | own, *arguments)
        if ranks_of(settings) > 1:
            assert "replicas are bitwise equal" in done.stdout, done.stdout
        with open(self.path(name + ".jsonl")) as file:
            metrics = [json.loads(line) for line in file]
        last = self.path(name, f"step-{metrics[-1]['step']:08}")
        weights = load_file(os.path.join(last, "model.safetensors"))
        return Trained(metrics, weights, last, done.stdout)

    def forward(self, name, settings):
        """Loss, logits and gradients of the first batch."""
        out = self.path(name + ".safetensors")
        self.run("forward", settings, "--out", out, "--gradients")
        return load_file(out)


def off(got, want):
    """How far a tensor is from another, relative to the other's norm. NaN is far."""
    assert got.shape == want.shape and got.dtype == want.dtype
    want = want.astype(numpy.float64)
    difference = numpy.linalg.norm(got.astype(numpy.float64) - want)
    size = numpy.linalg.norm(want)
    value = difference / size if size else difference
    return float(value) if numpy.isfinite(value) else numpy.inf


def farthest(got, want):
    """The largest distance of any tensor, and its name."""
    assert set(got) == set(want), set(got) ^ set(want)
    return max((off(got[name], want[name]), name) for name in want)


def same_bits(got, want):
    """The names of the tensors that differ in any bit."""
    assert set(got) == set(want), set(got) ^ set(want)
    return [name for name in want if got[name].tobytes() != want[name].tobytes()]


def figures(metrics):
    """Metrics without what differs between any two runs."""
    times = ("tokens_per_second", "seconds", "peak_bytes")
    return [{k: v for k, v in line.items() if k not in times} for line in metrics]
