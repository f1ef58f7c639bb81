"""`schedlang diff`: cases by hand."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import schedlang
from schedlang.cli.main import main
from schedlang.diagnostics import SchedError
from schedlang.diff import diff, operations, promises
from schedlang.expand import expand, load_text
from schedlang.ir.buffers import standard_buffers
from schedlang.ir.build import table_from_rows
from schedlang.ir.json import dumps
from schedlang.ir.table import Collective
from schedlang.verify import verify
from tests.tables import allreduce

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def table(text, ranks=None, **params):
    program = load_text("schedule s(ranks):\n" + "".join(f"    {line}\n" for line in text.strip().split("\n")))
    made, findings = expand(program, "s", ranks=ranks, params=params)
    assert made is not None, findings
    return made


def messages(found):
    return [n.message for n in found.notes]


# ---- levels ---------------------------------------------------------------------------------------------------------

def reduce_then_send(order):
    lines = "\n".join(f"reduce data[0] from {r} to 0" for r in order)
    return table(f"collective allreduce(sum)\n{lines}\nfor r in 1..ranks: send data[0] from 0 to r", len(order) + 1)


def test_the_order_of_additions_makes_other_bits():
    found = diff(reduce_then_send([1, 2, 3]), reduce_then_send([1, 3, 2]))
    assert (found.level, found.results, found.differ, found.parts) == ("state", 4, 4, None)
    assert messages(found) == [
        "A: data[0] on rank 0 is the ranks' ((0 + 1) + 2) + 3; written last by rank 0, step 2: reduce data[0] from "
        "rank 3 (line 5)",
        "B: data[0] on rank 0 is the ranks' ((0 + 1) + 3) + 2; written last by rank 0, step 2: reduce data[0] from "
        "rank 2 (line 5)"]
    assert [n.location.line for n in found.notes] == [5, 5]
    assert found.equivalent and found.ok and found.at_least("state") and not found.at_least("bits")


def test_the_order_of_copies_does_not():
    a = table("collective broadcast(0)\nfor r in 1..ranks: send data[0] from 0 to r", 4)
    b = table("collective broadcast(0)\nfor r in 1..ranks: send data[0] from 0 to ranks - r", 4)
    found = diff(a, b)
    assert (found.level, found.results, found.differ) == ("bits", 4, 0)
    assert messages(found) == ["A: rank 0, step 0: send data[0] to rank 1 (line 3, r=1)",
                               "B: rank 0, step 0: send data[0] to rank 3 (line 3, r=1)"]


def test_wrong_results_are_compared_too():
    right, short = reduce_then_send([1, 2, 3]), table(
        "collective allreduce(sum)\nreduce data[0] from 1 to 0\nreduce data[0] from 3 to 0\n"
        "for r in 1..ranks: send data[0] from 0 to r", 4)
    found = diff(right, short)
    assert (found.level, found.results, found.differ, found.ok) == ("different", 4, 4, False)
    assert messages(found)[0].startswith("A: data[0] on rank 0 holds chunk 0 of data from ranks 0 to 3; written")
    assert messages(found)[1].startswith("B: data[0] on rank 0 holds chunk 0 of data from ranks 0, 1, 3; written")
    same = diff(short, short)
    assert same.level == "operations" and same.equivalent and not same.ok


def test_what_has_no_settled_result_is_not_compared():
    deadlock = table("collective allreduce(sum)\non 0: recv data[0] from 1\non 1: recv data[0] from 0\n"
                     "on 0: send data[0] to 1\non 1: send data[0] to 0", 2)
    assert "SL305" in {d.code for d in verify(deadlock).diagnostics}
    found = diff(reduce_then_send([1]), deadlock)
    assert found.level == "faulty" and found.a.settled and not found.b.settled and not found.equivalent
    unset = table("collective broadcast(0)\nbuffer t[1]\nsend t[0] from 0 to 1 into data[0]", 2)
    assert diff(unset, unset).level == "faulty"


def idle(*collective, ranks=2, **more):
    """A table of a collective that does nothing."""
    about = Collective(*collective, **more)
    return table_from_rows([], ranks=ranks, chunks=ranks, collective=about,
                           buffers=standard_buffers(about, ranks, ranks))


@pytest.mark.parametrize(("a", "b", "said"), [
    (idle("allreduce", "sum"), idle("allreduce", "max"), ["A: the operator sum", "B: the operator max"]),
    (idle("broadcast", root=0), idle("broadcast", root=1), ["A: root 0", "B: root 1"]),
    (idle("allreduce", "sum"), idle("broadcast", root=0), ["A: allreduce", "B: broadcast"]),
    (idle("allreduce", "sum", ranks=3), idle("allreduce", "sum"), ["A: 3 ranks", "B: 2 ranks"]),
    (idle("allgatherv", counts=np.array([1, 2]), inplace=False), idle("allgatherv", counts=np.array([2, 1])),
     ["A: counts of its own", "B: other counts"]),
])
def test_other_promises_are_named(a, b, said):
    found = diff(a, b)
    assert (found.level, messages(found), found.results) == ("different", said, None)


def test_in_place_or_not_is_no_difference():
    out = table("collective allgather\nfor r in 0..ranks:\n    copy input[0] into output[r] on r\n"
                "    for p in 0..ranks:\n        send output[r] from r to p if p != r", 3)
    within = table("collective allgather inplace=true\nfor r in 0..ranks:\n    for p in 0..ranks:\n"
                   "        send data[r] from r to p if p != r", 3)
    found = diff(out, within)
    assert (found.level, found.results) == ("bits", 9) and found.ok
    assert messages(found) == ["A: there is no buffer data", "B: buffer data[3] on the device"]


def test_chunks_are_compared_in_common_parts():
    send = "collective broadcast(0)\nchunks {}\nfor i in 0..chunks: send data[i] from 0 to 1"
    found = diff(table(send.format(4), 2), table(send.format(6), 2))
    assert (found.level, found.parts, found.results) == ("bits", 12, 24)
    swapped = table("collective broadcast(0)\nbuffer t[1]\nchunks 6\nfor i in 0..4: send data[i] from 0 to 1\n"
                    "send data[4] from 0 to 1 into data[5]\nsend data[5] from 0 to 1 into data[4]", 2)
    found = diff(table(send.format(4), 2), swapped)
    assert (found.level, found.differ) == ("different", 4)
    assert messages(found) == [
        "A: part 2 of 3 of data[2] on rank 1 holds chunk 2 of data from rank 0; written last by rank 1, step 2: recv "
        "data[2] from rank 0 (line 4, i=2)",
        "B: part 0 of 2 of data[4] on rank 1 holds chunk 5 of data from rank 0; written last by rank 1, step 5: recv "
        "data[4] from rank 0 (line 7)"]


def test_too_many_common_parts(monkeypatch):
    monkeypatch.setattr(promises, "MOST_PARTS", 100)
    send = "collective broadcast(0)\nchunks {}\nfor i in 0..chunks: send data[i] from 0 to 1"
    with pytest.raises(SchedError, match="13 and 11 chunks have 143 parts in common, too many"):
        diff(table(send.format(13), 2), table(send.format(11), 2))


CUSTOM = """\
collective custom
buffer {buffers}
ensure output[0] on 1 == input[0] on 0{more}
send input[0] from 0 to 1 into output[0]"""


def test_custom_collectives():
    a = table(CUSTOM.format(buffers="input[1], output[1]", more=""), 2)
    assert diff(a, table(CUSTOM.format(buffers="output[1], spare[2], input[1]", more=""), 2)).level == "operations"
    other = diff(a, table(CUSTOM.format(buffers="input[1], output[1]", more="\nensure output[0] on 0 == input[0] on 0")
                          + "\ncopy input[0] into output[0] on 0", 2))
    assert other.level == "different"
    assert messages(other) == ["A: does not say what it ends with: output[0] on rank 0",
                               "B: says what it ends with: output[0] on rank 0"]
    found = diff(a, table(CUSTOM.format(buffers="input[1], output[1]", more="").replace("output", "out"), 2))
    assert (found.level, messages(found)) == ("different", ["A: no buffer out", "B: a buffer out"])
    found = diff(a, table(CUSTOM.format(buffers="input[1], output[2]", more=""), 2))
    assert messages(found) == ["A: output of 1 chunk where input has 1", "B: output of 2 chunks where input has 1"]


def test_finer_custom_collectives():
    def scan(k):
        return table(f"""\
