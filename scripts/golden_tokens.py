#!/usr/bin/env python3
"""Writes the token ids that the golden figures were recorded with.

    x = 42; before each id: x = (6364136223846793005 * x + 1442695040888963407)
    mod 2^64; id = (x >> 33) mod vocabulary

    scripts/golden_tokens.py build/data/golden_tokens.bin

The ids are little-endian, with nothing else in the file, as data.format
`tokens` expects. The defaults are the ten steps of eight rows of 128 ids of
configs/tiny_golden_*.yaml.
"""

import argparse
import os
import sys
from array import array


def golden_tokens(vocab, count):
    x = 42
    for _ in range(count):
        x = (6364136223846793005 * x + 1442695040888963407) % 2**64
        yield (x >> 33) % vocab


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--vocab", type=int, default=1024, help="default: 1024")
    parser.add_argument("--count", type=int, default=10240, help="default: 10240")
    parser.add_argument("--dtype", choices=["uint16", "uint32"], default="uint32")
    parser.add_argument("output", help="the token file to write")
    args = parser.parse_args()
    code = {"uint16": "H", "uint32": "I"}[args.dtype]
    if not 1 <= args.vocab <= 2 ** (8 * array(code).itemsize):
        parser.error(f"ids below {args.vocab} do not fit {args.dtype}")

    ids = array(code, golden_tokens(args.vocab, args.count))
    if sys.byteorder == "big":
        ids.byteswap()
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    with open(args.output, "wb") as file:
        ids.tofile(file)


if __name__ == "__main__":
    main()
