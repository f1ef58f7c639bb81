"""What runtimes take of MSCCL files: each rule at its limit and one past it, at the place that breaks it."""

import gzip
import json
import os
import re
from dataclasses import fields, replace
from pathlib import Path
from xml.parsers import expat

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.cli.runtime import NAMES
from schedlang.diagnostics import Severity
from schedlang.msccl.accept import Request, faults, reasons, size_range, usable
from schedlang.msccl.choice import answer, ordered
from schedlang.msccl.phrases import listed, range_text, size_text
from schedlang.msccl.runtimes import DTYPES, NODES, PER_TAG, RUNTIMES, Runtime
from schedlang.msccl.tags import quirks
from schedlang.msccl.xml import loads, read
from schedlang.running.dtypes import DTYPES as OURS
from schedlang.source import Source
from tests.msccl_text import algo as algorithm
from tests.msccl_text import block, gpu, nop, step
from tests.plain_reader import PlainReader, Refused

RCCL, AZURE, MICROSOFT = (RUNTIMES[name] for name in NAMES)
EACH = pytest.mark.parametrize("runtime", RUNTIMES.values(), ids=list(RUNTIMES))
FILES = Path(__file__).parents[2].parent / "shared" / "cases" / "msccl"
real_files = pytest.mark.skipif(not FILES.is_dir(), reason=f"the files of others are not there: {FILES}")


def algo(gpus, **attributes):
    """A file for sizes up to 1 MiB, which is a range to all runtimes."""
    return algorithm(gpus, **{"maxBytes": 1 << 20, **attributes})


def swap(**attributes):
    """The text of two ranks that send each other their chunk: an all-reduce that is taken by all runtimes."""
    return algo([gpu(r, [block(0, [step("s", ("i", 0))], send=1 - r), block(1, [
        step("r", ("i", 0), ("s", 0)), step("re", ("s", 0), ("i", 0), dep=(0, 0))], recv=1 - r)], s=1)
        for r in range(2)], **attributes).replace('hasdep="0"/>', 'hasdep="1"/>')


def one(text, path="a.xml"):
    return loads(text, path)


def wrong(text, runtime):
    """Code and text of the place of each fault."""
    return [(d.code, d.location.text) for d in faults(one(text), runtime)]


def only(found):
    assert len(found) == 1, [str(d) for d in found]
    return found[0]


def placed(text, runtime, code, place):
    """The one fault, which has this code, and a place that this pattern matches."""
    d = only(faults(one(text), runtime))
    assert d.code == code and re.fullmatch(place, d.location.text), str(d)
    assert d.severity == Severity.ERROR and d.witness["runtime"] == runtime.name
    return d


def busy(blocks=1, steps=1, *, chan=lambda b: 0, **attributes):
    """A rank 0 that has many blocks with copies of scratch, and a rank 1 with nothing to do."""
    return algo([gpu(0, [block(b, [step("cpy", ("s", 0), ("s", 1)) for _ in range(steps)], chan=chan(b))
                         for b in range(blocks)], s=2), gpu(1, [block(0)])], **attributes)


# ---- the table ---------------------------------------------------------------------------------------------------


def test_the_names_for_the_command_line_are_those_of_the_table():
    assert tuple(RUNTIMES) == NAMES and all(name == one.name for name, one in RUNTIMES.items())


@EACH
def test_every_fact_has_a_source(runtime):
    assert re.match(r"[\w-]+/[\w-]+\b.*: src/", runtime.sources)
    assert all(getattr(runtime, f.name) for f in fields(Runtime) if f.type == "str")


def test_dtypes_are_ours():
    assert set(DTYPES) < set(OURS) and not any("16" in name and "int" in name for name in DTYPES)


@EACH
def test_a_simple_file_is_taken_by_all(runtime):
    assert faults(one(swap()), runtime) == []
    assert reasons(one(swap()), runtime, Request(4096, channels=1, ranks=2), True) == []


# ---- limits -----------------------------------------------------------------------------------------------------


@EACH
def test_steps_of_a_block(runtime):
    assert wrong(busy(steps=runtime.steps), runtime) == []
    d = placed(busy(steps=runtime.steps + 1), runtime, "SL701", rf'<step s="{runtime.steps}" .*/>')
    assert d.message.startswith(
        f"block 0 of rank 0 has {runtime.steps + 1} steps, and {runtime.title} has at most {runtime.steps}: ")
    assert d.count == 1 and d.message.endswith(runtime.refuses)
    assert ("MSCCL_MAX_NUM_STEPS" in d.help) == (runtime is AZURE)


def test_limits_are_counted_by_block_and_rank():
    assert only(faults(one(busy(3, 300)), RCCL)).count == 3


@EACH
def test_blocks_of_a_rank(runtime):
    assert wrong(busy(runtime.blocks), runtime) == []
    d = placed(busy(runtime.blocks + 1), runtime, "SL701", rf'<tb id="{runtime.blocks}" .*>')
    assert f"rank 0 has {runtime.blocks + 1:,} blocks" in d.message and d.count == 1


@pytest.mark.parametrize("runtime", [RCCL, AZURE])
def test_a_rank_without_a_block(runtime):
    text = algo([gpu(0), gpu(1, [block(0)]), gpu(2)])
    d = placed(text, runtime, "SL702", '<gpu id="0" .*>')
    assert d.message == f"rank 0 has no block, and {runtime.title} starts as many: the call fails there"
    assert d.count == 2 and not d.witness["unloaded"]
    assert wrong(text, MICROSOFT) == []


@EACH
def test_channels(runtime):
    assert wrong(busy(1, nchannels=runtime.channels), runtime) == []
    d = placed(busy(1, nchannels=runtime.channels + 1), runtime, "SL701", r'nchannels="\d+"')
    assert d.message.endswith(runtime.crowded)


@EACH
def test_channels_that_are_not_declared(runtime):
    text = busy(2, chan=lambda b: b)
    assert wrong(text, runtime) == []
    d = placed(text.replace('nchannels="2"', 'nchannels="1"'), runtime, "SL701", r'chan="1"')
    assert "never connects" in d.message


def crowd(n, send):
    """Rank 0 sends to, or receives from, n other ranks, all on one channel."""
    here = [block(p, [step("s", ("i", 0)) if send else step("r", ("i", 0), ("s", 0))],
                  **{"send" if send else "recv": p + 1}) for p in range(n)]
    there = [gpu(p + 1, [block(0, [step("r", ("i", 0), ("s", 0)) if send else step("s", ("i", 0))],
                               **{"recv" if send else "send": 0})], s=1) for p in range(n)]
    return algo([gpu(0, here, s=1), *there])


@EACH
@pytest.mark.parametrize("send, verb", [(True, "send"), (False, "receive")])
def test_blocks_on_a_channel(runtime, send, verb):
    assert wrong(crowd(32, send), runtime) == []
    d = placed(crowd(33, send), runtime, "SL701", r'<tb id="32" .*>')
    assert f"33 blocks of rank 0 {verb} on channel 0" in d.message and d.count == 1
    spread = re.sub(r'(<tb id="32" .*chan=)"0"', r'\1"1"', crowd(33, send)).replace('nchannels="1"', 'nchannels="2"')
    spread = re.sub(r'(<gpu id="33"[^>]*>\s*<tb .*chan=)"0"', r'\1"1"', spread)
    assert wrong(spread, runtime) == []


