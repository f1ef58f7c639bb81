"""The op table of an MSCCL file, and the verdict on it."""

import random
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest

from schedlang.diagnostics import SchedError, Severity
from schedlang.interpret import interpret
from schedlang.ir import json, legal
from schedlang.ir.table import NONE, Transport
from schedlang.msccl import notes, placements, table, told
from schedlang.msccl.xml import loads
from schedlang.ops import Op
from schedlang.verify import Sends, verify
from tests.benchmarks import msccl_files
from tests.comparison import Comparison, compare
from tests.msccl_text import algo, block, copy, gpu, nop, step
from tests.pieces import in_pieces

ROWS = ("op", "stream", "step", "buffer", "chunk", "count", "peer", "chan", "from_buffer", "from_chunk", "of", "event")


def made(text, inplace=True, **more):
    return table(loads(text, "x.xml"), inplace, **more)


def judged(text, inplace=True, sends="default", **more):
    plan = loads(text, "x.xml")
    verdict = verify(table(plan, inplace, **more), sends=Sends.parse(sends))
    return replace(verdict, diagnostics=tuple(told(plan, verdict.diagnostics)))


def codes(verdict):
    return [d.code for d in verdict.diagnostics if d.severity == Severity.ERROR]


def error(text, code, line, inplace=True, **more):
    """The one error of a file, which stands in ``line``."""
    (found,) = [d for d in judged(text, inplace, **more).diagnostics if d.severity == Severity.ERROR]
    assert (found.code, found.location.line) == (code, line)
    return found


def rows_of(found, rank=0):
    """The rows of a rank, in words."""
    texts = []
    for row in np.flatnonzero(found.rank == rank).tolist():
        cell = {name: int(getattr(found, name)[row]) for name in ROWS}
        text = f"{found.streams[cell['stream']]}.{cell['step']} {Op(cell['op']).name.lower()}"
        if cell["event"] != NONE:
            text += f" {found.events[cell['event']]}{list(found.event_indices[cell['event']])}"
        if cell["from_buffer"] != NONE:
            text += f" {found.buffers[cell['from_buffer']].name}[{cell['from_chunk']}] ->"
        if cell["count"]:
            where = f"{found.buffers[cell['buffer']].name}[{cell['chunk']}]" if cell["buffer"] != NONE else "nothing"
            text += f" {where} x{cell['count']}"
        if cell["peer"] != NONE:
            text += f" peer {cell['peer']} chan {found.streams[cell['chan']]}"
        texts.append(text + (f" of {cell['of']}" if cell["of"] != NONE else ""))
    return texts


def pair(steps, others=(), *, coll="custom", chunks=4, i="auto", o="auto", s=4, **more):
    """Two ranks that have ``steps`` and ``others`` in a block each, which send to and receive from each other."""
    return algo([gpu(0, [block(0, steps, send=1, recv=1, chan=2)], s=s, i=i, o=o),
                 gpu(1, [block(0, others, send=0, recv=0, chan=2)], s=s, i=i, o=o)], coll=coll, chunks=chunks, **more)


# Operations

OPERATIONS = [
    ("s", ["tb0.0 send input[1] x2 peer 1 chan 2"]),
    ("r", ["tb0.0 recv output[2] x2 peer 1 chan 2"]),
    ("cpy", ["tb0.0 copy input[1] -> output[2] x2"]),
    ("re", ["tb0.0 reduce input[1] -> output[2] x2"]),
    ("rcs", ["tb0.0 recv output[2] x2 peer 1 chan 2", "tb0.0 send output[2] x2 peer 1 chan 2 of 0"]),
    ("rrc", ["tb0.0 reduce_recv input[1] -> output[2] x2 peer 1 chan 2"]),
    ("rrs", ["tb0.0 reduce_recv input[1] -> nothing x2 peer 1 chan 2", "tb0.0 send nothing x2 peer 1 chan 2 of 0"]),
    ("rrcs", ["tb0.0 reduce_recv input[1] -> output[2] x2 peer 1 chan 2",
              "tb0.0 send output[2] x2 peer 1 chan 2 of 0"]),
]


@pytest.mark.parametrize("kind, rows", OPERATIONS, ids=lambda v: v if isinstance(v, str) else "")
def test_what_each_operation_becomes(kind, rows):
    found = made(pair([step(kind, ("i", 1), ("o", 2), cnt=2)]), inplace=False)
    assert rows_of(found) == rows
    assert not legal.check(found)


def test_places_that_an_operation_does_not_use_are_nothing():
    text = pair([step("s", ("i", 1), ("s", 9999)), step("r", ("s", 9999), ("s", 1)), step("rcs", ("s", -5), ("s", 2))])
    found = made(text)
    assert rows_of(found) == [
        "tb0.0 send data[1] x1 peer 1 chan 2", "tb0.1 recv scratch[1] x1 peer 1 chan 2",
        "tb0.2 recv scratch[2] x1 peer 1 chan 2", "tb0.2 send scratch[2] x1 peer 1 chan 2 of 2"]


