"""Which send goes with which receive: first-in first-out on every connection (source, destination, chan)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from schedlang.diagnostics import Diagnostic, Note, error
from schedlang.ir.legal.blocks import BLOCK
from schedlang.ir.origin import at_row, came_from
from schedlang.ir.table import NONE, Array, OpTable
from schedlang.ir.words import counted, step_text
from schedlang.ops import Op
from schedlang.verify import collapse, words
from schedlang.verify.sends import DEFAULT, Sends
from schedlang.verify.timing.connections import Connections, Matching, connection_keys, connections, pair
from schedlang.verify.timing.lanes import Lanes
from schedlang.verify.timing.pairing import settle

SHOWN = 16
"""How many statements with unmatched or ill-matched operations are described one by one; the last one counts those left
out."""


def match(table: OpTable, sends: Sends = DEFAULT) -> Matching:
    """Pair the transfers of a legal table. ``sends`` matters only where several lanes serve one end of a connection:
    it says what orders their posts."""
    lanes = Lanes(table)
    rising = numbers_rise(table, lanes)
    if rising:
        partner = _neighbours(table)
        if partner is not None:
            return Matching(partner, tuple(_sizes(table, partner, None)), True, lanes, table)
    ends = connections(table, lanes)
    ambiguous: list[Diagnostic] = []
    if _shared(lanes, ends):
        ends, ambiguous = settle(table, lanes, ends, sends)
    partner = pair(table, ends)
    transfers = np.concatenate([ends.sends, ends.receives])
    alone = bool((partner[transfers] == NONE).any())
    numbered = (rising and not alone and not ambiguous
                and bool((table.number[ends.sends] == table.number[partner[ends.sends]]).all()))  # type: ignore[index]
    findings = list(_alone(table, partner, ends)) if alone else []
    findings += _sizes(table, partner, ends)
    return Matching(partner, (*findings, *ambiguous), numbered, lanes, table, ends)


def numbers_rise(table: OpTable, lanes: Lanes) -> bool:
    """Whether `table.number` is one number in every step of every lane and rises from step to step."""
    number = table.number
    if number is None or not len(table) or number.min() < 0:
        return False
    at = np.full(lanes.nodes, NONE, np.int32)
    at[lanes.node] = number
    if not all(np.array_equal(at[lanes.node[rows]], number[rows]) for rows in _blocks(len(table))):
        return False
    ends = lanes.ends
    at[ends] = np.iinfo(np.int32).max
    falls = at[1:] <= at[:-1]
    falls[ends[:-1]] = False
    return not falls.any()


def _neighbours(table: OpTable) -> Array | None:
    """The partners, where every send stands right before its receive and every end of a connection is one lane; numbers
    are known to rise along lanes.

    Then both ends of a connection see its messages sorted by (number, row), and neighbours have equal numbers: so this
    is the first-in first-out pairing. None where the table is not like that.
    """
    if _alternate(table):
        partner = np.arange(len(table), dtype=np.int32)
        partner ^= 1
        return partner
    is_send = table.op == Op.SEND
    is_receive = (table.op == Op.RECV) | (table.op == Op.REDUCE_RECV)
    if is_receive[0] or is_send[-1] or not np.array_equal(is_send[:-1], is_receive[1:]):
        return None
    at = np.flatnonzero(is_send)
    after = at + 1
    if not (np.array_equal(table.rank[at], table.peer[after]) and np.array_equal(table.peer[at], table.rank[after])
            and np.array_equal(table.chan[at], table.chan[after]) and table.number is not None
            and np.array_equal(table.number[at], table.number[after])
            and bool(((table.chan == table.stream) | ~(is_send | is_receive)).all())):
        return None
    partner = np.full(len(table), NONE, np.int32)
    sends = np.flatnonzero(is_send)
    partner[sends], partner[sends + 1] = sends + 1, sends
    return partner


def _alternate(table: OpTable) -> bool:
    """Whether the table is nothing but sends, each right before its receive; as :func:`_neighbours` has it, in
    pieces."""
    if len(table) % 2 or table.number is None:
        return False
    for rows in _blocks(len(table)):
        op, rank, peer, chan, number = (c[rows] for c in (table.op, table.rank, table.peer, table.chan, table.number))
        at, after = slice(0, None, 2), slice(1, None, 2)
        if not ((op[at] == Op.SEND).all() and ((op[after] == Op.RECV) | (op[after] == Op.REDUCE_RECV)).all()
                and np.array_equal(rank[at], peer[after]) and np.array_equal(peer[at], rank[after])
                and np.array_equal(chan[at], chan[after]) and np.array_equal(number[at], number[after])
                and np.array_equal(chan, table.stream[rows])):
            return False
    return True


def _blocks(rows: int) -> Iterator[slice]:
    """All rows in pieces, each of an even number but perhaps the last: no large temporaries."""
    return (slice(start, start + BLOCK) for start in range(0, rows, BLOCK))


def _shared(lanes: Lanes, ends: Connections) -> bool:
    """Whether several lanes serve one end of a connection."""
    return any(bool(((lane[1:] != lane[:-1]) & (of[1:] == of[:-1])).any())
               for lane, of in ((lanes.lane[ends.sends], ends.of_send), (lanes.lane[ends.receives], ends.of_receive)))


def _sizes(table: OpTable, partner: Array, ends: Connections | None) -> list[Diagnostic]:
    """SL303 for every two statements that make pairs whose ends differ in size."""
    alternate = ends is None and len(table) % 2 == 0 and bool((table.op[::2] == Op.SEND).all())
    sends = slice(0, None, 2) if alternate else np.flatnonzero((table.op == Op.SEND) & (partner != NONE))
    receives = partner[sends]
    differ = np.flatnonzero(table.count[sends] != table.count[receives])
    if not len(differ):
        return []
    receives = receives[differ]
    rows = partner[receives]
    findings = []
    for index, times in collapse.shown(collapse.by_statement(table, rows, receives), SHOWN):
        s, r = int(rows[index]), int(receives[index])
        sent, taken = int(table.count[s]), int(table.count[r])
        findings.append(at_row(error(
            "SL303",
            f"rank {int(table.rank[s])} sends {counted(sent, 'chunk')} where rank {int(table.rank[r])} receives "
            f"{taken}: {words.operation(table, s)}{came_from(table, s)} meets "
            f"{words.operation(table, r)}{came_from(table, r)}, "
            f"{abs(sent - taken)} too {'many' if sent > taken else 'few'}",
            notes=[collapse.note(table, r, "the receive: "), *_crossed(table, partner, s, r)],
            help="send and receive must name equally many chunks; messages from one rank to another on one stream pair "
                 "in the order in which they are posted, within a step in the order in which they are written",
            count=times, send=s, receive=r, sent=sent, received=taken), table, s, r))
    return findings


def _crossed(table: OpTable, partner: Array, s: int, r: int) -> Iterator[Note]:
    """What the author probably meant, where another receive of the same step has the size sent and got a wrong one
    too."""
    near = table.op != Op.SEND
    for column in (table.rank, table.stream, table.step, table.peer, table.chan):
        near &= column == column[r]
    for other in np.flatnonzero(near & (table.count == table.count[s])).tolist():
        if other != r and partner[other] != NONE and table.count[partner[other]] != table.count[other]:
            yield Note(f"probably meant for {words.sentence(table, other)}, which is posted in the same step but "
                       "written in another order than the sends", table.origin(other)[0])
            return


def _alone(table: OpTable, partner: Array, ends: Connections) -> Iterator[Diagnostic]:
    """SL301 and SL302, one for every statement that makes such rows; where statements are all on one connection, one
    for that."""
    for rows, others, code in ((ends.sends, ends.receives, "SL301"), (ends.receives, ends.sends, "SL302")):
        left = np.sort(rows[partner[rows] == NONE])
        others = np.sort(others[partner[others] == NONE])
        for index, times in collapse.shown(_groups(table, left), SHOWN):
            yield _lonely(table, ends, int(left[index]), others, code, times)


def _groups(table: OpTable, left: Array) -> list[tuple[int, int]]:
    """The rows that are told together, as :func:`collapse.by_statement` has them."""
    if not len(left):
        return []
    _, first, statement = np.unique(collapse.statements(table)[table.site[left]], return_index=True,
                                    return_inverse=True)
    _, connection = np.unique(connection_keys(table, left), return_inverse=True)
    alone = np.bincount(statement, connection != connection[first][statement]) == 0
    _, first, group = np.unique(np.where(alone[statement], connection, len(left) + statement), return_index=True,
                                return_inverse=True)
    return sorted(zip(first.tolist(), np.bincount(group).tolist(), strict=True))


def _named(table: OpTable, row: int) -> str:
    """What a transfer's connection is called: a stream, or a `chan` that is another one than its stream."""
    kind = "stream" if table.chan[row] == table.stream[row] else "chan"
    return f"{kind} {table.streams[int(table.chan[row])]}"


