r"""A weight that is a distribution: local reparameterization and Flipout for any network.

A weight becomes an array-like value w = (mean, std); the network's own program runs on it
unchanged, and the estimator is a rule for what a product with it gives:

- **local** (Kingma, Salimans and Welling 2015): the product of x with independent Gaussian
  weights is Gaussian, so sample it instead, with noise of its own for every output:
  x·w ~ N(x·mean, x²·std²);
- **auto**: local where that is exact, in products whose rows are the examples; elsewhere a weight
  sample;
- **flipout** (Wen et al. 2018): one shared perturbation, decorrelated between examples by random
  signs: x·mean + ((x ∘ s)·(std ∘ ε)) ∘ r.

Where a network is pruned, its weights are put back among constant zeros before it is run, and the
rules are those of complete arrays.

Weights that are used more than once, inside a loop, or other than as a factor of a product with
data are sampled in weight space (see ``reuse``): one sample, exact, shared by the batch.

**What is exact.** A weight meets an example in several places where the example has positions: the
pixels of an image, the steps of a series.

- In a *convolution* flipout draws signs per example and channel, constant over space, so all
  positions of an example see one weight sample and the distribution of a whole convolutional
  network's output is exact, example by example. Local noise is independent between positions:
  exact at each, not jointly.
- In a *matrix product* both rules take every row for an example. For inputs (examples, features)
  it is one, and the output's distribution is exact. Inputs with a time axis, (examples, time,
  features), have a row at every step: each step sees a weight sample of its own. Means and
  variances are exact at every step; what mixes steps afterwards (attention's keys and values, an
  average over time) sees noise that is independent between them, with less variance than one
  weight sample would give. ``estimator="weight"`` has no such gap.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree

from .._util.jax_names import ShapedArray
from .._util.noise import standard_normal
from ..model import Model, Parameters
from ..program.random_weights import RandomArray, run
from ..program.reuse import PRODUCT, find_uses


class GaussianArray(RandomArray):
    """An array of independent Gaussians with the noise key of its only use."""

    mean: jax.Array
    std: jax.Array
    # the variances, or for flipout the shared perturbation: made in the weight's own order, and so
    # are derivatives
    spread: jax.Array
    key: jax.Array
    sign: jax.Array  # −1 for the second of an antithetic pair
    rule: str = eqx.field(static=True)
    rows: int = eqx.field(static=True)  # examples in the batch

    def aval(self) -> ShapedArray:
        return ShapedArray(self.mean.shape, self.mean.dtype)

    def materialise(self) -> jax.Array:
        """A plain sample, for uses without a rule."""
        return self.mean + self.std * _normal(self, self.mean)

    def map(self, function: Callable[[jax.Array], jax.Array]) -> "GaussianArray":
        mean, std, spread = map(function, (self.mean, self.std, self.spread))
        return GaussianArray(mean, std, spread, self.key, self.sign, self.rule, self.rows)

    def product(
        self, x: jax.Array, multiply: Callable, inside: tuple[int, ...], outside: Callable
    ) -> jax.Array:
        if self.rule == "auto" and not _meets_examples(jnp.shape(x), inside, self.rows):
            return multiply(self.materialise(), x)
        mean = multiply(self.mean, x)
        if self.rule in ("auto", "local"):
            variance = multiply(self.spread, jnp.square(x))
            positive = variance > 0  # the root has no derivative at 0, where x is all zero
            std = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
            return mean + std * _normal(self, mean)
        _, signs_in, signs_out = jax.random.split(self.key, 3)
        into = jax.random.rademacher(signs_in, inside, x.dtype)
        out = jax.random.rademacher(signs_out, outside(mean), mean.dtype)
        return mean + out * multiply(self.spread, x * into)


def _spread(std: jax.Array, key: jax.Array, sign: jax.Array, rule: str) -> jax.Array:
    """What a product takes besides the mean."""
    if rule != "flipout":
        return jnp.square(std)
    normal = standard_normal(jax.random.split(key, 3)[0], std.shape, std.dtype)
    return sign.astype(std.dtype) * std * normal


def _normal(w: GaussianArray, like: jax.Array) -> jax.Array:
    return w.sign.astype(like.dtype) * standard_normal(w.key, like.shape, like.dtype)


def _meets_examples(shape: tuple[int, ...], inside: tuple[int, ...], rows: int) -> bool:
    """Whether a product's factor of this shape has the examples for its rows, and nothing else."""
    return len(shape) == 2 and inside == shape and rows in shape


