r"""A weight that is a distribution: local reparameterization and Flipout for any network.

A weight becomes an array-like value w = (mean, std); the network's own program runs on it
unchanged, and the estimator is a rule for what a product with it gives:

- **local** (Kingma, Salimans and Welling 2015): the product of x with independent Gaussian
  weights is Gaussian, so sample it instead, with noise of its own for every output:
  x·w ~ N(x·mean, x²·std²);
- **flipout** (Wen et al. 2018): one shared perturbation, decorrelated between examples by random
  signs: x·mean + ((x ∘ s)·(std ∘ ε)) ∘ r.

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

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import quax
from jax import lax
from jax.extend import core as jex
from jaxtyping import ArrayLike

from .._noise import standard_normal
from ..model import Model, Parameters
from ..networks.shared import STRUCTURAL, bind, called
from .reuse import CALLS, PRODUCT, kinds


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


def _product(w: GaussianArray, x: Any, multiply: Any, sign_shapes: Any = None) -> jax.Array:
    """The product of x with a random weight.

    Args:
        w: the weight.
        x: the other factor.
        multiply: ``multiply(weights, x)``, linear in both.
        sign_shapes: a function of the product that gives the shapes of flipout's signs for x and
            for the product, 1 along axes that share a sign; by default every entry has its own.
    """
    mean = multiply(w.mean, x)
    if w.rule == "local":
        variance = multiply(jnp.square(w.std), jnp.square(x))
        positive = variance > 0  # the root has no derivative at 0, where x is all zero
        std = jnp.where(positive, jnp.sqrt(jnp.where(positive, variance, 1)), 0)
        return mean + std * _normal(w, mean)
    noise, signs_in, signs_out = jax.random.split(w.key, 3)
    shared = w.sign.astype(x.dtype) * w.std * standard_normal(noise, w.std.shape, w.std.dtype)
    shape_in, shape_out = (x.shape, mean.shape) if sign_shapes is None else sign_shapes(mean)
    into = jax.random.rademacher(signs_in, shape_in, x.dtype)
    out = jax.random.rademacher(signs_out, shape_out, mean.dtype)
    return mean + out * multiply(shared, x * into)


@quax.register(lax.dot_general_p)
def _(lhs: GaussianArray, rhs: ArrayLike, **params: Any) -> Any:
    return _product(lhs, rhs, lambda w, x: lax.dot_general_p.bind(w, x, **params))


@quax.register(lax.dot_general_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    return _product(rhs, lhs, lambda w, x: lax.dot_general_p.bind(x, w, **params))


@quax.register(lax.conv_general_dilated_p)
def _(lhs: ArrayLike, rhs: GaussianArray, **params: Any) -> Any:
    axes = params["dimension_numbers"]

    def sizes(shape: Any, spec: Any) -> tuple[int, ...]:
        # spec lists the axes: examples, channels, space …
        return tuple(size if axis in spec[:2] else 1 for axis, size in enumerate(shape))

    return _product(
        rhs,
        lhs,
        lambda w, x: lax.conv_general_dilated_p.bind(x, w, **params),
        lambda out: (sizes(jnp.shape(lhs), axes.lhs_spec), sizes(out.shape, axes.out_spec)),
    )


def _see_through(primitive: Any) -> None:
    @quax.register(primitive)
    def _(w: GaussianArray, **params: Any) -> Any:
        return w.map(lambda a: primitive.bind(a, **params))


for _name in STRUCTURAL:
    _see_through(getattr(lax, f"{_name}_p"))


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
        sigma: deviations, ``None`` for points.
        state: the network's state.
        x: a batch of inputs.
        noise: key of the weights' noise.
        sign: −1 for the second of an antithetic pair.
        key: key of the network's own randomness (dropout).

    Example:
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import posterax as px
        >>> from posterax.infer.estimators import forward
        >>> network = ({"w": jnp.ones((2, 1))}, lambda p, x: x @ p["w"])
        >>> model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))
        >>> mu, sigma = model.parameters, jax.tree.map(jnp.ones_like, model.parameters)
        >>> x, key = jnp.ones((5000, 2)), jax.random.key(0)
        >>> y, _, _ = forward(model, "local", mu, sigma, (), x, key, jnp.ones(()), key)
        >>> bool(abs(y.mean() - 2) < 0.1), bool(abs(y.var() - 2) < 0.2)  # N(2, 2), row by row
        (True, True)
    """

    def network(weights: Any, x: Any, state: Any) -> Any:
        own = Parameters(weights, None)
        return model.apply(own, state, x, key, training=True)

    traced: Any = jax.make_jaxpr(network, return_shape=True)
    program, shape = traced(mu.network, x, state)
    treedef: Any = jax.tree.structure(mu)
    means, stds = jax.tree.leaves(mu), treedef.flatten_up_to(sigma)
    count = len(jax.tree.leaves(mu.network))
    use = kinds(program, count, len(jax.tree.leaves(x)))
    use += ["likelihood"] * (len(means) - count)
    keys = jax.random.split(noise, len(means))

    def value(mean: jax.Array, std: jax.Array | None, key: jax.Array, use: str) -> Any:
        if std is None:
            return mean
        w = GaussianArray(mean, std, key, sign, rule)
        return w if use == PRODUCT else w.materialise()

    values = [value(*parts) for parts in zip(means, stds, keys, use, strict=True)]
    params = jax.tree.unflatten(treedef, values)
    found = _run(program, *values[:count], *jax.tree.leaves((x, state)))
    outputs, state = jax.tree.unflatten(jax.tree.structure(shape), found)
    return outputs, state, params


def _run(program: jex.ClosedJaxpr, *arguments: Any) -> list[Any]:
    """A program on arrays and distributions.

    Operations that no distribution reaches are left as they are, so that what Quax cannot trace
    (a custom derivative) may be among them.
    """
    jaxpr = program.jaxpr
    known: dict[Any, Any] = dict(zip(jaxpr.invars, arguments, strict=True))
    known |= zip(jaxpr.constvars, program.consts, strict=True)

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, jex.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        values, body = [read(atom) for atom in eqn.invars], called(eqn)
        if not any(isinstance(value, GaussianArray) for value in values):
            found = bind(eqn, values)
        elif body is None or eqn.primitive.name not in CALLS:
            found = quax.quaxify(lambda *values, eqn=eqn: bind(eqn, list(values)))(*values)
        elif "policy" in eqn.params:  # checkpoint: what it saves is its point
            options = {name: eqn.params[name] for name in ("policy", "prevent_cse")}
            inner = jax.checkpoint(lambda *values, body=body: _run(body, *values), **options)
            found = inner(*values)
        else:
            found = _run(body, *values)
        known.update(zip(eqn.outvars, found, strict=True))
    return [read(atom) for atom in jaxpr.outvars]
