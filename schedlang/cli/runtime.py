"""``verify --runtime``: would a runtime take MSCCL files, and which of them for a call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from schedlang.cli.common import bad_option, one_rank_count

if TYPE_CHECKING:
    from schedlang.msccl.asked import Asked, Judged

NAMES = ("rccl", "azure", "microsoft")
"""Those of ``msccl.runtimes``, which is not imported for the sake of --help; a test compares them."""


def runtime_options(command: Callable[..., int]) -> Callable[..., int]:
    """``--runtime``, ``--bytes``, ``--in-place``, ``--out-of-place`` and ``--channels``, which together with
    ``--ranks``, ``--dtype`` and ``--op`` become the argument ``question``; None without --runtime."""

    @wraps(command)
    def with_question(runtime: str | None, size: str | None, inplace: bool | None, channels: int | None,
                      **options: Any) -> int:
        if runtime is None:
            for given, name in ((size, "--bytes"), (inplace, "--in-place"), (channels, "--channels")):
                if given is not None:
                    raise bad_option(f"{name} says something only beside --runtime",
                                     help=f"add --runtime {' or '.join(NAMES)}")
            return command(question=None, **options)
        if options["why"] is not None:
            raise bad_option("--why shows one chain, and --runtime asks about files", help="leave one of them out")
        asked = _asked(runtime, size, inplace, channels, ranks=options["ranks"], op=options["op"],
                       dtype=options["dtype"])
        return command(question=Question(asked, options["paths"]), **options)

    for option in (
        click.option("--channels", type=click.IntRange(min=1), metavar="N",
                     help="Beside --runtime: how many channels the communicator has."),
        click.option("--in-place/--out-of-place", "inplace", default=None,
                     help="Beside --runtime: how the buffers of the calls lie. Default: each way that the files say."),
        click.option("--bytes", "size", metavar="BYTES",
                     help="Beside --runtime: the size of the calls, of the whole buffer, as for `run --size`; elements "
                          "are --dtype, or float32."),
        click.option("--runtime", type=click.Choice(NAMES), metavar="NAME",
                     help="Say, too, whether this runtime would take the MSCCL files, and which of them for a call of "
                          "--bytes: rccl, azure (msccl-executor-nccl) or microsoft (msccl)."),
    ):
        with_question = option(with_question)
    return with_question


def _asked(runtime: str, size: str | None, inplace: bool | None, channels: int | None, *, ranks: str | None,
           op: str | None, dtype: str | None) -> Asked:
    """Raises SchedError (SL803, SL806) for what cannot be asked."""
    from schedlang.msccl.accept import Request
    from schedlang.msccl.asked import Asked
    from schedlang.msccl.runtimes import DTYPES, RUNTIMES
    from schedlang.running.dtypes import named
    from schedlang.running.inputs import bytes_of

    kind = named(dtype or "float32")
    if kind.name not in DTYPES:
        raise bad_option(f"--dtype {dtype}: the runtimes have no such dtype",
                         help=f"choose one of: {', '.join(DTYPES)}")
    request = Request(None if size is None else bytes_of(size), kind.name, kind.numpy.itemsize, channels,
                      one_rank_count(ranks), op or "sum")
    return Asked(RUNTIMES[runtime], request, inplace)


class Question:
    """What is asked about a runtime, of the files that paths of the command line stand for: those that are named
    together, those of a folder and of each folder in it by themselves.

    Raises SchedError (SL806) where a file that is named is no MSCCL file, or there is none.
    """

    def __init__(self, asked: Asked, paths: Sequence[str]) -> None:
        from schedlang.cli.verify import targets
        from schedlang.loading import split_name
        from schedlang.ready import is_msccl

        self.asked = asked
        self.named: list[str] = []
        self.folders: dict[str, list[str]] = {}
        for path in paths:
            file, _ = split_name(path)
            if os.path.isdir(file):
                for inside, _ in targets(path):
                    if is_msccl(inside):
                        self.folders.setdefault(os.path.dirname(inside), []).append(inside)
            elif is_msccl(file):
                if os.path.exists(file) and not os.path.isfile(file):
                    raise bad_option(f"--runtime reads each file twice, and {file} is none that can be",
                                     help="write what comes from it to a file first")
                self.named.append(file)
            else:
                raise bad_option(f"--runtime looks at MSCCL XML, and {file} is none",
                                 help="name .xml files or folders with such files; to prove others leave it out")
        if not self.named and not self.folders:
            raise bad_option(f"--runtime looks at MSCCL XML, and there is none in {paths[0]}",
                             help="to prove what is there leave it out")

    def answer(self) -> Judged:
        """What the runtime does with the files."""
        from schedlang.msccl.asked import judge

        return judge(self.asked, self.named, self.folders)
