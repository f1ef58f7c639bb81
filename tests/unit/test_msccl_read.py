"""Reading MSCCL XML: what is in a plan; each rule of the format, its message and place; dialects; hostile files."""

import gzip
import random
import re
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schedlang.diagnostics import SchedError
from schedlang.msccl import loads, read
from schedlang.msccl.plan import Kind, Plan, Space
from tests.msccl_text import algo, block, copy, gpu, nop, same, step, text

FILES = sorted((Path(__file__).parents[3] / "shared" / "cases" / "msccl").glob("*.xml.gz"))
real = pytest.mark.skipif(not FILES, reason="needs ../shared/cases beside the project")


def pair(**attributes) -> str:
    """Two ranks that reduce and pass back one chunk in place, the second block of rank 1 waiting for the first."""
    return algo([
        gpu(0, [block(0, [step("s", ("i", 0)), step("r", dst=("i", 0))], send=1, recv=1)]),
        gpu(1, [block(0, [step("rrc", ("i", 0), ("i", 0), hasdep=1)], recv=0),
                block(1, [step("s", ("i", 0), dep=(0, 0))], send=0)]),
    ], **attributes)


def wrong(written: str) -> list[tuple[str, int, str, str]]:
    """The findings on a text: code, line, what stands there (an attribute, or the name of a tag), message."""
    with pytest.raises(SchedError) as failure:
        loads(written, "a.xml")
    assert all(d.help for d in failure.value.diagnostics)
    places = [d.location.text.split()[0] if d.location.text.startswith("<") else d.location.text
              for d in failure.value.diagnostics]
    return [(d.code, d.location.line, place, d.message) for d, place in zip(failure.value.diagnostics, places)]


def only(written: str) -> tuple[str, int, str, str]:
    found = wrong(written)
    assert len(found) == 1, found
    return found[0]


def helped(written: str) -> list[str]:
    with pytest.raises(SchedError) as failure:
        loads(written, "a.xml")
    return [d.help for d in failure.value.diagnostics]


# What is in a plan ---------------------------------------------------------------------------------------------------


def test_every_field():
    plan = loads(algo([
        gpu(0, [block(0, [step("s", ("i", 1), ("o", 2), 2, hasdep=1)], send=1, chan=3)], s=4),
        gpu(1, [block(0, [nop((1, 0)), step("rrc", ("i", 2), ("s", 1), 2, dep=(1, 1))], recv=0, chan=3),
                block(1, [step("re", ("o", 0), ("i", 1), hasdep=1), step("cpy", ("s", 0), ("o", 3), hasdep=1)])], s=5),
    ], chunks=4, name="all", proto="LL128", outofplace=1, minBytes=7, maxBytes=2**63 - 1, redop="max", nthreads=512),
        "a.xml")
    assert (plan.name, plan.proto, plan.channels, plan.chunks, plan.ranks, plan.coll) == ("all", "LL128", 4, 4, 2,
                                                                                          "allreduce")
    assert (plan.inplace, plan.outofplace, plan.min_bytes, plan.max_bytes) == (True, True, 7, 2**63 - 1)
    assert plan.redop == "max"
    assert plan.attributes["nthreads"] == "512" and plan.attributes["name"] == "all"
    assert [c.tolist() for c in (plan.i_chunks, plan.o_chunks, plan.s_chunks)] == [[4, 4], [4, 4], [4, 5]]
    assert [c.tolist() for c in (plan.block_rank, plan.block_id, plan.send, plan.recv, plan.chan)] == [
        [0, 1, 1], [0, 0, 1], [1, -1, -1], [-1, 0, -1], [3, 3, 0]]
    assert plan.block.tolist() == [0, 1, 1, 2, 2] and plan.s.tolist() == [0, 0, 1, 0, 1]
    assert plan.kind.tolist() == [Kind.S, Kind.NOP, Kind.RRC, Kind.RE, Kind.CPY]
    assert plan.src_space.tolist() == [Space.INPUT, Space.INPUT, Space.INPUT, Space.OUTPUT, Space.SCRATCH]
    assert plan.dst_space.tolist() == [Space.OUTPUT, Space.OUTPUT, Space.SCRATCH, Space.INPUT, Space.OUTPUT]
    assert plan.src_offset.tolist() == [1, -1, 2, 0, 0] and plan.dst_offset.tolist() == [2, -1, 1, 1, 3]
    assert plan.count.tolist() == [2, 0, 2, 1, 1]
    assert plan.dep_block.tolist() == [-1, 1, 1, -1, -1] and plan.dep_step.tolist() == [-1, 0, 1, -1, -1]
    assert plan.has_dep.tolist() == [True, False, False, True, True]
    assert not len(plan.copy_rank) and not plan.remarks
    assert plan.kind.dtype == plan.src_space.dtype == np.int8 and plan.has_dep.dtype == bool
    assert plan.step_at.dtype == np.int64 and plan.block.dtype == plan.s.dtype == plan.send.dtype == np.int32


def test_places_are_the_tags():
    plan = loads("<!-- one -->\n" + pair(), "a.xml")
    assert plan.span(plan.at).line == 2 and plan.span(plan.at).text.startswith("<algo name=")
    for column, tag in ((plan.gpu_at, "<gpu "), (plan.block_at, "<tb "), (plan.step_at, "<step ")):
        for at in column.tolist():
            assert plan.span(at).text.startswith(tag) and plan.span(at).text.endswith(">")
    assert [plan.span(at).line for at in plan.step_at.tolist()] == [5, 6, 11, 14]


def test_places_beyond_ascii_and_in_quotes():
    plan = loads('<!-- ünï𝄞 -->' + pair(name="größer > 5 𝄞"), "a.xml")
    assert plan.name == "größer > 5 𝄞"
    assert plan.span(plan.at).text.endswith('maxBytes="0">')
    assert [plan.span(at).text[:8] for at in plan.step_at.tolist()] == ["<step s="] * 4
    assert [plan.span(at).text[:8] for at in plan.gpu_at.tolist()] == ["<gpu id="] * 2


