"""What is said of faulty texts: code, place, words, and how to mend it."""


import pytest

from schedlang.diagnostics import SchedError, Severity
from schedlang.source import Source
from schedlang.syntax import parse, parse_value, tables


def found(text):
    file, diagnostics = parse(Source("t.sched", text))
    assert (file is None) == bool(diagnostics)
    assert all(d.severity == Severity.ERROR for d in diagnostics)
    return [(d.location.line, d.location.column, d.code, d.message, d.help) for d in diagnostics]


def in_body(*lines):
    return "schedule s(ranks):\n" + "".join(f"    {line}\n" for line in lines)


# Each: the text, and for each finding its line, column, code, message, and a part of its help (None: no help).
STATEMENT = 'expected a statement, found "{}"'.format
TABLE = {
    "no colon": ("schedule s(ranks)\n    chunks 1\n", [
        (1, 18, "SL101", 'expected ":", found the end of the line', 'ends with ":"')]),
    "no colon, one line": (in_body("step send data[0] from 0 to 1"), [
        (2, 15, "SL101", 'expected ":", found "data"', 'put ":"')]),
    "no colon in a loop": (in_body("for r in 0..ranks", "    chunks 1"), [
        (2, 22, "SL101", 'expected ":", found the end of the line', "")]),
    "misspelt from": (in_body("send data[0] form 0 to 1"), [
        (2, 18, "SL101", 'expected "from" or "to", found "form"', 'did you mean "from"?')]),
    "misspelt send": (in_body("sned data[0] from 0 to 1"), [
        (2, 5, "SL101", STATEMENT("sned"), 'did you mean "send"?')]),
    "swapped": (in_body("send data[0] to 1 from 0"), [
        (2, 23, "SL101", 'expected "if" or the end of the line, found "from"', "the sender comes first")]),
    "into too early": (in_body("send data[0] into data[1] from 0 to 1"), [
        (2, 18, "SL101", 'expected "from" or "to", found "into"', None)]),
    "copy to": (in_body("copy data[0] to data[1]"), [
        (2, 18, "SL101", 'expected "into", found "to"', "copy X into Y on R")]),
    "recv with both ends": (in_body("recv data[0] from 0 to 1"), [
        (2, 25, "SL101", 'expected "then", "if" or the end of the line, found "to"', "one rank's own view")]),
    "reduce without end": (in_body("reduce data[0] from r"), []),
    "send without rank": (in_body("send data[0] from r to"), [
        (2, 27, "SL101", "expected an expression, found the end of the line", None)]),
    "send without chunk": (in_body("send data from r to p"), [
        (2, 15, "SL101", 'expected "[", found "from"', "data[0:n]")]),
    "a range as a slice": (in_body("send tmp[0..m - 1] from 0 to 1"), [
        (2, 15, "SL101", 'expected ":" or "]", found ".."', "tmp[0:m - 1]")]),
    "a range as a slice of a list": (in_body("let x = xs[0..f(n)]"), [
        (2, 17, "SL101", 'expected "]", found ".."', "[xs[i] for i in 0..f(n)]")]),
    "own send into": (in_body("send input[0] to root into output[0]"), [
        (2, 27, "SL101", 'expected "if" or the end of the line, found "into"', "send X from R to P into Y")]),
    "forward alone": (in_body("then send to 1"), [(2, 5, "SL101", STATEMENT("then"), "ends the statement")]),
    "forward that reduces": (in_body("send data[0] from 0 to 1 then reduce to 2"), [
        (2, 35, "SL101", 'expected "send", found "reduce"', "reduce X from P to Q")]),
    "equals in ensure": (in_body("ensure output[0] on r = input[0] on r"), [
        (2, 27, "SL101", 'expected "==", found "="', 'compare with "=="')]),
    "ensure without rank": (in_body("ensure output[0] == input[0]"), [
        (2, 22, "SL101", 'expected "on", found "=="', "ensure X on R == Y on P")]),
    "ensure a number": (in_body("ensure output[0] on r == 1"), [
        (2, 30, "SL101", 'expected a name, found "1"', "initial values: X on R, or sum(X on RANKS)")]),
    "for with equals": (in_body("for k = 0..ranks:", "    chunks 1"), [
        (2, 11, "SL101", 'expected "in", found "="', "for k in ...")]),
    "require without comma": (in_body('require x == 1 "text"'), [
        (2, 20, "SL101", 'expected "," or the end of the line, found "text"', '","')]),
    "chunks with equals": (in_body("chunks = 2 * ranks"), [
        (2, 12, "SL101", 'expected an expression, found "="', "write: chunks 2 * ranks")]),
    "verify with equals": (in_body("verify ranks = 3"), [
        (2, 18, "SL101", 'expected "in", found "="', "write: verify ranks in [3]")]),
    "collective with equals": (in_body("collective allreduce = sum"), [
        (2, 26, "SL101", 'expected "(", "outofplace", "inplace" or the end of the line, found "="',
         "write: collective allreduce(sum)")]),
    "for with a condition": (in_body("for r in [q for q in a if b] if r > 2:", "    chunks 1"), [
        (2, 42, "SL101", 'expected "else", found ":"', "open its block with: if r > 2:")]),
    "two indices of a list": (in_body("let x = counts[r, c + 1]"), [
        (2, 21, "SL101", 'expected "]", found ","', "counts[r][c + 1]")]),
    "two chunks": (in_body("send data[0, 1] from 0 to 1"), [
        (2, 16, "SL101", 'expected ":" or "]", found ","', "several are data[a:b]")]),
    "a slice and a chunk": (in_body("send data[0:1, 3] from 0 to 1"), [
        (2, 18, "SL101", 'expected "]", found ","', "several are data[a:b]")]),
    "use: reversed before for": (in_body("use S() reversed for data[0:1]"), [
        (2, 22, "SL101", 'expected "if" or the end of the line, found "for"', "on [...] for X[a:b] reversed")]),
    "use: for before on": (in_body("use S() for data[0:1] on [q for q in a]"), [
        (2, 27, "SL101", 'expected "reversed", "if" or the end of the line, found "on"', "on [...] for X[a:b] rev")]),
    "use: reversed first": (in_body("use reversed S()"), [
        (2, 18, "SL101", 'expected "(", found "S"', "use S(...) reversed")]),
    "use without arguments": (in_body("use S on 0..2"), [(2, 11, "SL101", 'expected "(", found "on"', "use S()")]),
    "use for a whole buffer": (in_body("use S() on [q for q in a] for output"), [
        (2, 41, "SL101", 'expected "=" or "[", found the end of the line', "for output[a:b]; without a for")]),
    "use for two buffers": (in_body("use S() for input[0:1] output[0:2]"), [
        (2, 28, "SL101", 'expected "reversed", "if" or the end of the line, found "output"', "input=X[a:b], output=")]),
    "use for two buffers by name": (in_body("use S() for a=x[0:1] b=y[0:2]"), [
        (2, 26, "SL101", 'expected ",", "reversed", "if" or the end of the line, found "b"', 'put ","')]),
    "use for a buffer without what it is bound to": (in_body("use S() for a=x[0:1], b"), [
        (2, 28, "SL101", 'expected "=", found the end of the line', "bound by its name: b=X[a:b]")]),
    "a stray word after a use": (in_body("use S() on [q for q in a] b"), [
        (2, 31, "SL101", 'expected "for", "reversed", "if", ".." or the end of the line, found "b"', None)]),
    "buffers in two places": (in_body("buffer a[2] on host, b[2] on device"), [
        (2, 24, "SL101", 'expected the end of the line, found ","', "one place is for all buffers of the line")]),
    "two streams in one block": (in_body("stream a, b:", "    send data[0] from 0 to 1"), [
        (2, 13, "SL101", 'expected ":", found ","', "stream a: and then")]),
    "a transfer on a stream": (in_body("send data[0] from 0 to 1 on b"), [
        (2, 30, "SL101", 'expected "then", "into", "if" or the end of the line, found "on"', "stream NAME:")]),
    "print": (in_body("print(1)"), [(2, 5, "SL101", STATEMENT("print"), "schedlang show")]),
    "a call as a statement": (in_body("f(1)"), [(2, 5, "SL101", STATEMENT("f"), "use f(...)")]),
    "a misspelt word before a bracket": (in_body("requir(ranks > 1)"), [
        (2, 5, "SL101", STATEMENT("requir"), 'did you mean "require"?')]),
    "event in round brackets": (in_body("wait ev(i + 1) on r"), [
        (2, 12, "SL101", 'expected "on", "[", "if" or the end of the line, found "("', "ev[i + 1]")]),
    "equals in a condition": (in_body("if a = 3:", "    chunks 1"), [
        (2, 10, "SL101", 'expected ":", found "="', '"=="')]),
    "compare in let": (in_body("let x == 3"), [(2, 11, "SL101", 'expected "=", found "=="', None)]),
    "assignment": (in_body("x = 3"), [(2, 5, "SL101", STATEMENT("x"), "let x = ...")]),
    "augmented assignment": (in_body("x += 3"), [(2, 5, "SL101", STATEMENT("x"), "never changes")]),
    "range()": (in_body("for x in range(3):", "    chunks 1"), [(2, 14, "SL101", "there is no range(...)", "0..n")]),
    "range() in a list": ("fn f(n) = [x for x in range(n)]\n", [(1, 23, "SL101", "there is no range(...)", "0..n")]),
    "one dot": (in_body("for x in 0.ranks:", "    chunks 1"), [(2, 15, "SL103", '"." has no meaning here', "a..b")]),
    "a fraction": (in_body("let x = 1.5"), [(2, 13, "SL103", '"1.5" is not an integer', "integers")]),
    "hexadecimal": (in_body("let x = 0x1F"), [(2, 13, "SL103", '"0x1F" is not a decimal integer', "write 31")]),
    "leading zero": (in_body("let x = 007"), [(2, 13, "SL103", "an integer does not start with 0", None)]),
    "too large": (in_body("let x = 9223372036854775808"), [
        (2, 13, "SL103", "an integer is at most 9223372036854775807", None)]),
    "digits first": (in_body("let 2x = 3"), [(2, 9, "SL103", '"2x" is neither an integer nor a name', "digit")]),
    "def": ("def f(x):\n    return x\n", [
        (1, 1, "SL101", 'expected "import", "fn" or "schedule", found "def"', "fn NAME(x) = EXPRESSION")]),
    "while": (in_body("while true:", "    chunks 1"), [(2, 5, "SL101", STATEMENT("while"), "for i in 0..n:")]),
    "&&": (in_body("let x = a && b"), [(2, 16, "SL101", 'expected an expression, found "&"', '"and"')]),
    "||": (in_body("let x = a || b"), [(2, 16, "SL101", 'expected an expression, found "|"', '"or"')]),
    "!": (in_body("let x = !a"), [(2, 13, "SL103", '"!" has no meaning here', '"not"')]),
    "/": (in_body("let x = a / b"), [(2, 15, "SL103", '"/" has no meaning here', "//")]),
    "arrow": (in_body("send data[0] -> 1"), [
        (2, 18, "SL101", 'expected "from" or "to", found "-"', "send X from R to P")]),
    "else if": (in_body("if a:", "    chunks 1", "else if b:", "    chunks 2", "else:", "    chunks 3"), [
        (4, 10, "SL101", 'expected ":", found "if"', '"elif"')]),
    "else without if": (in_body("chunks 1", "else:", "    chunks 2"), [
        (3, 5, "SL101", STATEMENT("else"), "same indentation")]),
    "conditional as target": (in_body("send data[0] from r to a if c else b"), [
        (2, 35, "SL101", 'expected the end of the line, found "else"', "(a if c else b)")]),
    "range in a list": (in_body("let x = [0..4]"), [
        (2, 15, "SL101", 'expected ",", "]" or "for", found ".."', "(a..b)")]),
    "slice of a list": (in_body("let x = xs[1:2]"), [(2, 17, "SL101", 'expected "]", found ":"', "only buffers")]),
    "half a slice": (in_body("copy data[:2] into data[0]"), [
        (2, 15, "SL101", 'expected an expression, found ":"', "both ends")]),
    "two fors": (in_body("let x = [a for a in b for c in d]"), [
        (2, 27, "SL101", 'expected "]", "if" or "..", found "for"', "one for")]),
    "a word as a name": (in_body("let step = 3"), [
        (2, 9, "SL101", 'expected a name, found "step"', "word of the language")]),
    "a word in an expression": (in_body("let x = 2 * send"), [
        (2, 17, "SL101", 'expected an expression, found "send"', "word of the language")]),
    "import without text": ("import ring\n", [(1, 8, "SL101", 'expected text in "quotes", found "ring"', None)]),
    "docstring in single quotes": ("schedule s(ranks):\n    'One line.'\n    chunks 1\n", [
        (2, 5, "SL103", "text in single quotes", '"""..."""')]),
    "docstring in three single quotes": ("schedule s(ranks):\n    '''Two\n    lines.'''\n    chunks 1\n", [
        (2, 5, "SL103", "text in single quotes", '"""..."""')]),
    "docstring in plain quotes": (in_body('"One line."', "chunks 1"), [
        (2, 5, "SL101", STATEMENT("One line.").replace('""', '"'), '"""')]),
    "single quotes": ("import 'ring'\n", [(1, 8, "SL103", "text in single quotes", "double quotes")]),
    "buffer without size": (in_body("buffer x"), [
        (2, 13, "SL101", 'expected "[", found the end of the line', "x[n]")]),
    "buffer in round brackets": (in_body("buffer x(3)"), [(2, 13, "SL101", 'expected "[", found "("', "x[3]")]),
    "buffer with equals": (in_body("buffer x = 3"), [(2, 14, "SL101", 'expected "[", found "="', "buffer x[3]")]),
    "statement outside": ("chunks 1\n", [
        (1, 1, "SL101", 'expected "import", "fn" or "schedule", found "chunks"', "inside a schedule")]),
    "misspelt schedule": ("shedule s(ranks):\n    chunks 1\n", [
        (1, 1, "SL101", 'expected "import", "fn" or "schedule", found "shedule"', 'did you mean "schedule"?')]),
    "verify": (in_body("verify ranks 2..9"), [(2, 18, "SL101", 'expected "in", found "2"', None)]),
    "nothing after for": (in_body("for"), [(2, 8, "SL101", "expected a name, found the end of the line", None)]),
    "range without start": (in_body("for r in ..3:", "    chunks 1"), [
        (2, 14, "SL101", 'expected an expression, found ".."', None)]),
    "for without range": (in_body("for r in 0 ranks:", "    chunks 1"), [
        (2, 16, "SL101", 'expected ":" or "..", found "ranks"', None)]),

    "no block": (in_body("for r in 0..2:", "chunks 1"), [
        (2, 18, "SL102", "expected an indented block", "four spaces")]),
    "no block at the end": ("schedule s(ranks):", [(1, 18, "SL102", "expected an indented block", "four spaces")]),
    "no block after else": (in_body("if a:", "    chunks 1", "else:", "chunks 2"), [
        (4, 9, "SL102", "expected an indented block", "")]),
    "docstring only": ('schedule s(ranks):\n    """Doc."""\n', [
        (2, 15, "SL101", "expected a statement, found the end of the block", None)]),
    "too deep a line": (in_body("chunks 1", "    chunks 2"), [
        (3, 9, "SL102", "this line is indented deeper than the one above, which opens no block", None)]),
    "between two blocks": (in_body("step:", "    chunks 1", "  chunks 2"), [
        (4, 7, "SL102", "this line is indented by 6, which fits no block above it", "indented by 4 or 8")]),
    "between blocks further out": (in_body("step:", "    for r in 0..2:", "        chunks 1", "  chunks 2"), [
        (5, 7, "SL102", "this line is indented by 6, which fits no block above it", "indented by 4 or 8 or 12")]),
    "tabs and spaces": ("schedule s(ranks):\n\tchunks 1\n        chunks 2\n", [
        (3, 9, "SL102", "this line mixes tabs and spaces in another way than the lines above it", "four spaces")]),

    "open text": (in_body('require a, "why', "chunks 1"), [(2, 16, "SL103", "this text is never closed", '"')]),
    "open docstring": ('schedule s(ranks):\n    """Doc\n    chunks 1\n', [
        (2, 5, "SL103", "this docstring is never closed", '"""')]),
    "unknown escape": ('import "a\\b"\n', [(1, 10, "SL103", 'text has no escape "\\b"', "\\\\")]),
    "letter": (in_body("let é = 3"), [(2, 9, "SL103", '"é" (U+00E9) has no meaning here', "a to z")]),
    "dash": (in_body("let x = a – b"), [(2, 15, "SL103", '"–" (U+2013) has no meaning here', "write -")]),
    "no-break space": (in_body("let x = a\u00a0+ b"), [
        (2, 14, "SL103", "the character (U+00A0) has no meaning here", "plain space")]),
    "nul": (in_body("let x = a\0"), [(2, 14, "SL103", "the character (U+0000) has no meaning here", None)]),
    "braces": (in_body("let x = {1}"), [(2, 13, "SL103", '"{" has no meaning here', "[...]")]),
    "semicolon": (in_body("chunks 1; chunks 2"), [(2, 13, "SL103", '";" has no meaning here', "one statement a line")]),
    "backslash": (in_body("let x = 1 + \\", "    2"), [(2, 17, "SL103", '"\\" has no meaning here', "brackets only")]),

    "open bracket": (in_body("let x = (1 + 2", "send data[0] from 0 to 1", "let y = 3 4"), [
        (2, 13, "SL101", '"(" is never closed', '")"'),
        (4, 15, "SL101", 'expected the end of the line, found "4"', None)]),
    "open bracket at the end": ("fn f(x) = [x, (x)\n", [(1, 11, "SL101", '"[" is never closed', '"]"')]),
    "wrong bracket": (in_body("let x = [1, (2 + 3]"), [(2, 23, "SL101", 'expected ")", found "]"', None)]),
    "closing bracket": (in_body("let x = 1)"), [(2, 14, "SL101", 'expected the end of the line, found ")"', None)]),
}


