"""The machine that MSCCL files are judged by: what it says of small files that people can judge, and that the
comparison notices where it and the verifier differ."""

import pytest

from tests import msccl_machine
from tests.msccl_bases import BASES, ring_allreduce
from tests.msccl_campaign import judge, shrink
from tests.msccl_machine import Illegal, finishes, read
from tests.msccl_text import algo, block, copy, gpu, nop, step


def outcome(text, inplace=True):
    return msccl_machine.judge(read(text), inplace)


def exchange(first=(), second=(), *, kinds=("s", "rrc"), cnt=(1, 1), chunks=1, coll="allreduce", proto="LL", **rest):
    """Each of two ranks sends its data[0] to the other, in one block, and receives in another; ``first`` and
    ``second`` are attributes of these steps on both ranks."""
    def rank(r):
        return gpu(r, [block(0, [step(kinds[0], ("i", 0), ("i", 0), cnt[0], **dict(first))], send=1 - r),
                       block(1, [step(kinds[1], ("i", 0), ("o", 0), cnt[1], **dict(second))], recv=1 - r)])
    return algo([rank(0), rank(1)], chunks=chunks, coll=coll, proto=proto, **rest)


WAITS, TELLS = {"dep": (0, 0)}, {"hasdep": 1}


@pytest.mark.parametrize("text, word", [
    (exchange(TELLS, WAITS), "clean"),
    (exchange(), "races"),                                      # what is sent may be the sum
    (exchange((), WAITS), "never"),
    (exchange(TELLS, WAITS, kinds=("s", "r")), "wrong"),
    (exchange(TELLS, WAITS, cnt=(1, 2), chunks=2), "mismatched"),
    (exchange(TELLS, WAITS, kinds=("s", "cpy")), "unmatched"),
    (exchange({"hasdep": 1, "dep": (1, 0)}, {"hasdep": 1, "dep": (0, 0)}), "hangs"),
    (exchange(TELLS, WAITS, cnt=(1, 1), chunks=2, coll="broadcast"), "uninitialised"),
    (algo([gpu(0, [block(0, [step("cpy", ("i", 0), ("i", 1), 2)])])], chunks=3), "overlaps"),
    (algo([gpu(0, [block(0, [nop((0, 0), hasdep=1)])])]), "never"),     # a nop tells nothing
    (algo([gpu(0, [block(0, [nop((0, 0)), step("cpy", ("i", 0), ("o", 0), hasdep=1)])])]), "hangs"),
], ids=["clean", "race", "never", "wrong", "sizes", "unmatched", "circle", "unwritten", "overlap", "nop", "itself"])
def test_small_files(text, word):
    assert outcome(text).word == word


def test_depth():
    """A ring of fused steps needs two messages in flight, and pieces take a slot each."""
    ring = read(ring_allreduce(3, cnt=3))
    assert [finishes(ring, depth) for depth in (1, 2, None)] == [False, True, True]
    assert [finishes(ring, depth, pieces=True) for depth in (1, 3, 4)] == [False, False, True]
    assert outcome(ring_allreduce(3, cnt=3)).least == (2, 4)
    assert outcome(ring_allreduce(3, cnt=3, proto="Simple")).hangs


def test_agreement():
    """Three ranks that each add what the others send, in the order of the others."""
    def rank(r):
        a, b = (p for p in range(3) if p != r)
        sends = [block(k, [step("s", ("i", 0), ("o", 0))], send=p) for k, p in enumerate((a, b))]
        adds = [block(2, [step("rrc", ("i", 0), ("o", 0), hasdep=1)], recv=a),
                block(3, [step("rrc", ("o", 0), ("o", 0), dep=(2, 0))], recv=b)]
        return gpu(r, sends + adds)

    found = outcome(algo([rank(r) for r in range(3)], inplace=0, outofplace=1), inplace=False)
    assert (found.word, found.agreement) == ("clean", False)    # (0+1)+2, (1+0)+2, (2+0)+1
    assert outcome(BASES["pairs"]()).agreement is True


def test_copies_come_first():
    text = algo([gpu(0, [block(0, [step("cpy", ("i", 1), ("o", 1))]), copy(0, 0)])], chunks=2, inplace=0, outofplace=1)
    assert outcome(text, inplace=False).word == "clean"
    assert outcome(text.replace('o_off="0"', 'o_off="1"'), inplace=False).word == "wrong"


@pytest.mark.parametrize("text", [
    "", "<algo/>", exchange().replace('s="0"', 's="1"'), exchange().replace('type="rrc"', 'type="add"'),
    exchange().replace('id="1" i_chunks', 'id="2" i_chunks'), exchange(cnt=(2, 2)), exchange(cnt=(0, 0)),
    exchange((), {"dep": (2, 0)}), exchange((), {"dep": (0, 1)}), exchange().replace('recv="1"', 'recv="-1"'),
    exchange(coll="alltoall", chunks=3), exchange(inplace=0),
    algo([gpu(0, [block(0, send=1), block(1, send=1)]), gpu(1)]),
], ids=str)
def test_illegal_files(text):
    with pytest.raises(Illegal):
        read(text)


@pytest.mark.parametrize("base, part, wrong", [
    ("ring", "DEPTH", {"Simple": 1, "LL": 1, "LL128": 1}),
    ("pairs", "_join", lambda clock, other: None),
    ("allgather", "BLOCKED", ()),
    ("reduce", "READS", msccl_machine.READS - {"rrcs"}),
    ("tree", "_least", lambda file, pieces: 3),
    ("pairs out of place", "_never", lambda file: True),
])
def test_where_they_differ_it_is_noticed(base, part, wrong, monkeypatch):
    text = BASES[base]()
    assert judge(text, 1).disagreement is None
    monkeypatch.setattr(msccl_machine, part, wrong)
    assert judge(text, 1).disagreement is not None


def test_a_disagreement_is_made_small(monkeypatch):
    monkeypatch.setattr(msccl_machine, "_never", lambda file: True)
    small = shrink(BASES["ring"](), lambda text: judge(text, 1, models=()).disagreement is not None)
    assert "<step" not in small and "<tb" not in small
