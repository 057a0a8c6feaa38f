"""The environment of every test, for both lit suites."""

import os

config.environment.update(
    {
        # Waiting OpenMP workers spin, and lit runs a test on every core.
        "OMP_NUM_THREADS": "1",
        # hp-opt prints, parses and prints again after every pass.
        "HP_OPT_CHECK_IR_ROUNDTRIP": "1",
        # Messages and sorted output are the same everywhere.
        "LC_ALL": "C.UTF-8",
        # Hugging Face libraries must not look for the network or a home.
        "HF_HUB_OFFLINE": "1",
        "HOME": os.path.join(config.hp_build, "test"),
    }
)

if config.hp_asan:
    suppressions = os.path.join(config.hp_source, "test", "lsan.supp")
    config.environment.update(
        {
            "ASAN_OPTIONS": "detect_leaks=1",
            "LSAN_OPTIONS": f"suppressions={suppressions}:print_suppressions=0",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        }
    )
