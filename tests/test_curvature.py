"""Curvature against explicit Jacobians and Hessians: likelihoods, networks, priors."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree
from scipy.stats import t as student

import posterax as px
from posterax.data import Batch
from posterax.infer.laplace import fisher
from posterax.infer.laplace.curvature import _derivatives, add_batch, layout, zeros
from posterax.infer.laplace.marginal import prior_precision
from posterax.posteriors.laplace import as_weight
from posterax.program.reuse import last_layer

pytestmark = pytest.mark.usefixtures("hasty_compiler")

# -- the curvature of the likelihood


def hermite(f, sigma):
    """E over y ~ N(f, σ²) of a function of at most fifth degree in y, exactly."""
    nodes = np.array([-np.sqrt(3), 0, np.sqrt(3)])
    return f + sigma * nodes, np.array([1, 4, 1]) / 6


def information(likelihood, outputs, own, targets, weights):
    """E_y[−∂² log p(y | f, φ)] over (f, φ) by quadrature, and the same by its root."""
    flat, back = ravel_pytree((outputs, own))

    def nll(v, y):
        f, own = back(v)
        return -likelihood.log_prob(f, y, own, None)[0]

    @jax.jit
    def both(y, w):
        exact = jnp.tensordot(w, jax.vmap(lambda y: jax.hessian(nll)(flat, y))(y), axes=1)
        made = fisher.columns(likelihood, outputs, own, None, jax.random.key(0), 1)
        s = jax.vmap(lambda s: ravel_pytree(s)[0])(made)
        return s.T @ s, exact

    return both(jnp.asarray(targets, jnp.float32), jnp.asarray(weights, jnp.float32))


def root(likelihood, outputs, probes):
    key = jax.random.key(0)
    s, _ = jax.jit(lambda f: fisher.columns(likelihood, f, {}, None, key, probes))(outputs)
    flat = np.asarray(s, np.float64).reshape(len(s), -1)
    return flat.T @ flat


def cases():
    one, two = jnp.array([[0.3]]), jnp.array([[0.3, -0.2]])
    learned = px.likelihoods.Gaussian("learned", initial=0.5)
    y, w = hermite(0.3, 0.5)
    yield learned, one, learned.init((1,)), y[:, None, None], w, 1e-4

    y, w = hermite(0.3, float(jax.nn.softplus(-0.2)) + 1e-4)
    yield px.likelihoods.Gaussian("predicted"), two, {}, y[:, None, None], w, 1e-4

    heavy = px.likelihoods.StudentT(5.0, "learned", initial=0.5)
    levels = (np.arange(2000) + 0.5) / 2000  # of the distribution function
    y = 0.3 + 0.5 * student(5).ppf(levels)
    yield heavy, one, heavy.init((1,)), y[:, None, None], np.full(2000, 1 / 2000), 0.01

    own = {"log_diagonal": jnp.array([0.2, -0.3]), "lower": jnp.array([0.7])}
    factor = np.array([[np.exp(0.2), 0], [0.7, np.exp(-0.3)]])
    grid, w = hermite(0, 1)
    noise = np.stack(np.meshgrid(grid, grid), -1).reshape(-1, 2)
    y, w = np.asarray(two) + noise @ factor.T, np.outer(w, w).reshape(-1)
    yield px.likelihoods.MultivariateGaussian("learned"), two, own, y[:, None], w, 1e-4


def test_information_of_each_likelihood():
    for likelihood, outputs, own, y, w, tolerance in cases():
        found, exact = information(likelihood, outputs, own, y, w)
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance)


def test_information_by_random_vectors():
    """A likelihood of one's own, and more outputs than columns: right on average."""
    outputs, probes = jnp.array([[0.3, -0.2]]), 20_000
    mine = px.likelihoods.From(lambda f: dist.Normal(f, 0.5))
    # s² is 4 times a chi-square of one degree, a product s s' has variance 4²
    found = root(mine, outputs, probes)
    error = 4 * np.sqrt(np.array([[2, 1], [1, 2]]) / probes)
    assert np.all(np.abs(found - 4 * np.eye(2)) < 4 * error)

    many = jax.random.normal(jax.random.key(1), (1, 50, 3))
    found = root(px.likelihoods.Categorical(), many, probes)
    p = np.asarray(jax.nn.softmax(many))[0]
    exact = np.zeros((150, 150))
    for i, q in enumerate(p):
        exact[3 * i : 3 * i + 3, 3 * i : 3 * i + 3] = np.diag(q) - np.outer(q, q)
    spread = np.sqrt((np.outer(*[np.diag(exact)] * 2) + exact**2) / probes)
    assert np.max(np.abs(found - exact) / spread) < 6  # of 22,500


