"""Damaged MSCCL files: XML of any origin with one thing changed, as text."""

from __future__ import annotations

import random
from collections.abc import Callable
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

SENDS, RECEIVES = ("s", "rcs", "rrs", "rrcs"), ("r", "rcs", "rrc", "rrs", "rrcs")


class Draft:
    """A file taken apart. Whatever is moved, a dependency still means the step that it meant, unless that is gone or
    ``numbers`` is False: then it keeps its number, in so far as there is such a step."""

    def __init__(self, text: str, rng: random.Random, numbers: bool = True) -> None:
        self.algo, self.rng, self.numbers = ElementTree.fromstring(text), rng, numbers
        self.renumber = True
        self.gpus = self.algo.findall("gpu")
        self.aims: dict[Element, tuple[Element, Element]] = {}
        for gpu in self.gpus:
            blocks = gpu.findall("tb")
            for step in (s for tb in blocks for s in tb):
                block, number = int(step.get("depid", "-1")), int(step.get("deps", "-1"))
                if 0 <= block < len(blocks) and 0 <= number < len(blocks[block]):
                    self.aims[step] = blocks[block], blocks[block][number]

    def blocks(self) -> list[Element]:
        return [tb for gpu in self.gpus for tb in gpu.findall("tb")]

    def steps(self, where: Callable[[Element], bool] = lambda _: True) -> list[tuple[Element, Element]]:
        """(block, step) of all that are such."""
        return [(tb, step) for tb in self.blocks() for step in tb if where(step)]

    def step(self, where: Callable[[Element], bool] = lambda _: True) -> tuple[Element, Element] | None:
        """One of them."""
        found = self.steps(where)
        return self.rng.choice(found) if found else None

    def messages(self) -> list[tuple[tuple[Element, Element], tuple[Element, Element]]]:
        """The (block, step) that sends and the one that receives, of each message."""
        ends: dict[tuple[str, str, str], tuple[list[tuple[Element, Element]], list[tuple[Element, Element]]]] = {}
        for gpu in self.gpus:
            for tb in gpu.findall("tb"):
                for step in tb:
                    rank, chan = gpu.get("id", ""), tb.get("chan", "")
                    if step.get("type") in SENDS:
                        ends.setdefault((rank, tb.get("send", ""), chan), ([], []))[0].append((tb, step))
                    if step.get("type") in RECEIVES:
                        ends.setdefault((tb.get("recv", ""), rank, chan), ([], []))[1].append((tb, step))
        return [pair for sends, receives in ends.values() for pair in zip(sends, receives, strict=False)]

    def finish(self) -> str:
        """The text: steps are numbered anew, where ``renumber`` holds."""
        if self.renumber:
            for tb in self.blocks():
                for number, step in enumerate(tb):
                    step.set("s", str(number))
            for gpu in self.gpus:
                for step in (s for tb in gpu.findall("tb") for s in tb):
                    self._aim(gpu, step)
        ElementTree.indent(self.algo)
        return ElementTree.tostring(self.algo, encoding="unicode") + "\n"

    def _aim(self, gpu: Element, step: Element) -> None:
        if step not in self.aims:
            return
        block, aim = self.aims[step]
        blocks = gpu.findall("tb")
        if block not in blocks or not len(block):
            step.set("depid", "-1")
            step.set("deps", "-1")
            return
        step.set("depid", str(blocks.index(block)))
        inside = list(block)
        same = min(int(step.get("deps", "0")), len(block) - 1)
        step.set("deps", str(inside.index(aim) if self.numbers and aim in inside else same))


def mutate(text: str, kind: str, rng: random.Random) -> str | None:
    """The text with one change of a kind; None where there is nothing of the sort to change."""
    draft = Draft(text, rng, numbers=rng.random() < 0.7)
    draft.renumber = rng.random() < 0.95
    return draft.finish() if MUTATIONS[kind](draft) else None


# What can be changed ------------------------------------------------------------------------------------------------


def _drop_step(d: Draft) -> bool:
    found = d.step()
    if found is not None:
        found[0].remove(found[1])
    return found is not None


def _drop_message(d: Draft) -> bool:
    found = [m for m in d.messages() if m[0][1].get("type") == "s" and m[1][1].get("type") in ("r", "rrc")]
    for tb, step in d.rng.choice(found) if found else ():
        tb.remove(step)
    return bool(found)


def _swap_steps(d: Draft) -> bool:
    found = [tb for tb in d.blocks() if len(tb) > 1]
    if not found:
        return False
    tb = d.rng.choice(found)
    i, j = sorted(d.rng.sample(range(len(tb)), 2))
    if d.rng.random() < 0.6:
        j = i + 1
    tb[i], tb[j] = tb[j], tb[i]
    return True


