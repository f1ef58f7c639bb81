"""The usual layout."""

from pathlib import Path

import pytest

from schedlang.source import Source, Span
from schedlang.syntax import format_file, parse
from schedlang.syntax import tree as t

ROOT = Path(__file__).parent.parent.parent
NO_SPAN = Span(Source("", ""), 0, 0)


def laid_out(text):
    file, diagnostics = parse(Source("t.sched", text))
    assert diagnostics == []
    made = format_file(file)
    again, _ = parse(Source("t.sched", made))
    assert again == file
    assert format_file(again) == made
    return made


def body(*lines):
    return "schedule s(ranks):\n" + "".join(f"    {line}\n" if line else "\n" for line in lines)


def line(text):
    _, *rest = laid_out(body(text)).splitlines()
    return "\n".join(part[4:] for part in rest)


SHIPPED = sorted((ROOT / "examples").rglob("*.sched"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_shipped_schedules_have_the_usual_layout(path):
    text = path.read_text(encoding="utf-8")
    assert laid_out(text) == text


@pytest.mark.parametrize(("written", "usual"), [
    ("collective  reduce( sum,root = 0 )", "collective reduce(sum, root=0)"),
    ("collective allgather inplace = true", "collective allgather inplace"),
    ("collective allgather inplace=(a or b) outofplace", "collective allgather inplace=a or b outofplace"),
    ("collective barrier()", "collective barrier"),
    ("ranks(a*b)", "ranks a * b"),
    ("buffer a[ 1 ],b[2 ]  on device", "buffer a[1], b[2]"),
    ("buffer a[1] on host", "buffer a[1] on host"),
    ("verify ranks in(2..9),k in [1,2]", "verify ranks in 2..9, k in [1, 2]"),
    ('require(a>0),"text"', 'require a > 0, "text"'),
    ("let x=( a+b )*c", "let x = (a + b) * c"),
    ("let x = (a * b) + c", "let x = a * b + c"),
    ("let x = (a << b) | c", "let x = (a << b) | c"),
    ("let x = a<<b|c", "let x = a << b | c"),
    ("let x = (a and b) or c", "let x = (a and b) or c"),
    ("let x = (a < b) and (c == d)", "let x = a < b and c == d"),
    ("let x = (a < b) < c", "let x = (a < b) < c"),
    ("let x = not (a)", "let x = not a"),
    ("let x = - ( -1 )", "let x = --1"),
    ("let x = (-2)**k", "let x = (-2) ** k"),
    ("let x = -(2**k)", "let x = -2 ** k"),
    ("let x = a if b else (c if d else e)", "let x = a if b else (c if d else e)"),
    ("let x = a if b else c if d else e", "let x = a if b else c if d else e"),
    ("let x = 0 .. (n-1)", "let x = 0..n - 1"),
    ("let x = (0..3)[ 1 ]", "let x = (0..3)[1]"),
    ("let x = [ a for a in(0..n)if(a>1) ]", "let x = [a for a in 0..n if a > 1]"),
    ("let x = [a,b,]", "let x = [a, b]"),
    ("let x = f( a,(0..3) )", "let x = f(a, 0..3)"),
    ("let x = 1_000", "let x = 1000"),
    ("send data[a:b] from(r)to(r+1)%n into x[ 0 ] if(a)", "send data[a:b] from r to (r + 1) % n into x[0] if a"),
    ("send data[a+1:b] from r to (x if c else y)", "send data[a + 1 : b] from r to (x if c else y)"),
    ("reduce a[0] from r to p then   send to q only", "reduce a[0] from r to p then send to q only"),
    ("record ev[ i,j ] on(r)", "record ev[i, j] on r"),
    ("use s( 1,k = 2 )on(0..3)for data[0:3]reversed if a", "use s(1, k=2) on 0..3 for data[0:3] reversed if a"),
    ("use s()for input=a[0:1],output = b[2]", "use s() for input=a[0:1], output=b[2]"),
    ("ensure a[0] on(r|1)==max( b[0] on(0..3) )", "ensure a[0] on r | 1 == max(b[0] on 0..3)"),
    ("ensure a[0] on r == b[0] on(r+1)if c", "ensure a[0] on r == b[0] on r + 1 if c"),
    ("chan w[ 1 ]", "chan w[1]"),
    ("stream(xs[1]): chunks 1", "stream (xs[1]): chunks 1"),
    ("step  reduce :chunks 1", "step reduce: chunks 1"),
])
def test_spaces_and_parentheses(written, usual):
    assert line(written) == usual


def test_indentation_and_blank_lines():
    text = ("\n\nimport \"a\"\n\n\n\nfn f(x) = x\nschedule s(ranks):\n\n"
            "  \"\"\"Doc.\n\n  More.\"\"\"\n\n\n  chunks 1\n  step:\n\n"
            "   chunks 2\n\n\n  chunks 3\nschedule t():\n  chunks 4\n\n\n\n\nschedule u():\n\tchunks 5\n\n\n")
    assert laid_out(text) == (
        'import "a"\n\n\nfn f(x) = x\n\nschedule s(ranks):\n    """Doc.\n\n    More.\n    """\n\n'
        '    chunks 1\n    step:\n'
        "        chunks 2\n\n    chunks 3\n\nschedule t():\n    chunks 4\n\n\nschedule u():\n    chunks 5\n")


def test_functions_in_a_row_align():
    assert laid_out("fn a(x)=x\nfn abc(x)=x\n\nfn abcd(x)=x\n# note\nfn b()=1\n") == (
        "fn a(x)   = x\nfn abc(x) = x\n\nfn abcd(x) = x\n# note\nfn b() = 1\n")


def test_comments_stay_where_they_were():
    text = ("# head\n\nschedule s(ranks):  # on the header\n    # first\n    chunks 1# close\n    step:  # opens\n"
            "        chunks 2  # inside\n        # ends the block\n    # after the block\n"
            "    if a: chunks 3   # one line\n"
            "    # before else\n    else:\n        chunks 4\n# the end\n")
    assert laid_out(text) == text.replace("1# close", "1  # close")


def test_comments_move_with_their_block():
    assert laid_out("schedule s(ranks):\n  step:\n    chunks 1\n    # in\n   # between\n  # out\n  chunks 2\n") == body(
        "step:", "    chunks 1", "    # in", "# between", "# out", "chunks 2")


def test_aligned_comments_stay_aligned():
    assert laid_out("schedule s(ranks):\n  chunks  1     # one\n  let x = 2     # two\n") == body(
        "chunks 1      # one", "let x = 2     # two")


def test_lists_keep_their_rows():
    text = body("let m = [", "    [1, 2], [3, 4],", "    [5, 6],", "]",
                "use s(", "    [", "        1,", "        2,", "    ],", "    k=3,", ")")
    assert laid_out(text) == text
    assert line("let m = [1,2,\n  3]") == "let m = [\n    1, 2,\n    3,\n]"
    assert laid_out("schedule s(\n  ranks,k=1,\n  x=2):\n    chunks 1\n") == (
        "schedule s(\n    ranks, k=1,\n    x=2,\n):\n    chunks 1\n")


def test_what_fits_on_a_line_comes_on_one():
    assert line("let x = (a +\n    b)") == "let x = a + b"
    assert line("let x = [a for a in xs\n    if a]") == "let x = [a for a in xs if a]"


def test_what_cannot_be_laid_out_without_loss_stays_as_written():
    commented = body("let x = [1,   # one", "         2]")
    assert laid_out(commented) == commented
    name = "a_rather_long_name_for_a_value"
    wide = body(f"require ({name} and {name} and", f"         {name} and {name})")
    assert laid_out(wide) == wide
    moved = "schedule s(ranks):\n  step:\n    let x = [1,   # one\n             2]\n"
    assert laid_out(moved) == body("step:", "    let x = [1,   # one", "             2]")


def test_docstrings():
    for doc in ['"""One line."""', '"""Ends in a quote" """', '""""""', '"""A \\ back"""',
                '"""One.\n\n    Two:\n      three\n    """']:
        text = f"schedule s(ranks):\n    {doc}\n    chunks 1\n"
        assert laid_out(text) == text


def test_text_is_escaped():
    assert line('require a, "q \\" b \\\\ n \\n t \\t é #"') == 'require a, "q \\" b \\\\ n \\n t \\t é #"'


def test_empty_files():
    assert laid_out("") == ""
    assert laid_out("\n\n  \n") == ""
    assert laid_out("\n# only\n\n\n\n# comments\n") == "# only\n\n\n# comments\n"


def test_a_tree_made_by_a_program():
    step = t.Step(NO_SPAN, None, (t.ChunksStmt(NO_SPAN, t.Int(NO_SPAN, 1)),))
    schedule = t.Schedule(NO_SPAN, "s", (), "Doc.", (step, step), NO_SPAN)
    assert format_file(t.File(Source("", ""), (t.Import(NO_SPAN, "a"), schedule, schedule))) == (
        'import "a"\n\n' + "\n".join(['schedule s():\n    """Doc."""\n' + "    step:\n        chunks 1\n" * 2] * 2))
