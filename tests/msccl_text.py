"""MSCCL XML as text, for tests: built from parts, or written from a plan.

Every attribute of an element can be given by its name in the format, also a wrong one; None leaves it out::

    algo(ranks=2, coll="allreduce", gpus=[
        gpu(0, [block(0, send=1, steps=[step("s", src=("i", 0))])]),
        gpu(1, [block(0, recv=0, steps=[step("rrc", src=("i", 0), dst=("i", 0), hasdep=1)])]),
    ])
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from xml.sax.saxutils import escape

import numpy as np

from schedlang.msccl.plan import Kind, Plan, Space

Value = str | int | None
LETTERS = {Space.INPUT: "i", Space.OUTPUT: "o", Space.SCRATCH: "s"}


@dataclass
class Element:
    """A tag, its attributes in order, what is in it."""

    tag: str
    attributes: dict[str, Value]
    content: list[Element] = field(default_factory=list)

    def lines(self, margin: str = "") -> Iterable[str]:
        """The text, a line a tag, as the usual writers lay it out."""
        quoted = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
        words = "".join(f' {name}="{escape(str(value), quoted)}"'
                        for name, value in self.attributes.items() if value is not None)
        if not self.content:
            yield f"{margin}<{self.tag}{words}/>"
            return
        yield f"{margin}<{self.tag}{words}>"
        for inner in self.content:
            yield from inner.lines(margin + "  ")
        yield f"{margin}</{self.tag}>"

    def __str__(self) -> str:
        return "\n".join(self.lines()) + "\n"


def step(kind: str, src: tuple[str, int] = ("i", 0), dst: tuple[str, int] = ("o", 0), cnt: int = 1, *,
         dep: tuple[int, int] | None = None, hasdep: Value = 0, **attributes: Value) -> Element:
    """A step; ``dep``: the block and step that it waits for. Its number is its position in the block, unless ``s``."""
    depid, deps = dep or (-1, -1)
    return Element("step", {"s": None, "type": kind, "srcbuf": src[0], "srcoff": src[1], "dstbuf": dst[0],
                            "dstoff": dst[1], "cnt": cnt, "depid": depid, "deps": deps, "hasdep": hasdep, **attributes})


def nop(dep: tuple[int, int], hasdep: Value = 0, **attributes: Value) -> Element:
    """A step that only waits, as MSCCL's compiler writes it."""
    return step("nop", ("i", -1), ("o", -1), 0, dep=dep, hasdep=hasdep, **attributes)


def block(id: int, steps: Sequence[Element] = (), *, send: int = -1, recv: int = -1, chan: int = 0,
          **attributes: Value) -> Element:
    """A thread block."""
    for number, inner in enumerate(steps):
        if inner.tag == "step" and inner.attributes["s"] is None and "s" not in attributes:
            inner.attributes["s"] = number
    return Element("tb", {"id": id, "send": send, "recv": recv, "chan": chan, **attributes}, list(steps))


def gpu(id: int, blocks: Sequence[Element] = (), *, i: Value = "auto", o: Value = "auto", s: Value = 0,
        **attributes: Value) -> Element:
    """A rank; ``i``, ``o``, ``s``: chunks of its buffers, of input and output what the collective gives them."""
    return Element("gpu", {"id": id, "i_chunks": i, "o_chunks": o, "s_chunks": s, **attributes}, list(blocks))


def copy(i_off: int, o_off: int, **attributes: Value) -> Element:
    """The oldest dialect's copy from input to output, which stands under a gpu."""
    return Element("copy", {"i_off": i_off, "o_off": o_off, **attributes})


def algo(gpus: Sequence[Element], *, ranks: int | None = None, chunks: int = 1, coll: str = "allreduce",
         proto: str = "LL", name: str = "test", inplace: Value = 1, outofplace: Value = 0, **attributes: Value) -> str:
    """The text of a file. ``ranks`` is the number of gpus unless it is given."""
    ranks = len(gpus) if ranks is None else ranks
    channels = [inner.attributes.get("chan") for one in gpus for inner in one.content if inner.tag == "tb"]
    short = chunks // max(ranks, 1)
    auto = {"i_chunks": short if coll in ("allgather", "gather") else chunks,
            "o_chunks": short if coll in ("reduce_scatter", "reducescatter", "scatter") else chunks}
    for one in gpus:
        one.attributes.update({key: value for key, value in auto.items() if one.attributes.get(key) == "auto"})
    return str(Element("algo", {
        "name": name, "proto": proto, "nchannels": 1 + max((c for c in channels if isinstance(c, int)), default=0),
        "nchunksperloop": chunks, "ngpus": ranks, "coll": coll, "inplace": inplace, "outofplace": outofplace,
        "minBytes": 0, "maxBytes": 0, **attributes}, list(gpus)))


def text(plan: Plan) -> str:
    """A plan as XML; reading it gives the plan again, but for places (see :func:`same`)."""
    ranks = [Element("gpu", {"id": rank, "i_chunks": i, "o_chunks": o, "s_chunks": s}) for rank, (i, o, s) in
             enumerate(zip(plan.i_chunks.tolist(), plan.o_chunks.tolist(), plan.s_chunks.tolist(), strict=True))]
    for rank, i, o, cnt in _rows(plan, "copy_rank", "copy_input", "copy_output", "copy_count"):
        ranks[rank].content.append(copy(i, o, cnt=cnt))
    blocks = []
    for rank, id, send, recv, chan in _rows(plan, "block_rank", "block_id", "send", "recv", "chan"):
        blocks.append(block(id, send=send, recv=recv, chan=chan))
        ranks[rank].content.append(blocks[-1])
    for where, s, kind, a, i, b, o, cnt, depid, deps, hasdep in _rows(
            plan, "block", "s", "kind", "src_space", "src_offset", "dst_space", "dst_offset", "count", "dep_block",
            "dep_step", "has_dep"):
        blocks[where].content.append(step(
            Kind(kind).name.lower(), (LETTERS[Space(a)], i), (LETTERS[Space(b)], o), cnt, dep=(depid, deps),
            hasdep=int(hasdep), s=s))
    return str(Element("algo", _attributes(plan), list(ranks)))


def _attributes(plan: Plan) -> dict[str, Value]:
    return {**_others(plan), **_fields(plan)}


def _fields(plan: Plan) -> Mapping[str, Value]:
    return {"name": plan.name, "proto": plan.proto, "nchannels": plan.channels, "nchunksperloop": plan.chunks,
            "ngpus": plan.ranks, "coll": plan.coll, "inplace": int(plan.inplace),
            "outofplace": None if plan.outofplace is None else int(plan.outofplace), "minBytes": plan.min_bytes,
            "maxBytes": plan.max_bytes, "redop": plan.redop}


def _others(plan: Plan) -> Mapping[str, Value]:
    """The attributes that are no field of the plan."""
    fields = _fields(plan)
    return {key: value for key, value in plan.attributes.items() if key not in fields}


def _rows(plan: Plan, *columns: str) -> Iterable[tuple[int, ...]]:
    return zip(*(getattr(plan, name).tolist() for name in columns), strict=True)


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans say the same, wherever and however it is written."""
    left_out = ("source", "attributes", "remarks")
    names = [f.name for f in fields(Plan) if f.name not in left_out and not f.name.endswith("at")]
    return _others(a) == _others(b) and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in names)
