r"""The predictive with the distribution function R ∘ F: what quantile recalibration returns.

Regression has integrals over a table of quantiles. For counts, G = R ∘ F is looked up at counts,
every one in the bulk; from there

    E y = Σ_{k ≥ 0} (1 − G(k)),   quantile(q) = min { k : G(k) ≥ q }

and draws are quantiles at random levels.
"""

from functools import cached_property, partial
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from .._util.checks import fraction, whole_number
from ..predictive import Predictive
from .base import check_shape, probability_below, targets

NORMAL = np.linspace(-4.5, 4.5, 73)  # levels Φ(t) at which the quantile function is tabulated
POOL = 200  # draws of the predictive at least, whose order new draws take over
SIDE = 64  # counts looked up on each side of the median, at most
DOUBLINGS = 60  # of the way to where nothing is left

_interp = np.vectorize(np.interp, otypes=[float], signature="(n),(m),(m)->(n)")


def _unknown(name: str) -> property:
    def part(self: "RecalibratedPredictive") -> NoReturn:
        raise AttributeError(
            f"{name} is not known of a recalibrated predictive: the map acts on the distribution "
            "of y as a whole. Ask the predictive it was made from, or use px.recalibrate.Spread"
        )

    return property(part, doc="Not known: recalibration acts on the whole distribution of y.")