def test_the_header():
    found = made(pair([step("s")], name="my_algo", proto="LL128", coll="allreduce", chunks=4, redop="max"))
    assert (found.name, found.ranks, found.chunks, found.transport) == ("my_algo", 2, 4, Transport("LL128", 8))
    assert (found.collective.name, found.collective.op, found.collective.inplace) == ("allreduce", "max", True)
    assert found.params == {"inplace": True} and found.location.line == 1
    assert made(pair([], proto="Simple")).transport == Transport("Simple", 2)
    assert made(pair([], proto="LL")).transport == Transport("LL", 8)
    assert made(pair([], coll="allreduce", redop="nop")).collective.op == "sum"
    assert made(pair([], coll="allgather", redop="sum")).collective.op is None


def test_a_site_is_the_tag_of_its_step():
    found = made(pair([step("s"), step("cpy", ("i", 0), ("s", 0))]))
    location, values = found.origin(1)
    assert location.text.startswith('<step s="1" type="cpy"') and location.text.endswith("/>")
    assert (location.line, values) == (5, {}) and found.sites[1].called == "block 0, step 1"
    assert len(found.sites) == 2 and [s.called for s in found.sites[0:2]] == ["block 0, step 0", "block 0, step 1"]
    assert found.sites[-1].called == "block 0, step 1"
    with pytest.raises(IndexError):
        found.sites[2]


def test_a_file_without_steps():
    found = made(algo([gpu(0, [block(0)]), gpu(1)]))
    assert len(found) == 0 and not legal.check(found)
    assert codes(judged(algo([gpu(0)], coll="custom"))) == []


# Dependencies


def waits(blocks, **more):
    return rows_of(made(algo([gpu(0, blocks, s=4)], coll="custom", chunks=4, **more)))


def test_a_step_waits_for_the_step_it_names():
    rows = waits([block(0, [step("cpy", ("i", 0), ("s", 0), hasdep=1)]),
                  block(1, [step("cpy", ("s", 0), ("s", 1), dep=(0, 0))])])
    assert rows == ["tb0.0 copy data[0] -> scratch[0] x1", "tb0.1 record tb0[0]",
                    "tb1.0 wait tb0[0]", "tb1.1 copy scratch[0] -> scratch[1] x1"]


def test_a_step_waits_for_the_next_one_that_tells():
    rows = waits([block(0, [step("cpy", ("i", 0), ("s", 0)), step("cpy", ("i", 1), ("s", 1), hasdep=1),
                            step("cpy", ("i", 2), ("s", 2), hasdep=1)]),
                  block(1, [step("cpy", ("s", 0), ("s", 3), dep=(0, 0))])])
    assert rows == ["tb0.0 copy data[0] -> scratch[0] x1", "tb0.1 copy data[1] -> scratch[1] x1",
                    "tb0.2 record tb0[1]", "tb0.3 copy data[2] -> scratch[2] x1",
                    "tb1.0 wait tb0[1]", "tb1.1 copy scratch[0] -> scratch[3] x1"]


def test_nops_carry_further_dependencies():
    rows = waits([block(0, [step("cpy", ("i", 0), ("s", 0), hasdep=1)]),
                  block(1, [step("cpy", ("i", 1), ("s", 1), hasdep=1)]),
                  block(2, [nop((0, 0)), step("cpy", ("s", 0), ("s", 3), dep=(1, 0)),
                            step("cpy", ("s", 3), ("s", 2))])])
    assert rows[4:] == ["tb2.0 wait tb0[0]", "tb2.1 wait tb1[0]", "tb2.2 copy scratch[0] -> scratch[3] x1",
                        "tb2.3 copy scratch[3] -> scratch[2] x1"]


def test_a_nop_tells_nothing_but_may_be_what_is_named():
    blocks = [block(0, [step("cpy", ("i", 0), ("s", 0)), nop((-1, -1), hasdep=1),
                        step("cpy", ("i", 1), ("s", 1), hasdep=1)]),
              block(1, [step("cpy", ("s", 0), ("s", 3), dep=(0, 0)), step("cpy", ("s", 1), ("s", 2), dep=(0, 1))])]
    rows = waits(blocks)
    assert rows[2:] == ["tb0.2 record tb0[2]", "tb1.0 wait tb0[2]", "tb1.1 copy scratch[0] -> scratch[3] x1",
                        "tb1.2 wait tb0[2]", "tb1.3 copy scratch[1] -> scratch[2] x1"]


