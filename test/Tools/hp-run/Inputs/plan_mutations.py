"""Runs damaged plans: each is refused with an error, or trains the same step.

    plan_mutations.py HP_RUN CONFIG PLAN COUNT
"""

import json
import os
import random
import re
import subprocess
import sys


def delete_line(lines, rng, at):
    del lines[at]


def repeat_line(lines, rng, at):
    lines.insert(at, lines[at])


def move_line(lines, rng, at):
    line = lines.pop(at)
    lines.insert(max(1, at + rng.choice([-20, -3, -1, 1, 3, 20])), line)


def replace(pattern, choose):
    """A mutation of one match of `pattern` in the line, if it has one."""

    def mutate(lines, rng, at):
        matches = list(re.finditer(pattern, lines[at]))
        if matches:
            match = rng.choice(matches)
            text = choose(lines, rng, match.group())
            line = lines[at]
            lines[at] = line[: match.start()] + text + line[match.end() :]

    return mutate


def other(pattern):
    """Another match of `pattern` in the plan."""
    return replace(
        pattern,
        lambda lines, rng, text: rng.choice(re.findall(pattern, "\n".join(lines))),
    )


LOSS, NORM = 6.94328165, 2.51062075  # of the plan as it was
NUMBERS = ["0", "-1", "1", "3", "2147483648", "9223372036854775807", "1e400", "nan"]
MUTATIONS = [
    delete_line,
    repeat_line,
    move_line,
    other(r"%[\w.]+"),
    other(r"@[\w.]+"),
    other(r"(?<== )[a-z_0-9.]+(?= )"),
    other(r"(?<=: )\w+\[[^\]]*\]"),
    replace(r"(?<=[=*\[ ])[0-9][0-9.e+-]*", lambda l, rng, t: rng.choice(NUMBERS)),
    replace(r"(?<=[(, ])%[\w.]+", lambda l, rng, t: rng.choice(["_", f"type({t})"])),
    replace(r", [\w=.]+(?=[,}])", lambda l, rng, t: ""),
    replace(r".", lambda l, rng, t: rng.choice("}{][)(%@,=:\0\xff")),
]


def check_step(metrics, out):
    """What the verifier lets through computes the step, in the bytes it says."""
    with open(metrics) as file:
        step = json.loads(file.read())
    assert abs(step["loss"] / LOSS - 1) < 1e-5, step
    assert abs(step["grad_norm"] / NORM - 1) < 1e-5, step
    peaks = re.search(r"peak of values (\d+) bytes measured, (\d+) predicted", out)
    assert peaks.group(1) == peaks.group(2), peaks.group()


def main():
    hp_run, config, plan, count = sys.argv[1:]
    with open(plan) as file:
        original = file.read().splitlines()
    rng = random.Random(1)
    trained = refused = failures = 0
    for number in range(int(count)):
        lines = list(original)
        mutation = MUTATIONS[number % len(MUTATIONS)]
        while lines == original:
            mutation(lines, rng, rng.randrange(len(lines)))
        name = f"{number}.hp"
        with open(name, "w", encoding="latin-1") as file:
            file.write("\n".join(lines) + "\n")
        settings = [
            *["--set", "training.steps=1"],
            *["--set", f"checkpoint.folder={number}"],
            *["--set", f"metrics.jsonl={number}.jsonl"],
        ]
        result = subprocess.run(
            [hp_run, "train", name, "--config", config, *settings],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
        wrote = os.path.exists(f"{number}/step-00000001/manifest.json")
        if result.returncode == 0 and wrote:
            trained += 1
            check_step(f"{number}.jsonl", result.stdout)
            difference = [line for line in lines if line not in original]
            print(name, "trains", difference[:1] or "moved")
        elif (
            result.returncode == 1
            and not wrote
            and re.search(rf"^{name}:\d+:\d+: error: ", result.stderr, re.M)
        ):
            refused += 1
        else:
            failures += 1
            print("FAILED", name, result.returncode, result.stderr[-1000:])
    print(f"{trained} trained, {refused} refused, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
