"""``schedlang run``, and what it is made of: inputs, sizes, bandwidths, back ends by name."""

import io
import json
import random
import types
import zipfile
from dataclasses import replace
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from schedlang import load
from schedlang.backend import Backend, find, names
from schedlang.backends.numpy import NumpyBackend
from schedlang.cli.main import main
from schedlang.diagnostics import SchedError
from schedlang.ir import json as table_json
from schedlang.ir.layout import Layout
from schedlang.ir.table import Collective
from schedlang.running import bandwidth, inputs
from schedlang.running.dtypes import DTYPES, named
from tests import tables
from tests.backends.test_calls import direct


@pytest.fixture
def ring(tmp_path):
    path = tmp_path / "ring.json"
    path.write_text(table_json.dumps(tables.ring(4)), encoding="utf-8")
    return str(path)


@pytest.fixture
def wrong(tmp_path):
    """A ring whose result lacks contributions."""
    path = tmp_path / "wrong.json"
    rows = [{"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": 0},
            {"op": "reduce_recv", "rank": 1, "peer": 0, "buffer": "data", "chunk": 0}]
    path.write_text(table_json.dumps(tables.allreduce(rows, 2)), encoding="utf-8")
    return str(path)


ALLTOALLV = """\
schedule v(ranks, counts):
    collective alltoallv(counts)
    step:
        for r in 0..ranks:
            copy input[r] into output[r] on r
            for p in 0..ranks:
                send input[p] from r to p into output[r] if p != r
"""


def test_run_shows_time_and_bandwidths(ring, capsys):
    assert main(["run", ring, "--size", "64KiB", "--check"]) == 0
    text = capsys.readouterr().out
    assert "ring: allreduce(sum) on 4 ranks, float32, 16,384 elements (64 KiB)" in text
    assert "algbw" in text and "GB/s" in text and "check   right: 65,536 elements, largest error" in text