def test_ranks_blocks_and_attributes_in_any_order():
    usual = loads(pair(), "a.xml")
    head, first, second = pair().partition('  <gpu id="0"')[0], *re.findall(r"  <gpu.*?</gpu>\n", pair(), re.S)
    blocks = re.findall(r"    <tb.*?</tb>\n", second, re.S)
    second = second.replace("".join(blocks), "".join(reversed(blocks)))
    turned = head + second + first + "</algo>"
    plan = loads(turned, "a.xml")
    assert turned != pair() and same(usual, plan)
    assert [plan.span(at).line for at in plan.step_at.tolist()] == [12, 13, 7, 4]
    assert [plan.span(at).text for at in plan.step_at.tolist()] == [
        usual.span(at).text for at in usual.step_at.tolist()]

    def reversed_attributes(tag: re.Match[str]) -> str:
        return f"<{tag[1]} {' '.join(reversed(tag[2].split()))}{tag[3]}>"

    other = re.sub(r"<(\w+) ([^/>]*)(/?)>", reversed_attributes, pair())
    assert other.startswith("<algo maxBytes=") and same(usual, loads(other, "a.xml"))
    mixed = "\n".join(a if i % 2 else b for i, (a, b) in enumerate(zip(pair().splitlines(), other.splitlines())))
    assert same(usual, loads(mixed, "a.xml"))


def test_what_a_kind_ignores_may_be_anything():
    plan = loads(algo([
        gpu(0, [block(0, [step("s", dst=("s", 99)), step("nop", ("i", -7), ("o", -1), 3)], send=1)]),
        gpu(1, [block(0, [step("r", ("s", -9), ("i", 0))], recv=0)])]), "a.xml")
    assert plan.dst_offset.tolist() == [99, -1, 0] and plan.src_offset.tolist() == [0, -7, -9]
    assert plan.count.tolist() == [1, 0, 1]


def test_empty_ranks_and_blocks():
    plan = loads(algo([gpu(0), gpu(1, [block(0), block(1)])]), "a.xml")
    assert plan.ranks == 2 and plan.block_rank.tolist() == [1, 1] and not len(plan.s)
    assert len(loads(algo([gpu(0)]), "a.xml").i_chunks) == 1


# Dialects ------------------------------------------------------------------------------------------------------------


def test_what_older_files_lack():
    plan = loads(pair(outofplace=None, minBytes=None, maxBytes=None), "a.xml")
    assert plan.outofplace is plan.min_bytes is plan.max_bytes is plan.redop is None
    assert plan.inplace and not plan.remarks


def test_a_name_may_lack():
    assert loads(pair(name=None), "some/ring.v2.xml").name == "ring"
    assert loads(pair(name=None), ".xml").name == "algo"
    assert loads(pair(name=None), "a\nb\x1b[31m\udcff.xml").name == "ab[31m"


@pytest.mark.parametrize("redop", ["sum", "prod", "min", "max", "nop"])
def test_operators(redop):
    assert loads(pair(redop=redop), "a.xml").redop == redop


def test_copies():
    plan = loads(algo([gpu(0, [copy(0, 1), block(0)]), gpu(1, [block(0), copy(0, 2, cnt=2), copy(i_off=0, o_off=0)])],
                      chunks=4, coll="allgather"), "a.xml")
    assert [c.tolist() for c in (plan.copy_rank, plan.copy_input, plan.copy_output, plan.copy_count)] == [
        [0, 1, 1], [0, 0, 0], [1, 2, 0], [1, 2, 1]]
    assert [plan.span(at).text for at in plan.copy_at.tolist()][1] == '<copy i_off="0" o_off="2" cnt="2"/>'
    assert not plan.remarks


def test_a_channel_of_a_block_without_peers():
    plan = loads(algo([gpu(0, [block(0, chan=-1), block(1, chan=2)])]), "a.xml")
    assert plan.chan.tolist() == [0, 2]
    assert only(algo([gpu(0, [block(0, chan=-1, recv=1)]), gpu(1)], nchannels=1)) == (
        "SL108", 3, 'chan="-1"', 'chan="-1" in a block with a peer')


def test_a_dependency_on_no_step():
    blocks = [block(0, [step("cpy", dep=(1, -1)), step("cpy", dep=(-1, 9))]), block(1, [step("cpy")])]
    plan = loads(algo([gpu(0, blocks)]), "a.xml")
    assert plan.dep_block.tolist() == [1, -1, -1] and plan.dep_step.tolist() == [-1, 9, -1]


def test_single_quotes_comments_and_white_space():
    odd = "<?xml version='1.0'?>\n<!-- a <tag> -->" + pair().replace('"', "'").replace("<step ", "<step\n\t").replace(
        "</gpu>", "<!-- b -->\r\n</gpu><?pi x?>").replace("/>", "></step>")
    assert same(loads(odd, "a.xml"), loads(pair(), "a.xml"))
    spaced = pair().replace('cnt="', 'cnt = "')
    assert same(loads(spaced, "a.xml"), loads(pair(), "a.xml"))


def test_references():
    assert loads(pair(name="a<b&c\"d"), "a.xml").name == 'a<b&c"d'
    assert loads(pair().replace('name="test"', 'name="&#65;&#x42;"'), "a.xml").name == "AB"
    assert loads(pair().replace('cnt="1"', 'cnt="&#49;"'), "a.xml").count.tolist() == [1, 1, 1, 1]


