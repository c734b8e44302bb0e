"""Amounts above 0, and amounts of 0 or more that are often exactly 0."""

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution, constraints

from .._util.checks import above_zero
from .base import Likelihood, check_support
from .linked import Linked, with_start
from .links import FLOOR, bent
from .regression import OF_DEVIATION, deviations

REACH = 20.0  # of log y, on both sides of its centre, unless the user says otherwise
WIDEST = 3.0  # of σ as the network predicts it; beyond it is bent
LARGEST = 80.0  # exponents of moments: e⁸⁰ is a number of float32 still
OFTEN = 0.1  # where zeros are put among the positive targets, by rank


class StableLogNormal(dist.LogNormal):
    """numpyro's, with moments that neither overflow nor lose small variances to rounding."""

    @property
    def mean(self) -> Any:
        """exp(μ + σ²/2)."""
        return jnp.exp(jnp.minimum(self.loc + jnp.square(self.scale) / 2, LARGEST / 2))

    @property
    def variance(self) -> Any:
        """(exp(σ²) − 1) exp(2μ + σ²)."""
        square = jnp.square(self.scale)
        # log(e^s − 1) = s + log(1 − e^−s)
        log_factor = square + jnp.log(-jnp.expm1(-square))
        return jnp.exp(jnp.minimum(2 * self.loc + square + log_factor, LARGEST))


class LogNormal(Linked):
    r"""log y ~ N(centre + f(x), σ²): amounts above 0, whose errors are in proportion.

    The density is p(y) = N(log y; centre + f, σ²) / y, the mean exp(centre + f + σ²/2), the median
    exp(centre + f).

    An exponential of an extrapolating network would be astronomical. So f is itself up to
    ``reach`` on both sides and bent beyond, never more than 1 further; and a predicted σ is
    softplus(raw) up to ``widest``, and never 1 above it.

    Args:
        noise: σ, the standard deviation of log y. A number (or one per output) when it is known;
            ``"learned"`` for one parameter per output with a prior N(log initial, 1) on its
            logarithm; ``"predicted"`` for a network with 2 × D outputs, locations and then raw
            scales, σ = softplus(raw).
        initial: where learned noise starts, a number or one per output (default: 0.3 of the
            deviation of log y in the data of the fit).
        centre: added to f; the mean of log y, so that the network learns what is around it. A
            number or one per output.
        reach: how far f goes from 0, a number, or two of them, below and above.
        widest: up to where a predicted σ goes as it is.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.LogNormal(noise=0.5)
        >>> print(likelihood.log_prob(jnp.zeros((1, 1)), jnp.ones((1, 1)), {}, None).round(4))
        [-0.2258]

    Reference: Aitchison and Brown (1957), The Lognormal Distribution.
    """

    noise: Any
    widest: Any

    def __init__(
        self,
        noise: Any = "predicted",
        *,
        initial: Any = None,
        centre: Any = 0.0,
        reach: Any = REACH,
        widest: float = WIDEST,
    ):
        super().__init__(noise, initial, centre, reach)
        self.widest = above_zero("widest", widest)

    def for_data(self, y: np.ndarray, weight: np.ndarray) -> Likelihood:
        return with_start(self, OF_DEVIATION * deviations(np.log(y), weight))

    def location_scale(self, outputs: jax.Array, params: PyTree) -> tuple[jax.Array, jax.Array]:
        """Mean and deviation of log y, both in the shape of the targets."""
        f, noise, _ = self.parts(outputs, params)
        return self.within_reach(f), _scale(self, noise)

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        return StableLogNormal(*self.location_scale(outputs, params))

    def location(self, y: np.ndarray) -> np.ndarray:
        return np.log(np.asarray(y, np.float64)) - self.centre

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        numbers = "numbers above 0 for LogNormal (ZeroInflatedLogNormal takes zeros too)"
        check_support(y, y > 0, numbers)


def _scale(likelihood: Any, noise: jax.Array) -> jax.Array:
    if likelihood._spread_is("predicted"):
        return bent(jax.nn.softplus(noise) + FLOOR, 0.0, likelihood.widest)
    return noise