def test_events_of_ranks_are_apart():
    """The same block and step on every rank, waited for on one of them only."""
    def rank(id, dep):
        return gpu(id, [block(0, [step("cpy", ("i", 0), ("s", 0), hasdep=1)]),
                        block(1, [step("cpy", ("s", 0), ("s", 1), dep=dep)])], s=4)
    found = made(algo([rank(0, None), rank(1, (0, 0))], coll="custom", chunks=4))
    assert rows_of(found, 0) == ["tb0.0 copy data[0] -> scratch[0] x1", "tb1.0 copy scratch[0] -> scratch[1] x1"]
    assert rows_of(found, 1)[1:3] == ["tb0.1 record tb0[0]", "tb1.0 wait tb0[0]"]


# Collectives

PLACES = [      # coll, in place, where i[k] and o[k] of rank 1 are, with two ranks and four chunks
    ("allreduce", True, "data[1]", "data[2]"), ("allreduce", False, "input[1]", "output[2]"),
    ("reduce", True, "data[1]", "data[2]"), ("broadcast", False, "input[1]", "output[2]"),
    ("allgather", True, "data[3]", "data[2]"), ("allgather", False, "input[1]", "output[2]"),
    ("reduce_scatter", True, "data[1]", "data[4]"), ("reducescatter", True, "data[1]", "data[4]"),
    ("reduce_scatter", False, "input[1]", "output[2]"), ("alltoall", True, "data[1]", "data[2]"),
    ("alltoall", False, "input[1]", "output[2]"), ("custom", True, "data[1]", "data[2]"),
    ("custom", False, "input[1]", "output[2]"), ("gather", True, "data[3]", "data[2]"),
    ("scatter", True, "data[1]", "data[4]"),
]


@pytest.mark.parametrize("coll, inplace, source, target", PLACES)
def test_where_buffers_lie(coll, inplace, source, target):
    target_offset = 0 if coll in ("reduce_scatter", "reducescatter", "scatter") else 2
    text = pair([], [step("cpy", ("i", 1), ("o", target_offset))], coll=coll, chunks=4)
    (row,) = rows_of(made(text, inplace), 1)
    if target_offset == 0:
        target = {"data[4]": "data[2]", "output[2]": "output[0]"}[target]
    assert row == f"tb0.0 copy {source} -> {target} x1"


def run(coll, inplace, ranks, transfers, *, chunks=None, proto="LL", **more):
    """A file in which rank a sends to rank b, (a, b, from, to) for each, over a connection of its own, and what stays
    is copied, (a, a, from, to)."""
    blocks = {r: [] for r in range(ranks)}
    for chan, (a, b, source, target) in enumerate(transfers):
        if a == b:
            blocks[a].append(block(len(blocks[a]), [step("cpy", source, target)]))
            continue
        blocks[a].append(block(len(blocks[a]), [step("s", source, target)], send=b, chan=chan))
        blocks[b].append(block(len(blocks[b]), [step("r", source, target)], recv=a, chan=chan))
    return algo([gpu(r, blocks[r], **more) for r in range(ranks)], coll=coll, chunks=chunks or ranks, proto=proto,
                inplace=int(inplace), outofplace=int(not inplace))


RIGHT = {
    ("allgather", True): [(a, b, ("i", 0), ("o", a)) for a in range(3) for b in range(3) if a != b],
    ("allgather", False): [(a, b, ("i", 0), ("o", a)) for a in range(3) for b in range(3)],
    ("alltoall", False): [(a, b, ("i", b), ("o", a)) for a in range(3) for b in range(3)],
    ("broadcast", True): [(0, b, ("i", c), ("o", c)) for b in (1, 2) for c in range(3)],
    ("broadcast", False): [(0, b, ("i", c), ("o", c)) for b in range(3) for c in range(3)],
    ("gather", True): [(a, 0, ("i", 0), ("o", a)) for a in (1, 2)],
    ("gather", False): [(a, 0, ("i", 0), ("o", a)) for a in range(3)],
    ("scatter", True): [(0, b, ("i", b), ("o", 0)) for b in (1, 2)],
    ("scatter", False): [(0, b, ("i", b), ("o", 0)) for b in range(3)],
}


@pytest.mark.parametrize("coll, inplace", RIGHT)
def test_collectives_that_move_values(coll, inplace):
    text = run(coll, inplace, 3, RIGHT[coll, inplace])
    verdict = judged(text, inplace)
    assert verdict.ok and verdict.proof("postcondition").state == "proved", verdict.diagnostics
    assert compare(made(text, inplace)) == Comparison("clean")
    lacking = judged(run(coll, inplace, 3, RIGHT[coll, inplace][:-1]), inplace)
    assert set(codes(lacking)) & {"SL501", "SL504"}, lacking.diagnostics