@EACH
def test_counts(runtime):
    def text(cnt):
        return algo([gpu(0, [block(0, [step("cpy", ("s", 0), ("s", 100), cnt)])], s=300), gpu(1, [block(0)])])

    assert wrong(text(71), runtime) == []
    assert "a step moves 72 chunks" in placed(text(72), runtime, "SL701", 'cnt="72"').message


@EACH
def test_offsets_of_16_bits(runtime):
    def text(offset):
        return algo([gpu(0, [block(0, [step("cpy", ("s", 0), ("s", offset))])], s=60000), gpu(1, [block(0)])])

    assert wrong(text(32767), runtime) == []
    assert placed(text(32768), runtime, "SL701", 'dstoff="32768"').message.endswith("it uses another place")


@pytest.mark.parametrize("runtime", [AZURE, MICROSOFT], ids=["azure", "microsoft"])
def test_blocks_that_are_waited_for_have_8_bits(runtime):
    def text(id):
        steps = [step("cpy", ("s", 0), ("s", 1), dep=(id, 0))]
        blocks = [block(b, [step("cpy", ("s", 0), ("s", 1), hasdep=1)]) for b in range(1, id + 1)]
        return algo([gpu(0, [block(0, steps), *blocks], s=2), gpu(1, [block(0)])])

    assert wrong(text(127), runtime) == []
    assert "another one" in placed(text(128), runtime, "SL701", 'depid="128"').message


def test_elements_that_a_rank_reads():
    def text(nodes):
        # The algorithm, two gpus, 16 blocks, and steps for the rest.
        lengths = [256] * 15 + [nodes - 1 - 2 - 16 - 15 * 256]
        return algo([gpu(0, [block(b, [step("cpy", ("s", 0), ("s", 1)) for _ in range(length)])
                             for b, length in enumerate(lengths)], s=2), gpu(1, [block(0)])])

    assert wrong(text(NODES), MICROSOFT) == []
    d = placed(text(NODES + 1), MICROSOFT, "SL701", '<gpu id="0" .*>')
    assert f"rank 0 reads {NODES + 1:,} elements" in d.message and f"room for {NODES:,}" in d.message


@EACH
def test_ranks(runtime):
    assert wrong(algo([gpu(r, [block(0)]) for r in range(1024)]), runtime) == []
    d = placed(algo([gpu(r, [block(0)]) for r in range(1025)]), runtime, "SL701", 'ngpus="1025"')
    assert "past its memory" in d.message


@pytest.mark.parametrize("threads, fine", [("256", True), ("100", False), ("32", True), ("0", True)])
def test_threads(threads, fine):
    text = swap(nthreads=threads)
    assert wrong(text, RCCL) == wrong(text, AZURE) == []
    assert wrong(text, MICROSOFT) == ([] if fine else [("SL701", f'nthreads="{threads}"')])


def test_offsets_are_compared_with_what_the_gpu_says():
    text = swap().replace('s_chunks="1"', 's_chunks="0"', 1)
    plan = one(swap())
    plan = replace(plan, s_chunks=np.array([0, 1], np.int32))       # the reader refuses such a text
    found = faults(plan, AZURE)
    assert [(d.code, d.location.text) for d in found] == [("SL707", 'dstoff="0"'), ("SL707", 'srcoff="0"')], text
    assert "s_chunks of rank 0 is 0" in found[0].message and found[0].message.endswith(AZURE.refuses)
    undeclared = algo([gpu(r, [block(0, [step("s", ("i", 1 - r))], send=1 - r), block(1, [
        step("r", ("o", r), ("o", r))], recv=1 - r)], i=0, o=0) for r in range(2)], coll="alltoall", chunks=2)
    assert {(d.code, d.location.text) for d in faults(one(undeclared), RCCL)} == {
        ("SL707", 'srcoff="1"'), ("SL707", 'dstoff="0"')}


# ---- what a runtime has -----------------------------------------------------------------------------------------


def fused(kind):
    """A chain of three ranks, the middle one with a fused operation."""
    first = gpu(0, [block(0, [step("s", ("i", 0))], send=1)])
    middle = gpu(1, [block(0, [step(kind, ("i", 0), ("i", 0))], recv=0, send=2 if kind != "rrc" else -1)])
    last = gpu(2, [block(0, [step("r", ("i", 0), ("i", 0))] if kind != "rrc" else [], recv=1 if kind != "rrc" else -1)])
    return algo([first, middle, last])


@pytest.mark.parametrize("kind", ["rcs", "rrc", "rrs", "rrcs"])
def test_fused_operations(kind):
    d = placed(fused(kind), RCCL, "SL702", f'type="{kind}"')
    assert d.message == f"RCCL is built without {kind}: the call that takes the file fails"
    assert wrong(fused(kind), AZURE) == wrong(fused(kind), MICROSOFT) == []


@pytest.mark.parametrize("coll, takes", [
    ("reduce_scatter", {MICROSOFT}), ("reducescatter", {RCCL, AZURE}), ("custom", {MICROSOFT}),
    ("scatter", {RCCL, AZURE}), ("gather", {RCCL, AZURE}), ("alltoallv", {RCCL, AZURE}), ("send", {RCCL, AZURE}),
    ("allreduce", {RCCL, AZURE, MICROSOFT}), ("alltoall", {RCCL, AZURE, MICROSOFT}),
])
def test_collectives(coll, takes):
    text = algo([gpu(r, [block(0)], i=2 if coll == "reduce_scatter" else "auto") for r in range(2)], chunks=2,
                coll=coll, inplace=0, outofplace=1)
    for runtime in RUNTIMES.values():
        assert [d.code for d in faults(one(text), runtime)] == ([] if runtime in takes else ["SL702"])
    if coll == "reduce_scatter":
        assert 'coll="reducescatter"' in only(faults(one(text), RCCL)).help
    if coll == "custom":
        assert "it knows reduce, broadcast" in placed(text, AZURE, "SL702", 'coll="custom"').help


@pytest.mark.parametrize("missing", ["outofplace", "minBytes", "maxBytes"])
def test_attributes_that_must_be_there(missing):
    text = swap(**{missing: None})
    for runtime in (RCCL, AZURE):
        d = placed(text, runtime, "SL707", "<algo .*>")
        assert f"demands {missing} of" in d.message and d.message.endswith(runtime.unreadable)
    assert wrong(text, MICROSOFT) == []


def test_microsoft_demands_a_name():
    assert wrong(swap(name=None), RCCL) == wrong(swap(name=None), AZURE) == []
    assert "demands name of" in placed(swap(name=None), MICROSOFT, "SL707", "<algo .*>").message


def test_all_that_is_missing_is_said_at_once():
    assert "demands outofplace, minBytes and maxBytes of" in only(
        faults(one(swap(outofplace=None, minBytes=None, maxBytes=None)), RCCL)).message