def _repeat_step(d: Draft) -> bool:
    found = d.step()
    if found is None:
        return False
    tb, step = found
    again = Element("step", dict(step.attrib))
    if step in d.aims:
        d.aims[again] = d.aims[step]
    tb.insert(list(tb).index(step) + d.rng.choice([0, 1]), again)
    return True


def _offset(d: Draft) -> bool:
    found = d.step(lambda s: s.get("type") != "nop")
    if found is not None:
        which = d.rng.choice(("srcoff", "dstoff"))
        found[1].set(which, str(int(found[1].get(which, "0")) + d.rng.choice([-2, -1, 1, 1, 2])))
    return found is not None


def _count(d: Draft) -> bool:
    found = d.step(lambda s: s.get("type") != "nop")
    if found is not None:
        found[1].set("cnt", str(int(found[1].get("cnt", "1")) + d.rng.choice([-1, 1, 1, 2])))
    return found is not None


def _count_of_message(d: Draft) -> bool:
    found = d.messages()
    if not found:
        return False
    message, more = d.rng.choice(found), d.rng.choice([-1, 1, 1, 2])
    for step in {message[0][1], message[1][1]}:
        step.set("cnt", str(int(step.get("cnt", "1")) + more))
    return True


def _peer(d: Draft) -> bool:
    found = [(tb, end) for tb in d.blocks() for end in ("send", "recv") if tb.get(end) != "-1" or d.rng.random() < 0.1]
    if not found:
        return False
    tb, end = d.rng.choice(found)
    tb.set(end, str(d.rng.randrange(-1, len(d.gpus) + (d.rng.random() < 0.1))))
    return True


def _chan(d: Draft) -> bool:
    found = d.blocks()
    if not found:
        return False
    tb = d.rng.choice(found)
    tb.set("chan", str(max(0, int(tb.get("chan", "0")) + d.rng.choice([-1, 1, 7]))))
    return True


def _type(d: Draft) -> bool:
    found = d.step()
    if found is None:
        return False
    tb, step = found
    kinds = ["cpy", "re", "nop"] + ["s"] * (tb.get("send") != "-1") + ["r", "rrc"] * (tb.get("recv") != "-1")
    if "s" in kinds and "r" in kinds:
        kinds += ["rcs", "rrs", "rrcs"]
    kinds = [k for k in kinds if k != step.get("type")]
    near = {"r": ["rrc"], "rrc": ["r"], "cpy": ["re"], "re": ["cpy"], "rcs": ["rrcs"], "rrcs": ["rrs", "rcs"],
            "rrs": ["rrcs"]}.get(step.get("type", ""), kinds)
    step.set("type", d.rng.choice(near if d.rng.random() < 0.5 else [*kinds, "s"]))
    return True


def _buffer(d: Draft) -> bool:
    found = d.step(lambda s: s.get("type") != "nop")
    if found is not None:
        which = d.rng.choice(("srcbuf", "dstbuf"))
        found[1].set(which, d.rng.choice([b for b in "ios" if b != found[1].get(which)]))
    return found is not None


def _cut_dependency(d: Draft) -> bool:
    found = d.step(lambda s: s in d.aims)
    if found is not None:
        del d.aims[found[1]]
        for name in d.rng.choice((("depid", "deps"), ("depid", "deps"), ("depid",), ("deps",))):
            found[1].set(name, "-1")
    return found is not None


def _aim_elsewhere(d: Draft) -> bool:
    """A dependency points to another step, or there is a new one; sometimes the step says that it is done."""
    found = d.step(lambda s: s in d.aims) if d.rng.random() < 0.7 else d.step()
    if found is None:
        return False
    gpu = next(g for g in d.gpus if found[0] in g.findall("tb"))
    aims = [(tb, s) for tb in gpu.findall("tb") for s in tb if s is not found[1]]
    if not aims:
        return False
    d.aims[found[1]] = d.rng.choice(aims)
    d.numbers = d.renumber = True
    if d.rng.random() < 0.6:
        d.aims[found[1]][1].set("hasdep", "1")
    return True


def _clear_hasdep(d: Draft) -> bool:
    found = d.step(lambda s: s.get("hasdep") == "1")
    if found is not None:
        found[1].set("hasdep", "0")
    return found is not None


def _set_hasdep(d: Draft) -> bool:
    found = d.step(lambda s: s.get("hasdep") == "0")
    if found is not None:
        found[1].set("hasdep", "1")
    return found is not None


def _drop_block(d: Draft) -> bool:
    """Without the block, ids close up, mostly."""
    found = [(gpu, tb) for gpu in d.gpus for tb in gpu.findall("tb")]
    if not found:
        return False
    gpu, tb = d.rng.choice(found)
    gpu.remove(tb)
    if d.rng.random() < 0.95:
        for number, other in enumerate(gpu.findall("tb")):
            other.set("id", str(number))
    return True