@pytest.mark.parametrize("coll, inplace", [(c, p) for c in ("allreduce", "reduce", "reduce_scatter", "reducescatter")
                                           for p in (True, False)])
def test_collectives_that_reduce(coll, inplace):
    """All others send their part to the rank that has the sum; of an all-reduce it sends that back."""
    ranks, blocks = 2, []
    for r in range(ranks):
        mine, other = r, 1 - r
        has = coll != "reduce" or r == 0
        target = ("o", 0) if coll.startswith("reduce") and coll != "reduce" else ("o", mine)
        steps = [step("s", ("i", other))] if coll != "reduce" or r == 1 else []
        if has:
            steps.append(step("rrc", ("i", mine), target))
        if coll == "allreduce":
            steps += [step("s", target), step("r", dst=("o", other))]
        if coll == "reduce":
            steps = [step("s" if r else "rrc", ("i", c), ("o", c)) for c in (0, 1)]
        blocks.append(gpu(r, [block(0, steps, send=other, recv=other)]))
    text = algo(blocks, coll=coll, chunks=2, inplace=int(inplace), outofplace=int(not inplace))
    verdict = judged(text, inplace)
    assert verdict.ok and verdict.proof("postcondition").state == "proved", verdict.diagnostics
    assert compare(made(text, inplace)) == Comparison("clean")
    wrong = judged(text.replace('"rrc"', '"r"'), inplace)
    assert "SL501" in codes(wrong)


def exchange(ranks, wrong=False):
    """An all-to-all in place: what leaves is copied first."""
    gpus = []
    for r in range(ranks):
        blocks = []
        for k, p in enumerate(q for q in range(ranks) if q != r):
            blocks.append(block(k, [step("cpy", ("i", p), ("s", p)), step("s", ("s", p)),
                                    step("r", dst=("o", r if wrong else p))], send=p, recv=p))
        gpus.append(gpu(r, blocks, s=ranks))
    return algo(gpus, coll="alltoall", chunks=ranks)


def test_an_all_to_all_in_place():
    found = made(exchange(3))
    assert found.collective.name == "custom" and found.collective.ensures is not None
    assert judged(exchange(3)).ok and compare(found) == Comparison("clean")
    assert set(codes(judged(exchange(2, wrong=True)))) & {"SL501", "SL503"}
    assert verify(json.loads(json.dumps(found), "x.json")).ok


def test_an_all_to_all_in_place_that_is_too_large(monkeypatch):
    monkeypatch.setattr(import_module("schedlang.msccl.table"), "MOST_ENSURED", 9)
    assert len(made(exchange(3)))
    with pytest.raises(SchedError) as caught:
        made(exchange(4))
    assert caught.value.diagnostics[0].code == "SL208"


@pytest.mark.parametrize("coll", ["custom", "send", "recv", "alltoallv"])
def test_of_unknown_collectives_only_the_way_is_judged(coll):
    text = pair([step("s", ("i", 0))], [step("r", dst=("o", 3))], coll=coll, outofplace=1)
    for inplace in (True, False):
        verdict = judged(text, inplace)
        assert verdict.ok and verdict.table.collective.ensures is None
        assert [b.chunks for b in verdict.table.buffers][:-1] == ([4] if inplace else [4, 4])
    unwritten = pair([step("s", ("o", 0))], [step("r", dst=("o", 3))], coll=coll, outofplace=1)
    assert codes(judged(unwritten, False)) == ["SL403"] and judged(unwritten, True).ok
    (note,) = notes(loads(text, "x.xml"))
    assert note.code == "SL615" and f'coll="{coll}"' in note.message and note.location.line == 1


def test_chunks_that_do_not_fit_the_collective():
    for coll, inplace in (("allgather", True), ("alltoall", True), ("alltoall", False), ("reduce_scatter", False)):
        with pytest.raises(SchedError) as caught:
            made(pair([], coll=coll, chunks=3), inplace)
        (found,) = caught.value.diagnostics
        assert found.code == "SL108" and found.location.line == 1 and 'nchunksperloop="3"' in found.message


def test_chunks_of_gather_and_scatter_are_of_the_buffer_that_the_file_declares():
    for coll, long in (("gather", "o"), ("scatter", "i")):
        short = "i" if long == "o" else "o"
        for declared, chunks in (({long: 6, short: 3}, 6), ({long: 0, short: 3}, 6), ({long: 3, short: 0}, None)):
            if chunks is None:
                with pytest.raises(SchedError):
                    made(pair([], coll=coll, chunks=3, **declared), False)
            else:
                assert made(pair([], coll=coll, chunks=3, **declared), False).chunks == chunks