def test_chunks_of_buffers_agree_for_microsoft():
    def text(coll, i, o):
        return algo([gpu(r, [block(0)], i=i, o=o) for r in range(2)], chunks=4, coll=coll)

    for coll, i, o in [("allreduce", 4, 4), ("allreduce", 0, 0), ("allgather", 2, 4), ("reduce_scatter", 4, 2),
                       ("alltoall", 4, 4)]:
        assert [d for d in wrong(text(coll, i, o), MICROSOFT) if d[0] == "SL707"] == [], coll
    for coll, i, o, place in [("allreduce", 2, 4, 'i_chunks="2"'), ("allgather", 4, 4, 'i_chunks="4"'),
                              ("reduce_scatter", 4, 4, 'o_chunks="4"'), ("alltoall", 4, 2, 'o_chunks="2"')]:
        found = [d for d in faults(one(text(coll, i, o)), MICROSOFT) if d.code == "SL707"]
        assert [d.location.text for d in found] == [place] and found[0].count == 2
        assert wrong(text(coll, i, o), RCCL) == [] or coll == "reduce_scatter"


@pytest.mark.parametrize("inplace, outofplace, both, alone", [
    (1, 0, (True, False), (True, False)), (0, 1, (False, True), (False, True)), (1, 1, (True, True), (True, False)),
    (0, 0, (False, False), (False, True)), (1, None, (True, False), (True, False)),
])
def test_placements(inplace, outofplace, both, alone):
    plan = one(swap(inplace=inplace, outofplace=outofplace))
    for runtime, expected in ((RCCL, both), (AZURE, both), (MICROSOFT, alone)):
        assert tuple(usable(plan, runtime, way) for way in (True, False)) == expected
        never = [d.code for d in faults(plan, runtime) if d.code == "SL706"]
        assert never == ([] if any(expected) else ["SL706"])


def test_no_all_to_all_in_place_for_microsoft():
    text = algo([gpu(r, [block(0)]) for r in range(2)], chunks=2, coll="alltoall", inplace=1, outofplace=0)
    assert wrong(text, RCCL) == [] and wrong(text, MICROSOFT) == [("SL706", 'inplace="1"')]
    assert "no all-to-all in place" in reasons(one(text), MICROSOFT, Request(), True)[0].message


# ---- ranges of sizes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("low, high, late, microsoft", [
    (0, 100, (0, 101), (0, 100)), (0, 0, (0, None), (0, 0)), (5, 0, (5, None), (5, 0)),
    (None, None, None, (0, 1 << 27)), (7, None, None, (7, 1 << 27)), (None, 9, None, (0, 9)),
])
def test_ranges(low, high, late, microsoft):
    plan = one(swap(minBytes=low, maxBytes=high))
    assert size_range(plan, RCCL) == size_range(plan, AZURE) == late
    assert size_range(plan, MICROSOFT) == microsoft


@pytest.mark.parametrize("low, high, chunks, late, microsoft", [
    (0, 100, 1, True, True), (100, 100, 1, True, False), (101, 100, 1, False, False), (0, 0, 1, True, False),
    (5, 0, 1, True, False), (0, 3, 4, False, False), (0, 4, 4, True, False), (0, 5, 4, True, True),
    (9, 11, 4, False, False), (9, 12, 4, True, False), (1 << 40, 1 << 41, 3, True, True),
])
def test_ranges_that_no_size_lies_in(low, high, chunks, late, microsoft):
    text = swap(minBytes=low, maxBytes=high, chunks=chunks)
    for runtime, fine in ((RCCL, late), (AZURE, late), (MICROSOFT, microsoft)):
        assert wrong(text, runtime) == ([] if fine else [("SL703", f'maxBytes="{high}"')]), runtime.name


def test_why_no_size_lies_in_a_range():
    said = [only(faults(one(swap(minBytes=low, maxBytes=high, chunks=chunks)), runtime)).message.partition(": ")[2]
            for low, high, chunks, runtime in [
                (101, 100, 1, RCCL), (0, 0, 1, MICROSOFT), (100, 100, 1, MICROSOFT), (9, 11, 4, AZURE)]]
    assert said == ["no size is from 101 bytes and up to 100 bytes", "no size is below 0 bytes",
                    "no size is from 100 bytes and below 100 bytes",
                    "of 9 bytes to 11 bytes none is a multiple of 4 bytes, and the 4 chunks divide nothing else"]


# ---- what is misread --------------------------------------------------------------------------------------------


def waits(*steps):
    """Rank 0 has two blocks that others can wait for, and one with these steps; scratch of 8 chunks."""
    flags = [step("cpy", ("s", 0), ("s", 1), hasdep=1) for _ in range(3)]
    return algo([gpu(0, [block(0, flags), block(1, [step("cpy", ("s", 0), ("s", 2), hasdep=1)]), block(2, steps)], s=8),
                 gpu(1, [block(0)])])


def add(dst=4, src=5, cnt=1, **more):
    return step("re", ("s", src), ("s", dst), cnt, **more)


@EACH
def test_the_operation_after_nops_waits_itself(runtime):
    assert wrong(waits(nop((0, 0)), step("cpy", ("s", 1), ("s", 3), dep=(1, 0))), runtime) == []
    for steps in ([nop((0, 0)), step("cpy", ("s", 1), ("s", 3))],
                  [nop((0, 0)), nop((1, 0)), step("cpy", ("s", 1), ("s", 3))]):
        d = placed(waits(*steps), runtime, "SL707", 'depid="-1"')
        assert d.location.line == waits(*steps)[:waits(*steps).rindex('dstoff="3"')].count("\n") + 1
        assert d.message.endswith(runtime.refuses) and d.count == 1


@EACH
def test_nops_at_the_end_wait_for_nobody(runtime):
    assert wrong(waits(step("cpy", ("s", 1), ("s", 3)), nop((0, 0))), runtime) == []


@EACH
def test_a_nop_without_a_dependency_is_not_counted(runtime):
    assert wrong(waits(nop((-1, -1)), step("cpy", ("s", 1), ("s", 3), hasdep=1)), runtime) == []      # nobody waits

    def text(deps):
        return algo([gpu(0, [block(0, [step("cpy", ("s", 0), ("s", 3), hasdep=1), nop((-1, -1)),
                                       step("cpy", ("s", 0), ("s", 1), hasdep=1)]),
                             block(1, [step("cpy", ("s", 1), ("s", 2), dep=(0, deps))])], s=4), gpu(1, [block(0)])])

    assert wrong(text(0), runtime) == []
    d = placed(text(2), runtime, "SL707", '<step .*type="nop".*/>')
    assert "waits too long, or forever" in d.message


@EACH
def test_reductions_into_one_place_are_joined(runtime):
    assert wrong(waits(add(), add(src=6), add(src=7)), runtime) == []
    d = placed(waits(add(cnt=2, dst=0, src=4), add(cnt=1, dst=0, src=6)), runtime, "SL707", 'cnt="1"')
    assert "adds 1 chunks for each" in d.message
    apart = [[add(dst=0, src=4, cnt=2, hasdep=1), add(dst=0, src=6)],
             [add(dst=0, src=4, cnt=2), add(dst=2, src=6)],
             [add(dst=0, src=4, cnt=2), step("cpy", ("s", 7), ("s", 6)), add(dst=0, src=6)],
             [add(dst=0, src=4, cnt=2), add(dst=0, src=6, dep=(0, 0))],
             [add(dst=0, src=4, cnt=2), step("re", ("i", 0), ("s", 0))]]
    for steps in apart:
        assert wrong(waits(*steps), runtime) == []


