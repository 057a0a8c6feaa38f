"""Adds up the elements of the types that --print-parameters lists."""

import math
import re
import sys

lines = elements = 0
for line in sys.stdin:
    shape = re.search(r"  f32\[(.*?)\]  ", line)
    if not shape:
        continue
    lines += 1
    product = 1
    for dim in shape.group(1).split(", "):
        # (q=2*16 | k=2*16), V=1000, 64
        product *= sum(
            math.prod(int(n) for n in segment.split("=")[-1].split("*"))
            for segment in dim.strip("()").split(" | ")
        )
    elements += product
print(f"{lines} lines, {elements} elements")
