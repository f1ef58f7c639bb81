"""The value proofs on hand-made tables: every collective done right, and every way to do it wrong."""

from itertools import pairwise

import numpy as np
import pytest

from schedlang.diagnostics import Severity
from schedlang.ir import legal
from schedlang.ir.build import table_from_rows
from schedlang.ir.layout import Layout
from schedlang.ir.table import Buffer, Collective, Ensures
from schedlang.source import Place
from schedlang.verify import verify
from schedlang.verify.facts import bounds, traffic
from tests.tables import allreduce, ring

SHORT = {"reduce_scatter": "output", "scatter": "output", "allgather": "input", "gather": "input", "alltoall": None,
         "reduce_scatterv": "output", "allgatherv": "input", "alltoallv": None}


def build(name, ranks, steps, chunks=1, op=None, root=None, inplace=True, scratch=(), counts=None, ensures=None,
          counts_read=False):
    """A table from source steps: lists of (kind, from buffer, chunk, rank[, to rank], into buffer, chunk[, count]).

    The i-th source step stands in line i + 1.
    """
    collective = Collective(name, op, root, inplace, None if counts is None else np.array(counts), ensures, counts_read)
    if name == "custom":
        buffers = []
    elif inplace or name == "barrier":
        buffers = [Buffer("data", chunks, role="data")]
    elif name in ("allreduce", "reduce", "broadcast"):
        buffers = [Buffer("input", chunks, role="input"), Buffer("output", chunks, role="output")]
    else:
        only = {"scatter": "input", "gather": "output"}.get(name)
        buffers = [Buffer(b, chunks // ranks if SHORT[name] == b else chunks, role=b, only=root if only == b else None)
                   for b in ("input", "output")]
    buffers += [Buffer(b, size, role=b if b in ("data", "input", "output") else "scratch") for b, size in scratch]
    rows, at = [], {}
    for line, actions in enumerate(steps, 1):
        where = {"location": Place("x.sched", line)}
        used = {}
        for kind, *what in actions:
            if kind in ("copy", "reduce here"):
                source, a, rank, target, b, *count = what
                rows.append({"op": kind.split()[0], "rank": rank, "buffer": target, "chunk": b, "from_buffer": source,
                             "from_chunk": a, "count": count[0] if count else 1, "step": at.get(rank, 0), **where})
                used[rank] = at.get(rank, 0) + 1
                continue
            source, a, rank, peer, target, b, *count = what
            both = {"count": count[0] if count else 1, **where}
            rows.append({"op": "send", "rank": rank, "peer": peer, "buffer": source, "chunk": a,
                         "step": at.get(rank, 0), **both})
            rows.append({"op": {"send": "recv", "reduce": "reduce_recv"}[kind], "rank": peer, "peer": rank,
                         "buffer": target, "chunk": b, "step": at.get(peer, 0), **both})
            used[rank], used[peer] = at.get(rank, 0) + 1, at.get(peer, 0) + 1
        at |= used
    table = table_from_rows(rows, ranks=ranks, collective=collective, buffers=buffers, chunks=chunks)
    assert legal.check(table) == []
    return table


def direct(name, n, m=1, inplace=False, root=0, **kw):
    """Every value goes straight to where it belongs, in one step after the local copies."""
    base = name.removesuffix("v")
    whole = base in ("allreduce", "reduce", "broadcast")
    chunks = m if whole else n * m
    before, after = ("data", "data") if inplace else ("input", "output")
    op = "sum" if "reduce" in base else None
    local, moves = [], []
    for r in range(n):
        for p in range(n):
            if whole:
                pairs = [(c, c) for c in range(m)]
                used = {"allreduce": True, "reduce": p == root, "broadcast": r == root}[base]
            elif base in ("allgather", "gather"):
                pairs = [(r * m + k if inplace else k, r * m + k) for k in range(m)]
                used = base == "allgather" or p == root
            elif base in ("reduce_scatter", "scatter"):
                pairs = [(p * m + k, p * m + k if inplace else k) for k in range(m)]
                used = base == "reduce_scatter" or r == root
            else:
                pairs = [(p * m + k, r * m + k) for k in range(m)]
                used = True
            for a, b in pairs if used else []:
                if r == p:
                    local += [] if inplace else [("copy", before, a, r, after, b)]
                else:
                    moves.append(("reduce" if op else "send", before, a, r, p, after, b))
    rooted = base in ("reduce", "broadcast", "scatter", "gather")
    return build(name, n, [local, moves] if local else [moves], chunks=chunks, op=op, root=root if rooted else None,
                 inplace=inplace, **kw)


def errors(verdict):
    return sorted({d.code for d in verdict.diagnostics if d.severity > Severity.NOTE})


def the(verdict, code):
    found = [d for d in verdict.diagnostics if d.code == code]
    assert len(found) == 1, verdict.diagnostics
    return found[0]


@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("name", ["allreduce", "reduce", "broadcast", "allgather", "gather", "reduce_scatter",
                                  "scatter", "alltoall"])
def test_collectives_done_right(name, inplace, n, m):
    if inplace and name == "alltoall":
        return
    root = n - 1
    table = direct(name, n, m, inplace, root)
    verdict = verify(table)
    assert errors(verdict) == []
    assert [p.state for p in verdict.proofs[:-1]] == ["proved"] * (len(verdict.proofs) - 1)
    shared = name in ("allreduce", "broadcast", "allgather")
    # Each rank starts with its own value and adds the others in rank order, so from three ranks on trees differ.
    assert verdict.facts["agreement"] == (None if not shared else name != "allreduce" or n < 3)
    assert verdict.facts["rounds"] == (0 if n == 1 else 1)


@pytest.mark.parametrize("name", ["allgatherv", "reduce_scatterv", "alltoallv"])
@pytest.mark.parametrize("read", [False, True])
def test_v_collectives_done_right(name, read):
    counts = [[3, 0, 2], [1, 1, 1], [0, 5, 4]] if name == "alltoallv" else [2, 0, 3]
    assert errors(verify(direct(name, 3, counts=counts, counts_read=read))) == []


@pytest.mark.parametrize("through", [(), (2,)])
def test_bytes_of_v_collectives_are_elements(through):
    """Rank 0's part for rank 1 goes straight or through scratch on rank 2."""
    counts = [[0, 7, 0], [0, 0, 2], [0, 0, 0]]
    steps = [[("copy", "input", r, r, "output", r) for r in range(3)]]
    for source, target in pairwise((0, *through, 1)):
        steps.append([("send", "input" if source == 0 else "tmp", 1 if source == 0 else 0, source, target,
                       "output" if target == 1 else "tmp", 0)])
    steps.append([("send", "input", 2, 1, 2, "output", 1)])
    table = build("alltoallv", 3, steps, chunks=3, inplace=False, counts=counts, counts_read=True, scratch=[("tmp", 1)])
    facts = verify(table).facts
    assert (facts["sent_most"], facts["sent_least"]) == ("7 elements", "2 elements" if through else "0 elements")
    assert facts["received_most"] == ("9 elements" if through else "7 elements")
    assert (facts["link_most"], facts["links"]) == ("7 elements", 3 if through else 2)


@pytest.mark.parametrize(("collective", "inplace", "buffers", "n", "sent"), [
    ("allreduce", True, (), "data", "3/4 n"),
    ("allreduce", False, (), "input", "3/4 n"),
    ("allgather", False, (), "output", "3/4 n"),
    ("reduce_scatter", False, (), "input", "3/4 n"),
    ("alltoall", False, (), "input", "3/4 n"),
    ("custom", True, (("tmp", 2), ("input", 6), ("data", 4)), "input", "1/2 n"),
    ("custom", True, (("tmp", 2), ("data", 12)), "data", "1/4 n"),
    ("custom", True, (("tmp", 3), ("other", 12)), "tmp", "n"),
])
def test_bytes_are_measured_by_the_buffer_that_the_element_count_measures(collective, inplace, buffers, n, sent):
    """Rank 0 sends three chunks."""
    name = buffers[-1][0] if buffers else n
    table = build(collective, 4, [[("send", name, 0, 0, 1, name, 0)] for _ in range(3)], chunks=4, inplace=inplace,
                  op="sum" if "reduce" in collective else None, scratch=list(buffers))
    facts = traffic(table)
    assert (facts["n"], facts["sent_most"]) == (f"the bytes of {n}", sent)
    assert Layout(table, 24).count([b.name for b in table.buffers].index(n))[0] == 24


def test_parts_without_elements_need_no_transfer_where_the_source_knows_them():
    counts = [[1, 0], [2, 1]]
    steps = [[("copy", "input", r, r, "output", r) for r in (0, 1)], [("send", "input", 0, 1, 0, "output", 1)]]
    for read, codes in ((True, []), (False, ["SL504"])):
        table = build("alltoallv", 2, steps, chunks=2, inplace=False, counts=counts, counts_read=read)
        assert errors(verify(table)) == codes


def test_the_ring_and_its_facts():
    verdict = verify(ring(8))
    assert verdict.ok and verdict.diagnostics == ()
    facts = verdict.facts
    assert (facts["rounds"], facts["rounds_bound"]) == (14, 3)
    assert facts["sent_most"] == facts["sent_least"] == facts["sent_bound"] == facts["received_most"] == "7/4 n"
    assert (facts["messages"], facts["messages_most"], facts["links"], facts["link_most"]) == (112, 14, 8, "7/4 n")
    assert (facts["least_depth"], facts["peak_scratch"], facts["agreement"], facts["exact"]) == (0, 0, True, True)


def test_large_worlds_are_judged_by_fingerprints_and_say_so():
    from schedlang.verify import dataflow

    limit, dataflow.STATE_LIMIT = dataflow.STATE_LIMIT, 0
    try:
        verdict = verify(ring(6))
    finally:
        dataflow.STATE_LIMIT = limit
    assert verdict.ok and not verdict.facts["exact"]
    assert 0 < verdict.facts["doubt"] < 1e-16
    assert "probability" in verdict.proof("postcondition").detail


@pytest.mark.parametrize("name, ranks, rounds, sent, received", [
    ("allreduce", 6, 3, "5/3", "5/3"), ("broadcast", 8, 3, "1", "1"), ("gather", 4, 2, "1/4", "3/4"),
    ("scatter", 4, 2, "3/4", "1/4"), ("alltoall", 5, 3, "4/5", "4/5"), ("alltoall", 2, 1, "1/2", "1/2"),
    ("barrier", 5, 3, "0", "0"), ("reduce", 1, 0, "0", "0")])
def test_lower_bounds(name, ranks, rounds, sent, received):
    found = bounds(name, ranks)
    assert (found.rounds, str(found.sent), str(found.received)) == (rounds, sent, received)


def test_a_barrier_sends_messages_and_no_bytes():
    steps = [[("send", "data", 0, r, (r + 1) % 2, "data", 0) for r in range(2)]]
    facts = verify(build("barrier", 2, steps)).facts
    assert facts["messages"] == 2 and not [name for name in facts if name.startswith(("sent", "received", "link_"))]


def test_a_contribution_that_never_leaves_its_rank():
    steps = [[("reduce", "data", 0, r, 0, "data", 0)] for r in (1, 2)]
    found = the(verify(build("reduce", 4, steps, op="sum", root=0)), "SL501")
    assert "data[0] on rank 0 ends without chunk 0 of data from rank 3" in found.message
    assert "holds chunk 0 of data from ranks 0 to 2" in found.message
    assert found.location.line == 2
    assert "written last by rank 0, step 1: reduce data[0] from rank 2" in found.notes[0].message
    assert any("never leaves data[0] on rank 3" in n.message for n in found.notes)
    assert found.witness["should"] == [["data", r, 0] for r in range(4)]


def test_a_contribution_that_is_overwritten_on_its_way():
    steps = [[("reduce", "data", 0, 2, 1, "data", 0)], [("send", "data", 0, 0, 1, "data", 0)],
             [("reduce", "data", 0, 1, 0, "data", 0)]]
    verdict = verify(build("reduce", 3, steps, op="sum", root=0))
    found = the(verdict, "SL502")
    assert found.location.line == 3
    assert "chunk 0 of data from rank 0 more than once" in found.message
    lost, over = found.notes[1:]
    assert lost.message == "chunk 0 of data from rank 1 never leaves data[0] on rank 1"
    assert over.message.startswith("there it is overwritten by rank 1") and over.location.line == 2


def test_a_result_that_keeps_its_first_value():
    steps = [[("reduce", "data", 0, 2, 1, "data", 0)], [("send", "data", 0, 0, 2, "data", 0)]]
    found = the(verify(build("reduce", 3, steps, op="sum", root=0)), "SL501")
    assert found.location is None           # nothing writes the result, and this table has no header
    assert [n.message for n in found.notes] == [
        "no operation writes data[0] on rank 0", "chunk 0 of data from rank 1 never leaves data[0] on rank 1"]


def test_a_contribution_that_goes_no_further():
    steps = [[("reduce", "data", 0, 2, 3, "data", 0)], [("reduce", "data", 0, 1, 0, "data", 0)]]
    found = the(verify(build("reduce", 4, steps, op="sum", root=0)), "SL501")
    assert "without chunk 0 of data from ranks 2, 3" in found.message
    note = found.notes[-1]
    assert note.location.line == 1
    assert note.message == "chunk 0 of data from rank 2 comes as far as data[0] on rank 3 (line 1) and goes no further"


def test_a_lacking_value_that_is_passed_on_is_one_finding():
    steps = [[("reduce", "data", 0, 1, 0, "data", 0)], [("send", "data", 0, 0, 1, "data", 0)],
             [("send", "data", 0, 1, 2, "data", 0)]]
    found = the(verify(build("allreduce", 3, steps, op="sum")), "SL501")
    assert (found.location.line, found.count) == (1, 3)


def test_a_contribution_added_twice():
    steps = [[("reduce", "data", 0, r, 0, "data", 0)] for r in (1, 2, 1)]
    found = the(verify(build("reduce", 3, steps, op="max", root=0)), "SL502")
    assert found.location.line == 3
    assert "chunk 0 of data from rank 1 more than once" in found.message
    assert found.witness["twice"] == [["data", 1, 0]]


def test_a_repetition_is_reported_where_it_happens_and_once():
    """Rank 0 adds rank 1's value twice, then everyone gets the result: the fault is in line 2, on all ranks."""
    steps = [[("reduce", "data", 0, 1, 0, "data", 0)], [("reduce", "data", 0, 1, 0, "data", 0)],
             [("send", "data", 0, 0, 1, "data", 0), ("send", "data", 0, 0, 2, "data", 0)]]
    verdict = verify(build("allreduce", 3, steps, op="sum"))
    found = the(verdict, "SL502")
    assert found.location.line == 2 and found.count == 3


def test_a_swapped_exchange():
    good = direct("alltoall", 3)
    rows = np.flatnonzero((good.rank == 1) & (good.op == 0))
    chunk = good.chunk.copy()
    chunk[rows] = chunk[rows[::-1]]
    verdict = verify(good.with_columns(chunk=chunk))
    found = the(verdict, "SL503")
    assert found.count == 2
    assert "should hold chunk 0 of input from rank 1 and holds chunk 2 of input from rank 1" in found.message


def test_a_result_nobody_writes():
    steps = [[("send", "data", k, 0, 1, "data", k)] for k in range(2)]
    found = the(verify(build("broadcast", 3, steps, chunks=2, root=0)), "SL504")
    assert found.count == 2
    assert "data[0] on rank 2 is part of the result and should hold chunk 0 of data from rank 0" in found.message


@pytest.mark.parametrize(("steps", "said"), [
    # the value comes to the rank, into another place
    ([[("send", "input", 0, 1, 0, "output", 2)]],
     ["chunk 0 of input from rank 1 comes as far as output[2] on rank 0 (line 2), and not into output[1]",
      "nearest to it, output[0] is written by rank 0, step 0: copy input[0] into output[0] (line 1)"]),
    # only to another rank
    ([[("send", "input", 0, 1, 2, "output", 1)]],
     ["chunk 0 of input from rank 1 comes as far as output[1] on rank 2 (line 2) and goes no further",
      "nearest to it, output[0] is written by rank 0, step 0: copy input[0] into output[0] (line 1)"]),
    # nowhere
    ([], ["chunk 0 of input from rank 1 never leaves input[0] on rank 1",
          "nearest to it, output[0] is written by rank 0, step 0: copy input[0] into output[0] (line 1)"]),
    # into scratch, where nobody fetches it
    ([[("send", "input", 0, 1, 0, "tmp", 0)]],
     ["chunk 0 of input from rank 1 comes as far as tmp[0] on rank 0 (line 2), and not into output[1]",
      "nearest to it, output[0] is written by rank 0, step 0: copy input[0] into output[0] (line 1)"]),
])
def test_a_result_nobody_writes_says_where_the_value_is(steps, said):
    """Rank 0 lacks the block of rank 1 in an all-gather on three ranks."""
    own = [("copy", "input", 0, 0, "output", 0)]
    found = the(verify(build("allgather", 3, [own, *steps], chunks=3, inplace=False, scratch=[("tmp", 1)])), "SL504")
    assert [n.message for n in found.notes] == said


def test_a_result_nobody_writes_shows_who_writes_it_elsewhere():
    steps = [[("send", "data", 0, 0, 1, "data", 0)], [("send", "data", 0, 0, 3, "data", 0)]]
    found = the(verify(build("broadcast", 4, steps, root=0)), "SL504")
    assert [n.message for n in found.notes] == [
        "chunk 0 of data from rank 0 comes as far as data[0] on rank 3 (line 2) and goes no further",
        "on rank 1 it is written by rank 1, step 0: recv data[0] from rank 0 (line 1)"]
    found = the(verify(build("broadcast", 2, [], root=0, inplace=False)), "SL504")
    assert [n.message for n in found.notes] == [
        "chunk 0 of input from rank 0 is in input[0] on rank 0 from the start, and nothing brings it from there into "
        "output[0]"]


def test_a_forward_that_stores_nothing():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0), dict(op="recv", rank=1, peer=0, buffer=None),
            dict(op="send", rank=1, peer=2, of=1), dict(op="recv", rank=2, peer=1, buffer="data", chunk=0)]
    rows = [row | {"location": Place("x.sched", 7), "step": 0} for row in rows]
    table = table_from_rows(rows, ranks=3, collective=Collective("broadcast", root=0),
                            buffers=[Buffer("data", 1, role="data")])
    found = the(verify(table), "SL504")
    assert found.location.line == 7
    assert "stores nothing" in found.notes[0].message


