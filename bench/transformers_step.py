#!/usr/bin/env python3
"""Trains the tiny model with transformers and prints the seconds of each step.

    bench/transformers_step.py STEPS BATCH LENGTH

bench/run.py compares hp-run with it: eager attention, float32, LibTorch's
AdamW and clip, everything else as it comes. OMP_NUM_THREADS is obeyed.
"""

import json
import sys
import time

import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

TINY = {
    "vocab_size": 1024,
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "linear_num_key_heads": 4,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 32,
    "tie_word_embeddings": True,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 1e7,
        "partial_rotary_factor": 0.25,
        "mrope_section": [3, 3, 2],
        "mrope_interleaved": True,
    },
}
PARAMETERS = 3388408  # of hp's tiny: the two must be one model


def main():
    steps, batch, length = map(int, sys.argv[1:])
    torch.manual_seed(0)
    config = Qwen3_5TextConfig(**TINY, attn_implementation="eager")
    model = Qwen3_5ForCausalLM(config).float().train()
    count = sum(parameter.numel() for parameter in model.parameters())
    if count != PARAMETERS:
        sys.exit(f"{count} parameters, and hp's tiny has {PARAMETERS}")
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1
    )
    seconds = []
    for _ in range(steps):
        start = time.perf_counter()
        tokens = torch.randint(0, config.vocab_size, (batch, length))
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        loss.item()
        seconds.append(time.perf_counter() - start)
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