@EACH
def test_a_chain_of_reductions_ends_with_the_blocks_sixteenth(runtime):
    same = [add(dst=0, src=4) for _ in range(15)]
    assert wrong(waits(*same, add(dst=0, src=5, cnt=2)), runtime) == [("SL707", 'cnt="2"')]
    assert wrong(waits(*same, add(dst=0, src=4), add(dst=0, src=5, cnt=2)), runtime) == []


@EACH
def test_a_nop_between_joined_reductions_waits_too_late(runtime):
    text = waits(add(), nop((0, 0)), add(src=6))
    d = placed(text, runtime, "SL707", '<step .*type="nop".*/>')
    assert "waits only at the operation after them" in d.message
    assert wrong(waits(add(), nop((0, 0)), add(src=6, dep=(1, 0))), runtime) == []


# ---- how text is read -------------------------------------------------------------------------------------------


def quirk(text):
    return [(q.what, q.span.text, q.count, q.fatal) for q in quirks(Source("a.xml", text))]


def test_the_usual_layouts_are_read():
    for text in (swap(), "<!-- Copyright (c) -->\n" + swap(), swap().replace("\n", "\r\n"),
                 swap().replace("/>", " />"), swap(name="a b = c > d 'e' ")):
        assert quirk(text) == []


@pytest.mark.parametrize("change, what, place", [
    (lambda t: '<?xml version="1.0"?>\n' + t, "a declaration (<? ... ?>)", '<?xml version="1.0"?>'),
    (lambda t: "\ufeff" + t, "a byte order mark", "\ufeff"),
    (lambda t: t.replace('name="test"', "name='test'"), "a value in single quotes", "'"),
    (lambda t: t.replace("\n  <gpu", "\n\t\t<gpu", 1), "a tab", "\t\t"),
    (lambda t: t.replace('test" ', 'test"\n'), "a line that ends inside a tag", '<algo name="test"'),
    (lambda t: t.replace("</tb>", "</tb >", 1), "a blank at the end of a closing tag", "</tb >"),
    (lambda t: t.replace('name="', 'name= "'), "a blank beside a =", "= "),
    (lambda t: t.replace('name="', 'name ="'), "a blank beside a =", " ="),
    (lambda t: "<!--a=b -->" + t, "a comment whose first word has a =", "<!--a="),
    (lambda t: t.replace("<algo ", f'<algo more="{"x" * 256}" '), "a name or value of more than 255 characters",
     "x" * 256),
    (lambda t: t.replace("<algo ", f'<algo {"y" * 255}="" '), "a name or value of more than 255 characters", "y" * 255),
])
def test_what_is_not_read(change, what, place):
    text = change(swap())
    assert quirk(text) == [(what, place, 1, True)]
    for runtime in RUNTIMES.values():
        d = only(faults(one(text), runtime))
        early = "gpu" not in what and d.location.start < text.index(">", text.index("<algo"))
        does = runtime.unreadable if early else runtime.refuses
        assert d.message == f"{runtime.title} cannot read {what}: {does}"


def test_what_is_not_read_is_counted():
    assert [(q.what, q.count) for q in quirks(Source("a", swap().replace("  ", "\t")))] == [
        ("a tab", swap().replace("  ", "\t").replace("\t\t\t", "\t").replace("\t\t", "\t").count("\t"))]


def test_values_up_to_255_characters_are_read():
    assert quirk(swap(name="x" * 255)) == []
    assert quirk(swap().replace("<algo ", f'<algo {"y" * 254}="" ')) == []


@pytest.mark.parametrize("number, fine", [("7", True), ("0", True), ("07", True), ("010", False), ("08", False)])
def test_a_zero_before_a_number_is_octal(number, fine):
    text = swap().replace('maxBytes="1048576"', f'maxBytes="{number}"')
    assert [q[:2] for q in quirk(text)] == ([] if fine else [
        (f"a number with a zero before it, {number}, which is read as octal", number)])
    if not fine:
        assert only(faults(one(text), AZURE)).message.startswith("the Azure executor misreads a number with a zero")


def test_attributes_after_the_sixteenth_are_not_seen():
    extra = "".join(f' x{n}="1"' for n in range(6))
    assert quirk(swap().replace("<algo", f"<algo{extra}")) == []                 # 16 in all
    text = swap().replace("<algo", f'<algo{extra} more="1"')
    assert quirk(text) == [("maxBytes behind 16 other attributes, where it is not seen",
                            text[text.index("<algo"):text.index(">") + 1], 1, True)]
    assert quirk(swap().replace('maxBytes="1048576"', f'maxBytes="1048576"{extra} more="1"')) == []
    assert quirk(swap().replace("<algo ", "<algo" + " " * 8)) != []              # each blank begins one


# ---- one call ---------------------------------------------------------------------------------------------------


def why(text, runtime, request, inplace=True):
    return [(d.code, d.location.text) for d in reasons(one(text), runtime, request, inplace)]


@EACH
def test_the_world(runtime):
    assert why(swap(), runtime, Request(ranks=2)) == []
    d = only(reasons(one(swap()), runtime, Request(ranks=3), True))
    assert (d.code, d.location.text) == ("SL705", 'ngpus="2"') and d.message.endswith(runtime.wrong_world)


@EACH
def test_the_placement(runtime):
    d = only(reasons(one(swap()), runtime, Request(), False))
    word = "outofplace" if runtime.both else "inplace"
    assert d.code == "SL706" and d.location.text == f'{word}="{int(not runtime.both)}"'
    assert "not for calls out of place" in d.message and d.message.endswith(runtime.passes)
    lacking = only(reasons(one(swap(outofplace=None)), runtime, Request(), False))
    assert ("outofplace is missing" in lacking.message) == runtime.both


@EACH
def test_the_operator(runtime):
    for op in ("sum", "prod", "min", "max"):
        assert why(swap(), runtime, Request(op=op)) == []
    for op in ("avg", "band"):
        assert why(swap(), runtime, Request(op=op)) == [("SL702", 'coll="allreduce"')]
    assert why(algo([gpu(0, [])], coll="allgather"), runtime, Request(op="avg")) == []


@EACH
def test_the_channels(runtime):
    text = swap(nchannels=24)
    assert why(text, runtime, Request(channels=24)) == []
    assert why(text, runtime, Request(channels=23)) == [("SL701", 'nchannels="24"')]


@pytest.mark.parametrize("size, late, microsoft", [
    (96, None, None), (95, "minBytes", "minBytes"), (4096, None, "maxBytes"), (4095, None, None),
    (4097, "maxBytes", "maxBytes"), (1 << 62, "maxBytes", "maxBytes"),
])
def test_the_size(size, late, microsoft):
    text = swap(minBytes=96, maxBytes=4096)
    for runtime, place in ((RCCL, late), (AZURE, late), (MICROSOFT, microsoft)):
        found = [d for d in why(text, runtime, Request(size, "int8", 1))]
        assert found == ([] if place is None else [("SL703", f'{place}="{96 if place == "minBytes" else 4096}"')])