# -- the curvature of a network


def explicit(model, params, x, weight):
    """Σ weight Jᵀ Λ J over the network's weights, from its Jacobian and the Hessian in f."""
    flat, back = ravel_pytree(params.network)

    def outputs(v):
        own = params._replace(network=back(v))
        return model.apply(own, model.network.state, x, None, training=False)[0]

    f = outputs(flat)
    _, side = model.likelihood.split(x)
    y = jnp.ones((1, *model.likelihood.target_for(f.shape[1:])))

    def nll(f, side):
        own_side = None if side is None else side[None]
        return -model.likelihood.log_prob(f[None], y, params.likelihood, own_side)[0]

    jacobian = jax.jacrev(outputs)(flat).reshape(len(f), -1, flat.size)
    wide = jacobian.shape[1]
    curvature = jax.vmap(jax.hessian(nll))(f, side).reshape(len(f), wide, wide)
    return jnp.einsum("n,nid,nij,nje->de", weight, jacobian, curvature, jacobian)


def compare(model, x, weight, *structures, layer=None):
    """The explicit matrix, and blocks with their sums for each structure, in one program."""
    one = jax.tree.map(lambda a: a[:1], x)
    found = [layout(model, one, structure, layer) for structure in structures]
    weight = jnp.asarray(weight, jnp.float32)
    batch = Batch(x, jnp.zeros(len(weight)), weight, jnp.zeros(()))

    @jax.jit
    def run():
        params, state, key = model.parameters, model.network.state, jax.random.key(0)
        sums = [add_batch(zeros(b, model), b, model, params, state, batch, key, 4) for b in found]
        return explicit(model, params, x, weight), sums

    exact, sums = jax.device_get(run())
    return exact, list(zip(found, sums, strict=True))


def made(network, likelihood, outputs):
    model = px.Model(network, px.priors.Gaussian(1.0), likelihood)
    return model.for_targets(likelihood.target_for((outputs,)), jnp.float32)


@pytest.mark.parametrize(
    ("likelihood", "outputs"),
    [
        (px.likelihoods.Gaussian(np.array([0.5, 2.0])), 2),
        (px.likelihoods.Categorical(), 3),
        (px.likelihoods.Bernoulli(), 1),
        (px.likelihoods.Poisson(exposure=True), 1),
    ],
    ids=["Gaussian", "Categorical", "Bernoulli", "Poisson"],
)
def test_full_and_diagonal_are_explicit(likelihood, outputs, rng):
    model = made(px.networks.MLP(2, outputs, (3,), activation="tanh", key=0), likelihood, outputs)
    x = jnp.asarray(rng.normal(size=(7, 2)), jnp.float32)
    if isinstance(likelihood, px.likelihoods.Poisson):
        x = (x, jnp.asarray(rng.uniform(0.5, 2, size=(7, 1)), jnp.float32))
    weight = rng.uniform(0.5, 2, 7)
    exact, (full, diagonal) = compare(model, x, weight, "full", "diagonal")
    np.testing.assert_allclose(full[1]["network"]["matrix"], exact, rtol=1e-3, atol=1e-5)
    found = np.concatenate([np.ravel(diagonal[1][b.name]["diagonal"]) for b in diagonal[0]])
    np.testing.assert_allclose(found, np.diag(exact), rtol=1e-3, atol=1e-5)
    assert [b.site is None for b in diagonal[0]] == [False, True] * 2  # both ways to a square


