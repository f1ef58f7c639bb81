"""What in the text of a schedule is probably not meant, whatever its values: what is written once where twice is
needed, and what is declared for nothing. All of them are warnings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from schedlang.diagnostics import Diagnostic, Note, warning
from schedlang.ir.buffers import STANDARD
from schedlang.source import Span
from schedlang.syntax import tree as t

USELESS = frozenset({"SL609", "SL610", "SL611", "SL612"})
"""What is declared for nothing: not worth saying of a schedule that does not expand."""


@dataclass
class _Stream:
    """A symbol of streams: where it stands first, whether something happens in one of its blocks (or in blocks inside
    them), and the events recorded there."""

    span: Span
    busy: bool = False
    records: set[str] = field(default_factory=set)


@dataclass
class Named:
    """What a schedule names: names that expressions ``read``, ``buffers`` of places, ``streams`` (symbols, with all
    their places), ``events`` (by name and number of indices, the first statement), those ``recorded`` (the first
    statement) and ``waited`` for."""

    read: set[str] = field(default_factory=set)
    buffers: set[str] = field(default_factory=set)
    streams: dict[str, list[Span]] = field(default_factory=dict)
    events: dict[str, dict[int, t.EventStmt]] = field(default_factory=dict)
    recorded: dict[str, t.EventStmt] = field(default_factory=dict)
    waited: set[str] = field(default_factory=set)
    uses: bool = False
    blocks: dict[str, _Stream] = field(default_factory=dict)
    _open: list[_Stream] = field(default_factory=list)

    def statement(self, s: t.Stmt) -> None:
        """Take note of a statement, and of what it does to the streams that it stands in."""
        if isinstance(s, t.EventStmt):
            name = s.event.name
            self.events.setdefault(name, {}).setdefault(len(s.event.indices), s)
            if s.kind == "wait":
                self.waited.add(name)
                return
            self.recorded.setdefault(name, s)
            for stream in self._open:
                stream.records.add(name)
        elif isinstance(s, (t.Transfer, t.OwnSend, t.OwnRecv, t.Local, t.Use)):
            self.uses = self.uses or isinstance(s, t.Use)
            for stream in self._open:
                stream.busy = True

    @contextmanager
    def stream(self, symbol: t.Name | None) -> Iterator[None]:
        """Round the statements of a stream block; None: its name is worked out."""
        if symbol is None:
            yield
            return
        self._open.append(self.blocks.setdefault(symbol.id, _Stream(symbol.span)))
        yield
        self._open.pop()


def remarks(schedule: t.Schedule, named: Named, *, whole: bool) -> list[Diagnostic]:
    """All warnings about the text of a schedule; where it has errors, so is not ``whole``, only those that may explain
    one."""
    found = [*_lone_streams(named.streams), *_uneven_events(named.events)]
    if whole:
        found += [*_unused_streams(schedule, named), *_unused_buffers(schedule, named),
                  *_unheard_events(schedule, named), *_unused_parameters(schedule, named)]
    return found


def _unused_streams(schedule: t.Schedule, named: Named) -> Iterator[Diagnostic]:
    if _is_barrier(schedule):
        return
    for name, stream in named.blocks.items():
        if not stream.busy and not stream.records & named.waited:
            does = "records, and nothing waits for that" if stream.records else "waits"
            yield warning("SL609", f"nothing happens on stream `{name}`: at most it {does}", stream.span,
                          help="move what should wait, or is to be waited for, into the stream; or leave it out")


def _unused_buffers(schedule: t.Schedule, named: Named) -> Iterator[Diagnostic]:
    for s in schedule.body:
        for b in s.buffers if isinstance(s, t.BufferStmt) else ():
            # A schedule that is used works in the buffers of these names.
            if b.name not in named.buffers and not (named.uses and b.name in STANDARD):
                yield warning("SL610", f"buffer `{b.name}` is never read or written", b.span,
                              help="leave it out; or is another buffer written where this one is meant?")


def _unheard_events(schedule: t.Schedule, named: Named) -> Iterator[Diagnostic]:
    if _is_barrier(schedule):
        return
    for name, record in named.recorded.items():
        if name not in named.waited:
            yield warning("SL611", f"nothing waits for `{name}`, so recording it orders nothing", record.span,
                          help=f"write `wait {_text(record.event)}` on the stream that is to come after, or leave this "
                               "out")


def _unused_parameters(schedule: t.Schedule, named: Named) -> Iterator[Diagnostic]:
    for p in schedule.params:
        if p.name not in named.read and p.name not in ("ranks", "chunks"):
            yield warning("SL612", f"parameter `{p.name}` changes nothing: the schedule never reads it", p.span,
                          help="leave it out, or use it where a number stands in its place")


def _is_barrier(schedule: t.Schedule) -> bool:
    """Whether the schedule is a barrier: there every stream and step of a rank is part of what is proved."""
    return any(isinstance(s, t.CollectiveStmt) and s.name == "barrier" for s in schedule.body)


def _lone_streams(streams: dict[str, list[Span]]) -> list[Diagnostic]:
    """A warning for each stream symbol that stands in one place only and is one slip of the keyboard from another."""
    found = []
    for name, spans in streams.items():
        if len(spans) == 1:
            near = [n for n in streams if n != name and _one_slip(n, name)
                    and (len(streams[n]) > 1 or streams[n][0].start < spans[0].start)]
            if near:
                found.append(warning("SL601", f"stream `{name}` occurs here only; it makes a stream of its own",
                                     spans[0], help=f"did you mean `{near[0]}`?"))
    return found


def _uneven_events(events: dict[str, dict[int, t.EventStmt]]) -> list[Diagnostic]:
    """A warning for each event that is written with different numbers of indices."""
    found = []
    for name, forms in events.items():
        if len(forms) > 1:
            (_, first), (_, other) = sorted(forms.items(), key=lambda form: form[1].span.start)[:2]
            one, another = (_text(s.event) for s in (first, other))
            same = f"; `{name}` is `{name}[0]`" if {0, 1} <= set(forms) else ""
            found.append(warning(
                "SL605", f"`{another}` here and `{one}` elsewhere: an event with different numbers of indices{same}",
                other.span, notes=(Note("there it is", first.span),),
                help="write it with the same indices everywhere, or give one of them a name of its own"))
    return found


def _text(event: t.EventRef) -> str:
    indices = ", ".join(e.span.text for e in event.indices)
    return f"{event.name}[{indices}]" if indices else event.name


def _one_slip(a: str, b: str) -> bool:
    """Whether one letter left out, added, changed or swapped with its neighbour turns a into b (of 3 letters or
    more).
    """
    if min(len(a), len(b)) < 3 or abs(len(a) - len(b)) > 1:
        return False
    k = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    swapped = a[:k] + a[k + 1 : k + 2] + a[k : k + 1] + a[k + 2 :]
    digits = (a[k : k + 1] + b[k : k + 1]).isdigit()
    return not digits and (a[k + 1 :] == b[k + 1 :] or a[k:] == b[k + 1 :] or a[k + 1 :] == b[k:] or swapped == b)
