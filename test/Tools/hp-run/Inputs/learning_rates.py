"""Compares the `lr` of each line of a metrics file with a list of products and
quotients; to 14 digits, as 2.0/7 and 0.02/7 differ in the last bit.

    learning_rates.py METRICS RATE...
"""

import json
import math
import re
import sys


def value(text):
    left, sign, right = re.fullmatch(r"([0-9.]+)(?:([*/])([0-9.]+))?", text).groups()
    if not sign:
        return float(left)
    return float(left) * float(right) if sign == "*" else float(left) / float(right)


with open(sys.argv[1]) as file:
    got = [json.loads(line)["lr"] for line in file]
want = [value(text) for text in sys.argv[2:]]
assert len(got) == len(want), got
for step, (ours, theirs) in enumerate(zip(got, want)):
    assert math.isclose(ours, theirs, rel_tol=1e-14), (step, ours, theirs)
