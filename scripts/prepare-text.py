#!/usr/bin/env python3
"""Writes the English text that configs/tiny_text.yaml trains on.

It is made of the licence texts that every Debian system has in
/usr/share/common-licenses (package base-files), some 240 kB. A byte is a
token. Links to another licence of the folder are left out, so no text is in
twice.

    scripts/prepare-text.py build/data/licenses.txt
"""

import argparse
import os
import sys


def texts(folder):
    """The contents of the folder's files, each once, in order of their names."""
    seen = set()
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if os.path.islink(path) or not os.path.isfile(path):
            continue
        with open(path, "rb") as file:
            text = file.read()
        if text not in seen:
            seen.add(text)
            yield text


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", help="the text file to write")
    parser.add_argument(
        "--folder", default="/usr/share/common-licenses", help="where the texts are"
    )
    args = parser.parse_args()
    try:
        text = b"\n".join(texts(args.folder))
    except OSError as error:
        sys.exit(f"error: {error}; name a folder of texts with --folder")
    if not text:
        sys.exit(f"error: no texts in '{args.folder}'; name another with --folder")
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    partial = args.output + ".partial"
    with open(partial, "wb") as file:
        file.write(text)
    os.replace(partial, args.output)
    print(f"{args.output}: {len(text):,} bytes from {args.folder}")


if __name__ == "__main__":
    main()
