#!/usr/bin/env python3
"""Runs the hp-opt commands that documents show and compares their output.

    scripts/check-docs.py --hp-opt build/bin/hp-opt README.md docs/IR.md

In a ```console block, each line `$ build/bin/hp-opt ...` is run from the root
of the repository, and the lines up to the next `$` must be what it prints,
standard output first. A line of three dots stands for any lines. Commands of
other programs are not run.
"""

import argparse
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROMPT = "$ build/bin/hp-opt"


def commands(text):
    """(line number, command, expected lines) of each console block."""
    number, inside, current = 0, False, None
    for line in text.splitlines():
        number += 1
        if line.startswith("```"):
            if current:
                yield current
            inside, current = line == "```console", None
        elif inside and line.startswith("$ "):
            if current:
                yield current
            current = (number, line, [])
        elif inside and current:
            current[2].append(line)


def matches(expected, actual):
    """Whether the lines agree, `...` standing for any number of lines."""
    pattern = "".join(
        "(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + "\n"
        for line in expected
    )
    return re.fullmatch(pattern, actual) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hp-opt", required=True)
    parser.add_argument("documents", nargs="+")
    args = parser.parse_args()
    environment = dict(os.environ)
    environment.pop("HP_OPT_CHECK_IR_ROUNDTRIP", None)
    checked = failed = 0
    for document in args.documents:
        with open(document, encoding="utf-8") as file:
            text = file.read()
        for number, command, expected in commands(text):
            if not command.startswith(PROMPT):
                continue
            checked += 1
            line = os.path.abspath(args.hp_opt) + command[len(PROMPT) :]
            run = subprocess.run(
                line, shell=True, cwd=ROOT, capture_output=True, text=True, env=environment
            )
            actual = run.stdout + run.stderr
            actual = "\n".join(l.rstrip() for l in actual.splitlines()) + "\n"
            actual = actual.replace(ROOT + "/", "")
            if not matches([l.rstrip() for l in expected], actual):
                failed += 1
                print(f"{document}:{number}: not what is printed: {command}")
                print(actual)
    print(f"{checked} commands, {failed} differ")
    return failed > 0 or checked == 0


if __name__ == "__main__":
    sys.exit(main())
