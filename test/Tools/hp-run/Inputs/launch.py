"""Ends ranks of `hp-run train --nproc` from outside, at points of a run, and
checks that everything ends with the right code and message in time.

    launch.py HP_RUN CONFIG CASE...
"""

import array
import os
import re
import resource
import signal
import subprocess
import sys
import time

LIMIT = 60  # seconds for anything to happen
END = 5  # seconds for everything to end after a failure
RANKS = 4


def processes():
    """(pid, parent, environment) of every process that can be read."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as file:
                fields = file.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{name}/environ", "rb") as file:
                environment = file.read().split(b"\0")
        except OSError:
            continue
        if fields[0] != "Z":
            found.append((int(name), int(fields[1]), environment))
    return found


class Run:
    """A launch, with its stdout and stderr in files."""

    def __init__(self, name, *settings, arguments=(), env=None, prepare=None):
        self.name = name
        self.mark = f"HP_TEST_LAUNCH={os.getpid()}.{name}"
        key, value = self.mark.split("=")
        words = [HP_RUN, "train", CONFIG, "--nproc", str(RANKS), *arguments]
        for setting in (
            "training.steps=1000000",
            f"checkpoint.folder={name}",
            f"metrics.jsonl={name}.jsonl",
            *settings,
        ):
            words += ["--set", setting]
        self.out, self.err = open(f"{name}.out", "w+"), open(f"{name}.err", "w+")
        self.process = subprocess.Popen(
            words,
            stdout=self.out,
            stderr=self.err,
            env={**(env or os.environ), key: value},
            preexec_fn=prepare,
        )

    def read(self, what):
        with open(f"{self.name}.{what}") as file:
            return file.read()

    def wait_until(self, condition, running=True):
        start = time.monotonic()
        while not condition():
            assert not running or self.process.poll() is None, self.read("err")
            assert time.monotonic() - start < LIMIT, "nothing happens"
            time.sleep(0.005)

    def members(self):
        """pid of each rank that is up."""
        ranks = {}
        for pid, parent, environment in processes():
            if parent == self.process.pid and self.mark.encode() in environment:
                for entry in environment:
                    if entry.startswith(b"RANK="):
                        ranks[int(entry[5:])] = pid
        return ranks

    def wait_for_ranks(self):
        self.wait_until(lambda: len(self.members()) == RANKS)
        return self.members()

    def port(self, pid):
        with open(f"/proc/{pid}/environ") as file:
            return re.search("MASTER_PORT=([0-9]+)", file.read()).group(1)

    def wait_for_step(self, step):
        self.wait_until(lambda: f"step {step}/" in self.read("out"))

    def finish(self, since, limit=END):
        """Waits for the end; gives the exit code. Nothing may be left."""
        try:
            code = self.process.wait(timeout=LIMIT)
            seconds = time.monotonic() - since
            left = [p for p, _, env in processes() if self.mark.encode() in env]
        finally:
            self.stop()
        assert seconds < limit, f"{self.name}: it took {seconds:.1f} s to end"
        assert not left, f"{self.name}: {left} outlived the launcher"
        return code

    def stop(self):
        self.process.kill()
        self.process.wait()
        for pid, _, environment in processes():
            if self.mark.encode() in environment:
                os.kill(pid, signal.SIGKILL)


def check_free(port):
    """Nobody listens at the port."""
    with open("/proc/net/tcp") as file:
        for line in file.readlines()[1:]:
            fields = line.split()
            assert (
                int(fields[1].split(":")[1], 16) != int(port) or fields[3] != "0A"
            ), f"port {port} is still open"


def show(run, code):
    """The exit code, and what the launcher itself says."""
    print(f"{run.name}: exit status {code}")
    for line in run.read("err").splitlines():
        if not line.startswith("[rank "):
            print("  " + line)


def kill(name, rank, when, number=signal.SIGKILL, *settings):
    run = Run(name, *settings)
    try:
        ranks = run.wait_for_ranks()
        port = run.port(ranks[0])
        when(run)
        since = time.monotonic()
        os.kill(ranks[rank], number)
        code = run.finish(since)
    finally:
        run.stop()
    check_free(port)
    show(run, code)


def case_kill_at_init():
    # The others wait to meet the rank that was stopped before it could.
    kill("init", 3, lambda run: None)
    kill("init of rank 0", 0, lambda run: None)


def case_kill_in_step():
    kill("step", 2, lambda run: run.wait_for_step(2))
    kill("step of rank 0", 0, lambda run: run.wait_for_step(2))
    kill("abort", 1, lambda run: run.wait_for_step(2), signal.SIGABRT)


def case_kill_at_save():
    # Checkpoints follow each other: a rank dies in or beside one.
    kill(
        "save",
        1,
        lambda run: run.wait_until(lambda: os.path.exists("save/step-00000002")),
        signal.SIGKILL,
        "checkpoint.interval=1",
    )
    # A checkpoint is whole or not there.
    for folder in os.listdir("save"):
        if re.fullmatch("step-[0-9]+", folder):
            assert os.path.exists(f"save/{folder}/manifest.json"), folder


def case_stopped_rank():
    # A rank that hangs is found by the others' timeout, and ended.
    run = Run("hang", "comm.train_timeout_seconds=2")
    try:
        ranks = run.wait_for_ranks()
        run.wait_for_step(2)
        since = time.monotonic()
        os.kill(ranks[3], signal.SIGSTOP)
        code = run.finish(since)
    finally:
        run.stop()
    assert "did not come within 2 s" in run.read("err"), run.read("err")
    show(run, code)


def fails(name, *settings, **how):
    """A run that fails by itself, and ends within `END` of its first error."""
    run = Run(name, *settings, **how)
    try:
        run.wait_until(lambda: "error: " in run.read("err"), running=False)
        code = run.finish(time.monotonic())
    finally:
        run.stop()
    show(run, code)
    return run


def case_fail_at_init():
    fails("init", "checkpoint.folder=/proc/none")


def case_fail_in_step():
    # Rows of 16 ids, two for each rank: one of rank 2 in step 3 is broken.
    tokens = array.array("I", [7] * (16 * 2 * RANKS * 5))
    tokens[16 * (2 * RANKS * 2 + 2 * 2 + 1) + 5] = 4000
    with open("bad.bin", "wb") as file:
        tokens.tofile(file)
    run = fails("token", "data.path=bad.bin", "data.layout=rows")
    assert "step 2/" in run.read("out") and "step 3/" not in run.read("out")


def case_fail_at_save():
    # Files can have 100 kB: the first checkpoint cannot be written.
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    fails("full", "checkpoint.interval=2", prepare=limit)
    assert not os.path.exists("full/step-00000002")


def case_threads():
    plain = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    share = max(1, len(os.sched_getaffinity(0)) // RANKS)
    for name, arguments, env, expected in (
        ("share", (), plain, share),
        ("given", ("--threads-per-rank=3",), plain, 3),
        ("variable", (), {**plain, "OMP_NUM_THREADS": "2"}, 2),
        ("both", ("--threads-per-rank", "3"), {**plain, "OMP_NUM_THREADS": "2"}, 3),
    ):
        run = Run(name, arguments=arguments, env=env)
        try:
            found = set()
            for pid in run.wait_for_ranks().values():
                with open(f"/proc/{pid}/environ") as file:
                    found |= set(re.findall("OMP_NUM_THREADS=([0-9]+)", file.read()))
        finally:
            run.stop()
        assert found == {str(expected)}, (name, found, expected)
        print(f"{name}: as expected")


def case_launcher_killed():
    # Nothing outlives a launcher that had no time to say good-bye.
    run = Run("launcher")
    try:
        run.wait_for_ranks()
        run.wait_for_step(1)
        since = time.monotonic()
        run.process.kill()
        run.process.wait()
        while any(run.mark.encode() in env for _, _, env in processes()):
            assert time.monotonic() - since < END, "ranks outlive the launcher"
            time.sleep(0.02)
    finally:
        run.stop()
    print("launcher: killed, and the ranks with it")


def case_signals():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        run = Run(number.name)
        try:
            run.wait_for_step(2)
            since = time.monotonic()
            run.process.send_signal(number)
            # A step and a checkpoint come first.
            code = run.finish(since, LIMIT)
        finally:
            run.stop()
        out = run.read("out")
        done = re.search("interrupted after step ([0-9]+) of 1000000", out)
        assert done, out[-500:]
        assert os.path.exists(f"{number.name}/step-{int(done.group(1)):08}"), out
        assert run.read("err") == "", run.read("err")
        print(f"{number.name}: exit status {code}, with a checkpoint")


def case_early_signal():
    # Before a rank has its handlers, the signal ends it.
    run = Run("early")
    try:
        run.wait_until(lambda: len(run.members()) >= 1)
        since = time.monotonic()
        run.process.send_signal(signal.SIGTERM)
        code = run.finish(since)
    finally:
        run.stop()
    print(f"early: exit status {code}")


def case_nohup():
    # A SIGHUP that is ignored stays so, for the launcher and its ranks.
    run = Run(
        "nohup",
        "training.steps=60",
        prepare=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    )
    try:
        run.wait_for_step(2)
        run.process.send_signal(signal.SIGHUP)
        os.kill(run.members()[1], signal.SIGHUP)
        code = run.process.wait(timeout=LIMIT)
    finally:
        run.stop()
    assert "step 60/60" in run.read("out")
    print(f"nohup: exit status {code}")


def case_many_launches():
    # Launches beside each other take ports of their own.
    runs = [Run(f"beside{i}", "training.steps=2") for i in range(3)]
    try:
        codes = [run.process.wait(timeout=LIMIT) for run in runs]
    finally:
        for run in runs:
            run.stop()
    print("beside each other:", *codes)


HP_RUN, CONFIG, *CASES = sys.argv[1:]
for case in CASES:
    globals()["case_" + case]()
