"""Compares the peak of values predicted by hp-opt, predicted by hp-run and
measured by it.

    peak_bytes.py HP_OPT HP_RUN CONFIG
"""

import json
import re
import subprocess
import sys

CASES = [
    ["model.flavor=micro"],
    ["model.flavor=tiny", "training.seq_len=64"],
    ["training.seq_len=1", "data.layout=rows"],
    ["training.seq_len=2", "training.local_batch_size=1"],
    ["training.seq_len=65", "training.local_batch_size=3"],
    ["training.seq_len=129", "training.local_batch_size=1"],
    ["training.dtype=float64"],
    ["model.config.tie_word_embeddings=false"],
    ["model.config.attention_bias=true"],
    ["model.config.attn_output_gate=false"],
    ["model.config.num_hidden_layers=1", "model.config.vocab_size=201"],
    ["model.config.layer_types=[full_attention]", "model.config.num_hidden_layers=1"],
    ["model.config.linear_num_value_heads=2", "model.config.intermediate_size=97"],
    ["training.max_norm=0.01"],
]


def run(*command):
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def main():
    hp_opt, hp_run, config = sys.argv[1:]
    peaks, differ = set(), 0
    for index, case in enumerate(CASES):
        settings = []
        for setting in ["training.steps=1", f"checkpoint.folder={index}", *case]:
            settings += ["--set", setting]
        plan = ["--compile-to=step", "--print-plan-stats=json"]
        stats = json.loads(run(hp_opt, config, *plan, *settings))
        out = run(hp_run, "train", config, *settings)
        measured, predicted = re.search(
            r"^peak of values (\d+) bytes measured, (\d+) predicted", out, re.M
        ).groups()
        with open("out/metrics.jsonl") as file:
            line = json.loads(file.read())
        figures = {
            stats["step"]["peak_bytes"],
            int(measured),
            int(predicted),
            line["peak_bytes"],
        }
        peaks |= figures
        differ += len(figures) != 1
        print(*case, *sorted(figures))
    print(f"{len(CASES)} shapes, {len(peaks)} different peaks, {differ} differ")


if __name__ == "__main__":
    main()
