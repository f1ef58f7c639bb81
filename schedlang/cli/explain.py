"""``schedlang explain``: what a finding means and how to mend it."""

from __future__ import annotations

import difflib
import sys

import click

from schedlang.cli.common import EXIT_CLEAN, bad_option
from schedlang.codes import CODES, GROUPS, Code, find
from schedlang.render.style import Style, wants_color


@click.command()
@click.argument("code", required=False)
@click.option("--list", "list_all", is_flag=True, help="List all findings.")
def command(code: str | None, list_all: bool) -> int:
    """Say what a finding means and how to mend it.

    CODE is a code or its name: SL305 or deadlock.
    """
    style = Style(wants_color(sys.stdout))
    if list_all or code is None:
        for title, codes in GROUPS.items():
            click.echo(style("bold", title))
            for entry in codes:
                click.echo(f"  {style('note', entry.code)}  {entry.name:<22} {entry.summary}")
        return EXIT_CLEAN
    page = find(code.strip())
    if page is None:
        names = [*CODES, *(c.name for c in CODES.values())]
        near = difflib.get_close_matches(code.lower(), [n.lower() for n in names], n=3, cutoff=0.5)
        guess = f"did you mean {' or '.join(n.upper() if n.upper() in CODES else n for n in near)}? " if near else ""
        raise bad_option(f"there is no finding {code}", help=f"{guess}`schedlang explain --list` lists all")
    click.echo(_page(page, style), nl=False)
    return EXIT_CLEAN


def _page(code: Code, style: Style) -> str:
    return (f"{style('bold', f'{code.code} {code.name}')}\n\n{code.summary}\n\n{code.detail}\n\n"
            f"{style('help', 'How to mend it')}\n\n{code.mend}\n")