def test_any_size_where_there_is_no_end():
    assert why(swap(maxBytes=0), RCCL, Request(1 << 62)) == []
    assert why(swap(maxBytes=0, minBytes=8), RCCL, Request(4)) == [("SL703", 'minBytes="8"')]


@EACH
@pytest.mark.parametrize("coll, chunks, size, itemsize, whole", [
    ("allreduce", 24, 96, 4, True), ("allreduce", 24, 192, 2, True), ("allreduce", 24, 100, 4, False),
    ("allreduce", 24, 24, 1, True), ("allreduce", 1, 6, 4, False), ("allreduce", 1, 0, 4, False),
    ("allgather", 4, 16, 4, True), ("allgather", 4, 32, 4, True), ("allgather", 4, 8, 4, False),
    ("alltoall", 2, 4, 4, False), ("alltoall", 2, 8, 4, True), ("alltoall", 3, 12, 4, False),
    ("alltoall", 3, 24, 4, True),
])
def test_what_chunks_divide(runtime, coll, chunks, size, itemsize, whole):
    text = algo([gpu(r, [], i=0, o=0) for r in range(2)], coll=coll, chunks=chunks, inplace=0, outofplace=1)
    found = why(text, runtime, Request(size, "some", itemsize), False)
    assert found == ([] if whole else [("SL704", f'nchunksperloop="{chunks}"')])


def test_the_nearest_sizes_are_offered():
    d = only(reasons(one(swap(chunks=24)), AZURE, Request(1 << 20), True))
    assert d.message == f"the 24 chunks do not divide 262,144 elements of float32: {AZURE.title} {AZURE.passes}"
    assert d.help == "the nearest that they divide: 1,048,512 bytes and 1,048,608 bytes"
    small = only(reasons(one(swap(chunks=24)), AZURE, Request(4), True))
    assert small.help == "the nearest that they divide: 96 bytes"
    assert "no whole number of elements of float32" in only(reasons(one(swap()), AZURE, Request(6), True)).message
    gather = algo([gpu(r, [block(0)]) for r in range(3)], coll="allgather", chunks=3)
    assert "on each of 3 ranks" in only(reasons(one(gather), AZURE, Request(16), True)).message
    assert "of 0 bytes nothing" in only(reasons(one(swap()), AZURE, Request(0), True)).message


# ---- several files ----------------------------------------------------------------------------------------------


def several(runtime, request=None, inplace=None, **files):
    """The answer on files, by name without .xml; and for each its findings."""
    names = ordered([f"{name}.xml" for name in files], runtime)
    plans = [one(swap(**files[name[:-4]]), name) for name in names]
    found = answer(plans, runtime, request or Request(), inplace)
    by_name = {plan.source.path[:-4]: [(d.code, str(d.severity)) for d in these]
               for plan, these in zip(found.plans, found.findings)}
    return found, by_name


def won(found):
    return [(c.collective, c.ranks, c.inplace, c.plan and c.plan.source.path) for c in found.choices]


def test_the_first_by_name_wins_in_a_folder():
    found, by = several(RCCL, Request(4096), b={"maxBytes": 1 << 20}, a={"maxBytes": 8192}, c={})
    assert won(found) == [("allreduce", 2, True, "a.xml")]
    assert by == {"a": [], "b": [("SL708", "note")], "c": [("SL708", "note"), ("SL708", "warning")]}
    assert "takes a.xml, which comes first" in found.findings[1][0].message
    found, by = several(MICROSOFT, Request(4096), b={"maxBytes": 1 << 20}, a={"maxBytes": 8192})
    assert won(found) == [("allreduce", 2, True, "b.xml")] and by["a"] == [("SL708", "note"), ("SL708", "warning")]


def test_names_are_compared_byte_for_byte():
    assert ordered(["x/b.xml", "y/a.xml", "x/B.xml", "x/a1.xml", "x/a.xml"], AZURE) == [
        "x/B.xml", "y/a.xml", "x/a.xml", "x/a1.xml", "x/b.xml"]
    assert ordered(["b", "a"], MICROSOFT) == ["b", "a"]


def test_every_reason_is_said_where_none_is_taken():
    found, by = several(AZURE, Request(1 << 20), a={"maxBytes": 100}, b={"chunks": 3})
    assert won(found) == [("allreduce", 2, True, None)]
    assert by == {"a": [("SL703", "error")], "b": [("SL704", "error")]}


def test_what_keeps_other_files_from_being_taken_is_no_fault_where_one_is():
    found, by = several(AZURE, Request(4096, channels=8), a={"maxBytes": 100}, b={"minBytes": 101}, c={"nchannels": 9})
    assert won(found) == [("allreduce", 2, True, "b.xml")]
    assert by == {"a": [], "b": [], "c": [("SL701", "error"), ("SL708", "warning")]}


def test_files_for_other_worlds():
    text = algo([gpu(r, [block(0)]) for r in range(4)])
    plans = [one(swap(), "a"), one(text, "b")]
    both = answer(plans, RCCL, Request(4096), None)
    assert [(c.ranks, c.plan.source.path) for c in both.choices] == [(2, "a"), (4, "b")]
    four = answer(plans, RCCL, Request(4096, ranks=4), None)
    assert [(c.ranks, c.plan.source.path) for c in four.choices] == [(4, "b")] and four.findings == ((), ())
    three = answer(plans, RCCL, Request(4096, ranks=3), None)
    assert [[d.code for d in found] for found in three.findings] == [["SL705"], ["SL705"]]
    assert [c.plan for c in three.choices] == [None]


def test_each_placement_has_its_own_winner():
    found, _ = several(RCCL, Request(4096), a={"inplace": 0, "outofplace": 1}, b={"outofplace": 1})
    assert won(found) == [("allreduce", 2, True, "b.xml"), ("allreduce", 2, False, "a.xml")]
    found, by = several(RCCL, Request(4096), inplace=False, b={})
    assert won(found) == [("allreduce", 2, False, None)] and by == {"b": [("SL706", "error")]}


def test_the_same_reason_is_said_once():
    _, by = several(RCCL, Request(1 << 30), a={"outofplace": 1})
    assert by == {"a": [("SL703", "error")]}


def test_a_file_that_is_not_loaded_does_not_win():
    found, by = several(MICROSOFT, Request(4096), a={"nthreads": 33}, b={})
    assert won(found) == [("allreduce", 2, True, "b.xml")] and by == {"a": [("SL701", "error")], "b": []}


@pytest.mark.parametrize("broken", [{"maxBytes": None}, {"coll": "custom"}])
def test_no_file_is_read_after_one_that_cannot_be(broken):
    found, by = several(RCCL, Request(4096), a={"minBytes": 8192}, b=broken, c={}, d={})
    assert [c.plan for c in found.choices if c.collective == "allreduce"] == [None]
    assert by["a"] == [("SL703", "error")] and by["c"] == by["d"] == [("SL707", "error")]
    assert only(found.findings[2]).message == "RCCL never reads this file: it stops at b.xml, which comes before"
    found, _ = several(RCCL, Request(4096), a={}, b=broken)
    assert ("allreduce", 2, True, "a.xml") in won(found)
    found, by = several(MICROSOFT, Request(4096), a={"ngpus": 2, "coll": "gather"}, c={})
    assert ("allreduce", 2, True, "c.xml") in won(found) and by["c"] == []