def test_fused_reductions_pass_on_the_sum():
    """A chain 0 -> 1 -> 2 -> 3 in which each rank adds its own value on the way (rrs), and the last one keeps it."""
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0)]
    for r in (1, 2, 3):
        rows.append(dict(op="reduce_recv", rank=r, peer=r - 1, buffer="data" if r == 3 else None, chunk=0,
                         from_buffer="data", from_chunk=0))
        if r < 3:
            rows.append(dict(op="send", rank=r, peer=r + 1, of=len(rows) - 1))
    buffers = [Buffer("data", 1, role="data")]
    table = table_from_rows(rows, ranks=4, collective=Collective("reduce", "sum", 3), buffers=buffers)
    assert legal.check(table) == []
    assert errors(verify(table)) == []
    broken = table_from_rows([rows[0], {**rows[1], "op": "recv", "from_buffer": None}, *rows[2:]], ranks=4,
                             collective=Collective("reduce", "sum", 3), buffers=buffers)
    assert "without chunk 0 of data from rank 1" in the(verify(broken), "SL501").message


def test_an_operand_elsewhere_makes_a_plain_write():
    rows = [dict(op="send", rank=1, peer=0, buffer="input", chunk=0),
            dict(op="reduce_recv", rank=0, peer=1, buffer="output", chunk=0, from_buffer="input", from_chunk=0)]
    table = table_from_rows(rows, ranks=2, collective=Collective("reduce", "sum", 0, inplace=False),
                            buffers=[Buffer("input", 1, role="input"), Buffer("output", 1, role="output")])
    assert errors(verify(table)) == []


