"""Every construct of the language, and the tree it gives."""

from pathlib import Path

import pytest

from schedlang.diagnostics import SchedError
from schedlang.source import Source, Span
from schedlang.syntax import parse, parse_value, read
from schedlang.syntax import tree as t
from schedlang.syntax.unparse import expression

ROOT = Path(__file__).parent.parent.parent
NO_SPAN = Span(Source("", ""), 0, 0)


def file(text):
    made, diagnostics = parse(Source("t.sched", text))
    assert diagnostics == []
    return made


def statements(text):
    """The statements of a schedule with this body."""
    body = "".join(f"    {line}\n" for line in text.splitlines())
    schedule, = file(f"schedule s(ranks):\n{body}").items
    return schedule.body


def statement(text):
    only, = statements(text)
    return only


def value(text):
    return parse_value(text, "-p k")


def name(id):
    return t.Name(NO_SPAN, id)


def number(value):
    return t.Int(NO_SPAN, value)


def loc(buffer, start, stop=None):
    return t.Loc(NO_SPAN, buffer, number(start), None if stop is None else number(stop))


# ---- whole files -----------------------------------------------------------------------------------------------------


SHIPPED = sorted((ROOT / "examples").rglob("*.sched"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_shipped_schedules_parse(path):
    made, diagnostics = parse(read(str(path)))
    assert diagnostics == []
    assert any(isinstance(i, t.Schedule) for i in made.items)


@pytest.mark.parametrize("text", ["", "\n", "  \n\t\n", "# only\n  # comments", "\ufeff", "\ufeff\n# mark"])
def test_files_without_anything(text):
    assert file(text).items == ()


def test_items_in_order_with_parameters_and_docstring():
    made = file('import "a/b.sched"\nfn f(x, y,) = x + y\nfn g() = 0..3\n\n'
                'schedule s(ranks, k=2 * 3, xs=0..2,):\n'
                '    """First.\n\n      deeper\n    last\n    """\n    chunks k\n')
    imported, f, g, s = made.items
    assert imported == t.Import(NO_SPAN, "a/b.sched")
    assert (f.name, f.params) == ("f", ("x", "y"))
    assert isinstance(g.value, t.Range)
    assert [p.name for p in s.params] == ["ranks", "k", "xs"]
    assert s.params[0].default is None
    assert s.doc == "First.\n\n  deeper\nlast"
    assert s.name_span.text == "s"
    assert s.span.text.startswith("schedule s(") and s.span.text.endswith("chunks k")


def test_comments_are_kept_with_their_places():
    made = file('# one\nfn f(x) = (x  # two\n  )\nimport "#no"   # three  \n')
    assert [(c.text, c.span.line, c.span.column) for c in made.comments] == [
        ("# one", 1, 1), ("# two", 2, 15), ("# three", 4, 16)]


@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
def test_line_ends(end):
    made = file((end or "\n").join(["schedule s(ranks):", "    step:", "", "        chunks 1", "    chunks 2"]) + end)
    schedule, = made.items
    assert [type(s) for s in schedule.body] == [t.Step, t.ChunksStmt]


def test_text_has_escapes():
    assert statement(r'require true, "a \"b\" \\ c\n\td # e"').text == 'a "b" \\ c\n\td # e'


def test_spans_cover_what_was_read():
    step = statement("step:\n    for r in 0..ranks:\n        send data[r : r + 1] from (r) to r + 1 if r > 0  # note")
    assert step.span.text.endswith("if r > 0")
    send = step.body[0].body[0]
    assert send.span.text == "send data[r : r + 1] from (r) to r + 1 if r > 0"
    assert [n.span.text for n in (send.what, send.source, send.target, send.condition)] == [
        "data[r : r + 1]", "(r)", "r + 1", "r > 0"]
    assert (send.span.line, send.span.column) == (4, 13)


# ---- statements ------------------------------------------------------------------------------------------------------


def test_collectives():
    assert statement("collective barrier") == t.CollectiveStmt(NO_SPAN, "barrier", (), None, False)
    reduce = statement("collective reduce(sum, root=k - 1,)")
    assert reduce.name == "reduce"
    assert [(a.name, expression(a.value)) for a in reduce.arguments] == [(None, "sum"), ("root", "k - 1")]
    assert statement("collective allgather inplace").inplace == t.Bool(NO_SPAN, True)
    assert expression(statement("collective allgather inplace=a and b").inplace) == "a and b"
    both = statement("collective allreduce(sum) outofplace")
    assert both.outofplace and both.inplace is None


def test_declarations():
    assert statement("ranks nodes * gpus").value == value("nodes * gpus")
    assert statement("chunks ranks").value == name("ranks")
    assert statement("buffer a[1], b[ranks]") == t.BufferStmt(
        NO_SPAN, (t.BufferDecl(NO_SPAN, "a", number(1)), t.BufferDecl(NO_SPAN, "b", name("ranks"))), "device")
    assert statement("buffer a[1] on host").place == "host"
    assert statement("buffer a[1] on device").place == "device"
    assert statement("verify ranks in 2..9, channels in [1, 2]").ranges == (
        t.VerifyRange(NO_SPAN, "ranks", value("2..9")), t.VerifyRange(NO_SPAN, "channels", value("[1, 2]")))
    assert statement("require a == b").text is None
    assert statement("let xs = 0..n").value == value("0..n")


def test_transfers():
    send = statement("send data[1] from 0 to 1 into got[2] if a")
    assert send == t.Transfer(NO_SPAN, "send", loc("data", 1), number(0), number(1), loc("got", 2), (), name("a"))
    reduce = statement("reduce data[0:2] from 0 to 1")
    assert reduce == t.Transfer(NO_SPAN, "reduce", loc("data", 0, 2), number(0), number(1), None, (), None)


def test_fused_forwards():
    fused = statement("reduce x[0] from 0 to 1 into y[1] then send to 2 only then send to 3 into z[2] then send to 4 "
                      "into w[3] only if a")
    assert fused.into == loc("y", 1)
    assert fused.forwards == (
        t.Forward(NO_SPAN, number(2), None, True), t.Forward(NO_SPAN, number(3), loc("z", 2), False),
        t.Forward(NO_SPAN, number(4), loc("w", 3), True))
    assert fused.condition == name("a")
    own = statement("recv x[0] from 1 then send to 2")
    assert own.forwards == (t.Forward(NO_SPAN, number(2), None, False),)


def test_one_ranks_own_view():
    on = statement("on r + 1:\n    send a[0] to p\n    recv a[0] from p if b\n    reduce a[0] from p\n"
                   "    reduce a[0] from p into b[1]\n"
                   "    copy a[0] into b[0]\n    reduce a[0] into b[0]\n    record ev\n    wait ev[1, 2]")
    assert expression(on.rank) == "r + 1"
    assert on.body == (
        t.OwnSend(NO_SPAN, loc("a", 0), name("p"), None),
        t.OwnRecv(NO_SPAN, "recv", loc("a", 0), name("p"), None, (), name("b")),
        t.OwnRecv(NO_SPAN, "reduce", loc("a", 0), name("p"), None, (), None),
        t.OwnRecv(NO_SPAN, "reduce", loc("a", 0), name("p"), loc("b", 1), (), None),
        t.Local(NO_SPAN, "copy", loc("a", 0), loc("b", 0), None, None),
        t.Local(NO_SPAN, "reduce", loc("a", 0), loc("b", 0), None, None),
        t.EventStmt(NO_SPAN, "record", t.EventRef(NO_SPAN, "ev", ()), None, None),
        t.EventStmt(NO_SPAN, "wait", t.EventRef(NO_SPAN, "ev", (number(1), number(2))), None, None),
    )


def test_local_operations_and_events_elsewhere():
    assert statement("reduce a[0] into b[1] on 2 if c") == t.Local(
        NO_SPAN, "reduce", loc("a", 0), loc("b", 1), number(2), name("c"))
    assert statement("wait ev[i] on r if c") == t.EventStmt(
        NO_SPAN, "wait", t.EventRef(NO_SPAN, "ev", (name("i"),)), name("r"), name("c"))


def test_use():
    use = statement("use ring(2, root=r) on 0..n for data[0:2] reversed if a")
    assert use == t.Use(NO_SPAN, "ring", (t.Argument(NO_SPAN, None, number(2)), t.Argument(NO_SPAN, "root", name("r"))),
                        value("0..n"), (t.Binding(NO_SPAN, None, loc("data", 0, 2)),), True, name("a"))
    assert statement("use ring()") == t.Use(NO_SPAN, "ring", (), None, (), False, None)
    assert statement("use reduce() reversed").reversed
    assert statement("use s() for input=a[0:1], output=b[2]").bindings == (
        t.Binding(NO_SPAN, "input", loc("a", 0, 1)), t.Binding(NO_SPAN, "output", loc("b", 2)))


def test_ensure():
    one = statement("ensure output[0] on (r + 1) % ranks == input[0] on r if a")
    assert one.value == t.EnsureOne(NO_SPAN, loc("input", 0), name("r"))
    assert one.condition == name("a")
    many = statement("ensure output[0] on r == max(input[0] on 0..r + 1)")
    assert many.value == t.EnsureMany(NO_SPAN, "max", loc("input", 0), value("0..r + 1"))


def test_streams_and_channels():
    def names(text):
        stream = statement(f"stream {text}:\n    chan {text}\n    chunks 1")
        assert stream.body[0] == t.Chan(NO_SPAN, stream.name)
        return stream.name.base, stream.name.index

    assert names("main") == (name("main"), None)
    assert names("2 * t + 1") == (value("2 * t + 1"), None)
    assert names("wire[r % 2]") == (name("wire"), value("r % 2"))
    assert names("(xs[1])") == (value("xs[1]"), None)
    assert names("xs[1][2]") == (value("xs[1][2]"), None)
    assert names("copy") == (name("copy"), None)
    assert names("into[1]") == (name("into"), number(1))


def test_blocks_on_one_line():
    step, loop, on, stream, branch = statements(
        "step fold: chunks 1\nfor i in 0..2: chunks i\non r: send a[0] to p\nstream 0: chunks 1\n"
        "if a: chunks 1\nelif b: chunks 2\nelse: chunks 3")
    assert (step.label, loop.var, stream.name.base) == ("fold", "i", number(0))
    assert [len(b.body) for b in (step, loop, on, stream)] == [1, 1, 1, 1]
    assert [test for test, _ in branch.branches] == [name("a"), name("b")]
    assert [body[0].value.value for _, body in branch.branches] == [1, 2]
    assert branch.otherwise[0].value == number(3)


def test_soft_words_are_names_and_verbs_are_labels():
    assert statement("let ranks = chunks + host").value == value("chunks + host")
    assert statement("let data = input[ranks]").value.base == name("input")
    assert statement("step reduce:\n    chunks 1").label == "reduce"
    assert statement("record copy[1] on r").event.name == "copy"
    assert file("schedule reduce(chunks, host=1):\n    collective reduce(sum, 0)\n").items[0].name == "reduce"


def test_a_conditional_before_a_guard_stands_in_parentheses():
    guarded = statement("send a[0] from r to (x if b else y) if c")
    assert guarded.target == t.Conditional(NO_SPAN, name("b"), name("x"), name("y"))
    assert guarded.condition == name("c")


# ---- expressions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [
    "-2 ** 2", "2 ** -1", "2 ** 3 ** 2", "(-2) ** 2", "not a == b", "not a and b", "a or b and c", "a - b - c",
    "a // b * c",
    "a + b << c", "a & b ^ c | d", "a | b == c", "~a + -b", "- - a", "a < b <= c != d", "(a < b) < c", "a < (b < c)",
    "a if b else c if d else e", "(a if b else c) if d else e", "a if b or c else d", "a % b * c", "1 << 2 << 3",
    "a << (b << c)", "a - (b - c)", "not (not a)", "a * (b + c)", "a or (b or c)", "xs[1][2]", "f(a)[0]", "f(f(a), b)",
    "[a, b] + [c]", "[a for a in xs if a > 2]", "--a", "not not a",
])
def test_operators_bind_as_in_python(text):
    """The tree evaluates as Python does on the same text."""
    names = {"a": 5, "b": 2, "c": 3, "d": 7, "e": 11, "xs": [[1, 2, 3], [4, 5, 6]], "f": lambda *x: list(x)}
    if "for a in xs" in text:
        names["xs"] = [1, 2, 3, 4]
    assert _evaluate(value(text), names) == eval(text, dict(names))
    assert value(expression(value(text))) == value(text)