def test_what_is_not_understood_is_said_once():
    odd = pair(maxcount=1, minbytes=3).replace("<step ", '<step label="x" ').replace(
        "  </gpu>", "    <hint><deep/></hint>\n  </gpu>")
    plan = loads(odd, "a.xml")
    assert same(plan, loads(pair(maxcount=1, minbytes=3), "a.xml"))
    assert [d.message for d in plan.remarks] == [
        "maxcount of <algo> is not part of the format, and is left out",
        "minbytes of <algo> is not part of the format, and is left out",
        "label of <step> is not part of the format, and is left out (4 times)",
        "<hint> in <gpu> is not part of the format, and is left out (2 times)"]
    assert [d.location.text for d in plan.remarks] == ['maxcount="1"', 'minbytes="3"', 'label="x"', "<hint>"]
    assert [d.location.line for d in plan.remarks] == [1, 1, 4, 7]
    assert all(d.code == "SL615" and str(d.severity) == "note" for d in plan.remarks)


def test_a_slip_in_an_optional_attribute():
    plan = loads(pair(outofplace=None, outofpalce=1), "a.xml")
    assert plan.outofplace is None and plan.remarks[0].help == "did you mean outofplace?"
    assert loads(pair(nthreadblocks=1), "a.xml").remarks[0].help == "the runtimes leave it out as well"


def test_a_slip_in_a_needed_attribute():
    slip = pair().replace("srcoff=", "srcof=", 1)
    assert only(slip)[3] == "srcoff is missing" and helped(slip) == ["srcof stands there: did you mean srcoff?"]
    assert helped(pair().replace("type=", "Types=", 1)) == ["Types stands there: did you mean type?"]
    assert helped(pair().replace("srcoff=", "label=", 1)) == ["the first chunk that is read; -1 where nothing is"]
    assert helped(pair().replace("ngpus=", "ngpu=", 1)) == ["ngpu stands there: did you mean ngpus?"]
    more = pair().replace("srcoff=", 'srcof="1" srcoff=', 1)
    assert loads(more, "a.xml").remarks[0].help == "the runtimes leave it out as well"


def test_an_operator_that_there_is_not():
    plan = loads(pair(redop="Max"), "a.xml")
    assert plan.redop is None
    (found,) = plan.remarks
    assert found.message == 'redop="Max" is not an operator of MSCCL, and is left out'
    assert found.help == "did you mean max? there are sum, prod, min, max and nop"


def test_many_things_not_understood_are_no_flood():
    plan = loads(pair(**{f"a{i}": 0 for i in range(300)}).replace(
        "</gpu>", "".join(f"<x{i}/>" for i in range(500)) + "</gpu>", 1), "a.xml")
    assert len(plan.remarks) == 11
    assert plan.remarks[-1].message == "790 more attributes and elements are not part of the format either"


# The rules of the format ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["proto", "nchannels", "nchunksperloop", "ngpus", "coll", "inplace"])
def test_what_an_algorithm_must_have(name):
    assert only(pair(**{name: None})) == ("SL108", 1, "<algo", f"{name} is missing")


@pytest.mark.parametrize("tag, name", [
    *(("gpu", n) for n in ("id", "i_chunks", "o_chunks", "s_chunks")),
    *(("tb", n) for n in ("id", "send", "recv", "chan")),
    *(("step", n) for n in ("s", "type", "srcbuf", "srcoff", "dstbuf", "dstoff", "cnt", "depid", "deps", "hasdep"))])
def test_what_the_others_must_have(tag, name):
    lines = pair().splitlines()
    at = next(i for i, line in enumerate(lines) if f"<{tag} " in line)
    lines[at] = lines[at].replace(f" {name}=", f" x{name}=")
    assert only("\n".join(lines)) == ("SL108", at + 1, f"<{tag}", f"{name} is missing")


@pytest.mark.parametrize("name, value, said", [
    ("nchannels", "0", "too small; it can be 1 to 2147483647"),
    ("nchunksperloop", "0", "too small; it can be 1 to 65536"),
    ("nchunksperloop", "1000000000", "too large; it can be 1 to 65536"),
    ("nchunksperloop", "65537", "too large; it can be 1 to 65536"),
    ("nchunksperloop", "", "not a whole number"),
    ("nchunksperloop", "4.0", "not a whole number"),
    ("nchunksperloop", "0x10", "not a whole number"),
    ("nchunksperloop", "١", "not a whole number"),
    ("nchunksperloop", "9" * 5000, "too long a number"),
    ("ngpus", "0", "too small; it can be 1 to 2147483647"),
    ("ngpus", "-1", "too small; it can be 1 to 2147483647"),
    ("inplace", "2", "too large; it can be 0 to 1"),
    ("outofplace", "yes", "not a whole number"),
    ("minBytes", "-1", "too small; it can be 0 to 9223372036854775807"),
    ("maxBytes", str(2**63), "too large; it can be 0 to 9223372036854775807"),
])
def test_numbers_of_an_algorithm(name, value, said):
    code, line, place, message = only(pair(**{name: value}))
    assert (code, line, place) == ("SL108", 1, f'{name}="{value}"')
    assert message.endswith(f"is {said}") and len(message) < 120


