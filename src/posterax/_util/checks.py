"""Checks of single values, whose messages name the argument, what came and what was expected."""

import numbers
from collections.abc import Sequence
from typing import Any

import numpy as np

MOST = 2**31 - 1  # what the counters of compiled programs hold


def whole_number(name: str, value: Any, *, least: int = 1, most: int = MOST) -> int:
    """An int of ``least`` or more that fits 32 bits, or goes no further than ``most``.

    Example:
        >>> from posterax._util.checks import whole_number
        >>> whole_number("steps", 10)
        10
    """
    number = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (number and value >= least):
        raise ValueError(f"{name} must be a whole number (int) of {least} or more, got {value!r}")
    if value > most:
        bound = "below 2^31" if most == MOST else f"at most {most}"
        raise ValueError(f"{name} must be {bound}, got {value!r}")
    return int(value)


def check_steps(steps: int, said: str) -> int:
    """A number of steps that a counter of 32 bits holds; ``said`` is how the user asked for it.

    Example:
        >>> from posterax._util.checks import check_steps
        >>> check_steps(3 * 10**9, "epochs=3")
        Traceback (most recent call last):
        ...
        ValueError: epochs=3 makes 3000000000 steps, and a fit counts to 2^31 - 1: ask for fewer
    """
    if steps > MOST:
        raise ValueError(f"{said} makes {steps} steps, and a fit counts to 2^31 - 1: ask for fewer")
    return steps


def above_zero(name: str, value: Any) -> float:
    """A finite number above 0.

    Example:
        >>> from posterax._util.checks import above_zero
        >>> above_zero("epochs", 0.5)
        0.5
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and np.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    return float(value)


def fraction(name: str, value: Any, *, zero: bool = False) -> float:
    """A number between 0 and 1, neither of them but 0 where ``zero`` is allowed.

    Example:
        >>> from posterax._util.checks import fraction
        >>> fraction("target_acceptance", 0.8)
        0.8
    """
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (number and (value >= 0 if zero else value > 0) and value < 1):
        raise ValueError(
            f"{name} must lie between 0 and 1{' (0 included)' if zero else ''}, got {value!r}"
        )
    return float(value)


def one_of(name: str, value: Any, options: Sequence[Any]) -> Any:
    """One of the options, which are listed where it is none.

    Example:
        >>> from posterax._util.checks import one_of
        >>> one_of("update", "refit", ("refit", "posterior_as_prior"))
        'refit'
    """
    # by type as well: 18.0 is no 18
    if not any(isinstance(value, type(option)) and value == option for option in options):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, options))}, got {value!r}")
    return value
