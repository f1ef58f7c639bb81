"""Random programs, as text: many are right, some run off a buffer, divide by zero or send to themselves."""

from hypothesis import strategies as st

PRELUDE = """
fn tri(n) = 0 if n <= 0 else n + tri(n - 1)
fn pick(xs, i) = xs[i % len(xs)]
fn halves(a, n) = [a] if n <= 1 else halves(a, n // 2) + halves(a + n // 2, n - n // 2)
fn fib(n) = n if n < 2 else fib(n - 1) + fib(n - 2)
fn grid(a, b) = [[i * b + j for j in 0..b] for i in 0..a]

schedule plain(ranks, w=1):
    collective custom(sum)
    chunks 2
    buffer data[2], tmp[w + 1]
    for r in 0..ranks:
        copy data[r % 2] into tmp[w] on r
        send tmp[w] from r to (r + 1) % ranks into data[0] if ranks > 1

schedule streams(ranks, k=2):
    collective custom(sum)
    buffer data[1], tmp[k]
    for i in 0..k:
        stream side[i % 2]:
            step:
                for r in 1..ranks:
                    reduce data[0] from r to 0 into tmp[i]
            record done[i] on ranks - 1
    stream back:
        for i in 0..k:
            wait done[i] on ranks - 1
        use plain(w=k) on [ranks - 1] for data=tmp[0:k] if k % 2 == 0
    copy data[0] into data[0] on 0
"""