class HurdleLogNormal(Distribution):
    r"""0 with probability p₀ = sigmoid(zero), and log-normal otherwise.

    Its "density" is p₀ at 0, a probability, and (1 − p₀) times the log-normal density above.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {
        "zero": constraints.real,
        "loc": constraints.real,
        "scale": constraints.positive,
    }
    support = constraints.nonnegative

    def __init__(
        self,
        zero: ArrayLike,
        loc: ArrayLike,
        scale: ArrayLike,
        *,
        validate_args: bool | None = None,
    ):
        self.zero, self.loc, self.scale = jnp.broadcast_arrays(
            *(jnp.asarray(part) for part in (zero, loc, scale))
        )
        super().__init__(self.zero.shape, validate_args=validate_args)

    @property
    def is_discrete(self) -> bool:
        """True: at 0 the distribution function jumps, and quantiles must hit 0 exactly.

        Bisection stops a little above it, and an interval from there misses every zero.
        """
        return True

    @property
    def positive(self) -> StableLogNormal:
        """The distribution of what is above 0."""
        return StableLogNormal(self.loc, self.scale)

    def sample(self, key: jax.Array | None, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        """Draws of y."""
        assert key is not None
        of_zero, of_size = jax.random.split(key)
        shape = (*sample_shape, *self.batch_shape)
        absent = jax.random.bernoulli(of_zero, jax.nn.sigmoid(self.zero), shape)
        return jnp.where(absent, 0, self.positive.sample(of_size, sample_shape))

    def log_prob(self, value: Any, intermediates: Any = None) -> jax.Array:
        """log p₀ at 0, and log(1 − p₀) plus the log-normal log density above."""
        absent = value == 0
        above = self.positive.log_prob(jnp.where(absent, 1, value))
        log_p = jax.nn.log_sigmoid(jnp.where(absent, self.zero, -self.zero))
        return log_p + jnp.where(absent, 0, above)

    def cdf(self, value: Any) -> jax.Array:
        """P(Y ≤ value) = p₀ + (1 − p₀) Φ((log value − μ) / σ)."""
        above = value > 0
        below = jnp.where(above, self.positive.cdf(jnp.where(above, value, 1)), 0)
        return jax.nn.sigmoid(self.zero) + jax.nn.sigmoid(-self.zero) * below

    @property
    def mean(self) -> Any:
        """(1 − p₀) m, with the mean m of what is above 0."""
        return jax.nn.sigmoid(-self.zero) * self.positive.mean

    @property
    def variance(self) -> Any:
        """(1 − p₀) v + p₀ (1 − p₀) m², with the moments of what is above 0."""
        above, p = self.positive, jax.nn.sigmoid(self.zero)
        return jax.nn.sigmoid(-self.zero) * (above.variance + p * jnp.square(above.mean))


class ZeroInflatedLogNormal(Linked):
    r"""y = 0 with probability sigmoid(a(x)), and log y ~ N(centre + f(x), σ²) otherwise.

    For amounts that are often exactly 0: rain, claims, spending. The likelihood of a zero is its
    probability, that of another target (1 − sigmoid a) N(log y; centre + f, σ²) / y; the mean is
    (1 − sigmoid a) exp(centre + f + σ²/2). ``predictive.cdf(0)`` is the probability of a zero.
    Quantiles come from draws, so that those of zeros are exactly 0.

    The outputs of D targets are D of f, D raw scales where noise is predicted, and D of a.

    Args:
        noise: σ, as in [`LogNormal`][posterax.likelihoods.LogNormal].
        initial: as in [`LogNormal`][posterax.likelihoods.LogNormal].
        centre: added to f; the mean of the logarithms of the positive targets.
        reach: how far f goes from 0, as in [`LogNormal`][posterax.likelihoods.LogNormal].
        widest: as in [`LogNormal`][posterax.likelihoods.LogNormal].

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.ZeroInflatedLogNormal()
        >>> outputs, y = jnp.zeros((2, 3)), jnp.array([[0.0], [1.0]])
        >>> print(likelihood.log_prob(outputs, y, {}, None).round(4))
        [-0.6931 -1.2457]

    Reference: Duan, Manning, Morris and Newhouse (1983), A comparison of alternative models for
    the demand for medical care; their two-part model.
    """

    noise: Any
    widest: Any

    more: ClassVar[int] = 1

    def __init__(
        self,
        noise: Any = "predicted",
        *,
        initial: Any = None,
        centre: Any = 0.0,
        reach: Any = REACH,
        widest: float = WIDEST,
    ):
        super().__init__(noise, initial, centre, reach)
        self.widest = above_zero("widest", widest)

    def for_data(self, y: np.ndarray, weight: np.ndarray) -> Likelihood:
        if not np.any(y > 0):
            return self
        return with_start(self, OF_DEVIATION * _of_positive(y, weight))

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        f, noise, (zero,) = self.parts(outputs, params)
        return HurdleLogNormal(bent(zero, -20.0, 20.0), self.within_reach(f), _scale(self, noise))

    def location(self, y: np.ndarray) -> np.ndarray:
        y = np.asarray(y, np.float64)
        columns = y.reshape(len(y), -1)
        logs = np.log(np.where(columns > 0, columns, np.nan))
        for j, column in enumerate(logs.T):
            absent = np.isnan(column)
            low = 0.0 if absent.all() else np.nanquantile(column, OFTEN)
            logs[absent, j] = low
        return logs.reshape(y.shape) - self.centre

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        check_support(y, y >= 0, "numbers of 0 or more for ZeroInflatedLogNormal")


def _of_positive(y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The deviation of log y over the positive targets of each output."""
    columns = y.reshape(len(y), -1)
    found = [
        deviations(np.log(column[column > 0]), weight[column > 0]) if np.any(column > 0) else 1.0
        for column in columns.T
    ]
    return np.asarray(found, np.float64).reshape(y.shape[1:])
