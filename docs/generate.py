"""Makes the reference pages from the tables of the program; docs/conf.py calls it at every build."""

from __future__ import annotations

from pathlib import Path

from generators import collectives, findings, schedules

GENERATED = Path(__file__).parent / "reference" / "generated"


def generate() -> None:
    """Writes all pages. One that is already right is left alone, so that nothing is built twice; one that nothing makes
    any more goes."""
    kinds = (collectives, findings, schedules)
    pages = {GENERATED / name: text for kind in kinds for name, text in kind.pages().items()}
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in GENERATED.rglob("*.*"):
        if path not in pages:
            path.unlink()
