"""SWAG: moments against numpy, SGD's stationary law by enumeration, and what a fit makes of it."""

from itertools import combinations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import posterax as px
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start
from posterax.infer.ensembles.swag import SharpnessPhase
from posterax.infer.points.point import PointState
from posterax.posteriors import LowRankGaussian
from tests.conjugate import NOISE, conjugate

pytestmark = pytest.mark.usefixtures("hasty_compiler")

TRUTH = conjugate()


def phases_of(model, data, method, steps=100, batch_size=10):
    """The phases of a fit, the state that each starts with, and the data."""
    ready = prepare(model, data, method, Asked(None, steps, batch_size))
    start, states = make_start(None, ready.model), []
    for phase in ready.phases:
        states.append(eqx.filter_jit(phase.init)(start, ready.data, jax.random.key(0)))
        start = phase.hand_over(states[-1]) if phase is not ready.phases[-1] else None
    return ready.phases, states, ready.data


def test_moments_are_numpy_s_and_the_columns_are_the_last_ones():
    """Weights far from zero that hardly move: E w² − (E w)² would have no digit left of this."""
    rank, every, steps = 4, 3, 33
    method = px.SWAG(rank=rank, every=every, collect=1, scale=0.7)
    (*_, phase), (*_, start), _ = phases_of(TRUTH.model(), TRUTH.data, method)
    path = (1000 + 0.01 * np.random.default_rng(0).normal(size=(steps, 3))).astype("float32")

    def one(state, w):
        params = px.Parameters({"w": w}, {})
        moved = state._replace(point=state.point._replace(params=params), step=state.step + 1)
        return phase.collect(moved), None

    state, _ = jax.lax.scan(one, start, jnp.asarray(path))
    posterior = phase.finish(state, None)
    assert isinstance(posterior, LowRankGaussian)
    counted = path[every - 1 :: every].astype(float)
    assert int(state.number) == len(counted) == 11
    np.testing.assert_allclose(posterior.mu.network["w"], counted.mean(0), rtol=1e-6)
    variance = counted.var(0)
    assert np.all(variance < 1e-3)
    np.testing.assert_allclose(posterior.sigma.network["w"] ** 2, 0.35 * variance, rtol=0.02)
    means = np.cumsum(counted, 0) / np.arange(1, 12)[:, None]
    away = (counted - means)[-rank:]
    order = [(row % rank) for row in range(11 - rank, 11)]
    columns = np.asarray(posterior.factor).T[order]
    # a weight of 1000 is known to 3e-5 in float32
    np.testing.assert_allclose(columns, away * np.sqrt(0.35 / (rank - 1)), atol=1e-4)

    early = phase.finish(jax.lax.scan(one, start, jnp.asarray(path[:6]))[0], None)
    assert np.count_nonzero(np.abs(early.factor).max(0) > 0) == 1  # the first is its own mean


def stationary(truth, size, rate):
    """Mean and covariance of SGD at the ends of epochs, minibatches of a new order in each.

    An epoch is w ← A w + b with one of finitely many (A, b), all as probable: two minibatches,
    the first any half of the data.
    """
    x, y, n = truth.x.astype(float), truth.y.astype(float), len(truth.y)
    eye, d = np.eye(x.shape[1]), x.shape[1]
    maps = []
    for half in combinations(range(n), size):
        a, b = eye, np.zeros(d)
        for rows in (list(half), [i for i in range(n) if i not in half]):
            scale = 2 / n / NOISE**2  # two batches
            step = eye - rate * (scale * x[rows].T @ x[rows] + eye / n)
            a, b = step @ a, step @ b + rate * scale * x[rows].T @ y[rows]
        maps.append((a, b))
    mean = np.linalg.solve(eye - np.mean([a for a, _ in maps], 0), np.mean([b for _, b in maps], 0))
    noise = [a @ mean + b - mean for a, b in maps]
    drift = np.mean([np.outer(e, e) for e in noise], 0)
    double = np.mean([np.kron(a, a) for a, _ in maps], 0)
    # z ← A z + e with e of mean 0, but not independent of A: z has mean 0 all the same
    covariance = np.linalg.solve(np.eye(d * d) - double, drift.ravel()).reshape(d, d)
    return mean, covariance