@pytest.mark.parametrize("place, add, words", [
    ("read", False, "tmp[1] on rank 0 is read before anything has written it"),
    ("sum", True, "tmp[0] on rank 1 has no value yet to add to")])
def test_reads_of_what_nothing_has_written(place, add, words):
    steps = [[("copy", "data", 0, 0, "tmp", 0)],
             [("reduce" if add else "send", "tmp", 0 if add else 1, 0, 1, "tmp" if add else "data", 0)]]
    found = the(verify(build("broadcast", 2, steps, op="sum", root=0, scratch=[("tmp", 2)])), "SL403")
    assert words in found.message and found.location.line == 2


@pytest.mark.parametrize(("steps", "said"), [
    ([("copy", "data", 0, 0, "tmp", 2)],
     ["nothing makes use of what is written into tmp[2] there: rank 0, step 0: copy data[0] into tmp[2] (line 1)"]),
    ([("copy", "data", 0, 0, "tmp", 1), ("copy", "data", 0, 0, "tmp", 2), ("send", "tmp", 1, 0, 1, "data", 0)],
     ["nothing makes use of what is written into tmp[2] there: rank 0, step 1: copy data[0] into tmp[2] (line 2)"]),
    ([("copy", "data", 0, 0, "tmp", 1), ("send", "tmp", 1, 0, 1, "data", 0)],
     ["nearest to it, tmp[1] is written by rank 0, step 0: copy data[0] into tmp[1] (line 1)"]),
    ([("send", "data", 0, 0, 1, "tmp", 0)],
     ["on rank 1 it is written by rank 1, step 0: recv tmp[0] from rank 0 (line 1)"]),
    ([], []),
])
def test_a_read_of_what_nothing_writes_shows_what_is_written_instead(steps, said):
    """Rank 0 sends tmp[0], in the last line."""
    lines = [*([step] for step in steps), [("send", "tmp", 0, 0, 1, "data", 0)]]
    found = the(verify(build("broadcast", 2, lines, op="sum", root=0, scratch=[("tmp", 3)])), "SL403")
    assert [n.message for n in found.notes] == ["no operation writes it", *said]


