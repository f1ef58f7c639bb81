"""What an emitted file is compared with when it tests itself: torch's own collective on the same values."""

from __future__ import annotations

import re

from schedlang.backends.torch.emit.head import Head
from schedlang.codegen.expressions import literal
from schedlang.codegen.words import INDENT, WIDTH
from schedlang.ops import REDUCE_OPS

_OWN = {
    "allreduce": "dist.all_reduce(b, native(op))",
    "reduce": "dist.reduce(b, ROOT, native(op))",
    "broadcast": "dist.broadcast(b, ROOT)",
    "allgather": "dist.all_gather_into_tensor(b, x)",
    "gather": "dist.gather(x, list(b.chunk(RANKS)) if rank == ROOT else None, ROOT)",
    "reduce_scatter": "dist.reduce_scatter_tensor(b, x.clone(), native(op))",
    "scatter": "dist.scatter(b, list(x.chunk(RANKS)) if rank == ROOT else None, ROOT)",
    "alltoall": "dist.all_to_all_single(b, x)",
    "alltoallv": "dist.all_to_all_single(b, x, [row[rank] for row in COUNTS], COUNTS[rank])",
    "allgatherv": "[dist.broadcast(b[cuts[r] : cuts[r + 1]], r) for r in range(RANKS)]",
    "reduce_scatterv": "([dist.reduce(y[cuts[r] : cuts[r + 1]], r, native(op)) for r in range(RANKS)],"
                       " b.copy_(y[cuts[rank] : cuts[rank + 1]]))",
}
"""How torch computes b from x, or in b."""

_SIZES = {
    "allgather": ("elements // RANKS", "elements"), "gather": ("elements // RANKS", "elements"),
    "reduce_scatter": ("elements", "elements // RANKS"), "scatter": ("elements", "elements // RANKS"),
    "alltoall": ("elements", "elements"), "alltoallv": ("sum(COUNTS[rank])", "sum(row[rank] for row in COUNTS)"),
    "allgatherv": ("COUNTS[rank]", "sum(COUNTS)"), "reduce_scatterv": ("sum(COUNTS)", "COUNTS[rank]"),
}
"""How many elements x and b have."""


def trial(head: Head) -> list[str]:
    """The function `trial` of a file, and what goes with it."""
    t, kind = head.schedule, head.kind
    reduces = t.operator is not None
    ops = '"",'
    if reduces:
        ops = ", ".join(f'"{op}"' for op in sorted(REDUCE_OPS, key=lambda op: op != t.operator))
    unit = max(1, t.chunks) if head.even else t.ranks if kind.family == "blocked" else 1
    lines = [f"UNIT = {unit}  # element counts are multiples of this", f"OPS = ({ops})"]
    if kind.family == "custom":
        lines += ["# By rank: a buffer, a chunk in it, and the initial values (buffer, rank, chunk) that it is made of",
                  *literal("ENSURED", _ensured(head))]
    body = (_custom if kind.family == "custom" else _barrier if kind.family == "barrier" else
            _whole if kind.family == "whole" else _parts)(head)
    return [*lines, "", "", "def trial(elements, dtype, device, op):",
            f'{INDENT}"""The schedule, and {head.compared_with}, on the same values; and what they must agree on."""',
            *(INDENT + line if line else "" for line in body)]


def _call(head: Head, *tensors: str) -> str:
    """The call of the function, as a function of nothing."""
    return f"lambda: {head.name}({', '.join([*tensors, *['op=op'] * (head.schedule.operator is not None)])})"


def _own(head: Head) -> str:
    """torch's collective, as a function of nothing."""
    own = _OWN[head.schedule.collective.name]
    return f"lambda: {f'({own}, averaged(op, b))' if head.schedule.operator is not None else own}"


def _barrier(head: Head) -> list[str]:
    return [f"return {_call(head)}, lambda: dist.barrier(), []"]