@pytest.mark.parametrize("old, new, said", [
    ('id="0" i_', 'id="-1" i_', 'id="-1" is too small; it can be 0 to 2147483647'),
    ('i_chunks="1"', 'i_chunks="-1"', 'i_chunks="-1" is too small; it can be 0 to 65536'),
    ('s_chunks="0"', 's_chunks="1000000000"', 's_chunks="1000000000" is too large; it can be 0 to 65536'),
    ('send="1"', 'send="-2"', 'send="-2" is too small; it can be -1 to 2147483647'),
    ('recv="1"', 'recv="b"', 'recv="b" is not a whole number'),
    ('chan="0"', 'chan="4294967296"', 'chan="4294967296" is too large; it can be -1 to 2147483647'),
    ('s="0" type', 's="-1" type', 's="-1" is too small; it can be 0 to 2147483647'),
    ('srcoff="0"', 'srcoff="99999999999"', 'srcoff="99999999999" is too large; it can be -2147483647 to 2147483647'),
    ('dstoff="0"', 'dstoff="+1"', 'dstoff="+1" is not a whole number'),
    ('cnt="1"', 'cnt="-1"', 'cnt="-1" is too small; it can be 0 to 2147483647'),
    ('depid="-1"', 'depid="-2"', 'depid="-2" is too small; it can be -1 to 2147483647'),
    ('deps="-1"', 'deps="-2"', 'deps="-2" is too small; it can be -1 to 2147483647'),
    ('hasdep="0"', 'hasdep="2"', 'hasdep="2" is too large; it can be 0 to 1'),
    ('type="s"', 'type="sr"', 'type="sr" is not a kind of step'),
    ('type="s"', 'type="S"', 'type="S" is not a kind of step'),
    ('srcbuf="i"', 'srcbuf="input"', 'srcbuf="input" is not a buffer'),
    ('dstbuf="o"', 'dstbuf=""', 'dstbuf="" is not a buffer'),
])
def test_numbers_and_words_of_the_others(old, new, said):
    written = pair().replace(old, new, 1)
    code, line, place, message = only(written)
    assert (code, message) == ("SL108", said)
    assert new.startswith(place) and place in written.splitlines()[line - 1]


def test_known_words_are_offered():
    assert helped(pair().replace('type="rrc"', 'type="copy"')) == [
        "did you mean cpy? there are s, r, cpy, re, rcs, rrc, rrs, rrcs and nop"]
    assert helped(pair().replace('srcbuf="i"', 'srcbuf="x"', 1)) == ["there are i, o and s"]
    assert helped(pair(proto="simple")) == ["did you mean Simple? there are Simple, LL and LL128"]
    assert helped(pair(coll="all_reduce"))[0].startswith("did you mean allreduce? there are allreduce, ")
    assert only(pair(coll="all_reduce"))[3] == 'coll="all_reduce" is not a collective'
    assert only(pair(proto="LL256"))[3] == 'proto="LL256" is not a protocol'


def test_names_that_are_none():
    assert only(pair(name="x" * 256)) == (
        "SL108", 1, f'name="{"x" * 256}"', f'name="{"x" * 36} ..." is not a name')
    assert only(pair(name="a\nb"))[3] == 'name="a\\nb" is not a name'
    assert loads(pair(name="x" * 255), "a.xml").name == "x" * 255


def test_ranks():
    assert only(pair(ranks=3)) == ("SL108", 1, 'ngpus="3"', 'ngpus="3", but there are 2 <gpu>, and none for rank 2')
    assert only(pair(ranks=1)) == ("SL108", 8, 'id="1"', 'id="1", but ngpus="1"')
    assert only(algo([], ranks=1))[3] == 'ngpus="1", but there are 0 <gpu>, and none for rank 0'
    assert only(algo([gpu(0), gpu(0)])) == ("SL108", 3, 'id="0"', "rank 0 is there already")
    assert only(algo([gpu(1), gpu(3)], ranks=4))[3] == 'ngpus="4", but there are 2 <gpu>, and none for rank 0'
    assert only(algo([gpu(0), gpu(2)])) == ("SL108", 3, 'id="2"', 'id="2", but ngpus="2"')
    assert only(algo([gpu(0)], ranks=2))[3] == 'ngpus="2", but there is one <gpu>, and none for rank 1'


def test_blocks():
    assert only(algo([gpu(0, [block(0), block(2)])])) == ("SL108", 4, 'id="2"', "rank 0 has a block 2, but no block 1")
    assert only(algo([gpu(0), gpu(1, [block(1)])])) == ("SL108", 4, 'id="1"', "rank 1 has a block 1, but no block 0")
    assert only(algo([gpu(0, [block(0)]), gpu(1, [block(1), block(0), block(1)])])) == (
        "SL108", 8, 'id="1"', "block 1 of rank 1 is there already")
    assert wrong(algo([gpu(0, [block(0), block(0), block(5)])])) == [
        ("SL108", 4, 'id="0"', "block 0 of rank 0 is there already"),
        ("SL108", 5, 'id="5"', "rank 0 has a block 5, but no block 1")]


def test_steps():
    steps = [step("cpy", s=s) for s in (0, 1, 3, 3)]
    assert only(algo([gpu(0, [block(0), block(1, steps)])])) == (
        "SL108", 7, 's="3"', 's="3", but this is step 2 of block 1 of rank 0')
    assert only(algo([gpu(0, [block(0, [step("cpy", s=1)])])]))[3] == 's="1", but this is step 0 of block 0 of rank 0'


def test_peers():
    assert only(pair().replace('send="1"', 'send="2"')) == ("SL108", 3, 'send="2"', 'send="2", but ngpus="2"')
    assert only(pair().replace('recv="1"', 'recv="0"')) == (
        "SL108", 3, 'recv="0"', 'recv="0", but that is this rank itself')
    assert only(algo([gpu(0, [block(0, recv=1_000_000_000)])]))[3] == 'recv="1000000000", but ngpus="1"'


def test_one_block_at_each_end_of_a_connection():
    written = algo([gpu(0, [block(0, send=1), block(1, send=1, chan=1), block(2, send=1), block(3, recv=1)]),
                    gpu(1, [block(0, recv=0), block(1, recv=0, chan=1), block(2, recv=0, send=0, chan=1)])])
    assert wrong(written) == [
        ("SL108", 5, 'send="1"', "block 2 of rank 0 sends to rank 1 on channel 0, as another block does"),
        ("SL108", 11, 'recv="0"', "block 2 of rank 1 receives from rank 0 on channel 1, as another block does")]
    with pytest.raises(SchedError) as failure:
        loads(written, "a.xml")
    told = failure.value.diagnostics[0].notes[0]
    assert (told.message, told.location.line, told.location.text) == ("block 0 of rank 0 does, too", 3, 'send="1"')