def test_the_root_is_the_callers():
    text = pair([step("s", ("i", c)) for c in range(4)], [step("r", dst=("o", c)) for c in range(4)], coll="broadcast")
    plan = loads(text, "x.xml")
    assert verify(table(plan, True)).ok and table(plan, True).params == {"inplace": True, "root": 0}
    assert codes(judged(text, root=1)) and made(text, root=1).collective.root == 1
    (note,) = notes(plan)
    assert note.code == "SL606" and "rank 0" in note.message
    assert notes(plan, root=1) == ()
    for asked, coll, says in ((2, "broadcast", "rank 2"), (-1, "broadcast", "rank -1"), (0, "allreduce", "no root")):
        with pytest.raises(SchedError) as caught:
            made(pair([], coll=coll), root=asked)
        assert caught.value.diagnostics[0].code == "SL206" and says in caught.value.diagnostics[0].message


# Placements and dialects


@pytest.mark.parametrize("inplace, outofplace, ways", [
    (1, 1, (True, False)), (1, 0, (True,)), (0, 1, (False,)), (1, None, (True,)), (0, None, (False,))])
def test_the_ways_in_which_a_file_may_be_used(inplace, outofplace, ways):
    assert placements(loads(pair([], inplace=inplace, outofplace=outofplace), "x.xml")) == ways


def test_a_file_for_no_use():
    with pytest.raises(SchedError) as caught:
        placements(loads(pair([], inplace=0, outofplace=0), "x.xml"))
    assert caught.value.diagnostics[0].code == "SL108"


def old(copies=((0, 0), (1, 1)), **more):
    """A file of the oldest dialect: copies from input to output, which are there before blocks begin."""
    return algo([gpu(r, [*(copy(r, r) for _ in range(1)), *(copy(i, o, **more) for i, o in copies),
                         block(0, [step("s", ("o", r)), step("r", dst=("s", 0))], send=1 - r, recv=1 - r),
                         block(1, [step("cpy", ("o", r), ("s", 1))]), block(2)], s=2) for r in (0, 1)],
                coll="custom", chunks=4, inplace=0, outofplace=None, redop="sum")


def test_copies_come_before_everything_on_their_rank():
    found = made(old(), False)
    assert rows_of(found, 1) == [
        "copies.0 copy input[1] -> output[1] x1", "copies.1 copy input[0] -> output[0] x1",
        "copies.2 copy input[1] -> output[1] x1", "copies.3 record copies[0]",
        "tb0.0 wait copies[0]", "tb0.1 send output[1] x1 peer 0 chan 0", "tb0.2 recv scratch[0] x1 peer 0 chan 0",
        "tb1.0 wait copies[0]", "tb1.1 copy output[1] -> scratch[1] x1"]
    assert not legal.check(found) and codes(judged(old(), False)) == []
    assert compare(found) == Comparison("clean")
    location, _ = found.origin(0)
    assert location.text.startswith("<copy") and found.sites[int(found.site[0])].called == "copies"
    assert found.collective.op == "sum"


def test_copies_may_have_several_chunks_and_be_on_one_rank_only():
    text = algo([gpu(0, [copy(0, 1, cnt=3), block(0, [nop((-1, -1)), step("cpy", ("o", 1), ("s", 0))])], s=1),
                 gpu(1, [block(0, [step("cpy", ("i", 1), ("s", 0))])], s=1)], coll="custom", chunks=4, outofplace=1)
    found = made(text, False)
    assert rows_of(found, 0)[:3] == ["copies.0 copy input[0] -> output[1] x3", "copies.1 record copies[0]",
                                     "tb0.0 wait copies[0]"]
    assert rows_of(found, 1) == ["tb0.0 copy input[1] -> scratch[0] x1"]


# Faults


def test_a_wait_for_what_nothing_tells():
    def rank(first, second):
        waiting = block(1, [step("cpy", ("i", 1), ("s", 1), dep=(0, 0))])
        return algo([gpu(0, [block(0, [first, *second]), waiting], s=4)], coll="custom", chunks=4)

    found = error(rank(step("cpy", ("i", 0), ("s", 0)), []), "SL306", 7)
    assert found.message == ("this step waits for ever: block 0 of rank 0 never tells that its step 0 is done, since "
                             'neither that step nor a later one has hasdep="1"')
    assert found.help == 'set hasdep="1" on step 0 of block 0'
    assert [(n.message, n.location.line) for n in found.notes] == [('step 0 of block 0 of rank 0, with hasdep="0"', 4)]
    found = error(rank(nop((-1, -1), hasdep=1), [step("cpy", ("i", 0), ("s", 0)), step("cpy", ("i", 2), ("s", 2))]),
                  "SL306", 9)
    assert "which of a nop does not count" in found.message and found.notes[0].message.endswith(", a nop")
    assert found.help == 'set hasdep="1" on step 1 of block 0, or on a later one'
    found = error(rank(nop((-1, -1), hasdep=1), []), "SL306", 7)
    assert found.help == ('let block 0 of rank 0 do something at or after step 0, with hasdep="1", or wait for an '
                          "earlier step")


