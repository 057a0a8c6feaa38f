"""Gives `hp-run import` checkpoints that it must refuse.

    import_errors.py HP_RUN CONFIG GOOD

GOOD is an exported checkpoint of the micro model. Each case writes a folder of
its own in the working directory: a change of it that is made here, and what the
message must say.
"""

import json
import os
import re
import shutil
import struct
import subprocess
import sys

import numpy
from safetensors.numpy import load_file, save_file

EMBED = "model.embed_tokens.weight"
GATE = "model.layers.0.mlp.gate_proj.weight"  # 96 x 64
NORM = "model.norm.weight"
CASES = {}


def case(*messages):
    """Registers a function that changes a checkpoint in place."""

    def register(function):
        CASES[function.__name__] = (function, messages)
        return function

    return register


def tensors(*messages):
    """Registers a function that changes the tensors by name."""

    def register(function):
        def rewrite(folder):
            path = os.path.join(folder, "model.safetensors")
            weights = load_file(path)
            save_file(function(weights) or weights, path)

        CASES[function.__name__] = (rewrite, messages)
        return function

    return register


def header(*messages):
    """Registers a function that changes the header's JSON, not the data."""

    def register(function):
        def rewrite(folder):
            path = os.path.join(folder, "model.safetensors")
            with open(path, "rb") as file:
                (length,) = struct.unpack("<Q", file.read(8))
                entries = json.loads(file.read(length))
                data = file.read()
            text = json.dumps(function(entries) or entries).encode()
            text += b" " * (-len(text) % 8)
            with open(path, "wb") as file:
                file.write(struct.pack("<Q", len(text)) + text + data)

        CASES[function.__name__] = (rewrite, messages)
        return function

    return register


# ---- keys ----


@tensors(
    r"missing: error: the checkpoint does not fit the model: 2 missing and 0 "
    r"unexpected keys, spelled as 'text'",
    f"note: missing '{GATE}'",
    f"note: missing '{NORM}'",
)
def missing(weights):
    del weights[NORM], weights[GATE]


@tensors("0 missing and 1 unexpected keys", "unexpected 'model.layers.4.norm.weight'")
def unexpected(weights):
    weights["model.layers.4.norm.weight"] = weights[NORM]


@tensors("1 missing and 1 unexpected", f"missing '{NORM}'", "unexpected 'model.nrom")
def renamed(weights):
    weights["model.nrom.weight"] = weights.pop(NORM)


@tensors("1 missing and 1 unexpected", f"missing '{NORM}'", "'text'")
def mixed_prefixes(weights):
    weights["model.language_model.norm.weight"] = weights.pop(NORM)


@tensors(
    "error: no key of the checkpoint is a parameter of the model",
    f"the first one expected is '{EMBED}'",
    "unexpected 'transformer.layers.0",
)
def no_key(weights):
    return {"transformer." + key[6:]: value for key, value in weights.items()}


@tensors("no key of the checkpoint is a parameter", f"expected is '{EMBED}'")
def only_vision(weights):
    # Skipped beside a text model, but no text model by itself.
    return {"model.visual.x": weights[NORM]}


@tensors("tensor 'lm_head.weight' differs from 'model.embed_tokens.weight', to which")
def other_head(weights):
    weights["lm_head.weight"] = weights[EMBED] + 1


@tensors("1 missing and 0 unexpected", f"missing '{EMBED}'")
def head_alone(weights):
    weights["lm_head.weight"] = weights.pop(EMBED)


# ---- shapes and types ----


@tensors(rf"tensor '{GATE}' has shape \[64, 96\]; parameter .* has \[96, 64\]")
def transposed(weights):
    weights[GATE] = numpy.ascontiguousarray(weights[GATE].T)


@tensors(rf"tensor '{GATE}' has shape \[6144\]; parameter .* has \[96, 64\]")
def flat(weights):
    weights[GATE] = weights[GATE].reshape(-1)


@tensors(rf"'{NORM}' has shape \[64, 1\]; parameter '@norm.weight' has \[64\]")
def one_more_dim(weights):
    weights[NORM] = weights[NORM].reshape(64, 1)


@tensors(rf"'{NORM}' has shape \[1\]; parameter '@norm.weight' has \[64\]")
def broadcastable(weights):
    weights[NORM] = weights[NORM][:1]


@tensors(f"tensor '{NORM}' is I32; weights are read from BF16 or F32")
def int32(weights):
    weights[NORM] = weights[NORM].view(numpy.int32)


@tensors(f"tensor '{NORM}' is F16; weights are read from BF16 or F32")
def float16(weights):
    weights[NORM] = weights[NORM].astype(numpy.float16)


@tensors(f"tensor '{NORM}' is F64; weights are read from BF16 or F32")
def float64(weights):
    weights[NORM] = weights[NORM].astype(numpy.float64)


@tensors("lm_head.weight' differs from 'model.embed_tokens.weight'")
def head_of_other_type(weights):
    weights["lm_head.weight"] = weights[EMBED].astype(numpy.float16)


