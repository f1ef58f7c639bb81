"""Hypothesis strategies for trees of the language, as a program would make them: all spans are empty."""

from hypothesis import strategies as st

from schedlang.source import Source, Span
from schedlang.syntax import tree as t
from schedlang.syntax.builder import docstring

SOURCE = Source("<made>", "")
SPAN = Span(SOURCE, 0, 0)

names = st.sampled_from(
    ["a", "b1", "_x", "data", "input", "ranks", "chunks", "sum", "host", "only", "reversed", "inplace", "chan"])
words = names | st.sampled_from(["send", "recv", "reduce", "copy", "record", "wait", "from", "to", "into", "then"])
texts = st.text(st.characters(codec="utf-8"), max_size=12)


def node(kind, *fields, **more):
    return st.builds(kind, st.just(SPAN), *fields, **more)


def tuples(of, least=0, most=3):
    return st.lists(of, min_size=least, max_size=most).map(tuple)


def _deeper(e):
    some = tuples(e)
    return st.one_of(
        node(t.ListExpr, some),
        node(t.Comp, e, names, e, st.none() | e),
        node(t.Range, e, e),
        node(t.Index, e, e),
        node(t.Call, names, some),
        node(t.Unary, st.sampled_from(["-", "+", "~", "not"]), e),
        node(t.Binary, st.sampled_from(["+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^"]), e, e),
        node(t.BoolOp, st.sampled_from(["and", "or"]), e, e),
        node(t.Conditional, e, e, e),
        tuples(st.tuples(st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), e), 1).flatmap(
            lambda pairs: node(t.Compare, e, st.just(tuple(p[0] for p in pairs)), st.just(tuple(p[1] for p in pairs)))),
    )


atoms = st.one_of(node(t.Int, st.integers(0, 2**63 - 1)), node(t.Bool, st.booleans()), node(t.Name, names))
expressions = st.recursive(atoms, _deeper, max_leaves=6)
maybe = st.none() | expressions
locs = node(t.Loc, names, expressions, maybe)
maybe_loc = st.none() | locs
stream_names = node(t.StreamName, expressions, st.none()) | node(t.StreamName, node(t.Name, words), maybe)
arguments = tuples(node(t.Argument, st.none() | names, expressions))
forwards = tuples(node(t.Forward, expressions, maybe_loc, st.booleans()), most=2)
bindings = st.one_of(
    st.just(()),
    tuples(node(t.Binding, st.none(), locs), 1, 1),
    tuples(node(t.Binding, names, locs), 1))

simple_statements = st.one_of(
    node(t.CollectiveStmt, words, arguments, maybe, st.booleans()),
    node(t.RanksStmt, expressions),
    node(t.ChunksStmt, expressions),
    node(t.BufferStmt, tuples(node(t.BufferDecl, names, expressions), 1), st.sampled_from(["device", "host"])),
    node(t.Let, names, expressions),
    node(t.Require, expressions, st.none() | texts),
    node(t.VerifyStmt, tuples(node(t.VerifyRange, names, expressions), 1)),
    node(t.Transfer, st.sampled_from(["send", "reduce"]), locs, expressions, expressions, maybe_loc, forwards, maybe),
    node(t.OwnSend, locs, expressions, maybe),
    node(t.OwnRecv, st.just("recv"), locs, expressions, st.none(), forwards, maybe),
    node(t.OwnRecv, st.just("reduce"), locs, expressions, maybe_loc, forwards, maybe),
    node(t.Local, st.sampled_from(["copy", "reduce"]), locs, locs, maybe, maybe),
    node(t.EventStmt, st.sampled_from(["record", "wait"]), node(t.EventRef, words, tuples(expressions)), maybe, maybe),
    node(t.Chan, stream_names),
    node(t.Use, words, arguments, maybe, bindings, st.booleans(), maybe),
    node(t.Ensure, locs, expressions,
         node(t.EnsureOne, locs, expressions) | node(t.EnsureMany, names, locs, expressions), maybe),
)


def _blocks(statement):
    body = tuples(statement, 1)
    return st.one_of(
        node(t.For, names, expressions, body),
        node(t.If, tuples(st.tuples(expressions, body), 1, 2), st.just(()) | body),
        node(t.Step, st.none() | words, body),
        node(t.Stream, stream_names, body),
        node(t.OnRank, expressions, body),
    )


statements = st.recursive(simple_statements, _blocks, max_leaves=5)
docstrings = texts.filter(lambda text: '"""' not in text).map(lambda text: docstring(f'"""{text}"""'))
items = st.one_of(
    node(t.Import, texts),
    node(t.Fn, names, tuples(names), expressions),
    node(t.Schedule, words, tuples(node(t.Param, names, maybe)), st.none() | docstrings, tuples(statements, 1, 4),
         st.just(SPAN)),
)
files = tuples(items).map(lambda made: t.File(SOURCE, made))