@pytest.mark.parametrize("name", TABLE)
def test_place_and_words(name):
    text, expected = TABLE[name]
    got = found(text)
    assert [f[:4] for f in got] == [e[:4] for e in expected]
    for (*_, help), (*_, wanted) in zip(got, expected, strict=True):
        assert (help is None) if wanted is None else wanted in (help or ""), help


def test_no_message_names_a_terminal_of_the_grammar():
    internal = {t.name for t in tables.load().terminals} - {"$END"}
    for text, _ in TABLE.values():
        for *_, message, help in found(text):
            words = set(f"{message} {help}".replace('"', " ").split())
            assert not words & internal - {"R", "P"}


def test_several_errors_of_one_file_without_cascades():
    text = in_body(
        "collective allreduce(sum",
        "for r in 0..ranks",
        "    step:",
        "        send data[0] form r to 0",
        "        send data[0] from r to 0",
        "    else if b:",
        "        chunks 1",
        "while a:",
        "    if b:",
        "        chunks 1 2",
        "    else:",
        "        chunks 1",
    ) + "\nschedule t(ranks:\n    chunks 1\n\nfn f(x) x\n\nfn g(x) = x\n"
    assert [f[:2] for f in found(text)] == [(2, 25), (5, 26), (7, 9), (9, 5), (11, 22), (15, 11), (18, 9)]


