r"""What a posterior says about new inputs: mean, uncertainty and its parts, for every method.

Regression and counts, by the law of total variance over posterior draws w₁ … w_S:

    total = epistemic + aleatoric,  Var[y] = Var_w(E[y | w]) + E_w(Var[y | w])

Classification, by entropies in nats (Depeweg et al. 2018):

    H[E_w p] = I[y; w] + E_w H[p]

Everything streams: inputs go through in blocks so that samples × inputs never has to fit.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from .._util.checks import one_of, whole_number
from . import quantiles as qt
from . import sampled as rd
from .stream import Moments, Streamed, Units
from .table import to_pandas

if TYPE_CHECKING:
    import pandas as pd


class Parts(NamedTuple):
    """Uncertainty and where it comes from: epistemic + aleatoric = total."""

    epistemic: np.ndarray
    aleatoric: np.ndarray
    total: np.ndarray


class Predictive(Streamed):
    """The predictive distribution p(y | x, D) at given inputs; made by ``posterior.predict``.

    Nothing is computed before it is asked for; moments are computed once.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> from posterax.demo import curve_data, curve_model
        >>> x, y = curve_data(32)
        >>> posterior = px.fit(curve_model(), (x, y), px.BayesByBackprop(), epochs=5, key=0)
        >>> predictive = posterior.predict(x, samples=16, key=1)
        >>> predictive.mean.shape
        (32,)
        >>> bool(np.allclose(predictive.epistemic + predictive.aleatoric, predictive.total))
        True
    """

    def __repr__(self) -> str:
        return (
            f"Predictive({self.kind}, {len(self)} inputs, {self.samples} samples: "
            "mean, epistemic, aleatoric, total, interval(level), log_prob(y), …)"
        )

    # -- moments

    @property
    def mean(self) -> np.ndarray:
        """E[y], or the class probabilities."""
        return self._summary.mean

    @property
    def variance(self) -> np.ndarray:
        """Var[y]; for classes the variance of their probabilities over the posterior (1/S)."""
        return self._summary.variance

    @property
    def epistemic(self) -> np.ndarray:
        """What more data would remove: Var_w(E[y | w]), or the mutual information in nats."""
        return self._summary.epistemic

    @property
    def aleatoric(self) -> np.ndarray:
        """What no data removes: E_w(Var[y | w]), or the expected entropy in nats."""
        return self._summary.aleatoric

    @property
    def total(self) -> np.ndarray:
        """Epistemic + aleatoric: Var[y], or the entropy of the mean probabilities."""
        return self._summary.total

    @property
    def std(self) -> np.ndarray:
        """The root of ``variance``, in the units of y."""
        return np.sqrt(self.variance)

    @property
    def mode(self) -> np.ndarray:
        """The most probable class."""
        self._only("classification", "mode")
        return self.mean.argmax(-1)

    def parts(self, by: Literal["entropy", "variance"] | None = None) -> Parts:
        r"""Epistemic, aleatoric and total uncertainty, by variances or by entropies.

        By variance, for classes one by one (with p̄ = E_w p): Var_w p + E_w p (1 − p) = p̄ (1 − p̄).

        By entropy, for regression and counts: I[y; w] + E_w H[y | w] = H[y] in nats, of all outputs
        of an example together, estimated from at least 1000 draws of y.

        Args:
            by: ``"entropy"`` or ``"variance"``; by default what ``epistemic``, ``aleatoric`` and
                ``total`` are: entropies for classes, variances else.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> model = px.Model(
            ...     px.networks.MLP(2, 3, (8,), key=0), likelihood=px.likelihoods.Categorical()
            ... )
            >>> prior = px.prior_posterior(model, np.zeros((5, 2), "float32"))
            >>> predictive = prior.predict(np.ones((5, 2), "float32"), key=0)
            >>> predictive.parts("variance").epistemic.shape
            (5, 3)
        """
        classes = self.kind == "classification"
        by = one_of("by", by or ("entropy" if classes else "variance"), ("entropy", "variance"))
        if (by == "entropy") == classes:
            return Parts(self.epistemic, self.aleatoric, self.total)
        if classes:
            total = self.mean * (1 - self.mean)
            epistemic = np.minimum(self.variance, total)  # rounding must not pass the total
            return Parts(epistemic, total - epistemic, total)
        draws = max(qt.DRAWS, min(self.samples, qt.MOST_DRAWS))
        total, inside = self._stream(rd.entropies, None, draws, max(self.samples, draws))
        total, inside = (entropy + self._log_scale() for entropy in (total, inside))
        return Parts(total - inside, inside, total)

    def covariance(self, part: Literal["total", "epistemic", "aleatoric"] = "total") -> np.ndarray:
        r"""The covariance of the outputs of each example, (N, D, D), or a part of it.

        Cov[y] = Cov_w(E[y | w]) + E_w Cov[y | w]; for classes, of their indicators, with parts
        Cov_w(p) and E_w[diag p − p pᵀ]. The diagonals are the parts of the variance.
        """
        one_of("part", part, ("total", "epistemic", "aleatoric"))
        width = self.samples * int(np.prod(self._targets.inner))
        epistemic, aleatoric = self._stream(rd.covariances, width=width)
        parts = {"epistemic": epistemic, "aleatoric": aleatoric}
        matrix = parts.get(part, epistemic + aleatoric)
        if self._units is None:
            return matrix
        scale = np.broadcast_to(self._units.scale, self._targets.given).reshape(-1)
        return matrix * scale[:, None] * scale

    # -- distribution

    def log_prob(self, y: ArrayLike) -> np.ndarray:
        """log p(y | x, D) = log E_w p(y | x, w) of each example: probabilities are averaged."""
        inner = self._inner_targets(y)
        parts = [group._stream(rd.log_prob, inner)[0] for group in self._groups()]
        log_p = np.logaddexp.reduce(parts, axis=0) - self._log_scale()
        return np.where(self._below(y), -np.inf, log_p)

    def log_likelihoods(self, y: ArrayLike) -> np.ndarray:
        """log p(y | x, w) of each posterior sample and example, (samples, N); see ``weights``."""
        each = self._every(rd.log_likelihoods, self._inner_targets(y)).T
        return np.where(self._below(y), -np.inf, each - self._log_scale())

    def cdf(self, y: ArrayLike) -> np.ndarray:
        """P(Y ≤ y | x, D) = E_w P(Y ≤ y | x, w), for each output alone, in the shape of y.

        Of regression and counts; where the likelihood has no distribution function, the share of
        at least 1000 draws.
        """
        if self.kind == "classification":
            raise ValueError("cdf is for regression and counts; log_prob(y) is for classes")
        inner = self._inner_targets(y)
        width = max(self.samples, qt.DRAWS)
        values = self._stream(qt.cdf, inner, None, width)[0].reshape(np.shape(y))
        low = -np.inf if self._units is None else self._units.low
        return np.where(np.asarray(y) < low, 0, values)

    def quantile(self, q: float | np.ndarray) -> np.ndarray:
        """Quantiles of y (regression, counts) or of the class probabilities over the posterior.

        Those of a continuous y solve E_w[F(y | w)] = q; where the likelihood has no distribution
        function they come from draws of y. The quantiles are the first axis where ``q`` is an
        array.
        """
        levels = np.atleast_1d(np.asarray(q, np.float64))
        if not np.all((levels >= 0) & (levels <= 1)):
            raise ValueError(f"q must lie between 0 and 1, got {q!r}")
        values = self._quantiles(qt.quantiles, levels)
        return values if np.ndim(q) else values[0]

    def interval(
        self, level: float = 0.9, kind: Literal["central", "highest"] = "central"
    ) -> tuple[np.ndarray, np.ndarray]:
        """An interval of y (of the probabilities, for classes) with this mass.

        Args:
            level: the mass inside.
            kind: ``"central"``, with equal mass beyond both ends, or ``"highest"``, the shortest:
                the highest-density interval where there is one mode.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie strictly between 0 and 1, got {level!r}")
        if one_of("kind", kind, ("central", "highest")) == "highest":
            low, high = self._quantiles(qt.shortest, np.float64(level))
        else:
            low, high = self.quantile(np.array([(1 - level) / 2, (1 + level) / 2]))
        return low, high

    def sample(self, n: int | None = None) -> np.ndarray:
        """``n`` draws of y on the first axis (default: as many as ``predict`` was asked for)."""
        n = self._draws if n is None else whole_number("n", n)
        # all blocks take the same draws, so that each is one function over all inputs
        pick = jax.random.fold_in(self._key, len(self))
        drawn = self._every(rd.draws, None, (pick, n))
        return self._values_first(drawn, of_y=True)

    def outputs(self) -> np.ndarray:
        """The network's outputs for every posterior sample, (samples, inputs, …)."""
        return np.moveaxis(self._every(rd.outputs), 1, 0)

    def conditional_means(self) -> np.ndarray:
        """E[y | x, w] of each posterior sample, (samples, N, …); the probabilities of classes."""
        means = self._every(rd.conditional_means)
        return self._values_first(means, of_y=self.kind != "classification")

    @property
    def weights(self) -> np.ndarray:
        """The weight of each posterior sample; they sum to 1."""
        return np.asarray(self._particles.weights)

    def to_pandas(
        self, *, level: float = 0.9, names: Sequence[Any] | None = None, index: Any = None
    ) -> "pd.DataFrame":
        """A data frame with a row for each input.

        Regression and counts: ``mean``, ``std``, ``epistemic``, ``aleatoric`` and the interval's
        ``low`` and ``high``, followed by ``_name`` for each of several outputs. Classification:
        ``mode``; ``p_name``, ``low_name`` and ``high_name`` for each class; and the three parts of
        the entropy.

        Args:
            level: of the intervals.
            names: of the outputs, or of the classes (default: 0, 1, …).
            index: of the rows (default: 0, 1, …).

        Example:
            >>> import posterax as px
            >>> from posterax.demo import curve_model
            >>> predictive = px.prior_posterior(curve_model(), [[0.0]]).predict([[0.0]])
            >>> list(predictive.to_pandas().columns)
            ['mean', 'std', 'epistemic', 'aleatoric', 'low', 'high']
        """
        return to_pandas(self, level, names, index)

    def in_units(self, shift: ArrayLike, scale: ArrayLike) -> "Predictive":
        """The predictive of shift + scale · y: undoes a standardisation of the targets.

        Everything but ``outputs`` is in the new units then, in float64. ``shift`` and ``scale``
        (above 0) are numbers, or arrays with the shape of one target.
        """
        self._only("regression", "in_units")
        shape = self._targets.given
        shift, scale = np.asarray(shift, np.float64), np.asarray(scale, np.float64)
        fits = all(np.broadcast_shapes(a.shape, shape) == shape for a in (shift, scale))
        if not (fits and np.all(scale > 0) and np.all(np.isfinite(scale + shift))):
            raise ValueError(
                f"shift and scale must be finite, scale above 0, both numbers or of shape {shape}"
            )
        before = self._units or Units(np.zeros(()), np.ones(()))
        moved, low = (shift + scale * part for part in (before.shift, before.low))
        return self._view(_units=Units(moved, scale * before.scale, low))

    def widened(self, factor: ArrayLike) -> "Predictive":
        """The same mean and shape with every deviation from the mean ``factor`` times as wide.

        The predictive of mean + factor · (y − mean): both parts of the variance grow by factor².
        ``factor`` (above 0) is a number, or an array with the shape of one target.
        """
        self._only("regression", "widened")
        view = self.in_units(0.0, factor)
        assert view._units is not None
        shift, scale, _ = view._units
        low = -np.inf if self._units is None else self._units.low
        # the mean of y itself, which may lie below ``low``
        units = self._units
        free = self if units is None else self._view(_units=units._replace(low=-np.inf))
        free._moments = None if np.any(np.isfinite(low)) else self._moments
        mean, *variances = free._summary
        shift = shift + (1 - np.asarray(factor, np.float64)) * mean
        widened = self._view(_units=Units(shift, scale, low))
        variances = [np.square(factor) * v for v in variances]
        widened._moments = Moments(np.maximum(mean, low), *variances)
        return widened

    def at_least(self, low: float) -> "Predictive":
        """The predictive of max(y, low): what lies below is at ``low``.

        Means, quantiles, intervals and draws end there; both parts of the variance are those of y,
        which are no smaller. ``log_prob`` is as before above ``low``, and −∞ below.

        Example:
            >>> import posterax as px
            >>> from posterax.demo import curve_model
            >>> predictive = px.prior_posterior(curve_model(), [[0.0]]).predict([[0.0]])
            >>> low, high = predictive.at_least(0.0).interval(0.9)
            >>> float(low[0]), bool(high[0] > 0)
            (0.0, True)
        """
        self._only("regression", "at_least")
        if not np.isfinite(low):
            raise ValueError(f"low must be finite, got {low!r}")
        before = self._units or Units(np.zeros(()), np.ones(()))
        view = self._view(_units=before._replace(low=np.maximum(before.low, low)))
        if self._moments is not None:
            view._moments = self._moments._replace(mean=np.maximum(self._moments.mean, low))
        return view

    def tempered(self, temperature: float) -> "Predictive":
        """The predictive whose samples' class probabilities are p^(1/T), normalised.

        Above 1 they are less sure, below 1 surer; ``px.recalibrate.Temperature`` finds T.
        """
        self._only("classification", "tempered")
        if not (np.isfinite(temperature) and temperature > 0):
            raise ValueError(f"temperature must be finite and above 0, got {temperature!r}")
        before = 1.0 if self._temperature is None else self._temperature
        return self._view(_temperature=jnp.asarray(before * float(temperature)))
