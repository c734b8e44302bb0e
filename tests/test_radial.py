"""The radial distribution against quadrature: its density, draws, moments and KL."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.posteriors import Radial
from posterax.predictive import Targets
from tests.conjugate import NOISE
from tests.variational import bound_on_z, kl_both_ways, phase_of, z_values

pytestmark = pytest.mark.usefixtures("hasty_compiler")


@pytest.fixture(scope="module")
def shells():
    """A radial distribution over two and three weights, and quadrature on a grid around each.

    Nodes crowd at the mean, where the density has a pole: w = μ + σ t³.
    """
    sizes = {"two": 2, "three": 3}
    mu = {"two": np.array([0.3, -0.5]), "three": np.array([0.1, 0.0, 0.4])}
    sigma = {"two": np.array([0.5, 1.2]), "three": np.array([0.7, 0.4, 1.0])}
    network = ({k: jnp.zeros(d) for k, d in sizes.items()}, lambda p, x: x[:, :1] * p["two"][0])
    model = px.Model(network, px.priors.Gaussian(0.8), px.likelihoods.Gaussian(NOISE))
    model = model.for_targets((1,), jnp.float32)

    def tree(values):
        return px.Parameters({k: jnp.asarray(v, jnp.float32) for k, v in values.items()}, {})

    rho = {k: np.log(np.expm1(s)) for k, s in sigma.items()}
    q = Radial(model, None, Targets((1,), (1,)), mu=tree(mu), rho=tree(rho))
    found = {}
    for name, other, nodes, area in (
        ("two", "three", 320, 4 * np.pi),
        ("three", "two", 80, 2 * np.pi),
    ):
        t = (np.arange(nodes) + 0.5) * 4.0 / nodes - 2
        t = np.stack(np.meshgrid(*[t] * sizes[name], indexing="ij"), -1).reshape(-1, sizes[name])
        w = mu[name] + sigma[name] * t**3
        volume = np.prod(3 * t**2 * sigma[name] * 4.0 / nodes, axis=1)
        # the other array stays at r = 1, where 2 φ(1) / (area Π σ) is its density
        rest = np.log(2 * stats.norm.pdf(1) / area / np.prod(sigma[other]))
        fixed = jnp.asarray(mu[other] + sigma[other] / np.sqrt(sizes[other]), jnp.float32)
        at = lambda w, n=name, o=other, f=fixed: q.log_prob(px.Parameters({n: w, o: f}, {}))  # noqa: E731
        log_q = np.asarray(jax.jit(jax.vmap(at))(jnp.asarray(w, jnp.float32)), np.float64) - rest
        found[name] = SimpleNamespace(t=t, w=w, log_q=log_q, mass=np.exp(log_q) * volume)
    return SimpleNamespace(q=q, mu=mu, sigma=sigma, grid=found)


@pytest.mark.parametrize("name", ["two", "three"])
def test_radial_density_integrates_to_one(shells, name):
    mu, sigma, grid = shells.mu[name], shells.sigma[name], shells.grid[name]
    assert np.sum(grid.mass) == pytest.approx(1, abs=2e-3)
    # draws lie where the density says: in a box whose sides are between nodes
    draws = np.asarray(shells.q.sample(0, 20_000).network[name], np.float64)
    expected = np.sum(grid.mass[np.all(np.abs(grid.t) < 0.75, axis=1)])
    inside = np.all(np.abs(draws - mu) < 0.75**3 * sigma, axis=1)
    assert abs(z_values(inside.astype(float), expected)) < 4
    # and their second moments are the quadrature's, σ²/D
    std = np.asarray(shells.q.moments()[1].network[name])
    z = z_values(np.square(draws - mu), std**2)
    assert np.max(np.abs(z)) < bound_on_z(len(z))
    variance = np.sum(grid.mass[:, None] * np.square(grid.w - mu), axis=0)
    np.testing.assert_allclose(std**2, variance, rtol=5e-3)


def test_radial_kl_agrees_with_quadrature_and_monte_carlo(shells):
    phase, _ = phase_of(px.BayesByBackprop(family="radial"), shells.q.model)
    closed, sampled = kl_both_ways(phase, shells.q)
    exact = sum(
        np.sum(g.mass * (g.log_q - np.sum(stats.norm.logpdf(g.w, scale=0.8), axis=1)))
        for g in shells.grid.values()
    )
    np.testing.assert_allclose(closed, exact, atol=1e-2)
    assert abs(z_values(sampled, closed[0])) < 4
