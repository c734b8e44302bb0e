"""The one way in which this package writes files: whole, or not at all."""

import errno
import io
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from os import fsync, replace  # by these names, which tests replace with failing ones
from pathlib import Path
from typing import IO, Any

from .locks import is_at, try_lock, unlock

BUFFER = 1 << 16


@contextmanager
def written(path: str | Path, *, binary: bool = False) -> Iterator[IO]:
    """A file to write into, that appears under its name, whole, when all went well.

    What is there already decides: a device or a pipe is written into, a link stays a link and what
    it names is replaced, a directory is refused. Otherwise the content goes to a partial file
    beside, to the disk, and then to its name, in one step that leaves the old file or the new one.
    The partial file of a writer that was killed is removed by the next writer of the same name.

    Example:
        >>> import pathlib, tempfile
        >>> from posterax._util.writing import written
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "table.md"
        >>> with written(file) as out:
        ...     _ = out.write("| a |")
        >>> file.read_text()
        '| a |'
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path}: is a directory; name a file in it")
    if path.exists() and not path.is_file():  # /dev/null, a pipe: nothing to rename
        with _layers(_Handle(path, path), binary) as file:
            yield file
        return
    target = Path(os.path.realpath(path))
    with _about(path):
        _refuse_read_only(path)
        _remove_orphans(target)
        partial, handle = _partial(target, path)
    file = _layers(handle, binary)
    try:
        yield file
        file.flush()
        with _about(path):
            fsync(handle.fileno())
            if handle.locked is None:  # no locks, no POSIX: an open file cannot be renamed there
                file.close()
            replace(partial, target)
        _fsync_directory(target.parent)
    finally:
        partial.unlink(missing_ok=True)  # before the lock goes, so that it is still ours
        with suppress(OSError, ValueError):  # what could not be written is told already
            file.close()


def write_file(path: str | Path, content: str | bytes) -> None:
    """Write a text or bytes to a file; see ``written``."""
    with written(path, binary=isinstance(content, bytes)) as file:
        file.write(content)


def append_file(path: str | Path, content: str) -> None:
    """Add a text to the end of a file: all of it, or nothing."""
    path = Path(path)
    with _Handle(path, path, "a") as file:
        before, rest = os.fstat(file.fileno()).st_size, content.encode()
        try:
            while rest:  # the system may take a part of it
                rest = rest[file.write(rest) :]
        except BaseException:
            with suppress(OSError):
                os.ftruncate(file.fileno(), before)
            raise


def check_writable(path: str | Path) -> None:
    """Raise now, before hours of work, what ``written`` would raise before its first byte."""
    path = Path(path)
    target = Path(os.path.realpath(path))
    with _about(path):
        _refuse_read_only(path)
        if not path.exists() or path.is_file():
            partial, handle = _partial(target, path)
            partial.unlink()
            handle.close()


class _Handle(io.FileIO):
    """Bytes on their way to the disk. An error says which file it is about, and what was kept."""

    def __init__(self, file: int | Path, about: Path, mode: str = "w") -> None:
        self.about = about
        self.locked: bool | None = None
        with _about(about):
            super().__init__(file, mode)

    def write(self, data: Any) -> int:
        with _about(self.about):
            return super().write(data)

    def close(self) -> None:
        if not self.closed and self.locked:
            unlock(self.fileno())
        with _about(self.about):
            super().close()


@contextmanager
def _about(path: Path) -> Iterator[None]:
    """An error of the system inside is one of this file."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        kept = ""
        if not path.exists():
            kept = "; nothing was written"
        elif path.is_file():
            kept = "; the file there is as it was"
        said = error.strerror if error.filename == str(path) else f"{error.strerror}{kept}"
        raise OSError(error.errno, said, str(path)) from None


def _layers(handle: _Handle, binary: bool) -> IO:
    buffer = io.BufferedWriter(handle, BUFFER)
    # line ends as they are given
    return buffer if binary else io.TextIOWrapper(buffer, encoding="utf-8", newline="")


def _prefix(target: Path) -> str:
    """How the names of partial files begin; a name may have 255 bytes in all."""
    return f".{os.fsdecode(os.fsencode(target.name)[:200])}."


def _partial(target: Path, about: Path) -> tuple[Path, _Handle]:
    """A new file beside, that nobody else writes, locked; of the mode that the target has."""
    while True:
        partial = target.with_name(f"{_prefix(target)}{secrets.token_hex(6)}.partial")
        handle = _Handle(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666), about)
        handle.locked = try_lock(handle.fileno())
        # who looks for orphans may have found it before it was locked
        if handle.locked is not False and is_at(handle.fileno(), partial):
            break
        handle.close()
        partial.unlink(missing_ok=True)
    with suppress(OSError):  # no file there, or a file system without modes
        partial.chmod(stat.S_IMODE(target.stat().st_mode))
    return partial, handle


def _remove_orphans(target: Path) -> None:
    """Remove partial files of this name that nobody is writing: those whose lock is free."""
    with os.scandir(target.parent) as entries:
        begin = _prefix(target)
        names = [e.path for e in entries if e.name.startswith(begin)]
    for name in (n for n in names if n.endswith(".partial")):
        with suppress(OSError):  # of another user, or gone already
            descriptor = os.open(name, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                if try_lock(descriptor) and is_at(descriptor, name):
                    os.unlink(name)
                unlock(descriptor)
            finally:
                os.close(descriptor)


def _refuse_read_only(path: Path) -> None:
    """A file that its owner made read-only is not replaced, though its directory would allow it."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))


def _fsync_directory(directory: Path) -> None:
    """The new name itself, to the disk, where the system can do that."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            fsync(descriptor)
        finally:
            os.close(descriptor)
