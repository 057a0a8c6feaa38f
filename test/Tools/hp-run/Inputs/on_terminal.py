"""Runs a command on a terminal of its own and prints what arrives there, with
carriage returns and escapes spelled out.

    on_terminal.py COLUMNS COMMAND [ARGUMENT...]
"""

import fcntl
import os
import pty
import struct
import sys
import termios

columns, *command = sys.argv[1:]
out = b""
child, terminal = pty.fork()
if child == 0:
    size = struct.pack("HHHH", 24, int(columns), 0, 0)
    fcntl.ioctl(sys.stdout.fileno(), termios.TIOCSWINSZ, size)
    os.execv(command[0], command)
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:  # the other end is closed
        break
    if not piece:
        break
    out += piece
_, status = os.waitpid(child, 0)
text = out.decode().replace("\r\n", "\n")  # as terminals end lines
sys.stdout.write(text.replace("\r", "<CR>").replace("\x1b[K", "<EL>"))
sys.exit(os.waitstatus_to_exitcode(status))