def _lonely(table: OpTable, ends: Connections, row: int, others: Array, code: str, times: int) -> Diagnostic:
    sending = code == "SL301"
    rank, peer = int(table.rank[row]), int(table.peer[row])
    source, destination = (rank, peer) if sending else (peer, rank)
    key = connection_keys(table, np.array([row]))[0]
    sent = int((connection_keys(table, ends.sends) == key).sum())
    taken = int((connection_keys(table, ends.receives) == key).sum())
    stream = f" on {_named(table, row)}" if len(table.streams) > 1 else ""
    where = came_from(table, row)
    tally = f"rank {source} sends {counted(sent, 'message')} to rank {destination}{stream}, which receives {taken}"
    what = "no receive takes" if sending else "no send serves"
    note, help = _lookalike(table, row, others, sending)
    if help is None:
        verbs = ("receive", "send") if sending else ("send", "receive")
        help = f"let rank {peer} {verbs[0]} it, or drop the {verbs[1]}"
    found = error(code, f"{what} this {'send' if sending else 'receive'} of rank {rank}, {step_text(table, row)}: "
                        f"{words.operation(table, row)}{where}; {tally}",
                  notes=note, help=help, count=times, row=row, rank=rank, peer=peer, sent=sent, received=taken)
    return at_row(found, table, row)


