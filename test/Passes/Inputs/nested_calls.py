"""Prints a model whose functions call one another.

    nested_calls.py CALLS DEPTH

Each of DEPTH functions calls the one before it CALLS times.
"""

import sys

calls, depth = int(sys.argv[1]), int(sys.argv[2])
print('model "nested" stage(spec) {')
print("  training {max_norm=1.0}")
print("  optimizer {beta1=0.9, beta2=0.95, eps=1e-08, weight_decay=0.1}")
print("  mesh <>")
print("  param @e : f32[V=8, 8] {init=embedding}")
print("  func @f0(%x0: f32[1, 1, 8]) {")
print("    %x1 = sigmoid %x0 : f32[1, 1, 8]")
print("    return %x1")
print("  }")
for level in range(1, depth + 1):
    print(f"  func @f{level}(%x0: f32[1, 1, 8]) {{")
    for i in range(calls):
        print(f"    %x{i + 1} = call @f{level - 1}(%x{i}) : f32[1, 1, 8]")
    print(f"    return %x{calls}")
    print("  }")
print("  func @train(%tok: i64[1, 1], %lab: i64[1, 1]) {")
print("    %x = embedding %tok, @e : f32[1, 1, 8]")
print(f"    %y = call @f{depth}(%x) : f32[1, 1, 8]")
print("    %loss = cross_entropy %y, %lab : f32[]")
print("    return %loss")
print("  }")
print("}")
