"""hp against transformers' Qwen3_5ForCausalLM on the same weights.

    transformers_oracle.py HP_RUN FOLDER [CASE]...

For each case: a model with random weights is written by transformers, loaded by
hp-run through its config.json and safetensors, and loss, logits and every
gradient of the two are compared. Bounds are relative in the L2 norm.
"""

import json
import os
import subprocess
import sys

import numpy
import torch
from safetensors.torch import load_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

BASE = dict(
    vocab_size=1000,
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
    layer_types=["linear_attention"] * 3 + ["full_attention"],
    tie_word_embeddings=True,
    attention_bias=False,
)
IRREGULAR = [
    "full_attention",
    "linear_attention",
    "full_attention",
    "full_attention",
    "linear_attention",
]
# name: (length, batch, changes to BASE)
CASES = {
    "length_1": (1, 2, {}),
    "length_3": (3, 2, {}),
    "length_63": (63, 2, {}),
    "length_64": (64, 2, {}),
    "length_65": (65, 2, {}),
    "length_129": (129, 2, {}),
    "equal_heads": (65, 2, {"linear_num_value_heads": 2}),
    "many_value_heads": (65, 2, {"linear_num_value_heads": 8}),
    "untied": (65, 2, {"tie_word_embeddings": False}),
    "bias": (65, 2, {"attention_bias": True}),
    "one_kv_head": (65, 2, {"num_key_value_heads": 1}),
    "irregular": (65, 2, {"num_hidden_layers": 5, "layer_types": IRREGULAR}),
    "tiny": (
        128,
        2,
        dict(
            vocab_size=1024,
            hidden_size=256,
            intermediate_size=768,
            head_dim=64,
            linear_num_key_heads=4,
            linear_key_head_dim=32,
            linear_value_head_dim=32,
        ),
    ),
}
# Sums that cancel: two fp32 programs lie this far apart.
CANCELLING = ("A_log", "dt_bias", "in_proj_a.weight", "in_proj_b.weight")
FORWARD_BOUND, GRADIENT_BOUND, CANCELLING_BOUND = 2e-6, 2e-5, 5e-4


def make_model(changes):
    values = {**BASE, **changes}
    rotary = values["head_dim"] // 4
    section = {8: [2, 1, 1], 16: [3, 3, 2]}[rotary]
    config = Qwen3_5TextConfig(
        **values,
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": section,
            "mrope_interleaved": True,
        },
    )
    config._attn_implementation = "eager"
    torch.manual_seed(1)
    model = Qwen3_5ForCausalLM(config).float().train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("A_log"):
                # Slow decay: the state carries far, its gradients are large.
                parameter.copy_(0.5 * torch.randn_like(parameter) - 2)
            else:  # norms and biases away from their special starts
                parameter.add_(0.05 * torch.randn_like(parameter))
    return model


def relative(ours, theirs):
    ours, theirs = ours.double(), theirs.double()
    return (ours - theirs).norm().item() / max(theirs.norm().item(), 1e-30)


def run_case(hp_run, folder, name):
    length, batch, changes = CASES[name]
    folder = os.path.join(folder, name)
    model = make_model(changes)
    model.save_pretrained(folder)
    generator = torch.Generator().manual_seed(2)
    vocabulary = model.config.vocab_size
    tokens = torch.randint(0, vocabulary, (batch, length), generator=generator)
    data = os.path.join(folder, "tokens.bin")
    tokens.numpy().astype(numpy.uint32).tofile(data)
    config = {
        "model": {
            "spec": "qwen3_5_v2",
            "hf_config": os.path.join(folder, "config.json"),
        },
        "training": {"seq_len": length, "local_batch_size": batch},
        "data": {
            "format": "tokens",
            "path": data,
            "dtype": "uint32",
            "layout": "rows",
        },
        "checkpoint": {"initial_load_path": folder},
    }
    path = os.path.join(folder, "run.json")
    with open(path, "w") as file:
        json.dump(config, file)
    out = os.path.join(folder, "out.safetensors")
    command = [hp_run, "forward", path, "--out", out, "--gradients"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    ours = load_file(out)

    result = model(input_ids=tokens, labels=tokens if length > 1 else None)
    failures = []

    def check(what, value, bound):
        if not value <= bound:  # catches NaN too
            failures.append(f"{name}: {what} differs by {value:.3g} > {bound}")
        return value

    difference = relative(ours["logits"], result.logits.detach())
    worst = {"logits": check("logits", difference, FORWARD_BOUND)}
    if length > 1:
        result.loss.backward()
        worst["loss"] = check(
            "loss", relative(ours["loss"], result.loss.detach()), FORWARD_BOUND
        )
        seen = {key for key in ours if key.startswith("grad.")}
        names = {}
        for key, parameter in model.named_parameters():
            names["grad." + key] = parameter.grad
        if seen != set(names):
            failures.append(f"{name}: gradients of {seen ^ set(names)}")
        for key in sorted(seen & set(names)):
            cancels = key.endswith(CANCELLING)
            bound = CANCELLING_BOUND if cancels else GRADIENT_BOUND
            value = check(key, relative(ours[key], names[key]), bound)
            group = "cancelling gradients" if cancels else "gradients"
            worst[group] = max(worst.get(group, 0), value)
    print(f"{name:18}", "  ".join(f"{k} {v:.2e}" for k, v in worst.items()))
    return failures


def main():
    hp_run, folder, *names = sys.argv[1:]
    torch.set_num_threads(1)
    failures = []
    for name in names or CASES:
        failures += run_case(hp_run, folder, name)
    for failure in failures:
        print("FAILED", failure)
    print(f"{len(names or CASES)} cases, {len(failures)} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
