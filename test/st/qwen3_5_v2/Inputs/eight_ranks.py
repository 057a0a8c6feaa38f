"""Ten steps of tiny on eight ranks beside one rank, and beside the original's.

    eight_ranks.py HP_RUN SOURCE FOLDER [--processes]

Ranks run in lockstep in one process; or as processes, then less. Deviations of init normal
are absolute, those of init torch relative. FOLDER holds tokens.bin.
"""

import json
import os
import sys

from golden import BOUND, FINAL_BOUND, Deviations, l2, relative
from runs import Runs, farthest, layout

# Between layouts float32 sums come in another order: what that makes of loss and
# norm in ten steps, and of parameters, where AdamW divides tiny gradients by
# their size. In float64 nothing is left of it.
SAME = 5e-6
SAME_PARAMETERS = 1e-3
SAME_WIDE = 1e-9


def compare_wide(runs, deviations):
    wide = {"data.path": runs.path("tokens.bin"), "training.dtype": "float64"}
    wide |= {"training.steps": 3}
    one_rank = layout() | {"training.local_batch_size": 8}
    one = runs.train("wide-one", wide | one_rank)
    many = runs.train("wide-eight", wide | layout(dps=4, tp=2))
    assert len(one.metrics) == len(many.metrics) == 3
    for ours, alone in zip(many.metrics, one.metrics):
        for key in ("loss", "grad_norm"):
            value = relative(ours[key], alone[key])
            deviations.add(f"float64 {key}", ours["step"], value, SAME_WIDE)
    value, name = farthest(many.weights, one.weights)
    deviations.add("float64 parameters", name, value, SAME_WIDE)


def compare(init, runs, source, deviations):
    with open(os.path.join(source, f"test/golden/tiny_{init}_init.json")) as file:
        golden = json.load(file)
    settings = {"data.path": runs.path("tokens.bin"), "training.init": init}
    one_rank = layout() | {"training.local_batch_size": 8}
    one = runs.train(f"{init}-one", settings | one_rank)
    # The layout is the configuration's own.
    many = runs.train(f"{init}-eight", settings | layout(dps=4, tp=2))
    assert "mesh dp_shard=4 tp=2: 8 ranks" in many.said, many.said
    assert len(one.metrics) == len(many.metrics) == len(golden["train"]) == 10
    for ours, alone, (loss, norm) in zip(many.metrics, one.metrics, golden["train"]):
        step = f"of step {ours['step']}"
        assert ours["updated"] and ours["tokens_seen"] == alone["tokens_seen"]
        for key, original in (("loss", loss), ("grad_norm", norm)):
            value = abs(ours[key] - alone[key])
            if init == "torch":
                value /= abs(alone[key])
            deviations.add(f"{init} {key}, one rank", step, value, SAME)
            value = relative(ours[key], original)
            deviations.add(f"{init} {key}, original", step, value, BOUND)
    value, name = farthest(many.weights, one.weights)
    deviations.add(f"{init} parameters, one rank", name, value, SAME_PARAMETERS)
    for name, want in golden["param_l2_final"].items():
        value = relative(l2(many.weights[name]), want)
        deviations.add(f"{init} parameters, original", name, value, FINAL_BOUND)


def main():
    hp_run, source, folder, *options = sys.argv[1:]
    config = os.path.join(source, "configs/tiny_tp2_fsdp4.yaml")
    runs = Runs(hp_run, config, folder, processes=options == ["--processes"])
    deviations = Deviations()
    compare("normal", runs, source, deviations)
    if not options:
        compare("torch", runs, source, deviations)
        compare_wide(runs, deviations)
    return deviations.report()


if __name__ == "__main__":
    sys.exit(main())
