"""Standard output and error, which may be closed, full, or not there at all."""

import errno
import os
import sys
from contextlib import suppress
from typing import Any

from rich.console import Console


def watched(name: str) -> bool:
    """Whether someone watches ``"stdout"`` or ``"stderr"``: it is there, and a terminal."""
    stream = getattr(sys, name)
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:  # closed
        return False


class Notes:
    """Standard error for notes and bars: what cannot be shown does not stop the work."""

    def __init__(self) -> None:
        self.stream = sys.stderr

    def write(self, text: str) -> int:
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or none
            self.stream.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError, ValueError, AttributeError):
            self.stream.flush()

    def isatty(self) -> bool:
        return self.stream is not None and watched("stderr")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def notes(**options: Any) -> Console:
    """A console on standard error.

    Example:
        >>> from posterax._util.streams import notes
        >>> notes(highlight=False).print("fitting")
    """
    return Console(file=Notes(), **options)  # type: ignore[arg-type]


def open_standard_streams() -> None:
    """Put something where a shell closed a stream (``>&-``), before anything else is opened.

    The next file would get its number, and what libraries print would land in that file. Writing
    to standard output fails then, as it should: results have nowhere to go. Notes are dropped.
    """
    for number, how in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, how)  # the lowest free number, which is this one
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", closefd=False))  # noqa: SIM115


def finish_streams(code: int) -> int:
    """Flush both while an error can still be told in a line; the exit code after that."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError) as error:
            _drop(stream)  # or Python tries once more at its end, and shows a traceback
            if stream is sys.stdout and not code:  # otherwise there was a line already
                code = 1
                if getattr(error, "errno", None) != errno.EPIPE:  # whoever read has seen enough
                    notes().print(f"error: {about_output(error)}", style="red", soft_wrap=True)
    return code


def about_output(error: Exception) -> str:
    """What an error without the name of a file is about: all files that are written have one."""
    return f"standard output: {getattr(error, 'strerror', None) or error}"


def _drop(stream: Any) -> None:
    """What is still to be written goes nowhere."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
