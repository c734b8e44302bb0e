r"""A weight that is a distribution: local reparameterization and Flipout for any network.

A weight becomes an array-like value w = (mean, std); the network's own code runs on it unchanged,
and the estimator is a rule for what a product with it gives:

- **local** (Kingma, Salimans and Welling 2015): the product of x with independent Gaussian
  weights is Gaussian, so sample it instead, with noise of its own for every output:
  x·w ~ N(x·mean, x²·std²);
- **flipout** (Wen et al. 2018): one shared perturbation, decorrelated between examples by random
  signs: x·mean + ((x ∘ s)·(std ∘ ε)) ∘ r.

Weights that are used more than once, inside a loop, or other than as a factor of a product are
sampled in weight space (see ``reuse``). A weight of a convolution meets many positions; both
rules treat them as independent, as is usual, so moments are exact position by position.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import quax
from jax import lax
from jaxtyping import ArrayLike

from .._noise import standard_normal
from ..model import Model, Parameters
from .reuse import single_use


class GaussianArray(quax.ArrayValue):
    """An array of independent Gaussians with the noise key of its only use."""

    mean: jax.Array
    std: jax.Array
    key: jax.Array
    sign: jax.Array  # −1 for the second of an antithetic pair
    rule: str = eqx.field(static=True)

    def aval(self) -> Any:
        return jax.core.ShapedArray(self.mean.shape, self.mean.dtype)

    def materialise(self) -> jax.Array:
        """A plain sample, for uses without a rule."""
        return self.mean + self.std * _normal(self, self.mean)

    def map(self, function: Any) -> "GaussianArray":
        """The same weight seen through a rearrangement of its entries."""
        return GaussianArray(
            function(self.mean), function(self.std), self.key, self.sign, self.rule
        )


def _normal(w: GaussianArray, like: jax.Array) -> jax.Array:
    return w.sign.astype(like.dtype) * standard_normal(w.key, like.shape, like.dtype)


def _product(w: GaussianArray, x: Any, multiply: Any) -> jax.Array:
    """The product of x with a random weight; ``multiply(weights, x)`` is linear in both."""
    mean = multiply(w.mean, x)
    if w.rule == "local":
        variance = multiply(jnp.square(w.std), jnp.square(x))
        positive = variance > 0  # the root has no derivative at 0, where x is all zero
        std = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        return mean + std * _normal(w, mean)
    noise, signs_in, signs_out = jax.random.split(w.key, 3)
    shared = w.sign.astype(x.dtype) * w.std * standard_normal(noise, w.std.shape, w.std.dtype)
    into = jax.random.rademacher(signs_in, x.shape, x.dtype)
    out = jax.random.rademacher(signs_out, mean.shape, mean.dtype)
    return mean + out * multiply(shared, x * into)


@quax.register(lax.dot_general_p)
def _(lhs: GaussianArray, rhs: ArrayLike, **params: Any) -> Any:
    return _product(lhs, rhs, lambda w, x: lax.dot_general_p.bind(w, x, **params))


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    return _product(rhs, lhs, lambda w, x: lax.dot_general_p.bind(x, w, **params))


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    return _product(rhs, lhs, lambda w, x: lax.conv_general_dilated_p.bind(x, w, **params))


@quax.register(lax.transpose_p)
def _(w: GaussianArray, *, permutation: Any) -> Any:
    return w.map(lambda a: lax.transpose(a, permutation))


@quax.register(lax.reshape_p)
def _(w: GaussianArray, **params: Any) -> Any:
    return w.map(lambda a: lax.reshape_p.bind(a, **params))


@quax.register(lax.squeeze_p)
def _(w: GaussianArray, *, dimensions: Any) -> Any:
    return w.map(lambda a: lax.squeeze(a, dimensions))


@quax.register(lax.convert_element_type_p)
def _(w: GaussianArray, **params: Any) -> Any:
    return w.map(lambda a: lax.convert_element_type_p.bind(a, **params))


def forward(
    model: Model,
    rule: str,
    mu: Parameters,
    sigma: Parameters,
    state: Any,
    x: Any,
    noise: jax.Array,
    sign: jax.Array,
    key: jax.Array,
) -> tuple[jax.Array, Any, Parameters]:
    """Outputs of the network with random weights, its new state, and the likelihood's sample.

    Args:
        model: the model.
        rule: ``"local"`` or ``"flipout"``.
        mu: means.
        sigma: deviations.
        state: the network's state.
        x: a batch of inputs.
        noise: key of the weights' noise.
        sign: −1 for the second of an antithetic pair.
        key: key of the network's own randomness (dropout).
    """

    def network(weights: Any, x: Any, state: Any) -> Any:
        own = Parameters(weights, None)
        return model.apply(own, state, x, key, training=True)

    once = single_use(network, mu.network, x, state)
    means, treedef = jax.tree.flatten(mu)
    stds = jax.tree.leaves(sigma)
    products = [*jax.tree.leaves(once), *[False] * len(jax.tree.leaves(mu.likelihood))]
    keys = jax.random.split(noise, len(means))

    def value(mean: jax.Array, std: jax.Array, key: jax.Array, product: bool) -> Any:
        w = GaussianArray(mean, std, key, sign, rule)
        return w if product else w.materialise()

    values = [value(*parts) for parts in zip(means, stds, keys, products, strict=True)]
    params = jax.tree.unflatten(treedef, values)
    # under jit the network sees plain tracers: modules that insist on arrays are content
    outputs, state = quax.quaxify(jax.jit(network))(params.network, x, state)
    return outputs, state, params