def test_at_most_twenty_errors():
    assert len(found(in_body(*["x = 3"] * 50))) == 20


def test_an_error_at_the_end_of_a_long_file_is_found():
    assert len(found(in_body(*["send data[0] from 0 to 1"] * 20_000, "x = 3"))) == 1


@pytest.mark.parametrize(("text", "column", "message"), [
    ("(" * 10_000 + "1" + ")" * 10_000, 101, "brackets nest more than 100 deep"),
    ("[" * 10_000, 101, "brackets nest more than 100 deep"),
    ("+".join("1" * 102), 1, "an expression nests more than 100 deep"),
    ("-" * 100_000 + "1", 1, "an expression nests more than 100 deep"),
    ("not " * 100_000 + "a", 1, "an expression nests more than 100 deep"),
    (" ** ".join("a" * 50_000), 1, "an expression nests more than 100 deep"),
    ("a if b else " * 20_000 + "c", 1, "an expression nests more than 100 deep"),
    ("a" + "[0]" * 20_000, 1, "an expression nests more than 100 deep"),
    ("[1, " + "+".join("1" * 102) + "]", 1, "an expression nests more than 100 deep"),
])
def test_too_deep(text, column, message):
    with pytest.raises(SchedError) as failure:
        parse_value(text, "-p k")
    d, = failure.value.diagnostics
    assert (d.code, d.message) == ("SL104", message)
    assert (d.location.line, d.location.column) == (1, column)