@pytest.mark.parametrize("kind, name", [
    *((kind, "send") for kind in ("s", "rcs", "rrs", "rrcs")),
    *((kind, "recv") for kind in ("r", "rcs", "rrc", "rrs", "rrcs"))])
def test_a_step_without_its_peer(kind, name):
    peers = {"send": 1, "recv": 1, name: -1}
    does = "sends to" if name == "send" else "receives from"
    code, line, place, message = only(algo([gpu(0, [block(0, [step(kind, dst=("i", 0))], **peers)]), gpu(1)]))
    assert (code, line, place) == ("SL108", 4, f'type="{kind}"')
    assert message == f'a step of type {kind} {does} a peer, but block 0 of rank 0 has {name}="-1"'


@pytest.mark.parametrize("kind", ["cpy", "re"])
def test_a_local_step_needs_no_peer(kind):
    loads(algo([gpu(0, [block(0, [step(kind)])])]), "a.xml")


def test_counts():
    assert only(pair().replace('cnt="1"', 'cnt="0"', 1)) == ("SL108", 4, 'cnt="0"', 'cnt="0" in a step of type s')


def test_dependencies():
    blocks = [block(0, [step("cpy", dep=(2, 0))]), block(1, [step("cpy", dep=(0, 1))])]
    assert wrong(algo([gpu(0), gpu(1, blocks)])) == [
        ("SL108", 5, 'depid="2"', 'depid="2", but rank 1 has the blocks 0 to 1 only'),
        ("SL108", 8, 'deps="1"', 'deps="1", but block 0 of rank 1 has one step only, 0')]
    assert only(algo([gpu(0, [block(0, [step("cpy", dep=(1, 0))])])]))[3] == (
        'depid="1", but rank 0 has one block only, 0')
    assert only(algo([gpu(0, [block(0, [step("cpy", dep=(1, 0))]), block(1)])]))[3] == (
        'deps="0", but block 1 of rank 0 has no step')
    assert only(algo([gpu(0, [block(0, [step("cpy", dep=(1, -1))]), block(1)])]))[3] == (
        'deps="-1", but block 1 of rank 0 has no step')
    two = [block(0, [step("cpy", dep=(1, 2))]), block(1, [step("cpy"), step("cpy")])]
    assert only(algo([gpu(0, two)]))[3] == 'deps="2", but block 1 of rank 0 has the steps 0 to 1 only'


# Buffers -------------------------------------------------------------------------------------------------------------

READS = {"s", "cpy", "re", "rrc", "rrs", "rrcs"}
WRITES = {"r", "cpy", "re", "rcs", "rrc", "rrcs"}


@pytest.mark.parametrize("kind", [k.name.lower() for k in Kind])
def test_only_fields_that_a_kind_uses_are_bounded(kind):
    def one(src: int, dst: int, cnt: int) -> str:
        return algo([gpu(0, [block(0, [step(kind, ("i", src), ("o", dst), cnt)], send=1, recv=1)]), gpu(1)], chunks=4)

    loads(one(2, 2, 2), "a.xml")
    for src, dst, used, name in ((3, 2, READS, "srcoff"), (-1, 2, READS, "srcoff"), (2, 3, WRITES, "dstoff"),
                                 (2, -1, WRITES, "dstoff")):
        if kind in used:
            off = src if name == "srcoff" else dst
            space = "input" if name == "srcoff" else "output"
            said = f"chunks {off} to {off + 1} of the {space} of rank 0, which has 4 chunks"
            assert only(one(src, dst, 2)) == ("SL221", 4, f'{name}="{off}"', said)
        else:
            loads(one(src, dst, 2), "a.xml")


@pytest.mark.parametrize("coll, chunks, input, output", [
    ("allreduce", 4, 4, 4), ("reduce", 4, 4, 4), ("broadcast", 4, 4, 4), ("alltoall", 4, 4, 4), ("allgather", 4, 2, 4),
    ("reduce_scatter", 4, 4, 2), ("reducescatter", 4, 4, 2), ("allgather", 5, 3, 5), ("custom", 4, 4, 4),
    ("gather", 4, 8, 8)])
@pytest.mark.parametrize("declared", [0, 1000])
def test_sizes_of_buffers(coll, chunks, input, output, declared):
    """What is not declared, or declared too large, has what the collective gives it."""
    if declared and coll in ("custom", "gather"):
        input = output = declared

    def one(space: str, offset: int) -> str:
        return algo([gpu(0, [block(0, [step("cpy", (space, offset), ("s", 0))])], i=declared, o=declared, s=1), gpu(1)],
                    chunks=chunks, coll=coll)

    for space, size in (("i", input), ("o", output)):
        loads(one(space, size - 1), "a.xml")
        assert only(one(space, size))[0] == "SL221"


def test_what_others_declare_bounds_a_collective_that_is_not_known():
    def one(offset: int) -> str:
        return algo([gpu(0, [block(0, [step("cpy", ("i", offset), ("o", 0))])], i=0), gpu(1, i=6)], chunks=4,
                    coll="custom")

    loads(one(5), "a.xml")
    assert only(one(6))[3] == "chunk 6 of the input of rank 0, which has 6 chunks"


def test_what_is_declared_bounds():
    def one(space: str, offset: int) -> str:
        return algo([gpu(0, [block(0, [step("cpy", (space, offset), (space, 0))])], i=2, o=3, s=5), gpu(1, s=9)],
                    chunks=4)

    for space, size in (("i", 2), ("o", 3), ("s", 5)):
        loads(one(space, size - 1), "a.xml")
        assert only(one(space, size))[3].endswith(f"which has {size} chunks")
    assert only(algo([gpu(0, [block(0, [step("cpy", ("s", 0))])])]))[3] == (
        "chunk 0 of the scratch of rank 0, which has none")


