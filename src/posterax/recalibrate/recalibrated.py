r"""The predictive with the distribution function R ∘ F: what quantile recalibration returns."""

from functools import cached_property
from typing import NoReturn

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from .._util.checks import fraction, whole_number
from ..predictive import Predictive
from .base import probability_below, targets

NORMAL = np.linspace(-4.5, 4.5, 73)  # levels Φ(t) at which the quantile function is tabulated
POOL = 200  # draws of the predictive at least, whose order new draws take over


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
        outputs = predictive.mean.shape[1:]
        if knots.shape[1:] != outputs:
            raise ValueError(
                f"the recalibration is for targets of shape {knots.shape[1:]} and the predictive "
                f"has {outputs}: fit it on a predictive of the same model"
            )
        self._base = predictive
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

    @property
    def kind(self) -> str:
        """``"regression"`` or ``"counts"``."""
        return self._base.kind

    # -- distribution

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(Y ≤ y) = R(F(y)), for each output alone."""
        return self._map(self._base.cdf(y))

    def quantile(self, q: ArrayLike) -> np.ndarray:
        """F⁻¹(R⁻¹(q)); the quantiles are the first axis where ``q`` is an array."""
        levels = checked_levels(q)
        asked = np.stack([np.interp(levels, self._levels, knot) for knot in self._knots.T])
        asked = np.where((levels > 0) & (levels < 1), np.clip(asked, *self._visible), asked)
        values = np.asarray(self._base.quantile(asked.reshape(-1)), np.float64)
        shape = values.shape[1:]
        # every output was asked for the levels of all of them, and takes its own
        values = values.reshape(*asked.shape, shape[0], -1)
        own = np.stack([part[..., i] for i, part in enumerate(values)], axis=-1)
        own = own.reshape(len(levels), *shape)
        return own if np.ndim(q) else own[0]

    def interval(self, level: float = 0.9, kind: str = "central") -> tuple[np.ndarray, np.ndarray]:
        """The central interval of y with this mass."""
        level = fraction("level", level)
        if kind != "central":
            raise ValueError(
                f"kind must be 'central' for a recalibrated predictive, got {kind!r}: the slope "
                "of R is too coarse to say where its density is highest"
            )
        low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log of the density f(y) · R′(F(y)), or of the probability of a count; one output."""
        if self._knots.shape[1] > 1:
            raise ValueError(
                "log_prob needs one output: several were recalibrated each alone, which leaves "
                "their joint density open"
            )
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

    @property
    def epistemic(self) -> NoReturn:
        """Not known: recalibration acts on the whole distribution of y."""
        self._no_part("epistemic")

    @property
    def aleatoric(self) -> NoReturn:
        """Not known: recalibration acts on the whole distribution of y."""
        self._no_part("aleatoric")

    def _no_part(self, name: str) -> NoReturn:
        raise AttributeError(
            f"{name} is not known of a recalibrated predictive: the map acts on the distribution "
            "of y as a whole. Ask the predictive it was made from; px.recalibrate.Spread keeps "
            "the parts"
        )

    def _inverse(self, levels: np.ndarray) -> np.ndarray:
        """Quantiles at levels (n, N, …) of their own for each input and output, from the table."""
        at, table = ndtri(levels).reshape(len(levels), -1), self._table.reshape(len(NORMAL), -1)
        columns = [np.interp(a, NORMAL, column) for a, column in zip(at.T, table.T, strict=True)]
        return np.stack(columns, axis=1).reshape(levels.shape)

    @cached_property
    def _table(self) -> np.ndarray:
        return self.quantile(ndtr(NORMAL))

    @cached_property
    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        weight = np.exp(-0.5 * np.square(NORMAL))
        weight /= weight.sum()
        mean = np.tensordot(weight, self._table, 1)
        return mean, np.tensordot(weight, np.square(self._table - mean), 1)

    def _map(self, reached: ArrayLike) -> np.ndarray:
        """R, for each output alone."""
        reached = np.asarray(reached, np.float64)
        flat = reached.reshape(-1, self._knots.shape[1])
        pairs = zip(flat.T, self._knots.T, strict=True)
        columns = [np.interp(column, knot, self._levels) for column, knot in pairs]
        return np.stack(columns, axis=1).reshape(reached.shape)

    def _slope(self, reached: np.ndarray) -> np.ndarray:
        """R′ of the one output; pieces without width hold no density."""
        knots = self._knots[:, 0]
        wide = np.flatnonzero(np.diff(knots) > 0)
        piece = wide[np.searchsorted(knots[wide[1:]], reached, side="right")]
        return np.diff(self._levels)[piece] / np.diff(knots)[piece]


def checked_levels(q: ArrayLike) -> np.ndarray:
    """Levels of quantiles in one axis, once they lie between 0 and 1."""
    levels = np.atleast_1d(np.asarray(q, np.float64))
    if not np.all((levels >= 0) & (levels <= 1)):
        raise ValueError(f"q must lie between 0 and 1, got {q!r}")
    return levels
