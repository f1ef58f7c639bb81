"""What one rank does where messages go in batches, one after another, and have no tags: over NCCL.

A batch of NCCL is one step of its communicator: it is over when all its messages are, and only then the next begins. So
both ends of a message must put it into the same batch, as it were. In the execution that all ranks see alike a message
can go once its send and its receive are both posted; that moment both ends know, and it names the batch. Each rank goes
through its batches in the order of their moments.

**No rank hangs.** Take the earliest batch that is not over. All ranks have done with what stands before it, nobody has
to wait for anything but messages of this very moment, and both their ends are in a batch of it. Between two ranks the
messages of a batch stand in the order of the rows of their sends, at both ends.

All streams of a rank share its batches and one communicator: what goes at the same moment goes in one batch. So streams
are taken side by side (:data:`.execution.abreast`), not one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from schedlang.backends.torch.execution import Execution, PerTable, abreast
from schedlang.backends.torch.plan import BEGIN, PASS, Moment, Plan, Row, Walk
from schedlang.backends.torch.tasks import Instruction, Kind, Place
from schedlang.ir.table import NONE, OpTable
from schedlang.ops import Op

_plans: PerTable[dict[int, Plan]] = PerTable(lambda table: {})


def plan_together(table: OpTable, rank: int) -> Plan:
    """As :func:`.plan.plan`; posts that stand side by side are a batch, and their waits follow at once."""
    known = _plans(table)
    if rank not in known:
        known[rank] = _Batches(table, rank, abreast(table)).plan(0)
    return known[rank]


class _Batches(Walk):
    def __init__(self, table: OpTable, rank: int, shared: Execution) -> None:
        super().__init__(table, rank, shared)
        self.batches: dict[tuple[int, int], list[Row]] = {}
        for x in list(self.rows.values()):
            if x.peer != NONE:
                moment = _moment(table, shared, x)
                self.rows[x.row] = here = replace(x, taken=moment)
                self.batches.setdefault(moment[:2], []).append(here)
        self.passed = {of: self.rows[x.row] for of, x in self.passed.items()}
        self.places: dict[int, Place] = {}      # per message: where it is read, or lands

    def events(self) -> Iterator[tuple[Moment, Callable[[Row], None]]]:
        yield from super().events()
        for (level, turn), batch in self.batches.items():
            yield (level, turn, batch[0].row), self._exchange

    def listed(self, ahead: int) -> list[Instruction]:
        return self.tasks.instructions

    def receive(self, x: Row, landing: Place) -> None:
        self.places[x.row] = landing

    def send(self, x: Row, source: Place) -> None:
        self.places[x.row] = source

    def _exchange(self, x: Row) -> None:
        first = len(self.tasks.instructions)
        for message in sorted(self.batches[x.taken[:2]], key=lambda y: y.taken):
            if message.op == Op.SEND:
                self.tasks.send(message.row, self.places[message.row], message.peer, message.tag)
            else:
                self.tasks.receive(message.row, self.places[message.row], message.peer, message.tag)
        posts = self.tasks.instructions[first:]
        assert all(post.kind in (Kind.POST_RECV, Kind.POST_SEND) for post in posts)
        for post in posts:
            self.tasks.wait(post.message)


def _moment(table: OpTable, shared: Execution, x: Row) -> Moment:
    """When a message can go: the level, the turn after that in which its last end is there, and the row of its send."""
    other = int(shared.partner[x.row])
    send, receive = (x.row, other) if x.op == Op.SEND else (other, x.row)
    fused = int(table.of[send]) != NONE
    there = (int(shared.ready[send]), PASS) if fused else (int(shared.posted[send]), BEGIN)
    level, turn = max(there, (int(shared.posted[receive]), BEGIN))
    return level, turn + 1, send
