"""Programs: a file, what it imports, and how a name in it is resolved."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from schedlang import syntax
from schedlang.diagnostics import Diagnostic, Note, SchedError, error
from schedlang.expand.frame import Fail
from schedlang.ir.table import OpTable
from schedlang.ops import BUILTINS
from schedlang.source import LIBRARY, SHIPPED, Source, Span, on_disk, shipped_name
from schedlang.syntax import tree as t

MAX_IMPORTS = 100
"""How deep files may import each other."""


def did_you_mean(name: str, known: list[str] | tuple[str, ...]) -> str | None:
    """A hint for a name that is not among those known; None where nothing is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, known, 1)
    return f"did you mean `{near[0]}`?" if near else None


@dataclass(eq=False)
class Function:
    """An ``fn`` and the module that the names in it are resolved in."""

    tree: t.Fn
    module: Module

    @property
    def name(self) -> str:
        return self.tree.name

    @cached_property
    def recursive(self) -> bool:
        """Whether a call of it can lead to another call of it."""
        seen: set[int] = set()
        waiting = self._called()
        while waiting:
            f = waiting.pop()
            if f is self:
                return True
            if id(f) not in seen:
                seen.add(id(f))
                waiting += f._called()
        return False

    def _called(self) -> list[Function]:
        from schedlang.expand.walk import children

        found, waiting = [], [self.tree.value]
        while waiting:
            node = waiting.pop()
            waiting += children(node)
            if isinstance(node, t.Call) and node.function not in BUILTINS:
                try:
                    found.append(self.module.function(node.function, node.span))
                except Fail:
                    continue  # found again, and reported, where it is called
        return found


