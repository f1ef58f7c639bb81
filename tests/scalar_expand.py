"""The meaning of expansion, written out: one turn at a time, Python integers, a dict for each row. Slow on purpose.

Shares the parser and the resolution of names with the package, nothing else (`reversed` is a transform of tables and
taken from there). Not here: declarations out of order.
"""

import itertools
import math

from schedlang.ops import COLLECTIVES
from schedlang.syntax import tree as t

LEAST, MOST = -(1 << 63), (1 << 63) - 1


class Bad(Exception):
    """The first error in execution order: its code, and the statement it stands in."""

    def __init__(self, code):
        super().__init__(code)
        self.code = code
        self.statement = self.outermost = None


def must(condition, code):
    if not condition:
        raise Bad(code)


def is_int(v):
    return isinstance(v, int) and not isinstance(v, bool)


def in_range(v):
    must(LEAST <= v <= MOST, "SL223")
    return v


# ---- expressions ---------------------------------------------------------------------------------------------------


def value(e, names, module):
    """The value of an expression with Python's values."""
    def sub(x):
        return value(x, names, module)

    def integer(x):
        v = sub(x)
        must(is_int(v), "SL203")
        return v

    def boolean(x):
        v = sub(x)
        must(isinstance(v, bool), "SL203")
        return v

    match e:
        case t.Int():
            return in_range(e.value)
        case t.Bool():
            return e.value
        case t.Name():
            return names.get(e.id, e.id)
        case t.ListExpr():
            return [sub(x) for x in e.items]
        case t.Range():
            return list(range(integer(e.start), integer(e.stop)))
        case t.Comp():
            source = sub(e.source)
            must(isinstance(source, list), "SL203")
            found = []
            for x in source:
                inner = {**names, e.var: x}
                if e.condition is None or value(e.condition, inner, module):
                    found.append(value(e.element, inner, module))
            return found
        case t.Index():
            base, i = sub(e.base), integer(e.index)
            must(isinstance(base, list), "SL203")
            must(0 <= i < len(base), "SL221")
            return base[i]
        case t.Unary():
            if e.op == "not":
                return not boolean(e.operand)
            v = integer(e.operand)
            return in_range({"-": -v, "+": v, "~": ~v}[e.op])
        case t.Binary():
            return binary(e.op, sub(e.left), sub(e.right))
        case t.Compare():
            left = sub(e.first)
            for op, r in zip(e.ops, e.rest):
                right = sub(r)
                must(is_int(left) == is_int(right) and isinstance(left, list) == isinstance(right, list), "SL203")
                must(op in ("==", "!=") or is_int(left), "SL203")
                if not {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right,
                        ">": left > right, ">=": left >= right}[op]:
                    return False
                left = right
            return True
        case t.BoolOp():
            if e.op == "and":
                return boolean(e.left) and boolean(e.right)
            return boolean(e.left) or boolean(e.right)
        case t.Conditional():
            return sub(e.then) if boolean(e.test) else sub(e.otherwise)
        case t.Call():
            return call(e, [sub(a) for a in e.arguments], module)
    raise AssertionError(e)


def binary(op, a, b):
    if op == "+" and isinstance(a, list) and isinstance(b, list):
        return a + b
    must(is_int(a) and is_int(b), "SL203")
    if op in ("//", "%"):
        must(b != 0, "SL223")
    if op in ("<<", ">>", "**"):
        must(b >= 0, "SL223")
    if op == "<<":
        must(a == 0 or b < 64, "SL223")
        return in_range(a << min(b, 64))
    if op == ">>":
        return a >> min(b, 1000)
    if op == "**":
        must(abs(a) <= 1 or b < 64, "SL223")
        return in_range(a ** (b if b < 64 else 64 + b % 2))
    return in_range(
        {
            "+": lambda: a + b,
            "-": lambda: a - b,
            "*": lambda: a * b,
            "//": lambda: a // b,
            "%": lambda: a % b,
            "&": lambda: a & b,
            "|": lambda: a | b,
            "^": lambda: a ^ b,
        }[op]()
    )


