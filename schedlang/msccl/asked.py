"""A question about a runtime, as ``verify --runtime`` puts it, and what came out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedlang.diagnostics import Diagnostic, SchedError, Severity, warning
from schedlang.msccl.accept import Request
from schedlang.msccl.choice import Answer, answer, ordered
from schedlang.msccl.phrases import size_text
from schedlang.msccl.plan import Plan
from schedlang.msccl.runtimes import Runtime
from schedlang.msccl.xml import read
from schedlang.source import Place


@dataclass(frozen=True)
class Asked:
    """Would ``runtime`` take files for the call ``request``, ``inplace`` or not (None: in each way that they say)?"""

    runtime: Runtime
    request: Request
    inplace: bool | None = None

    @property
    def values(self) -> Mapping[str, Any]:
        """The question in short, for messages."""
        size = self.request.size
        return {"runtime": self.runtime.name} | ({} if size is None else {"size": size_text(size)})

    @property
    def text(self) -> str:
        """The question in words: ``RCCL, 4 MiB of float16, 32 channels``."""
        request = self.request
        parts = [self.runtime.title]
        if request.size is not None:
            parts.append(f"{size_text(request.size)} of {request.dtype}")
        if request.ranks is not None:
            parts.append(f"{request.ranks:,} ranks")
        if request.channels is not None:
            parts.append(f"{request.channels:,} channels")
        return ", ".join(parts)


@dataclass(frozen=True)
class Judged:
    """What came out: an answer for each folder, and one for the files that were named. ``strays``: what else lies in a
    folder that the runtime reads as a whole."""

    asked: Asked
    answers: tuple[Answer, ...]
    strays: tuple[Diagnostic, ...]

    @property
    def files(self) -> Iterator[tuple[Plan, Sequence[Diagnostic]]]:
        """Each file with its findings."""
        for one in self.answers:
            yield from zip(one.plans, one.findings, strict=True)

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """All findings, file by file."""
        return [*(d for _, found in self.files for d in found), *self.strays]

    @property
    def taken(self) -> int:
        """How many files nothing speaks against."""
        return sum(all(d.severity != Severity.ERROR for d in found) for _, found in self.files)


def judge(asked: Asked, named: Sequence[str], folders: Mapping[str, Sequence[str]]) -> Judged:
    """Asks the runtime about the files ``named``, which it has together, and about those of each folder. Files that
    cannot be read are left out: whoever proves them says so."""
    answers: list[Answer] = []
    strays: list[Diagnostic] = []
    for folder, files in [(None, named), *folders.items()]:
        plans = list(_plans(ordered(list(dict.fromkeys(files)), asked.runtime)))
        others = _strays(folder, files, asked.runtime) if folder is not None and asked.runtime.folder else []
        if others:
            strays.append(_stray(others, asked.runtime))
        if plans:
            answers.append(answer(plans, asked.runtime, asked.request, asked.inplace, others[0] if others else None))
    return Judged(asked, tuple(answers), tuple(strays))


def _plans(files: Iterable[str]) -> Iterator[Plan]:
    for file in files:
        try:
            yield read(file)
        except SchedError:
            continue


def _strays(folder: str, files: Sequence[str], runtime: Runtime) -> list[str]:
    """Files of a folder that are no MSCCL files, in the order in which the runtime reads these, too."""
    known = {os.path.basename(file) for file in files}
    try:
        others = [entry.path for entry in os.scandir(folder) if entry.name not in known and (
            entry.is_symlink() or entry.is_file())]
    except OSError:
        return []
    return ordered(others, runtime)


def _stray(others: Sequence[str], runtime: Runtime) -> Diagnostic:
    return warning("SL707", f"{runtime.title} reads every file of its folder as XML, and this is no MSCCL file: "
                   f"{runtime.unreadable}", Place(others[0], 1), count=len(others),
                   help="give the runtime a folder with nothing else in it", runtime=runtime.name)