def test_what_comes_from_uninitialised_memory_is_reported_once():
    steps = [[("copy", "tmp", 0, 0, "data", 0)], [("send", "data", 0, 0, 1, "data", 0)]]
    verdict = verify(build("broadcast", 2, steps, root=0, scratch=[("tmp", 1)]))
    assert errors(verdict) == ["SL403"]
    assert verdict.proof("initialisation").state == "failed"
    assert verdict.proof("postcondition").state == "not judged"


def test_a_value_of_the_same_step_is_not_there_yet():
    steps = [[("send", "data", 0, 0, 1, "tmp", 0), ("copy", "tmp", 0, 1, "data", 0)]]
    found = the(verify(build("broadcast", 2, steps, root=0, scratch=[("tmp", 1)])), "SL403")
    assert "a step reads before it writes" in found.notes[0].message


@pytest.mark.parametrize("second, code", [("send", "SL402"), ("reduce", "SL402")])
def test_two_writes_of_one_location_in_one_step(second, code):
    steps = [[("send", "data", 0, 0, 2, "data", 0), (second, "data", 0, 1, 2, "data", 0)]]
    verdict = verify(build("reduce", 3, steps, op="sum", root=2))
    found = the(verdict, code)
    assert "data[0] on rank 2" in found.message and found.location.line == 1 and len(found.notes) == 2
    assert verdict.proof("postcondition").state == "not judged"


