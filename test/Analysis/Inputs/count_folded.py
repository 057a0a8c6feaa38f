"""How many lines a folded view stands for."""

import re
import sys

total, outer, inner = 0, 1, 1
for line in open(sys.argv[1]):
    line = line.strip()
    if match := re.fullmatch(r"// layers \d+-\d+: x(\d+) of the \d+ layers.*", line):
        outer = int(match[1])
    elif match := re.fullmatch(r"// layers (\d+)-(\d+): x(\d+)", line):
        inner = int(match[3])
        assert abs(int(match[1]) - int(match[2])) + 1 == inner
    elif re.fullmatch(r"// layer \d+", line):
        inner = 1
    elif re.fullmatch(r"// end of (x\d+|layers)", line):
        outer = inner = 1
    elif not line.startswith("// A view"):
        total += outer * inner
print(total)
