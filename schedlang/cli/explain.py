"""``schedlang explain``: what a finding means and how to mend it."""

from __future__ import annotations

import difflib
import re
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
        raise bad_option(f"there is no finding {code}", help=f"{_guess(code)}`schedlang explain --list` lists all")
    click.echo(_page(page, style), nl=False)
    return EXIT_CLEAN


def _guess(wrong: str) -> str:
    """What may have been meant. The number of a code resembles those of unrelated ones, so that near is only what
    differs in how it is written, or the group."""
    if not (number := re.fullmatch(r"[A-Za-z]{0,3}[-_ ]?0*(\d+)", wrong.strip())):
        near = difflib.get_close_matches(wrong.lower(), [c.name for c in CODES.values()], n=3, cutoff=0.5)
        return f"did you mean {' or '.join(near)}? " if near else ""
    if (code := f"SL{number[1]}") in CODES:
        return f"did you mean {code}? "
    group = [c for c in CODES if c[:3] == code[:3] and len(c) == len(code)]
    return f"{code[:3]}xx are {group[0]} to {group[-1]}; " if group else ""


def _page(code: Code, style: Style) -> str:
    return (f"{style('bold', f'{code.code} {code.name}')}\n\n{code.summary}\n\n{code.detail}\n\n"
            f"{style('help', 'How to mend it')}\n\n{code.mend}\n\n"
            f"The page of {code.code} in the documentation has an example, wrong and mended.\n")
