"""Checks hp's safetensors reader and writer against the Python package.

    write FILE              a file with every dtype
    compare FILE DUMP       the package and DUMP read the same tensors
    shards BYTES FILE DIR   DIR is FILE cut as huggingface_hub cuts it
    mutate FILE DIR DUMP    damaged files: what DUMP takes, the package takes
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import zlib

import safetensors

# Name in the file, name for serialize(), bytes of an element.
DTYPES = [
    ("BOOL", "bool", 1),
    ("U8", "uint8", 1),
    ("I8", "int8", 1),
    ("F8_E5M2", "float8_e5m2", 1),
    ("F8_E4M3", "float8_e4m3fn", 1),
    ("I16", "int16", 2),
    ("U16", "uint16", 2),
    ("F16", "float16", 2),
    ("BF16", "bfloat16", 2),
    ("I32", "int32", 4),
    ("U32", "uint32", 4),
    ("F32", "float32", 4),
    ("F64", "float64", 8),
    ("I64", "int64", 8),
    ("U64", "uint64", 8),
]


def data_of(count, rng):
    return bytes(rng.randrange(256) for _ in range(count))


def write(path):
    rng = random.Random(1)
    tensors = {}
    for name, python_name, size in DTYPES:
        shape = {"F32": [2, 3], "BF16": [5]}.get(name, [3])
        count = 1
        for dim in shape:
            count *= dim
        tensors["w." + name] = (python_name, shape, data_of(size * count, rng))
    tensors["x.F32"] = ("float32", [], data_of(4, rng))
    tensors["empty"] = ("bool", [0, 7], b"")
    tensors['quo"te\\ \u00e9'] = ("uint8", [1, 1, 1], b"\x07")
    # The package takes addresses: the buffers must outlive the call.
    buffers = {
        name: ctypes.create_string_buffer(data, max(len(data), 1))
        for name, (_, _, data) in tensors.items()
    }
    specs = {
        name: safetensors.TensorSpec(
            dtype=dtype,
            shape=shape,
            data_ptr=ctypes.addressof(buffers[name]),
            data_len=len(data),
        )
        for name, (dtype, shape, data) in tensors.items()
    }
    safetensors.serialize_file(specs, path, {"format": "pt"})


def read(path):
    """The package's view: lines as safetensors-dump prints them."""
    with open(path, "rb") as file:
        content = file.read()
    return {
        f"{name} {info['dtype']} [{', '.join(map(str, info['shape']))}] "
        f"{zlib.crc32(info['data']):08x}"
        for name, info in safetensors.deserialize(content)
    }


def dump(tool, path):
    output = subprocess.run(
        [tool, path], capture_output=True, check=True, encoding="utf-8"
    ).stdout
    lines = output.splitlines()
    return {line for line in lines if not line.startswith("__metadata__ ")}


def compare(path, tool):
    expected, actual = read(path), dump(tool, path)
    assert len(expected) == len(DTYPES) + 3, expected
    assert expected == actual, (expected - actual, actual - expected)


def shards(max_bytes, path, folder):
    from huggingface_hub import split_state_dict_into_shards_factory

    # In the order of the file, which is the order the tool passed on.
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__")
    sizes = {
        name: info["data_offsets"][1] - info["data_offsets"][0]
        for name, info in sorted(
            header.items(), key=lambda item: (item[1]["data_offsets"], item[0])
        )
    }
    split = split_state_dict_into_shards_factory(
        sizes,
        get_storage_size=lambda size: size,
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=max_bytes,
    )
    with open(os.path.join(folder, "model.safetensors.index.json")) as file:
        text = file.read()
    index = json.loads(text)
    assert len(split.filename_to_tensors) > 2
    assert index["weight_map"] == split.tensor_to_filename
    assert index["metadata"]["total_size"] == split.metadata["total_size"]
    assert text == json.dumps(index, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    listed = set(split.filename_to_tensors)
    assert set(os.listdir(folder)) == listed | {"model.safetensors.index.json"}
    for name, tensors in split.filename_to_tensors.items():
        with open(os.path.join(folder, name), "rb") as file:
            held = {key for key, _ in safetensors.deserialize(file.read())}
        assert held == set(tensors), name


def mutate(path, folder, tool):
    os.makedirs(folder, exist_ok=True)
    with open(path, "rb") as file:
        seed = file.read()
    length = int.from_bytes(seed[:8], "little")
    rng = random.Random(20240611)
    contents = []
    for _ in range(2000):
        header = bytearray(seed[8 : 8 + length])
        for _ in range(rng.randint(1, 2)):
            at = rng.randrange(len(header))
            kind = rng.randrange(4)
            if kind == 0:
                header[at] = rng.choice(b'{}[]",:0123456789-.eE\\ \n\x00\xff')
            elif kind == 1:
                del header[at : at + rng.randint(1, 12)]
            elif kind == 2:
                other = rng.randrange(len(header))
                header[at:at] = header[other : other + rng.randint(1, 12)]
            else:
                digits = [i for i, c in enumerate(header) if chr(c).isdigit()]
                header[rng.choice(digits)] = rng.choice(b"0123456789")
        stated = len(header) + rng.choice([0] * 8 + [-1, 1, 8, 2**40])
        contents.append(
            (stated % 2**64).to_bytes(8, "little") + header + seed[8 + length :]
        )
    paths = []
    for number, content in enumerate(contents):
        paths.append(os.path.join(folder, f"{number}.safetensors"))
        with open(paths[-1], "wb") as file:
            file.write(content)
    output = subprocess.run(
        [tool, "--try", *paths],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
        encoding="utf-8",
    ).stdout
    verdicts = [line.split(" ")[0] for line in output.splitlines()]
    assert len(verdicts) == len(paths)
    counts = {"both": 0, "package only": 0, "neither": 0}
    for path, verdict in zip(paths, verdicts):
        try:
            expected = read(path)
        except safetensors.SafetensorError:
            expected = None
        if verdict == "ok":
            assert expected is not None, f"{path}: the package refuses it"
            assert dump(tool, path) == expected, path
            counts["both"] += 1
        else:
            counts["neither" if expected is None else "package only"] += 1
    print(counts)
    assert counts["both"] >= 50 and counts["neither"] >= 500, counts


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "write":
        write(*arguments)
    elif command == "compare":
        compare(*arguments)
    elif command == "shards":
        shards(int(arguments[0]), *arguments[1:])
    elif command == "mutate":
        mutate(*arguments)
    else:
        sys.exit(__doc__)