class Writer:
    """Writes one program; every choice is drawn."""

    def __init__(self, draw):
        self.draw = draw
        self.lines = []
        self.fresh = 0
        self.streams = 0  # how many `stream` blocks are open

    def one(self, *choices):
        return self.draw(st.sampled_from(choices))

    def number(self, lo, hi):
        return self.draw(st.integers(lo, hi))

    def chance(self, percent):
        return self.number(1, 100) <= percent

    def name(self, stem):
        self.fresh += 1
        return f"{stem}{self.fresh}"

    # -- expressions

    def integer(self, names, depth=2):
        if depth <= 0 or self.chance(25):
            return self.one(*names, *names, *"01235") if names else self.one(*"01235")
        def sub():
            return self.integer(names, depth - 1)

        match self.number(0, 14):
            case 0 | 1 | 2:
                return f"({sub()} {self.one('+', '-', '*')} {sub()})"
            case 3:
                return f"({sub()} {self.one('//', '%')} {self.one('2', '3', '-3', sub())})"
            case 4:
                return f"({sub()} {self.one('&', '|', '^')} {sub()})"
            case 5:
                return f"({sub()} {self.one('<<', '>>')} ({sub()}) % 5)"
            case 6:
                return f"({self.one('-2', sub())} ** (({sub()}) % 4))"
            case 7:
                return f"({self.one('-', '~', '+')}{sub()})"
            case 8:
                return f"({sub()} if {self.boolean(names, depth - 1)} else {sub()})"
            case 9:
                return f"{self.one('min', 'max', 'gcd')}({sub()}, {sub()})"
            case 10:
                return f"{self.one('log2', 'ceil_log2')}(abs({sub()}) + 1)"
            case 11:
                return f"ceil_div({sub()}, {self.one('2', '3', sub())})"
            case 12:
                return f"{self.one('tri', 'fib')}(({sub()}) % 6)"
            case 13:
                return f"pick({self.list(names, depth - 1)}, {sub()})"
            case _:
                return f"{self.one('len', 'max')}({self.list(names, depth - 1)} + [0])"

    def boolean(self, names, depth=1):
        def sub():
            return self.boolean(names, depth - 1)

        if depth > 0 and self.chance(30):
            return self.one(f"({sub()} and {sub()})", f"({sub()} or {sub()})", f"(not {sub()})")
        a, b = self.integer(names, depth), self.integer(names, depth)
        match self.number(0, 5):
            case 0:
                return f"is_pow2({a})"
            case 1:
                return f"0 <= {a} {self.one('<', '<=')} {b}"
            case 2:
                return f"{self.list(names, 0)} {self.one('==', '!=')} {self.list(names, 0)}"
            case _:
                return f"{a} {self.one('==', '!=', '<', '<=', '>', '>=')} {b}"

    def list(self, names, depth=1):
        a = self.integer(names, depth)
        match self.number(0, 7):
            case 0 | 1 | 2:
                return f"(({a}) % 3..{self.number(1, 4)})"
            case 3:
                return f"[{a}, {self.integer(names, depth)}]"
            case 4:
                v = self.name("v")
                condition = f" if {self.boolean([*names, v], 0)}" if self.chance(50) else ""
                return f"[{self.integer([*names, v], depth)} for {v} in {self.list(names, 0)}{condition}]"
            case 5:
                return f"halves({a}, ({self.integer(names, 0)}) % 5)" if depth > 0 else f"[{a}]"
            case 6:
                return f"grid(2, 3)[({a}) % 2]"
            case _:
                return f"({self.list(names, 0)} + {self.list(names, 0)})" if depth > 0 else f"[{a}]"

    def rank(self, names):
        e = self.integer(names)
        return e if self.chance(3) else f"({e}) % ranks"

    def place(self, names, count=1):
        buffer, size = self.one(("data", 8), ("data", 8), ("tmp", 6))
        e = self.integer(names)
        if self.chance(3):
            return f"{buffer}[{e}]"
        if count == 1:
            return f"{buffer}[({e}) % {size}]"
        return f"{buffer}[({e}) % {size - 4} : ({e}) % {size - 4} + {count}]"

    # -- statements

    def line(self, indent, text):
        self.lines.append("    " * indent + text)

    def guard(self, names):
        return f" if {self.boolean(names)}" if self.chance(25) else ""

    def block(self, indent, names, depth, step=False, on=False):
        names = list(names)
        for _ in range(self.number(1, 3)):
            self.statement(indent, names, depth, step, on)

    def statement(self, indent, names, depth, step, on):
        kinds = ["move", "move", "local", "let"] + ["chan"] * (self.streams > 0 and not step)
        if not step:
            kinds += ["event", *(["use"] if not on else [])]
        if depth > 0:
            kinds += ["for", "for", "if", "stream"] + ["step"] * 2 * (not step) + ["on"] * (not on)
        getattr(self, "_" + self.one(*kinds))(indent, names, depth, step, on)

    def _let(self, indent, names, depth, step, on):
        new = self.name("x")
        self.line(indent, f"let {new} = {self.integer(names)}")
        names.append(new)

    def _for(self, indent, names, depth, step, on):
        new = self.name("i")
        self.line(indent, f"for {new} in {self.one('0..ranks', '0..3', self.list(names), self.list(names))}:")
        self.block(indent + 1, [*names, new], depth - 1, step, on)

    def _if(self, indent, names, depth, step, on):
        self.line(indent, f"if {self.boolean(names)}:")
        self.block(indent + 1, names, depth - 1, step, on)
        if self.chance(40):
            self.line(indent, f"elif {self.boolean(names)}:")
            self.block(indent + 1, names, depth - 1, step, on)
        if self.chance(50):
            self.line(indent, "else:")
            self.block(indent + 1, names, depth - 1, step, on)

    def _step(self, indent, names, depth, step, on):
        self.line(indent, "step:")
        self.block(indent + 1, names, depth - 1, True, on)

    def _stream(self, indent, names, depth, step, on):
        e = self.integer(names, 1)
        self.line(indent, f"stream {self.one('side', f'({e}) % 3', f'wire[({e}) % 2]', '0')}:")
        self.streams += 1
        self.block(indent + 1, names, depth - 1, step, on)
        self.streams -= 1

    def _chan(self, indent, names, depth, step, on):
        self.line(
            indent, f"chan {self.one('c', f'({self.integer(names, 1)}) % 2', f'c[({self.integer(names, 1)}) % 2]')}"
        )

    def _on(self, indent, names, depth, step, on):
        self.line(indent, f"on {self.rank(names)}:")
        self.block(indent + 1, names, depth - 1, step, True)

    def _move(self, indent, names, depth, step, on):
        if on:
            kind = self.one("send", "recv", "reduce")
            forward = (
                f" then send to {self.rank(names)}{self.one('', ' only')}" if kind != "send" and self.chance(25) else ""
            )
            count = self.one(1, 1, 2)
            keeps = kind == "reduce" and not forward.endswith("only")
            into = f" into {self.place(names, count)}" if keeps and self.chance(30) else ""
            self.line(indent, f"{kind} {self.place(names, count)} {'to' if kind == 'send' else 'from'} "
                              f"{self.rank(names)}{into}{forward}{self.guard(names)}")
            return
        new = self.name("q")
        self.line(indent, f"let {new} = ({self.integer(names)}) % ranks")
        names.append(new)
        count = self.one(1, 1, 2, 3, f"({self.integer(names, 0)}) % 3")
        other = f"({new} + 1 + ({self.integer(names, 1)}) % max(ranks - 1, 1)) % ranks"
        into = f" into {self.place(names, count)}" if self.chance(40) else ""
        forward = ""
        if self.chance(25):
            to = f" into {self.place(names, count)}" if self.chance(40) else ""
            forward = f" then send to {new}{to}{self.one('', ' only')}"
        self.line(
            indent,
            f"{self.one('send', 'reduce')} {self.place(names, count)} from {new} to {other}{into}{forward}"
            f"{self.guard(names)}",
        )

    def _local(self, indent, names, depth, step, on):
        count = self.one(1, 1, 2, f"({self.integer(names, 0)}) % 3") if not on else self.one(1, 2)
        where = "" if on else f" on {self.rank(names)}"
        self.line(
            indent,
            f"{self.one('copy', 'reduce')} {self.place(names, count)} into {self.place(names, count)}{where}"
            f"{self.guard(names)}",
        )

    def _event(self, indent, names, depth, step, on):
        index = self.one("", f"[{self.integer(names, 1)}]", f"[{self.integer(names, 1)}, {self.integer(names, 0)}]")
        where = "" if on else f" on {self.rank(names)}"
        self.line(indent, f"{self.one('record', 'wait')} {self.one('ev', 'go')}{index}{where}{self.guard(names)}")

    def _use(self, indent, names, depth, step, on):
        name = self.one("plain", "streams")
        argument = self.one("", f"({self.integer(names, 1)}) % 3 + 1", "2")
        where = self.one("", f" on [({self.integer(names, 1)}) % ranks]", " on [ranks - 1 - i for i in 0..ranks]",
                         f" on [k for k in 0..ranks if k != ({self.integer(names, 1)}) % ranks]")
        slice_ = self.one(
            "", f" for data=data[({self.integer(names, 1)}) % 5 : ({self.integer(names, 1)}) % 5 + 2]", " for data[2:6]"
        )
        self.line(indent, f"use {name}({argument}){where}{slice_}{self.guard(names)}")


@st.composite
def programs(draw):
    """The text of a program with a schedule ``main(ranks, k=3)``."""
    w = Writer(draw)
    w.line(0, "schedule main(ranks, k=3):")
    w.line(1, "collective custom(sum)")
    w.line(1, "chunks 8")
    w.line(1, "buffer data[8], tmp[6]")
    names = ["ranks", "k", "chunks"]
    for _ in range(draw(st.integers(1, 3))):
        w.statement(1, names, 3, False, False)
    return PRELUDE + "\n" + "\n".join(w.lines) + "\n"
