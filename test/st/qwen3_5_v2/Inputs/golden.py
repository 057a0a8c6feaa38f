"""Compares what hp-run does with figures of the original implementation.

    golden.py forward HP_RUN GOLDEN CONFIG TOKENS FOLDER
    golden.py train   HP_RUN GOLDEN CONFIG TOKENS FOLDER

GOLDEN is a file of test/golden, CONFIG the run that it records. Each prints the
largest deviation of every kind beside its bound, and ends with the number of
failures.
"""

import json
import os
import subprocess
import sys

import numpy
from safetensors.numpy import load_file

# What two float32 programs on two CPUs may differ by.
BOUND, FINAL_BOUND = 1e-5, 1e-4
# The two gradients of the decay are small sums of large terms: in float32 even
# the recorded figures are 2e-4 from the float64 model's.
CANCELLING, CANCELLING_BOUND = (".A_log", ".dt_bias"), 1e-3


class Deviations:
    """The largest deviation of each kind, and those past their bounds."""

    def __init__(self):
        self.worst = {}
        self.failures = []

    def add(self, kind, name, value, bound):
        self.worst[kind] = max(self.worst.get(kind, (0, 0)), (value, bound))
        if not value <= bound:  # catches NaN too
            self.failures.append(f"{kind} {name}: {value:.3g} > {bound}")

    def report(self):
        for kind, (value, bound) in self.worst.items():
            print(f"{kind:24} {value:.2e} of {bound:.0e}")
        for failure in self.failures:
            print("FAILED", failure)
        print(f"{len(self.failures)} failures")
        return bool(self.failures)


def relative(got, want):
    return abs(got - want) / abs(want) if want else abs(got)


def l2(array):
    return float(numpy.linalg.norm(array.astype(numpy.float64)))


def run(hp_run, command, config, tokens, *arguments):
    subprocess.run(
        [hp_run, command, config, "--set", f"data.path={tokens}", *arguments],
        check=True,
        stdout=subprocess.DEVNULL,
    )


def train(hp_run, config, tokens, folder, *settings):
    """Trains; returns the metrics and the last checkpoint's weights."""
    metrics = os.path.join(folder, "metrics.jsonl")
    arguments = ["--set", f"checkpoint.folder={folder}"]
    arguments += ["--set", f"metrics.jsonl={metrics}"]
    for setting in settings:
        arguments += ["--set", setting]
    run(hp_run, "train", config, tokens, *arguments)
    with open(metrics) as file:
        lines = [json.loads(line) for line in file]
    last = os.path.join(folder, f"step-{len(lines):08}")
    return lines, load_file(os.path.join(last, "model.safetensors"))


def check_forward(golden, hp_run, config, tokens, folder, deviations):
    out = os.path.join(folder, "forward.safetensors")
    run(hp_run, "forward", config, tokens, "--out", out, "--gradients")
    ours = load_file(out)
    want = golden["forward"]
    logits = ours["logits"].astype(numpy.float64)
    deviations.add("loss", "", relative(float(ours["loss"]), want["loss"]), BOUND)
    deviations.add("logits' norm", "", relative(l2(logits), want["logits_l2"]), BOUND)
    # A sum cancels, so it is held against the size of what it adds up.
    difference = abs(logits.sum() - want["logits_sum"])
    deviations.add("logits' sum", "", difference / abs(logits).sum(), BOUND)
    largest = abs(logits).max()
    assert len(want["samples"]) > 20
    for row, position, token, value in want["samples"]:
        difference = abs(logits[row, position, token] - value)
        name = f"{row},{position},{token}"
        deviations.add("logits' samples", name, difference / largest, BOUND)
    assert {key for key in ours if key.startswith("grad.")} == {
        "grad." + name for name in golden["param_order"]
    }
    for name in golden["param_order"]:
        cancels = name.endswith(CANCELLING)
        value = relative(l2(ours["grad." + name]), golden["grad_l2_step0"][name])
        bound = CANCELLING_BOUND if cancels else BOUND
        kind = "cancelling gradients" if cancels else "gradients' norms"
        deviations.add(kind, name, value, bound)


def check_initial(golden, weights, deviations):
    assert set(weights) == set(golden["param_order"])
    for name, (total, norm) in golden["param_checksums"].items():
        # Logarithms and normal draws may differ in the last bit between CPUs,
        # and A_log is too short for that to average out.
        bound = 1e-7 if name.endswith(".A_log") else 1e-8
        wide = weights[name].astype(numpy.float64)
        size = max(abs(wide).sum(), 1.0)
        value = max(abs(wide.sum() - total) / size, relative(l2(wide), norm))
        deviations.add("initial parameters", name, value, bound)


def check_train(golden, hp_run, config, tokens, folder, deviations):
    # A step of learning rate 0 leaves every bit as it was, and writes it.
    first = os.path.join(folder, "first")
    _, weights = train(
        hp_run, config, tokens, first, "training.steps=1", "optimizer.lr=0"
    )
    check_initial(golden, weights, deviations)

    lines, weights = train(hp_run, config, tokens, folder)
    assert [line["step"] for line in lines] == list(range(1, 11))
    assert all(line["updated"] for line in lines)
    for line, (loss, norm) in zip(lines, golden["train"], strict=True):
        name = f"of step {line['step']}"
        deviations.add("losses", name, relative(line["loss"], loss), BOUND)
        deviations.add("gradient norms", name, relative(line["grad_norm"], norm), BOUND)
    finals = golden["param_l2_final"]
    assert set(weights) == set(finals) == set(golden["param_order"])
    for name, want in finals.items():
        assert weights[name].dtype == numpy.float32, name
        value = relative(l2(weights[name]), want)
        deviations.add("final parameters' norms", name, value, FINAL_BOUND)


def main():
    what, hp_run, golden, config, tokens, folder = sys.argv[1:]
    with open(golden) as file:
        golden = json.load(file)
    os.makedirs(folder, exist_ok=True)
    deviations = Deviations()
    check = {"forward": check_forward, "train": check_train}[what]
    check(golden, hp_run, config, tokens, folder, deviations)
    return deviations.report()


if __name__ == "__main__":
    sys.exit(main())
