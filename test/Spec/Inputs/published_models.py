"""Keys, shapes and counts of the published models against transformers.

    published_models.py HP_OPT SPEC

For each flavor, transformers builds the model without memory (device meta) from
sizes written down here, and every checkpoint key with its shape must be what
hp-opt prints.
"""

import re
import subprocess
import sys

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

# hidden, intermediate, layers, heads, kv heads, key heads, value heads, tied
FLAVORS = {
    "0.8B": (1024, 3584, 24, 8, 2, 16, 16, True, 752_393_024),
    "2B": (2048, 6144, 24, 8, 2, 16, 16, True, 1_881_825_088),
    "4B": (2560, 9216, 32, 16, 4, 16, 32, True, 4_205_751_296),
    "9B": (4096, 12288, 32, 16, 4, 16, 32, False, 8_953_803_264),
    "27B": (5120, 17408, 64, 24, 4, 16, 48, False, 26_895_998_464),
}


def transformers_shapes(flavor):
    hidden, inner, layers, heads, kv, key, value, tied, count = FLAVORS[flavor]
    config = Qwen3_5TextConfig(
        vocab_size=248320,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv,
        head_dim=256,
        linear_num_key_heads=key,
        linear_num_value_heads=value,
        linear_key_head_dim=128,
        linear_value_head_dim=128,
        tie_word_embeddings=tied,
    )
    with torch.device("meta"):
        model = Qwen3_5ForCausalLM(config)
    shapes = {k: list(v.shape) for k, v in model.state_dict().items()}
    if tied:
        del shapes["lm_head.weight"]
    assert sum(torch.Size(s).numel() for s in shapes.values()) == count
    return shapes


def extent(dim):
    """`(q=16*128 | k=16*128)` is 4096."""
    total = 0
    for segment in dim.strip("()").split("|"):
        product = 1
        for factor in segment.split("=")[-1].split("*"):
            product *= int(factor)
        total += product
    return total


def hp_shapes(hp_opt, spec, flavor):
    command = [hp_opt, spec, "--flavor", flavor, "--print-parameters"]
    text = subprocess.run(command, check=True, capture_output=True, text=True)
    shapes = {}
    for line in text.stdout.splitlines():
        match = re.match(r"\S+\s+(\S+)\s+f32\[(.*)\]\s+init=", line)
        if match:
            shapes[match[1]] = [extent(d) for d in match[2].split(", ")]
    return shapes


def main():
    hp_opt, spec = sys.argv[1:]
    for flavor in FLAVORS:
        ours, theirs = hp_shapes(hp_opt, spec, flavor), transformers_shapes(flavor)
        assert ours.keys() == theirs.keys(), ours.keys() ^ theirs.keys()
        for key, shape in theirs.items():
            assert ours[key] == shape, (flavor, key, ours[key], shape)
        print(flavor, len(ours), "keys agree")


main()
