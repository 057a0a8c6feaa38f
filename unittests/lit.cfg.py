"""The suite of GoogleTest programs: each case is one test."""

import os
import sys

# Lit's workers must be able to import the format.
sys.path.insert(0, os.path.join(config.hp_source, "unittests"))
from declared_programs import DeclaredPrograms

config.name = "hp-unittests"
config.test_format = DeclaredPrograms([p for p in config.hp_unittests if p])
config.test_source_root = os.path.join(config.hp_build, "unittests")
config.test_exec_root = config.test_source_root

lit_config.load_config(
    config, os.path.join(config.hp_source, "test", "lit.environment.py")
)
# Read by tests that have a longer form.
if lit_config.params.get("long"):
    config.environment["HP_LONG_TESTS"] = "1"
