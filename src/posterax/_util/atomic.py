"""Files that appear whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file whole or not at all: beside first, then renamed.

    Example:
        >>> import pathlib, tempfile
        >>> from posterax._util.atomic import write_atomic
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "table.md"
        >>> write_atomic(file, "| a |")
        >>> file.read_text()
        '| a |'
    """
    with atomic_file(path, binary=isinstance(content, bytes)) as file:
        file.write(content)


@contextmanager
def atomic_file(path: str | Path, *, binary: bool = False) -> Iterator[IO]:
    """A file to write into, that appears under its name only when all went well."""
    path = Path(path)
    mode: dict[str, Any] = {"mode": "wb"} if binary else {"mode": "w", "encoding": "utf-8"}
    if not binary:
        mode["newline"] = ""  # line ends as they are given
    if path.exists() and not path.is_file():  # /dev/null, a pipe: nothing to rename
        with path.open(**mode) as file:
            yield file
        return
    # a link stays a link
    with replacing(path.resolve()) as partial, partial.open(**mode) as file:
        yield file


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside this one; what is written there takes its place when all went well."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        yield partial
        with partial.open("rb+") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