def _merge_blocks(d: Draft) -> bool:
    """Two blocks on one channel, one of which sends and one of which receives, become one: step by step in turn."""
    found = [(gpu, a, b) for gpu in d.gpus for a in gpu.findall("tb") for b in gpu.findall("tb") if a is not b
             and a.get("recv") == b.get("send") == "-1" and a.get("chan") == b.get("chan")]
    if not found:
        return False
    gpu, a, b = d.rng.choice(found)
    a.set("recv", b.get("recv", "-1"))
    merged, (first, second) = [], d.rng.sample([list(a), list(b)], 2)
    while first or second:
        take = first if first and (not second or d.rng.random() < 0.5) else second
        merged.append(take.pop(0))
    a[:] = merged
    gpu.remove(b)
    for step, (_, aim) in list(d.aims.items()):
        if aim in merged:
            d.aims[step] = a, aim
    for number, other in enumerate(gpu.findall("tb")):
        other.set("id", str(number))
    return True


def _fuse(d: Draft) -> bool:
    """A receive and the send that stands next to it in a block become one step, whether they fit or not."""
    found = [(tb, i) for tb in d.blocks() for i in range(len(tb) - 1)
             if {tb[i].get("type"), tb[i + 1].get("type")} in ({"r", "s"}, {"rrc", "s"})]
    if not found:
        return False
    tb, i = d.rng.choice(found)
    receive, send = sorted((tb[i], tb[i + 1]), key=lambda s: s.get("type") == "s")
    receive.set("type", d.rng.choice(["rcs"] if receive.get("type") == "r" else ["rrcs", "rrs"]))
    tb.remove(send)
    return True


def _split(d: Draft) -> bool:
    """A fused step becomes two."""
    found = d.step(lambda s: s.get("type") in ("rcs", "rrcs"))
    if found is None:
        return False
    tb, step = found
    step.set("type", {"rcs": "r", "rrcs": "rrc"}[step.get("type", "")])
    place = {"srcbuf": step.get("dstbuf", ""), "srcoff": step.get("dstoff", "")}
    tb.insert(list(tb).index(step) + 1, Element("step", {
        **step.attrib, **place, "type": "s", "depid": "-1", "deps": "-1", "hasdep": step.get("hasdep", "0")}))
    return True


def _chunks(d: Draft) -> bool:
    chunks, ranks = int(d.algo.get("nchunksperloop", "1")), len(d.gpus)
    d.algo.set("nchunksperloop", str(max(1, chunks + d.rng.choice([-ranks, -1, 1, ranks, chunks]))))
    if d.rng.random() < 0.5:
        for gpu in d.gpus:
            gpu.set("i_chunks", "0")
            gpu.set("o_chunks", "0")
    return True


def _proto(d: Draft) -> bool:
    d.algo.set("proto", d.rng.choice([p for p in ("Simple", "LL", "LL128") if p != d.algo.get("proto")]))
    return True


def _placement(d: Draft) -> bool:
    d.algo.set("inplace", d.rng.choice("001"))
    d.algo.set("outofplace", d.rng.choice("0111"))
    if d.rng.random() < 0.2:
        del d.algo.attrib["outofplace"]
    return True


def _collective(d: Draft) -> bool:
    colls = ("allreduce", "allgather", "alltoall", "reduce", "broadcast", "reduce_scatter", "reducescatter", "custom")
    d.algo.set("coll", d.rng.choice([c for c in colls if c != d.algo.get("coll")]))
    return True


def _scratch(d: Draft) -> bool:
    gpu = d.rng.choice(d.gpus)
    name = d.rng.choice(("i_chunks", "o_chunks", "s_chunks"))
    gpu.set(name, str(max(0, int(gpu.get(name, "0")) + d.rng.choice([-1, 1]))))
    return True


MUTATIONS: dict[str, Callable[[Draft], bool]] = {
    "drop a step": _drop_step, "drop a message": _drop_message, "swap two steps": _swap_steps,
    "repeat a step": _repeat_step, "another offset": _offset, "another cnt": _count,
    "another cnt at both ends": _count_of_message, "another peer": _peer, "another chan": _chan, "another type": _type,
    "another buffer": _buffer, "cut a dependency": _cut_dependency, "aim a dependency elsewhere": _aim_elsewhere,
    "clear a hasdep": _clear_hasdep, "set a hasdep": _set_hasdep, "drop a block": _drop_block,
    "merge two blocks": _merge_blocks, "fuse two steps": _fuse, "split a fused step": _split,
    "another nchunksperloop": _chunks, "another proto": _proto, "another placement": _placement,
    "another collective": _collective, "another size": _scratch,
}