def test_a_file_whose_call_fails_wins():
    plans = [one(fused("rcs"), "a"), one(fused("rrs"), "b")]
    found = answer(plans, RCCL, Request(4096), None)
    assert won(found) == [("allreduce", 3, True, "a")]
    assert [[d.code for d in these] for these in found.findings] == [["SL702"], ["SL702", "SL708", "SL708"]]


def test_only_so_many_files_are_kept():
    found, by = several(MICROSOFT, **{f"f{n}": {"minBytes": n * 100, "maxBytes": n * 100 + 100} for n in range(5)})
    assert by == {"f0": [], "f1": [], "f2": [], "f3": [], "f4": [("SL701", "error")]}
    assert "keeps 4 files" in found.findings[4][0].message
    _, by = several(MICROSOFT, a={"minBytes": 9, "maxBytes": 1}, b={"nthreads": 5, "maxBytes": 9},
                    **{f"f{n}": {"minBytes": n * 100 + 10, "maxBytes": n * 100 + 110} for n in range(3)})
    assert by["f2"] == []       # b is not loaded, and does not count


# ---- ranges of several files ------------------------------------------------------------------------------------


def sizes(*pairs, **more):
    return {f"f{n}": {"minBytes": low, "maxBytes": high, **more} for n, (low, high) in enumerate(pairs)}


def test_ranges_that_meet_say_nothing():
    _, by = several(RCCL, **sizes((0, 1023), (1024, 4095), (4096, 0)))
    assert not any(by.values())
    _, by = several(MICROSOFT, **sizes((0, 1024), (1024, 4096), (4096, 8192)))
    assert not any(by.values())


def test_gaps():
    found, by = several(RCCL, **sizes((4096, 8191), (0, 1023), (1 << 20, 0)))
    assert by == {"f0": [("SL709", "note")], "f1": [], "f2": [("SL709", "note")]}
    assert [re.search("no file is for (.*):", d.message)[1] for these in found.findings for d in these] == [
        "1 KiB to 4,095 bytes", "8 KiB to 1,048,575 bytes"]
    assert found.findings[0][0].location.text == 'minBytes="4096"'
    _, by = several(MICROSOFT, **sizes((0, 1023), (1024, 4096)))
    assert by == {"f0": [], "f1": [("SL709", "note")]}
    assert several(RCCL, **sizes((0, 0), (10, 20)))[1]["f1"] == [("SL708", "warning")]


def test_a_gap_that_no_call_falls_into():
    # Of four ranks every size is a multiple of four bytes: 101 to 103 bytes are none, 204 bytes are one.
    files = [algo([gpu(r, [block(0)]) for r in range(4)], coll="allgather", chunks=4, minBytes=low, maxBytes=high)
             for low, high in ((0, 100), (104, 203), (205, 300))]
    found = answer([one(text, str(n)) for n, text in enumerate(files)], RCCL, Request(), None)
    assert [[d.code for d in these] for these in found.findings] == [[], [], ["SL709"]]
    assert "no file is for 204 bytes: " in found.findings[2][0].message


def test_overlaps():
    found, by = several(RCCL, **sizes((0, 1024), (1024, 4096), (2048, 9000)))
    assert by == {"f0": [], "f1": [("SL710", "note")], "f2": [("SL710", "note")]}
    assert "two files are for 1 KiB:" in found.findings[1][0].message
    assert "two files are for 2 KiB to 4 KiB:" in found.findings[2][0].message
    assert found.findings[2][0].notes[0].location.file == "f1.xml"


def test_a_file_that_is_never_taken():
    found, by = several(RCCL, **sizes((0, 1000), (1001, 0), (500, 2000)))
    assert by["f2"] == [("SL708", "warning")] and "500 bytes to 2,000 bytes" in found.findings[2][0].message
    # What its chunks divide and those of the first do not is left to it.
    _, by = several(RCCL, a={"chunks": 24}, b={"chunks": 8})
    assert by == {"a": [], "b": [("SL710", "note")]}
    _, by = several(RCCL, a={"chunks": 8}, b={"chunks": 24})
    assert by == {"a": [], "b": [("SL708", "warning")]}


def test_ranges_are_those_of_one_collective_world_and_placement():
    _, by = several(RCCL, a={}, b={"inplace": 0, "outofplace": 1})
    assert not any(by.values())


# ---- words ------------------------------------------------------------------------------------------------------


def test_words():
    assert [size_text(n) for n in (0, 1, 1023, 1024, 1025, 3 << 20, 5 << 30, 1 << 40, 1 << 50)] == [
        "0 bytes", "1 byte", "1,023 bytes", "1 KiB", "1,025 bytes", "3 MiB", "5 GiB", "1 TiB", "1,024 TiB"]
    assert [range_text(5, None), range_text(5, 6), range_text(0, 1025)] == [
        "5 bytes and more", "5 bytes", "0 bytes to 1 KiB"]
    assert [listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])] == ["a", "a and b", "a, b and c"]


# ---- the command ------------------------------------------------------------------------------------------------


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    return tmp_path


def write(**files):
    for name, text in files.items():
        path = Path(name.replace("__", "/") + ".xml")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def test_the_proof_and_the_runtime(here, call):
    write(a=swap())
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--bytes", "4KiB", "--dtype", "half")
    assert status == 0
    assert re.search(r"^ok  a\.xml::test  ranks 2, inplace true$", out, re.M)
    assert out.index("ok  a.xml::test") < out.index("ok  RCCL, 4 KiB of float16: runs the file\n"
                                                    "    allreduce of 2 ranks in place: a.xml\n")
    assert "in float16: " in out


def test_a_file_that_is_refused(here, call):
    write(a=swap())
    status, out, _ = call("verify", "a.xml", "--runtime", "azure", "--bytes", "2MiB", "--channels", "32",
                          "--ranks", "3")
    assert status == 1
    assert "a.xml:1:" in out and "error[SL703]" in out and "error[SL705]" in out
    assert out.endswith("REFUSED  the Azure executor, 2 MiB of float32, 3 ranks, 32 channels: does not run the file\n"
                        "    allreduce of 3 ranks in place: no file, but the runtime's own algorithm\n"
                        + out.splitlines()[-1] + "\n")


def test_what_runs_is_counted_in_calls_where_a_size_is_given(here, call):
    """Of two files one is spared for a call that the other takes, though its range is another: it does not count."""
    write(d__a=swap(maxBytes=1024), d__b=swap(minBytes=2048), d__c=swap(inplace=0, outofplace=1, maxBytes=64))
    status, out, _ = call("verify", "d", "--runtime", "rccl", "--bytes", "512")
    assert status == 1 and "IN PART  RCCL, 512 bytes of float32: a file runs for 1 of 2 kinds of call\n" in out
    status, out, _ = call("verify", "d", "--runtime", "rccl", "--bytes", "512", "--in-place", "--format", "concise")
    assert status == 1 and "c.xml:1:" in out        # it is for no call in place, which a.xml takes: left alone below
    status, out, _ = call("verify", "d/a.xml", "d/b.xml", "--runtime", "rccl", "--bytes", "512")
    assert status == 0 and "ok  RCCL, 512 bytes of float32: a file runs for 1 of 1 kind of call\n" in out


