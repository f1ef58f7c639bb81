"""What the grammar lets through and no reader of a tree should meet: expressions too deep to walk, Python's range."""

from __future__ import annotations

from schedlang.diagnostics import Diagnostic, error
from schedlang.syntax.builder import Builder
from schedlang.syntax.lexer import MAX_DEPTH, Tokens
from schedlang.syntax.tree import Expr, File, Fn, Import, Node


def findings(made: File | Expr, tokens: Tokens, builder: Builder) -> list[Diagnostic]:
    """The errors of a text that the grammar accepts."""
    wrong = []
    if tokens.long_lines:
        wrong += [
            error("SL104", f"an expression nests more than {MAX_DEPTH} deep", e.span, help="name its parts with let")
            for e in _too_deep(made)
        ]
    if builder.ranges and not _may_define_range(made):
        wrong += [error("SL101", "there is no range(...)", s, help="write 0..n for range(n), a..b for range(a, b)")
                  for s in builder.ranges]
    return wrong


def _may_define_range(made: File | Expr) -> bool:
    items = made.items if isinstance(made, File) else ()
    return any(isinstance(i, Import) or (isinstance(i, Fn) and i.name == "range") for i in items)


def _too_deep(made: File | Expr) -> list[Expr]:
    """The outermost expressions that are too deep, each walked without recursion."""
    found: dict[int, Expr] = {}
    todo: list[tuple[object, Expr | None, int]] = [(made.items if isinstance(made, File) else made, None, 0)]
    while todo:
        item, root, depth = todo.pop()
        if isinstance(item, tuple):
            todo += [(part, root, depth) for part in item]
        elif isinstance(item, Node):
            if isinstance(item, Expr):
                root, depth = root or item, depth + 1
                if depth > MAX_DEPTH:
                    found[id(root)] = root
                    continue
            todo += [(getattr(item, name), root, depth) for name in item.__dataclass_fields__]
    return sorted(found.values(), key=lambda e: e.span.start)