collective custom(sum)
buffer input[{k}], output[{k}]
for i in 0..{k}:
    for r in 0..ranks:
        ensure output[i] on r == sum(input[i] on 0..r + 1)
for i in 0..{k}:
    copy input[i] into output[i] on 0
    for r in 0..ranks - 1:
        copy input[i] into output[i] on r + 1
        reduce output[i] from r to r + 1""", 3)

    found = diff(scan(2), scan(3))
    assert (found.level, found.parts, found.results, found.ok) == ("bits", 6, 18, True)


def test_a_barrier():
    text = "collective barrier\nsend data[0] from 0 to 1\nsend data[0] from 1 to 0"
    a = table(text, 2)
    assert diff(a, a).level == "operations"
    b = table("collective barrier\nstep:\n    send data[0] from 0 to 1\n    send data[0] from 1 to 0", 2)
    assert diff(a, b).level in ("bits", "faulty") and (diff(a, b).level == "bits") == verify(a).ok


# ---- operations -----------------------------------------------------------------------------------------------------


def two(first, second, scratch=("x", "y")):
    """Two streams that do the same, each over its own connection into scratch of its own, on two ranks."""
    rows = []
    for stream in first:
        rows.append({"op": "send", "rank": 0, "stream": stream, "peer": 1, "buffer": "data", "chunk": 0})
    for stream, buffer in zip(second, scratch):
        rows.append({"op": "recv", "rank": 1, "stream": stream, "peer": 0, "buffer": buffer, "chunk": 0})
    return allreduce(rows, 2, scratch=[("x", 1), ("y", 1)])


def test_what_is_alike_to_the_end_is_paired_all_the_same():
    """Nothing tells the streams apart but that they are two."""
    assert operations.difference(two("ab", "ab"), two("ba", "ab")) == ()
    assert operations.difference(two("ab", "ab"), two("cd", "dc", ("y", "x"))) == ()


def test_one_connection_is_not_two():
    rows = [{"op": "send", "rank": 0, "peer": 1, "buffer": "data", "chunk": 0, "step": k, "chan": c}
            for k, c in enumerate("ab")]
    rows += [{"op": "recv", "rank": 1, "peer": 0, "buffer": "data", "chunk": 0, "step": k, "chan": c}
             for k, c in enumerate("ab")]
    apart = allreduce(rows, 2)
    together = allreduce([{**r, "chan": "a"} for r in rows], 2)
    found = operations.difference(apart, together)
    assert [n.message for n in found] == [
        "A: rank 0, stream main, step 0: send data[0] to rank 1, message 1 of 1 over the connection a, which goes with "
        "rank 1, stream main, step 0: recv data[0] from rank 0",
        "B: rank 0, stream main, step 0: send data[0] to rank 1, message 1 of 2 over the connection a, which goes with "
        "rank 1, stream main, step 0: recv data[0] from rank 0"]


def test_events_are_told_by_where_they_are_recorded():
    def events(recorded, waited):
        rows = [{"op": "record", "rank": 0, "stream": "a", "step": k, "event": e} for k, e in enumerate(recorded)]
        return allreduce([*rows, {"op": "wait", "rank": 0, "stream": "b", "event": waited}], 1)

    assert operations.difference(events("pq", "q"), events("xy", "y")) == ()
    found = operations.difference(events("pq", "q"), events("pq", "p"))
    assert [n.message for n in found] == [
        "A: rank 0, stream b, step 0: wait q, which goes with rank 0, stream a, step 1: record q",
        "B: rank 0, stream b, step 0: wait p, which goes with rank 0, stream a, step 0: record p"]


def test_the_order_of_additions_in_a_step_counts():
    def adds(peers, chunks=(0, 0)):
        rows = [{"op": "send", "rank": p, "peer": 0, "buffer": "data", "chunk": c} for p, c in zip((1, 2), chunks)]
        return allreduce([*rows, *({"op": "reduce_recv", "rank": 0, "peer": p, "buffer": "data", "chunk": chunks[p - 1]}
                                   for p in peers)], 3, chunks=2)

    assert operations.difference(adds([1, 2]), adds([2, 1])) != ()
    assert operations.difference(adds([1, 2], (0, 1)), adds([2, 1], (0, 1))) == ()


def test_several_chunks_are_one_message():
    one = table("collective broadcast(0)\nchunks 2\nstep: send data[0:2] from 0 to 1", 2)
    each = table("collective broadcast(0)\nchunks 2\nstep: for i in 0..2: send data[i] from 0 to 1"
                 .replace("step: ", "step:\n    "), 2)
    found = diff(one, each)
    assert found.level == "bits"
    assert messages(found) == ["A: rank 0, step 0: send data[0:2] to rank 1 (line 4)",
                               "B: rank 0, step 0: send data[0] to rank 1 (line 5, i=0); and 1 more in this step"]


def test_a_stream_more_and_a_step_less():
    lone = allreduce([{"op": "copy", "rank": 0, "buffer": "t", "chunk": 0, "from_buffer": "data", "from_chunk": 0,
                       "stream": s} for s in "a"], 1, scratch=[("t", 1)])
    more = allreduce([{"op": "copy", "rank": 0, "buffer": "t", "chunk": k, "from_buffer": "data", "from_chunk": 0,
                       "stream": s} for k, s in enumerate("ab")], 1, scratch=[("t", 2)])
    assert "A: no such stream on that rank" in [n.message for n in operations.difference(lone, more)]
    longer = allreduce([{"op": "copy", "rank": 0, "buffer": "t", "chunk": 0, "from_buffer": "data", "from_chunk": 0,
                         "step": k} for k in range(2)], 1, scratch=[("t", 1)])
    assert [n.message for n in operations.difference(lone, longer)] == [
        "A: rank 0 ends after 1 step", "B: rank 0, step 1: copy data[0] into t[0]"]


def test_lanes_that_look_alike_are_tried(monkeypatch):
    """Rank 1's streams are listed the other way round, and nothing but their messages tells which is which."""
    def crossed(ends):
        rows = [{"op": "send", "rank": 0, "stream": c, "peer": 1, "buffer": "data", "chunk": 0} for c in "ab"]
        return allreduce([*rows, *({"op": "recv", "rank": 1, "stream": s, "chan": c, "peer": 0, "buffer": s, "chunk": 0}
                                   for s, c in zip("xy", ends))], 2, scratch=[("x", 1), ("y", 1)])

    assert operations.difference(crossed("ab"), crossed("ba")) == ()
    monkeypatch.setattr(operations, "TRIES", 0)
    found, = operations.difference(crossed("ab"), crossed("ba"))
    assert found.message == ("all ranks do the same, but no pairing of streams, connections and scratch buffers was "
                             "found in 0 attempts that makes one of the other")