def test_a_block_without_a_step_is_waited_for_as_for_its_first():
    """depid with deps="-1": the flags of this turn begin at its step 0, and all of the turn before are smaller."""
    def rank(told, deps):
        first = [step("cpy", ("i", 0), ("s", 0)), step("cpy", ("s", 0), ("s", 1), hasdep=told)]
        return algo([gpu(0, [block(0, first), block(1, [step("cpy", ("s", 1), ("s", 2), dep=(0, deps))])], s=4)],
                    coll="custom", chunks=4)

    assert codes(judged(rank(1, -1))) == codes(judged(rank(1, 0))) == []
    assert error(rank(0, -1), "SL306", 8).notes == error(rank(0, 0), "SL306", 8).notes


def test_a_wait_in_a_circle():
    found = error(algo([gpu(0, [block(0, [step("cpy", ("i", 0), ("s", 0), dep=(1, 0), hasdep=1)]),
                                block(1, [step("cpy", ("i", 1), ("s", 1), dep=(0, 0), hasdep=1)])], s=4)],
                       coll="custom", chunks=4), "SL305", 4)
    assert "rank 0, block 0, step 0: wait tb1[0] (line 4)" in found.message and "2 blocks never come" in found.message
    assert "depid and deps" in found.help


def test_messages_without_partner_name_their_channel():
    text = algo([gpu(0, [block(0, [step("s"), step("s")], send=1, chan=3)]),
                 gpu(1, [block(0, [step("r")], recv=0, chan=3)])], coll="custom", outofplace=1)
    found = error(text, "SL301", 5)
    assert "rank 0 sends 2 messages to rank 1 on channel 3, which receives 1" in found.message
    assert "rank 0, block 0, step 1" in found.message
    (note,) = found.notes
    assert (note.message, note.location.line) == ("the other end of the connection: block 0 of rank 1", 9)
    found = error(text.replace('type="r"', 'type="nop"').replace('type="s"', 'type="nop"', 1), "SL301", 5)
    assert found.help == "let rank 1 receive it in that block, or drop this step"
    found = error(algo([gpu(0, [block(0, [step("s")], send=1, chan=3)]), gpu(1)], coll="custom"), "SL301", 4)
    assert found.help == ('rank 1 has no block with recv="0": give it one on channel 3, or let this block have another '
                          "send")
    found = error(algo([gpu(0), gpu(1, [block(0, [step("r")], recv=0)])], coll="custom"), "SL302", 5)
    assert found.help == ('rank 0 has no block with send="1": give it one on channel 0, or let this block have another '
                          "recv")


def test_ends_on_two_channels():
    text = algo([gpu(0, [block(0, [step("s")], send=1, chan=3)]), gpu(1, [block(0, [step("r")], recv=0, chan=1)])],
                coll="custom", outofplace=1)
    sent, taken = judged(text).diagnostics
    assert (sent.code, sent.location.line, taken.code, taken.location.line) == ("SL301", 4, "SL302", 9)
    assert [n.message for n in sent.notes] == [
        "without partner, too, on channel 1: rank 1, block 0, step 0: recv data[0] from rank 0 (line 9)",
        "on channel 1: block 0 of rank 1"]
    assert sent.help == "a message is received on the channel that it is sent on: let the two blocks have the same chan"
    assert told(loads(text, "x.xml"), [sent]) == [sent]     # it is of another text


def test_counts_that_differ():
    text = pair([step("s", ("i", 0), cnt=2)], [step("r", dst=("i", 0), cnt=1)])
    assert "cnt" in error(text, "SL303", 4).help


def test_a_race_names_blocks():
    blocks = [block(0, [step("cpy", ("i", 0), ("s", 0))]), block(1, [step("cpy", ("s", 0), ("i", 1))])]
    found = error(algo([gpu(0, blocks, s=4)], coll="custom", chunks=4), "SL401", 7)
    assert "in block 0 (line 4) writes it" in found.message and "in block 1 (line 7) reads it" in found.message
    assert "hasdep" in found.help


