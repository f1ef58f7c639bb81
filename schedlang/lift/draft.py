"""A table as nests with names: everything but the text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from schedlang.ir.table import NONE, Array
from schedlang.lift import labels, own
from schedlang.lift.build import ring_nest
from schedlang.lift.formulas import weight
from schedlang.lift.grids import best, nests
from schedlang.lift.kinds import AFTER, LOST, Field, Kind
from schedlang.lift.nest import PLAIN, Nest, Strands, lines, shifted, tables
from schedlang.lift.own import Events, Numbering
from schedlang.lift.paired import Pairs, paired
from schedlang.lift.rings import rings
from schedlang.lift.statements import Statements
from schedlang.lift.write import Naming
from schedlang.ops import Op


@dataclass(frozen=True, eq=False)
class Draft:
    """Nests with their kinds and namings; ``events``: the words for events, by sort. One entry a lane:
    ``stream``, what it is called; one a statement: ``event``, what its event is called; one a connection: ``chan``.
    ``cost``: how much there is to read."""

    nests: list[Nest]
    namings: list[Naming]
    kinds: list[Kind]
    events: dict[int, tuple[str, bool, bool, bool]]
    stream: list[str]
    event: list[object]
    chan: list[str]
    cost: int


def mixed(s: Statements) -> Draft:
    """Both ends of messages at once where that can be and reads better, the other lanes in their rank's own view."""
    own_draft = own_view(s)
    linked = labels.linked(s)
    pairs = paired(s, linked)
    if pairs is None:
        return own_draft
    share = _shares(s, own_draft)
    chosen: list[Nest] = []
    for members in pairs.strands.alike():
        made = nests(pairs.strands, members)
        lanes = np.concatenate([pairs.lanes[k] for k in members.tolist()])
        if sum(n.cost for n in made) < share[lanes].sum():
            chosen += made
    if not chosen:
        return own_draft
    return _joined(s, pairs, chosen)


def _shares(s: Statements, draft: Draft) -> Array:
    """What each lane has of the cost of its nest."""
    found = np.zeros(len(s.rank))
    for nest in draft.nests:
        found[nest.members] = (nest.cost + PLAIN) / nest.members.size
    return found


def _joined(s: Statements, pairs: Pairs, chosen: list[Nest]) -> Draft:
    """``chosen`` groups of lanes with both ends at once, and the others in their own view."""
    keep = np.ones(len(s.rank), bool)
    for nest in chosen:
        for k in nest.members.ravel().tolist():
            keep[pairs.lanes[k]] = False
    rest = own_view(s, keep=keep)
    stream, chan = list(rest.stream), list(rest.chan)
    namings = []
    used: dict[str, int] = {}
    lone = len(chosen) == 1 and not keep.any()
    for nest in chosen:
        word = "" if lone else _fresh("pair" if len(pairs.lanes[int(nest.members.flat[0])]) == 2 else "group", used)
        index, size = nest.numbers()
        index = index + size * np.arange(len(index)).reshape([-1] + [1] * (index.ndim - 1))
        several = nest.members.size > 1
        for number, k in zip(index.ravel().tolist(), nest.members.ravel().tolist(), strict=True):
            name = str(number) if lone and several else "main" if lone else f"{word}[{number}]" if several else word
            for lane in pairs.lanes[k].tolist():
                stream[lane] = name
        namings.append(Naming(word, nest.formula(index) if several else None, None))
    at = np.flatnonzero(s.connection[s.row] != NONE)
    for lane, c in zip(s.lane[at].tolist(), s.connection[s.row[at]].tolist(), strict=True):
        if not keep[lane]:
            chan[c] = stream[lane]
    shift = len(rest.kinds)
    made = [replace(n, body=shifted(n.body, shift)) for n in chosen]
    return Draft([*made, *rest.nests], [*namings, *rest.namings], [*rest.kinds, *pairs.kinds], rest.events, stream,
                 rest.event, chan, rest.cost + sum(n.cost for n in chosen))


