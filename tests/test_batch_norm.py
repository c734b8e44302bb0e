"""Normalisation with state (docs/networks.md): each of its statements, checked by hand in numpy."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px
from posterax.data import Batch, Data, Stream
from posterax.fitting.prepare import Asked, prepare
from posterax.fitting.start import make_start

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
X = RNG.normal(1.0, 2.0, size=(22, 3)).astype("float32")
Y = (X[:, 0] > 1).astype(int)
MOMENTUM, EPS = 0.9, 1e-5


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    last: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(3, 4, key=a), eqx.nn.Linear(4, 2, key=b)
        self.norm = eqx.nn.BatchNorm(4, "batch", mode="batch", momentum=MOMENTUM, eps=EPS)

    def __call__(self, x, state):
        h, state = self.norm(self.first(x), state)
        return self.last(jax.nn.relu(h)), state


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)
        self.norm = nnx.BatchNorm(4, momentum=MOMENTUM, epsilon=EPS, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.relu(self.norm(self.first(x))))


NETWORKS = {
    "equinox": lambda: eqx.nn.make_with_state(Equinox)(jax.random.key(0)),
    "flax": Flax,
}
each_library = pytest.mark.parametrize("library", NETWORKS)


def model_of(library):
    return px.Model(NETWORKS[library](), px.priors.Gaussian(1.0), px.likelihoods.Categorical())


def weights(parameters):
    """W₁, b₁, γ, β, W₂, b₂ of a parameter tree, W as (in, out)."""
    w = jax.tree.map(lambda a: np.asarray(a, np.float64), parameters.network)
    if isinstance(w, Equinox):
        norm, ends = (w.norm.weight, w.norm.bias), (w.first, w.last)
        (a, b), (c, d) = ((layer.weight.T, layer.bias) for layer in ends)
    else:
        norm = w["norm"]["scale"][...], w["norm"]["bias"][...]
        (a, b), (c, d) = ((w[n]["kernel"][...], w[n]["bias"][...]) for n in ("first", "last"))
    return a, b, *norm, c, d


def forward(parameters, x, mean=None, var=None):
    """Outputs, and the batch's mean and variance, which normalise unless others are given."""
    a, b, gamma, beta, c, d = weights(parameters)
    h = x @ a + b
    batch = h.mean(0), h.var(0)
    mean, var = batch if mean is None else (mean, var)
    h = (h - mean) / np.sqrt(var + EPS) * gamma + beta
    return np.maximum(h, 0) @ c + d, batch


def nll(outputs, y):
    log_p = outputs - np.log(np.exp(outputs).sum(1, keepdims=True))
    return -log_p[np.arange(len(y)), y].mean()


def averages(state):
    """The stored mean and variance, as they are."""
    mean, var = jax.tree.leaves(state)[-2:]
    return np.asarray(mean), np.asarray(var)


def used(library, state):
    """What prediction normalises with: Equinox divides by 1 − momentumᵗ, Flax does not."""
    mean, var = averages(state)
    steps = int(jax.tree.leaves(state)[0]) if library == "equinox" else 0
    scale = 1 - MOMENTUM**steps if steps else 1.0
    return mean / scale, var / scale


def running(batch, before=(0.0, 1.0)):
    return [MOMENTUM * b + (1 - MOMENTUM) * a for a, b in zip(batch, before, strict=True)]


def first_step(library, method, x=X, y=Y):
    """The state before and after one step on all of x, and what the step told."""
    ready = prepare(model_of(library), (x, y), method, Asked(None, 10, len(x)))
    (phase,) = method.phases(ready.model, ready.plan)
    before = phase.init(make_start(None, ready.model), ready.data, jax.random.key(1))
    key = jax.random.key(2)
    after, info = eqx.filter_jit(phase.step)(before, ready.data.everything(), key)
    return phase, before, after, info.terms["nll"], key


@each_library
def test_every_weight_sample_has_its_batch_statistics_and_the_averages_are_their_mean(library):
    method = px.BayesByBackprop(samples=3, initial_rho=-0.5)
    phase, before, after, told, key = first_step(library, method)
    losses, batches = [], []
    for sample in phase._sample_keys(key):
        outputs, batch = forward(phase._draw_weights(before, sample, jnp.ones(()))[0], X)
        losses.append(nll(outputs, Y))
        batches.append(running(batch))
    np.testing.assert_allclose(told, np.mean(losses), rtol=1e-4)
    assert np.std(losses) > 0.01
    for got, want in zip(averages(after.state), np.mean(batches, axis=0), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4)


@each_library
def test_every_member_of_an_ensemble_has_its_own_averages(library):
    _, before, after, told, _ = first_step(library, px.DeepEnsemble(2))
    before, after = before.state, after.state
    losses = []
    for member in range(2):
        params, state = jax.tree.map(lambda a, m=member: a[m], (before.params, after.state))
        outputs, batch = forward(params, X)
        losses.append(nll(outputs, Y))
        for got, want in zip(averages(state), running(batch), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4)
    np.testing.assert_allclose(told, np.mean(losses), rtol=1e-4)
    mean, _ = averages(after.state)
    assert not np.allclose(mean[0], mean[1])


