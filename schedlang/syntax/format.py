"""The usual layout of a file: four spaces a block, the author's blank lines, comments where they were.

What cannot be laid out anew without losing something stays as it was written: a statement with a comment inside its
brackets, and one that was broken over lines and would not fit on one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from schedlang.source import Source
from schedlang.syntax import tables
from schedlang.syntax.lexer import lex
from schedlang.syntax.tree import Comment, File, Fn, For, If, Import, OnRank, Schedule, Step, Stmt, Stream
from schedlang.syntax.unparse import docstring_lines, expression, fn_head, import_line, schedule_head, statement

WIDTH = 120
INDENT = "    "
CONDITIONAL = 1


def format_file(file: File) -> str:
    """The text of a file in the usual layout, with line feeds: it parses to an equal tree, and formatting it again
    changes nothing. Nodes made by a program rather than read have empty spans: there is no author's layout to keep."""
    return _Layout(file).run()


class _Lines:
    """The logical lines of a source, by their offsets."""

    def __init__(self, source: Source) -> None:
        tokens = lex(source)
        number = tables.load().number
        silent = {number[tables.NEWLINE], number[tables.INDENT], number[tables.DEDENT], number[tables.END]}
        self.starts: list[int] = []
        self.ends: list[int] = []
        fresh = True
        for kind, start, end in zip(tokens.kinds, tokens.starts, tokens.ends, strict=True):
            if kind not in silent:
                if fresh:
                    self.starts.append(start)
                    self.ends.append(end)
                    fresh = False
                self.ends[-1] = end
            elif kind == number[tables.NEWLINE]:
                fresh = True

    def at(self, offset: int) -> tuple[int, int] | None:
        """The line that an offset is in."""
        k = bisect_right(self.starts, offset) - 1
        return (self.starts[k], self.ends[k]) if k >= 0 and offset <= self.ends[k] else None

    def after(self, offset: int) -> tuple[int, int] | None:
        """The first line that starts at an offset or later."""
        k = bisect_left(self.starts, offset)
        return (self.starts[k], self.ends[k]) if k < len(self.starts) else None