def call(e, given, module):
    name = e.function
    if name in ("min", "max") and len(given) == 1:
        must(isinstance(given[0], list), "SL203")
        must(given[0], "SL221")
        return (min if name == "min" else max)(given[0])
    if name == "len":
        must(isinstance(given[0], list), "SL203")
        return len(given[0])
    builtins = {
        "min": min, "max": max, "abs": abs, "gcd": math.gcd,
        "log2": lambda a: a.bit_length() - 1, "ceil_log2": lambda a: (a - 1).bit_length(),
        "ceil_div": lambda a, b: -(-a // b), "is_pow2": lambda a: a > 0 and bin(a).count("1") == 1,
    }
    if name in builtins:
        must(all(is_int(v) for v in given), "SL203")
        if name in ("log2", "ceil_log2"):
            must(given[0] >= 1, "SL223")
        if name == "ceil_div":
            must(given[1] != 0, "SL223")
        if name == "gcd":
            for v in given:
                in_range(abs(v))
        found = builtins[name](*given)
        return found if isinstance(found, bool) else in_range(found)
    function = module.function(name, e.span)
    return value(function.tree.value, dict(zip(function.tree.params, given)), function.module)


# ---- statements ----------------------------------------------------------------------------------------------------


class Expander:
    """Walks one schedule; ``rows`` are its rows in order, ``of`` a row of the list, ``step`` the number of its source
    step.
    """

    def __init__(self, schedule, module, params, op=None):
        self.schedule, self.module, self.op = schedule, module, op
        self.rows, self.steps, self.copies = [], 0, 0
        self.ensures = {}
        self.names = dict(params)
        for p in schedule.params:
            if p.name not in self.names:
                self.names[p.name] = value(p.default, self.names, module)
        self.declare()

    # -- declarations, in the order that the tests write them

    def declare(self):
        body = self.schedule.body
        collective = next(s for s in body if isinstance(s, t.CollectiveStmt))
        self.kind = COLLECTIVES[collective.name]
        for s in body:
            if isinstance(s, (t.Let, t.Require, t.RanksStmt, t.ChunksStmt)):
                self.at(s, self.declare_one)
            if (
                "chunks" not in self.names
                and not any(isinstance(x, t.ChunksStmt) for x in body)
                and "ranks" in self.names
            ):
                self.names["chunks"] = self.names["ranks"] if self.kind.family in ("blocked", "vector") else 1
        self.ranks, self.chunks = self.names["ranks"], self.names["chunks"]
        root = None
        for name, a in zip(self.kind.arguments, collective.arguments):
            if a.name == "root" or (a.name is None and name == "root"):
                root = value(a.value, self.names, self.module)
        inplace = self.kind.family == "whole" and not collective.outofplace
        if collective.inplace is not None:
            inplace = value(collective.inplace, self.names, self.module)
        n, c = self.ranks, self.chunks
        self.buffers = {}
        self.only = {}
        if self.kind.family != "custom":
            if inplace or self.kind.family == "barrier":
                self.buffers["data"] = c
            else:
                short = {"input": "output", "output": "input"}.get(self.kind.long)
                for b in ("input", "output"):
                    self.buffers[b] = c // n if b == short else c
                if self.kind.rooted and self.kind.long:
                    self.only[self.kind.long] = root
        for s in body:
            if isinstance(s, t.BufferStmt):
                for b in s.buffers:
                    self.buffers[b.name] = value(b.chunks, self.names, self.module)

    def declare_one(self, s):
        if isinstance(s, t.Let):
            self.names[s.name] = value(s.value, self.names, self.module)
        elif isinstance(s, t.Require):
            self.require(s, self.names)
        else:
            size = value(s.value, self.names, self.module)
            must(size >= 1, "SL205")
            self.names["ranks" if isinstance(s, t.RanksStmt) else "chunks"] = size

    def at(self, s, act, *rest):
        try:
            return act(s, *rest)
        except Bad as bad:
            bad.statement = bad.statement or s
            bad.outermost = s
            raise

    def require(self, s, names):
        truth = value(s.condition, names, self.module)
        must(isinstance(truth, bool), "SL203")
        must(truth, "SL207")

    # -- the walk

    def run(self):
        self.block(
            self.schedule.body, self.names, {"stream": "main", "chan": None, "rank": None, "step": None}, top=True
        )
        lanes = {}
        for row in self.rows:
            met = lanes.setdefault((row["rank"], row["stream"]), [])
            if not met or met[-1] != row["number"]:
                met.append(row["number"])
            row["step"] = len(met) - 1
        return self.rows

    def block(self, body, names, here, top=False):
        names, here = dict(names), dict(here)
        for s in body:
            self.at(s, self.statement, names, here, top)

    def statement(self, s, names, here, top):
        def ev(e):
            return value(e, names, self.module)

        if getattr(s, "condition", None) is not None and not isinstance(s, t.Require):
            truth = ev(s.condition)
            must(isinstance(truth, bool), "SL203")
            if not truth:
                return
        match s:
            case t.Let():
                names[s.name] = ev(s.value)
            case t.Require():
                if not top:
                    self.require(s, names)
            case t.For():
                values = ev(s.values)
                must(isinstance(values, list), "SL203")
                for v in values:
                    self.block(s.body, {**names, s.var: v}, {**here, "loops": {**here.get("loops", {}), s.var: v}})
            case t.If():
                for condition, body in s.branches:
                    truth = ev(condition)
                    must(isinstance(truth, bool), "SL203")
                    if truth:
                        return self.block(body, names, here)
                self.block(s.otherwise, names, here)
            case t.Step():
                before = len(self.rows)
                self.block(s.body, names, {**here, "step": self.steps})
                self.steps += len(self.rows) > before
            case t.Stream():
                name = self.stream(s.name, names)
                outer = here["stream"]
                self.block(s.body, names, {**here, "stream": name if outer == "main" else f"{outer}/{name}"})
            case t.Chan():
                here["chan"] = self.stream(s.name, names)
            case t.OnRank():
                self.block(s.body, names, {**here, "rank": self.rank(s.rank, names)})
            case t.Use():
                self.use(s, names, here)
            case t.Ensure():
                self.ensure(s, names)
            case t.Transfer() | t.OwnSend() | t.OwnRecv() | t.Local() | t.EventStmt():
                before = len(self.rows)
                getattr(self, type(s).__name__.lower())(s, names, here)
                made = self.rows[before:]
                for row in made:
                    row["number"] = self.steps if here["step"] is None else here["step"]
                    row["line"], row["loops"] = (
                        s.span.line,
                        {k: v for k, v in here.get("loops", {}).items() if is_int(v)},
                    )
                    row.setdefault("stream", here["stream"])
                    if row["op"] in ("send", "recv", "reduce_recv"):
                        row["chan"] = here["chan"] or here["stream"]
                if here["step"] is None and made:
                    self.steps += 1

    def stream(self, name, names):
        def text(v):
            must(is_int(v) or isinstance(v, str), "SL203")
            return str(v)

        if isinstance(name.base, t.Name) and name.base.id not in names:
            base = name.base.id
        else:
            base = value(name.base, names, self.module)
        if name.index is None:
            return text(base)
        index = value(name.index, names, self.module)
        if isinstance(base, list):
            must(is_int(index), "SL203")
            must(0 <= index < len(base), "SL221")
            return text(base[index])
        must(isinstance(base, str), "SL203")
        return f"{base}[{text(index)}]"

    # -- parts

    def rank(self, e, names):
        r = value(e, names, self.module)
        must(is_int(r), "SL203")
        must(0 <= r < self.ranks, "SL222")
        return r

    def loc(self, loc, names):
        size = self.buffers[loc.buffer]
        a = value(loc.start, names, self.module)
        must(is_int(a), "SL203")
        if loc.stop is None:
            must(0 <= a < size, "SL221")
            return loc.buffer, a, 1
        b = value(loc.stop, names, self.module)
        must(is_int(b), "SL203")
        must(0 <= a <= b <= size, "SL221")
        return loc.buffer, a, b - a

    def exists(self, place, rank):
        must(not place[2] or self.only.get(place[0], rank) == rank, "SL221")

    def emit(self, op, rank, place, **rest):
        buffer, chunk, count = place
        row = {"op": op, "rank": rank, "buffer": buffer, "chunk": chunk, "count": count, **rest}
        self.rows.append(row)
        return row

    def transfer(self, s, names, here):
        what = self.loc(s.what, names)
        places = [self.loc(s.into, names) if s.into else what]
        for f in s.forwards:
            places.append(self.loc(f.into, names) if f.into else places[-1])
        ranks = [self.rank(e, names) for e in (s.source, s.target, *(f.target for f in s.forwards))]
        for a, b in itertools.pairwise(ranks):
            must(a != b, "SL224")
        for p in places:
            must(p[2] == what[2], "SL303")
        self.exists(what, ranks[0])
        keeps = [not f.only for f in s.forwards] + [True]
        for i, p in enumerate(places):
            if keeps[i] or s.kind == "reduce":
                self.exists(p, ranks[i + 1])
        if not what[2]:
            return
        self.emit("send", ranks[0], what, peer=ranks[1])
        for i, p in enumerate(places):
            stored = p if keeps[i] else (None, 0, p[2])
            if s.kind == "reduce" and i == 0:
                got = self.emit("reduce_recv", ranks[1], stored, peer=ranks[0], from_buffer=p[0], from_chunk=p[1])
            else:
                got = self.emit("recv", ranks[i + 1], stored, peer=ranks[i])
            if i < len(s.forwards):
                self.emit("send", ranks[i + 1], stored, peer=ranks[i + 2], of=got)

    def ownsend(self, s, names, here):
        what, target = self.loc(s.what, names), self.rank(s.target, names)
        must(target != here["rank"], "SL224")
        must(what[2], "SL221")
        self.exists(what, here["rank"])
        self.emit("send", here["rank"], what, peer=target)

    def ownrecv(self, s, names, here):
        what, source = self.loc(s.what, names), self.rank(s.source, names)
        must(source != here["rank"], "SL224")
        target = self.rank(s.forwards[0].target, names) if s.forwards else None
        must(target != here["rank"], "SL224")
        must(what[2], "SL221")
        keeps = not (s.forwards and s.forwards[0].only)
        into = self.loc(s.into, names) if s.into else what
        must(into[2] == what[2], "SL303")
        if keeps or s.kind == "reduce":
            self.exists(what, here["rank"])
        if s.into:
            self.exists(into, here["rank"])
        stored = into if keeps else (None, 0, what[2])
        rest = {"from_buffer": what[0], "from_chunk": what[1]} if s.kind == "reduce" else {}
        got = self.emit("reduce_recv" if s.kind == "reduce" else "recv", here["rank"], stored, peer=source, **rest)
        if s.forwards:
            self.emit("send", here["rank"], stored, peer=target, of=got)

    def local(self, s, names, here):
        what, into = self.loc(s.what, names), self.loc(s.into, names)
        rank = here["rank"] if s.rank is None else self.rank(s.rank, names)
        must(what[2] == into[2], "SL303")
        must(s.rank is not None or what[2], "SL221")
        self.exists(what, rank)
        self.exists(into, rank)
        if what[2]:
            self.emit(s.kind, rank, into, from_buffer=what[0], from_chunk=what[1])

    def eventstmt(self, s, names, here):
        rank = here["rank"] if s.rank is None else self.rank(s.rank, names)
        index = [value(e, names, self.module) for e in s.event.indices] or [0]
        must(all(is_int(i) for i in index), "SL203")
        self.rows.append({"op": s.kind, "rank": rank, "event": (s.event.name, tuple(index))})

    def ensure(self, s, names):
        what, source, rank = self.loc(s.what, names), self.loc(s.value.what, names), self.rank(s.rank, names)
        must(what[2] == source[2], "SL303")
        if isinstance(s.value, t.EnsureOne):
            ranks = [self.rank(s.value.rank, names)]
        else:
            ranks = value(s.value.ranks, names, self.module)
            must(isinstance(ranks, list), "SL203")
            must(ranks, "SL205")
            must(all(0 <= r < self.ranks for r in ranks) and len(set(ranks)) == len(ranks), "SL222")
        for i in range(what[2]):
            key = (what[0], rank, what[1] + i)
            must(key not in self.ensures, "SL205")
            self.ensures[key] = [(source[0], r, source[1] + i) for r in ranks]

    # -- use

    def use(self, s, names, here):
        schedule, module = self.module.schedule(s.schedule, s.span)
        given, params = {}, [p.name for p in schedule.params]
        for i, a in enumerate(s.arguments):
            given[a.name or params[i]] = value(a.value, names, self.module)
        on = list(range(self.ranks)) if s.on is None else value(s.on, names, self.module)
        must(on, "SL210")
        must(all(0 <= r < self.ranks for r in on), "SL222")
        must(len(set(on)) == len(on), "SL210")
        if "ranks" in params:
            given.setdefault("ranks", len(on))
        inner = Expander(schedule, module, given)
        must(inner.ranks == len(on), "SL210")
        rows = inner.backwards(given) if s.reversed else inner.run()
        own = [b for b in inner.buffers if inner.is_own(b)]
        where, scale = {}, None
        for b in s.bindings:
            where[b.inner or "data"] = self.loc(b.outer, names)
        for b in own:
            must(b in where or b in self.buffers, "SL210")
            where.setdefault(b, (b, 0, self.buffers.get(b)))
            must(where[b][2] and where[b][2] % inner.buffers[b] == 0, "SL210")
            must(scale in (None, where[b][2] // inner.buffers[b]), "SL210")
            scale = where[b][2] // inner.buffers[b]
        scale = scale or 1
        self.copies += 1
        mark = f"#{self.copies}."
        for b, size in inner.buffers.items():
            if b not in own:
                where[b] = (mark + b, 0, size * scale)
                self.buffers[mark + b] = size * scale
        outer = here["stream"]

        def stream(name):
            return outer if name == "main" else name if outer == "main" else f"{outer}/{name}"

        base = self.steps
        order = list(dict.fromkeys(r["stream"] for r in rows))
        touched = sorted({(r["rank"], order.index(r["stream"])) for r in rows if r["stream"] != "main"})
        touched = [(q, order[i]) for q, i in touched]
        streams = inner_streams(touched)
        if touched:
            for q in streams:
                self.raw(s, here, "record", on[q], outer, base, (mark + "fork", (0,)))
            for q, names_ in streams.items():
                for name in names_:
                    self.raw(s, here, "wait", on[q], stream(name), base + 1, (mark + "fork", (0,)))
            base += 2
        copies = {}
        for r in rows:
            new = copies[id(r)] = dict(r)
            new["rank"] = on[r["rank"]]
            new["number"] = r["number"] + base
            new["stream"] = stream(r["stream"])
            if "peer" in r:
                new["peer"] = on[r["peer"]]
                new["chan"] = (here["chan"] or outer) if r["chan"] == "main" else stream(r["chan"])
            for b, c in (("buffer", "chunk"), ("from_buffer", "from_chunk")):
                if r.get(b) is not None:
                    new[b], new[c] = where[r[b]][0], where[r[b]][1] + r[c] * scale
            if "count" in r:
                new["count"] = r["count"] * scale
            if "event" in r:
                new["event"] = (mark + r["event"][0], r["event"][1])
            if "of" in r:
                new["of"] = copies[id(r["of"])]
            self.rows.append(new)
            for b in (new.get("buffer"), new.get("from_buffer")):
                must(b is None or self.only.get(b, new["rank"]) == new["rank"], "SL221")
        base += inner.steps
        if touched:
            for q, names_ in streams.items():
                for k, name in enumerate(names_):
                    self.raw(s, here, "record", on[q], stream(name), base, (mark + "join", (k,)))
            for k in range(max(map(len, streams.values()))):
                for q, names_ in streams.items():
                    if k < len(names_):
                        self.raw(s, here, "wait", on[q], outer, base + 1 + k, (mark + "join", (k,)))
            base += 1 + max(map(len, streams.values()))
        self.steps = base

    def backwards(self, given):
        """The rows of the reverse. The transform itself is tested elsewhere; here it is a given."""
        from schedlang.expand.expansion import Expansions
        from schedlang.expand.lists import from_plain
        from schedlang.ir.legal import check
        from schedlang.ir.reverse import reverse

        table = Expansions(1 << 28).table(self.schedule, self.module, {k: from_plain(v) for k, v in given.items()})
        for finding in check(table):
            must(finding.code not in ("SL306", "SL307"), finding.code)
        table = reverse(table)
        rows = of_table(table)
        for r in rows:
            if "of" in r:
                r["of"] = rows[r["of"]]
        rows.sort(key=lambda r: r["number"])
        self.buffers = {b.name: b.chunks for b in table.buffers}
        self.steps = max((r["number"] for r in rows), default=-1) + 1
        return rows

    def is_own(self, b):
        return b in ("data", "input", "output")

    def raw(self, s, here, op, rank, stream, number, event):
        self.rows.append(
            {
                "op": op,
                "rank": rank,
                "stream": stream,
                "number": number,
                "event": event,
                "line": s.span.line,
                "loops": {k: v for k, v in here.get("loops", {}).items() if is_int(v)},
            }
        )


def inner_streams(touched):
    streams = {}
    for rank, name in touched:
        streams.setdefault(rank, []).append(name)
    return streams


# ---- comparing -----------------------------------------------------------------------------------------------------


def of_table(table):
    """The rows of an op table in the same form."""
    rows = []
    names = ("send", "recv", "reduce_recv", "copy", "reduce", "record", "wait")
    for i in range(len(table)):
        site = table.sites[int(table.site[i])]
        row = {"op": names[int(table.op[i])], "rank": int(table.rank[i]), "stream": table.streams[int(table.stream[i])],
               "step": int(table.step[i]), "number": int(table.number[i]), "line": site.location.line,
               "loops": site.loop_values(int(table.turn[i]))}
        if row["op"] in ("record", "wait"):
            e = int(table.event[i])
            row["event"] = (table.events[e], table.event_indices[e])
            assert table.buffer[i] == -1 and table.count[i] == 0 and table.chunk[i] == 0
        else:
            b = int(table.buffer[i])
            row |= {
                "buffer": None if b == -1 else table.buffers[b].name,
                "chunk": int(table.chunk[i]),
                "count": int(table.count[i]),
            }
        if row["op"] in ("send", "recv", "reduce_recv"):
            row |= {"peer": int(table.peer[i]), "chan": table.streams[int(table.chan[i])]}
        else:
            assert table.peer[i] == -1 and table.chan[i] == -1
        if table.from_buffer[i] != -1:
            row |= {
                "from_buffer": table.buffers[int(table.from_buffer[i])].name,
                "from_chunk": int(table.from_chunk[i]),
            }
        if table.of[i] != -1:
            row["of"] = int(table.of[i])
        rows.append(row)
    return rows


def canonical(rows):
    """Rows with private names replaced by their order of occurrence on their rank, and ``of`` by its place."""
    at = {id(r): i for i, r in enumerate(rows)}
    known = {}

    def private(rank, what, name):
        if name is None or "#" not in name:
            return name
        seen = known.setdefault((rank, what), {})
        return f"#{seen.setdefault(name, len(seen))}"

    found = []
    for r in rows:
        new = dict(r)
        if isinstance(r.get("of"), dict):
            new["of"] = at[id(r["of"])]
        if "event" in r:
            new["event"] = (private(r["rank"], "event", r["event"][0]), tuple(r["event"][1]))
        for b in ("buffer", "from_buffer"):
            if b in r:
                new[b] = private(r["rank"], "buffer", r[b])
        found.append(new)
    return found
