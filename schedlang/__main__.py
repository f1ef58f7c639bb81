"""``python -m schedlang``: the same as the installed command."""

from schedlang.cli.main import run

run()