def _whole(head: Head) -> list[str]:
    name = head.schedule.collective.name
    pairs = "[(a, b)] if dist.get_rank() == ROOT else []" if name == "reduce" else "[(a, b)]"
    if len(head.own) == 1:
        lines, tensors = ["a = values(elements, dtype, device, op)", "b = a.clone()"], ["a"]
    else:
        lines = ["x = values(elements, dtype, device, op)", "a, b = torch.zeros_like(x), x.clone()"]
        tensors = ["a", "x"]
    return [*lines, *_returned(_call(head, *tensors), _own(head), pairs)]


def _parts(head: Head) -> list[str]:
    """Of collectives whose buffers have a part for each rank."""
    name, kind = head.schedule.collective.name, head.kind
    before, after = _SIZES[name]
    lines = [f"x = values({before}, dtype, device, op)", f"b = x.new_zeros({after})"]
    if name in ("allgatherv", "reduce_scatterv"):
        lines.append("cuts = lengths_to_starts(COUNTS)")
    if name == "allgatherv":
        lines.append("b[cuts[rank] : cuts[rank + 1]] = x")
    if name == "reduce_scatterv":
        lines.append("y = x.clone()")
    rooted = " if rank == ROOT else []" if name == "gather" else ""
    if len(head.own) == 1:
        block = "[rank * (elements // RANKS) :][: elements // RANKS]" if kind.family == "blocked" else \
            "[cuts[rank] : cuts[rank + 1]]"
        if kind.long == "output":
            lines += ["a = torch.zeros_like(b)", f"a{block}.copy_(x)"]
            return _ranked([*lines, *_returned(_call(head, "a"), _own(head), f"[(a, b)]{rooted}")])
        return _ranked([*lines, "a = x.clone()", *_returned(_call(head, "a"), _own(head), f"[(a{block}, b)]")])
    lines.append(f"a = torch.zeros_like(b){' if rank == ROOT else None' if name == 'gather' else ''}")
    given = "x if rank == ROOT else None" if name == "scatter" else "x"
    return _ranked([*lines, *_returned(_call(head, "a", given), _own(head), f"[(a, b)]{rooted}")])


def _returned(ours: str, theirs: str, pairs: str) -> list[str]:
    """The return statement."""
    line = f"return {ours}, {theirs}, {pairs}"
    if len(line) < WIDTH - len(INDENT):
        return [line]
    return [f"return ({ours},", f"        {theirs},", f"        {pairs})"]


def _ranked(lines: list[str]) -> list[str]:
    """The lines, after one that says which rank this is where they ask."""
    return ["rank = dist.get_rank()"] * any(re.search(r"\brank\b", line) is not None for line in lines) + lines


def _ensured(head: Head) -> list[list[tuple[str, int, list[tuple[str, int, int]]]]]:
    """What must end where on each rank."""
    ensures = head.schedule.collective.ensures
    found: list[list[tuple[str, int, list[tuple[str, int, int]]]]] = [[] for _ in range(head.schedule.ranks)]
    if ensures is None:
        return found
    sources = [(head.own[b], r, c) for b, r, c in zip(ensures.source_buffer.tolist(), ensures.source_rank.tolist(),
                                                      ensures.source_chunk.tolist(), strict=True)]
    starts = ensures.starts.tolist()
    places = zip(ensures.buffer.tolist(), ensures.rank.tolist(), ensures.chunk.tolist(), strict=True)
    for k, (b, r, c) in enumerate(places):
        found[r].append((head.own[b], c, sources[starts[k] : starts[k + 1]]))
    return found


def _custom(head: Head) -> list[str]:
    sizes = ", ".join(f'"{name}": {head.schedule.buffers[i].chunks}' for i, name in head.own.items())
    given = [f'mine["{name}"]' for name in head.own.values()]
    op = "None" if head.schedule.operator is None else "op"
    return ["part, wanted = elements, ENSURED[dist.get_rank()]",
            f"mine = {{name: values(size * part, dtype, device, op) for name, size in {{{sizes}}}.items()}}",
            "first = {name: tensor.clone() for name, tensor in mine.items()}",
            "results = [values(part, dtype, device, op) for _ in wanted]",
            "places = [mine[name][at * part : (at + 1) * part] for name, at, _ in wanted]",
            f"return ({_call(head, *given)}, lambda: ensure(wanted, results, first, part, {op}),",
            f"{INDENT * 2}list(zip(places, results, strict=True)))"]
