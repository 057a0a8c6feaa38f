#!/usr/bin/env python3
"""Measures hp: speed, time outside kernels, start-up, memory, hp-opt.

    make bench                    all of it, a few minutes
    make bench ARGS=--quick       fewer repetitions

hp and transformers (eager, the same model, batch and threads) run in turns, so
that their ratio is taken in one run. Figures are medians. The results also go
to BUILD/bench.json with the machine and the versions.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BATCH, LENGTH, VOCABULARY = 8, 128, 1024

PEER = """
import sys, time, torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
torch.set_num_threads(int(sys.argv[1]))
config = Qwen3_5TextConfig(vocab_size=1024, hidden_size=256,
    intermediate_size=768, num_hidden_layers=4, num_attention_heads=4,
    num_key_value_heads=2, head_dim=64, linear_num_key_heads=4,
    linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=32,
    tie_word_embeddings=True, rope_parameters=dict(rope_type="default",
    rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[3, 3, 2],
    mrope_interleaved=True))
config._attn_implementation = "eager"
torch.manual_seed(0)
model = Qwen3_5ForCausalLM(config).float().train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
seconds = []
for step in range(int(sys.argv[2])):
    tokens = torch.randint(0, 1024, (8, 128))
    start = time.perf_counter()
    loss = model(input_ids=tokens, labels=tokens).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    seconds.append(time.perf_counter() - start)
