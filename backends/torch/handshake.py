"""Whether all ranks mean the same call, before any payload moves.

Gloo by itself does not say: a message longer than its buffer ends the receiving process, a shorter one, or one of
another dtype with as many bytes, is taken as it is. So each call begins with a header of fixed size, which goes round
by dissemination: in round k every rank sends what it knows to the rank 2^k further on. After ceil(log2(size)) rounds
every rank knows of two ranks that differ, the same two on all ranks, if there are any; and every rank refuses, not only
those beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch

from schedlang.backends.torch.faults import Wait, first_line, lost
from schedlang.backends.torch.header import EMPTY, SIZE, Header, disagreement, merged, require_equal_counts
from schedlang.backends.torch.wire import AnyWire, NcclWire
from schedlang.ir.table import NONE, Array, OpTable

HEADER_TAG, COUNTS_TAG = -1, -2
"""Tags of the messages here, below those of schedules."""


class Handshake:
    """The headers of the calls of one rank over a wire.

    ``timeout``: how long to wait for another rank; None: as long as the process group does. ``at``: how many times a
    rank was heard, or waited for.
    """

    def __init__(self, wire: AnyWire, *, timeout: timedelta | None = None, device: torch.device | str = "cpu") -> None:
        self.wire, self.timeout, self.device = wire, timeout, device
        self.at = 0
        self._peer: int | None = None       # who is waited for
        self._table: OpTable | None = None
        self._distances = [1 << k for k in range((wire.size - 1).bit_length())]
        self._sent = [torch.zeros(2 * SIZE, dtype=torch.uint8, device=device) for _ in self._distances]
        self._got = [torch.zeros(2 * SIZE, dtype=torch.uint8, device=device) for _ in self._distances]

    def waits(self) -> Wait | None:
        """Whom the rank waits for; None where it is not at a message."""
        return None if self._peer is None else Wait(self._peer, NONE)

    def agree(self, header: Header, table: OpTable | None = None) -> None:
        """Returns where all ranks have the same header; else raises SchedError (SL812), on all of them, that says what
        two ranks have. SL813 where a rank says nothing. ``table``: the schedule of the call, if it has one."""
        rank, size = self.wire.rank, self.wire.size
        self._table = table
        if self.wire.watch is not None:
            self.wire.watch.meet(self)
        mine = header.pack(rank)
        known, other = mine, EMPTY             # of the lowest rank known, and of the lowest that differs from it
        exchange = self.wire.exchange if isinstance(self.wire, NcclWire) else None
        if isinstance(self.wire, NcclWire):
            self.wire.begin(torch.empty(0, device=self.device))
        # Of messages that are no batches all receives stand ready before anything is sent: who is late delays once.
        gets = [] if exchange else [self._receive(got, (rank - d) % size, HEADER_TAG, header)
                                    for d, got in zip(self._distances, self._got, strict=True)]
        puts = []
        for k, (d, sent, got) in enumerate(zip(self._distances, self._sent, self._got, strict=True)):
            before, after = (rank - d) % size, (rank + d) % size
            sent.copy_(torch.frombuffer(bytearray(known + other), dtype=torch.uint8))
            if exchange:
                exchange([(True, sent, after), (False, got, before)])
            else:
                puts.append((self._send(sent, after, HEADER_TAG, header), after))
                self._wait(gets[k], before, header)
            data = got.cpu().numpy().tobytes()
            known, other = merged(known, other, data[:SIZE], data[SIZE:])
        for put, peer in puts:
            self._wait(put, peer, header)
        if other != EMPTY:
            raise disagreement(known, other)

    def counts(self, header: Header, sends: list[int], receives: list[int]) -> Array:
        """The matrix of counts of a v-collective, of how many elements each rank sends to and receives from each.

        Raises SchedError (SL812) on all ranks where two of them differ about what one sends to the other.
        """
        rank, size = self.wire.rank, self.wire.size
        exchange = self.wire.exchange if isinstance(self.wire, NcclWire) else None
        rows = torch.zeros((size, 2 * size), dtype=torch.int64, device=self.device)     # row i: of rank - i
        rows[0] = torch.tensor([*sends, *receives])
        have = 1
        while have < size:
            more = min(have, size - have)
            before, after = (rank - have) % size, (rank + have) % size
            into, out = rows[have : have + more].view(-1), rows[:more].view(-1)
            if exchange:
                exchange([(True, out, after), (False, into, before)])
            else:
                get = self._receive(into, before, COUNTS_TAG, header)
                put = self._send(out, after, COUNTS_TAG, header)
                self._wait(get, before, header)
                self._wait(put, after, header)
            have += more
        known = rows.cpu().numpy()[(rank - np.arange(size)) % size]
        sent = np.ascontiguousarray(known[:, :size])
        require_equal_counts(sent, known[:, size:].T, header)
        return sent

    def _send(self, values: torch.Tensor, peer: int, tag: int, header: Header) -> Any:
        assert not isinstance(self.wire, NcclWire)      # which exchanges
        with self._heard_from(peer, header):
            return self.wire.send(values, peer, tag)

    def _receive(self, place: torch.Tensor, peer: int, tag: int, header: Header) -> Any:
        assert not isinstance(self.wire, NcclWire)
        with self._heard_from(peer, header):
            return self.wire.receive(place, peer, tag)

    def _wait(self, work: Any, peer: int, header: Header) -> None:
        with self._heard_from(peer, header):
            if self.timeout is None:
                work.wait()
            else:
                work.wait(self.timeout)

    @contextmanager
    def _heard_from(self, peer: int, header: Header) -> Iterator[None]:
        """A post fails, too, where the connection is known to be closed."""
        self.at += 1
        self._peer = peer
        try:
            yield
        except RuntimeError as failure:
            rank, watch, mine = self.wire.rank, self.wire.watch, Wait(peer, NONE)
            found, answered = watch.chain(mine) if watch is not None else ({rank: mine}, False)
            call = f"call {header.sequence} of the group, {header.collective} with {header.title}"
            raise lost(self._table, rank, found, first_line(failure), answered, call) from failure
        self._peer = None
