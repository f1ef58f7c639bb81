"""`schedlang bench native`."""

import csv
import io
from pathlib import Path

import numpy as np
import pytest

import schedlang
from schedlang.backends.cuda import kernel
from schedlang.backends.cuda.traffic import touched
from schedlang.running.dtypes import named

ROOT = Path(__file__).parents[3]
RING = str(ROOT / "examples/allreduce/ring.sched")


@pytest.mark.parametrize("more, against, titles", [
    (["--threads"], "copy", ["ring(channels=1)", "ring(channels=2)"]),
    ([], "all_reduce", [f"ring(channels={k}), {way}" for k in (1, 2) for way in ("shared", "ordinary")]),
])
def test_the_command(call, more, against, titles):
    if not more:
        pytest.importorskip("torch")
    status, out, err = call("bench", "native", RING, "-p", "channels=1,2", "--ranks", "2", "--sizes", "64,4KiB",
                            "--pairs", "3", "--seconds", "0.01", "--format", "csv", *more)
    assert (status, err) == (0, "")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [(row["bytes"], row["what"]) for row in rows] == [(size, title) for size in ("64", "4096")
                                                             for title in titles]
    for row in rows:
        assert (row["bench"], row["collective"], row["dtype"], row["ranks"], row["against"]) == (
            "native", "allreduce", "float32", "2", against)
        assert float(row["seconds"]) > 0 and float(row["against_seconds"]) > 0 and int(row["pairs"]) >= 3


@pytest.mark.parametrize("arguments, code, words", [
    (["schedlang:barrier/dissemination.sched"], "SL806", "no built-in to compare a schedule for barrier with"),
    (["schedlang:barrier/dissemination.sched", "--threads"], "SL806", "a barrier has no size"),
    (["--dtype", "bool", "--threads"], "SL803", "sum is not defined for bool"),
])
def test_what_cannot_be_timed(call, arguments, code, words):
    pytest.importorskip("torch")
    status, _, err = call("bench", "native", "--ranks", "3", *arguments)
    assert status == 2 and code in err and words in err


@pytest.mark.parametrize("name, ranks, elements, wanted", [
    # Each of 4 ranks combines 3 quarters, and takes 3.
    ("allreduce/ring", 4, 400, 4 * (3 * 100 * 3 + 3 * 100 * 2)),
    ("allreduce/all_pairs", 4, 400, 4 * (3 * 100 * 3 + 3 * 100 * 2)),
    # The first three chunks of the ring are one element longer; each goes 3 times round as a sum, and 3 times whole.
    ("allreduce/ring", 4, 403, 3 * (3 + 2) * (3 * 101 + 100)),
    ("broadcast/binomial", 8, 10, 7 * 10 * 2),
    # Exchanges of whole buffers: what is sent is copied first, as it is summed into in the same step.
    ("allreduce/recursive_doubling", 2, 10, 2 * (10 * 2 + 10 * 3)),
])
def test_what_a_schedule_reads_and_writes(name, ranks, elements, wanted):
    table = schedlang.load(str(ROOT / "examples" / f"{name}.sched"), ranks=ranks).table
    normal = kernel(table, dtype=named("float32"), op=None).normal
    short, longer = divmod(elements, table.chunks)
    assert touched(normal, short + (np.arange(table.chunks) < longer).astype(np.int64)) == wanted
