"""Checks the files of `hp-run forward` on the micro model, two rows of 16.

    check_forward.py TOKENS STREAM ROWS

STREAM is of data.layout stream, ROWS of rows and with gradients. Tokens and
labels must be the data's, the loss the mean cross entropy of the logits.
"""

import sys

import numpy
from safetensors.numpy import load_file


def cross_entropy(logits, labels):
    logits = logits.astype(numpy.float64)
    largest = logits.max(-1, keepdims=True)
    logs = largest[..., 0] + numpy.log(numpy.exp(logits - largest).sum(-1))
    valid = labels != -100
    rows, positions = numpy.nonzero(valid)
    return (logs[valid] - logits[rows, positions, labels[valid]]).mean()


def check(path, tokens, labels):
    file = load_file(path)
    assert numpy.array_equal(file["tokens"], tokens)
    assert numpy.array_equal(file["labels"], labels)
    assert file["logits"].shape == (2, 16, 1000)
    assert file["logits"].dtype == numpy.float32
    loss = float(file["loss"])
    want = cross_entropy(file["logits"], labels)
    assert abs(loss - want) < 1e-6 * want, (loss, want)
    return [key for key in file if key.startswith("grad.")]


def main():
    path, stream, rows = sys.argv[1:]
    data = numpy.fromfile(path, numpy.uint32).astype(numpy.int64)
    first = data[:32].reshape(2, 16)
    assert not check(stream, first, data[1:33].reshape(2, 16))
    print("stream as computed from logits and data")
    labels = numpy.full((2, 16), -100)
    labels[:, :-1] = first[:, 1:]
    gradients = check(rows, first, labels)
    print(f"rows as computed from logits and data, {len(gradients)} gradients")


if __name__ == "__main__":
    main()
