"""Predictions gathered chunk by chunk are those over all draws at once."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.fitting.running import _padded
from posterax.posteriors import Draws
from posterax.predictive import Targets

X = np.linspace(-1, 1, 7)[:, None].astype("float32")


class News(NamedTuple):
    """An event with the draws of its chunk."""

    phase: str
    step: int
    total: int
    terms: dict[str, np.ndarray]
    posterior: Any


def spread_draws(likelihood, outputs: int, target: tuple[int, ...] = (), draws: int = 27) -> Draws:
    """Two chains of draws around different places: the second term of Chan's formula counts."""
    model = px.Model(px.networks.MLP(1, outputs, (3,), key=0), likelihood=likelihood)
    model = model.for_targets(target, np.dtype("float32"))
    rng = np.random.default_rng(3)
    drift = np.linspace(0, 2, draws)[None, :]

    def chains(leaf):
        noise = rng.normal(size=(2, draws, *leaf.shape))
        return jnp.asarray(leaf + noise + drift.reshape(1, draws, *[1] * leaf.ndim), "float32")

    return Draws(
        model, model.network.state, Targets(target, target),
        draws=jax.tree.map(chains, model.parameters), chained=True,
    )  # fmt: skip


def chunks(posterior: Draws, *stops: int):
    for start, stop in zip((0, *stops[:-1]), stops, strict=True):
        part = jax.tree.map(lambda a, r=slice(start, stop): a[:, r], posterior.draws)
        yield News(
            "sampling", stop, stops[-1], {},
            Draws(posterior.model, posterior.state, posterior.targets, draws=part, chained=True),
        )  # fmt: skip


CASES = {
    "regression": (px.likelihoods.Gaussian(0.1), 1, ()),
    "predicted noise, two targets": (px.likelihoods.Gaussian("predicted"), 4, (2,)),
    "classes": (px.likelihoods.Categorical(), 3, ()),
    "two classes": (px.likelihoods.Bernoulli(), 1, ()),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.usefixtures("hasty_compiler")
def test_chunks_add_up_to_all_draws(name):
    posterior = spread_draws(*CASES[name])
    running = px.callbacks.RunningPredictive(X)
    running(News("warming up", 5, 10, {}, None))  # nothing is drawn yet
    for event in chunks(posterior, 5, 12, 20, 27):
        running(event)
    whole = posterior.predict(X)
    assert running.count == 2 * 27
    for part in ("mean", "variance", "epistemic", "aleatoric", "total", "std"):
        got, want = getattr(running, part), getattr(whole, part)
        assert got.shape == want.shape, part
        # float32 in both: some units in the last place of the largest number that was summed
        scale = max(1.0, float(np.abs(whole.mean).max()) ** 2)
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6 * scale, err_msg=part)
    np.testing.assert_allclose(running.epistemic + running.aleatoric, running.total, rtol=1e-12)


@pytest.mark.usefixtures("hasty_compiler")
def test_chunks_of_any_length_share_programs():
    """The length of chunks changes all the time: a program for each would never stop compiling."""
    from posterax.predictive import sampled

    posterior = spread_draws(*CASES["regression"])
    running = px.callbacks.RunningPredictive(X)
    for event in chunks(posterior, 8, 14):
        running(event)
    before = sampled.reduce_sampled.programs()
    for event in chunks(posterior, 7, 12, 20):  # of 7, 5 and 8 draws
        running(event)
    assert sampled.reduce_sampled.programs() == before


def test_states_of_draws_are_padded_with_them():
    posterior = spread_draws(*CASES["regression"], draws=3)
    state = {"average": jnp.arange(12.0).reshape(2, 3, 2)}
    own = Draws(
        posterior.model, state, posterior.targets, draws=posterior.draws, own_state=True
    )  # fmt: skip
    padded = _padded(own)
    assert padded.shape == (2, 4)
    weights = padded.particles(jax.random.key(0), None).weights.reshape(2, 4)
    np.testing.assert_allclose(weights, [[1 / 6] * 3 + [0]] * 2, rtol=1e-6)
    for before, after in ((own.draws, padded.draws), (own.state, padded.state)):
        jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:, :3]), before, after)


def test_no_draws_yet():
    running = px.callbacks.RunningPredictive(X)
    running(px.callbacks.Event("warming up", 1, 2, {}))
    assert running.count == 0
    for part in ("mean", "variance", "epistemic", "aleatoric", "total", "std"):
        with pytest.raises(RuntimeError, match="no draws yet"):
            getattr(running, part)


def test_weighted_draws_are_refused():
    posterior = spread_draws(*CASES["regression"], draws=4)
    weighted = Draws(
        posterior.model, posterior.state, posterior.targets,
        draws=posterior.draws, log_weights=jnp.zeros((2, 4)),
    )  # fmt: skip
    with pytest.raises(ValueError, match="weigh the same"):
        px.callbacks.RunningPredictive(X).add(weighted)


@pytest.mark.usefixtures("hasty_compiler")
def test_a_fit_that_keeps_few_draws_predicts_with_all():
    """The same chains with and without a limit on draws: the callback sees every one of them."""
    model = px.Model(px.networks.MLP(1, 1, (), key=0), likelihood=px.likelihoods.Gaussian(0.3))
    method, running = px.Metropolis(chains=2, warmup=20), px.callbacks.RunningPredictive(X)
    fit = {"steps": 60, "key": 0}
    few = px.fit(model, (X, X[:, 0]), method, **fit, draw_bytes=1000, callbacks=[running])
    whole = px.fit(model, (X, X[:, 0]), method, **fit)
    assert few.shape[1] < whole.shape[1] == 60
    assert running.count == 2 * 60
    want = whole.predict(X)
    np.testing.assert_allclose(running.mean, want.mean, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(running.epistemic, want.epistemic, rtol=1e-4, atol=1e-5)