def test_overlapping_ranges_in_one_step():
    steps = [[("send", "data", 0, 0, 1, "data", 0, 2), ("send", "data", 1, 0, 1, "data", 1, 2)]]
    found = the(verify(build("broadcast", 2, steps, chunks=3, root=0)), "SL402")
    assert "data[1] on rank 1" in found.message


def test_reductions_in_one_step_add_in_row_order():
    steps = [[("reduce", "data", 0, r, 0, "data", 0) for r in (1, 2, 3)],
             [("send", "data", 0, 0, r, "data", 0) for r in (1, 2, 3)]]
    verdict = verify(build("allreduce", 4, steps, op="sum"))
    assert verdict.ok and verdict.facts["agreement"] is True


def test_agreement_is_about_the_tree_and_not_the_order_of_two():
    """Recursive doubling: both partners add the same two, in either order."""
    steps = [[("reduce", "data", 0, r, r ^ d, "data", 0) for r in range(4)] for d in (1, 2)]
    verdict = verify(build("allreduce", 4, steps, op="sum"))
    assert verdict.ok and verdict.facts["agreement"] is True
    assert [d.code for d in verdict.diagnostics] == ["SL603", "SL603"]


def test_ranks_that_add_in_different_orders():
    table = direct("allreduce", 3, inplace=True)
    verdict = verify(table)
    assert verdict.ok and verdict.facts["agreement"] is False
    found = the(verdict, "SL505")
    assert found.severity == Severity.NOTE and "order" in found.message
    orders = [n.message for n in found.notes]
    assert "(0 + 1) + 2" in orders[0] and "0 + (1" not in orders[0]
    assert any("(0 + 1) + 2" not in m for m in orders)
    strict = verify(table, require_agreement=True)
    assert not strict.ok and the(strict, "SL505").severity == Severity.ERROR