def test_copies_stay_inside():
    assert only(algo([gpu(0, [copy(2, 0)]), gpu(1)], chunks=4, coll="allgather")) == (
        "SL221", 3, 'i_off="2"', "chunk 2 of the input of rank 0, which has 2 chunks")
    assert only(algo([gpu(0), gpu(1, [copy(0, 3, cnt=2)])], chunks=4)) == (
        "SL221", 4, 'o_off="3"', "chunks 3 to 4 of the output of rank 1, which has 4 chunks")
    assert only(algo([gpu(0, [copy(0, 0, cnt=0)])]))[3] == 'cnt="0" is too small; it can be 1 to 2147483647'
    assert only(algo([gpu(0, [copy("x", 0)])]))[3] == 'i_off="x" is not a whole number'


def test_counts_and_offsets_that_overflow():
    big = 2**31 - 1
    found = wrong(algo([gpu(0, [block(0, [step("cpy", ("i", big), ("o", 0), cnt=big)])])]))
    assert [f[0] for f in found] == ["SL221", "SL221"]
    assert found[0][3] == f"chunks {big} to {2 * big - 1} of the input of rank 0, which has one chunk"


def test_a_world_too_large_to_follow():
    gpus = [gpu(r, i=1 << 16, o=1 << 16, s=1 << 16) for r in range(86)]
    code, line, place, message = only(algo(gpus, chunks=1 << 16))
    assert (code, line, place) == ("SL208", 1, 'nchunksperloop="65536"')
    assert message.startswith("the buffers of the 86 ranks have 16,908,288 chunks")
    assert loads(algo(gpus[:85], chunks=1 << 16), "a.xml").ranks == 85


def test_more_chunks_moved_than_can_be_followed():
    """As many as there may be, by receives, copies and the copies of the oldest dialect; then one more."""
    half = 1 << 15

    def moving(*more: str) -> str:
        steps = [step("cpy", ("i", 0), ("s", 0), cnt=half - (s == 0)) for s in range(256)]
        sends = [step("s", ("i", 0), cnt=half) for _ in range(256)]
        takes = [step("r", dst=("s", 0), cnt=half) for _ in range(256)]
        return algo([gpu(0, [block(0, [*steps, *more]), block(1, sends, send=1)], i=half, o=1, s=half),
                     gpu(1, [copy(0, 0), block(0, takes, recv=0)], i=half, o=1, s=half)], chunks=half, coll="custom")

    loads(moving(), "a.xml")
    loads(moving(step("nop")), "a.xml")
    code, line, place, message = only(moving(step("re", ("i", 0), ("s", 0))))
    assert (code, line, place) == ("SL208", 1, 'nchunksperloop="32768"')
    assert message == "the steps receive or copy 16,777,217 chunks in all, more than 16,777,216"


def test_findings_are_no_flood():
    """Each rule at three places, the last of which counts the rest; twenty in all."""
    steps = [step("cpy", ("i", 5), ("o", 9), cnt=0 if s == 7 else 1) for s in range(50)]
    with pytest.raises(SchedError) as failure:
        loads(algo([gpu(0, [block(0, [*steps[:7], *steps[8:]])])]), "a.xml")
    assert [d.count for d in failure.value.diagnostics] == [1, 1, 47, 1, 1, 47]
    bad = re.sub(r'(?<=<step ).*(?=/>)', lambda words: re.sub('"[^"]*"', '"x"', words[0]), algo(
        [gpu(0, [block(0, steps)])]))
    assert len(wrong(bad)) == 20


# Not XML, or not MSCCL -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written, place, said", [
    ("", (1, 1), "the file is empty"), ("\ufeff \r\n", (1, 1), "the file is empty"),
    ('{"a": 1}', (1, 1), "this is not XML: it should begin with <"),
    ("<algo", (1, 1), 'this is not XML: unclosed token at "<"'),
    ("<algo>\n<gpu>", (2, 6), "this is not XML: no element found"),
    ("<algo>\n  <gpu></tb></algo>", (2, 8), 'this is not XML: mismatched tag, "</tb>"'),
    ('<algo name="a"\n name="b"/>', (2, 2), 'this is not XML: duplicate attribute at "n"'),
    ("<algo name=a/>", (1, 12), 'this is not XML: not well-formed (invalid token) at "a"'),
    ("<algo>&lol;</algo>", (1, 7), 'this is not XML: undefined entity at "&"'),
    ("<algo/>\n<algo/>", (2, 1), 'this is not XML: junk after document element at "<"'),
    ("<algo>\0</algo>", (1, 7), 'this is not XML: not well-formed (invalid token) at "\\x00"'),
    ('<algo ünï="𝄞">\n<!-- 𝄞 --> & </algo>', (2, 13), "this is not XML: not well-formed (invalid token)"),
    ("<algo>\ud800</algo>", (1, 7), 'this is not XML: not well-formed (invalid token) at "\\ud800"'),
    ('\n<system version="1"><cpu/></system>', (2, 1),
     "this is XML, but not an MSCCL file: its outermost element is <system>, not <algo>"),
    (f"<{'x' * 99}/>", (1, 1),
     f"this is XML, but not an MSCCL file: its outermost element is <{'x' * 36} ...>, not <algo>"),
    ("<algo>" * 2, (1, 13), "this is not XML: no element found"),
])
def test_what_is_no_msccl(written, place, said):
    with pytest.raises(SchedError) as failure:
        loads(written, "a.xml")
    (found,) = failure.value.diagnostics
    assert (found.code, found.location.line, found.location.column, found.message) == ("SL108", *place, said)
    assert found.help


def test_a_cut_file_is_told_to_be_cut():
    written = pair()
    for end in range(len(written) - 1):
        found = wrong(written[:end])
        assert len(found) == 1 and found[0][0] == "SL108"
    assert loads(written[:-1], "a.xml")


