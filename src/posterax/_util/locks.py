"""Locks that die with their holder: ``flock`` on an open file."""

import os
from contextlib import suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # not POSIX: nobody can be kept out
    fcntl = None  # type: ignore[assignment]

_held: set[int] = set()  # descriptors whose lock a forked child must not keep


def try_lock(descriptor: int) -> bool | None:
    """Take the lock of an open file: whether it was free, or None where nothing can be locked.

    It lasts until the descriptor is closed (by ``unlock``), or its process ends in whatever way.

    Example:
        >>> import tempfile
        >>> from posterax._util.locks import try_lock, unlock
        >>> with tempfile.NamedTemporaryFile() as file, open(file.name) as other:
        ...     try_lock(file.fileno()), try_lock(other.fileno())
        (True, False)
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return None
    _held.add(descriptor)
    return True


def unlock(descriptor: int) -> None:
    """Let the lock go. The descriptor stays open."""
    _held.discard(descriptor)
    if fcntl is not None:
        with suppress(OSError):  # never locked: this file system has no locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_at(descriptor: int, path: str | Path) -> bool:
    """Whether an open file is still the one under this name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


class Lock:
    """One holder at a time of a name in the file system, among threads and processes.

    A holder that was killed holds nothing; a forked child does not hold its parent's lock. The file
    is removed at ``release``; one left by a killed holder is in nobody's way.

    Example:
        >>> import pathlib, tempfile
        >>> from posterax._util.locks import Lock
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "lock"
        >>> mine, other = Lock(path), Lock(path)
        >>> mine.acquire(), other.acquire()
        (True, False)
        >>> mine.release()
        >>> other.acquire()
        True
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._descriptor: int | None = None
        self._process = 0  # that took it: what a fork copies holds nothing

    def acquire(self) -> bool:
        """Take it, unless another has it. Where nothing can be locked, everyone has it."""
        while self._descriptor is None or self._process != os.getpid():
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if try_lock(descriptor) is False:
                os.close(descriptor)
                return False
            if is_at(descriptor, self.path):
                self._descriptor, self._process = descriptor, os.getpid()
            else:  # its holder removed the file between our opening and our lock
                unlock(descriptor)
                os.close(descriptor)
        return True

    def note(self, text: str) -> None:
        """Say in the file who holds it, where there is room on the disk."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.ftruncate(self._descriptor, 0)
                os.pwrite(self._descriptor, text.encode(), 0)

    def release(self) -> None:
        """Let it go, and remove the file; nothing where it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        if descriptor in _held and is_at(descriptor, self.path):
            self.path.unlink(missing_ok=True)  # before the lock goes: no other can have taken it
        unlock(descriptor)
        os.close(descriptor)


def _not_in_children() -> None:
    """A forked child shares the parent's open files, and with them the locks: it lets them go.

    The descriptors stay taken (by the null device), so that whoever closes them closes no other.
    """
    if _held:
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in _held:
            os.dup2(null, descriptor, inheritable=False)
        os.close(null)
        _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_not_in_children)