def test_a_swap_needs_a_staging_copy():
    steps = [[("send", "data", 0, r, 1 - r, "data", 0) for r in (0, 1)]] * 2
    verdict = verify(build("custom", 2, steps, ensures=swapped(), inplace=False, scratch=[("data", 1)]))
    notes = [d for d in verdict.diagnostics if d.code == "SL603"]
    assert verdict.ok and [d.count for d in notes] == [2, 2]
    assert "rank 1 reads and writes data[0] in one step" in notes[0].message


def swapped():
    """Each of two ranks ends with its own value again."""
    zero, both = np.zeros(2, np.int64), np.arange(2)
    return Ensures(zero, both, zero, np.arange(3), zero, both, zero)


def test_a_written_input_is_noted():
    steps = [[("reduce", "input", 0, 1, 0, "input", 0)], [("copy", "input", 0, 0, "output", 0)]]
    verdict = verify(build("reduce", 2, steps, op="sum", root=0, inplace=False))
    assert verdict.ok and the(verdict, "SL604").location.line == 1


def test_a_shorter_part_on_the_way_is_a_warning():
    steps = [[("send", "data", 0, 0, 1, "data", 1)], [("send", "data", 1, 1, 2, "data", 0)],
             [("send", "data", 0, 2, 1, "data", 0)], [("send", "data", 1, 0, 1, "data", 1)],
             [("send", "data", 1, 1, 2, "data", 1)]]
    verdict = verify(build("broadcast", 3, steps, chunks=2, root=0))
    found = the(verdict, "SL602")
    assert verdict.ok and found.severity == Severity.WARNING and found.location.line == 1
    assert "data[1] on rank 1" in found.message
    assert errors(verify(build("broadcast", 3, [[*s] for s in steps[:0]] + [
        [("send", "data", k, 0, r, "data", k) for k in range(2) for r in (1, 2)]], chunks=2, root=0))) == []


