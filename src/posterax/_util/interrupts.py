"""Ctrl-C, kept until it is heeded.

Python throws a ``KeyboardInterrupt`` away where it is raised in a destructor or in the callback of
a weak reference, and JAX makes another error of one in a callback of its own. So presses are
counted, and looked at again: between the chunks of a fit, and at its end.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class _Presses:
    """Presses since the outermost scope began, and how deep the scopes are; of the main thread."""

    def __init__(self) -> None:
        self.count = self.depth = self.raising = 0


_presses = _Presses()


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ctrl-C asks the work inside to stop at its next look; a second one stops it at once.

    It gives the look: whether Ctrl-C was pressed, here or in work of the same scope before.

    Example:
        >>> from posterax._util.interrupts import interruptible
        >>> with interruptible() as interrupted:
        ...     interrupted()
        False
    """
    if not _in_main_thread():
        yield lambda: False
        return

    def look() -> bool:
        check_interrupt()
        return _presses.count > 0

    check_interrupt()
    with _counted(install=not _presses.raising):
        yield look


@contextmanager
def raise_on_interrupt(*, at_end: bool = True) -> Iterator[None]:
    """Within it Ctrl-C raises: for those to whom a part of a fit is of no use.

    Args:
        at_end: raise at the end, too, where the press was lost or caught on its way.
    """
    if not _in_main_thread():
        yield
        return
    _presses.raising += 1
    try:
        # where Ctrl-C is ignored, in the background, it stays so
        with _counted(install=callable(signal.getsignal(signal.SIGINT)), at_end=at_end):
            yield
    finally:
        _presses.raising -= 1


def check_interrupt() -> None:
    """Raise what was to be raised and got lost on its way."""
    if _in_main_thread() and _presses.count >= _enough():
        raise KeyboardInterrupt


def heeded() -> None:
    """Forget the presses: they had their effect."""
    if _in_main_thread():
        _presses.count = 0


@contextmanager
def _counted(*, install: bool, at_end: bool = True) -> Iterator[None]:
    """Count presses. One that was to raise does so at the end, if not before."""
    before = signal.signal(signal.SIGINT, _press) if install else None
    _presses.depth += 1
    try:
        yield
        if at_end:
            check_interrupt()
    except Exception as error:  # what JAX makes of it, maybe
        if _presses.count >= _enough() and "KeyboardInterrupt" in str(error):
            raise KeyboardInterrupt from error
        raise
    finally:
        _presses.depth -= 1
        if install:
            signal.signal(signal.SIGINT, before)
        if not _presses.depth:
            _presses.count = 0


def _press(signum: int, frame: Any) -> None:
    _presses.count += 1
    if _presses.count >= _enough():
        raise KeyboardInterrupt


def _enough() -> int:
    """How many presses raise."""
    return 1 if _presses.raising else 2


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()
