"""How ``schedlang verify`` shows its results: one after another for people, all together for other programs."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import click

from schedlang.cli.common import EXIT_CLEAN, EXIT_UNUSABLE, exit_code, write_text
from schedlang.diagnostics import Diagnostic, SchedError
from schedlang.ir.table import TRANSPORTS
from schedlang.render.style import Style, terminal_width, wants_color

if TYPE_CHECKING:
    from schedlang.msccl.asked import Judged
    from schedlang.report import Report


class Output:
    """Where results go: to the standard output, or to the file ``path``, as a whole or not at all.

    ``format``: full, concise, json, github or sarif. ``sends``: the model that was judged by, in words.
    """

    def __init__(self, format: str, path: str | None, sends: str) -> None:
        self.format, self.path, self.sends = format, path, sends
        self.reports: list[Report] = []
        self.problems: dict[str, Diagnostic] = {}
        self.unread = self.faulty = 0       # files from which no report came: not usable; read, and wrong
        self.judged: Judged | None = None
        self._color = path is None and wants_color(sys.stdout)
        self._written: list[str] = []

    def add(self, result: Report | SchedError) -> None:
        """The verdict on a schedule, or why a file could not be used."""
        from schedlang.render import terminal, verdict

        people = self.format in ("full", "concise")
        if isinstance(result, SchedError):
            # What is wrong with a file that several others import is said once.
            new = {text: d for d in result.diagnostics if (text := str(d)) not in self.problems}
            self.problems |= new
            if exit_code(result.diagnostics) == EXIT_UNUSABLE:
                self.unread += 1
            else:
                self.faulty += 1
            if people:
                style: terminal.Format = "concise" if self.format == "concise" else "full"
                self._write(terminal.render(new.values(), format=style, color=self._color))
        else:
            self.reports.append(result)
            if people:
                self._write(verdict.text(result, full=self.format == "full", style=Style(self._color),
                                         width=terminal_width()))

    def answer(self, judged: Judged) -> None:
        """What a runtime does with the files that have been verified."""
        from schedlang.render import runtime

        self.judged = judged
        if self.format in ("full", "concise"):
            self._write(runtime.text(judged, full=self.format == "full", style=Style(self._color),
                                     width=terminal_width()))

    def finish(self) -> int:
        """Shows what is left to show; the exit status. Raises SchedError (SL807)."""
        status = max([exit_code(self.problems.values()), *map(_exit, self.reports),
                      exit_code(self.judged.diagnostics if self.judged is not None else ())], default=EXIT_CLEAN)
        self._write(self._last(status))
        if self.path is not None:
            write_text(self.path, "".join(self._written))
        return status

    def _last(self, status: int) -> str:
        from schedlang.render import json, verdict

        right, judged = sum(report.ok for report in self.reports), len(self.reports) + self.faulty
        if self.format in ("github", "sarif"):
            from schedlang.render.listed import listed
            from schedlang.render.runtime import findings

            # On a runner of GitHub Actions, the checkout; a job may have gone into a folder of it.
            root = os.environ.get("GITHUB_WORKSPACE") or os.getcwd()
            found = listed(self.reports, self.problems.values(), root,
                           findings(self.judged) if self.judged is not None else ())
            if self.format == "sarif":
                from schedlang.render import sarif

                return json.dumps(sarif.document(found, status=status, root=root, sends=self.sends))
            from schedlang.render import github

            return github.text(found, right=right, judged=judged, unread=self.unread, root=root)
        if self.format == "json":
            document = verdict.document(self.reports, self.problems.values(), self.sends)
            if self.judged is not None:
                from schedlang.render import runtime

                document["ok"] &= exit_code(self.judged.diagnostics) == EXIT_CLEAN
                document["runtime"] = runtime.document(self.judged)
            return json.dumps(document)
        if self.format == "concise" or not self.reports:
            return ""
        more = f"; {self.unread} file{'s' * (self.unread > 1)} could not be used" if self.unread else ""
        total = f"{right} of {judged} schedules are right{more}\n" if judged + self.unread > 1 else ""
        models = list(dict.fromkeys(case.model for report in self.reports for case in report.cases if case.proofs))
        if not models:
            return total        # nothing came as far as being judged
        return f"{total}{_model(self.sends, models)}\n"

    def _write(self, text: str) -> None:
        if self.path is not None:
            self._written.append(text)
        elif text:
            click.echo(text, nl=False, color=self._color)


def _model(sends: str, deadlock: list[str]) -> str:
    """By what was judged. ``sends``: the option; ``deadlock``: how deadlock was, in words, in all cases that were."""
    if sends == "rendezvous":
        return "All is judged without buffering."
    if sends not in ("default", *TRANSPORTS):
        return f"All judged with --sends {sends}."
    told = []
    for model in deadlock:
        protocol, _, how = model.rpartition(": ")
        told.append(f"{how} ({protocol})" if protocol else f"{how} (others)" if len(deadlock) > 1 else how)
    return f"Deadlock is judged {' or '.join(told)}, all else with unlimited buffering."


def _exit(report: Report) -> int:
    return max((exit_code(case.diagnostics) for case in report.with_status("faulty", "unusable")), default=EXIT_CLEAN)