def test_a_folder(here, call):
    write(d__b=swap(minBytes=4096), d__a=swap(maxBytes=1023), e__c=swap(maxBytes=7))
    status, out, _ = call("verify", "d", "e", "--runtime", "rccl")
    assert status == 0 and "note[SL709]" in out
    assert "ok  RCCL: nothing speaks against 3 of 3 files\n" in out
    assert out.count("SL709") == 1         # folders by themselves
    Path("d/README.md").write_text("about")
    Path("d/sub").mkdir()
    status, out, _ = call("verify", "d", "--runtime", "azure", "--format", "concise")
    assert status == 1 and "warning[SL707]" in out and "README.md:1" in out
    assert out.count("error[SL707]") == 2       # "README.md" < "a.xml"
    status, out, _ = call("verify", "d", "--runtime", "azure", "--bytes", "512")
    assert status == 1 and "in place: no file, but the runtime's own algorithm" in out
    Path("d/README.md").rename("d/aa.md")
    status, out, _ = call("verify", "d", "--runtime", "azure", "--bytes", "512")
    assert status == 1 and "in place: d/a.xml" in out
    status, out, _ = call("verify", "d", "--runtime", "azure", "--format", "concise")
    assert status == 1 and out.count("error[SL707]") == 1 and "d/b.xml" in out
    status, out, _ = call("verify", "d", "--runtime", "microsoft")
    assert "README" not in out


def test_in_place_and_out_of_place(here, call):
    write(a=swap())
    assert call("verify", "a.xml", "--runtime", "rccl", "--in-place")[0] == 0
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--out-of-place")
    assert status == 1 and "error[SL706]" in out


def test_json(here, call):
    write(a=swap(), b=swap())
    status, out, _ = call("verify", "a.xml", "b.xml", "--runtime", "rccl", "--bytes", "1k", "--format", "json")
    document = json.loads(out)
    assert status == 0 and document["ok"] is True
    told = document["runtime"]
    assert {key: told[key] for key in ("name", "size", "dtype", "channels", "ranks", "inplace")} == {
        "name": "rccl", "size": 1024, "dtype": "float32", "channels": None, "ranks": None, "inplace": None}
    assert told["choices"] == [{"collective": "allreduce", "ranks": 2, "inplace": True, "file": "a.xml"}]
    assert [(f["file"], f["schedule"], f["ok"], [d["code"] for d in f["diagnostics"]]) for f in told["files"]] == [
        ("a.xml", "test", True, []), ("b.xml", "test", True, ["SL708", "SL708"])]
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--bytes", "1G", "--format", "json")
    document = json.loads(out)
    assert status == 1 and document["ok"] is False and document["schedules"][0]["ok"] is True
    assert document["runtime"]["choices"][0]["file"] is None


def test_other_formats(here, call):
    write(a=swap())
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--bytes", "1G", "--format", "github")
    assert status == 1 and re.search(r"^::error file=a\.xml,line=1,.*title=SL703 size-out-of-range::", out, re.M)
    assert "in test with runtime rccl, size 1 GiB" in out
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--bytes", "1G", "--format", "sarif")
    result = json.loads(out)["runs"][0]["results"][0]
    assert status == 1 and result["ruleId"] == "SL703" and result["properties"]["values"]["runtime"] == "rccl"


def test_a_file_that_is_taken_and_goes_wrong(here, call):
    write(a=fused("rrcs"))
    status, out, _ = call("verify", "a.xml", "--runtime", "rccl", "--bytes", "1k")
    assert status == 1 and "RCCL, 1 KiB of float32: does not run the file\n" in out
    assert "    allreduce of 3 ranks in place: a.xml, and goes wrong\n" in out


def test_a_packed_file(here, call):
    Path("a.xml.gz").write_bytes(gzip.compress(swap().encode()))
    status, out, _ = call("verify", "a.xml.gz", "--runtime", "rccl")
    assert status == 0 and "note[SL707]" in out and "reads no compressed files" in out


@pytest.mark.parametrize("arguments, said", [
    (["--bytes", "1M"], "--bytes says something only beside --runtime"),
    (["--in-place"], "--in-place says something only beside --runtime"),
    (["--channels", "4"], "--channels says something only beside --runtime"),
    (["--runtime", "nccl"], "'nccl' is not one of 'rccl', 'azure', 'microsoft'"),
    (["--runtime", "rccl", "--bytes", "much"], "'much' is no size"),
    (["--runtime", "rccl", "--dtype", "int16"], "the runtimes have no such dtype"),
    (["--runtime", "rccl", "--ranks", "2..9"], "takes one size"),
    (["--runtime", "rccl", "--why", "1", "2"], "--why shows one chain"),
    (["--runtime", "rccl", "--channels", "0"], "--channels"),
    (["--runtime", "rccl", "s.sched"], "s.sched is none"),
    (["--runtime", "rccl", "::a"], "the path is empty"),
])
def test_what_cannot_be_asked(here, call, arguments, said):
    write(a=swap())
    status, out, err = call("verify", "a.xml", *arguments)
    assert status == 2 and out == "" and said in err


def test_a_pipe_cannot_be_read_twice(here, call):
    os.mkfifo("pipe.xml")
    status, _, err = call("verify", "pipe.xml", "--runtime", "rccl")
    assert status == 2 and "--runtime reads each file twice, and pipe.xml is none that can be" in err


def test_nothing_to_ask_about(here, call, shipped):
    Path("d").mkdir()
    Path("d/ring.sched").write_text(shipped.read_text())
    status, out, err = call("verify", "d", "--runtime", "rccl")
    assert status == 2 and out == "" and "there is none in d" in err


def test_a_file_that_cannot_be_read_is_said_once(here, call):
    write(a=swap(), b="<algo")
    status, out, err = call("verify", "a.xml", "b.xml", "--runtime", "rccl", "--format", "concise")
    assert status == 2 and (out + err).count("b.xml:") == 1 and "ok  RCCL: runs the file" in out


# ---- the files of others ----------------------------------------------------------------------------------------


@real_files
@pytest.mark.parametrize("name, size", [
    ("a2a2ll", 32 << 10), ("ag-1m", 1 << 20), ("ag-32m-1g", 1 << 30), ("ap-1pass", 32 << 10), ("ap2ll", 36864),
    ("r48ll", 1 << 20), ("ag_hier_4_LL", 1 << 16), ("ag_hier_4_Simple", 1 << 20), ("ar_hier_12_Simple", 3 << 20),
    ("ar_tree_12_LL", 3 << 10), ("all-reduce-ring-ll", 6144), ("allreduce-allpairs-8n-ll-32tb", 1 << 16),
    ("alltoall-8n-0-9kb", 8 << 10), ("alltoall-8n-7mb-43mb", 8 << 20),
])
def test_real_files_at_their_sizes(name, size):
    plan = read(str(FILES / f"{name}.xml.gz"))
    request = Request(size, "float16", 2, channels=32, ranks=plan.ranks)
    ways = [way for way in (True, False) if usable(plan, AZURE, way)]
    assert ways and faults(plan, AZURE) == [] and all(reasons(plan, AZURE, request, way) == [] for way in ways)
    fused = ("ag-32m-1g", "ag_hier_4_LL", "ag_hier_4_Simple", "all-reduce-ring-ll", "ar_hier_12_Simple",
             "ar_tree_12_LL", "r48ll")
    assert [d.code for d in faults(plan, RCCL)] == ["SL702"] * (name in fused)
    assert any(d.code == "SL703" for d in reasons(plan, AZURE, replace(request, size=2 << 30), ways[0]))