def own_view(s: Statements, *, loops: bool = True, alone: bool = False, keep: Array | None = None) -> Draft:
    """Every lane in its rank's own view. ``loops``: what repeats is a loop; ``alone``: each lane is written by
    itself; ``keep``: the lanes to write, all if None."""
    keep = np.ones(len(s.rank), bool) if keep is None else keep
    ways = list(Numbering)[:1] if alone or not (s.table.op == Op.RECORD).any() else list(Numbering)
    found: Draft | None = None
    for way in reversed(ways):
        made = _own_view(s, loops, alone, way, keep, parts=found is None or not _neat(found))
        if made is not None and (found is None or made.cost <= found.cost):
            found = made
    assert found is not None
    return found


def _neat(draft: Draft) -> bool:
    """Whether all lanes that run alike are one nest without tables."""
    kinds = {tuple(line.kind for line in lines(nest.body)) for nest in draft.nests}
    return len(kinds) == len(draft.nests) and not any(tables(nest.body) for nest in draft.nests)


def _own_view(s: Statements, loops: bool, alone: bool, way: Numbering, keep: Array, *, parts: bool) -> Draft | None:
    """``way``: how lanes that record are numbered; None where they cannot be so. ``parts``: whether lanes that run
    alike may be several nests."""
    found = own.events(s)
    partner = own.partners(s, found) if way is Numbering.BY_PARTNER else np.zeros(len(s.rank), np.int64)
    if partner is None:
        return None
    group = labels.fused(s)
    choices = list(_numbers(s, group))
    conn = np.where(s.row >= 0, s.connection[s.row], NONE)
    steady = [c for c in choices if _steady(s, c)]
    chan = steady[0] if steady else choices[0]
    each = np.zeros(len(s.row), np.int64) if steady else np.where(conn == NONE, 0, chan[conn])
    plain, kinds, lane_class = own.strands(s, found, each, way is not Numbering.BY_CLASS)
    lanes = _lane_numbers(s, chan)

    def laid(place: Array) -> list[Nest]:
        fields = plain.fields.copy()
        fields[:, Field.WITH] = np.where(found.lane == NONE, 0, partner[found.lane])
        fields[:, Field.LANE] = np.where(found.lane == NONE, 0, place[found.lane])
        strands = own.settled(s, replace(plain, fields=fields))
        made: list[Nest] = []
        for members in ([np.array([k]) for k in range(len(s.rank))] if alone else strands.alike()):
            if keep[members].any():
                made += _nests(s, strands, members[keep[members]], lanes, loops, parts)
        return made

    place, several = _through(s, found, partner)
    if way is Numbering.BY_CLASS and (found.lane != NONE).any():
        place, several = _places(s, laid(np.zeros_like(place)), lane_class)
    made = laid(place)
    words = _event_words(s, found, lane_class, several, partner)
    roles = _roles(s)
    named = min((_named(s, made, c, roles, bool(steady), by_number) for c in (steady or choices[:1])
                for by_number in ((True, False) if steady else (False,)) if not by_number or _distinct(s, c)),
               key=lambda n: n[0])
    event: list[object] = [NONE] * len(s.row)
    sort = found.sorts(lane_class)
    for i in np.flatnonzero(found.turn != NONE).tolist():
        lane = int(found.lane[i])
        word, *told = words[LOST if lane == NONE else int(sort[i])]
        index = [n for n, t in zip((int(partner[lane]), int(place[lane]), int(found.turn[i])), told, strict=True) if t]
        event[i] = (word, tuple(index) or (0,))
    chan_names = [str(c) for c in named[3].tolist()]
    return Draft(made, named[1], kinds, words, named[2], event, chan_names, named[0] + sum(n.cost for n in made))


def _nests(s: Statements, strands: Strands, members: Array, number: Array, loops: bool, parts: bool) -> list[Nest]:
    """The nests of lanes that run alike: on rings, where that reads better."""
    laid = rings(s, members, number)
    if laid is not None:
        ring, plain = ring_nest(strands, *laid, loops), best(strands, members, loops)
        if not tables(plain.body):
            return [plain]
        if not tables(ring.body) and ring.cost < plain.cost:
            return [ring]
    return nests(strands, members, loops=loops, parts=parts)


