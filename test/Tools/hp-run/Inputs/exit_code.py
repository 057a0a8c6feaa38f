"""Runs a command that must end with a given exit status, and passes on what it
prints. `not` accepts any status but 0, a crash by assertion included.

    exit_code.py STATUS COMMAND [ARGUMENT...]
"""

import subprocess
import sys

status = subprocess.run(sys.argv[2:]).returncode
if status != int(sys.argv[1]):
    sys.exit(f"exit status {status}, not {sys.argv[1]}")