@real_files
def test_which_real_file_is_taken():
    plans = [read(path) for path in ordered([str(p) for p in FILES.glob("*.xml.gz")], AZURE)]
    for size, file in ((16 << 10, "allreduce-allpairs-8n-ll-32tb"), (1 << 20, "r48ll"), (4 << 20, None)):
        found = answer(plans, AZURE, Request(size, "float32", 4, ranks=8), True)
        chosen = {c.collective: c.plan and os.path.basename(c.plan.source.path)[:-7] for c in found.choices}
        assert chosen["allreduce"] == file
    # ap2ll lies wholly in what an earlier name is for, with chunks that divide its own.
    never = {os.path.basename(plan.source.path)[:-7] for plan, these in zip(found.plans, found.findings)
             if any(d.code == "SL708" and d.severity == Severity.WARNING for d in these)}
    assert never == set()


# ---- the reader of tags, against one that goes character by character -------------------------------------------


INSERTED = ("\t", " ", "  ", "\n", "\r\n", "'", " /", "<!-- a > b -->", "<!--a=b-->", "<!---->", "<?a b?>", "text",
            "\ufeff", "=", '""', " x=\"1\"", " x='1'", " x=\"a > b = c\"", f' x="{255 * "y"}"', f' x="{256 * "y"}"',
            "".join(f' x{n}="1"' for n in range(5)), "".join(f' x{n}="1"' for n in range(8)), "<![CDATA[ ]]>",
            "&#32;", "<other/>", "<other a=\"1\">\n</other>")


def understood(text):
    """The elements of a text that is XML, as anybody else reads them, without what runtimes have no use for."""
    found = []
    parser = expat.ParserCreate()
    parser.ordered_attributes = True
    parser.StartElementHandler = lambda name, given: found.append((name, dict(zip(given[::2], given[1::2]))))
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError:
        return None
    return [(name, {key: value for key, value in given.items() if key in PER_TAG[name]})
            for name, given in found if name in PER_TAG]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.sampled_from(INSERTED)), min_size=1, max_size=3),
       st.booleans())
def test_what_is_reported_is_what_a_reader_of_single_characters_stumbles_over(inserted, near):
    text = swap(minBytes=5)
    for where, piece in inserted:
        # Most of what matters happens around tags' ends and attributes.
        places = [m.start() for m in re.finditer(r"[ <>/=\"\n]", text)] if near else range(len(text))
        at = places[int(where * (len(places) - 1))]
        text = text[:at] + piece + text[at:]
    meant = understood(text)
    if meant is None or "&#32;" in text:
        return
    try:
        # A line end in a value is a blank to XML.
        took = [(name, {key: re.sub(r"\r\n|\s", " ", value) for key, value in seen.items() if key in PER_TAG[name]})
                for name, seen in PlainReader(text).elements() if name in PER_TAG]
    except Refused:
        took = None
    fatal = {q.what for q in quirks(Source("a", text)) if q.fatal}
    # Blanks become names of attributes, or part of them: where nobody reads these they harm nobody.
    harmless = took == meant and fatal <= {"a tab", "a blank beside a ="}
    assert bool(fatal) == (took != meant) or harmless, text


# ---- nops and reductions, against what the runtimes make of a block ---------------------------------------------


def runs(steps):
    """What a runtime makes of steps (kind, dst, src buffer, cnt, dep, hasdep): for each operation of the file how many
    chunks it moves, what it waits for, and the number that it publishes; None where the runtime refuses them. Written
    from what the parser and the kernel do, one step at a time."""
    made, waits, taken, reduced, last = [], [], 0, 0, None
    for number, (kind, dst, src, cnt, dep, hasdep) in enumerate(steps):
        if dep is not None:
            waits.append(dep)
        if kind == "nop":
            continue
        joins = kind == "re" and last == (dst, src) and dep is None
        if joins:
            made[-1]["of"].append(number)
            made[-1]["cnt"] = cnt
        else:
            if kind == "re" and last is not None:
                last = None
            pending, taken = waits[taken:], len(waits)
            if pending and dep is None:
                return None
            made.append({"of": [number], "cnt": cnt, "waits": pending, "first": reduced})
        if kind != "re":
            last = None
        else:
            if last is None:
                made[-1]["first"] = reduced
            reduced += 1
            made[-1]["reductions"] = reduced - made[-1]["first"]
            last = None if hasdep or reduced == 16 else (dst, src)
        made[-1]["hasdep"] = hasdep
    found, step_number = {}, 0
    for one in made:
        step_number += max(len(one["waits"]) - 1, 0) + max(one.get("reductions", 1) - 1, 0)
        for nth, number in enumerate(one["of"]):
            last = nth == len(one["of"]) - 1
            found[number] = (one["cnt"], one["waits"] if nth == 0 else [],
                             step_number if last and one["hasdep"] else None)
        step_number += 1
    return found


def says(steps):
    """The same as the file says it."""
    found, waits = {}, []
    for number, (kind, _, _, cnt, dep, hasdep) in enumerate(steps):
        waits += [] if dep is None else [dep]
        if kind != "nop":
            found[number] = cnt, waits, number if hasdep else None
            waits = []
    return found


STEPS = st.lists(st.tuples(st.sampled_from(["re", "re", "cpy", "nop"]), st.integers(0, 1), st.sampled_from("is"),
                           st.integers(1, 2), st.sampled_from([None, None, (0, 0)]), st.booleans()), max_size=24)


@settings(max_examples=300, deadline=None)
@given(STEPS, st.integers(-1, 24))
def test_what_is_misread_is_what_a_runtime_takes_otherwise(steps, waited):
    waited = min(waited, len(steps) - 1)
    lines = [nop(dep or (-1, -1)) if kind == "nop" else
             step(kind, (src, 0), ("s", dst), cnt, dep=dep, hasdep=int(hasdep))
             for kind, dst, src, cnt, dep, hasdep in steps]
    other = [step("cpy", ("s", 0), ("s", 1), dep=(1, waited))] if waited >= 0 else []
    text = algo([gpu(0, [block(0, [step("cpy", ("s", 0), ("s", 3), hasdep=1), *other]), block(1, lines)], s=4),
                 gpu(1, [block(0)])], chunks=2)
    meant, done = says(steps), runs(steps)
    found = faults(one(text), MICROSOFT)
    if done is None or any(done[n][:2] != meant[n][:2] for n in meant):
        assert found, text
        return

    def met(how):
        """The operation at whose end the other block goes on."""
        return next((n for n in sorted(how) if how[n][2] is not None and how[n][2] >= waited), None)

    idle = any(kind == "nop" and dep is None for kind, _, _, _, dep, _ in steps[:max(waited, 0)])
    assert bool(found) == idle and (idle or waited < 0 or met(done) == met(meant)), (text, done, meant)
