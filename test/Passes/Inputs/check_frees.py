"""Checks the frees of a step from its text alone.

Follows each value to the storage it shares (views, and gradients that pass a
cotangent on), and says whether each storage is freed once, after its last use.
"""

import re
import sys

# Operations whose results share the storage of an operand, by position.
VIEWS = {"split": 0, "unflatten": 0, "flatten": 0, "unpack": 0}
# Adjoints that hand the storage of the cotangent on, for these gradients.
PASSING = {
    "add.bwd": (0, 1),
    "unflatten.bwd": (0,),
    "flatten.bwd": (0,),
    "bias_add.bwd": (0,),
}


def main(path):
    root, freed, ended = {}, set(), set()
    counts = {"freed": 0, "returned": 0}
    for line in open(path):
        line = line.strip()
        if line.startswith("func @step("):
            for name in re.findall(r"%([\w.]+):", line):
                root[name] = None
            continue
        if not re.match(r"(%|_|free|adamw|return)", line):
            continue
        results, _, rest = line.rpartition(" = ") if " = " in line else ("", "", line)
        results = re.findall(r"%([\w.]+)", results)
        kind, _, tail = rest.partition(" ")
        tail = re.split(r" : | \{", tail)[0] if kind not in ("free", "return") else tail
        accs = re.search(r"acc\[([^\]]*)\]", rest)
        accs = [a.strip() for a in accs.group(1).split(",")] if accs else []
        operands = [o.strip() for o in tail.split(" acc[")[0].split(",")]
        read = [o[1:] for o in operands + accs if o.startswith("%")]
        for name in read:
            assert name in root, f"{name} is used before it is made"
            assert root[name] not in ended, f"{name} is used after its end"
        if kind == "free":
            for name in read:
                assert root[name] == name, f"{name} is freed and begins no storage"
                ended.add(name)
                counts["freed"] += 1
            continue
        if kind == "return":
            counts["returned"] = len(read)
            ended.update(root[name] for name in read)
            continue
        for index, result in enumerate(results):
            source = None
            if kind in VIEWS:
                source = operands[VIEWS[kind]]
            elif index in PASSING.get(kind, ()):
                if index >= len(accs) or accs[index] == "_":
                    source = operands[-1]
            root[result] = root[source[1:]] if source else result
    storages = {r for r in root.values() if r}
    leaked = sorted(storages - ended)
    assert not leaked, f"never freed: {leaked}"
    print(
        f"{counts['freed']} storages freed, {counts['returned']} returned, "
        "none leaked, none used after its end"
    )


main(sys.argv[1])
