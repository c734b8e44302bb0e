r"""Likelihoods: from network outputs to a distribution of the target.

`numpyro.distributions` is the vocabulary. A likelihood says how many outputs it reads, gives the
distribution of y, and may own parameters (a learned noise scale) with priors like any weight's.
"""

from collections.abc import Callable
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist

from .priors import Gaussian as GaussianPrior
from .priors.base import positive

Kind = Literal["regression", "counts", "classification"]


class Likelihood(eqx.Module):
    """p(y | outputs); subclasses give ``distribution`` and say what fits.

    ``params`` are the likelihood's own parameters, ``side`` what comes with the inputs but not
    through the network (an exposure).
    """

    @property
    def kind(self) -> Kind:
        """How predictions are summarised: by moments, or by class probabilities."""
        return "regression"

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        """Initial values of own parameters."""
        return {}

    def priors(self, params: dict[str, Any]) -> dict[str, Any]:
        """Priors of own parameters: by default standard around their initial values."""
        return {name: GaussianPrior(1.0, np.asarray(value)) for name, value in params.items()}

    def split(self, x: Any) -> tuple[Any, Any]:
        """Inputs of the network, and what the likelihood reads itself."""
        return x, None

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        """The distribution of y given outputs, one per example."""
        raise NotImplementedError

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: Any, side: Any) -> jax.Array:
        """log p(y | outputs) of each example."""
        log_prob = self.distribution(outputs, params, side).log_prob(y)
        return log_prob.reshape(log_prob.shape[0], -1).sum(-1)

    def probabilities(self, outputs: jax.Array, params: Any, side: Any) -> jax.Array:
        """Class probabilities with the classes last, for classification."""
        return self.distribution(outputs, params, side).probs

    def outputs_for(self, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The output shape of one example that fits targets of this shape."""
        return target_shape

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The target shape of one example that fits outputs of this shape."""
        return output_shape

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        """The shape of one target, once outputs and targets fit each other."""
        target = tuple(np.shape(y)[1:])
        # one output may be given as (N,) or (N, 1)
        shapes = [target] if target not in ((), (1,)) else [(), (1,)]
        for shape in shapes:
            if self.outputs_for(shape) == output_shape[1:]:
                return shape
        raise ValueError(
            f"y has shape {np.shape(y)} and the network's output {output_shape}: "
            f"{type(self).__name__} needs an output of shape "
            f"{(output_shape[0], *self.outputs_for(shapes[-1]))} for it"
        )

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        """Refuse target values outside the support."""


def _check_support(y: np.ndarray, fits: np.ndarray, expected: str) -> None:
    if not np.all(fits):
        first = tuple(int(i) for i in np.argwhere(~fits)[0])
        raise ValueError(f"y must hold {expected}, got {y[first]} at {first}")


def _check_noise(noise: Any, name: str = "noise") -> Any:
    if isinstance(noise, str):
        if noise not in ("learned", "predicted"):
            raise ValueError(
                f"{name} must be a positive number, 'learned' or 'predicted', got {noise!r}"
            )
        return noise
    return positive(name, noise)


class _LocationScale(Likelihood):
    """Location from the network; scale known, learned, or from the network too."""

    noise: Any
    initial: Any

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        if self._noise_is("learned"):
            return {"log_noise": jnp.full(target_shape, np.log(self.initial))}
        return {}

    def _noise_is(self, word: str) -> bool:
        return isinstance(self.noise, str) and self.noise == word

    def outputs_for(self, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._noise_is("predicted"):
            return (*target_shape[:-1], 2 * (target_shape[-1] if target_shape else 1))
        return target_shape

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        if self._noise_is("predicted"):
            return (*output_shape[:-1], output_shape[-1] // 2)
        return output_shape

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        shape = super().check(output_shape, y)
        if self._noise_is("predicted") and shape == ():
            return (1,)  # two outputs an example stand for targets of shape (N, 1)
        each = () if isinstance(self.noise, str) else np.shape(self.noise)
        if each != shape[len(shape) - len(each) :]:
            raise ValueError(
                f"noise must be one number or one per output, shape {shape}, got shape {each}"
            )
        return shape

    def location_scale(self, outputs: jax.Array, params: Any) -> tuple[jax.Array, jax.Array]:
        """Location and scale of y, both in the shape of the targets."""
        if self._noise_is("predicted"):
            location, raw = jnp.split(outputs, 2, axis=-1)
            # softplus keeps the scale positive; the floor keeps its logarithm finite
            return location, jax.nn.softplus(raw) + 1e-4
        if self._noise_is("learned"):
            return outputs, jnp.broadcast_to(jnp.exp(params["log_noise"]), outputs.shape)
        return outputs, jnp.broadcast_to(jnp.asarray(self.noise, outputs.dtype), outputs.shape)


class Gaussian(_LocationScale):
    r"""y ~ N(f(x), noise²): regression.

    Args:
        noise: the standard deviation of y around the network's output. A number (or one per
            output) when it is known; ``"learned"`` for one parameter per output with a prior
            N(log initial, 1) on its logarithm; ``"predicted"`` for a network with 2 × D outputs,
            means and then raw scales, σ = softplus(raw) (heteroscedastic).
        initial: where learned noise starts.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> likelihood = px.likelihoods.Gaussian(noise=0.5)
        >>> y = jnp.zeros((1, 1))
        >>> print(likelihood.log_prob(y, y, {}, None).round(4))
        [-0.2258]
    """

    def __init__(self, noise: Any = 0.1, *, initial: float = 0.1):
        self.noise, self.initial = _check_noise(noise), float(positive("initial", initial))

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return dist.Normal(*self.location_scale(outputs, params))


class StudentT(_LocationScale):
    """y ~ f(x) + noise · t(df): regression with outliers.

    Args:
        df: degrees of freedom; above 2, so that the variance exists.
        noise: as in [`Gaussian`][posterax.likelihoods.Gaussian]; the scale of the t.
        initial: where learned noise starts.
    """

    df: Any

    def __init__(self, df: float = 4.0, noise: Any = 0.1, *, initial: float = 0.1):
        self.noise, self.initial = _check_noise(noise), float(positive("initial", initial))
        if not df > 2:
            raise ValueError(f"df must be above 2 so that y has a variance, got {df!r}")
        self.df = float(df)

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return dist.StudentT(self.df, *self.location_scale(outputs, params))


class MultivariateGaussian(Likelihood):
    r"""y ~ N(f(x), Σ) with a full observation covariance over the outputs of one example.

    Args:
        covariance: Σ (D × D), or ``"learned"``: a Cholesky factor with standard Gaussian priors
            on its entries below the diagonal and on the logarithms of its diagonal.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> px.likelihoods.MultivariateGaussian(np.array([[1.0, 0.9], [0.9, 1.0]]))
        MultivariateGaussian(...)
    """

    covariance: Any
    cholesky: Any

    def __init__(self, covariance: Any):
        self.covariance, self.cholesky = covariance, None
        if isinstance(covariance, str):
            if covariance != "learned":
                raise ValueError(f"covariance must be a matrix or 'learned', got {covariance!r}")
            return
        sigma = np.asarray(covariance, np.float64)
        if sigma.ndim != 2 or sigma.shape[0] != sigma.shape[1] or not np.allclose(sigma, sigma.T):
            raise ValueError(f"covariance must be a symmetric matrix, got shape {sigma.shape}")
        self.covariance = sigma
        try:
            self.cholesky = np.linalg.cholesky(sigma)
        except np.linalg.LinAlgError:
            raise ValueError("covariance must be positive definite") from None

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        if self.cholesky is not None:
            return {}
        d = target_shape[-1]
        return {"log_diagonal": jnp.zeros(d), "lower": jnp.zeros(d * (d - 1) // 2)}

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        shape = super().check(output_shape, y) or (1,)
        fixed = self.cholesky is not None
        if len(output_shape) != 2 or (fixed and shape != self.cholesky.shape[:1]):
            size = "{} × {}".format(*self.cholesky.shape) if fixed else "D × D"
            raise ValueError(
                f"y has shape {np.shape(y)} and the network's output {output_shape}: "
                f"MultivariateGaussian with a {size} covariance needs both to be (N, D)"
            )
        return shape

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        if self.cholesky is not None:
            factor = jnp.asarray(self.cholesky, outputs.dtype)
        else:
            diagonal = jnp.exp(params["log_diagonal"])
            d = diagonal.shape[-1]
            factor = jnp.diag(diagonal).at[jnp.tril_indices(d, -1)].set(params["lower"])
        return dist.MultivariateNormal(outputs, scale_tril=factor)


class Categorical(Likelihood):
    r"""y ~ Categorical(softmax f(x)): classification, labels 0 … K−1, K outputs.

    Targets may have more axes (one label a pixel): outputs then are (N, H, W, K).

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> logits = jnp.zeros((1, 4))
        >>> print(px.likelihoods.Categorical().log_prob(logits, jnp.array([2]), {}, None).round(4))
        [-1.3863]
    """

    @property
    def kind(self) -> Kind:
        return "classification"

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return dist.Categorical(logits=outputs)

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: Any, side: Any) -> jax.Array:
        log_p = jax.nn.log_softmax(outputs)
        # a comparison, not a look-up: the derivative of a look-up is a scatter, slow everywhere
        picked = jnp.where(jnp.arange(log_p.shape[-1]) == y[..., None], log_p, 0)
        return picked.reshape(picked.shape[0], -1).sum(-1)

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        return output_shape[:-1]

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        target = tuple(np.shape(y)[1:])
        if len(output_shape) < 2 or output_shape[1:-1] != target or output_shape[-1] < 2:
            raise ValueError(
                f"y has shape {np.shape(y)} and the network's output {output_shape}: Categorical "
                f"needs labels of shape (N,) and one output per class, (N, K) with K of 2 or more"
            )
        return target

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        classes = output_shape[-1]
        _check_support(y, y == np.floor(y), "whole numbers, the class labels, for Categorical")
        labels = f"labels 0 … {classes - 1} for a network with {classes} outputs"
        _check_support(y, (y >= 0) & (y < classes), labels)


class Bernoulli(Likelihood):
    """y ~ Bernoulli(sigmoid f(x)): one output, labels 0 and 1.

    Predictions have two classes, like any classification.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> out = jnp.zeros((1, 1))
        >>> print(px.likelihoods.Bernoulli().log_prob(out, out, {}, None).round(4))
        [-0.6931]
    """

    @property
    def kind(self) -> Kind:
        return "classification"

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return dist.Bernoulli(logits=outputs)

    def probabilities(self, outputs: jax.Array, params: Any, side: Any) -> jax.Array:
        one = outputs.reshape(outputs.shape[0]) if outputs.size == outputs.shape[0] else outputs
        return jnp.stack([jax.nn.sigmoid(-one), jax.nn.sigmoid(one)], axis=-1)

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        _check_support(y, (y == 0) | (y == 1), "0 and 1 only for Bernoulli")


class Poisson(Likelihood):
    r"""y ~ Poisson(exposure · exp f(x)): counts.

    Args:
        exposure: with ``True`` the inputs are a pair ``(x, exposure)``, in fitting and
            predicting; the exposure (time, area, population at risk) has the shape of y.

    Example:
        >>> import posterax as px
        >>> px.likelihoods.Poisson(exposure=True)
        Poisson(exposure=True)
    """

    exposure: bool = eqx.field(static=True, default=False)

    @property
    def kind(self) -> Kind:
        return "counts"

    def split(self, x: Any) -> tuple[Any, Any]:
        if not self.exposure:
            return x, None
        if not (isinstance(x, tuple) and len(x) == 2):
            raise TypeError(
                f"x must be a pair (x, exposure) for Poisson(exposure=True), got {type(x).__name__}"
            )
        return x

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        log_rate = outputs
        if self.exposure:
            log_rate = log_rate + jnp.log(side).reshape(outputs.shape)
        return dist.Poisson(jnp.exp(log_rate))

    def check_values(self, y: np.ndarray, output_shape: tuple[int, ...]) -> None:
        counts = "counts, whole numbers of 0 or more, for Poisson"
        _check_support(y, (y >= 0) & (y == np.floor(y)), counts)


class From(Likelihood):
    """Any likelihood: a function from outputs to a numpyro distribution.

    Args:
        function: ``outputs → distribution``, batched over examples; it may take ``params`` too.
        params: own parameters with their initial values.
        kind: ``"regression"``, ``"counts"`` or ``"classification"``.

    Example:
        >>> import numpyro.distributions as dist
        >>> import posterax as px
        >>> likelihood = px.likelihoods.From(lambda f: dist.Laplace(f, 0.1))
        >>> likelihood.kind
        'regression'
    """

    function: Callable[..., dist.Distribution] = eqx.field(static=True)
    params: dict[str, Any]
    family: Kind = eqx.field(static=True)

    def __init__(
        self,
        function: Callable[..., dist.Distribution],
        params: dict[str, Any] | None = None,
        *,
        kind: Kind = "regression",
    ):
        self.function = function
        self.params = {k: np.asarray(v, np.float64) for k, v in (params or {}).items()}
        if kind not in ("regression", "counts", "classification"):
            raise ValueError(
                f"kind must be 'regression', 'counts' or 'classification', got {kind!r}"
            )
        self.family = kind

    @property
    def kind(self) -> Kind:
        return self.family

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        return {name: jnp.asarray(value, jnp.float32) for name, value in self.params.items()}

    def distribution(self, outputs: jax.Array, params: Any, side: Any = None) -> dist.Distribution:
        return self.function(outputs, params) if self.params else self.function(outputs)

    def check(self, output_shape: tuple[int, ...], y: Any) -> tuple[int, ...]:
        made = jax.eval_shape(
            lambda f: self.distribution(f, self.init(())).sample(jax.random.key(0)),
            jax.ShapeDtypeStruct(output_shape, jnp.float32),
        )
        target, drawn = tuple(np.shape(y)[1:]), tuple(made.shape[1:])
        one_each = made.shape[:1] == output_shape[:1]
        if one_each and (drawn == target or {drawn, target} == {(), (1,)}):
            return drawn
        raise ValueError(
            f"y has shape {np.shape(y)}, but the likelihood's distribution for outputs "
            f"{output_shape} draws {tuple(made.shape)}"
        )
