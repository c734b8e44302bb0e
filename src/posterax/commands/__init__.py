"""The commands of ``posterax``, one file each, and what they share: refusals, notes, methods.

Data goes to standard output; notes, progress and errors to standard error. Nothing here imports
JAX, so that ``--help`` is quick.
"""

import errno
import os
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from .. import _methods
from .._util.interrupts import raise_on_interrupt
from .._util.streams import about_output, notes

METHODS = _methods.COMMAND_METHODS  # what --method takes
QUICK = 20  # steps of --quick


class Refused(ValueError):
    """Something a command cannot do: one line for the user, and the exit code.

    Example:
        >>> from posterax.commands import Refused
        >>> Refused("house.csv: no such file").code
        1
    """

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Around a command: what can be expected to fail ends in one line, not in a traceback.

    Exit code 1, or the refusal's own, and 130 for Ctrl-C. Warnings become notes.
    ``POSTERAX_DEBUG=1`` shows the traceback.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default", UserWarning)
            for kind in (DeprecationWarning, FutureWarning, PendingDeprecationWarning):
                warnings.simplefilter("ignore", kind)  # for whoever writes code, not here
            warnings.showwarning = _as_note
            with raise_on_interrupt(at_end=False):  # what is complete at the end is complete
                yield
    except KeyboardInterrupt as stop:
        raise _ended(str(stop) or "stopped: nothing was written", 130, stop) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # typer ends these, silently
    except Refused as error:
        raise _ended(str(error), error.code, error) from None
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EBADF):
            said = said if error.filename else about_output(error)
        raise _ended(said, 1, error) from None
    except MemoryError as error:
        ours = str(error).startswith("out of memory: ")  # and says what is large
        said = str(error) if ours else "out of memory: use fewer rows or columns"
        raise _ended(said, 1, error) from None
    except (ValueError, ArithmeticError, RuntimeError, ImportError) as error:
        raise _ended(str(error) or repr(error), 1, error) from None


def say(line: str) -> None:
    """A note on standard error, as it is: a path may be long, or have brackets in it."""
    _tell(line, "dim")


def one_line(text: str) -> str:
    """Text on one line; what a terminal would act on is shown instead.

    Example:
        >>> from posterax.commands import one_line
        >>> one_line("a\\n  b")
        'a b'
    """
    return "".join(c if c.isprintable() else "�" for c in " ".join(str(text).split()))


def method_name(name: str) -> str:
    """The name in ``METHODS`` that is meant, or a refusal that lists them.

    Example:
        >>> from posterax.commands import method_name
        >>> method_name("Deep-Ensemble"), method_name("map")
        ('deep_ensemble', 'maximum_a_posteriori')
    """
    key = _methods.method_name(name)
    if key not in METHODS:
        raise Refused(f"--method: no method {name!r}; there are {', '.join(METHODS)}", 2)
    return key


def method_arguments(
    name: str, *, quick: bool = False, epochs: float | None = None, steps: int | None = None
) -> dict[str, Any]:
    """The arguments of an estimator that make it use a method, by the method's name.

    Args:
        name: one of ``METHODS``, or a short form of it such as ``"map"``.
        quick: a few steps of a tiny network, to try a command.
        epochs: passes over the data, or
        steps: steps, instead of the estimator's own number.

    Example:
        >>> from posterax.commands import method_arguments
        >>> method_arguments("map")
        {'method': 'maximum_a_posteriori'}
    """
    method: Any = method_name(name)
    few: dict[str, Any] = {}
    if quick:
        few = {"hidden_layer_sizes": (4,), "members": 2, "samples": 10, "steps": QUICK}
        if method in ("nuts", "mclmc"):
            from .. import infer  # heavy, and not needed to list the names

            method = getattr(infer, _methods.METHODS[method][0])(chains=2, warmup=QUICK)
    if epochs is not None or steps is not None:
        few |= {"epochs": epochs, "steps": steps}
    return {"method": method, **few}


def rebuild_command(name: str, *arguments: Any, **options: Any) -> str:
    """The command line that repeats a run, quoted for a shell.

    Example:
        >>> from posterax.commands import rebuild_command
        >>> rebuild_command("fit", "my data.csv", target="price", no_refit=True, ignore=None)
        "posterax fit 'my data.csv' --target price --no-refit"
    """
    import shlex

    words = ["posterax", name, *map(str, arguments)]
    for key, value in options.items():
        flag = "--" + key.replace("_", "-")
        if value is True:
            words.append(flag)
        elif value is not None and value is not False:
            words += [flag, ",".join(value) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def _tell(line: str, style: str) -> None:
    console = notes(highlight=False, emoji=False)
    console.print(one_line(line), style=style, markup=False, soft_wrap=True)


def _ended(message: str, code: int, error: BaseException) -> typer.Exit:
    if os.environ.get("POSTERAX_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    _tell(f"error: {message}", "red")
    return typer.Exit(code)


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    say(f"note: {message}")
