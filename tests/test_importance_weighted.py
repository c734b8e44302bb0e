"""The importance-weighted bound of Bayes by Backprop and its gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import posterax as px
from tests.conjugate import NOISE
from tests.variational import (
    LANDING,
    SCALE,
    TRUTH,
    batch_of,
    bound_on_z,
    gradients,
    phase_of,
    z_values,
)

pytestmark = pytest.mark.usefixtures("hasty_compiler")


def test_importance_weighted_bound_lies_between_elbo_and_evidence():
    """ELBO = log p(D) − KL(q ‖ posterior) exactly; K draws close a part of the gap."""
    method = px.BayesByBackprop(family="mean_field", objective="iwae", samples=16)
    phase, state = phase_of(method)
    sigma = np.diag(np.linalg.inv(TRUTH.covariance)) ** -0.5  # the mean-field optimum, shifted
    mu = TRUTH.mean + 0.5 * SCALE
    rho = np.log(np.expm1(sigma))
    tree = lambda a: px.Parameters({"w": jnp.asarray(a, jnp.float32)}, {})  # noqa: E731
    state = state._replace(variational={"mu": tree(mu), "rho": tree(rho)})
    batch, scales = batch_of(*TRUTH.data), (jnp.asarray(1 / 20), jnp.asarray(1 / 20))

    @jax.jit
    @jax.vmap
    def log_weights(key):
        loss = lambda k: phase.loss(state.variational, None, batch, k, 1.0, scales)[0]  # noqa: E731
        bound = phase.gradient(state, batch, key)[1]["bound"]
        return -20 * jax.vmap(loss)(phase._sample_keys(key)), 20 * bound

    each, bound = log_weights(jax.random.split(jax.random.key(0), 2000))
    each = np.asarray(each, np.float64)

    def bounds(k):  # means over disjoint groups of k draws
        groups = each.reshape(len(each), -1, k)
        top = groups.max(-1, keepdims=True)
        values = top[..., 0] + np.log(np.mean(np.exp(groups - top), axis=-1))
        return values.mean(1)

    np.testing.assert_allclose(bound, bounds(16), rtol=1e-4)
    precision = np.linalg.inv(TRUTH.covariance)
    inner = np.sum(np.diag(precision) * sigma**2) + 0.25 * SCALE @ precision @ SCALE - 4
    gap = 0.5 * (inner + np.linalg.slogdet(TRUTH.covariance)[1]) - np.sum(np.log(sigma))
    assert abs(z_values(bounds(1) - (TRUTH.log_evidence - gap))) < 4
    for fewer, more in ((1, 4), (4, 16)):
        assert z_values(bounds(more) - bounds(fewer)) > 4
    assert z_values(TRUTH.log_evidence - bounds(16)) > 4


def linear_with_a_point():
    network = ({"w": jnp.zeros(4), "b": jnp.zeros(())}, lambda p, x: (x @ p["w"] + p["b"])[:, None])
    prior = px.priors.ByPart({"b": px.priors.Flat()}, default=px.priors.Gaussian(1.0))
    return px.Model(network, prior, px.likelihoods.Gaussian(NOISE))


def near_the_posterior():
    """Where no single draw has all of the weight."""
    cholesky = np.linalg.cholesky(TRUTH.covariance)
    sigma = np.diag(cholesky)
    tree = lambda w, b: px.Parameters({"w": jnp.asarray(w, jnp.float32), "b": b}, {})  # noqa: E731
    return {
        "mu": tree(TRUTH.mean + 0.3 * SCALE, jnp.asarray(0.05)),
        "rho": tree(np.log(np.expm1(1.1 * sigma)), None),
        "lower": jnp.asarray(np.tril(0.8 * cholesky / sigma[:, None], -1), jnp.float32),
    }


def test_importance_weighted_gradients():
    """The running one is the derivative of the bound; the doubly reparameterised has its mean."""
    batch, rows, near = batch_of(*TRUTH.data), {}, near_the_posterior()
    for gradient in ("total", LANDING):
        method = px.BayesByBackprop(
            objective="iwae", samples=4, gradient=gradient, temperature=0.7, family="full"
        )
        phase, state = phase_of(method, linear_with_a_point())
        state = state._replace(variational=near)
        rows[gradient] = gradients(phase, state, batch, 3000)
        if gradient == "total":

            @jax.jit
            @jax.grad
            def direct(variational, phase=phase, state=state):
                key = jax.random.split(jax.random.key(1), 3000)[0]
                scales = phase._scales(state.step, batch, jnp.float32)
                loss = lambda k: phase.loss(variational, None, batch, k, 1.0, scales)[0]  # noqa: E731
                values = jax.vmap(loss)(phase._sample_keys(key))
                return -(jax.nn.logsumexp(-20 * values) - np.log(4)) / 20

            expected = ravel_pytree(direct(state.variational))[0]
            np.testing.assert_allclose(rows["total"][0], expected, rtol=1e-3, atol=1e-4)
    index = ravel_pytree(
        {name: jax.tree.map(jnp.zeros_like, tree) for name, tree in state.variational.items()}
        | {"mu": px.Parameters({"w": jnp.zeros(4), "b": jnp.ones(())}, {})}
    )[0]
    point = np.asarray(index, bool)
    # a point is no parameter of q: nothing of its gradient is left out
    np.testing.assert_allclose(rows[LANDING][:, point], rows["total"][:, point], rtol=1e-3)
    gap = (rows[LANDING] - rows["total"])[:, ~point]
    gap = gap[:, gap.std(0) > 0]
    assert gap.shape[1] == 4 + 4 + 6
    assert np.max(np.abs(z_values(gap))) < bound_on_z(gap.shape[1])


def test_importance_weights_need_all_data():
    method = px.BayesByBackprop(objective="iwae", samples=4)
    with pytest.raises(
        ValueError, match=r"batch_size=5: BayesByBackprop\(.*objective='iwae'\) uses"
    ):
        px.fit(TRUTH.model(), TRUTH.data, method, batch_size=5)
    halves = [tuple(part[i : i + 10] for part in TRUTH.data) for i in (0, 10)]
    with pytest.raises(ValueError, match=r"BayesByBackprop\(.*objective='iwae'\) needs all data"):
        px.fit(TRUTH.model(), halves, method)
