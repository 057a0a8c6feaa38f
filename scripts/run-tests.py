#!/usr/bin/env python3
"""Runs the lit and GoogleTest suites of a build and counts the outcomes.

The last line of output is `N passed, N failed`, with `, N skipped` where
tests were: cases of GoogleTest and files of lit alike. A program that dies,
runs out of time or cannot be discovered is a failure, and so is a run in
which nothing passed. The exit status is 0 only if nothing failed.

    scripts/run-tests.py --build build
    scripts/run-tests.py --build build --filter 'Parser'
"""

import argparse
import importlib.util
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree


def run_lit(args, report):
    """Runs lit, which writes the outcomes to `report`; returns its status."""
    command = [sys.executable, "-c", "from lit.main import main; main()"]
    command += ["-sv", f"-j{args.jobs}", "--xunit-xml-output", report]
    if importlib.util.find_spec("psutil"):
        command += ["--timeout", str(args.timeout)]
    else:
        print("no time limits: Python has no psutil", file=sys.stderr)
    if args.long:
        command += ["--param", "long=1"]
    if args.filter:
        command += ["--filter", args.filter]
    suites = [os.path.join(args.build, suite) for suite in ("test", "unittests")]
    return subprocess.run(command + args.lit_args + suites).returncode


def count(report):
    """Passed, failed and skipped tests of an XML report by lit."""
    passed = failed = skipped = 0
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            # Left out by --filter: neither run nor skipped.
            reason = case.find("skipped").get("message", "")
            skipped += not reason.startswith("Test not selected")
        else:
            passed += 1
    return passed, failed, skipped


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--filter", help="run tests whose name matches this")
    parser.add_argument(
        "--jobs",
        type=int,
        default=len(os.sched_getaffinity(0)),
        help="tests at a time (default: one for each processor)",
    )
    parser.add_argument(
        "--timeout", type=int, default=600, help="seconds for one test"
    )
    parser.add_argument(
        "--long", action="store_true", help="run the long tests as well"
    )
    parser.add_argument(
        "lit_args", nargs="*", metavar="-- LIT-ARGUMENT", help="more for lit"
    )
    args = parser.parse_args()

    if importlib.util.find_spec("lit") is None:
        sys.exit(f"{sys.executable} has no lit; run 'make deps' or set HP_PYTHON")
    report = os.path.join(args.build, "test-results.xml")
    if os.path.exists(report):
        os.remove(report)
    status = run_lit(args, report)
    if os.path.exists(report):
        passed, failed, skipped = count(report)
    else:
        passed, failed, skipped = 0, 0, 0
    # Lit found something that no test stands for, or nothing at all.
    if failed == 0 and (status != 0 or passed == 0):
        failed = 1
        why = f"lit ended with status {status}" if status else "no test passed"
        print(f"error: {why}", file=sys.stderr)
    sys.stderr.flush()
    print(f"{passed} passed, {failed} failed" + f", {skipped} skipped" * (skipped > 0))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
