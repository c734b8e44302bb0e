"""Could the model have made these data? A statistic of y beside those of data it makes."""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from .._util.checks import whole_number
from .._util.keys import KeyLike
from ..posteriors import Posterior
from ..posteriors.prior import PriorPosterior
from ..predictive import Predictive
from .evidence import Examples, parts

Statistic = str | Callable[..., Any]

STATISTICS: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.mean,
    "std": np.std,
    "min": np.min,
    "max": np.max,
    "median": np.median,
    "zeros": lambda y: np.mean(y == 0),
}
NARROW = 0.025  # on either side


@dataclasses.dataclass(frozen=True)
class Check:
    """What ``predictive_check`` returns; ``print`` it, or draw it by ``px.plot.predictive_check``.

    ``observed`` is T(y), ``replicated`` T of each replicated data set (first axis), ``p_value``
    the share of these above it, those that are the same counting half. All have the statistic's
    shape.
    """

    statistic: str
    observed: np.ndarray
    replicated: np.ndarray
    before: bool = False  # of the prior

    @property
    def p_value(self) -> np.ndarray:
        """P(T(y_rep) > T(y)) + ½ P(T(y_rep) = T(y)); near 0 or 1 the model does not do this."""
        above = np.mean(self.replicated > self.observed, axis=0)
        return above + 0.5 * np.mean(self.replicated == self.observed, axis=0)

    @property
    def ok(self) -> bool:
        """Whether T(y) lies within the central 95 % of the replications."""
        return bool(np.all(np.minimum(self.p_value, 1 - self.p_value) >= NARROW))

    @property
    def verdict(self) -> str:
        """What it means, in words."""
        source = "prior" if self.before else "posterior"
        if self.ok:
            return f"Data from the {source} predictive have such a {self.statistic}."
        side = "larger than that" if np.all(self.p_value < 0.5) else "smaller than that"
        side = "at odds with those" if np.ndim(self.observed) else side
        return (
            f"The {self.statistic} of the data is {side} of nearly all replications from the "
            f"{source} predictive: the model does not describe it."
        )

    def __str__(self) -> str:
        low, high = np.quantile(self.replicated, [NARROW, 1 - NARROW], axis=0)
        show = lambda a: np.array2string(np.asarray(a), precision=4)  # noqa: E731
        return (
            f"{self.statistic}: observed {show(self.observed)}, replicated {show(low)} to "
            f"{show(high)} (95 %), p = {show(self.p_value)}\n{self.verdict}"
        )

    __repr__ = __str__


def predictive_check(
    posterior: Posterior,
    data: Examples,
    statistic: Statistic = "std",
    *,
    samples: int = 1000,
    key: KeyLike = 0,
) -> Check:
    r"""Compare a statistic T(y) with that of data sets that the model makes at the same inputs.

        p = P(T(y_rep) ≥ T(y)),    y_rep ~ p(y | x, w),  w ~ p(w | D)

    With ``px.prior_posterior(model, x)`` in place of a posterior it checks the prior. Choose
    statistics that the model was not fitted to (not the mean of a Gaussian likelihood): p-values of
    a posterior crowd around ½, since the data were used twice.

    Args:
        posterior: of any method, or ``px.prior_posterior(model, x)``.
        data: ``(x, y)``.
        statistic: ``"mean"``, ``"std"``, ``"min"``, ``"max"``, ``"median"``, ``"zeros"`` (the share
            of them) or, for classes, ``"frequencies"``; or a function of y, or of y and x, that
            gives a number or an array.
        samples: replicated data sets, one of each posterior draw.
        key: an int or a JAX key.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> x = np.zeros((50, 1), "float32")
        >>> y = np.random.default_rng(0).standard_t(1.5, size=50)
        >>> line = px.networks.MLP(1, 1, (), key=0)
        >>> model = px.Model(line, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(1.0))
        >>> posterior = px.fit(model, (x, y), px.Conjugate())
        >>> check = px.selection.predictive_check(posterior, (x, y), "max")
        >>> print(check)
        max: observed 3.678, replicated ...
        The max of the data is larger than that of nearly all replications ...

    Reference: Gelman, Meng and Stern, Posterior predictive assessment of model fitness via
    realized discrepancies, Statistica Sinica 1996; Box, Sampling and Bayes' inference in scientific
    modelling and robustness, JRSS A 1980, for the prior.
    """
    samples = whole_number("samples", samples, least=2)
    inputs, targets, weights = zip(*parts(data), strict=True)
    if any(np.any(weight != 1) for weight in weights):
        raise ValueError("data: replications have no weights; leave weight out, or repeat examples")
    x = jax.tree.map(lambda *a: np.concatenate([np.asarray(b) for b in a]), *inputs)
    y = np.concatenate(targets)
    predictive = posterior.predict(x, samples=samples, key=key)
    name, function = _function(statistic, predictive, x)
    replicated = predictive.sample(samples)
    observed = np.asarray(function(y.reshape(replicated.shape[1:])), np.float64)
    each = np.stack([np.asarray(function(r), np.float64) for r in replicated])
    return Check(name, observed, each, isinstance(posterior, PriorPosterior))


def _function(
    statistic: Statistic, predictive: Predictive, x: PyTree
) -> tuple[str, Callable[..., Any]]:
    """The statistic's name, and it as a function of y alone."""
    if callable(statistic):
        name = getattr(statistic, "__name__", "statistic").replace("<lambda>", "statistic")
        try:
            inspect.signature(statistic).bind("y")
        except TypeError:
            return name, lambda y: statistic(y, x)
        except ValueError:  # written in C
            pass
        return name, statistic
    known = STATISTICS
    if predictive.kind == "classification":
        classes = range(predictive.mean.shape[-1])
        known = {"frequencies": lambda y: np.array([np.mean(np.equal(y, k)) for k in classes])}
    if statistic not in known:
        raise ValueError(
            f"statistic must be a function or one of {', '.join(known)}, got {statistic!r}"
        )
    return statistic, known[statistic]
