"""Runs a command with MASTER_PORT set to a port at which this program listens.

    taken_port.py COMMAND [ARGUMENT...]
"""

import os
import socket
import subprocess
import sys

taken = socket.socket()
taken.bind(("127.0.0.1", 0))
taken.listen()
port = str(taken.getsockname()[1])
code = subprocess.run(sys.argv[1:], env={**os.environ, "MASTER_PORT": port}).returncode
print("exit status", code)