def test_elements_where_nobody_reads_them():
    assert wrong(pair().replace("</gpu>", '<step s="0"/></gpu>', 1)) == [
        ("SL108", 7, "<step", "<step> stands in <gpu>, where nobody reads it")]
    assert only(pair().replace("</algo>", "<tb/></algo>")) == (
        "SL108", 16, "<tb/>", "<tb> stands in <algo>, where nobody reads it")


# Hostile files -------------------------------------------------------------------------------------------------------


def quickly(written: str) -> list[tuple[str, int, str, str]]:
    start = time.process_time()
    found = wrong(written)
    assert time.process_time() - start < 5 and len(found) <= 20
    return found


def test_entities_do_not_grow():
    laughs = "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 12))
    found = quickly(f'<?xml version="1.0"?>\n<!DOCTYPE algo [<!ENTITY a0 "ha">{laughs}]>\n<algo n="&a11;">&a11;</algo>')
    assert found == [("SL108", 2, "<!DOCTYPE", "a DOCTYPE is not read: the entities that it can declare may grow "
                      "without end")]


def test_nothing_is_fetched(tmp_path):
    (tmp_path / "secret").write_text("hidden")
    for declared in (f'SYSTEM "{tmp_path}/secret"', f'[<!ENTITY x SYSTEM "file://{tmp_path}/secret">]',
                     '[<!ENTITY % x "y"> %x;]'):
        assert "DOCTYPE" in quickly(f"<!DOCTYPE algo {declared}><algo>&x;</algo>")[0][3]


def test_deep_nesting():
    assert quickly("<algo>" + "<x>" * 100_000 + "</x>" * 100_000 + "</algo>")[0][3] == "elements nest deeper than 100"
    assert quickly("<algo>" * 100_000)[0][3] == "elements nest deeper than 100"
    assert loads(pair().replace("</gpu>", "<x>" * 90 + "</x>" * 90 + "</gpu>", 1), "a.xml").remarks


def test_many_attributes():
    many = " ".join(f'a{i}=""' for i in range(50_000))
    assert quickly(f"<algo {many}/>")[0][3] == "<algo> has 50,000 attributes"


def test_a_huge_value():
    found = quickly(pair().replace('cnt="1"', f'cnt="{"9" * 5_000_000}"'))
    assert found[0][3] == f'cnt="{"9" * 36} ..." is too long a number'


def test_many_elements_beyond_ascii():
    """Places are worked out once for all of them."""
    odd = "<x ü='1'/>" * 100_000
    plan = loads(pair().replace("</gpu>", odd + "</gpu>", 1), "a.xml")
    assert plan.remarks[0].message.endswith("(100,000 times)")
    found = quickly(pair().replace("</algo>", "<!-- ü -->" + "<step/>" * 100_000 + "</algo>"))
    assert len(found) == 20


@pytest.mark.parametrize("name", [
    "nchunksperloop", "ngpus", "i_chunks", "s_chunks", "id", "send", "chan", "s", "srcoff", "dstoff", "cnt", "depid",
    "deps"])
def test_a_billion(name):
    for value in ("1000000000", "2147483647", "-2147483648", "9223372036854775807"):
        written = re.sub(rf' {name}="[^"]*"', f' {name}="{value}"', pair(), count=1)
        start = time.process_time()
        try:
            plan = loads(written, "a.xml")
        except SchedError as failure:
            assert failure.diagnostics
        else:
            assert name in ("chan", "dstoff", "deps") and isinstance(plan, Plan)
        assert time.process_time() - start < 1


# Files ---------------------------------------------------------------------------------------------------------------


def unreadable(path) -> str:
    with pytest.raises(SchedError) as failure:
        read(str(path))
    (found,) = failure.value.diagnostics
    assert found.code == "SL105"
    return found.message.removeprefix(f"cannot read {path}: ").removeprefix(f"cannot unpack {path}: ")


def test_packed_or_not_whatever_the_name(tmp_path):
    plan = loads(pair(), "a.xml")
    for name, data in (("a.xml", pair().encode()), ("a.gz", pair().encode()), ("b.xml", gzip.compress(pair().encode())),
                       ("c", gzip.compress(pair()[:99].encode()) + gzip.compress(pair()[99:].encode()) + bytes(512))):
        (tmp_path / name).write_bytes(data)
        found = read(str(tmp_path / name))
        assert same(plan, found) and found.source.path == str(tmp_path / name) and found.source.text == pair()


@pytest.mark.parametrize("encoding, declared", [
    ("utf-8", None), ("utf-8-sig", None), ("utf-8", "UTF-8"), ("latin-1", "ISO-8859-1"), ("cp1252", "windows-1252"),
    ("utf-16", None), ("utf-16", "UTF-16"), ("utf-16-le", None), ("utf-16-be", "UTF-16")])
def test_encodings(tmp_path, encoding, declared):
    written = (f"<?xml version='1.0' encoding='{declared}'?>\n" if declared else "") + pair(name="größer")
    (tmp_path / "a.xml").write_bytes(written.encode(encoding))
    plan = read(str(tmp_path / "a.xml"))
    assert plan.name == "größer"
    assert plan.source.text.removeprefix("\ufeff") == written
    assert plan.source.text.startswith("\ufeff") == (encoding == "utf-8-sig")       # what runtimes stumble over is kept
    assert plan.span(int(plan.step_at[0])).text.startswith("<step ")


def test_encodings_that_are_not_known(tmp_path):
    path = tmp_path / "a.xml"
    for name in ("EBCDIC-US", "zip", "UTF-16", "utf-7"):
        path.write_bytes(f"<?xml version='1.0' encoding='{name}'?>{pair()}".encode())
        assert f"says that its encoding is {name}, which it is not, or which is not known here" in unreadable(path)
    path.write_bytes(pair(name="größer").encode("latin-1"))
    assert unreadable(path) == f"{path} is not UTF-8 text: line 1 has the byte 0xf6"
    path.write_bytes(b"\xff\xfe<")
    assert "is not UTF-16 text" in unreadable(path)