class RecalibratedPredictive:
    """A predictive whose quantiles were recalibrated; made by ``px.recalibrate.Isotonic``.

    It has what a ``Predictive`` of regression or counts has, except the parts of its variance: the
    map acts on the distribution of y as a whole, and says nothing about where the width comes from.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> (x, y), model = curve_data(400), curve_model()
        >>> posterior = px.fit(model, (x, y), px.BayesByBackprop(), steps=100, key=0)
        >>> predictive = posterior.predict(x, samples=20, key=0)
        >>> recalibrated = px.recalibrate.Isotonic.fit(predictive, y)(predictive)
        >>> recalibrated.quantile([0.1, 0.9]).shape
        (2, 400)
        >>> recalibrated.epistemic
        Traceback (most recent call last):
        AttributeError: epistemic is not known of a recalibrated predictive: ...
    """

    def __init__(self, predictive: Predictive, knots: np.ndarray, levels: np.ndarray):
        check_shape("recalibration", knots.shape[1:], predictive.mean.shape[1:])
        self._base = predictive
        self.kind: str = predictive.kind  # "regression" or "counts"
        self._knots = knots.reshape(len(levels), -1)
        self._levels = levels
        # where the distribution function is 0 or 1 but for rounding, quantiles are arbitrary:
        # sums of a thousand small terms lose them below tiny / eps, and a 1 has no finer neighbours
        precision = np.finfo(getattr(predictive, "weights", knots).dtype)
        self._visible = float(precision.tiny / precision.eps), 1 - 8 * float(precision.eps)

    def __len__(self) -> int:
        return len(self._base)

    def __repr__(self) -> str:
        return (
            f"RecalibratedPredictive({self.kind}, {len(self)} inputs: "
            "mean, std, quantile(q), interval(level), cdf(y), log_prob(y), sample(n))"
        )

    # -- distribution

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(Y ≤ y) = R(F(y)), for each output alone."""
        return self._map(self._base.cdf(y))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """F⁻¹(R⁻¹(q)), for counts the least with R(F) of q; first axis where ``q`` is an array."""
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"q must lie between 0 and 1, got {q!r}")
        values = self._quantiles(levels)
        return values if np.ndim(q) else values[0]

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        asked = _interp(levels, self._levels, self._knots.T)
        asked = np.where((levels > 0) & (levels < 1), np.clip(asked, *self._visible), asked)
        values = np.asarray(self._base.quantile(asked.reshape(-1)), np.float64)
        shape = values.shape[1:]
        # every output was asked for the levels of all of them, and takes its own
        values = values.reshape(*asked.shape, shape[0], -1)
        own = np.stack([part[..., i] for i, part in enumerate(values)], axis=-1)
        return own.reshape(len(levels), *shape)

    def interval(self, level: float = 0.9, kind: str = "central") -> tuple[np.ndarray, np.ndarray]:
        """The central interval of y with this mass."""
        level = fraction("level", level)
        if kind != "central":
            raise ValueError(f"kind must be 'central' once recalibrated, got {kind!r}")
        low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log of the density f(y) · R′(F(y)), or of the probability of a count; one output."""
        if self._knots.shape[1] > 1:
            raise ValueError("log_prob needs one output: several were recalibrated each alone")
        y = targets(y, self._base.mean.shape)
        cdf = np.asarray(self._base.cdf(y))
        reached, rounding = cdf.astype(np.float64), 8 * np.finfo(cdf.dtype).eps
        slope = self._slope(reached)
        if self.kind == "counts":  # R′ averaged over the jump, where it is more than rounding
            before = probability_below(self._base, y)
            jump = reached - before
            rise = self._map(reached) - self._map(before)
            slope = np.where(jump > rounding, rise / np.maximum(jump, rounding), slope)
        return np.asarray(self._base.log_prob(y), np.float64) + np.log(slope).reshape(len(y))

    def sample(self, n: int | None = None) -> np.ndarray:
        """``n`` draws of y on the first axis, in the order of draws of the predictive itself.

        Each draw is one function over all inputs and outputs, as those of the predictive are: their
        ranks stay and their values are replaced (Schaake shuffle, Clark et al. 2004).
        """
        n = self._base.samples if n is None else whole_number("n", n)
        drawn = np.asarray(self._base.sample(max(n, POOL)))
        seed = np.random.default_rng(len(drawn))
        # counts have ties, which chance has to break
        order = np.argsort(np.lexsort((seed.random(drawn.shape), drawn), axis=0), axis=0)
        return self._inverse((order[:n] + seed.random(order[:n].shape)) / len(drawn))

    # -- moments, by quadrature: ∫ Q(Φ(t))ᵏ φ(t) dt, where a Gaussian's Q ∘ Φ is a straight line

    @property
    def mean(self) -> np.ndarray:
        """E[y]."""
        return self._moments[0]

    @property
    def variance(self) -> np.ndarray:
        """Var[y]."""
        return self._moments[1]

    total = variance

    @property
    def std(self) -> np.ndarray:
        """The root of ``variance``, in the units of y."""
        return np.sqrt(self.variance)

    epistemic, aleatoric = _unknown("epistemic"), _unknown("aleatoric")

    def _inverse(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles at levels (n, N, …) of their own for each input and output, from the table."""
        at, table = ndtri(levels).reshape(len(levels), -1), self._table.reshape(len(NORMAL), -1)
        return _interp(at.T, NORMAL, table.T).T.reshape(levels.shape)

    @cached_property
    def _table(self) -> np.ndarray:
        return self.quantile(ndtr(NORMAL))

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        average = partial(np.average, axis=0, weights=np.exp(-0.5 * np.square(NORMAL)))
        mean = average(self._table)
        return mean, average(np.square(self._table - mean))

    def _map(self, reached: ArrayLike) -> np.ndarray:
        """R, for each output alone."""
        reached = np.asarray(reached, np.float64)
        flat = reached.reshape(-1, self._knots.shape[1])
        return _interp(flat.T, self._knots.T, self._levels).T.reshape(reached.shape)

    def _slope(self, reached: np.ndarray) -> np.ndarray:
        """R′ of the one output; pieces without width hold no density."""
        knots = self._knots[:, 0]
        wide = np.flatnonzero(np.diff(knots) > 0)
        piece = wide[np.searchsorted(knots[wide[1:]], reached, side="right")]
        return np.diff(self._levels)[piece] / np.diff(knots)[piece]


class RecalibratedCounts(RecalibratedPredictive):
    """A predictive of counts that was recalibrated; made by ``px.recalibrate.Isotonic``."""

    def _quantiles(self, levels: np.ndarray) -> np.ndarray:
        shape = self._base.mean.shape
        under, over, _ = self._between(levels.reshape(-1, *[1] * len(shape)) + np.zeros(shape))
        for i, level in enumerate(levels):  # counts between two that were looked up: by halving
            while np.any(wide := over[i] - under[i] > 1):
                middle = np.ceil((under[i] + over[i]) / 2)
                enough = self.cdf(np.maximum(middle, 0)) >= level
                under[i] = np.where(wide & ~enough, middle, under[i])
                over[i] = np.where(wide & enough, middle, over[i])
        return over

    def _inverse(self, levels: np.ndarray) -> np.ndarray:
        under, over, share = self._between(levels)
        # counts between two that were looked up share the mass evenly
        return np.maximum(under + np.ceil(share * (over - under)), under + 1)

    def _between(self, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Neighbours among the counts looked up, the level in between, and what share of the way.

        The level is above R(F) of the first, and at most that of the second.
        """
        flat = levels.reshape(len(levels), -1)
        counts, reached = (table.reshape(len(table), -1) for table in self._steps)
        columns = []
        for u, count, below in zip(flat.T, counts.T, reached.T, strict=True):
            at = np.searchsorted(below, u)
            mass = np.diff(below, prepend=0)[at]
            left = (below[at] - u) / np.where(mass > 0, mass, 1)
            columns.append((count[at] - _gaps(count)[at], count[at], 1 - left))
        under, over, share = np.moveaxis(np.array(columns), 0, -1).reshape(3, *levels.shape)
        return under, over, share

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        counts, below = self._steps
        step, mass = _gaps(counts), np.diff(below, axis=0, prepend=0)
        centre = counts - (step - 1) / 2
        mean = np.sum(mass * centre, axis=0)
        return mean, np.sum(mass * (np.square(centre - mean) + (step**2 - 1) / 12), axis=0)

    @cached_property
    def _steps(self) -> tuple[np.ndarray, np.ndarray]:
        """Counts in rising order, (…, N, …), and the distribution function there."""
        low, middle, high = self._reach()
        smaller, larger = middle - _offsets(middle - low)[::-1], middle + _offsets(high - middle)
        counts = np.concatenate([smaller, middle[None], larger])
        below = np.stack([self.cdf(count) for count in counts])
        below = np.maximum.accumulate(below, axis=0)  # rounding may let it fall
        below[-1] = 1
        return counts, below

    def _reach(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The median of the predictive, and counts with hardly anything below and beyond them."""
        first, middle, last = np.asarray(
            self._base.quantile(np.array([0.01, 0.5, 0.99])), np.float64
        )
        width = np.maximum(last - first, 1)
        low, high, top = np.maximum(first - width, 0), last + width, self._visible[1]
        for _ in range(DOUBLINGS):
            over = (low > 0) & (np.asarray(self._base.cdf(low)) > 1 - top)
            under = np.asarray(self._base.cdf(high)) < top
            if not np.any(over | under):
                break
            width = 2 * width
            low = np.where(over, np.maximum(low - width, 0), low)
            high = np.where(under, high + width, high)
        return low, middle, high


def _offsets(half: np.ndarray) -> np.ndarray:
    """Integers 1, 2, … up to ``half``; where that is far, with growing gaps."""
    j = np.arange(1, min(SIDE, int(half.max(initial=0))) + 1).reshape(-1, *[1] * half.ndim)
    growth = np.full(half.shape, 5.0)
    for _ in range(30):  # half · sinh(growth · j / SIDE) / sinh(growth) starts with gaps of 1
        growth = np.arcsinh(growth * np.maximum(half / SIDE, 1))
    far = np.floor(half * np.sinh(growth * j / SIDE) / np.sinh(growth) + 0.5)
    return np.minimum(np.maximum(j, far), half)


def _gaps(counts: np.ndarray) -> np.ndarray:
    """How many counts each one stands for: those above the one before it."""
    return np.maximum(np.diff(counts, axis=0, prepend=counts[:1] - 1), 1)
