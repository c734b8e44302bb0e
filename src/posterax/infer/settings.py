"""What a method's settings may be, as the annotations of its fields say it.

A function in an annotation is called with a setting's name and value when a method is made; the
words of a ``Literal`` are all that a setting takes.
"""

import dataclasses
import functools
import types
import typing
from functools import partial
from typing import Annotated, Any, Literal

import equinox as eqx
import optax

from .._util.checks import above_zero, fraction, one_of, whole_number
from .._util.memory import refuse_draws


def _zero_or_more(name: str, value: float) -> None:
    if not value >= 0:
        raise ValueError(f"{name} must be 0 or more, got {value!r}")


def _rate(name: str, value: Any) -> None:
    if not callable(value):
        above_zero(name, value)


def _true_or_false(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise ValueError(f"{name} must be True or False, got {value!r}")


def _transformation(name: str, value: object) -> None:
    if value is not None and not isinstance(value, optax.GradientTransformation):
        raise TypeError(
            f"{name} must be an optax transformation such as optax.adam(1e-3), got "
            f"{type(value).__name__}"
        )


Positive = Annotated[float, above_zero]
Rate = Annotated[float, _rate]  # a number, or an optax schedule: a function of the step
ZeroOrMore = Annotated[float, _zero_or_more]
Fraction = Annotated[float, fraction]
FractionOrZero = Annotated[float, partial(fraction, zero=True)]
Whole = Annotated[int, whole_number]
Several = Annotated[int, partial(whole_number, least=2)]
Count = Annotated[int, whole_number, "traced"]  # nothing in Python branches on it
CountOrZero = Annotated[int, partial(whole_number, least=0), "traced"]
Copies = Annotated[int, whole_number, "copies"]  # so many networks are held at once
Runs = Annotated[int, whole_number, "runs"]  # so many are made, one after another
Folds = Annotated[int, partial(whole_number, least=0)]
Flag = Annotated[bool, _true_or_false]
Schedule = Literal["cosine", "constant", "hold"]
Optimizer = Annotated[optax.GradientTransformation | None, _transformation]


@functools.cache
def annotations(kind: type) -> dict[str, tuple[Any, ...]]:
    """The alternatives that each field of a class may be."""
    hints = typing.get_type_hints(kind, include_extras=True)
    unions = (typing.Union, types.UnionType)
    return {
        name: typing.get_args(hint) if typing.get_origin(hint) in unions else (hint,)
        for name, hint in hints.items()
    }


def check_settings(method: eqx.Module) -> None:
    """Refuse a setting that is not what its annotation says, by name.

    Example:
        >>> import equinox as eqx
        >>> from posterax.infer.settings import Fraction, check_settings
        >>> class Walk(eqx.Module):
        ...     target: Fraction = 0.2
        >>> check_settings(Walk(2.0))
        Traceback (most recent call last):
        ValueError: target must lie between 0 and 1, got 2.0
    """
    for name, value, options in _settings(method):
        if value is None and types.NoneType in options:
            continue
        literals = [option for option in options if typing.get_origin(option) is Literal]
        if literals and (isinstance(value, str) or {*options} <= {*literals, types.NoneType}):
            one_of(name, value, [word for option in literals for word in typing.get_args(option)])
            continue
        for option in options:
            for check in filter(callable, getattr(option, "__metadata__", ())):
                check(name, value)


def check_folds(folds: int, name: str, copies: int) -> None:
    """Refuse folds of the rows that the networks do not share out evenly; 0 is for none.

    Example:
        >>> from posterax.infer.settings import check_folds
        >>> check_folds(4, "members", 6)
        Traceback (most recent call last):
        ValueError: folds=4 must be above 1 and divide members=6, so that as many leave out each row
    """
    if folds == 1 or copies % max(folds, 1):
        raise ValueError(
            f"folds={folds} must be above 1 and divide {name}={copies}, so that as many leave out "
            "each row"
        )


def refuse_copies(method: eqx.Module, size: int, members: int = 1) -> None:
    """Refuse a method that would hold more networks, of ``size`` bytes each, than memory does.

    Example:
        >>> from posterax.infer import SVGD
        >>> from posterax.infer.settings import refuse_copies
        >>> refuse_copies(SVGD(particles=10**9), size=10**12)
        Traceback (most recent call last):
        MemoryError: out of memory: particles=1,000,000,000 needs ...
    """
    most = members
    for name, value, options in _settings(method):
        marks = {mark for option in options for mark in getattr(option, "__metadata__", ())}
        if value is not None and marks & {"copies", "runs"}:
            refuse_draws(name, value, members * size if "copies" in marks else 0)
            most = max(most, members * value)
    for _, value, _ in _settings(method):
        if hasattr(value, "phases"):  # the method of an ensemble's members
            refuse_copies(value, size, most)


def _settings(method: eqx.Module) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Name, value and what it may be of each setting."""
    options = annotations(type(method))
    return [(f.name, getattr(method, f.name), options[f.name]) for f in dataclasses.fields(method)]