def test_parts_of_equal_blocks_have_equal_lengths():
    """With one part a block all parts are equal, so moving through any other place is fine."""
    steps = [[("send", "data", 0, 0, 1, "data", 1)], [("send", "data", 1, 1, 0, "data", 1)],
             [("copy", "data", 0, 0, "data", 0)]]
    verdict = verify(build("allgather", 2, steps, chunks=2))
    assert "SL602" not in errors(verdict)


@pytest.mark.parametrize("sources, words", [
    ([("output", 0)], "uninitialised at the start"), ([("input", 1), ("input", 1)], "names one initial value twice")])
def test_ensures_that_cannot_be_meant(sources, words):
    index = {"input": 0, "output": 1}
    one, n = np.zeros(1, np.int64), len(sources)
    ensures = Ensures(one + 1, one, one, np.array([0, n]), np.array([index[b] for b, _ in sources]),
                      np.array([r for _, r in sources]), np.zeros(n, np.int64))
    steps = [[("copy", "input", 0, 0, "output", 0)]]
    buffers = [("input", 1), ("output", 1)]
    verdict = verify(build("custom", 2, steps, op="sum", inplace=False, ensures=ensures, scratch=buffers))
    assert words in the(verdict, "SL205").message


def test_scratch_is_what_a_rank_uses_of_it():
    steps = [[("copy", "data", 0, 0, "tmp", 0)], [("send", "tmp", 0, 0, 1, "more", 1)],
             [("copy", "more", 1, 1, "data", 0)]]
    scratch = [("tmp", 4), ("more", 2)]
    assert verify(build("broadcast", 2, steps, root=0, scratch=scratch)).facts["peak_scratch"] == 1
    steps.append([("copy", "data", 0, 0, "tmp", k) for k in (1, 2)])
    assert verify(build("broadcast", 2, steps, root=0, scratch=scratch)).facts["peak_scratch"] == 3


