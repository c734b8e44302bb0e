"""The likelihood, and the scaling, that go with a kind of target."""

from collections.abc import Callable
from typing import Any

import numpy as np

from ..likelihoods import (
    Beta,
    Gaussian,
    Likelihood,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
    ZeroInflatedLogNormal,
)
from .recognise import LEAST_TARGETS, Recognised, counted, recognise
from .settings import DEGREES
from .standardise import Standardiser, standardiser

__all__ = ["CHOICES", "Recognised", "choose", "likelihood_for", "recognise", "scaling"]

BELOW = 8.0  # a log mean of counts may be at least this far below that of all
MARGIN = 1.0  # how far beyond all targets a location may be, on the scale of the outputs
WIDEST = 1.0  # deviation of log y, so that the mean of a row is at most some times its median
START = 0.3  # of the learned noise of standardised targets

# what a user may say, and the kind of target that it is for
CHOICES = {
    "auto": None,
    "real": "real",
    "student": "real",
    "gaussian": "real",
    "non_negative": "real",
    "positive": "positive",
    "log_normal": "positive",
    "count": "count",
    "negative_binomial": "count",
    "poisson": "count",
    "share": "share",
    "beta": "share",
    "zeros": "zeros",
    "zero_inflated": "zeros",
}
NEEDS: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "non_negative": ("numbers of 0 or more", lambda y: y >= 0),
    "positive": ("numbers above 0", lambda y: y > 0),
    "count": ("whole numbers of 0 or more", lambda y: (y >= 0) & (y == np.floor(y))),
    "share": ("numbers from 0 to 1", lambda y: (y >= 0) & (y <= 1)),
    "zeros": ("numbers of 0 or more", lambda y: y >= 0),
}


def choose(asked: str, y: np.ndarray, weight: np.ndarray | None = None) -> Recognised:
    """What the user asked for, once the targets fit it; ``"auto"`` is what they look like.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.targets import choose
        >>> choose("log_normal", np.array([1.0, 2.0]))
        Recognised(name='log_normal', why="likelihood='log_normal' was asked for")
        >>> choose("log_normal", np.array([0.0, 2.0]))
        Traceback (most recent call last):
        ...
        ValueError: likelihood='log_normal' needs numbers above 0, and y has 0.0; 'auto' chooses
    """
    if not (isinstance(asked, str) and asked in CHOICES):
        choices = ", ".join(map(repr, CHOICES))
        raise ValueError(f"likelihood must be one of {choices}, got {asked!r}")
    if asked == "auto":
        found, known = recognise(y, weight), counted(y, weight)[0]
        if found.name == "real" and len(known) >= LEAST_TARGETS and np.all(known >= 0):
            return Recognised("non_negative", f"{found.why}, none of them below 0")
        return found
    _check(asked, counted(y, weight)[0])
    return Recognised(asked, f"likelihood={asked!r} was asked for")


def likelihood_for(name: str, y: np.ndarray, weight: np.ndarray | None = None) -> Likelihood:
    """The likelihood, with predicted noise, of targets that ``scaling`` has brought to their unit.

    Centres are the targets' own, so that a network starts there; and its locations reach a factor
    of e² beyond all targets at most.

    Args:
        name: a kind of target, or one of the users' words for a likelihood, but not ``"auto"``.
        y: the targets as the user gave them, not scaled.
        weight: how much each row counts.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.targets import likelihood_for
        >>> likelihood_for("share", np.full(40, 0.5))
        Beta(initial=None, centre=0.0, reach=10.0, precision='predicted')
    """
    kind = _kind(name)
    y, weight = counted(y, weight)
    if kind == "real":
        if name == "gaussian":
            return Gaussian("predicted", initial=START)
        return StudentT(DEGREES, "predicted", initial=START)
    _check(name, y)
    if name == "poisson":
        return Poisson()
    if kind == "share":
        mean = np.clip(_mean(y, weight), 1e-3, 1 - 1e-3)
        return Beta(centre=_plain(np.log(mean / (1 - mean))))
    inner = scaling(name, y, weight)(y)
    if kind == "count":
        centre = np.log(np.maximum(_mean(inner, weight), 0.5 / len(inner)))
        made: Any = NegativeBinomial
    else:
        centre = _log_means(inner, weight)
        made = LogNormal if kind == "positive" else ZeroInflatedLogNormal
    around = made(centre=_plain(centre)).location(inner)
    below, above = MARGIN - around.min(), MARGIN + around.max()
    if kind == "count":
        below = max(below, BELOW)
    more = {} if kind == "count" else {"widest": WIDEST}
    return made(centre=_plain(centre), reach=(below, max(above, MARGIN)), **more)


def scaling(name: str, y: np.ndarray, weight: np.ndarray | None = None) -> Standardiser:
    """The unit of the targets that the likelihood of this name works in.

    Real targets lose their mean and deviation, positive ones are divided by their geometric mean.
    The others stay as they are: counts and shares for what they are, and targets with zeros
    because the probability of a zero, which their likelihood has, is the same in every unit. Their
    geometric mean is the centre of their likelihood.

    Example:
        >>> import numpy as np
        >>> from posterax.tables.targets import scaling
        >>> scaling("positive", np.array([1.0, 100.0]))
        Standardiser(shift=array([0.]), scale=array([10.]))
    """
    kind = _kind(name)
    y, weight = counted(y, weight)
    if kind == "real":
        return standardiser(y, weight)
    _check(name, y)
    shift, scale = np.zeros(y.shape[1]), np.ones(y.shape[1])
    return Standardiser(shift, np.exp(_log_means(y, weight)) if kind == "positive" else scale)


def _kind(name: str) -> str:
    kind = CHOICES.get(name)
    if kind is None:
        names = ", ".join(repr(choice) for choice in CHOICES if choice != "auto")
        raise ValueError(f"the name of a likelihood must be one of {names}, got {name!r}")
    return kind


def _check(name: str, y: np.ndarray) -> None:
    """Refuse targets that the likelihood of this name cannot have."""
    kind = _kind(name)
    if kind == "real" and name not in NEEDS:
        return
    expected, fits = NEEDS.get(name) or NEEDS[kind]
    wrong = y[~fits(y)]
    if wrong.size:
        raise ValueError(
            f"likelihood={name!r} needs {expected}, and y has {wrong[0]}; 'auto' chooses"
        )


def _mean(y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return np.average(y, axis=0, weights=weight)


def _log_means(y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The mean of the logarithms of each column's positive targets."""
    logs = np.log(np.where(y > 0, y, 1))
    share = weight[:, None] * (y > 0)
    return np.sum(share * logs, axis=0) / np.maximum(np.sum(share, axis=0), 1e-300)


def _plain(values: np.ndarray) -> Any:
    """A number where there is one target, so that it fits targets of shape (N,) as well."""
    return float(values[0]) if len(values) == 1 else values
