"""Checks the first weights of three runs, the same in float64, and that all of
them move.

    fresh_weights.py PHILOX TORCH NORMAL WIDE TRAINED
"""

import os
import sys

import numpy
from safetensors.numpy import load_file


def load(folder, step):
    return load_file(os.path.join(folder, f"step-{step:08}", "model.safetensors"))


def ends(name, *endings):
    return name.endswith(endings)


def check(name, tensor, weights):
    assert tensor.dtype == numpy.float32, name
    assert numpy.isfinite(tensor).all(), name
    if ends(name, "linear_attn.norm.weight", ".dt_bias"):
        assert (tensor == 1).all(), name
    elif ends(name, "norm.weight"):
        assert (tensor == 0).all(), name
    elif ends(name, ".A_log"):
        # 64 draws: not one is 0, as they would be in a half-width format, and
        # A itself is spread over 0 to 16 with a mean of 8.
        a = numpy.exp(tensor.astype(numpy.float64))
        assert tensor.size == 64 and (a > 0).all() and (a < 16.001).all(), name
        assert abs(a.mean() - 8) < 4 * 4.62 / 8 and len(set(tensor)) == 64, name
    else:
        assert tensor.ndim >= 2, name
        spread = tensor.astype(numpy.float64).std()
        assert abs(tensor.mean()) < 5 * spread / tensor.size**0.5, name
        half = tensor.size // 2
        flat = tensor.reshape(-1)
        assert (flat[:half] != flat[half : 2 * half]).mean() > 0.99, name
        if "layers.0." in name:
            other = weights[name.replace("layers.0.", "layers.1.")]
            assert (tensor != other).mean() > 0.99, name


def main():
    *folders, wide, trained = sys.argv[1:]
    starts = [load(folder, 1) for folder in folders]
    for weights in starts:
        assert len(weights) == 55
        for name, tensor in weights.items():
            check(name, tensor, weights)
    # Float64 draws the same numbers.
    for name, tensor in load(wide, 1).items():
        assert tensor.dtype == numpy.float64
        assert (tensor == starts[0][name]).all(), name
    for name, tensor in load(trained, 2).items():
        assert (tensor != starts[0][name]).any(), name
    print(f"{len(starts)} starts, 1 in float64 alike, and {len(starts[0])} "
          "parameters that train")


if __name__ == "__main__":
    main()
