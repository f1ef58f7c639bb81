"""Findings about an MSCCL file in the words of its format: blocks, channels and flags, not streams and events."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from schedlang.diagnostics import Diagnostic, Note
from schedlang.msccl.plan import Kind, Plan
from schedlang.source import Location, Span


def told(plan: Plan, diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The findings of a plan's tables as its authors need them; what is told so already stays as it is, and so do
    codes, places, counts and witnesses. Left out are

    * SL602: runtimes take no call that chunks do not divide, so all have one length;
    * SL603: a step that reads and writes one place goes element by element, and stages nothing;
    * SL607 of what `rcs` stores: no step receives and sends without.
    """
    tell = _Teller(plan)
    return [told for d in diagnostics if d.code not in ("SL602", "SL603") and (told := tell.finding(d)) is not None]


_HELP = {
    "SL221": "offsets count chunks from 0, and an operation moves cnt of them; let nchunksperloop, i_chunks, o_chunks "
             "and s_chunks be as large as the steps need",
    "SL303": "let both steps have the same cnt: messages of one connection pair in the order of the steps",
    "SL401": "let the block that comes second wait for the first: depid and deps name the step that must be done, and "
             "hasdep=\"1\" on that step lets it be known; or use another place",
    "SL402": "let no step write what another part of it writes",
    "SL403": "write it in an earlier step, wait for the block that does (depid, deps), or read another place",
    "SL501": "carry it there before the end; where other contributions are to stay, add it: rrc, rrcs or re",
    "SL502": "add each contribution once: leave this step out, or pass finished values on with s, r, rcs or cpy",
}
"""How to mend what the language mends with words of its own."""


_BLOCK = re.compile(r" on stream tb(\d+)\b")
_CHANNEL = re.compile(r"\bon chan (\d+)\b")


class _Teller:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def finding(self, d: Diagnostic) -> Diagnostic | None:
        message = _BLOCK.sub(r" in block \1", d.message).replace("lane (stream of a rank)", "block").replace(
            "lanes (streams of a rank)", "blocks")
        d = replace(d, message=message)
        if d.code in ("SL301", "SL302"):
            return self._alone(d)
        if d.code == "SL305":
            return replace(d, help=_CHANNEL.sub(r"on channel \1", _untied(d) or "") or None)
        if d.code == "SL306":
            return self._never_told(d)
        if d.code == "SL504":
            fused = (d.help or "").startswith("leave out `only`")
            return replace(d, help="let this step store what it passes on: rrcs in place of rrs" if fused else
                           "receive, copy or add it there: look for a step that is missing, or has another dstoff")
        if d.code == "SL604":
            message = message.replace("the schedule writes its input, so back ends work on a copy of it",
                                      "used out of place the file writes its input, so that whoever calls finds the "
                                      "send buffer changed")
            return replace(d, message=message, help="write to the output or to scratch")
        if d.code in ("SL607", "SL608"):
            return self._useless(d)
        return replace(d, help=_HELP[d.code]) if d.code in _HELP else d

    def step_at(self, at: Location | None) -> int | None:
        """The number of the step whose tag is at a place."""
        if not isinstance(at, Span) or at.source is not self.plan.source:
            return None
        step = int(np.searchsorted(self.plan.step_at, at.start))
        return step if step < len(self.plan.step_at) and int(self.plan.step_at[step]) == at.start else None

    def _useless(self, d: Diagnostic) -> Diagnostic | None:
        """A step that could go, or could store nothing."""
        step = self.step_at(d.location)
        kind = None if step is None else Kind(int(self.plan.kind[step]))
        help = "leave the step out"
        if (d.help or "").startswith("store nothing"):
            if kind is Kind.RCS:
                return None
            help = "rrs in place of rrcs does the same, and stores nothing"
        notes = [replace(n, message=n.message.replace("operations that this statement makes", "parts of this step"))
                 for n in d.notes]
        return replace(d, notes=tuple(notes), help=help)

    def _alone(self, d: Diagnostic) -> Diagnostic:
        """Which channel, and who is at the two ends of the connection."""
        step = self.step_at(d.location)
        if step is None:
            return d
        plan, sending = self.plan, d.code == "SL301"
        chan, rank, peer = int(plan.chan[plan.block[step]]), int(d.witness["rank"]), int(d.witness["peer"])
        message = _CHANNEL.sub(r"on channel \1", d.message)
        notes = [replace(n, message=_CHANNEL.sub(r"on channel \1", n.message)) for n in d.notes]
        verb, mine, other, ends = (("receive", "send", "recv", plan.recv) if sending else
                                   ("send", "recv", "send", plan.send))
        there = np.flatnonzero((plan.block_rank == peer) & (ends == rank))
        same = there[plan.chan[there] == chan]
        if len(same):
            notes.append(self._end(int(same[0]), "the other end of the connection: "))
            help = f"let rank {peer} {verb} it in that block, or drop this step"
        elif len(there):
            notes.append(self._end(int(there[0]), f"on channel {int(plan.chan[there[0]])}: "))
            help = "a message is received on the channel that it is sent on: let the two blocks have the same chan"
        else:
            help = (f'rank {peer} has no block with {other}="{rank}": give it one on channel {chan}, or let this block '
                    f"have another {mine}")
        return replace(d, message=message, notes=tuple(dict.fromkeys(notes)), help=help)

    def _end(self, block: int, what: str) -> Note:
        plan = self.plan
        return Note(f"{what}block {int(plan.block_id[block])} of rank {int(plan.block_rank[block])}",
                    plan.span(int(plan.block_at[block])))

    def _never_told(self, d: Diagnostic) -> Diagnostic:
        """Which step would have to tell that it is done, and why it does not."""
        step = self.step_at(d.location)
        if step is None:
            return d
        plan = self.plan
        rank, id = int(plan.block_rank[plan.block[step]]), int(plan.dep_block[step])
        number = max(0, int(plan.dep_step[step]))
        block = int(np.searchsorted(plan.block_rank, rank)) + id
        steps = np.flatnonzero(plan.block == block)[number:]
        nop = plan.kind[steps] == Kind.NOP
        whole = f"block {id} of rank {rank}"
        message = (f"this step waits for ever: {whole} never tells that its step {number} is done, since neither that "
                   'step nor a later one has hasdep="1"' + (", which of a nop does not count" if nop.any() else ""))
        notes = [Note(f"step {number} of {whole}" + (", a nop" if nop[0] else ', with hasdep="0"'),
                      plan.span(int(plan.step_at[steps[0]])))]
        able = steps[~nop]
        help = (f'set hasdep="1" on step {int(plan.s[able[0]])} of block {id}' + (
            ", or on a later one" if len(able) > 1 else "") if len(able) else
            f"let {whole} do something at or after step {number}, with hasdep=\"1\", or wait for an earlier step")
        return replace(d, message=message, notes=tuple(notes), help=help)


def _untied(d: Diagnostic) -> str | None:
    """What a file can do against a circle, in place of what the language can."""
    help = d.help or ""
    if help.startswith("post the send and the receive"):
        return ("let a rank send in one block and receive in another, or let every other rank receive first; with cnt "
                "smaller a message takes fewer slots")
    if help.startswith("record the event"):
        return "let the step that is waited for come earlier, or wait for it later: see depid and deps of these steps"
    return d.help
