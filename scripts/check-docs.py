#!/usr/bin/env python3
"""Checks that documents show what there is.

    scripts/check-docs.py --hp-opt build/bin/hp-opt README.md docs/IR.md

- In a ```console block, each line `$ ...` that names build/bin/hp-opt is run
  from the root of the repository, and the lines up to the next `$` must be what
  it prints, standard output first. A line of three dots stands for any lines,
  three dots after a space for the rest of a line. Other commands are not run.
- The table that begins with `| operation |` must be `hp-opt --list-ops`; the
  one that begins with `| flag |` must name the flags of `hp-opt --help`.
- ```cpp blocks must stand in a header of include/hp.
- The productions of ```ebnf blocks must be those in the comments of lexer and
  parser (lib/IR), word for word.
"""

import argparse
import glob
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HP_OPT = "build/bin/hp-opt"


class Checker:
    def __init__(self, hp_opt):
        self.hp_opt = os.path.abspath(hp_opt)
        self.checked = self.failed = 0

    def expect(self, fits, place, message):
        self.checked += 1
        if not fits:
            self.failed += 1
            print(f"{place}: {message}")

    def check(self, document):
        lines = [line.rstrip() for line in read(document).splitlines()]
        self.check_commands(document, lines)
        self.check_operations(document, lines)
        self.check_flags(document, lines)
        self.check_code(document, lines)
        self.check_grammar(document, lines)

    def check_commands(self, document, lines):
        environment = dict(os.environ)
        environment.pop("HP_OPT_CHECK_IR_ROUNDTRIP", None)
        for number, command, expected in commands(fenced(lines, "console")):
            if HP_OPT not in command:
                continue
            run = subprocess.run(
                command.replace(HP_OPT, self.hp_opt),
                shell=True,
                cwd=ROOT,
                capture_output=True,
                text=True,
                env=environment,
            )
            printed = (run.stdout + run.stderr).replace(ROOT + "/", "")
            printed = [line.rstrip() for line in printed.splitlines()]
            missing = mismatch(expected, printed)
            shown = [*(missing or []), "--- it prints", *printed[:200]]
            self.expect(
                missing is None,
                f"{document}:{number}",
                "not printed by: " + "\n  ".join([command, *shown]),
            )

    def check_operations(self, document, lines):
        shown = table(lines, "| operation |")
        if not shown:
            return
        listed = operation_rows(self.hp_opt)
        for row in listed:
            self.expect(row in shown, document, f"the table lacks the row\n{row}")
        for row in shown:
            self.expect(row in listed, document, f"no such operation:\n{row}")

    def check_flags(self, document, lines):
        cells = [row.split("|")[1] for row in table(lines, "| flag |")]
        if not cells:
            return
        shown = set(re.findall(r"`(--?[a-z-]+)", " ".join(cells)))
        printed = output([self.hp_opt, "--help"])
        known = set(re.findall(r"^ +(--?[a-z-]+)", printed, re.MULTILINE))
        known -= {"--help", "--help-list", "--version"}
        for flag in sorted(known ^ shown):
            which = "lacks the flag" if flag in known else "no such flag:"
            self.expect(False, document, f"{which} {flag}")
        self.checked += len(known)

    def check_code(self, document, lines):
        text = "\n".join(line for _, line in fenced(lines, "cpp"))
        for block in filter(None, text.split("\n\n")):
            paths = glob.glob(os.path.join(ROOT, "include", "hp", "*", "*"))
            found = any(block.strip() in read(path) for path in paths)
            self.expect(found, document, f"in no header:\n{block}")

    def check_grammar(self, document, lines):
        shown = productions(line for _, line in fenced(lines, "ebnf"))
        if not shown:
            return
        parsed = parser_productions()
        for rule in parsed:
            self.expect(rule in shown, document, f"lacks the production {rule}")
        for rule in shown:
            self.expect(rule in parsed, document, f"not in the parser: {rule}")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def output(command):
    return subprocess.run(command, capture_output=True, text=True).stdout


