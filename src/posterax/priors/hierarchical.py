r"""A Gaussian prior that learns its own width, the one hyperparameter people would have to guess.

    w ~ N(0, s²),  s² ~ InverseGamma(a, b)

one s² for each array, or for each input of a layer. The variances are never sampled. Integrated
out they leave a Student t over all weights that share one,

    log p(w) = log Γ(a + n/2) − log Γ(a) − (n/2) log 2πb − (a + n/2) log(1 + Σw² / 2b)

and in variational inference their optimal posterior is an inverse gamma again, so that the bound
has the same closed form with Σ(μ² + σ²) in the place of Σw².
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jax.typing import DTypeLike
from numpy.typing import ArrayLike

from .base import LOG_2PI, Prior, positive


class Hierarchical(Prior):
    r"""w ~ N(0, s²) with s² ~ InverseGamma(concentration, rate / fan-in), s² learned.

    With ``relevance=True`` every input of a weight matrix has an s² of its own: inputs that do
    not help lose their weights (automatic relevance determination, MacKay 1992; Neal 1996).

    ``kl_from_gaussian`` is KL(q(w) q(s²) ‖ p(w, s²)) at the best q(s²), the term of the evidence
    lower bound with s² among the unknowns; it is above KL(q(w) ‖ p(w)).

    Args:
        concentration: a; larger holds s² closer to its prior.
        rate: b; the prior mode of s² is b / (a + 1), divided by the fan-in for matrices.
        relevance: one s² for each input of a matrix instead of one for the matrix.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> prior = px.priors.Hierarchical(concentration=1.0, rate=1.0)
        >>> print(f"{prior.log_prob(jnp.zeros(1)).sum():.4f}")  # a Student t with 2 degrees
        -1.0397

    Reference:
        Wu, Nowozin, Meeds, Turner, Hernández-Lobato and Gaunt, *Deterministic variational
        inference for robust Bayesian neural networks*, ICLR 2019, optimise s² in the same bound;
        here it is integrated out.
    """

    concentration: Any
    rate: Any
    relevance: bool = eqx.field(static=True)
    _outputs: int = eqx.field(static=True, repr=False)  # the axis of a layer's outputs
    # of a vector of some entries of an array: the number of the s² that each has
    _groups: Any = eqx.field(repr=False)
    _count: int = eqx.field(static=True, repr=False)

    def __init__(
        self,
        concentration: ArrayLike = 1.0,
        rate: ArrayLike = 1.0,
        *,
        relevance: bool = False,
        _outputs: int = 0,
        _groups: Any = None,
        _count: int = 0,
    ):
        self.concentration = positive("concentration", concentration)
        self.rate = positive("rate", rate)
        self.relevance = bool(relevance)
        self._outputs = _outputs
        self._groups, self._count = _groups, _count

    def _shared(self, ndim: int) -> tuple[int, ...]:
        """The axes along which weights share one s²."""
        return (self._outputs % ndim,) if self.relevance and ndim > 1 else tuple(range(ndim))

    def _group_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """An array's shape with 1 for axes along which weights share one s²."""
        shared = self._shared(len(shape))
        return tuple(1 if axis in shared else size for axis, size in enumerate(shape))

    def _log_evidence(self, squares: jax.Array) -> jax.Array:
        """log ∫ N(w | 0, s²) p(s²) ds² from the squares of w, summed over all groups."""
        a, b = (jnp.asarray(v, squares.dtype) for v in (self.concentration, self.rate))
        if self._groups is None:
            total = jnp.sum(squares, axis=self._shared(squares.ndim))
            n: Any = squares.size / max(total.size, 1)
        else:  # a group that lost all its entries adds nothing
            total, n = (self._by_group(v) for v in (squares, jnp.ones_like(squares)))
        constant = gammaln(a + n / 2) - gammaln(a) - n / 2 * (LOG_2PI + jnp.log(b))
        return jnp.sum(constant - (a + n / 2) * jnp.log1p(total / (2 * b)))

    def _by_group(self, values: jax.Array) -> jax.Array:
        return jnp.zeros(self._count, values.dtype).at[self._groups].add(values)

    def log_prob(self, w: jax.Array) -> jax.Array:
        return self._log_evidence(jnp.square(w))

    def kl_from_gaussian(self, mu: jax.Array, sigma: jax.Array) -> jax.Array:
        entropy = jnp.log(sigma) + 0.5 * (1 + LOG_2PI)
        return -entropy - self._log_evidence(jnp.square(mu) + jnp.square(sigma)) / max(mu.size, 1)

    def sample(self, key: jax.Array, shape: tuple[int, ...], dtype: DTypeLike) -> jax.Array:
        scale_key, noise_key = jax.random.split(key)
        groups = self._group_shape(shape) if self._groups is None else (self._count,)
        a, b = (jnp.asarray(v, dtype) for v in (self.concentration, self.rate))
        variance = b / jax.random.gamma(scale_key, a, groups, dtype)
        if self._groups is not None:
            variance = variance[self._groups]
        return jnp.sqrt(variance) * jax.random.normal(noise_key, shape, dtype)

    def for_shape(self, shape: tuple[int, ...], fan_in: Callable[..., int]) -> "Prior":
        # networks keep (out, in, …) or (…, in, out): their fan-in tells which
        outputs = 0 if fan_in((2, 3)) == 3 else -1
        return dataclasses.replace(self, rate=self.rate / fan_in(shape), _outputs=outputs)

    def restrict(self, shape: tuple[int, ...], positions: np.ndarray) -> "Prior":
        if self._groups is not None:
            groups, count = np.asarray(self._groups)[positions], self._count
        elif self.relevance and len(shape) > 1:
            of = self._group_shape(shape)
            count = int(np.prod(of))
            groups = np.broadcast_to(np.arange(count).reshape(of), shape).reshape(-1)[positions]
        else:
            return self
        return dataclasses.replace(self, _groups=jnp.asarray(groups, jnp.int32), _count=count)