@each_library
@pytest.mark.parametrize(
    "method",
    [px.BayesByBackprop(initial_rho=-2.0), px.DeepEnsemble(2)],
    ids=["variational", "ensemble"],
)
def test_predictions_use_the_stored_averages_whatever_the_others_are(library, method):
    posterior = px.fit(model_of(library), (X, Y), method, steps=5, batch_size=8, key=0)
    predictive = posterior.predict(X, samples=4)
    outputs = predictive.outputs()
    for i, got in enumerate(outputs):
        identity = jax.tree.map(lambda a, i=i: a[i], predictive._particles.ids)
        state = posterior.network_state(identity)
        want, _ = forward(posterior.parameters(identity), X, *used(library, state))
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=2e-4)
    for rows in ([3], [3, 3, 3], [3, 0, 11]):
        alone = posterior.predict(X[rows], samples=4).outputs()
        np.testing.assert_allclose(alone[:, 0], outputs[:, 3], rtol=1e-5, atol=1e-5)


@each_library
def test_a_sampler_keeps_the_state_it_started_with(library):
    model = model_of(library)
    trained = px.fit(model, (X, Y), px.MaximumAPosteriori(), steps=3, batch_size=8, key=0)
    sampler = px.NUTS(1, warmup=2, max_doublings=1)
    posterior = px.fit(model, (X, Y), sampler, steps=2, key=0, init=trained)
    for got, want in zip(*(jax.tree.leaves(p.state) for p in (posterior, trained)), strict=True):
        np.testing.assert_array_equal(got, want)
    # and its density is that of the network with these averages
    draw = jax.tree.map(lambda a: a[0, 1], posterior.draws)
    outputs, _ = forward(draw, X, *used(library, trained.state))
    log_density = float(posterior.model.log_prior(draw)) - len(X) * nll(outputs, Y)
    np.testing.assert_allclose(posterior.stats["lp"][0, 1], log_density, rtol=1e-4)


@each_library
def test_one_network_that_starts_from_an_ensemble_has_the_mean_of_its_averages(library):
    model = model_of(library)
    for inside in ("map", px.BayesByBackprop()):
        method = px.DeepEnsemble(2, inside=inside)
        members = px.fit(model, (X, Y), method, steps=2, batch_size=8, key=0)
        start = make_start(members, model.for_targets((), np.float32))
        want = [a.reshape(2, 4).mean(0) for a in averages(members.state)]
        for got, mean in zip(averages(start.state), want, strict=True):
            np.testing.assert_allclose(got, mean, rtol=1e-6)


def test_state_is_in_the_precision_of_the_fit():
    model = model_of("equinox")
    jax.config.update("jax_enable_x64", True)
    try:
        data = (X.astype(float), Y)
        posterior = px.fit(model, data, px.MaximumAPosteriori(), steps=2, batch_size=8, key=0)
        assert averages(posterior.state)[0].dtype == np.float64
    finally:
        jax.config.update("jax_enable_x64", False)


# -- the last minibatch


def test_a_last_minibatch_that_is_not_full_goes_on_with_the_epochs_first_rows():
    n, size, batches = 22, 8, 3
    y = jnp.arange(n)
    data = Data(y[:, None], y, jnp.ones(n), jnp.asarray(n, jnp.int32))
    parts: list[Batch] = [
        data.batch(data.place(jnp.asarray(step), size, jnp.asarray(batches), jax.random.key(0)))
        for step in range(batches)
    ]
    last = np.asarray(parts[-1].y)
    assert parts[-1].weight.tolist() == [1] * 6 + [0] * 2
    assert last[6:].tolist() == parts[0].y[:2].tolist()
    assert len(set(last.tolist())) == size


@each_library
def test_padding_of_the_last_minibatch_is_normalised_over_like_any_row(library):
    # every minibatch is as large as the others, so all batch statistics are of so many examples
    method = px.MaximumLikelihood(0.0 + 1e-30, schedule="constant")  # the weights stay
    model = model_of(library)
    posterior = px.fit(model, (X, Y), method, steps=3, batch_size=8, key=0)
    ready = prepare(model, (X, Y), method, Asked(None, 3, 8))
    _, run_key = jax.random.split(jax.random.fold_in(jax.random.key(0), 0))
    order, _ = jax.random.split(run_key)
    want = (0.0, 1.0)
    for step in range(3):
        place = ready.data.place(jnp.asarray(step), 8, ready.plan.batches, order)
        rows = X[np.asarray(place.rows)]
        assert len(np.unique(rows, axis=0)) == 8
        want = running(forward(posterior.point, rows)[1], want)
    for got, mean in zip(averages(posterior.state), want, strict=True):
        np.testing.assert_allclose(got, mean, rtol=1e-4)


def test_a_short_batch_of_a_stream_repeats_its_own_rows():
    x = np.arange(7, dtype="float32")[:, None]
    window = Stream([(x[:5], x[:5, 0]), (x[5:], x[5:, 0])]).window(0, 2, 2, (), np.float32)
    assert window.y[1].tolist() == [5, 6, 5, 6, 5]
    assert window.x[1, :, 0].tolist() == [5, 6, 5, 6, 5]
    assert window.weight[1].tolist() == [1, 1, 0, 0, 0]