def test_json_figures(ring, capsys):
    options = ["--elements", "100", "--dtype", "bf16", "--op", "max", "--repeat", "3", "--check", "--json"]
    assert main(["run", ring, *options]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [found[k] for k in ("elements", "bytes", "dtype", "op", "ranks")] == [100, 200, "bfloat16", "max", 4]
    assert main(["run", ring, "--elements", "1", "--dtype", "f16", "--accumulate", "f32", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["accumulate"] == "float32"
    assert len(found["seconds"]) == 3 and found["check"]["ok"] and found["check"]["largest_error"] == 0
    assert found["algbw"] == pytest.approx(200 / min(found["seconds"]))
    assert found["busbw"] == pytest.approx(found["algbw"] * 1.5)


def test_one_of_each_is_said_as_one(ring, capsys):
    assert main(["run", ring, "--elements", "1", "--dtype", "int8"]) == 0
    assert "int8, 1 element (1 byte)\n" in capsys.readouterr().out


@pytest.mark.parametrize("options", [["--elements", "9"], ["--elements", "29"], ["--size", "116"], ["--elements", "0"]])
def test_counts_alone_say_the_sizes(tmp_path, options, capsys):
    path = tmp_path / "v.sched"
    path.write_text(ALLTOALLV)
    (tmp_path / "c.csv").write_text("1,2\n0,3\n")
    counts = ["-p", f"counts=@{tmp_path / 'c.csv'}"]
    assert main(["run", str(path), "--ranks", "2", *counts, "--check"]) == 0
    assert "float32, 3 elements (12 bytes) at most in the input of a rank\n" in capsys.readouterr().out
    assert main(["run", str(path), "--ranks", "2", *counts, *options]) == 2
    shown = capsys.readouterr().err
    assert "v.sched:2:5: error[SL802]" in shown and "are what its counts say" in shown and "leave out --size" in shown


NEEDS_ROOM = """\
schedule swap():
    ranks 2
    collective alltoall
    for r in 0..2:
        on r:
            copy input[r] into output[r]
            send input[1 - r] to 1 - r
            recv output[1 - r] from 1 - r
"""


def test_a_run_is_proved_for_the_connections_that_are_meant(tmp_path, capsys):
    path = tmp_path / "swap.sched"
    path.write_text(NEEDS_ROOM)
    for refused in ([], ["--sends", "rendezvous"]):
        assert main(["run", str(path), *refused]) == 1
        said = capsys.readouterr().err
        assert "error[SL305]" in said and "--sends buffered=1" in said and "--no-verify" in said
    for taken in (["--sends", "buffered=1"], ["--sends", "unlimited"], ["--no-verify"]):
        assert main(["run", str(path), "--check", *taken]) == 0
    assert main(["run", str(path), "--sends", "sometimes"]) == 2
    swap = load(path)
    with pytest.raises(SchedError, match=r'sends="buffered=1".*verify=False'):
        swap([np.ones(2), np.ones(2)])
    assert [out.tolist() for out in swap(np.arange(4.0).reshape(2, 2), sends="buffered=1")] == [[0, 2], [1, 3]]
    assert swap.verify(sends="unlimited") is swap.verify(sends="unlimited")


def test_one_rank_has_no_bus_bandwidth(tmp_path, capsys):
    path = tmp_path / "one.json"
    path.write_text(table_json.dumps(tables.ring(1)), encoding="utf-8")
    assert main(["run", str(path), "--check"]) == 0
    assert "busbw   n/a" in capsys.readouterr().out


def test_a_wrong_result_exits_with_1(wrong, capsys):
    assert main(["run", wrong, "--check"]) == 1
    assert "SL501" in capsys.readouterr().err, "refused, unless asked not to prove it"
    assert main(["run", wrong, "--check", "--no-verify", "--dtype", "i32", "--elements", "5"]) == 1
    shown = capsys.readouterr()
    assert "check   WRONG" in shown.out and "SL805" in shown.err and "5 of 10 elements are wrong" in shown.err


@pytest.mark.parametrize("options,code,words", [
    (["--size", "3"], "SL802", "0 and 4 bytes"),
    (["--size", "many"], "SL806", "64MiB"),
    (["--size", "4", "--elements", "1"], "SL806", "one of them"),
    (["--dtype", "float8"], "SL803", "bfloat16"),
    (["--op", "band"], "SL803", "integer"),
    (["--op", "mean"], "SL806", "sum, prod, min"),
    (["--backend", "abacus"], "SL804", "interpret, native, numpy"),
    (["--accumulate", "float16"], "SL803", "float64"),
    (["--input", "nowhere.npz"], "SL801", "cannot read"),
    (["-o", "/nowhere/at/all.npz"], "SL807", "cannot write"),
])
def test_what_cannot_be_used_exits_with_2(ring, options, code, words, capsys):
    assert main(["run", ring, *options]) == 2
    shown = capsys.readouterr().err
    assert code in shown and words in shown and "Traceback" not in shown


def test_results_go_to_a_file_and_come_back(ring, tmp_path, capsys):
    first, second = str(tmp_path / "a.npz"), str(tmp_path / "b.npz")
    np.savez(first, **{f"rank{r}": np.full((3, 2), r, np.int16) for r in range(4)})
    assert main(["run", ring, "--input", first, "--check", "-o", second]) == 0
    with np.load(second) as found:
        assert sorted(found.files) == [f"rank{r}" for r in range(4)]
        assert all((found[f"rank{r}"] == np.full((3, 2), 6, np.int16)).all() for r in range(4))
    np.savez(first, np.arange(8.0).reshape(4, 2))
    assert main(["run", ring, "--input", first, "--dtype", "f32", "-o", second]) == 0
    with np.load(second) as found:
        assert found["rank3"].tolist() == [12, 16] and found["rank3"].dtype == np.float32
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.npz", "b.npz", "ring.json"], "nothing is left behind"


def test_bfloat16_survives_files(ring, tmp_path):
    path = str(tmp_path / "b.npz")
    assert main(["run", ring, "--elements", "8", "--dtype", "bf16", "-o", path]) == 0
    with np.load(path) as found:
        raw = found["rank0"]
    assert main(["run", ring, "--input", path, "--dtype", "bf16", "--check"]) == 0
    assert main(["run", ring, "--input", path]) == 2, "without a dtype the bytes have no meaning"
    assert raw.view(ml_dtypes.bfloat16).shape == (8,)


@pytest.mark.parametrize("arrays,words", [
    ({"rank0": np.ones(2), "rank9": np.ones(2)}, "rank9"),
    ({"rank0": np.ones(2), "weights": np.ones(2)}, "weights"),
    ({"rank0": np.ones(2), "rank1": np.ones(2)}, "rank 2 has no input"),
    ({"x": np.ones((3, 2))}, "inputs for 3"),
    ({"rank_all": np.ones((3, 2))}, "inputs for 3"),
    ({"rank0": np.ones(2), "rank1": np.ones(2), "rank01": np.ones(2)}, "has rank01 and another array"),
    ({"rank0.data": np.ones(2), "rank00.data": np.ones(2)}, "has rank00.data and another array"),
    ({"rank0.data": np.ones(2), "rank0": np.ones(2)}, "has rank0 and another array"),
])
def test_files_that_do_not_fit(ring, tmp_path, arrays, words, capsys):
    path = str(tmp_path / "x.npz")
    np.savez(path, **arrays)
    assert main(["run", ring, "--input", path]) == 2
    assert words in capsys.readouterr().err


def header(shape: str, descr: str = "'<f8'") -> bytes:
    """An .npy file without a body."""
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


def in_a_zip(name: str, content: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def encrypted(archive: bytes) -> bytes:
    at = archive.rfind(b"PK\x01\x02") + 8
    return archive[:at] + b"\x01" + archive[at + 1 :]


@pytest.mark.parametrize("content", [
    b"", b"PK\x03\x04 nonsense", b"hello", header("(2, 3"), header("(2, 99999999999999)"), header(f"(2, {10**30})"),
    header("(-1,)"), header("'x'"), header("(2,)", "'|O'"), header("(2,)", "['a']"), header("(2,)", "{1: 2, b'a': 3}"),
    in_a_zip("rank0.npy", header("(2, 99999999999999)")), in_a_zip("rank0.npy", header(f"(2, {10**30})")),
    in_a_zip("rank0.npy", b"hello"), in_a_zip("read.me", b"hello"), encrypted(in_a_zip("rank0.npy", header("(0,)")))])
@pytest.mark.parametrize("options", [[], ["--dtype", "f32"]])
def test_files_that_are_none(ring, tmp_path, content, options, capsys):
    (tmp_path / "x.npz").write_bytes(content)
    assert main(["run", ring, "--input", str(tmp_path / "x.npz"), *options]) == 2
    assert "SL801" in capsys.readouterr().err


def test_damaged_files_are_refused_or_read(ring, tmp_path, capsys):
    rng = random.Random(1)
    np.savez_compressed(tmp_path / "x.npz", **{f"rank{r}": np.arange(9.0) for r in range(4)})
    np.save(tmp_path / "x.npy", np.arange(12.0).reshape(4, 3))
    for name in ("x.npz", "x.npy"):
        whole = (tmp_path / name).read_bytes()
        for _ in range(60):
            damaged = bytearray(whole)
            for at in rng.choices(range(len(whole)), k=3):
                damaged[at] = rng.randrange(256)
            (tmp_path / name).write_bytes(damaged)
            assert main(["run", ring, "--input", str(tmp_path / name), "--no-verify"]) in (0, 2)


@pytest.mark.parametrize("values,dtype,fits", [
    ([-1.5, 300.0], "i16", True), ([-0.5, 255.9], "u8", True), ([256], "u8", False), ([-1], "u64", False),
    ([np.nan, 1], "i32", False), ([-np.inf], "i64", False), ([2.0**63], "i64", False), ([-2.0**63], "i64", True),
    ([2**64 - 1], "i64", False), ([1e300], "f32", True), ([True], "i8", True), ([], "i8", True)])
def test_conversions_to_integers_keep_values(values, dtype, fits, tmp_path):
    path = str(tmp_path / "x.npy")
    np.save(path, np.array([values, values]))
    if fits:
        with np.errstate(all="ignore"):
            expected = np.array([values, values]).astype(named(dtype).numpy)
        assert np.array_equal(inputs.from_file(path, tables.ring(2), named(dtype)), expected)
    else:
        with pytest.raises(SchedError) as refused:
            inputs.from_file(path, tables.ring(2), named(dtype))
        assert refused.value.diagnostics[0].code == "SL803"


def test_bytes_are_not_taken_for_numbers(ring, tmp_path):
    path = str(tmp_path / "x.npz")
    for odd in (np.zeros((4, 2), "V4"), np.zeros((4, 2), [("a", "f4")]), np.zeros((4, 2), "V2")):
        np.savez(path, odd)
        assert main(["run", ring, "--input", path, "--dtype", "f16" if odd.itemsize == 2 else "f32"]) == 2


def test_arrays_too_large_for_memory(ring, capsys):
    for elements in (1 << 50, (1 << 63) - 1):
        assert main(["run", ring, "--elements", str(elements)]) == 2
        assert "SL802" in capsys.readouterr().err


def test_the_interpreter_runs_too(ring, capsys):
    assert main(["run", ring, "--elements", "9", "--backend", "interpret", "--check"]) == 0


# ---- parts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text,size", [("0", 0), ("4096", 4096), ("64MiB", 64 << 20), ("1.5GB", 1_500_000_000),
                                       ("2k", 2048), ("1 KiB", 1024), ("0.5KiB", 512), ("3B", 3)])
def test_sizes(text, size):
    assert inputs.bytes_of(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.5", "12 parsecs", "1e9", "0x10", "1.0001KiB"])
def test_no_sizes(text):
    with pytest.raises(SchedError):
        inputs.bytes_of(text)


@pytest.mark.parametrize("name", DTYPES)
def test_random_inputs(name):
    table = tables.ring(3)
    first = inputs.random_inputs(table, Layout(table, 2000), named(name), "sum", 7)
    again = inputs.random_inputs(table, Layout(table, 2000), named(name), "sum", 7)
    assert all(a["data"].dtype == DTYPES[name].numpy and len(a["data"]) == 2000 for a in first)
    assert all(a["data"].tobytes() == b["data"].tobytes() for a, b in zip(first, again, strict=True))
    assert first[0]["data"].tobytes() != first[1]["data"].tobytes()
    if DTYPES[name].kind in "iu":
        info = np.iinfo(DTYPES[name].numpy)
        assert first[0]["data"].min() < info.min // 2 + info.max // 4 and first[0]["data"].max() > info.max // 2


def test_sizes_that_fit_are_chosen():
    assert inputs.sized(tables.ring(3), named("f32")).elements == 1 << 18
    assert inputs.sized(direct("allgather", 3).table, named("f32")).elements % 3 == 0
    assert inputs.sized(tables.ring(3), named("f64"), size=80).elements == 10
    with pytest.raises(SchedError) as refused:
        inputs.sized(direct("alltoall", 3).table, named("f32"), elements=10)
    assert refused.value.diagnostics[0].code == "SL802" and "9" in str(refused.value.diagnostics[0].help)


@pytest.mark.parametrize("name,factor", [
    ("allreduce", Fraction(7, 4)), ("allgather", Fraction(7, 8)), ("alltoall", Fraction(7, 8)), ("broadcast", 1),
    ("reduce_scatter", Fraction(7, 8)), ("reduce", 1), ("custom", None)])
def test_bus_bandwidth_factors(name, factor):
    assert bandwidth.bus_factor(name, 8) == factor and bandwidth.bus_factor(name, 1) is None


def test_bytes_are_those_of_the_long_buffer():
    gather = direct("allgather", 4).table
    assert bandwidth.elements(gather, Layout(gather, 100)) == 100
    exchange = direct("alltoallv", counts=np.array([[1, 2], [0, 9]])).table
    assert bandwidth.elements(exchange, Layout(exchange, None)) == 9
    custom = tables.ring(2).with_columns(collective=Collective("barrier"))
    assert bandwidth.elements(custom, Layout(custom, 0)) is None


def test_back_ends_are_found_by_name():
    assert {"interpret", "numpy"} <= set(names())
    assert isinstance(find("numpy"), NumpyBackend) and isinstance(find("interpret"), Backend)


def test_other_peoples_back_ends_come_in_by_entry_points(monkeypatch):
    import schedlang.backend as module

    class Absent(NumpyBackend):
        name = "absent"

        def available(self):
            return "no such hardware"

    home = types.ModuleType("their_back_ends")
    home.good, home.absent, home.bad = NumpyBackend(), Absent(), object()
    monkeypatch.setitem(__import__("sys").modules, "their_back_ends", home)
    points = [types.SimpleNamespace(name=n, value=f"their_back_ends:{n}") for n in ("good", "absent", "bad", "lost")]
    monkeypatch.setattr(module, "entry_points", lambda group: points if group == "schedlang.backends" else [])
    assert find("good") is home.good and "good" in names()
    points.append(types.SimpleNamespace(name="numpy", value="their_back_ends:absent"))
    assert type(find("numpy")) is NumpyBackend, "ours are found without metadata, and not replaced"
    for name, words in (("absent", "no such hardware"), ("bad", "no back end"), ("lost", "cannot be loaded"),
                        ("x", "good")):
        with pytest.raises(SchedError) as refused:
            find(name)
        assert refused.value.diagnostics[0].code == "SL804"
        assert words in refused.value.diagnostics[0].message + str(refused.value.diagnostics[0].help)


SHIFT = """schedule shift(ranks=3):
    collective custom
    buffer input[1], output[1], tmp[1]
    for r in 0..ranks:
        ensure output[0] on (r + 1) % ranks == input[0] on r
        {more}
        send input[0] from r to (r + 1) % ranks into output[0]
"""


@pytest.mark.parametrize("backend", ["numpy", "interpret"])
def test_a_custom_collective_without_an_operator(tmp_path, capsys, backend):
    """Where nothing is combined there is no operator to be undefined or replaced; where something is, it is sum."""
    plain, adds = tmp_path / "plain.sched", tmp_path / "adds.json"
    plain.write_text(SHIFT.format(more=""))
    text = SHIFT.replace("custom", "custom(sum)").format(more="copy input[0] into tmp[0] on r")
    text = text.replace("        send", "        reduce input[0] into tmp[0] on r\n        send")
    (tmp_path / "named.sched").write_text(text)
    table = load(tmp_path / "named.sched").table
    adds.write_text(table_json.dumps(table.with_columns(collective=replace(table.collective, op=None))))
    assert main(["run", str(plain), "--dtype", "bool", "--check", "--backend", backend]) == 0
    assert main(["run", str(adds), "--dtype", "int8", "--check", "--backend", backend]) == 0
    capsys.readouterr()
    assert main(["run", str(adds), "--dtype", "bool", "--backend", backend]) == 2
    assert "SL803" in capsys.readouterr().err


def test_only_what_combines_takes_another_operator(tmp_path, capsys):
    path, target = tmp_path / "plain.sched", tmp_path / "plain.json"
    path.write_text(SHIFT.format(more=""))
    assert main(["compile", str(path), "--target", "json", "-o", str(target)]) == 0
    for place in (path, target):
        assert main(["run", str(place), "--op", "max"]) == 2
        assert "nothing" in capsys.readouterr().err
        with pytest.raises(SchedError, match="nothing"):
            load(place).with_op("max")
    assert main(["verify", str(target), "--op", "max"]) == 2 and "reduces nothing" in capsys.readouterr().out


def test_a_barrier_has_no_size(tmp_path, capsys):
    path = tmp_path / "b.sched"
    path.write_text("schedule b(ranks=1):\n    collective barrier\n")
    for options in ([], ["--size", "0"], ["--elements", "0"]):
        assert main(["run", str(path), "--check", *options]) == 0
    for options in (["--size", "4"], ["--elements", "1"]):
        assert main(["run", str(path), *options]) == 2 and "a barrier moves no elements" in capsys.readouterr().err


def test_inputs_that_do_not_fit_into_memory_are_not_made(call, monkeypatch):
    monkeypatch.setattr("schedlang.memory.available", lambda: 1000)
    ring = "schedlang:allreduce/ring.sched"
    status, _, err = call("run", ring, "--ranks", "4", "--elements", "64")
    assert status == 2 and "SL802" in err and "do not fit into memory" in err
    assert call("run", ring, "--ranks", "4", "--elements", "60")[0] == 0