def test_tables_without_rows():
    empty = idle("allreduce", "sum", ranks=1)
    assert diff(empty, empty).level == "operations"
    assert diff(empty, empty).a.path == ()


# ---- the command ----------------------------------------------------------------------------------------------------


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Runs the command line in an empty folder: (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "chain.sched").write_text("""\
schedule chain(ranks, k=1):
    require ranks != 3, "not for three"
    collective broadcast(0)
    chunks k
    for r in 0..ranks - 1:
        for i in 0..k:
            send data[i] from r to r + 1
""")
    (tmp_path / "star.sched").write_text("""\
schedule star(ranks):
    collective broadcast(0)
    for r in 1..ranks:
        send data[0] from 0 to r
""")
    (tmp_path / "short.sched").write_text("""\
schedule short(ranks):
    collective broadcast(0)
    for r in 1..min(ranks, 4):
        send data[0] from 0 to r
""")

    def run(*arguments):
        status = main(["diff", *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


def test_two_schedules(said):
    status, out, err = said("chain.sched", "star.sched", "--ranks", "4")
    assert (status, err) == (0, "")
    assert out.startswith("A  chain.sched::chain  ranks 4, k 1\nB  star.sched::star  ranks 4\n\n"
                          "other operations, but the same results to the bit\n")
    assert re.search(r"\n  rounds +3 +3\n", out)
    assert "      3 x  chain.sched:7  send data[i] from r to r + 1\n" in out


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_result_goes_to_a_file(said, tmp_path, form):
    arguments = ["chain.sched", "star.sched", "--ranks", "4", "--same", "operations", "--format", form]
    status, out, _ = said(*arguments)
    assert said(*arguments, "-o", "found") == (status, "", "") and (tmp_path / "found").read_text() == out
    assert said(*arguments, "-o", "-")[:2] == (status, out)
    before = (tmp_path / "star.sched").read_text()
    status, out, err = said(*arguments, "--output", "./star.sched")
    assert (status, out) == (2, "") and "this file is read here, and would be lost" in err
    assert (tmp_path / "star.sched").read_text() == before


def test_sides_are_named_once(said, tmp_path):
    _, out, _ = said("chain.sched::chain", "star.sched", "--ranks", "4")
    assert out.startswith("A  chain.sched::chain  ranks 4, k 1\nB  star.sched::star  ranks 4\n\n")
    (tmp_path / "a\n\x1b.sched").write_text((tmp_path / "star.sched").read_text())
    _, out, _ = said("a\n\x1b.sched", "star.sched::star", "--ranks", "4")
    assert out.startswith("A  a\u240a\u241b.sched::star  ranks 4\nB  star.sched::star  ranks 4\n\n")


@pytest.mark.parametrize(("same", "status"), [("state", 0), ("bits", 0), ("operations", 1)])
def test_how_much_must_be_the_same(said, same, status):
    assert said("chain.sched", "star.sched", "--ranks", "4", "--same", same)[0] == status


def test_parameters_of_one_side(said):
    status, out, _ = said("chain.sched", "chain.sched", "--ranks", "4", "-a", "k=4", "-b", "k=6", "--format", "json")
    case, = json.loads(out)["cases"]
    assert (status, case["level"], case["parts"]) == (0, "bits", 12)
    assert (case["a"]["values"], case["b"]["values"]) == ({"ranks": 4, "k": 4}, {"ranks": 4, "k": 6})
    _, out, _ = said("chain.sched", "star.sched", "--ranks", "4", "-p", "k=2", "--format", "json")
    case, = json.loads(out)["cases"]
    assert (case["a"]["values"], case["b"]["values"]) == ({"ranks": 4, "k": 2}, {"ranks": 4})
    assert said("chain.sched", "chain.sched", "--ranks", "4", "-p", "k=2", "-b", "k=4")[1].startswith(
        "A  chain.sched::chain  ranks 4, k 2\nB  chain.sched::chain  ranks 4, k 4\n")


def test_many_sizes(said):
    status, out, _ = said("chain.sched", "short.sched", "--ranks", "2..7")
    assert status == 1
    assert "\nother operations, but the same results to the bit: ranks 4\n" in out
    assert "\nthe same operations: ranks 2\n" in out
    assert "\ndifferent: ranks 5, 6\n    skipped ranks 3: " in out
    assert "\nwith ranks 5:\n  note: chain.sched:7:13: A: data[0] on rank 4 holds chunk 0 of data from rank 0;" in out
    assert "B: data[0] on rank 4 holds nothing" in out and "\nB is FAULTY:\n" in out and "\nwith ranks 6:\n" in out
    status, out, _ = said("chain.sched", "short.sched", "--ranks", "2..7", "--format", "json")
    document = json.loads(out)
    assert (status, document["ok"], document["level"]) == (1, False, "different")
    assert [c["level"] for c in document["cases"]] == ["operations", "bits", "different", "different"]
    assert [s["ranks"] for s in document["skipped"]] == [3]
    assert [c["b"]["ok"] for c in document["cases"]] == [True, True, False, False]
    assert document["cases"][0]["a"]["path"][0]["times"] == 1


def test_sizes_that_no_values_make_are_left_out(said, tmp_path):
    (tmp_path / "pairs.sched").write_text(
        "schedule pairs(nodes=2):\n    ranks 2 * nodes\n    collective broadcast(0)\n    verify nodes in 1..4\n\n"
        "    for r in 1..ranks:\n        send data[0] from 0 to r\n")
    pairs = str(tmp_path / "pairs.sched")
    status, out, _ = said(pairs, pairs, "--ranks", "2..7")
    assert status == 0 and "\nthe same operations" in out
    assert all(f"\n    skipped ranks {n}: no values of `pairs` make a world of {n} ranks" in out for n in (3, 5))
    assert "skipped ranks 4" not in out
    status, out, err = said(pairs, pairs, "--ranks", "3,5")
    assert (status, out) == (2, "") and "no values of `pairs` make a world of 5 ranks" in err


def test_values_that_were_chosen_are_told_once(said, tmp_path):
    (tmp_path / "two.sched").write_text(
        "schedule two(n, m):\n    ranks n * m\n    collective broadcast(0)\n    verify n in 1..5, m in 1..5\n\n"
        "    for r in 1..ranks:\n        send data[0] from 0 to r\n")
    status, _, err = said("two.sched", "star.sched", "--ranks", "2..9")
    assert status == 0 and err.count("SL606") == 1
    assert "taken from the `verify` line for each number of ranks: n 1, 2, m 2 to 4\n" in err
    assert "taken from the `verify` line: n = 2, m = 3\n" in said("two.sched", "star.sched", "--ranks", "6")[2]


def test_a_schedule_and_its_table(said, tmp_path):
    (tmp_path / "t.json").write_text(dumps(schedlang.load("chain.sched", ranks=5, k=3).table))
    for pair in (("chain.sched", "t.json"), ("t.json", "chain.sched"), ("t.json", "t.json")):
        status, out, err = said(*pair, "--same", "operations")
        assert (status, err) == (0, "") and "\nthe same operations\n" in out and out.count("ranks 5, k 3") == 2
    assert said("t.json", "chain.sched", "--ranks", "4")[0] == 2
    assert "-b k=2" not in said("t.json", "chain.sched", "-b", "k=2")[2]


def test_faults_are_shown(said, tmp_path):
    (tmp_path / "stuck.sched").write_text("""\
schedule stuck(ranks):
    collective broadcast(0)
    on 1: recv data[0] from 0
""")
    status, out, _ = said("star.sched", "stuck.sched", "--ranks", "2")
    assert status == 1
    assert "not comparable: B has no settled result\n" in out and "error[SL302]" in out and "rounds" not in out
    status, out, _ = said("short.sched", "short.sched", "--ranks", "6")
    assert status == 1 and "the same operations; but A as well as B is wrong\n" in out
    assert "\nA as well as B is FAULTY:\n" in out and out.count("error[SL504]") == 1
    (tmp_path / "other.sched").write_text((tmp_path / "short.sched").read_text().replace("short", "other"))
    out = said("short.sched", "other.sched", "--ranks", "6")[1]
    assert "\nA is FAULTY:\n" in out and "\nB is FAULTY:\n" in out and out.count("error[SL504]") == 2


@pytest.mark.parametrize(("arguments", "text"), [
    (["chain.sched", "star.sched"], "ranks"),
    (["chain.sched", "star.sched", "--ranks", "4", "-p", "z=1"], "-p z: neither A nor B has a parameter z"),
    (["chain.sched", "star.sched", "--ranks", "4", "-b", "k=1"], "k"),
    (["chain.sched", "star.sched", "--ranks", "4", "-a", "k"], "-a k: expected NAME=VALUE"),
    (["chain.sched", "star.sched", "--ranks", "4", "-a", "k=1,2"], "-a k has 2 values"),
    (["chain.sched", "star.sched", "--ranks", "3"], "not for three"),
    (["chain.sched", "star.sched", "--ranks", "3,3"], ""),
    (["chain.sched", "gone.sched", "--ranks", "4"], "gone.sched"),
    (["chain.sched", "star.sched::moon", "--ranks", "4"], "moon"),
    (["chain.sched"], "needs"),
    (["chain.sched", "star.sched", "--ranks", "4", "--same", "all"], "--same"),
])
def test_what_cannot_be_used(said, arguments, text):
    status, out, err = said(*arguments)
    assert (status, out) == (2, "") and text in err and "Traceback" not in err


def test_from_python():
    a = schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=4)
    b = schedlang.load(str(EXAMPLES / "allreduce/ring.sched"), ranks=4, channels=2)
    found = a.diff(b)
    assert found.level == "state" and found.ok and found.a.facts["rounds"] == found.b.facts["rounds"] == 6
