"""Checkpoints written by transformers through hp-run import and export.

    state_dict_roundtrip.py HP_RUN FOLDER [CASE...]

What comes out must be what went in: the same keys, each of the same element
type, shape and bits; and transformers and safetensors must load it.
"""

import json
import os
import re
import shutil
import subprocess
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig
from transformers.utils import logging

SMALL = dict(
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
)
FLOAT32_IN_BF16_FILES = (".A_log", ".linear_attn.norm.weight")
EXTRAS = {
    "model.visual.patch_embed.proj.weight": torch.ones(4, 3, 2),
    "model.visual.blocks.0.norm1.weight": torch.ones(4),
    "mtp.norm.weight": torch.ones(64),
}


def make_model(changes, dtype):
    config = Qwen3_5TextConfig(
        **{**SMALL, **changes},
        rope_parameters={
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [2, 1, 1],
            "mrope_interleaved": True,
        },
    )
    torch.manual_seed(1)
    model = Qwen3_5ForCausalLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return model.to(dtype)


def multimodal(tensors):
    """Keys as in checkpoints that hold a vision tower too."""
    renamed = {
        re.sub(r"^model\.", "model.language_model.", key): tensor
        for key, tensor in tensors.items()
    }
    return renamed | EXTRAS


def keep_float32(tensors):
    return {
        key: tensor.float() if key.endswith(FLOAT32_IN_BF16_FILES) else tensor
        for key, tensor in tensors.items()
    }


def with_head(tensors):
    """A tied model's file that holds the weight under both names."""
    return tensors | {"lm_head.weight": tensors["model.embed_tokens.weight"].clone()}


BF16, F32 = torch.bfloat16, torch.float32
UNTIED = dict(tie_word_embeddings=False, vocab_size=4000)
# name: (changes to the model, dtype, how the file is rewritten, save_pretrained's
# max_shard_size, files that an export in shards of 1 MB writes)
CASES = {
    "f32": ({}, F32, None, "1GB", 1),
    "bf16": ({}, BF16, None, "1GB", 1),
    "bf16_and_f32": ({}, BF16, keep_float32, "1GB", 1),
    "f32_shards": ({}, F32, None, "200KB", 1),
    "bf16_shards": (UNTIED, BF16, None, "300KB", 2),
    "untied": (UNTIED, F32, None, "1GB", 3),
    "multimodal": ({}, BF16, multimodal, "1GB", 1),
    "multimodal_untied": (UNTIED, F32, multimodal, "1GB", 3),
    "tied_with_head": ({}, BF16, with_head, "1GB", 1),
}


def load(folder):
    """The tensors and the number of files of a checkpoint."""
    names = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))
    tensors = {}
    for name in names:
        part = load_file(os.path.join(folder, name))
        assert not part.keys() & tensors.keys(), "a key is in two shards"
        tensors |= part
    index = os.path.join(folder, "model.safetensors.index.json")
    if len(names) > 1:
        with open(index) as file:
            weights = json.load(file)["weight_map"]
        assert weights.keys() == tensors.keys()
    else:
        assert not os.path.exists(index)
    return tensors, len(names)


def bits(tensor):
    return tensor.contiguous().view(torch.uint8)


def compare(what, ours, theirs):
    assert ours.keys() == theirs.keys(), f"{what}: {ours.keys() ^ theirs.keys()}"
    for key, tensor in theirs.items():
        assert ours[key].dtype == tensor.dtype, f"{what}: {key} is {ours[key].dtype}"
        assert ours[key].shape == tensor.shape, f"{what}: {key}"
        assert torch.equal(bits(ours[key]), bits(tensor)), f"{what}: {key} differs"


def run(*command):
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout


def text_state(tensors):
    """The state dict of the text model in a checkpoint."""
    return {
        key.replace("model.language_model.", "model."): tensor
        for key, tensor in tensors.items()
        if key not in EXTRAS
    }


def check_loads(folder, source, model):
    """transformers loads `folder`, beside a config.json, as `model`."""
    shutil.copy(os.path.join(source, "config.json"), folder)
    dtype = next(model.parameters()).dtype
    loaded, report = Qwen3_5ForCausalLM.from_pretrained(
        folder, dtype=dtype, output_loading_info=True
    )
    for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        assert not report[kind], f"{kind}: {report[kind]}"
    compare("loaded by transformers", loaded.state_dict(), model.state_dict())


def run_case(hp_run, folder, name):
    changes, dtype, rewrite, shard_size, written = CASES[name]
    source = os.path.join(folder, "source")
    model = make_model(changes, dtype)
    model.save_pretrained(source, max_shard_size=shard_size)
    original, read = load(source)
    assert (read > 1) == (shard_size != "1GB"), f"transformers wrote {read} files"
    if rewrite:
        original = rewrite(original)
        path = os.path.join(source, "model.safetensors")
        save_file(original, path, metadata={"format": "pt"})
    skipped = {key for key in original if key in EXTRAS}

    config = os.path.join(folder, "run.json")
    with open(config, "w") as file:
        hf_config = os.path.join(source, "config.json")
        json.dump({"model": {"spec": "qwen3_5_v2", "hf_config": hf_config}}, file)
    own, export = os.path.join(folder, "own"), os.path.join(folder, "export")
    said = run(hp_run, "import", source, own, "--config", config)
    spelling = "multimodal" if skipped else "text"
    assert f"{len(model.state_dict()) - (not changes)} tensors" in said, said
    assert f"'{spelling}' keys" in said, said
    assert (f"skipped {len(skipped)} that" in said) == bool(skipped), said

    # hp's own checkpoint: float32 whatever came, and no tensor twice.
    step = os.path.join(own, "step-00000000")
    stored, _ = load(step)
    want = {k: v.float() for k, v in original.items() if k not in EXTRAS}
    if not changes:
        want.pop("lm_head.weight", None)
    compare("checkpoint", stored, want)

    run(hp_run, "export", own, export, "--config", config, "--max-shard-size=1")
    exported, count = load(export)
    assert count == written, f"export wrote {count} files, not {written}"
    want = {k: v for k, v in original.items() if k not in EXTRAS}
    compare("export", exported, want)
    if rewrite in (None, with_head):
        check_loads(export, source, model)
    else:
        missing, unexpected = model.load_state_dict(text_state(exported), strict=False)
        assert not unexpected and missing == ["lm_head.weight"] * (not changes)
    if name == "f32":
        check_loads(step, source, model)

    # Another element type or spelling is written when asked for.
    other = os.path.join(folder, "other")
    arguments = ["--dtype=bfloat16", f"--keys={'text' if skipped else 'multimodal'}"]
    run(hp_run, "export", own, other, "--config", config, *arguments)
    tensors, _ = load(other)
    assert ("model.norm.weight" in tensors) == bool(skipped)
    state = text_state(tensors)
    for key, tensor in text_state(stored).items():
        kept = key.endswith(FLOAT32_IN_BF16_FILES)
        want = {key: tensor if kept else tensor.bfloat16()}
        compare("other export", {key: state[key]}, want)
    print(f"{name}: {len(exported)} tensors, {read} files in, {written} out")


def main():
    hp_run, folder, *names = sys.argv[1:]
    logging.disable_progress_bar()
    failures = 0
    for name in names or CASES:
        try:
            run_case(hp_run, os.path.join(folder, name), name)
        except AssertionError as failure:
            print(f"FAILED {name}: {failure}")
            failures += 1
    print(f"{len(names or CASES)} cases, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
