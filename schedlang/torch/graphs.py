"""What torch.compile leaves alone."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import torch

F = TypeVar("F", bound=Callable[..., Any])

_disabled: dict[Callable[..., Any], Any] = {}


def outside_graphs(function: F) -> F:
    """Not to be traced by Dynamo: messages between processes are not what a graph is made of. Dynamo itself is imported
    by those who compile, not here, where it would take longer than all the rest."""
    @functools.wraps(function)
    def call(*arguments: Any, **named: Any) -> Any:
        if "torch._dynamo" not in sys.modules:
            return function(*arguments, **named)
        if function not in _disabled:
            _disabled[function] = torch.compiler.disable(function)
        return _disabled[function](*arguments, **named)

    call._torchdynamo_disable = True            # type: ignore[attr-defined]
    return call                                 # type: ignore[return-value]
