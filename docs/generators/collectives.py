"""The tables of collectives, operators and built-in functions."""

from __future__ import annotations

from schedlang.ops import BUILTINS, COLLECTIVES, REDUCE_OPS


def pages() -> dict[str, str]:
    """One page."""
    lines = ["## Collectives", "", "| collective | meaning |", "|---|---|"]
    for kind in COLLECTIVES.values():
        call = f"{kind.name}({', '.join(kind.arguments)})" if kind.arguments else kind.name
        lines.append(f"| `{call}` | {kind.doc} |")
    lines += ["", "## Operators", "", "| operator | meaning |", "|---|---|"]
    for op in REDUCE_OPS.values():
        lines.append(f"| `{op.name}` | {op.doc}{' (integers only)' if op.integers_only else ''} |")
    lines += ["", "## Built-in functions", "", "| function | value |", "|---|---|"]
    for function in BUILTINS.values():
        arguments = ", ".join("abc"[:function.arity]) + (", ..." if function.variadic else "")
        lines.append(f"| `{function.name}({arguments})` | {function.doc} |")
    return {"collectives.md": "\n".join(lines) + "\n"}