def as_matrix(block, sums, shape, mass):
    """A Kronecker block over its weights in their own order."""
    whole = np.kron(sums["inputs"], sums["outputs"]) / (mass * block.site.rows)
    place = np.arange(np.prod(shape)).reshape(shape).transpose(block.site.order).reshape(-1)
    found = np.empty_like(whole)
    found[np.ix_(place, place)] = whole
    return found


class Flax(nnx.Module):
    """Weights (in, out), with a running average between them."""

    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first = nnx.Linear(4, 3, rngs=rngs)
        self.norm = nnx.BatchNorm(3, rngs=rngs)
        self.last = nnx.LinearGeneral(3, (2, 1), rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.norm(self.first(x)))).reshape(-1, 2)


def convolution(params, x):
    image = x.reshape(-1, 2, 2, 1)
    z = jax.lax.conv_general_dilated(
        image, params["kernel"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jnp.tanh(z.reshape(-1, 3)) @ params["head"]


def one_example_networks():
    yield eqx.nn.MLP(4, 2, 3, 1, activation=jnp.tanh, key=jax.random.key(0)), 2
    yield Flax(), 2
    kernel, head = (
        jax.random.normal(jax.random.key(i), s) for i, s in enumerate([(2, 2, 1, 3), (3, 2)])
    )
    yield ({"kernel": kernel, "head": head}, convolution), 2


def test_kronecker_is_exact_for_one_example(rng):
    """Dense and convolutional weights in every library's order; the rest has dense blocks."""
    x = jnp.asarray(rng.normal(size=(1, 4)), jnp.float32)
    for network, expected in one_example_networks():
        model = made(network, px.likelihoods.Categorical(), 2)
        exact, ((blocks, sums),) = compare(model, x, [1.7], "kronecker")
        assert sum(b.kind == "kronecker" for b in blocks) == expected
        leaves, at = jax.tree.leaves(model.parameters), 0
        for block in blocks:  # one array each, in the order of the tree
            part = exact[at : at + block.size, at : at + block.size]
            at += block.size
            found = sums[block.name].get("matrix")
            if found is None:
                found = as_matrix(block, sums[block.name], leaves[block.leaves[0]].shape, 1.7)
            np.testing.assert_allclose(found, part, rtol=1e-3, atol=1e-5)
        assert at == len(exact)


def test_small_parts_of_a_batch_add_up(rng, monkeypatch):
    model = made(px.networks.MLP(2, 1, (3,), key=0), px.likelihoods.Gaussian(0.5), 1)
    x, weight = jnp.asarray(rng.normal(size=(7, 2)), jnp.float32), rng.uniform(0.5, 2, 7)
    monkeypatch.setattr(
        "posterax.infer.laplace.curvature.NUMBERS", 60
    )  # three parts, the last not full
    exact, ((_, sums),) = compare(model, x, weight, "full")
    np.testing.assert_allclose(sums["network"]["matrix"], exact, rtol=1e-3, atol=1e-5)


class Zoo(eqx.Module):
    """Convolutions forwards and transposed, attention, a recurrent cell, a look-up."""

    first: eqx.nn.Conv2d
    up: eqx.nn.ConvTranspose2d
    norm: eqx.nn.LayerNorm
    attention: eqx.nn.MultiheadAttention
    cell: eqx.nn.GRUCell
    table: eqx.nn.Embedding
    last: eqx.nn.Linear

    def __init__(self, key):
        a, b, c, d, e, f = jax.random.split(key, 6)
        self.first = eqx.nn.Conv2d(1, 3, 3, stride=2, padding=1, key=a)
        self.up = eqx.nn.ConvTranspose2d(3, 2, 2, key=b)
        self.norm = eqx.nn.LayerNorm(10)
        self.attention = eqx.nn.MultiheadAttention(2, 10, key=c)
        self.cell = eqx.nn.GRUCell(10, 3, key=d)
        self.table = eqx.nn.Embedding(4, 3, key=e)
        self.last = eqx.nn.Linear(3, 2, key=f)

    def __call__(self, x):
        h = self.up(jnp.tanh(self.first(x))).reshape(5, 10)
        h = jax.vmap(self.norm)(h)
        h = self.attention(h, h, h)
        s, _ = jax.lax.scan(lambda s, x: (self.cell(x, s), None), jnp.zeros(3), h)
        return self.last(s + self.table(jnp.array(1)))


@pytest.mark.slow
def test_any_network(rng):
    """At every site inputs times derivatives are the gradient; all else is differentiated."""
    model = made(Zoo(jax.random.key(0)), px.likelihoods.Categorical(), 2)
    x = jnp.asarray(rng.normal(size=(1, 1, 8, 8)), jnp.float32)
    exact, ((_, squares), (blocks, _)) = compare(model, x, [1.0], "diagonal", "kronecker")
    found = np.concatenate([np.ravel(squares[b.name]["diagonal"]) for b in blocks])
    np.testing.assert_allclose(found, np.diag(exact), rtol=1e-3, atol=1e-6)
    inputs, derivatives = jax.jit(
        lambda: _derivatives(
            blocks, model, model.parameters, (), x[0], jnp.ones(()), jax.random.key(0), 1
        )
    )()
    leaves = jax.tree.leaves(model.parameters)
    sites = [b for b in blocks if b.site is not None]
    assert len(sites) == 7
    for block in sites:
        (i,) = block.leaves
        each = np.einsum("ti,kto->kio", inputs[i], derivatives[i])
        whole = sum(np.square(as_weight(g, block.site.order, leaves[i].shape)) for g in each)
        np.testing.assert_allclose(whole, squares[block.name]["diagonal"], rtol=1e-3, atol=1e-6)


# -- the curvature of priors


def test_precision_of_mixtures():
    """The mean precision of the mixture's components given w."""
    w = jnp.array([0.0, 0.01, 3.0])
    priors = (
        px.priors.ScaleMixture(0.5, 1.0, 0.1),
        px.priors.Hierarchical(2.0, 3.0),
        px.priors.as_prior(dist.Cauchy(1.0, 1.0)),
    )
    mixture, learned, cauchy = jax.jit(lambda w: [prior_precision(p, w) for p in priors])(w)
    wide, narrow = (np.exp(-0.5 * (np.asarray(w) / s) ** 2) / s for s in (1.0, 0.1))
    np.testing.assert_allclose(mixture[0], (wide + narrow * 100) / (wide + narrow), rtol=1e-4)
    np.testing.assert_allclose(learned[0], (2 + 1.5) / (3 + 0.5 * np.sum(np.square(w))), rtol=1e-4)
    np.testing.assert_allclose(cauchy[0], 2 / (1 + np.square(np.asarray(w) - 1)), rtol=1e-4)
    assert np.all(np.asarray(cauchy[1]) == 1)


def test_the_last_layer_is_followed_or_asked_for():
    w = {"first": jnp.ones((2, 3)), "second": jnp.ones((3, 1))}
    x = jnp.ones((1, 2))

    @jax.custom_jvp
    def head(a, b):
        return a @ b

    head.defjvps(lambda t, out, a, b: t @ b, lambda t, out, a, b: a @ t)

    def own(w, x):
        return head(jnp.tanh(x @ w["first"]), w["second"])

    def looped(w, x):
        return jax.lax.map(lambda row: row @ w["second"], jnp.tanh(x @ w["first"]))

    def loop_first(w, x):
        return jax.lax.map(lambda row: jnp.tanh(row @ w["first"]), x) @ w["second"]

    assert last_layer(own, w, x) == [1]
    assert last_layer(loop_first, w, x) == [1]
    with pytest.raises(ValueError, match=r"lies in a loop.*with layer="):
        last_layer(looped, w, x)