def _evaluate(e, names):
    match e:
        case t.Int(value=v) | t.Bool(value=v):
            return v
        case t.Name(id=n):
            return names[n]
        case t.ListExpr(items=items):
            return [_evaluate(i, names) for i in items]
        case t.Comp():
            turns = [{**names, e.var: x} for x in _evaluate(e.source, names)]
            return [_evaluate(e.element, n) for n in turns if e.condition is None or _evaluate(e.condition, n)]
        case t.Index():
            return _evaluate(e.base, names)[_evaluate(e.index, names)]
        case t.Call():
            return names[e.function](*[_evaluate(a, names) for a in e.arguments])
        case t.Unary():
            x = _evaluate(e.operand, names)
            return {"-": lambda: -x, "+": lambda: +x, "~": lambda: ~x, "not": lambda: not x}[e.op]()
        case t.Binary():
            x, y = _evaluate(e.left, names), _evaluate(e.right, names)
            return {"+": lambda: x + y, "-": lambda: x - y, "*": lambda: x * y, "//": lambda: x // y,
                    "%": lambda: x % y, "**": lambda: x**y, "<<": lambda: x << y, ">>": lambda: x >> y,
                    "&": lambda: x & y, "|": lambda: x | y, "^": lambda: x ^ y}[e.op]()
        case t.BoolOp(op="and"):
            return _evaluate(e.left, names) and _evaluate(e.right, names)
        case t.BoolOp():
            return _evaluate(e.left, names) or _evaluate(e.right, names)
        case t.Conditional():
            return _evaluate(e.then if _evaluate(e.test, names) else e.otherwise, names)
        case t.Compare():
            left = _evaluate(e.first, names)
            for op, right in zip(e.ops, e.rest, strict=True):
                right = _evaluate(right, names)
                if not {"==": left == right, "!=": left != right, "<": left < right, "<=": left <= right,
                        ">": left > right, ">=": left >= right}[op]:
                    return False
                left = right
            return True
    raise AssertionError(e)


