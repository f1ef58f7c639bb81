"""All interleavings of a tiny table, by brute force: the judge of the proofs about order. Shares nothing with them."""

from collections import defaultdict
from random import Random

from schedlang.ir.table import COLUMNS
from schedlang.ops import Op
from tests.tables import allreduce


class Oracle:
    """A table's rows as plain tuples, and what holds in a state. A state says how many steps each lane has posted, and
    in which order rows were posted at each end of each connection. ``depth``: 0 rendezvous, None unlimited."""

    def __init__(self, table, depth):
        self.depth = depth
        self.rows = [{c: int(v) for c, v in row.items()} for row in _rows(table)]
        self.streams = len(table.streams)
        self.steps = defaultdict(list)
        for i, row in enumerate(self.rows):
            self.steps[(row["rank"], row["stream"], row["step"])].append(i)
        self.lanes = sorted({(r, s) for r, s, _ in self.steps})
        self.length = {lane: 1 + max(k for r, s, k in self.steps if (r, s) == lane) for lane in self.lanes}
        self.records = {(row["rank"], row["event"]): i for i, row in enumerate(self.rows) if row["op"] == Op.RECORD}

    def transfer(self, i):
        return self.rows[i]["op"] <= Op.REDUCE_RECV

    def end(self, i):
        row = self.rows[i]
        pair = (row["rank"], row["peer"]) if row["op"] == Op.SEND else (row["peer"], row["rank"])
        return (*pair, row["chan"], row["op"] == Op.SEND)

    def start(self):
        return dict.fromkeys(self.lanes, 0), {}

    def post(self, state, lane):
        counts, ends = dict(state[0]), dict(state[1])
        for i in self.steps[(*lane, counts[lane])]:
            if self.transfer(i):
                ends[self.end(i)] = (*ends.get(self.end(i), ()), i)
        counts[lane] += 1
        return counts, ends

    def done(self, state):
        """The rows that can be done in a state, by the rules of docs/decisions/0001 read from top to bottom until
        nothing new."""
        counts, ends = state
        index = {i: k for end in ends.values() for k, i in enumerate(end)}
        posted = {i for lane in self.lanes for k in range(counts[lane]) for i in self.steps[(*lane, k)]}
        fused_out = defaultdict(list)
        for i, row in enumerate(self.rows):
            if row["of"] >= 0:
                fused_out[row["of"]].append(i)

        def message(i, sending, back=0):
            source, destination, chan, _ = self.end(i)
            end, k = ends.get((source, destination, chan, sending), ()), index[i] - back
            return end[k] if k < len(end) else None

        facts = set()
        while True:
            new = set()
            for i in posted:
                row = self.rows[i]
                if not self.transfer(i):
                    if row["op"] != Op.WAIT or ("done", self.records.get((row["rank"], row["event"]))) in facts:
                        new.add(("done", i))
                elif row["op"] == Op.SEND and row["of"] < 0:
                    new.add(("there", i))
                    if self._room(i, message, index, facts):
                        new.add(("done", i))
                elif row["op"] == Op.SEND:
                    if ("there", message(row["of"], True)) in facts:
                        new.add(("there", i))
                    if ("done", row["of"]) in facts:
                        new.add(("done", i))
                else:
                    outs = fused_out[i]
                    if (index[i] == 0 or ("takeable", message(i, False, 1)) in facts) and all(
                            ("takeable", message(o, False)) in facts for o in outs):
                        new.add(("takeable", i))
                    arrived = ("there" if self.depth == 0 else "done", message(i, True)) in facts
                    if arrived and all(self._room(o, message, index, facts) for o in outs):
                        new.add(("done", i))
            if new <= facts:
                return {i for fact, i in facts if fact == "done"}
            facts |= new

    def _room(self, send, message, index, facts):
        if self.depth == 0:
            return ("takeable", message(send, False)) in facts
        return self.depth is None or index[send] < self.depth or ("done", message(send, False, self.depth)) in facts

    def next_states(self, state, frozen=None):
        """The states one post further; ``frozen``: a (rank, stream, step) that never completes."""
        done = self.done(state)
        for lane in self.lanes:
            k = state[0][lane]
            if k < self.length[lane] and (*lane, k - 1) != frozen and done.issuperset(self.steps[(*lane, k - 1)]):
                yield self.post(state, lane)

    def finished(self, state):
        return state[0] == self.length and len(self.done(state)) == len(self.rows)

    def ended(self, state, lane):
        """Whether all steps of a lane are posted and done."""
        return state[0][lane] == self.length[lane] and self.done(state).issuperset(
            self.steps[(*lane, self.length[lane] - 1)])

    def explore(self):
        """All final states, and all orders of posts seen at each end."""
        seen, finals, orders = set(), [], defaultdict(set)
        stack = [self.start()]
        while stack:
            state = stack.pop()
            key = (tuple(state[0].values()), tuple(sorted(state[1].items())))
            if key in seen:
                continue
            seen.add(key)
            following = list(self.next_states(state))
            if not following:
                finals.append(state)
                for end, rows in state[1].items():
                    orders[end].add(rows)
            stack += following
        return finals, orders

    def run(self, frozen=None):
        """The last state of one execution; which one does not matter where no end is ambiguous."""
        state = self.start()
        while True:
            following = next(self.next_states(state, frozen), None)
            if following is None:
                return state
            state = following

    def step(self, i):
        return self.rows[i]["rank"], self.rows[i]["stream"], self.rows[i]["step"]

    def posted_without(self, i):
        """What can be posted although the step of row i never completes: all that is not ordered after it."""
        counts, _ = self.run(self.step(i))
        return {j for j in range(len(self.rows)) if counts[self.step(j)[:2]] > self.rows[j]["step"]}

    def accesses(self, i):
        """(buffer, chunk, writes) of a row."""
        row = self.rows[i]
        found = set()
        for k in range(row["count"]):
            if row["op"] == Op.SEND and row["of"] < 0:
                found.add((row["buffer"], row["chunk"] + k, False))
            if row["op"] in (Op.REDUCE_RECV, Op.COPY, Op.REDUCE):
                found.add((row["from_buffer"], row["from_chunk"] + k, False))
            if Op.SEND < row["op"] < Op.RECORD and row["buffer"] >= 0:
                found.add((row["buffer"], row["chunk"] + k, True))
        return found

    def races(self):
        """All (i, j, buffer, chunk) that race, i < j, among the rows that are posted."""
        everything, _ = self.run()
        after = {i: self.posted_without(i) for i in range(len(self.rows))}
        found = set()
        for j in range(len(self.rows)):
            for i in range(j):
                a, b = self.step(i), self.step(j)
                if a[0] != b[0] or a[1] == b[1] or any(everything[s[:2]] <= s[2] for s in (a, b)):
                    continue
                if j in after[i] and i in after[j]:
                    found |= {(i, j, p, c) for p, c, w in self.accesses(i) for q, d, v in self.accesses(j)
                              if (p, c) == (q, d) and (w or v)}
        return found