print(sorted(seconds[2:])[len(seconds[2:]) // 2])
"""


def write_config(folder):
    """A run of tiny on ids of the golden generator's kind."""
    data = os.path.join(folder, "tokens.bin")
    script = os.path.join(ROOT, "scripts", "golden_tokens.py")
    subprocess.run([sys.executable, script, data], check=True)
    config = {
        "model": {"spec": "qwen3_5_v2", "flavor": "tiny"},
        "training": {
            "seq_len": LENGTH,
            "local_batch_size": BATCH,
            "init": "normal",
        },
        "data": {
            "format": "tokens",
            "path": data,
            "dtype": "uint32",
            "layout": "rows",
        },
        "checkpoint": {"folder": os.path.join(folder, "checkpoint")},
        "metrics": {"jsonl": os.path.join(folder, "metrics.jsonl")},
    }
    path = os.path.join(folder, "tiny.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)
    return path, config["metrics"]["jsonl"]


def run_hp(hp_run, config, metrics, steps, environment):
    """Median seconds of a step, and what the summary says."""
    command = [hp_run, "train", config, "--set", f"training.steps={steps}"]
    out = subprocess.run(
        command, check=True, capture_output=True, text=True, env=environment
    ).stdout
    with open(metrics, encoding="utf-8") as file:
        seconds = [json.loads(line)["seconds"] for line in file]
    peak = re.search(r"peak of values (\d+) bytes measured, (\d+) pred", out)
    outside = re.search(r"time outside kernels ([\d.]+) %", out)
    return (
        statistics.median(seconds[2:]),
        float(outside[1]),
        int(peak[1]),
        int(peak[2]),
    )


def time_to_first_step(hp_run, config, environment):
    """From the start of the process to the first step, begun and done."""
    start = time.perf_counter()
    process = subprocess.Popen(
        [hp_run, "train", config, "--set", "training.steps=1"],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    begun = done = None
    for line in process.stdout:
        if line.startswith("data "):  # the last line before the steps
            begun = time.perf_counter() - start
        elif line.startswith("step 1/"):
            done = time.perf_counter() - start
    process.wait()
    return begun, done


def time_command(command):
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        match = re.search(r"model name\s*: (.*)", file.read())
    return match[1] if match else platform.machine()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    args = parser.parse_args()
    hp_run = os.path.abspath(os.path.join(args.build, "bin", "hp-run"))
    hp_opt = os.path.abspath(os.path.join(args.build, "bin", "hp-opt"))
    rounds, steps = (1, 8) if args.quick else (5, 22)
    environment = {**os.environ, "OMP_NUM_THREADS": str(args.threads)}
    busy = os.getloadavg()[0]
    if busy > 0.5:
        print(f"load is {busy:.1f}: other work disturbs these figures")

    with tempfile.TemporaryDirectory() as folder:
        config, metrics = write_config(folder)
        hp, peer = [], []
        for _ in range(rounds):
            hp.append(run_hp(hp_run, config, metrics, steps, environment))
            out = subprocess.run(
                [sys.executable, "-c", PEER, str(args.threads), str(steps)],
                check=True,
                capture_output=True,
                text=True,
                env=environment,
            ).stdout
            peer.append(float(out))
        starts = [
            time_to_first_step(hp_run, config, environment)
            for _ in range(2 * rounds + 1)
        ]
        begun = statistics.median(start[0] for start in starts)
        done = statistics.median(start[1] for start in starts)
        big = [hp_opt, os.path.join(ROOT, "models", "qwen3_5_v2.yaml")]
        big += ["--flavor", "27B", "--compile-to=step"]
        plan = os.path.join(folder, "27B.hp")
        subprocess.run(big + ["-o", plan], check=True)
        times = 5 * rounds
        compile_27b = statistics.median(time_command(big) for _ in range(times))
        read_27b = statistics.median(
            time_command([hp_opt, plan, "-o", "/dev/null"]) for _ in range(times)
        )
        start_up = statistics.median(
            time_command([hp_opt, "--version"]) for _ in range(times)
        )
        plan_bytes = os.path.getsize(plan)

    seconds = statistics.median(run[0] for run in hp)
    peer_seconds = statistics.median(peer)
    tokens = BATCH * LENGTH
    outside = statistics.median(run[1] for run in hp)
    measured, predicted = hp[0][2], hp[0][3]
    rows = [
        ("hp tiny, tokens/s", f"{tokens / seconds:.0f}", "", None),
        ("transformers eager, tokens/s", f"{tokens / peer_seconds:.0f}", "", None),
        ("hp / transformers", f"{peer_seconds / seconds:.2f}", "", None),
        ("time outside kernels", f"{outside:.2f} %", "< 2 %", outside < 2),
        ("start to first step begun", f"{begun:.3f} s", "< 0.5 s", begun < 0.5),
        ("start to first step done", f"{done:.3f} s", "", None),
        ("peak of values, measured", str(measured), "", None),
        (
            "peak of values, predicted",
            str(predicted),
            "equal",
            measured == predicted,
        ),
        (
            "hp-opt 27B to step",
            f"{compile_27b * 1e3:.1f} ms",
            "< 50 ms",
            compile_27b < 0.05,
        ),
        (
            f"hp-opt reads that text ({plan_bytes / 1e6:.1f} MB)",
            f"{read_27b * 1e3:.1f} ms",
            "",
            None,
        ),
        ("hp-opt start-up", f"{start_up * 1e3:.1f} ms", "", None),
    ]
    print(f"{processor()}, {args.threads} threads, {rounds} rounds")
    for name, value, aim, met in rows:
        verdict = "" if met is None else "met" if met else "MISSED"
        print(f"{name:36}{value:>16}  {aim:8} {verdict}".rstrip())
    result = {
        "processor": processor(),
        "threads": args.threads,
        "rounds": rounds,
        "python": platform.python_version(),
        "hp_seconds_per_step": [run[0] for run in hp],
        "transformers_seconds_per_step": peer,
        "percent_outside_kernels": [run[1] for run in hp],
        "seconds_to_first_step": {"begun": begun, "done": done},
        "peak_bytes": {"measured": measured, "predicted": predicted},
        "hp_opt_27b_seconds": compile_27b,
        "hp_opt_27b_read_seconds": read_27b,
        "hp_opt_start_seconds": start_up,
    }
    with open(os.path.join(args.build, "bench.json"), "w") as file:
        json.dump(result, file, indent=2)
        file.write("\n")


if __name__ == "__main__":
    main()
