"""Which of many cases is at work: one line on the terminal's standard error, for as long as nothing else is printed."""

from __future__ import annotations

import os
import sys
import threading
from types import TracebackType

PATIENCE = 1.0
"""Seconds of work after which there is a line."""

REST = 0.1
"""Seconds between two lines."""


class Progress:
    """A line that says what is being done: there once the work has taken longer than PATIENCE, gone at the end.

    Whoever prints calls :meth:`erase` before. Without a terminal nothing happens.
    """

    def __init__(self) -> None:
        self._wanted = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._text = self._there = ""

    def __enter__(self) -> Progress:
        if self._wanted:
            threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, what: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self.erase()

    def say(self, text: str) -> None:
        """What is being done from now on."""
        self._text = text

    def erase(self) -> None:
        """Takes the line away: something else is about to be printed, or there is nothing more to do."""
        with self._lock:
            self._text = ""
            if self._there:
                self._write("\r\x1b[2K")
                self._there = ""

    def _watch(self) -> None:
        """Draws, in a thread of its own, so that it does however long one case takes."""
        rest = PATIENCE
        while not self._over.wait(rest):
            self._draw()
            rest = REST

    def _draw(self) -> None:
        from schedlang.render.style import char_width, clean

        with self._lock:
            text = self._text
            if not text or text == self._there or self._over.is_set():
                return
            room, shown = self._columns() - 1, ""
            for char in clean(text).replace("\n", " "):
                room -= char_width(char)
                if room < 0:
                    break
                shown += char
            if self._write(f"\r\x1b[2K{shown}"):
                self._there = text

    @staticmethod
    def _columns() -> int:
        """How wide the terminal is; the standard output may be elsewhere."""
        try:
            return os.get_terminal_size(sys.stderr.fileno()).columns or 80
        except OSError:
            return 80

    def _write(self, text: str) -> bool:
        """Whether it could be written; a terminal that has gone takes the line with it."""
        try:
            sys.stderr.write(text)
            sys.stderr.flush()
        except (OSError, ValueError):
            self._over.set()
            return False
        return True