def _rows(table):
    return [{c: getattr(table, c)[i] for c in COLUMNS if c != "number"} for i in range(len(table))]


def random_table(random: Random, statements=6, ranks=3, streams=2, shared_chan=False, fused=True, swaps=2, chunks=3,
                 lost=0.0):
    """A tiny table: statements appended to random lanes, some put into one step, then some steps of a lane exchanged.
    With the chance ``lost`` a transfer or an event lacks its other end."""
    lanes = defaultdict(list)  # (rank, stream): a list of steps, each a list of rows
    recorded, ids = [], {}

    def append(rank, stream, row, join):
        steps = lanes[rank, stream]
        row = dict(row, rank=rank, stream=f"s{stream}")
        if join and steps and steps[-1][-1]["op"] not in ("record", "wait") and row["op"] not in ("record", "wait"):
            steps[-1].append(row)
        else:
            steps.append([row])
        return row

    for number in range(statements):
        kind = random.choice(["send"] * 5 + ["copy", "event", "event"] + ["fused"] * (2 if fused else 0))
        r, p = random.sample(range(ranks), 2)
        a, b, c = (random.randrange(streams) for _ in range(3))
        chan = {"chan": "wire"} if shared_chan and random.random() < 0.7 else {"chan": f"s{a}"}
        join = random.random() < 0.3
        at = {"buffer": "data", "chunk": random.randrange(chunks)}
        to = {"buffer": "data", "chunk": random.randrange(chunks)}
        if kind == "copy":
            append(r, a, {"op": "copy", **to, "from_buffer": "data", "from_chunk": at["chunk"]}, join)
        elif kind == "event":
            if recorded and random.random() < 0.6:
                rank, event = random.choice(recorded)
                append(rank, a, {"op": "wait", "event": event}, False)
            else:
                recorded.append((r, f"e{number}"))
                if random.random() >= lost:
                    append(r, a, {"op": "record", "event": f"e{number}"}, False)
        else:
            if not shared_chan:
                b = a
            if random.random() >= lost:
                append(r, a, {"op": "send", **at, "peer": p, **chan}, join)
            if random.random() < lost:
                continue
            received = append(p, b, {"op": random.choice(["recv", "reduce_recv"]), **to, "peer": r, **chan}, join)
            if kind == "fused":
                q = random.choice([x for x in range(ranks) if x != p])
                forward = {"op": "send", **to, "peer": q, **chan, "rank": p, "stream": f"s{b}", "fused": received}
                lanes[p, b][-1].append(forward)
                append(q, c if shared_chan else a, {"op": "recv", **at, "peer": p, **chan}, join)
    for _ in range(random.randrange(swaps + 1)):
        steps = random.choice(list(lanes.values()))
        if len(steps) > 1:
            i = random.randrange(len(steps) - 1)
            steps[i], steps[i + 1] = steps[i + 1], steps[i]
    rows = [dict(row, step=k) for steps in lanes.values() for k, step in enumerate(steps) for row in step]
    flat = [row for steps in lanes.values() for step in steps for row in step]
    for i, row in enumerate(flat):
        ids[id(row)] = i
    for row in rows:
        if "fused" in row:
            row["of"] = ids[id(row.pop("fused"))]
    return allreduce(rows, ranks, chunks)
