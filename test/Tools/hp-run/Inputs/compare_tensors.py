"""Compares two safetensors files: compare_tensors.py A B TOLERANCE

Prints the number of tensors if the names agree and each tensor differs by at
most TOLERANCE, relative to its norm; 0 asks for the same bits.
"""

import sys

import numpy
from safetensors.numpy import load_file

left, right = load_file(sys.argv[1]), load_file(sys.argv[2])
tolerance = float(sys.argv[3])
if set(left) != set(right):
    sys.exit(f"names differ: {sorted(set(left) ^ set(right))}")
for name, value in left.items():
    other = right[name]
    if value.shape != other.shape or value.dtype != other.dtype:
        sys.exit(f"{name}: {value.dtype}{value.shape}, {other.dtype}{other.shape}")
    if tolerance == 0:
        same = value.tobytes() == other.tobytes()
    else:
        size = numpy.linalg.norm(value.astype(numpy.float64))
        off = numpy.linalg.norm((value - other).astype(numpy.float64))
        same = off <= tolerance * max(size, 1e-30)
    if not same:
        sys.exit(f"{name} differs")
print(f"{len(left)} tensors agree")