def test_a_step_that_reads_what_it_writes():
    """Of one chunk, or of the same chunks, there is nothing to say: the one is read where it is written."""
    def shifted(kind, source, target, cnt=2):
        return pair([step(kind, ("i", source), ("i", target), cnt=cnt)], [])

    for kind in ("cpy", "re", "rrc", "rrcs"):
        with pytest.raises(SchedError) as caught:
            made(shifted(kind, 0, 1))
        (found,) = caught.value.diagnostics
        assert (found.code, found.location.line) == ("SL401", 4)
        assert "rank 0, block 0, step 0 reads data[0:2] and writes data[1:3] at once" in found.message
        assert len(made(shifted(kind, 0, 2))) and len(made(shifted(kind, 1, 1))) and len(made(shifted(kind, 0, 1, 1)))
    assert len(made(shifted("rrs", 0, 1))) and len(made(shifted("s", 0, 1)))
    assert "SL603" not in [d.code for d in judged(pair([step("re", ("i", 1), ("i", 1))], [])).diagnostics]
    with pytest.raises(SchedError) as caught:
        made(pair([step("cpy", ("i", k % 2), ("i", 1 - k % 2), cnt=2) for k in range(14)], []))
    assert [d.count for d in caught.value.diagnostics] == [1] * 9 + [5]


def test_a_read_of_what_nothing_wrote():
    found = error(pair([step("s", ("s", 0))], [step("r", dst=("i", 0))]), "SL403", 4)
    assert "depid" in found.help


def test_chunks_have_one_length_and_the_input_is_the_callers():
    """A value goes through the place of another chunk on its way; and a sum is made in the input."""
    steps = [("s", ("i", 0), ("o", 0)), ("r", ("i", 0), ("o", 1)), ("cpy", ("o", 1), ("o", 0)),
             ("re", ("i", 0), ("o", 0)), ("s", ("i", 1), ("o", 0)), ("rrc", ("i", 1), ("i", 1)),
             ("cpy", ("i", 1), ("o", 1))]
    text = algo([gpu(r, [block(0, [step(*s) for s in steps], send=1 - r, recv=1 - r)]) for r in (0, 1)], chunks=2,
                inplace=0, outofplace=1)
    plain = [d.code for d in verify(replace(made(text, False), told=None)).diagnostics]
    assert plain.count("SL602") == 2 and plain.count("SL604") == 1
    verdict = judged(text, False)
    assert verdict.ok and [d.code for d in verdict.diagnostics] == ["SL604"]
    assert "send buffer" in verdict.diagnostics[0].message and verdict.diagnostics[0].count == 2
    assert compare(made(text, False)) == Comparison("clean")


# Depth


def fused_ring(ranks=3, cnt=1, proto="LL"):
    """Every rank sends, then passes on what comes, then receives."""
    def steps():
        return [step("s", ("i", 0), cnt=cnt), *(step(kind, dst=("s", 0), cnt=cnt) for kind in ("rcs", "r"))]

    return algo([gpu(r, [block(0, steps(), send=(r + 1) % ranks, recv=(r - 1) % ranks)], s=cnt) for r in range(ranks)],
                coll="custom", chunks=cnt, proto=proto)


def test_a_fused_ring_is_stuck_with_one_message_only():
    assert judged(fused_ring()).ok and judged(fused_ring()).facts["least_depth"] == 2
    assert codes(judged(fused_ring(), sends="buffered=1")) == ["SL305"]
    assert judged(fused_ring(), sends="buffered=2").ok and judged(fused_ring(proto="Simple")).ok
    for sends in ("default", "rendezvous", "buffered=1", "buffered=2", "unlimited"):
        assert compare(made(fused_ring()), sends).disagreement is None


def swap(cnt, proto="LL"):
    """Two ranks that send ``cnt`` chunks to each other before they receive."""
    steps = [step("s", ("i", 0), cnt=cnt), step("r", dst=("s", 0), cnt=cnt)]
    return pair(steps, [step("s", ("i", 0), cnt=cnt), step("r", dst=("s", 0), cnt=cnt)], chunks=cnt, s=cnt, proto=proto)


@pytest.mark.parametrize("text, depth, chunks", [
    (swap(2), 8, 2), (swap(8), 8, 8), (swap(9), 8, 9), (swap(2, "Simple"), 2, 2), (swap(3, "Simple"), 2, 3),
    (fused_ring(cnt=7), 8, 8), (fused_ring(cnt=8), 8, 9), (fused_ring(cnt=2, proto="Simple"), 2, 3)])
def test_a_message_of_several_chunks_may_take_as_many_slots(text, depth, chunks):
    """The interpreter judges the same with the messages cut plainly."""
    found = made(text)
    verdict = judged(text)
    assert bool(codes(verdict)) == (chunks > depth) == (
        not interpret(in_pieces(found), 0, sends=f"buffered={depth}").finished)
    assert interpret(found, 0, sends=f"buffered={depth}").finished
    assert compare(found).disagreement is None
    if chunks > depth:
        (told_of,) = [d for d in verdict.diagnostics if d.code == "SL305"]
        assert f"({'with 2' if depth == 2 else 'with 8'} chunks in flight per connection)" in told_of.message
        assert told_of.witness["least_depth"] == chunks
        assert ("two steps" if "rcs" in text else "fewer slots") in told_of.help
    else:
        assert verdict.facts["least_depth"] == chunks
        assert verdict.facts["least_depth_whole"] == (2 if "rcs" in text else 1)