def _numbers(s: Statements, group: Array) -> Iterator[Array]:
    """Ways to number the connections, the simplest first."""
    linked = labels.linked(s)
    if len(linked) and labels.clashing(s, linked) is None:
        order = _by_content(s, linked)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(len(order))
        yield number[linked]
        yield labels.coloured(s, linked, order.tolist())
    order = np.argsort(np.unique(group, return_index=True)[1], kind="stable")
    yield labels.coloured(s, group, _by_content(s, group).tolist())


def _by_content(s: Statements, group: Array) -> Array:
    """Groups of connections in an order that does not depend on names: by how long the lanes are that use them, the
    least rank among these, and what they move."""
    t = s.table
    number = np.where(s.connection[s.row] == NONE, NONE, group[s.connection[s.row]]) if len(group) else np.zeros(0)
    least: dict[int, tuple[object, ...]] = {}
    lanes: dict[tuple[int, int], list[int]] = {}
    for i in np.flatnonzero(number != NONE).tolist():
        lanes.setdefault((int(number[i]), int(s.lane[i])), []).append(i)
    for (g, lane), at in lanes.items():
        rows = s.row[at]
        chunks = np.where((t.buffer[rows] == NONE) & (t.from_buffer[rows] != NONE), t.from_chunk[rows], t.chunk[rows])
        key = (int(s.rank[lane]), chunks.tolist(), t.peer[rows].tolist(), t.op[rows].tolist())
        least[g] = min(least.get(g, key), key)
    missing = [g for g in range(int(group.max(initial=-1)) + 1) if g not in least]
    return np.array(sorted(least, key=lambda g: least[g]) + missing, np.int64)


def _steady(s: Statements, number: Array) -> bool:
    """Whether each lane uses connections of one number only."""
    at = np.flatnonzero(s.connection[s.row] != NONE)
    pairs = np.stack([np.r_[s.lane[at], s.lane[s.forward != NONE]], np.r_[
        number[s.connection[s.row[at]]], number[s.connection[s.forward[s.forward != NONE]]]]], 1)
    return len(np.unique(pairs, axis=0)) == len(np.unique(pairs[:, 0]))


def _lane_numbers(s: Statements, number: Array) -> Array:
    """The number of each lane's connections; NONE for lanes without any."""
    found = np.full(len(s.rank), NONE, np.int64)
    at = np.flatnonzero(s.connection[s.row] != NONE)
    found[s.lane[at]] = number[s.connection[s.row[at]]]
    return found


def _distinct(s: Statements, number: Array) -> bool:
    """Whether the lanes of a rank can be told apart by the numbers of their connections, where they have any."""
    lanes = _lane_numbers(s, number)
    pairs = np.stack([s.rank, lanes], 1)[lanes != NONE]
    return len(np.unique(pairs, axis=0)) == len(pairs)


def _through(s: Statements, found: Events, partner: Array) -> tuple[Array, dict[int, bool]]:
    """As :func:`_places`, the lanes that record numbered through on each rank, for each partner by itself, in the order
    of the chunks that they write before they record for the last time."""
    t = s.table
    op = t.op[s.row]
    place = np.zeros(len(s.rank), np.int64)
    keys: dict[tuple[int, int], list[tuple[list[int], int]]] = {}
    for lane in np.unique(found.lane[op == Op.RECORD]).tolist():
        a, b = int(s.first[lane]), int(s.first[lane + 1])
        last = a + int(np.flatnonzero(op[a:b] == Op.RECORD)[-1])
        done = np.flatnonzero(op[a:last] < Op.RECORD)
        chunk = t.chunk[s.row[a:b][done[::-1]]].tolist()
        keys.setdefault((int(s.rank[lane]), int(partner[lane])), []).append((chunk, lane))
    for lanes in keys.values():
        for number, (_, lane) in enumerate(sorted(lanes)):
            place[lane] = number
    return place, {0: any(len(lanes) > 1 for lanes in keys.values())}