@dataclass(eq=False)
class Module:
    """A parsed file: its functions and schedules by name, and the modules it imports."""

    program: Program
    tree: t.File
    functions: dict[str, Function] = field(default_factory=dict)
    schedules: dict[str, t.Schedule] = field(default_factory=dict)
    imports: list[Module] = field(default_factory=list)
    checked: dict[str, list[Diagnostic]] = field(default_factory=dict)
    """What a look at the text of each schedule found, once there was one: it is the same for all sizes."""

    @property
    def path(self) -> str:
        return self.tree.source.path

    def function(self, name: str, at: Span) -> Function:
        """The function that a name means in this module. Raises Fail SL201 or SL202."""
        return self._found(name, "fn", at).functions[name]

    def schedule(self, name: str, at: Span) -> tuple[t.Schedule, Module]:
        """The schedule that a name means in this module, and where it stands. Raises Fail SL201 or SL202."""
        module = self._found(name, "schedule", at)
        return module.schedules[name], module

    def _names(self, what: str) -> dict[str, Function] | dict[str, t.Schedule]:
        return self.functions if what == "fn" else self.schedules

    def _found(self, name: str, what: str, at: Span) -> Module:
        if name in self._names(what):
            return self
        found = [m for m in self.imports if name in m._names(what)]
        if not found:
            found = [m for m in self.program.library(what, name) if name in m._names(what)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Fail(error("SL202", f"{what} `{name}` is found in " + " and in ".join(m.path for m in found), at,
                             help="import only the file that is meant, or rename one of them"))
        known = [*self._names(what), *(n for m in self.imports for n in m._names(what)), *self.program.shipped(what)]
        if what == "fn":
            known += BUILTINS
        raise Fail(error("SL201", f"there is no {what} called `{name}` here, in the imports or in the library", at,
                         help=did_you_mean(name, known)))


@dataclass(frozen=True)
class Kept:
    """The table of a schedule that another uses, for the next size in which it is used alike. What it cost counts
    there, too: ``turns`` of loops, ``calls`` of functions, uses within uses ``deep``; ``looked_at``: the schedules in
    it, whose warnings are to be said."""

    table: OpTable
    turns: int
    calls: int
    deep: int
    looked_at: tuple[tuple[t.Schedule, Module], ...]


class Texts:
    """What the programs of one call share: texts that were read and parsed, and what is where in the library."""

    def __init__(self) -> None:
        self._trees: dict[tuple[str, str], tuple[t.File | None, list[Diagnostic]]] = {}

    def tree(self, source: Source) -> tuple[t.File | None, list[Diagnostic]]:
        """As :func:`schedlang.syntax.parse`. A text is parsed again where it is reached by another path: that is what
        messages show."""
        key = source.path, source.text
        if key not in self._trees:
            self._trees[key] = syntax.parse(source)
        return self._trees[key]

    @cached_property
    def library(self) -> dict[tuple[str, str], list[Path]]:
        """Which files of the shipped library define which names."""
        return _library_index()


class Program:
    """A file with everything it imports."""

    def __init__(self, source: Source, texts: Texts | None = None) -> None:
        self.source = source
        self._modules: dict[str, Module] = {}
        self._texts = Texts() if texts is None else texts
        self.kept: dict[Any, Kept] = {}
        findings: list[Diagnostic] = []
        root = self._load(source, (), findings)
        if root is None or findings:
            raise SchedError(findings)
        self.root: Module = root

    @property
    def path(self) -> str:
        return self.source.path

    @property
    def names(self) -> tuple[str, ...]:
        """The schedules of the file itself, in order."""
        return tuple(self.root.schedules)

    def main(self, name: str | None = None) -> str:
        """The schedule meant by ``FILE`` or ``FILE::NAME``: the one named, else the one named like the file, else the
        only one. Raises SchedError SL212.
        """
        names = self.names
        if not names:
            raise SchedError(error("SL212", f"there is no schedule in {self.path}",
                                   help="a file may have functions only, for others to import"))
        if name is not None:
            if name in names:
                return name
            raise SchedError(
                error(
                    "SL212",
                    f"{self.path} has no schedule `{name}`" + _having(names),
                    Span(self.source, 0, 0),
                    help=did_you_mean(name, names),
                )
            )
        stem = Path(self.path).stem
        for candidate in (stem, stem.replace("-", "_")):
            if candidate in names:
                return candidate
        if len(names) == 1:
            return names[0]
        raise SchedError(error("SL212", f"{self.path} does not say which schedule is meant" + _having(names),
                               Span(self.source, 0, 0), help=f"name one of them: {self.path}::{names[0]}"))

    def parameters(self, name: str | None = None) -> tuple[str, ...]:
        """The names of the parameters of a schedule, see :meth:`main`."""
        return tuple(p.name for p in self.root.schedules[self.main(name)].params)

    # ---- loading ---------------------------------------------------------------------------------------------------

    def _load(self, source: Source, chain: tuple[str, ...], findings: list[Diagnostic]) -> Module | None:
        key = _key(source)
        tree, found = self._texts.tree(source)
        findings += found
        if tree is None:
            return None
        module = self._modules[key] = Module(self, tree)
        for item in tree.items:
            if isinstance(item, t.Import):
                imported = self._import(item, source, (*chain, key), findings)
                if imported is not None and imported not in module.imports:
                    module.imports.append(imported)
            elif isinstance(item, t.Fn):
                if item.name in BUILTINS:
                    findings.append(error("SL202", f"`{item.name}` is a built-in function", item.span))
                elif item.name in module.functions:
                    findings.append(_twice(f"fn `{item.name}`", item.span, module.functions[item.name].tree.span))
                module.functions.setdefault(item.name, Function(item, module))
            else:
                if item.name in module.schedules:
                    findings.append(
                        _twice(f"schedule `{item.name}`", item.name_span, module.schedules[item.name].name_span)
                    )
                module.schedules.setdefault(item.name, item)
        return module

    def _import(
        self, item: t.Import, source: Source, chain: tuple[str, ...], findings: list[Diagnostic]
    ) -> Module | None:
        path = os.path.normpath(source.folder / item.path)  # without "..": messages show it
        try:
            imported = read(shipped_name(path) if source.path.startswith(SHIPPED) else path)
        except SchedError as why:
            findings.append(error("SL106", f"cannot import \"{item.path}\": {why.diagnostics[0].message}", item.span))
            return None
        except ValueError as why:  # a path that no file can have
            findings.append(error("SL106", f"cannot import \"{item.path}\": {why}", item.span))
            return None
        key = _key(imported)
        if key in chain:
            files = [*chain[chain.index(key):], key]
            findings.append(error("SL106", "files import each other in a circle: " + " imports ".join(
                Path(f).name for f in files), item.span))
            return None
        if key in self._modules:
            return self._modules[key]
        if len(chain) >= MAX_IMPORTS:
            findings.append(error("SL106", f"files import each other more than {MAX_IMPORTS} deep", item.span,
                                  help="import the file that is meant directly"))
            return None
        return self._load(imported, chain, findings)

    # ---- the shipped library ---------------------------------------------------------------------------------------

    def shipped(self, what: str) -> list[str]:
        """The names of the schedules, or functions, of the shipped library."""
        return [name for kind, name in self._texts.library if kind == what]

    def library(self, what: str, name: str) -> list[Module]:
        """The modules of the shipped library that define a name. A file is parsed when it is first needed."""
        modules = []
        for path in self._texts.library.get((what, name), ()):
            source = read(shipped_name(path))
            module = self._modules.get(_key(source))
            if module is None:
                findings: list[Diagnostic] = []
                module = self._load(source, (), findings)
                if module is None or findings:
                    raise SchedError(findings)
            modules.append(module)
        return modules


_DEFINITION = re.compile(r"^(schedule|fn)[ \t]+([A-Za-z_]\w*)", re.MULTILINE)


def _library_index() -> dict[tuple[str, str], list[Path]]:
    """Which files of the library define which names, from a look at the text only."""
    index: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(LIBRARY.rglob("*.sched")) if LIBRARY.is_dir() else ():
        for what, name in _DEFINITION.findall(path.read_text("utf-8", "replace")):
            index.setdefault((what, name), []).append(path)
    return index


def _key(source: Source) -> str:
    return str(Path(on_disk(source.path)).resolve())


def _twice(what: str, span: Span, first: Span) -> Diagnostic:
    return error("SL202", f"{what} is defined twice", span, notes=[Note("first defined here", first)])


def _having(names: tuple[str, ...]) -> str:
    return ": it has " + ", ".join(f"`{n}`" for n in names)


def read(name: str) -> Source:
    """As :func:`schedlang.syntax.read`, also of a shipped file by the name that messages give it."""
    return replace(syntax.read(on_disk(name)), path=name)


def load_program(path: str, texts: Texts | None = None) -> Program:
    """A file and all that it imports. ``texts``: what it shares with other programs.

    Raises SchedError with all errors of the texts: SL105 (the file cannot be read), SL101 to SL104, SL106, SL202.
    """
    try:
        source = read(path)
    except SchedError as why:
        shipped = () if os.path.lexists(path) else _library_index().get(("schedule", Path(path).stem), ())
        if not shipped:
            raise
        raise SchedError([replace(d, help=f"the shipped schedule of that name is {shipped_name(shipped[0])}")
                          for d in why.diagnostics]) from None
    return Program(source, texts)


def load_text(text: str, path: str = "<text>") -> Program:
    """As :func:`load_program`, from a text; ``path`` is what messages show and where imports start."""
    return Program(Source(path, text))
