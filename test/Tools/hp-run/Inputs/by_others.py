"""Starts the ranks of `hp-run train` as another launcher would, the last first.

    by_others.py RANKS HP_RUN ARGUMENT...
"""

import os
import socket
import subprocess
import sys

ranks, *command = sys.argv[1:]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
processes = []
for rank in reversed(range(int(ranks))):
    place = {
        "RANK": str(rank),
        "WORLD_SIZE": ranks,
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": ranks,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    processes.append(subprocess.Popen(command, env={**os.environ, **place}))
try:
    codes = [process.wait(timeout=60) for process in processes]
finally:
    for process in processes:
        process.kill()
print("exit statuses", *codes)