def table(lines, head):
    """The rows of the table whose first line begins with `head`."""
    rows = []
    for line in lines:
        if rows or line.startswith(head):
            if not line.startswith("|"):
                break
            rows.append(line)
    return rows[2:]


def fenced(lines, kind):
    """(number, line) of the lines in ```kind blocks, an empty one at each end."""
    inside = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            if inside:
                yield number, ""
            inside = line == "```" + kind
        elif inside:
            yield number, line


def commands(lines):
    """(number, command, lines printed); a block's last empty line is none."""
    found = []
    for number, line in lines:
        if line.startswith("$ "):
            found.append((number, line[2:], []))
        elif found:
            found[-1][2].append(line)
    for number, command, printed in found:
        while printed and not printed[-1]:
            printed.pop()
        yield number, command, printed


def line_fits(expected, line):
    if expected.endswith(" ..."):
        return line.startswith(expected[:-3])
    return line == expected


def mismatch(expected, printed):
    """The first run of expected lines, between lines of three dots, that was not
    printed in its turn; None if all were."""
    runs = [[]]
    for line in expected:
        if line.strip() == "...":
            runs.append([])
        else:
            runs[-1].append(line)
    position = 0
    for number, run in enumerate(runs):
        first, last = position, len(printed) - len(run)
        if number == 0:
            last = min(last, 0)
        if number == len(runs) - 1:
            first = max(first, len(printed) - len(run))
        for start in range(first, last + 1):
            if all(map(line_fits, run, printed[start:])):
                position = start + len(run)
                break
        else:
            return run
    return None


def operation_rows(hp_opt):
    """The rows of the table, from --list-ops."""
    rows = []
    for line in output([hp_opt, "--list-ops"]).splitlines():
        key, _, value = line.strip().partition(": ")
        if not line.startswith(" "):
            rows.append({"names": line})
        elif key in ("rule", "attributes", "stages"):
            rows[-1][key] = value
        else:
            rows[-1]["summary"] = line.strip()
    cells_of = []
    for row in rows:
        # A bar would end the cell, and stars are emphasis.
        variants = [part.strip() for part in row.get("rule", "").split(" | ")]
        cells = [
            ", ".join(f"`{name}`" for name in row["names"].split(", ")),
            " or ".join(f"`{part}`" for part in variants if part),
            row.get("attributes", ""),
            row["stages"],
            row["summary"].replace("*", r"\*"),
        ]
        cells_of.append("| " + " | ".join(cells) + " |")
    return cells_of


def productions(lines):
    """`name ::= ...` with the lines that continue it, which are indented by five
    or more. Three spaces begin a remark."""
    rules = []
    for line in lines:
        match = re.match(r" *([a-z-]+) *::= (.*)", line)
        if match:
            rules.append(f"{match[1]} ::= {match[2].split('   ')[0].strip()}")
        elif rules and rules[-1] and line.startswith(" " * 5):
            rules[-1] += " " + line.strip()
        else:
            rules.append("")
    return [rule for rule in rules if rule]


def parser_productions():
    rules = []
    for source in ["Lexer.h", "Parser*.cpp"]:
        for path in sorted(glob.glob(os.path.join(ROOT, "lib", "IR", source))):
            lines = read(path).splitlines()
            comments = [re.match(r"///?( .*)", line) for line in lines]
            rules += productions(c[1] if c else "" for c in comments)
    return rules


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hp-opt", required=True)
    parser.add_argument("documents", nargs="+")
    args = parser.parse_args()
    checker = Checker(args.hp_opt)
    for document in args.documents:
        checker.check(document)
    print(f"{checker.checked} checked, {checker.failed} differ")
    return checker.failed > 0 or checker.checked == 0


if __name__ == "__main__":
    sys.exit(main())
