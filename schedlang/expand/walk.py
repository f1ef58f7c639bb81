"""What stands inside an expression, without evaluating it."""

from __future__ import annotations

from schedlang.syntax import tree as t


def names_in(node: t.Expr) -> frozenset[str]:
    """The names that an expression reads from outside itself."""
    if isinstance(node, t.Name):
        return frozenset((node.id,))
    if isinstance(node, t.Comp):
        inner = names_in(node.element) | (names_in(node.condition) if node.condition is not None else frozenset())
        return (inner - {node.var}) | names_in(node.source)
    found: frozenset[str] = frozenset()
    for child in children(node):
        found |= names_in(child)
    return found


def children(node: t.Expr) -> tuple[t.Expr, ...]:
    """The expressions directly inside an expression."""
    match node:
        case t.ListExpr(items=items):
            return items
        case t.Comp():
            return (node.source, node.element) + ((node.condition,) if node.condition is not None else ())
        case t.Range():
            return (node.start, node.stop)
        case t.Index():
            return (node.base, node.index)
        case t.Call(arguments=arguments):
            return arguments
        case t.Unary():
            return (node.operand,)
        case t.Binary() | t.BoolOp():
            return (node.left, node.right)
        case t.Compare():
            return (node.first, *node.rest)
        case t.Conditional():
            return (node.test, node.then, node.otherwise)
        case _:
            return ()
