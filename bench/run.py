#!/usr/bin/env python3
"""Measures hp: speed, memory, start-up times, and how long hp-opt takes.

    make bench                      all of it, a few minutes
    make bench ARGS=--quick         one short round, half a minute
    bench/run.py --build build --threads 1

Figures are medians. They go to BUILD/bench.json too, with the machine and the
versions and without a date, so that two files can be compared. It is no test:
a missed aim is printed and is no failure.
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
from importlib import metadata

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PEER = os.path.join(ROOT, "bench", "transformers_step.py")
BATCH, LENGTH = 8, 128
WARM_UP = 2  # steps of a round that are not counted


class Bench:
    """The programs, and the folder they work in."""

    def __init__(self, build, threads, folder):
        self.hp_opt = os.path.join(build, "bin", "hp-opt")
        self.hp_run = os.path.join(build, "bin", "hp-run")
        self.folder = folder
        self.environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
        self.runs = 0
        self.write_configs()

    def execute(self, command):
        """Runs `command`; its standard output and error are in the result."""
        done = subprocess.run(
            command, capture_output=True, text=True, env=self.environment
        )
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}:\n{done.stderr}{done.stdout}")
        return done

    def config(self, flavor):
        return os.path.join(self.folder, flavor + ".json")

    def write_configs(self):
        """Run configurations of tiny, on random ids, and of 27B."""
        tokens = os.path.join(self.folder, "tokens.bin")
        script = os.path.join(ROOT, "scripts", "golden_tokens.py")
        self.execute([sys.executable, script, tokens])
        for flavor in ("tiny", "27B"):
            config = {
                "model": {"spec": "qwen3_5_v2", "flavor": flavor},
                "training": {
                    "seq_len": LENGTH,
                    "local_batch_size": BATCH,
                    "init": "normal",
                },
                "data": {
                    "format": "tokens",
                    "path": tokens,
                    "dtype": "uint32",
                    "layout": "rows",
                },
            }
            with open(self.config(flavor), "w", encoding="utf-8") as file:
                json.dump(config, file)

    def training(self, steps):
        """The command of a training in a folder of its own, and the file of
        its metrics."""
        self.runs += 1
        folder = os.path.join(self.folder, str(self.runs))
        metrics = folder + ".jsonl"
        command = [self.hp_run, "train", self.config("tiny")]
        for setting in (
            f"training.steps={steps}",
            f"checkpoint.folder={folder}",
            f"metrics.jsonl={metrics}",
        ):
            command += ["--set", setting]
        return command, metrics

    def train(self, steps):
        """Seconds of each step, and what the summary says."""
        command, metrics = self.training(steps)
        out = self.execute(command).stdout
        with open(metrics, encoding="utf-8") as file:
            seconds = [json.loads(line)["seconds"] for line in file]
        peak = re.search(r"peak of values (\d+) bytes measured, (\d+) pred", out)
        outside = re.search(r"time outside kernels ([\d.]+) %", out)
        return {
            "seconds": seconds[WARM_UP:],
            "percent_outside_kernels": float(outside[1]),
            "peak_measured": int(peak[1]),
            "peak_predicted": int(peak[2]),
        }

    def train_peer(self, steps):
        """Seconds of each step of transformers."""
        command = [sys.executable, PEER, str(steps), str(BATCH), str(LENGTH)]
        return {"seconds": json.loads(self.execute(command).stdout)[WARM_UP:]}

    def first_step(self):
        """Seconds from the start of the process until training begins, and
        until the line of the first step is there."""
        command, _ = self.training(1)
        begun = done = None
        start = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=self.environment
        ) as process:
            for line in process.stdout:
                if line.startswith("data "):  # the last line before the steps
                    begun = time.perf_counter() - start
                elif line.startswith("step 1/"):
                    done = time.perf_counter() - start
        return begun, done

    def wall(self, command, times):
        """Median seconds of a command."""
        seconds = []
        for _ in range(times):
            start = time.perf_counter()
            self.execute(command)
            seconds.append(time.perf_counter() - start)
        return statistics.median(seconds)

    def phases(self, command, times):
        """Median seconds of each line of --timing."""
        rows = {}
        for _ in range(times):
            report = self.execute(command + ["--timing"]).stderr
            for row in re.finditer(r"^ +([\d.]+) \(.*%\)  (.+)$", report, re.M):
                rows.setdefault(row[2], []).append(float(row[1]))
        return {name: statistics.median(values) for name, values in rows.items()}


def measure(bench, quick):
    """Everything, as bench.json keeps it."""
    rounds, steps, starts, times = (1, 8, 3, 10) if quick else (8, 12, 11, 25)
    hp, peer = [], []
    for _ in range(rounds):  # in turns: what disturbs one disturbs the other
        hp.append(bench.train(steps))
        peer.append(bench.train_peer(steps))

    bench.first_step()
    first = [bench.first_step() for _ in range(starts)]

    plan = os.path.join(bench.folder, "27B.hp")
    compile_27b = [bench.hp_opt, bench.config("27B"), "--compile-to=step"]
    compile_27b += ["-o", plan]
    read_27b = [bench.hp_opt, plan, "-o", "/dev/null"]
    return {
        "hp_run": hp,
        "transformers": peer,
        "first_step": {
            "begun": [begun for begun, _ in first],
            "done": [done for _, done in first],
            "hp_run_version": bench.wall([bench.hp_run, "--version"], starts),
        },
        "hp_opt_27b": {
            "compile": bench.wall(compile_27b, times),
            "compile_phases": bench.phases(compile_27b, times),
            "read": bench.wall(read_27b, times),
            "read_phases": bench.phases(read_27b, times),
            "text_bytes": os.path.getsize(plan),
            "hp_opt_version": bench.wall([bench.hp_opt, "--version"], times),
        },
    }


def machine():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = re.search(r"model name\s*: (.*)", file.read())
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
    }


def versions(bench):
    return {
        "hp": bench.execute([bench.hp_opt, "--version"]).stdout.split()[-1],
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "transformers": metadata.version("transformers"),
    }


def table(found):
    """Rows of name, value and, where there is an aim, aim and whether met."""

    def ms(seconds):
        return f"{seconds * 1e3:.1f} ms"

    def spread(values, spelling):
        return spelling(statistics.median(values)), (
            f"{spelling(min(values))} to {spelling(max(values))}"
        )

    def tokens_per_second(runs):
        seconds = [statistics.median(run["seconds"]) for run in runs]
        return [BATCH * LENGTH / value for value in seconds]

    ours = tokens_per_second(found["hp_run"])
    theirs = tokens_per_second(found["transformers"])
    ratios = [mine / other for mine, other in zip(ours, theirs)]
    outside = [run["percent_outside_kernels"] for run in found["hp_run"]]
    measured = sorted({run["peak_measured"] for run in found["hp_run"]})
    predicted = found["hp_run"][0]["peak_predicted"]
    first = found["first_step"]
    opt = found["hp_opt_27b"]
    compiling, reading = opt["compile_phases"], opt["read_phases"]
    whole = "{:.0f}".format
    percent = "{:.2f} %".format

    def aim(text, met):
        return text, "met" if met else "MISSED"

    none = ("", "")
    fast = statistics.median(outside) < 2
    early = statistics.median(first["done"]) < 0.5
    return [
        ("hp-run tiny, tokens/s", *spread(ours, whole), *none),
        ("transformers eager, tokens/s", *spread(theirs, whole), *none),
        ("hp-run / transformers", *spread(ratios, "{:.2f}".format), *none),
        ("time outside kernels", *spread(outside, percent), *aim("< 2 %", fast)),
        ("start to first step done", *spread(first["done"], ms), *aim("< 500 ms", early)),
        ("  first step begun", *spread(first["begun"], ms), *none),
        ("  hp-run --version", ms(first["hp_run_version"]), "", *none),
        (
            "peak of values, measured",
            " or ".join(f"{value:,}" for value in measured),
            "",
            *aim("= predicted", measured == [predicted]),
        ),
        ("peak of values, predicted", f"{predicted:,}", "", *none),
        (
            "hp-opt 27B, config to step",
            ms(opt["compile"]),
            "",
            *aim("< 50 ms", opt["compile"] < 0.05),
        ),
        ("  import", ms(compiling["Import"]), "", *none),
        ("  expand-step", ms(compiling["expand-step"]), "", *none),
        ("  print", ms(compiling["Output"]), "", *none),
        ("hp-opt 27B, read the step", ms(opt["read"]), "", *none),
        ("  parse", ms(reading["Parser"]), f"{opt['text_bytes']:,} bytes", *none),
        ("  verify", ms(reading["Verifier"]), "", *none),
        ("hp-opt --version", ms(opt["hp_opt_version"]), "", *none),
    ]


def print_table(result):
    where = result["machine"]
    print(
        f"{where['processor']}, {where['cores']} cores, "
        f"{result['threads']} threads, load {result['load_at_start']:.1f}"
    )
    print(", ".join(f"{name} {text}" for name, text in result["versions"].items()))
    print(
        f"batch {BATCH} x {LENGTH}; medians, of {len(result['hp_run'])} rounds "
        "with their range\n"
    )
    rows = [("figure", "median", "range", "aim", "")] + table(result)
    for name, value, extent, aim, verdict in rows:
        line = f"{name:30}{value:>12}  {extent:24}{aim:13}{verdict}"
        print(line.rstrip())


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", default=os.path.join(ROOT, "build"))
    parser.add_argument("--quick", action="store_true", help="one short round")
    parser.add_argument(
        "--threads",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="of hp-run and of transformers (default: one a processor)",
    )
    args = parser.parse_args()
    build = os.path.abspath(args.build)
    for program in ("hp-opt", "hp-run"):
        if not os.path.exists(os.path.join(build, "bin", program)):
            sys.exit(f"{build}/bin/{program} is missing; 'make build' makes it")

    load = os.getloadavg()[0]
    if load > 1:
        print(f"the load is {load:.1f}: other work disturbs these figures")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(build, args.threads, folder)
        result = {
            "machine": machine(),
            "versions": versions(bench),
            "threads": args.threads,
            "load_at_start": load,
            "batch": BATCH,
            "seq_len": LENGTH,
            **measure(bench, args.quick),
        }
    print_table(result)
    path = os.path.join(build, "bench.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=2)
        file.write("\n")
    print(f"\nwritten {os.path.relpath(path)}")


if __name__ == "__main__":
    main()
