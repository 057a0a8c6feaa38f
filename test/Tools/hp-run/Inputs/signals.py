"""Interrupts `hp-run train`.

    signals.py HP_RUN CONFIG
"""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time

LIMIT = 60  # seconds for anything to happen


def command(hp_run, config, name, *settings):
    settings = (
        "training.steps=1000000",
        f"checkpoint.folder={name}",
        f"metrics.jsonl={name}.jsonl",
        *settings,
    )
    words = [hp_run, "train", config]
    for setting in settings:
        words += ["--set", setting]
    return words


def wait_until(condition):
    start = time.monotonic()
    while not condition():
        assert time.monotonic() - start < LIMIT, "nothing happens"
        time.sleep(0.02)


def metrics(name):
    if not os.path.exists(name + ".jsonl"):
        return []
    with open(name + ".jsonl") as file:
        return file.read().splitlines()


def check_end(name, status, expected, out):
    assert status == expected, (status, out)
    steps = len(metrics(name))
    assert [json.loads(line)["step"] for line in metrics(name)] == list(
        range(1, steps + 1)
    )
    assert f"interrupted after step {steps} of 1000000" in out, out[-500:]
    assert f"checkpoint {name}/step-{steps:08}" in out, out[-500:]
    assert os.listdir(name) == [f"step-{steps:08}"]
    with open(f"{name}/step-{steps:08}/manifest.json") as file:
        manifest = json.load(file)
    assert manifest["step"] == manifest["updates"] == steps >= 2
    print(f"{name}: exit status {expected}, checkpoint of the last step")


def interrupt(hp_run, config, number, expected):
    name = number.name
    process = subprocess.Popen(
        command(hp_run, config, name), stdout=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: len(metrics(name)) >= 2)
        process.send_signal(number)
        out, _ = process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    check_end(name, process.returncode, expected, out)


def interrupt_terminal(hp_run, config):
    name = "control-C on a terminal"
    words = command(hp_run, config, name)
    child, terminal = pty.fork()
    if child == 0:
        os.execv(words[0], words)
    out, sent = b"", False
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        out += piece
        if not sent and len(metrics(name)) >= 2:
            os.write(terminal, b"\x03")
            sent = True
    _, status = os.waitpid(child, 0)
    # The bar ends before the next line starts.
    assert re.search(rb"left(\^C)?\r\ninterrupted after", out), out[-500:]
    check_end(name, os.waitstatus_to_exitcode(status), 130, out.decode())


def interrupt_twice(hp_run, config):
    # Steps of many seconds: there is time for both signals in the first.
    name = "twice"
    big = ("training.seq_len=512", "training.local_batch_size=32")
    process = subprocess.Popen(
        command(hp_run, config, name, *big), stdout=subprocess.PIPE, text=True
    )
    try:
        while not process.stdout.readline().startswith("data "):
            assert process.poll() is None
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        time.sleep(0.1)
        assert process.poll() is None, "ended at the first signal"
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=LIMIT)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, process.returncode
    assert os.listdir(name) == []
    print(f"{name}: killed by SIGINT, no checkpoint")


def main():
    hp_run, config = sys.argv[1:]
    interrupt(hp_run, config, signal.SIGINT, 130)
    interrupt(hp_run, config, signal.SIGTERM, 143)
    interrupt_terminal(hp_run, config)
    interrupt_twice(hp_run, config)


if __name__ == "__main__":
    main()
