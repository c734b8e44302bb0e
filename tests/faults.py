"""Faults of a disk, under the one function that writes files, and under reading.

Each is a context manager: ``with faults.full(100): posterior.save(path)``.
"""

import builtins
import errno
import io
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from posterax._util import writing


def error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@contextmanager
def _write(with_: Callable[[Any, Any], int]) -> Iterator[None]:
    """Every write of bytes goes through a function of the handle and the bytes."""

    class Handle(writing._Handle):
        def write(self, data: Any) -> int:
            with writing._about(self.about):
                return with_(self, data)

    with patch.object(writing, "_Handle", Handle):
        yield


@contextmanager
def full(after: int = 0, number: int = errno.ENOSPC) -> Iterator[None]:
    """A disk with room for so many bytes; what fits is written first, as a disk does."""
    room = [after]

    def write(handle: Any, data: Any) -> int:
        data = memoryview(data).cast("B")[: room[0]]
        if not len(data):
            raise error(number)
        room[0] -= len(data)
        return io.FileIO.write(handle, data)

    with _write(write):
        yield


def broken(after: int = 0) -> Any:
    """A disk that fails (EIO) after so many bytes."""
    return full(after, errno.EIO)


@contextmanager
def short(most: int = 7) -> Iterator[None]:
    """A system that takes a few bytes at a time: no fault, everything must come out the same."""
    with _write(lambda handle, data: io.FileIO.write(handle, memoryview(data).cast("B")[:most])):
        yield


@contextmanager
def slow(seconds: float = 1e-3) -> Iterator[None]:
    """A disk that takes its time: others come in between."""

    def write(handle: Any, data: Any) -> int:
        time.sleep(seconds)
        return io.FileIO.write(handle, memoryview(data).cast("B")[: 1 << 12])

    with _write(write):
        yield


@contextmanager
def failing(name: str, number: int = errno.EIO) -> Iterator[None]:
    """``"replace"`` or ``"fsync"`` fails."""

    def fail(*_: Any) -> None:
        raise error(number)

    with patch.object(writing, name, fail):
        yield


@contextmanager
def unreadable(after: int, number: int | None = errno.EIO) -> Iterator[None]:
    """Files opened for reading fail after so many bytes, or end there (``number=None``)."""
    real = builtins.open

    class Reader(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            given = super().read(size)
            if number is not None and self.tell() >= after:
                raise error(number)
            return given

        read1 = read  # what text is decoded from

    def opened(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
        if set(mode) & set("wax+"):
            return real(file, mode, *args, **options)
        with real(file, "rb") as whole:
            start = Reader(whole.read(after))
        text = {k: v for k, v in options.items() if k in ("encoding", "errors", "newline")}
        return start if "b" in mode else io.TextIOWrapper(start, **text)

    with patch.object(builtins, "open", opened), patch.object(io, "open", opened):
        yield


# what a save must survive: the old file stays to the bit, nothing else is left
SAVING = {
    "full at once": lambda: full(0),
    "full after 100 bytes": lambda: full(100),
    "broken after 10 bytes": lambda: broken(10),
    "no rename": lambda: failing("replace", errno.EACCES),
    "no fsync": lambda: failing("fsync"),
}
