"""Colours of a drawing, for light and dark pages, and its style sheet."""

from __future__ import annotations

from collections.abc import Sequence

LIGHT = ("#0072b2", "#d55e00", "#00835f", "#b0568f", "#8a6d00", "#2f8fc4", "#882255", "#666666")
DARK = ("#56a8e8", "#ff9a4d", "#2ec79b", "#e8a0c8", "#e0c341", "#8fd3f5", "#ea6f8f", "#b4b4b4")
"""Colours of chunks, after Okabe and Ito (Color Universal Design, 2008), made dark and light enough for lines."""

_MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"


def _mixed(color: str, ground: str, share: float) -> str:
    """A colour on a ground, ``share`` of it, as one that hides what lies below."""
    a, b = (tuple(int(c[k:k + 2], 16) for k in (1, 3, 5)) for c in (color, ground))
    return "#" + "".join(f"{round(p * share + q * (1 - share)):02x}" for p, q in zip(a, b, strict=True))


def _scheme(colors: Sequence[str], ground: str, ink: str, faint: str, dim: str, bad: str) -> str:
    """The rules that differ between light and dark."""
    rules = {
        ".ground,.wait path,.open,.chip rect": f"fill:{ground}", "text": f"fill:{ink}", ".band": f"fill:{faint}",
        ".edge,.lane": f"stroke:{dim}", ".link": f"stroke:{ink}", ".mark path": f"stroke:{ink}",
        ".record path": f"fill:{ink}",
        ".fault": f"fill:{bad}", ".badge": f"fill:{bad}", ".count": f"fill:{ground}",
    }
    for k, color in enumerate(colors):
        rules[f".k{k} .line,.k{k} .open,.k{k} rect"] = f"stroke:{color}"
        rules[f".k{k} .full"] = f"fill:{color}"
        tint = _mixed(color, ground, 0.28)
        rules[",".join(f".{kind}.k{k} rect" for kind in ("recv", "reduce", "copy", "add"))] = f"fill:{tint}"
    rules[".stuck rect,.bad rect,.mark.bad path"] = f"stroke:{bad}"
    return "".join(".schedule " + which.replace(",", ",.schedule ") + f"{{{what}}}" for which, what in rules.items())


STYLE = (
    ".schedule text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}"
    ".schedule .title{font-size:14px;font-weight:600}.schedule .rank{font-weight:600}"
    f".schedule .chip text{{font:11px {_MONO};text-anchor:middle}}"
    f".schedule .stream{{font:11px {_MONO};text-anchor:end}}"
    ".schedule .name{text-anchor:middle;font-size:11px}"
    ".schedule .count{font-size:9px;font-weight:700;text-anchor:middle}"
    ".schedule .step{fill:transparent}.schedule .line{fill:none;stroke-width:1.6}.schedule .open{stroke-width:1.4}"
    ".schedule .chip rect{stroke-width:1.4}.schedule .pass rect,.schedule .stuck rect{stroke-dasharray:3 2}"
    ".schedule .bad rect{stroke-width:2.6}.schedule .away .line{stroke-dasharray:2 2}"
    ".schedule .edge{stroke-width:.7}.schedule .lane{stroke-width:.7;stroke-dasharray:2 3}"
    ".schedule .link{fill:none;stroke-dasharray:1 2;stroke-width:1}"
    ".schedule .copy rect,.schedule .add rect{rx:0}"
    + _scheme(LIGHT, "#ffffff", "#1b1f24", "#f3f5f7", "#c3c9d0", "#b3141f")
    + "@media(prefers-color-scheme:dark){" + _scheme(DARK, "#15181c", "#e4e7eb", "#1f242a", "#454d56", "#ff7b7b") + "}"
)
"""The style sheet of a drawing; everything hangs on the class ``schedule``, so that it does no harm in a page."""
