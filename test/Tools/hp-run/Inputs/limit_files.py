"""Runs a command that cannot write files beyond a size, as on a full disk.

    limit_files.py BYTES COMMAND [ARGUMENT...]
"""

import os
import resource
import signal
import sys

size = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead
os.execv(sys.argv[2], sys.argv[2:])