def test_blocks_too_deep():
    text = "schedule s(ranks):\n" + "".join(" " * k + "step:\n" for k in range(1, 300))
    (line, column, code, message, _), = found(text)
    assert (line, column, code, message) == (51, 51, "SL104", "blocks nest more than 50 deep")


def test_every_expression_that_is_too_deep_is_reported():
    deep = "+".join("1" * 102)
    assert [f[:3] for f in found(f"fn f(x) = {deep}\nfn g(x) = x + ({deep})\nfn h(x) = x\n")] == [
        (1, 11, "SL104"), (2, 11, "SL104")]


@pytest.mark.parametrize(("text", "column", "message"), [
    ("", 1, "expected an expression, found the end of the value"),
    ("1 2", 3, 'expected the end of the value, found "2"'),
    ("[1", 1, '"[" is never closed'),
    ("a if b", 7, 'expected "else", found the end of the value'),
    ('"text"', 1, 'expected an expression, found "text"'),
    ("1,", 2, 'expected the end of the value, found ","'),
])
def test_values(text, column, message):
    with pytest.raises(SchedError) as failure:
        parse_value(text, "-p k")
    d, = failure.value.diagnostics
    assert (d.message, d.location.column, d.location.file) == (message, column, "-p k")


def test_a_file_that_imports_may_have_a_function_range():
    assert found('import "mine.sched"\nfn f(n) = [x for x in range(n)]\n') == []
    assert found("fn range(n) = 0..n\nfn f(n) = [x for x in range(n)]\n") == []