class _Layout:
    def __init__(self, file: File) -> None:
        self.file = file
        self.text = file.source.text
        self.lines = _Lines(file.source)
        self.comments: Sequence[Comment] = file.comments
        self.comment_starts = [c.span.start for c in file.comments]
        self.next_comment = 0
        self.out: list[str] = []
        self.last = 0  # offset past what was written last
        self.opened = True  # whether nothing stands yet in this block, so that a blank line would be idle
        self.most_blank = 2
        self.least_blank = 0

    def run(self) -> str:
        items = self.file.items
        heads = self.aligned_heads()
        for k, item in enumerate(items):
            if k and isinstance(item, Schedule) | isinstance(items[k - 1], Schedule):
                self.least_blank = 0 if self.separated(items[k - 1].span.end, item.span.start) else 1
            self.most_blank = 2
            match item:
                case Import():
                    self.line(0, import_line(item), self.lines.at(item.span.start))
                case Fn():
                    text = f"{heads[k]} = {expression(item.value)}"
                    self.line(0, text, self.lines.at(item.span.start), settled=self.one_line(item))
                case Schedule():
                    self.schedule(item)
        self.most_blank = 2
        self.comments_until(0, len(self.text) + 1)
        return "\n".join(self.out) + "\n" if self.out else ""

    def aligned_heads(self) -> dict[int, str]:
        """What stands before the ``=`` of each function, by its number; functions on lines in a row align."""
        heads: dict[int, str] = {}
        run: list[int] = []
        for k, item in enumerate((*self.file.items, None)):
            if isinstance(item, Fn):
                heads[k] = fn_head(item)
                one_line = self.one_line(item)
                before = self.file.items[run[-1]].span.end if run else 0
                if run and (not one_line or self.text.count("\n", before, item.span.start) > 1):
                    heads.update(self.pad(heads, run))
                    run = []
                if one_line:
                    run.append(k)
            elif run:
                heads.update(self.pad(heads, run))
                run = []
        return heads

    def one_line(self, node: Fn) -> bool:
        """Whether a function is laid out anew, on one line."""
        text = f"{fn_head(node)} = {expression(node.value)}"
        start, end = node.span.start, node.span.end
        commented = bisect_left(self.comment_starts, start) < bisect_left(self.comment_starts, end)
        return "\n" not in text and not commented and not ("\n" in node.span.text and self.too_wide(0, text))

    def pad(self, heads: dict[int, str], run: list[int]) -> dict[int, str]:
        width = max(len(heads[k]) for k in run)
        return {k: heads[k].ljust(width) for k in run}

    def separated(self, end: int, start: int) -> bool:
        """Whether a blank line stands between two offsets."""
        return any(not line.strip() for line in self.text[end:start].split("\n")[1:-1])

    # ---- statements

    def schedule(self, node: Schedule) -> None:
        line = self.lines.at(node.span.start)
        self.line(0, schedule_head(node) + ":", line)
        self.most_blank, self.opened = 1, True
        if node.doc is not None:
            place = self.lines.after(line[1]) if line else None
            self.line(1, "\n".join(docstring_lines(node.doc)), place, settled=True)
        self.block(1, node.body)

    def block(self, depth: int, body: Sequence[Stmt]) -> None:
        for node in body:
            self.statement(depth, node)
        following = self.lines.after(body[-1].span.end)
        self.comments_until(depth, following[0] if following else len(self.text) + 1, self.column(body[0].span.start))

    def statement(self, depth: int, node: Stmt) -> None:
        line = self.lines.at(node.span.start)
        match node:
            case If():
                self.headed(depth, statement(node), line, node.branches[0][1])
                before = node.branches[0][1]
                for test, body in node.branches[1:]:
                    self.headed(depth, f"elif {expression(test, CONDITIONAL)}", self.following(before), body)
                    before = body
                if node.otherwise:
                    self.headed(depth, "else", self.following(before), node.otherwise)
            case For() | Step() | Stream() | OnRank():
                self.headed(depth, statement(node), line, node.body)
            case _:
                self.line(depth, statement(node), line)

    def following(self, body: Sequence[Stmt]) -> tuple[int, int] | None:
        return self.lines.after(body[-1].span.end) if self.lines.starts else None

    def headed(self, depth: int, head: str, line: tuple[int, int] | None, body: Sequence[Stmt]) -> None:
        if line and line[0] < body[0].span.start < line[1]:
            self.line(depth, f"{head}: {statement(body[0])}", line)
            return
        self.line(depth, f"{head}:", line)
        self.opened = True
        self.block(depth + 1, body)

    # ---- lines

    def line(self, depth: int, text: str, place: tuple[int, int] | None, settled: bool = False) -> None:
        """Write a logical line that stands at ``place`` in the source, with the comments before it and behind it.
        ``settled``: it is not a line to be left as written."""
        if place is None:
            self.blank(self.last)
            self.put(depth, text)
            return
        start, end = place
        self.comments_until(depth, start)
        self.blank(start)
        if self.comments_until_skipped(end) or (
                "\n" in self.text[start:end] and not settled and self.too_wide(depth, text)):
            text = self.as_written(depth, start, end)
        self.put(depth, text)
        self.last = end
        self.trailing_comment(depth, start, end)

    def put(self, depth: int, text: str) -> None:
        self.out += [(INDENT * depth + part).rstrip() if part else "" for part in text.split("\n")]
        self.opened = False

    def too_wide(self, depth: int, text: str) -> bool:
        return any(len(INDENT) * depth + len(part) > WIDTH for part in text.split("\n"))

    def as_written(self, depth: int, start: int, end: int) -> str:
        """The source's own text of a line, moved as a whole; :meth:`put` indents it."""
        first, *rest = self.text[start:end].split("\n")
        shift = self.column(start)
        lines = [first.rstrip()]
        for part in rest:
            words = part.strip()
            margin = self.margin(part)
            lines.append(" " * max(0, margin - shift) + words if words else "")
        return "\n".join(lines)

    def blank(self, start: int) -> None:
        """The blank lines before what stands at an offset."""
        least, self.least_blank = self.least_blank, 0
        if self.opened:
            return
        wanted = self.text.count("\n", self.last, start) - 1
        self.out += [""] * max(least, min(wanted, self.most_blank))

    def column(self, offset: int) -> int:
        """How far an offset is from the start of its line, tabs counted as blocks."""
        start = self.text.rfind("\n", 0, offset) + 1
        return len(self.text[start:offset].lstrip("\ufeff").expandtabs(len(INDENT)))

    @staticmethod
    def margin(line: str) -> int:
        """How far a line is indented."""
        return len(line[: len(line) - len(line.lstrip())].expandtabs(len(INDENT)))

    # ---- comments

    def comments_until(self, depth: int, limit: int, column: int = 0) -> None:
        """Write the comments before an offset, which have lines of their own, as long as they are indented that far."""
        while self.next_comment < len(self.comments):
            comment = self.comments[self.next_comment]
            if comment.span.start >= limit or self.column(comment.span.start) < column:
                return
            self.blank(comment.span.start)
            self.put(depth, comment.text)
            self.last = comment.span.end
            self.next_comment += 1

    def comments_until_skipped(self, end: int) -> bool:
        """Pass over the comments before an offset, which stand inside a line; whether there are any."""
        before = self.next_comment
        while self.next_comment < len(self.comments) and self.comments[self.next_comment].span.start < end:
            self.next_comment += 1
        return self.next_comment > before

    def trailing_comment(self, depth: int, start: int, end: int) -> None:
        """The comment behind a line keeps its column, so that what the author aligned stays so."""
        if self.next_comment == len(self.comments):
            return
        comment = self.comments[self.next_comment]
        at = comment.span.start
        if "\n" in self.text[end:at]:
            return
        wanted = 0
        if self.column(at) - self.column(end) >= 2:
            first_line = "\n" not in self.text[start:end]
            moved = len(INDENT) * depth - self.column(start) if first_line else 0
            wanted = self.column(at) + moved
        code = self.out[-1]
        self.out[-1] = code.ljust(max(wanted, len(code) + 2)) + comment.text
        self.last = comment.span.end
        self.next_comment += 1