def test_wrong_values_that_reach_no_result_are_no_finding():
    steps = [[("reduce", "data", 0, 1, 2, "data", 0)], [("reduce", "data", 0, 1, 0, "data", 0)],
             [("send", "data", 0, 0, 2, "data", 0), ("send", "data", 0, 0, 1, "data", 0)]]
    missing = the(verify(build("allreduce", 3, steps, op="sum")), "SL501")
    assert "from rank 2" in missing.message
    steps.insert(0, [("reduce", "data", 0, 2, 0, "data", 0)])
    assert verify(build("allreduce", 3, steps, op="sum")).ok


def test_what_is_not_judged_says_why():
    rows = [dict(op="send", rank=0, peer=1, buffer="data", chunk=0)]
    verdict = verify(allreduce(rows, 2))
    states = {p.name: (p.state, p.detail) for p in verdict.proofs}
    assert states["matching"][0] == "failed"
    assert states["postcondition"] == ("not judged", "transfers do not match")
    assert not verdict.ok


def test_a_barrier_has_its_own_proof():
    steps = [[("send", "data", 0, r, (r + 1) % 2, "data", 0) for r in range(2)]]
    verdict = verify(build("barrier", 2, steps))
    assert verdict.ok and [p.name for p in verdict.proofs][-1] == "barrier"
    everyone = [[("send", "data", 0, r, p, "data", 0) for r in range(3) for p in range(3) if r != p]]
    assert errors(verify(build("barrier", 3, everyone))) == []


def test_a_fault_of_a_large_world_is_explained():
    """A chain of additions as long as the world: histories and trees are followed without recursion."""
    ranks = 10_000
    steps = [[("reduce", "data", 0, r, 0, "data", 0)] for r in range(1, ranks - 1)]
    found = the(verify(build("reduce", ranks, steps, op="sum", root=0)), "SL501")
    assert f"without chunk 0 of data from rank {ranks - 1}:" in found.message