def test_what_is_stuck_in_pieces_may_be_asked_to_go_whole():
    assert judged(swap(9), sends="buffered=1").ok and not judged(swap(9)).ok


# Many


@pytest.mark.parametrize("text", [msccl_files.ring(2, 1), msccl_files.ring(4, 3), msccl_files.all_pairs(2, 1, 1),
                                  msccl_files.all_pairs(3, 2, 3)], ids=["ring", "rings", "pair", "pairs"])
def test_files_that_speed_is_measured_by(text):
    assert judged(text).ok and compare(made(text)) == Comparison("clean")


def random_file(rng):
    """Blocks at random, on connections that each have one block at either end."""
    ranks = rng.randint(1, 4)
    ends = [(a, b, c) for a in range(ranks) for b in range(ranks) for c in range(2) if a != b]
    rng.shuffle(ends)
    gpus = []
    sending = {r: [e for e in ends if e[0] == r] for r in range(ranks)}
    taking = {r: [e for e in ends if e[1] == r] for r in range(ranks)}
    for r in range(ranks):
        blocks = []
        for id in range(rng.randint(0, 4)):
            chan = rng.randrange(2)
            out = next((e for e in sending[r] if e[2] == chan), None) if rng.random() < 0.7 else None
            into = next((e for e in taking[r] if e[2] == chan), None) if rng.random() < 0.7 else None
            if out:
                sending[r].remove(out)
            if into:
                taking[r].remove(into)
            kinds = ["cpy", "re", *["s"] * bool(out), *["r", "rrc"] * bool(into),
                     *["rcs", "rrs", "rrcs"] * bool(out and into)]
            places = [(space, k) for space in "ios" for k in (0, 1)]
            steps = [step(rng.choice(kinds), rng.choice(places), rng.choice(places), rng.choice([1, 1, 2]),
                          hasdep=int(rng.random() < 0.7)) for _ in range(rng.randint(0, 4))]
            blocks.append(block(id, steps, send=out[1] if out else -1, recv=into[0] if into else -1, chan=chan))
        lengths = [len(b.content) for b in blocks]
        for inner in (s for b in blocks for s in b.content):
            target = rng.randrange(len(blocks))
            if lengths[target] and rng.random() < 0.4:
                inner.attributes |= {"depid": target, "deps": rng.randrange(lengths[target])}
        gpus.append(gpu(r, blocks, s=4))
    coll = rng.choice(["allreduce", "custom", "alltoall"])
    return algo(gpus, coll=coll, chunks=4 * ranks, outofplace=1, proto=rng.choice(["LL", "Simple"]))


def test_random_files_are_judged_as_the_interpreter_does():
    rng, seen = random.Random(5), set()
    for _ in range(150):
        plan = loads(random_file(rng), "x.xml")
        for inplace in placements(plan):
            try:
                found = table(plan, inplace)
            except SchedError as e:
                assert {d.code for d in e.diagnostics} == {"SL401"}
                continue
            assert not [d for d in legal.check(found) if d.code not in ("SL306", "SL307")]
            said = compare(found, seed=rng.randrange(100))
            assert said.disagreement is None
            seen.add(said.verdict)
            assert [d.code for d in told(plan, verify(found).diagnostics)] == [
                d.code for d in verify(found).diagnostics if d.code != "SL603"]
    assert {"illegal", "unmatched", "SL401"} <= seen, seen


@pytest.mark.parametrize("code, source", [("SL401", "i"), ("SL403", "s")])
def test_of_many_faults_of_a_kind_some_are_told_and_the_rest_counted(code, source):
    """Every step is a statement of its own, so files have many."""
    blocks = [block(0, [step("cpy", ("i", 39), (source, k)) for k in range(20)] if code == "SL401" else [])]
    blocks += [block(1, [step("cpy", (source, k), ("o", k)) for k in range(20)])]
    found = judged(algo([gpu(0, blocks, s=20)], coll="custom", chunks=40, inplace=0, outofplace=1), False)
    errors = [d for d in found.diagnostics if d.severity == Severity.ERROR]
    assert {d.code for d in errors} == {code} and [d.count for d in errors] == [1] * 15 + [5]


def test_many_steps_that_read_where_they_write_are_told_at_most_so_often():
    steps = [step("re", ("i", k), ("i", k)) for k in range(30)]
    plan = loads(algo([gpu(0, [block(0, steps)])], coll="custom", chunks=30), "x.xml")
    staged = [d for d in verify(replace(table(plan, True), told=None)).diagnostics if d.code == "SL603"]
    assert [d.count for d in staged] == [1] * 15 + [15]