@header(f"tensor '{NORM}' is U32; weights are read from BF16 or F32")
def type_of_equal_width(entries):
    entries[NORM]["dtype"] = "U32"


# ---- the file ----


@case("past_the_end/model.safetensors: error: header of 1000000 bytes, but only")
def past_the_end(folder):
    patch(folder, 0, struct.pack("<Q", 1000000))


@case("error: header of 18446744073709551615 bytes; at most")
def largest_length(folder):
    patch(folder, 0, b"\xff" * 8)


@case(f"tensor '{NORM}': its bytes .* pass the end of the file, which has 893727")
def cut_by_a_byte(folder):
    path = os.path.join(folder, "model.safetensors")
    os.truncate(path, os.path.getsize(path) - 1)


@case("error: .*1 bytes after the last tensor belong to none")
def one_byte_more(folder):
    with open(os.path.join(folder, "model.safetensors"), "ab") as file:
        file.write(b"x")


@case("error: not a safetensors file: 0 bytes")
def empty(folder):
    os.truncate(os.path.join(folder, "model.safetensors"), 0)


@case("error: not a safetensors file: the header does not start with '{'")
def not_json(folder):
    patch(folder, 8, b"}")


@header(f"tensor '{NORM}': unknown dtype 'BF17'; known are")
def unknown_type(entries):
    entries[NORM]["dtype"] = "BF17"


@header(f"tensor '{NORM}': its bytes .* overlap those of '{GATE}'")
def overlap(entries):
    entries[NORM]["data_offsets"] = entries[GATE]["data_offsets"][:]
    entries[NORM]["shape"] = entries[GATE]["shape"]


@header(f"tensor '{NORM}': 'data_offsets' begins after its end")
def begins_after_its_end(entries):
    entries[NORM]["data_offsets"].reverse()


@header(f"tensor '{NORM}': the product of its dimensions overflows")
def product_overflows(entries):
    entries[NORM]["shape"] = [1 << 32, 1 << 32, 16]


@header("expected a non-negative integer, not '-64'")
def negative_dim(entries):
    entries[NORM]["shape"] = [-64]


# ---- the folder ----


@case("error: the folder holds neither 'model.safetensors' nor")
def no_file(folder):
    os.remove(os.path.join(folder, "model.safetensors"))


@case("error: the folder holds both 'model.safetensors' and")
def both(folder):
    write_index(folder, {NORM: "model.safetensors"})


def shard(folder):
    """Renames the one file; returns its tensors' names."""
    path = os.path.join(folder, "model.safetensors")
    names = list(load_file(path))
    os.rename(path, os.path.join(folder, "a.safetensors"))
    return names


@case(rf"tensor '{NORM}': shard '../x' is not a plain file name")
def leads_out(folder):
    names = {n: "a.safetensors" for n in shard(folder)}
    write_index(folder, names | {NORM: "../x"})


@case("shard '/etc/passwd' is not a plain file name")
def absolute(folder):
    names = {n: "a.safetensors" for n in shard(folder)}
    write_index(folder, names | {NORM: "/etc/passwd"})


@case("shard 'b.safetensors' is missing; the index lists 1 tensors in it")
def no_shard(folder):
    names = {n: "a.safetensors" for n in shard(folder)}
    write_index(folder, names | {NORM: "b.safetensors"})


@case("shard 'a.safetensors': listed in the index, but absent from the shard: 'x'")
def absent(folder):
    names = {n: "a.safetensors" for n in shard(folder)}
    write_index(folder, names | {"x": "a.safetensors"})


@case(f"shard 'a.safetensors': present in the shard, but not listed .* '{NORM}'")
def unlisted(folder):
    names = {n: "a.safetensors" for n in shard(folder)}
    del names[NORM]
    write_index(folder, names)


@case("index.json:1:3: error: the index has no 'weight_map'")
def no_map(folder):
    shard(folder)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        file.write("{}")


@case("index.json:1:16: error: expected an object")
def index_not_json(folder):
    shard(folder)
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        file.write('{"weight_map": [1]}')


def patch(folder, offset, data):
    with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
        file.seek(offset)
        file.write(data)


def write_index(folder, names):
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
        json.dump({"metadata": {}, "weight_map": names}, file)


def main():
    hp_run, config, good = sys.argv[1:]
    failures = 0
    for name, (change, messages) in CASES.items():
        shutil.copytree(good, name)
        change(name)
        target = name + ".imported"
        result = subprocess.run(
            [hp_run, "import", name, target, "--config", config],
            capture_output=True,
            text=True,
            timeout=60,
        )
        problems = []
        if result.returncode != 1:
            problems.append(f"exit status {result.returncode}")
        if os.path.exists(target):
            problems.append("something was written")
        for message in messages:
            if not re.search(message, result.stderr):
                problems.append(f"no '{message}' in:\n{result.stderr}")
        print(name, result.stderr.splitlines()[:1])
        for problem in problems:
            print("FAILED", name, problem)
        failures += bool(problems)
    print(f"{len(CASES)} refusals, {failures} failures")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