def test_broken_packing(tmp_path):
    path, data = tmp_path / "a.xml.gz", gzip.compress(pair().encode())
    path.write_bytes(data[:-3])
    assert unreadable(path) == "it ends too early"
    path.write_bytes(data[:2])
    assert unreadable(path) == "it ends too early"
    path.write_bytes(data[:20] + b"\xff\xff\xff" + data[23:])
    assert unreadable(path)
    path.write_bytes(data[:-8] + bytes(4) + data[-4:])
    assert unreadable(path) == "incorrect data check"
    path.write_bytes(data + b"more")
    assert "another file stands behind the first one" in unreadable(path)
    path.write_bytes(gzip.compress(b""))
    with pytest.raises(SchedError, match="the file is empty"):
        read(str(path))


def test_a_bomb_is_noticed_while_it_unpacks(tmp_path, monkeypatch):
    from schedlang.msccl import unpack

    monkeypatch.setattr(unpack, "LIMIT", 1 << 20)
    path = tmp_path / "a.xml.gz"
    path.write_bytes(gzip.compress(b"<algo>" + b" " * (50 << 20)))
    assert unreadable(path) == "unpacked it has more than 1 MiB"
    path.write_bytes(gzip.compress(b"<algo>" + b" " * (1 << 19)) * 3)
    assert unreadable(path) == "unpacked it has more than 1 MiB"
    path.write_bytes(b" " * ((1 << 20) + 1))
    assert unreadable(path) == "it has more than 1 MiB"
    monkeypatch.setattr(unpack, "_MEMBERS", 100)
    path.write_bytes(gzip.compress(b"") * 101)
    assert unreadable(path) == "it consists of more than 100 pieces"


def test_what_cannot_be_read(tmp_path):
    assert unreadable(tmp_path / "none.xml") == "No such file or directory"
    assert unreadable(tmp_path) == "Is a directory"


# Round trips and damage ----------------------------------------------------------------------------------------------


def test_a_plan_written_and_read():
    plan = loads(algo([
        gpu(0, [copy(0, 1), copy(1, 0, cnt=1), block(0, [step("s", ("i", 1), hasdep=1), nop((1, 0))], send=1, chan=3),
                block(1, [step("cpy", ("i", 0), ("s", 3), hasdep=1)])], s=4),
        gpu(1, [block(0, [step("rrcs", ("i", 0), ("o", 0))], recv=0, send=0, chan=3)]),
    ], chunks=2, name="a \"b\" & <c>", outofplace=None, redop="prod", root=1, proto="Simple"), "a.xml")
    again = loads(text(plan), "b.xml")
    assert same(plan, again) and again.source.path == "b.xml"
    assert not same(plan, loads(text(plan).replace('hasdep="1"', 'hasdep="0"', 1), "b.xml"))


@real
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.partition(".")[0])
def test_real_files(path):
    plan = read(str(path))
    assert len(plan.s) == gzip.decompress(path.read_bytes()).count(b"<step ")
    assert {d.message.split()[0] for d in plan.remarks} <= {"maxcount", "nthreadblocks"}
    assert same(plan, loads(text(plan), "again.xml"))


@real
def test_speed():
    """The large one, 12,000 steps, is read in a few hundredths of a second."""
    path = next(p for p in FILES if p.name.startswith("all-reduce-ring"))
    read(str(path))
    start = time.process_time()
    read(str(path))
    assert time.process_time() - start < 0.5        # on busy machines, too


@given(st.one_of(st.binary(max_size=400), st.text(max_size=200).map(lambda t: t.encode("utf-8", "replace"))))
@settings(max_examples=60, deadline=None)
def test_any_bytes(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "any.xml"
    for written in (data, b"\x1f\x8b\x08" + data, gzip.compress(data), b"<algo>" + data):
        path.write_bytes(written)
        try:
            read(str(path))
        except SchedError as failure:
            assert failure.diagnostics and str(failure)


WORDS = ["-1", "0", "1", "2", "3", "99999999999", "x", "", "s", "r", "rrc", "nop", "i", "o"]
TAGS = ["<gpu>", "</gpu>", "<tb/>", "<step/>", "<copy i_off='0' o_off='0'/>", "<x>", "<!--", "-->", "<![CDATA[", "]]>",
        "&", "<", '"']


@given(st.randoms(use_true_random=False), st.integers(1, 6))
@settings(max_examples=300, deadline=None)
def test_damaged_files(rng: random.Random, faults):
    written = pair(chunks=2)
    for _ in range(faults):
        values = list(re.finditer(r'"[^"<]*"', written))
        lines = written.splitlines()
        match rng.randrange(6):
            case 0 | 1 if values:
                value = rng.choice(values)
                written = f'{written[: value.start()]}"{rng.choice(WORDS)}"{written[value.end():]}'
            case 2:
                at = rng.randrange(len(written) + 1)
                written = written[:at] + rng.choice(TAGS) + written[at:]
            case 3:
                at = rng.randrange(len(written) + 1)
                written = written[:at] + written[at + rng.randrange(20) :]
            case 4 if lines:
                lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
                written = "\n".join(lines)
            case 5 if lines:
                del lines[rng.randrange(len(lines))]
                written = "\n".join(lines)
    try:
        plan = loads(written, "a.xml")
    except SchedError as failure:
        assert 0 < len(failure.diagnostics) <= 20
        assert all(d.code in ("SL108", "SL221") and d.help and d.location.line >= 1 for d in failure.diagnostics)
        assert str(failure)
    else:
        assert same(plan, loads(text(plan), "b.xml"))