def test_the_posterior_is_the_stationary_law_of_sgd():
    truth = conjugate(rows=6)
    rate = 0.4 / np.linalg.eigvalsh(truth.x.T @ truth.x / NOISE**2 / 6).max()
    mean, covariance = stationary(truth, 3, rate)
    method = px.SWAG(
        rank=1500, collect=1, every=2, learning_rate=float(rate), momentum=0.0, scale=2.0
    )
    start = px.Parameters({"w": jnp.asarray(mean, jnp.float32)}, {})
    each = []
    for key in range(10):
        found = px.fit(
            truth.model(), truth.data, method, steps=4000, batch_size=3, key=key, init=start
        )
        low_rank = np.asarray(found.factor) @ np.asarray(found.factor).T
        spread = np.asarray(found.sigma.network["w"]) ** 2
        away = found.mu.network["w"] - mean
        each.append(np.concatenate([away, spread - np.diag(covariance), (low_rank - covariance)[
            np.triu_indices(3)
        ]]))  # fmt: skip
    each = np.asarray(each, float)
    t = each.mean(0) / (each.std(0, ddof=1) / np.sqrt(len(each)))
    assert np.abs(t).max() < 6  # Student's t with 9 degrees, 12 of them: p = 0.002
    # and the errors are small enough for this to mean something
    error = each.std(0, ddof=1) / np.sqrt(len(each))
    assert np.all(error[3:6] < 0.1 * np.diag(covariance))


def test_the_curvature_is_the_largest_eigenvalue_and_sets_the_rate():
    method = px.SWAG()
    (mode, measure, walk), states, data = phases_of(TRUTH.model(), TRUTH.data, method, 2000)
    assert [phase.length() for phase in (mode, measure, walk)] == [1500, 20, 500]
    plan = prepare(TRUTH.model(), TRUTH.data, px.NUTS(), Asked(None, 1, None)).plan
    full = SharpnessPhase(measure.model, plan, measure.method)
    state = states[1]
    step = jax.jit(lambda s: full.step(s, data.everything(), jax.random.key(0))[0])
    for _ in range(40):
        state = step(state)
    exact = np.linalg.eigvalsh(np.linalg.inv(TRUTH.covariance) / 20).max()
    np.testing.assert_allclose(state.curvature, exact, rtol=1e-3)
    start = walk.init(measure.hand_over(state), data, jax.random.key(0))
    batch = data.everything()
    info = jax.jit(lambda s: walk.step(s, batch, jax.random.key(0))[1])(start)
    np.testing.assert_allclose(info.terms["learning_rate"], 0.05 * 2 * 1.9 / exact, rtol=1e-3)


def small(where=None):
    network = px.networks.MLP(1, 1, (4,), key=0)
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3), where=where)


X = np.linspace(-1, 1, 40)[:, None].astype("float32")
Y = np.sin(3 * X[:, 0])


def test_epochs_are_shared_points_have_no_spread_and_resume_collects():
    method = px.SWAG(rank=5, training=px.MaximumAPosteriori(1e-2))
    options = {"batch_size": 10, "key": 0}
    model = small(where="layers.1.*")
    watch = px.Validation(X, Y, every=5, patience=100)
    first = px.fit(model, (X, Y), method, epochs=50, validation=watch, **options)
    lengths = {name: len(values) for name, values in first.history.items() if "nll" in name}
    assert (lengths["optimising/nll"], lengths["nll"]) == (150, 50)
    assert len(first.history["measuring the curvature/curvature"]) == 20
    assert lengths["measuring the curvature/nll"] == 20
    assert len(first.history["validation_nll"]) == 3  # the phase's own, the last at its end
    assert first.factor.shape == (5, 5)
    assert first.sigma.network.layers[0].weight is None
    assert np.all(first.moments()[1].network.layers[0].weight == 0)
    assert np.all(first.moments()[1].network.layers[1].weight > 0)
    # points are trained and averaged like all others
    assert not np.array_equal(
        first.mu.network.layers[0].weight, model.parameters.network.layers[0].weight
    )
    second = px.fit(model, (X, Y), method, epochs=50, resume=first, **options)
    assert (len(second.history["optimising/nll"]), len(second.history["nll"])) == (150, 250)
    # 100 iterates or more: of 50 steps all, of 200 more one in two
    assert int(first.record.final.state.number) == 50
    assert int(second.record.final.state.number) == 50 + 100
    np.testing.assert_allclose(
        second.history["learning_rate"], first.history["learning_rate"][0], rtol=1e-6
    )