def _lookalike(table: OpTable, row: int, others: Array, sending: bool) -> tuple[list[Note], str | None]:
    """The operation at the other end that was probably meant to be the partner: on another chan, or with another
    peer."""
    this, that = ("send", "receive") if sending else ("receive", "send")
    back = others[(table.rank[others] == table.peer[row]) & (table.peer[others] == table.rank[row])]
    if len(back):
        other = int(back[0])
        streams = _named(table, row), _named(table, other)
        return ([collapse.note(table, other, f"without partner, too, on {streams[1]}: ")],
                f"the {this} is on {streams[0]}, the {that} on {streams[1]}, and only ends of one stream or `chan` "
                "meet: put both on one stream, or give both streams the same `chan`")
    rank, peer = int(table.rank[row]), int(table.peer[row])
    to, does, away = ("to", "receives", "from") if sending else ("from", "sends", "to")
    near = others[table.peer[others] == rank]
    if len(near):
        other = int(table.rank[near[0]])
        meets = f"this {this} is {to} rank {peer}, and it is rank {other} that {does} {away} rank {rank}"
    else:
        near = others[table.rank[others] == peer]
        if not len(near):
            return [], None
        meets = f"this {this} is rank {rank}'s, and rank {peer} {does} {away} rank {int(table.peer[near[0]])}"
    return ([collapse.note(table, int(near[0]), "without partner, too: ")],
            f"where the two belong together, let both name the same two ranks: {meets}")
