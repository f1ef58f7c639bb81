"""A stand-in for torch.cuda in ordinary memory: streams do what they are given in order, each when it may, and a
tensor's elements are touched by the current stream, later. Who lets things happen is a world: see nccl_double.py.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

here = threading.local()
"""Of the thread that asks: ``world``, ``rank``, and ``stack``, its current streams, the last one on top."""

_VIEWS = {
    "view", "view_as", "reshape", "detach", "__getitem__", "numel", "dim", "size", "stride", "is_contiguous",
    "element_size", "is_floating_point", "is_complex", "data_ptr", "storage_offset", "__get__", "new_empty",
    "new_zeros", "empty_like", "zeros_like", "chunk", "narrow", "flatten", "unflatten", "untyped_storage", "split",
    "unbind", "is_neg", "view_as_real",
}
"""What does not look at elements."""


class Item:
    """Something that a queue has to do: ``act``, once everything in ``after`` is over."""

    def __init__(self, act: Callable[[], None] | None = None, after: Sequence[Item] = ()) -> None:
        self.act, self.after, self.over = act, after, False

    def ready(self) -> bool:
        return all(item.over for item in self.after)


class Stream:
    """A CUDA stream of a rank."""

    def __init__(self, world: Any, rank: int) -> None:
        self.world, self.rank, self.queue = world, rank, deque[Item]()
        self.recorded: set[int] = set()         # addresses that are not given to others before the stream is done
        world.streams[rank].append(self)

    def wait_stream(self, other: Stream) -> None:
        self.world.give(self, Item(after=[other.last()]))

    def wait_event(self, event: Event) -> None:
        self.world.give(self, Item(after=[] if event.item is None else [event.item]))

    def last(self) -> Item:
        """What stands at the end of the queue now."""
        item = Item()
        self.world.give(self, item)
        return item

    def synchronize(self) -> None:
        self.world.until(self.last())


class Event:
    """A CUDA event."""

    def __init__(self, **_: Any) -> None:
        self.item: Item | None = None

    def record(self, stream: Stream | None = None) -> None:
        self.item = (stream or current_stream()).last()

    def wait(self, stream: Stream | None = None) -> None:
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        return self.item is None or self.item.over


def current_stream(device: Any = None) -> Stream:
    found: Stream = here.stack[-1]
    return found


class Tensor(torch.Tensor):
    """A tensor on the device: what changes or reads elements is done by the current stream."""

    is_cuda = True

    def record_stream(self, stream: Stream) -> None:                    # type: ignore[override]
        stream.recorded.add(self.data_ptr())

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), named: Any = None) -> Any:
        named = named or {}
        name = function.__name__
        if name in _VIEWS:
            return super().__torch_function__(function, types, args, named)
        stream = current_stream()
        if name == "clone":
            made = plain(args[0]).new_empty(args[0].shape).as_subclass(Tensor)
            stream.world.give(stream, Item(lambda: plain(made).copy_(plain(args[0]))))
            return made
        if "out" in named or (name.endswith("_") and not name.endswith("__")):
            given = [plain(a) for a in args], {key: plain(a) for key, a in named.items()}
            stream.world.give(stream, Item(lambda: function(*given[0], **given[1])))
            return named.get("out", args[0])
        stream.synchronize()                                    # somebody looks at elements
        return super().__torch_function__(function, types, args, named)


def plain(tensor: Any) -> Any:
    """The tensor under a Tensor."""
    return tensor.as_subclass(torch.Tensor) if isinstance(tensor, Tensor) else tensor


class Cuda:
    """What is used of the module torch.cuda."""

    Event = Event
    current_stream = staticmethod(current_stream)

    def Stream(self, device: Any = None, **_: Any) -> Stream:
        return Stream(here.world, here.rank)

    @contextmanager
    def stream(self, stream: Stream) -> Iterator[None]:
        """In a thread that a rank has started, too: meanwhile it is one more that may let things happen, or wait."""
        if not getattr(here, "stack", None):
            here.world, here.rank, here.stack = stream.world, stream.rank, []
            stream.world.joined(1)
        here.stack.append(stream)
        try:
            yield
        finally:
            here.stack.pop()
            if not here.stack:
                stream.world.joined(-1)

    def synchronize(self, device: Any = None) -> None:
        world, rank = here.world, here.rank
        for stream in list(world.streams[rank]):
            stream.synchronize()
        for batch in list(world.issued[rank]):
            world.until(batch)

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0


class Future:
    """A torch.futures.Future of tensors on ``devices``: whoever asks for its value has a current stream that waits for
    what the stream that was current when the value was set had to do; callbacks have a stream of their own."""

    def __init__(self, *, devices: Sequence[Any] | None = None) -> None:
        self._devices, self._mutex = devices, threading.Condition()
        self._value: Any = None
        self._raised: Exception | None = None
        self._event: Event | None = None
        self._over = False
        self._then: list[Callable[[], None]] = []

    def set_result(self, value: Any) -> None:
        if any(isinstance(one, Tensor) for one in (value if isinstance(value, list) else [value])):
            if not self._devices:
                raise ValueError("The result contained tensors residing on device(s) which are not among the expected")
            self._event = Event()
            self._event.record()
        self._value = value
        self._finish()

    def set_exception(self, raised: Exception) -> None:
        self._raised = raised
        self._finish()

    def _finish(self) -> None:
        with self._mutex:
            self._over = True
            self._mutex.notify_all()
            then, self._then = self._then, []
        for callback in then:
            callback()

    def done(self) -> bool:
        return self._over

    def value(self) -> Any:
        if self._raised is not None:
            raise self._raised
        if self._event is not None:
            self._event.wait()
        return self._value

    def wait(self) -> Any:
        with self._mutex:
            self._mutex.wait_for(lambda: self._over)
        return self.value()

    def then(self, callback: Callable[[Future], Any]) -> Future:
        child = Future(devices=self._devices)

        def call() -> None:
            with Cuda().stream(Stream(here.world, here.rank)):
                try:
                    child.set_result(callback(self))
                except Exception as raised:                     # whoever waits is told
                    child.set_exception(raised)

        with self._mutex:
            over = self._over
            if not over:
                self._then.append(call)
        if over:
            call()
        return child


class Futures:
    """The module torch.futures."""

    Future = Future


class Torch:
    """The module torch with another cuda; its devices are all ordinary memory."""

    cuda = Cuda()
    futures = Futures()

    def device(self, *_: Any) -> torch.device:
        return torch.device("cpu")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def device(tensor: torch.Tensor) -> Tensor:
    """A tensor as one on the device."""
    return tensor.as_subclass(Tensor)


def host(tensor: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor on the device, once all that this rank has issued is over."""
    Torch.cuda.synchronize()
    found: torch.Tensor = plain(tensor)
    return found
