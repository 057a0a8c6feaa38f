"""The lit suite: every .hp, .yaml and .test file with RUN lines."""

import os
import subprocess

import lit.formats

config.name = "hp"
config.test_format = lit.formats.ShTest()
config.suffixes = [".hp", ".yaml", ".test"]
# Inputs and figures that tests read.
config.excludes = ["Inputs", "golden", "worked"]
config.test_source_root = os.path.join(config.hp_source, "test")
config.test_exec_root = os.path.join(config.hp_build, "test")

lit_config.load_config(
    config, os.path.join(config.test_source_root, "lit.environment.py")
)

# FileCheck, not, count and split-file are found on the path.
config.environment["PATH"] = os.pathsep.join(
    [config.hp_llvm_tools, config.environment["PATH"]]
)


def in_build(*parts):
    return os.path.join(config.hp_build, *parts)


config.substitutions += [
    ("%hp-opt", in_build("bin", "hp-opt")),
    ("%hp-run", in_build("bin", "hp-run")),
    ("%nccl-plugin", in_build("bin", "libhp_nccl.so")),
    ("%safetensors-dump", in_build("unittests", "safetensors-dump")),
    ("%python", config.hp_python),
    ("%src", config.hp_source),
    ("%models", os.path.join(config.hp_source, "models")),
    ("%configs", os.path.join(config.hp_source, "configs")),
]

# ===----------------------------------------------------------------------=== #
# Features, for REQUIRES lines
# ===----------------------------------------------------------------------=== #


def python_has(*packages):
    """Whether the tests' Python could import `packages`."""
    code = (
        "import importlib.util, sys;"
        "sys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))"
    )
    return (
        subprocess.run([config.hp_python, "-c", code, *packages]).returncode
        == 0
    )


# hp-run was built.
if config.hp_runtime:
    config.available_features.add("runtime")
# The plugin for GPUs was built.
if os.path.exists(in_build("bin", "libhp_nccl.so")):
    config.available_features.add("nccl-plugin")
# There is a GPU of NVIDIA's.
if os.path.exists("/dev/nvidiactl"):
    config.available_features.add("gpu")
# Python programs can use torch and transformers as oracles.
if python_has("torch", "transformers", "safetensors"):
    config.available_features.add("python-torch")
if config.hp_asan:
    config.available_features.add("asan")
# Tests of many minutes, which `make check-all` runs.
if lit_config.params.get("long"):
    config.available_features.add("long")
