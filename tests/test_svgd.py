"""SVGD: blackjax's step, an exact posterior, and particles that keep apart or do not."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from blackjax.vi import svgd
from flax import nnx

import posterax as px
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start
from posterax.posteriors import Draws
from tests.conjugate import conjugate

pytestmark = pytest.mark.usefixtures("hasty_compiler")

TRUTH = conjugate()


def phase_of(model, data, method, batch_size=None):
    """The phase of a fit, its first state, and the data."""
    ready = prepare(model, data, method, Asked(None, 100, batch_size))
    (phase,) = method.phases(ready.model, ready.plan)
    start = make_start(None, ready.model)
    state = eqx.filter_jit(phase.init)(start, ready.data, jax.random.key(0))
    return phase, state, ready.data


@pytest.mark.parametrize("bandwidth", ["median", 0.7])
def test_a_step_is_blackjax_s(bandwidth):
    rate, n = 1e-3, len(TRUTH.y)
    method = px.SVGD(7, optimizer=optax.sgd(rate * n), bandwidth=bandwidth)
    phase, state, data = phase_of(TRUTH.model(), TRUTH.data, method)
    start = jnp.asarray(np.random.default_rng(0).normal(size=(7, 3)), jnp.float32)
    state = state._replace(position=start)
    after, info = eqx.filter_jit(phase.step)(state, data.everything(), jax.random.key(0))

    density = phase.log_density(data.everything(), ())
    kernel = svgd.build_kernel(optax.sgd(rate))
    theirs = svgd.init(start, {"length_scale": bandwidth}, optax.sgd(rate))
    if bandwidth == "median":
        theirs = svgd.update_median_heuristic(theirs)
    step = functools.partial(kernel, grad_logdensity_fn=jax.grad(density), kernel=svgd.rbf_kernel)
    expected = jax.jit(step)(theirs)
    np.testing.assert_allclose(info.terms["bandwidth"], expected.kernel_parameters["length_scale"])
    np.testing.assert_allclose(after.position - start, expected.particles - start, atol=1e-6)
    assert np.abs(expected.particles - start).min() > 1e-4


def particles(method, **options):
    settings = {"steps": 2000, "key": 0, "batch_size": 20} | options
    found = px.fit(TRUTH.model(), TRUTH.data, method, **settings)
    assert isinstance(found, Draws)
    assert not found.chained
    return found, np.asarray(found.draws.network["w"])


def test_particles_fill_a_small_posterior_and_without_repulsion_fall_into_its_mode():
    """The network is one of zeros, so all of them start within a hundredth of each other."""
    deviation = np.sqrt(np.diag(TRUTH.covariance))
    found, spread = particles(px.SVGD(particles=64, learning_rate=0.1))
    assert spread.shape == (1, 64, 3)
    mean, std = found.moments()
    np.testing.assert_allclose((mean.network["w"] - TRUTH.mean) / deviation, 0, atol=0.02)
    np.testing.assert_allclose(std.network["w"] / deviation, 1, atol=0.1)
    exact = TRUTH.covariance / np.outer(deviation, deviation)
    np.testing.assert_allclose(np.corrcoef(spread[0].T), exact, atol=0.1)
    # a kernel so narrow that no two particles meet: gradient ascent, for each its own
    _, fallen = particles(px.SVGD(particles=4, learning_rate=0.1, bandwidth=1e-30))
    assert np.all(np.abs(fallen - TRUTH.mean) < 1e-2 * deviation)


class Normalised(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(3, 2, rngs=rngs), nnx.Linear(2, 1, rngs=rngs)
        self.norm = nnx.BatchNorm(2, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


def test_points_feel_no_kernel_and_every_particle_has_its_own_running_averages():
    model = px.Model(
        Normalised(), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5), where="last.*"
    )
    phase, state, data = phase_of(model, TRUTH.data, px.SVGD(4), batch_size=10)
    random = np.asarray(phase._random())
    assert random.sum() == phase.model.bayesian_size == 3
    gradients = jax.random.normal(jax.random.key(1), state.position.shape)
    turn = eqx.filter_jit(lambda position: phase.direction(position, gradients)[0])
    direction = turn(state.position)
    np.testing.assert_array_equal(direction[:, ~random], gradients[:, ~random])
    # where points are makes no difference to the others
    moved = state.position + 10 * np.where(random, 0, np.arange(4)[:, None])
    np.testing.assert_array_equal(turn(moved), direction)

    after, _ = eqx.filter_jit(phase.step)(state, data.everything(), jax.random.key(0))
    posterior = phase.finish(after, None)
    assert posterior.shape == (1, 4)
    averages = [np.asarray(a) for a in jax.tree.leaves(posterior.state) if a.ndim == 3]
    assert averages
    assert all(np.ptp(a[0], axis=0).min() > 0 for a in averages)


def test_particles_start_with_the_running_averages_of_their_own_draw():
    prior, noise = px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5)
    model = px.Model(Normalised(), prior, noise)
    phase, state, _ = phase_of(model, TRUTH.data, px.SVGD(2), batch_size=10)
    apart = jax.tree.map(lambda a: a + jnp.arange(2.0)[:, None].astype(a.dtype), state.state)
    ensemble = phase.finish(state._replace(state=apart), None)
    phase, _, data = phase_of(model, TRUTH.data, px.SVGD(4), batch_size=10)
    start = make_start(ensemble, phase.model)
    state = eqx.filter_jit(phase.init)(start, data, jax.random.key(0))
    params = jax.vmap(phase.parameters)(state.position)
    for i in range(4):  # members in turn, with some jitter
        mine = jax.tree.map(lambda a, i=i: a[i], (params, state.state))
        theirs = ensemble.parameters(i % 2), ensemble.network_state(i % 2)
        for a, b in zip(*map(jax.tree.leaves, (mine[0], theirs[0])), strict=True):
            np.testing.assert_allclose(a, b, atol=0.06)
        for a, b in zip(*map(jax.tree.leaves, (mine[1], theirs[1])), strict=True):
            np.testing.assert_array_equal(a, b)


BAD = {
    "no prior": (
        lambda: px.fit(
            px.Model(TRUTH.model().network, px.priors.Flat(), px.likelihoods.Gaussian(0.5)),
            TRUTH.data,
            px.SVGD(),
        ),
        "model: no parameter has a prior.*px.DeepEnsemble",
    ),
    "one particle": (lambda: px.SVGD(1), "particles must be a whole number .* of 2 or more"),
    "a rate of 0": (lambda: px.SVGD(learning_rate=0.0), "learning_rate must be a finite number"),
    "schedule": (lambda: px.SVGD(schedule="linear"), "schedule must be one of 'cosine', 'const"),
    "optimizer": (lambda: px.SVGD(optimizer="adam"), "optimizer must be an optax transformation"),
    "bandwidth": (lambda: px.SVGD(bandwidth=-1.0), "bandwidth must be a finite number above 0"),
    "a rule": (lambda: px.SVGD(bandwidth="mean"), "bandwidth must be 'median' or a number"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, match = BAD[case]
    with pytest.raises((TypeError, ValueError), match=match):
        call()