def test_ranges_bind_loosest():
    assert value("0..a if b else c") == t.Range(NO_SPAN, number(0), value("a if b else c"))
    assert value("(0..3)[1]").base == value("0..3")
    assert value("len(0..3)").arguments == (value("0..3"),)
    assert value("[v for v in 0..n if v > 1]").source == value("0..n")


def test_numbers():
    assert value("1_000") == number(1000)
    assert value("0") == number(0)
    assert value("9223372036854775807") == number(2**63 - 1)


def test_line_ends_and_trailing_commas_inside_brackets():
    assert value("[\n 1,\n # note\n 2,\n]") == value("[1, 2]")
    assert value("f(\n a,\n)") == value("f(a)")
    assert statement("let a = (1 +\n         2)").value == value("1 + 2")


def test_as_deep_as_allowed():
    assert value("(" * 100 + "1" + ")" * 100) == number(1)
    assert isinstance(value("+".join("1" * 100)), t.Binary)
    assert isinstance(value("[" + ", ".join("1" * 10_000) + "]"), t.ListExpr)


def test_a_long_file():
    text = "".join(f"fn f{k}(x) = (x + {k}) % 7 ** 2 if x > 0 else [y for y in 0..x]\n" for k in range(5_000))
    assert len(file(text).items) == 5_000


# ---- reading files ---------------------------------------------------------------------------------------------------


def test_read(tmp_path):
    path = tmp_path / "a.sched"
    path.write_bytes("\ufefffn f(x) = x # é\r\n".encode())
    source = read(str(path))
    assert (source.path, source.text) == (str(path), "fn f(x) = x # é\r\n")


@pytest.mark.parametrize(("content", "message"), [
    (None, "No such file"),
    (b"fn f(x) = x\n# \xff\n", "line 2 has the byte 0xff"),
    ("fn".encode("utf-16"), "not UTF-8"),
])
def test_unreadable_files(content, message, tmp_path):
    path = tmp_path / "a.sched"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SchedError, match=message) as failure:
        read(str(path))
    assert failure.value.diagnostics[0].code == "SL105"


@pytest.mark.parametrize("path", ["", "a\0b"])
def test_paths_that_cannot_be(path):
    with pytest.raises(SchedError):
        read(path)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(SchedError, match="cannot read"):
        read(str(tmp_path))


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="a device without an end is needed")
def test_a_device_is_no_file():
    with pytest.raises(SchedError, match="a device"):
        read("/dev/zero")