def test_patience_ends_the_training_alone():
    """The walk starts at the best there is: no step of it would count as better."""
    best = px.Parameters({"w": jnp.asarray(TRUTH.mean, jnp.float32)}, {})
    method = px.SWAG(rank=2, collect=1, learning_rate=1e-3)
    watch = px.Validation(*TRUTH.data, every=2, patience=2, samples=4)
    walked = fit(method, validation=watch, init=best)
    assert len(walked.history["validation_nll"]) == 25
    assert int(walked.record.final.state.number) == 100


def test_tables_give_it_minibatches():
    method = px.SWAG(rank=2, collect=1, learning_rate=1e-5)
    estimator = px.BayesianRegressor(
        method=method, hidden_layer_sizes=(4,), noise=0.3, steps=100, random_state=0
    )
    estimator.fit(X, Y)
    assert estimator.posterior_.record.settings["batch_size"] == 4


class Normalised(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(1, 3, rngs=rngs), nnx.Linear(3, 1, rngs=rngs)
        self.norm = nnx.BatchNorm(3, momentum=0.9, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


def test_running_averages_are_those_of_the_mean():
    model = px.Model(Normalised(), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.3))
    method = px.SWAG(rank=2, collect=1, every=1, learning_rate=1e-3)
    (*_, phase), (*_, state), data = phases_of(model, (X, Y), method)
    batch, key = data.everything(), jax.random.key(1)
    step = jax.jit(lambda s: phase.step(s, batch, key)[0])
    before = step(step(state))
    after = step(before)
    _, expected = phase.model.apply(after.mean, before.state, batch.x, key, training=True)
    own = phase.finish(after, None).state
    for a, b, c in zip(*map(jax.tree.leaves, (own, expected, after.point.state)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert not np.allclose(a, c, rtol=1e-6)  # not those of where SGD is


def fit(method, **options):
    settings = {"steps": 100, "batch_size": 10, "key": 0} | options
    return px.fit(TRUTH.model(), TRUTH.data, method, **settings)


def flat(model):
    return px.Model(model.network, px.priors.Flat(), model.likelihood)


BAD = {
    "rank": (lambda: px.SWAG(rank=1), "rank must be a whole number .* of 2 or more, got 1"),
    "collect": (lambda: px.SWAG(collect=0), "collect must lie between 0 and 1, got 0"),
    "more than all": (lambda: px.SWAG(collect=1.5), "collect must lie between 0 and 1, got 1.5"),
    "learning_rate": (lambda: px.SWAG(learning_rate=-1), "learning_rate must be a finite number"),
    "momentum": (lambda: px.SWAG(momentum=1.0), "momentum must lie between 0 and 1"),
    "every": (lambda: px.SWAG(every=0), "every must be a whole number"),
    "scale": (lambda: px.SWAG(scale=0.0), "scale must be a finite number above 0"),
    "training": (
        lambda: px.SWAG(training=px.NUTS()),
        r"training must be px.MaximumAPosteriori\(…\) or .*got NUTS",
    ),
    "an optimiser that is none": (lambda: px.SWAG(optimizer=0.1), "optimizer must be an optax"),
    "no minibatches": (
        lambda: fit(px.SWAG(), batch_size=20),
        "batch_size: SWAG's posterior is the spread of SGD between minibatches",
    ),
    "no prior": (
        lambda: px.fit(flat(TRUTH.model()), TRUTH.data, px.SWAG(), batch_size=10),
        "model: no parameter has a prior",
    ),
    "a mean that is no network": (
        lambda: fit(
            px.SWAG(collect=1),
            init=px.fit(TRUTH.model(), TRUTH.data, px.DeepEnsemble(2), steps=1, key=0),
        ),
        r"init: the means of Draws are no network .* init=posterior.network\(key=0\)",
    ),
    "one iterate": (
        lambda: fit(px.SWAG(every=20)),
        r"collect=0.25 and every=20 leave 1 iterates of 100 steps.*raise epochs or collect",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, match = BAD[case]
    with pytest.raises((TypeError, ValueError), match=match):
        call()


def test_any_optimiser_can_walk():
    method = px.SWAG(rank=2, optimizer=optax.adam(1e-3))
    phases, states, _ = phases_of(TRUTH.model(), TRUTH.data, method)
    assert phases[1].length() == 0
    assert isinstance(states[-1].point, PointState)
    assert isinstance(states[-1].point.optimizer[0], optax.ScaleByAdamState)
