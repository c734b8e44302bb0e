"""What a likelihood knows, and the one that is made of any distribution."""

from collections.abc import Callable
from typing import Any, ClassVar, Literal, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import PyTree
from numpy.typing import ArrayLike
from numpyro.distributions import Distribution

from .._util.checks import one_of
from ..priors import Gaussian as GaussianPrior

Kind = Literal["regression", "counts", "classification"]


class Likelihood(eqx.Module):
    """p(y | outputs); subclasses give ``distribution`` and say what fits.

    ``params`` are the likelihood's own parameters, ``side`` what comes with the inputs but not
    through the network (an exposure).
    """

    family: ClassVar[Kind] = "regression"

    @property
    def kind(self) -> Kind:
        """How predictions are summarised: by moments, or by class probabilities."""
        return self.family

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        """Initial values of own parameters."""
        return {}

    def for_data(self, y: np.ndarray, weight: np.ndarray) -> "Likelihood":
        """The same likelihood with what it takes from the targets before a fit.

        ``y`` are targets of a fit, (N, …) in the shape that ``check`` found, and ``weight`` is how
        much each row counts.
        """
        return self

    def priors(self, params: dict[str, Any]) -> dict[str, Any]:
        """Priors of own parameters: by default standard around their initial values."""
        return {name: GaussianPrior(1.0, np.asarray(value)) for name, value in params.items()}

    def split(self, x: PyTree) -> tuple[Any, Any]:
        """Inputs of the network, and what the likelihood reads itself."""
        return x, None

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        """The distribution of y given outputs, one per example."""
        raise NotImplementedError

    def log_prob(self, outputs: jax.Array, y: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        """log p(y | outputs) of each example."""
        log_prob = self.distribution(outputs, params, side).log_prob(y)
        return log_prob.reshape(log_prob.shape[0], -1).sum(-1)

    def probabilities(self, outputs: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        """Class probabilities with the classes last, for classification."""
        distribution = self.distribution(outputs, params, side)
        p = distribution.probs
        return jnp.stack([1 - _flat(p), _flat(p)], -1) if _two(distribution, p) else p

    def log_probabilities(self, outputs: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        """The logarithms of ``probabilities``, from logits, which do not underflow."""
        distribution = self.distribution(outputs, params, side)
        logits = distribution.logits
        if _two(distribution, logits):
            return jax.nn.log_sigmoid(jnp.stack([-_flat(logits), _flat(logits)], -1))
        return jax.nn.log_softmax(logits)

    def marginal(self, outputs: jax.Array, params: PyTree, side: PyTree) -> Distribution:
        """The distribution of each output of an example alone, in the shape of the targets."""
        distribution = self.distribution(outputs, params, side)
        while isinstance(distribution, dist.Independent):
            distribution = distribution.base_dist
        if distribution.event_shape != ():
            raise NotImplementedError(f"{type(distribution).__name__} has no marginals here")
        return distribution

    def output_covariance(self, outputs: jax.Array, params: PyTree, side: PyTree) -> jax.Array:
        """Cov[y | outputs] over the outputs of each example, (N, D, D)."""
        distribution = self.distribution(outputs, params, side)
        if hasattr(distribution, "covariance_matrix"):
            matrix = distribution.covariance_matrix
            return jnp.broadcast_to(matrix, (outputs.shape[0], *matrix.shape[-2:]))
        try:
            variance = self.marginal(outputs, params, side).variance.reshape(outputs.shape[0], -1)
        except NotImplementedError:
            name = type(distribution).__name__
            raise ValueError(
                f"covariance: {name} does not tell its own; np.cov of sample(n) estimates it"
            ) from None
        return variance[..., None] * jnp.eye(variance.shape[-1], dtype=variance.dtype)

    def widened(self, outputs: jax.Array, factor: Any) -> jax.Array:
        """Outputs whose noise is ``factor`` times as wide.

        The outputs themselves where the likelihood predicts no noise. ``factor`` is above 0, a
        number or one per target, and may be traced; 1 changes nothing but the rounding.

        Example:
            >>> import jax.numpy as jnp
            >>> import posterax as px
            >>> px.likelihoods.Categorical().widened(jnp.array([[2.0, -2.0]]), 2.0).tolist()
            [[1.0, -1.0]]
        """
        return outputs

    def location(self, y: np.ndarray) -> np.ndarray:
        """Targets on the scale of the network's first outputs, in the shape of ``y``.

        A model of these, whatever it is, can be added to those outputs. Where there is no such
        scale, as for classes: ``NotImplementedError``.

        Example:
            >>> import numpy as np
            >>> import posterax as px
            >>> px.likelihoods.LogNormal().location(np.array([1.0, np.e])).tolist()
            [0.0, 1.0]
        """
        raise NotImplementedError(f"{type(self).__name__} has no targets on the outputs' scale")

    def outputs_for(self, target_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The output shape of one example that fits targets of this shape."""
        return target_shape

    def target_for(self, output_shape: tuple[int, ...]) -> tuple[int, ...]:
        """The target shape of one example that fits outputs of this shape."""
        return output_shape

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
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


def _two(distribution: Distribution, values: jax.Array) -> bool:
    """Whether one number stands for two classes, as in a Bernoulli distribution."""
    return values.shape == distribution.batch_shape


def _flat(values: jax.Array) -> jax.Array:
    """One number an example as (N,), more as they are."""
    return values.reshape(len(values)) if values.size == len(values) else values


def check_support(y: np.ndarray, fits: np.ndarray, expected: str) -> None:
    if not np.all(fits):
        first = tuple(int(i) for i in np.argwhere(~fits)[0])
        raise ValueError(f"y must hold {expected}, got {y[first]} at {first}")


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

    function: Callable[..., Distribution] = eqx.field(static=True)
    params: dict[str, Any]
    family: Kind = eqx.field(static=True)  # type: ignore[misc]

    def __init__(
        self,
        function: Callable[..., Distribution],
        params: dict[str, Any] | None = None,
        *,
        kind: Kind = "regression",
    ):
        self.function = function
        self.params = {k: np.asarray(v, np.float64) for k, v in (params or {}).items()}
        self.family = one_of("kind", kind, get_args(Kind))

    def init(self, target_shape: tuple[int, ...]) -> dict[str, Any]:
        return {name: jnp.asarray(value, jnp.float32) for name, value in self.params.items()}

    def distribution(self, outputs: jax.Array, params: PyTree, side: PyTree = None) -> Distribution:
        return self.function(outputs, params) if self.params else self.function(outputs)

    def check(self, output_shape: tuple[int, ...], y: ArrayLike) -> tuple[int, ...]:
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