def has_local(model: Model, inputs: PyTree) -> bool:
    """Whether any weight of a network meets examples alone, so that local noise is exact for it.

    Example:
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.posteriors.random_weights import has_local
        >>> likelihood = px.likelihoods.Gaussian(0.1)
        >>> line = {"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"]
        >>> has_local(px.Model(line, likelihood=likelihood), jnp.ones((5, 2)))
        True
        >>> steps = {"w": jnp.ones((2, 1))}, lambda p, x: (x @ p["w"]).sum(1)
        >>> has_local(px.Model(steps, likelihood=likelihood), jnp.ones((5, 7, 2)))
        False
    """
    if jax.tree.leaves(model.network.state):
        return False  # batch statistics make one example depend on the weights of the others
    given = model.parameters
    model, unfold = model.unfolded()
    weights, state = unfold(given).network, model.network.state

    def network(weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
        # keys only matter for what is random, and not for how weights are used
        key = jax.random.key(0)
        return model.apply(Parameters(weights, None), state, x, key, training=True)

    program = jax.make_jaxpr(network)(weights, inputs, state)
    rows = jax.tree.leaves(inputs)[0].shape[0]
    found = find_uses(program, len(jax.tree.leaves(weights)), len(jax.tree.leaves(inputs)))
    for own in found:
        if len(own) != 1 or own[0].kind != PRODUCT:
            continue
        eqn: Any = own[0].eqn
        shape = eqn.invars[1 - own[0].position].aval.shape
        if eqn.primitive.name == "dot_general" and _meets_examples(shape, shape, rows):
            return True
    return False


def forward(
    model: Model,
    rule: str,
    mu: Parameters,
    sigma: Parameters,
    state: PyTree,
    x: PyTree,
    noise: jax.Array,
    sign: jax.Array,
    key: jax.Array | None,
    *,
    training: bool = True,
) -> tuple[jax.Array, PyTree, Parameters]:
    """Outputs of the network with random weights, its new state, and the likelihood's sample.

    (The last among weights of the network that mean nothing.)

    Args:
        model: the model.
        rule: ``"auto"``, ``"local"`` or ``"flipout"``.
        mu: means.
        sigma: deviations, ``None`` for points.
        state: the network's state.
        x: a batch of inputs.
        noise: key of the weights' noise.
        sign: −1 for the second of an antithetic pair.
        key: key of the network's own randomness (dropout).
        training: whether the network is in training mode.

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.posteriors.random_weights import forward
        >>> network = ({"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"])
        >>> model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))
        >>> mu, sigma = model.parameters, jax.tree.map(jnp.ones_like, model.parameters)
        >>> x, key = jnp.ones((5000, 2)), jax.random.key(0)
        >>> y, _, _ = forward(model, "local", mu, sigma, (), x, key, jnp.ones(()), key)
        >>> bool(abs(y.mean() - 2) < 0.1), bool(abs(y.var() - 2) < 0.2)  # N(2, 2), row by row
        (True, True)
    """
    # a pruned weight is one with a mean and a deviation of 0, in the product as in any other use
    model, unfold = model.unfolded()
    mu, sigma = unfold(mu), unfold(sigma)
    treedef: Any = jax.tree.structure(mu)
    stds = treedef.flatten_up_to(sigma)
    keys = jax.random.split(noise, len(stds))
    rows = jax.tree.leaves(x)[0].shape[0]

    def draw(i: int, mean: jax.Array, use: str) -> PyTree:
        if stds[i] is None:
            return mean
        spread = _spread(stds[i], keys[i], sign, rule)
        w = GaussianArray(mean, stds[i], spread, keys[i], sign, rule, rows)
        return w if use == PRODUCT else w.materialise()

    def network(weights: PyTree, x: PyTree, state: PyTree) -> PyTree:
        return model.apply(Parameters(weights, None), state, x, key, training=training)

    (outputs, state), weights = run(network, mu.network, draw, x, state)
    own, tree = jax.tree.flatten(mu.likelihood)
    first = len(stds) - len(own)
    own = [draw(first + i, mean, "likelihood") for i, mean in enumerate(own)]
    return outputs, state, Parameters(weights, jax.tree.unflatten(tree, own))