def _places(s: Statements, made: list[Nest], lane_class: Array) -> tuple[Array, dict[int, bool]]:
    """Of each lane: which it is of those of its class and rank; of each class: whether a rank has several."""
    place = np.zeros(len(s.rank), np.int64)
    taken: dict[tuple[int, int], int] = {}
    several: dict[int, bool] = {}
    for nest in made:
        kind = int(lane_class[nest.members.flat[0]])
        numbers, size = nest.numbers()
        for lanes, here in zip(nest.members.reshape(len(nest.anchors), -1), numbers.reshape(len(nest.anchors), -1),
                               strict=True):
            key = kind, int(s.rank[lanes[0]])
            place[lanes] = here + taken.get(key, 0)
            taken[key] = taken.get(key, 0) + size
            several[kind] = several.get(kind, False) or taken[key] > 1
    return place, several


def _event_words(s: Statements, found: Events, lane_class: Array, several: dict[int, bool], partner: Array) -> dict[
        int, tuple[str, bool, bool, bool]]:
    """A word for each sort of events, by what was done before, and which of their numbers are told."""
    words: dict[int, tuple[str, bool, bool, bool]] = {}
    used: dict[str, int] = {}
    op, sort = s.table.op[s.row], found.sorts(lane_class)
    made = np.flatnonzero(op == Op.RECORD)
    ranks = np.unique(np.stack([s.rank[s.lane[made]], partner[s.lane[made]]], 1), axis=0)
    apart = len(ranks) > len(np.unique(ranks[:, 0]))
    many = set(sort[made[found.turn[made] > 0]].tolist())
    for i in made.tolist():
        kind = int(sort[i])
        if kind not in words:
            words[kind] = (_fresh(AFTER[int(found.after[i])], used), apart,
                           several.get(int(lane_class[s.lane[i]]), False), kind in many)
    if ((op == Op.WAIT) & (found.lane == NONE)).any():
        words[LOST] = (_fresh("never", used), False, False, True)
    return words


def _fresh(word: str, used: dict[str, int]) -> str:
    used[word] = used.get(word, 0) + 1
    return word if used[word] == 1 else f"{word}{used[word]}"


def _roles(s: Statements) -> Array:
    """Of each lane: 1 where it sends, plus 2 where it receives."""
    found = np.zeros(len(s.rank), np.int64)
    op = s.table.op[s.row]
    found[s.lane[(op == Op.SEND) | (s.forward != NONE)]] |= 1
    found[s.lane[(op == Op.RECV) | (op == Op.REDUCE_RECV)]] |= 2
    return found


_ROLES = ("local", "outgoing", "incoming", "link")


def _named(s: Statements, made: list[Nest], number: Array, roles: Array, steady: bool, by_number: bool) -> tuple[
        int, list[Naming], list[str], Array]:
    """Names for the streams and connections of all nests, with what they cost to read. ``by_number``: streams that have
    connections are called by the numbers of these."""
    lanes = _lane_numbers(s, number)
    stream = ["" for _ in s.rank]
    namings: list[Naming] = []
    used: dict[str, int] = {}
    cost = 0
    for nest in made:
        flat = nest.members.reshape(len(nest.anchors), -1)
        transfers = bool(lanes[flat[0, 0]] != NONE)
        chan = nest.formula(lanes[nest.members]) if transfers and steady else None
        if by_number and transfers:
            assert chan is not None
            namings.append(Naming("", chan, None))
            cost += weight(chan)
            for lane in flat.ravel().tolist():
                stream[lane] = str(int(lanes[lane]))
            continue
        word = _fresh(_ROLES[int(roles[flat[0, 0]])], used)
        several = flat.shape[1] > 1
        numbers, _ = nest.numbers()
        index = nest.formula(numbers)
        for lane, k in zip(flat.ravel().tolist(), numbers.ravel().tolist(), strict=True):
            stream[lane] = f"{word}[{k}]" if several else word
        namings.append(Naming(word, index if several else None, chan, transfers and not steady))
        cost += 1 + (weight(index) if several else 0) + (0 if chan is None else 2 + weight(chan))
    return cost, namings, stream, number
