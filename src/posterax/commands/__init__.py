"""The commands of ``posterax``, one file each, and what they share: refusals, notes, methods.

Data goes to standard output; notes, progress and errors to standard error. Nothing here imports
JAX, so that ``--help`` is quick.
"""

import os
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

__all__ = [
    "METHODS",
    "Refused",
    "method_arguments",
    "method_name",
    "one_line",
    "one_line_errors",
    "rebuild_command",
    "say",
]

# what --method takes, and what each is, in a line
METHODS: dict[str, str] = {
    "bayes_by_backprop": "six Gaussian posteriors by Bayes by Backprop (the default)",
    "deep_ensemble": "six networks, each fitted alone",
    "mc_dropout": "one network whose dropout stays on",
    "laplace": "a Gaussian around the most probable weights",
    "ivon": "a Gaussian posterior by the natural-gradient optimiser IVON",
    "swag": "a Gaussian from the last steps of the optimiser",
    "nuts": "the No-U-Turn Sampler: exact, for small tables",
    "mclmc": "microcanonical Langevin Monte Carlo, for small tables",
    "sghmc": "stochastic-gradient Hamiltonian Monte Carlo",
    "importance_sampling": "prior draws weighted by the data, for tiny tables",
    "maximum_a_posteriori": "one network, no posterior: a baseline",
    "maximum_likelihood": "one network, no prior either: a baseline",
}
OTHER_NAMES = {
    "bbb": "bayes_by_backprop",
    "vi": "bayes_by_backprop",
    "ensemble": "deep_ensemble",
    "dropout": "mc_dropout",
    "map": "maximum_a_posteriori",
    "mle": "maximum_likelihood",
}
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
            yield
    except KeyboardInterrupt as stop:
        raise _ended(str(stop) or "stopped: nothing was written", 130, stop) from None
    except (typer.Exit, typer.Abort, BrokenPipeError):
        raise  # typer ends these, silently
    except Refused as error:
        raise _ended(str(error), error.code, error) from None
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.strerror else str(error)
        raise _ended(said, 1, error) from None
    except MemoryError as error:
        raise _ended("out of memory: use fewer rows or columns", 1, error) from None
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
    """The name in ``METHODS`` that is meant: case, hyphens and short forms do not matter.

    Example:
        >>> from posterax.commands import method_name
        >>> method_name("Deep-Ensemble"), method_name("map")
        ('deep_ensemble', 'maximum_a_posteriori')
    """
    key = name.strip().lower().replace("-", "_")
    key = OTHER_NAMES.get(key, key)
    if key not in METHODS:
        raise Refused(f"--method: no method {name!r}; there are {', '.join(METHODS)}", 2)
    return key


def method_arguments(name: str, *, quick: bool = False) -> dict[str, Any]:
    """The arguments of an estimator that make it use a method, by the method's name.

    Args:
        name: one of ``METHODS``, or a short form of it such as ``"map"``.
        quick: a few steps of a tiny network, to try a command.

    Example:
        >>> from posterax.commands import method_arguments
        >>> method_arguments("map")
        {'method': 'maximum_a_posteriori'}
    """
    key = method_name(name)
    arguments: dict[str, Any] = {"method": key}
    from .. import infer  # heavy, and not needed to list the names

    chains: dict[str, Any] = {"chains": 2, "warmup": QUICK} if quick else {}
    made: dict[str, Callable[[], Any]] = {
        "mc_dropout": lambda: infer.MCDropout(learning_rate=1e-2),
        "laplace": infer.Laplace,
        "ivon": infer.IVON,
        "swag": infer.SWAG,
        "sghmc": infer.SGHMC,
        "mclmc": lambda: infer.MCLMC(**chains),
    }
    if key in made:
        arguments["method"] = made[key]()
    if quick:
        arguments |= {"hidden_layer_sizes": (4,), "members": 2, "samples": 10, "steps": QUICK}
        if key == "nuts":
            arguments["method"] = infer.NUTS(**chains)
    return arguments


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
            words += [flag, str(value)]
    return shlex.join(words)


def _tell(line: str, style: str) -> None:
    console = Console(stderr=True, highlight=False, emoji=False)
    console.print(one_line(line), style=style, markup=False, soft_wrap=True)


def _ended(message: str, code: int, error: BaseException) -> typer.Exit:
    if os.environ.get("POSTERAX_DEBUG", "") not in ("", "0"):
        traceback.print_exception(error)
    _tell(f"error: {message}", "red")
    return typer.Exit(code)


def _as_note(message: Any, *_: Any, **__: Any) -> None:
    say(f"note: {message}")
