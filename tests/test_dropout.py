"""MC dropout: places, moments, the regulariser, modes of a forward pass, learned rates."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

import posterax as px
from posterax.data import Batch
from posterax.infer.base import Plan, Start
from posterax.infer.ensembles.dropout import has_dropout
from posterax.infer.ensembles.dropout_phase import Concrete
from posterax.networks import as_network
from posterax.predictive import Targets
from posterax.program.input_units import input_units

pytestmark = pytest.mark.usefixtures("hasty_module")

KEY = jax.random.key(0)
RNG = np.random.default_rng(0)
P, DRAWS = 0.3, 4000
Z = 4.5  # deviations: a true hypothesis fails once in 150,000 checks


def normal(*shape):
    return jnp.asarray(RNG.normal(size=shape), jnp.float32)


# -- where inputs come in


def matrix(p, x):
    return x @ p["w"]


def tied(p, x):
    return jnp.tanh(x @ p["w"]) @ p["w"].T


class Expert(eqx.Module):
    """A weight with an axis that is in the inputs too: as many inputs as both have entries."""

    w: jax.Array

    def __call__(self, x):
        return jnp.einsum("ei,eio->o", x, self.w)


FLAX = nnx.Rngs(0)
# a network of one layer, inputs (rows, …), the axis of its units in x
LAYERS = {
    "plain": (({"w": normal(4, 3)}, matrix), normal(5, 4), (1,)),
    "plain, reshaped": (
        ({"w": normal(12)}, lambda p, x: x @ p["w"].reshape(3, 4)[::-1].T), normal(5, 4), (1,),
    ),
    "equinox": (eqx.nn.Linear(4, 3, use_bias=False, key=KEY), normal(5, 4), (1,)),
    "equinox, expert": (Expert(normal(2, 3, 2)), normal(5, 2, 3), (1, 2)),
    "equinox, convolution": (
        eqx.nn.Conv2d(4, 2, 3, use_bias=False, key=KEY), normal(5, 4, 5, 5), (1,),
    ),
    "equinox, groups": (
        eqx.nn.Conv1d(4, 6, 2, groups=2, use_bias=False, key=KEY), normal(5, 4, 5), (1,),
    ),
    "equinox, transposed": (
        eqx.nn.ConvTranspose1d(4, 2, 3, use_bias=False, key=KEY), normal(5, 4, 5), (1,),
    ),
    "flax": (nnx.Linear(4, 3, use_bias=False, rngs=FLAX), normal(5, 4), (1,)),
    "flax, convolution": (nnx.Conv(4, 2, (3,), use_bias=False, rngs=FLAX), normal(5, 6, 4), (2,)),
    "flax, heads": (
        nnx.LinearGeneral((2, 3), 2, axis=(-2, -1), use_bias=False, rngs=FLAX),
        normal(5, 2, 3), (1, 2),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_dropping_a_unit_of_the_weight_is_dropping_the_input(name):
    given, x, axes = LAYERS[name]
    network = as_network(given)

    def outputs(w, x):
        return network.apply(w, network.state, x, None, training=False)[0]

    (place,) = input_units(outputs, network.params, x)
    assert place.raw
    assert place.inputs == np.prod([x.shape[a] for a in axes]) == len(np.unique(place.units))
    (leaf,), tree = jax.tree.flatten(network.params)
    apply = jax.jit(outputs)
    for unit in range(place.inputs):
        without = jax.tree.unflatten(tree, [leaf * (place.units != unit)])
        index = np.unravel_index(unit, [x.shape[a] for a in axes])
        hole = np.ones(x.shape, "float32")
        hole[tuple(index[axes.index(a)] if a in axes else slice(None) for a in range(x.ndim))] = 0
        np.testing.assert_allclose(apply(without, x), apply(network.params, x * hole), atol=1e-5)


def scanned(p, x):
    return jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), x, p["layers"])[0] @ p["last"]


def places_of(network, x, drop=None, **options):
    model = px.Model(network, None, px.likelihoods.Gaussian(0.1), **options)
    return {n: place.inputs for n, place in px.MCDropout(where=drop)._chosen(model, x).items()}


def test_places_by_default():
    """All weights but those that meet the network's own inputs, or have no prior."""
    mlp, x = px.networks.MLP(2, 1, (4, 3), key=0), normal(5, 2)
    assert places_of(mlp, x) == {"layers.1.weight": 4, "layers.2.weight": 3}
    assert places_of(mlp, x, "*.weight")["layers.0.weight"] == 2
    assert places_of(mlp, x, "layers.2.*") == {"layers.2.weight": 3}
    for rest in ("frozen", "point"):  # a layer lies between, whatever it is made of
        found = places_of(mlp, x, where="layers.2.*", rest=rest)
        assert found == {"layers.2.weight": 3}
    gru = px.networks.Recurrent(2, 1, 3, key=0)
    found = places_of(gru, normal(5, 7, 2))
    assert found == {"cell_weights.weight_hh": 3, "head.weight": 3}
    layers = {"layers": normal(3, 4, 4), "last": normal(4, 1)}
    assert places_of((layers, scanned), normal(5, 4), "*") == {"layers": 12, "last": 4}
    assert places_of(({"w": normal(4, 3)}, tied), normal(5, 4), "*") == {"w": 4}


# -- what a mask does


def phase_of(method, network, x, prior=None, total=10.0):
    model = px.Model(network, prior, px.likelihoods.Gaussian(0.1))
    y = jnp.zeros(model.output_shape(x))
    model = model.for_targets(y.shape[1:], jnp.float32)
    one = jnp.ones((), jnp.int32)
    plan = Plan(jnp.asarray(total), one, one, len(x), Targets((), y.shape[1:]), inputs=x)
    (phase,) = method.phases(model, plan)
    state = phase.init(Start(model.parameters, model.network.state, None, False), None, KEY)
    return phase, state, Batch(x, y, jnp.zeros(len(x)), jnp.zeros((), jnp.int32))


def check_moments(outputs, mean, variance):
    """z-tests of mean and variance, entry by entry, of independent outputs (draws, …)."""
    outputs = np.asarray(outputs, np.float64)
    n, centred = len(outputs), outputs - np.asarray(mean)
    assert np.all(np.abs(centred.mean(0)) < Z * np.sqrt(variance / n))
    error = np.std(np.square(centred), axis=0) / np.sqrt(n)
    assert np.all(np.abs(np.square(centred).mean(0) - variance) < Z * error)


@pytest.mark.parametrize(
    "name",
    [
        "equinox",
        "equinox, groups",
        pytest.param("plain", marks=pytest.mark.slow),
        pytest.param("flax", marks=pytest.mark.slow),
    ],
)
def test_moments_of_a_linear_network(name):
    """Mean as without dropout, variance p/(1−p) Σ w²x² for masks in training and for draws."""
    network, x, _ = LAYERS[name]
    rows = jnp.repeat(x[:1], DRAWS, 0)
    phase, state, _ = phase_of(px.MCDropout(P, "*"), network, rows)
    point, model = state.point, phase.model

    @jax.jit
    def outputs(point, x):
        return model.apply(point, state.state, x, None, training=False)[0]

    # every input alone, one after another
    alone = np.eye(x.shape[1], dtype="float32").reshape(*[x.shape[1]] * 2, *[1] * (x.ndim - 2))
    parts = np.asarray(outputs(point, x[:1] * alone), np.float64)
    mean, variance = parts.sum(0), P / (1 - P) * np.sum(np.square(parts), axis=0)
    masks = phase.rates({}), state.state, rows, KEY, KEY
    check_moments(jax.jit(lambda w: phase.forward(w, *masks)[0])(point), mean, variance)
    posterior = phase.finish(state, None)
    draws = jax.vmap(outputs, (0, None))(posterior.sample(0, DRAWS), x[:1])[:, 0]
    check_moments(draws, mean, variance)
    (w,), (spread,) = (jax.tree.leaves(tree) for tree in posterior.moments())
    np.testing.assert_allclose(spread, np.sqrt(P / (1 - P)) * np.abs(w), rtol=1e-6)


def test_relaxed_masks_are_close_to_masks():
    """At temperature 0.1: mean 1 within the bias of the relaxation, most entries near 0 or 1."""
    rate = Concrete(jnp.log(P / (1 - P)))
    z = (1 - P) * rate.mask(KEY, (20_000,), jnp.float32)
    assert abs(float(rate.p) - P) < 1e-6
    # P(z < 1/2) is exactly p, as without relaxation
    dropped = float(jnp.mean(z < 0.5))
    assert abs(dropped - P) < Z * np.sqrt(P * (1 - P) / len(z))
    assert float(jnp.mean((z < 0.1) | (z > 0.9))) > 0.85


def test_a_weight_in_a_loop_has_one_mask_for_all_steps():
    """Rows that are the same stay the same, and see a posterior draw."""
    x = jnp.repeat(normal(1, 4), 3, 0)
    params = {"layers": normal(3, 4, 4), "last": normal(4, 1)}
    phase, state, _ = phase_of(px.MCDropout(0.5, "layers"), (params, scanned), x)
    masks = phase.rates({}), (), x, KEY, KEY
    outputs = jax.jit(lambda w: phase.forward(w, *masks)[0])(state.point)
    plain = scanned(params, x)
    np.testing.assert_allclose(outputs, outputs[:1].repeat(3, 0), rtol=1e-6)
    assert abs(float(outputs[0, 0] - plain[0, 0])) > 1e-3
    draw = phase.finish(state, None).parameters(KEY).network["layers"]
    ratio = np.asarray(draw / params["layers"])
    np.testing.assert_allclose(ratio, ratio[..., :1].repeat(4, -1), rtol=1e-5)  # whole rows
    assert set(ratio.round(4).ravel()) == {0.0, 2.0}


# -- the regulariser


@pytest.mark.parametrize(
    "prior",
    [px.priors.Gaussian(0.7), px.priors.Laplace(0.5), px.priors.ScaleMixture(0.5, 1.0, 0.1)],
)
def test_expected_log_prior(prior):
    """Exact against Monte Carlo over posterior draws; for a Gaussian it is weight decay."""
    network = ({"w": normal(6, 3), "b": normal(3)}, lambda p, x: x @ p["w"] + p["b"])
    phase, state, _ = phase_of(px.MCDropout(P, "*"), network, normal(5, 6), prior)
    point, rates = state.point, phase.rates({})
    log_prior = jax.jit(lambda w: phase.log_prior(w, rates, KEY))
    exact = float(log_prior(point))
    draws = phase.finish(state, None).sample(1, DRAWS)
    sampled = np.asarray(jax.jit(jax.vmap(phase.model.log_prior))(draws), np.float64)
    assert abs(sampled.mean() - exact) < Z * sampled.std() / np.sqrt(DRAWS)
    if isinstance(prior, px.priors.Gaussian):
        there = float(log_prior(jax.tree.map(jnp.zeros_like, point)))
        w, b = (np.asarray(point.network[k], np.float64) for k in "wb")
        decay = px.MCDropout.weight_decay
        want = decay(0.7, P, 10) * np.sum(w**2) + decay(0.7, 0.0, 10) * np.sum(b**2)
        np.testing.assert_allclose((there - exact) / 10, want, rtol=1e-5)
        # Gal and Ghahramani's form, with M = W / (1 − p)
        m = w / (1 - P)
        np.testing.assert_allclose(
            decay(0.7, P, 10) * np.sum(w**2), (1 - P) * np.sum(m**2) / (2 * 0.7**2 * 10)
        )


def test_a_prior_of_all_weights_at_once_is_sampled():
    prior = px.priors.Hierarchical()
    phase, state, _ = phase_of(
        px.MCDropout(P, "*"), ({"w": normal(6, 1)}, matrix), normal(5, 6), prior
    )
    rates, keys = phase.rates({}), jax.random.split(KEY, DRAWS)
    mine = jax.jit(jax.vmap(lambda key: phase.log_prior(state.point, rates, key)))(keys)
    draws = phase.finish(state, None).sample(1, DRAWS)
    sampled = jax.jit(jax.vmap(phase.model.log_prior))(draws)
    error = float(jnp.sqrt((jnp.var(mine) + jnp.var(sampled)) / DRAWS))
    assert abs(float(jnp.mean(mine) - jnp.mean(sampled))) < Z * error


# -- learned rates


def test_gradient_of_the_concrete_objective():
    """Without data: ∂/∂logit of ‖W‖²/(2s²(1−p)N) − K H(p)/N by hand; with data, by differences."""
    jax.config.update("jax_enable_x64", True)
    try:
        x, n, s = jnp.asarray(RNG.normal(size=(8, 4))), 7.0, 0.7
        network = ({"w": jnp.asarray(RNG.normal(size=(4, 2)))}, matrix)
        method = px.MCDropout("learned", "*", initial_rate=0.2)
        phase, _, batch = phase_of(method, network, x, px.priors.Gaussian(s), total=n)
        phase = eqx.tree_at(lambda p: p.model, phase, phase.model.for_targets((2,), jnp.float64))
        point = phase.model.parameters
        logit = jnp.log(jnp.asarray(0.2 / 0.8))

        @jax.jit
        def objective(logit, batch):
            trained = {"point": point, "logit": {"w": logit}}
            return phase.objective(trained, (), batch, KEY)[0]

        w = np.asarray(point.network["w"])
        want = np.sum(w**2) / (2 * s**2 * n) * 0.2 / 0.8 + 4 / n * 0.2 * 0.8 * float(logit)
        np.testing.assert_allclose(jax.grad(objective)(logit, batch), want, rtol=1e-10)
        full = Batch(x, x[:, :2], jnp.ones(8), batch.i)
        step = 1e-6
        slope = (objective(logit + step, full) - objective(logit - step, full)) / (2 * step)
        np.testing.assert_allclose(jax.grad(objective)(logit, full), slope, rtol=1e-5)
    finally:
        jax.config.update("jax_enable_x64", False)


def test_weight_decay_of_an_optimiser_does_not_reach_the_rates():
    method = px.MCDropout("learned", "*", optimizer=optax.add_decayed_weights(1.0))
    phase, state, batch = phase_of(method, ({"w": normal(4, 2)}, matrix), normal(8, 4))
    trained = {"point": state.point, "logit": state.logits}
    gradient = lambda w: jax.grad(phase.objective, has_aux=True)(w, (), batch, KEY)[0]  # noqa: E731
    grads = jax.jit(gradient)(trained)
    new = jax.jit(lambda s: phase.step(s, batch, KEY)[0])(state)
    # such an "optimiser" adds gradient and decay to what there is
    np.testing.assert_allclose(new.logits["w"], state.logits["w"] + grads["logit"]["w"], rtol=1e-5)
    w = state.point.network["w"]
    np.testing.assert_allclose(
        new.point.network["w"], 2 * w + grads["point"].network["w"], rtol=1e-4
    )


def test_learned_rates_follow_the_data():
    """Little data leaves the rates large, plenty of clean data makes them small."""
    x = jnp.linspace(-1, 1, 64)[:, None]
    y = np.sin(4 * np.asarray(x[:, 0]))
    network = px.networks.MLP(1, 1, (20, 20), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise=0.2))
    method = px.MCDropout("learned", learning_rate=2e-2)
    rates = {}
    for weight in (0.02, 50.0):  # N of 1.3 and 3200, one program
        data = (x, y, np.full(64, weight))
        posterior = px.fit(model, data, method, steps=500, batch_size=64, key=0)
        rates[weight] = np.array([posterior.rates[f"layers.{i}.weight"] for i in (1, 2)])
        assert posterior.history["rate"][-1] == pytest.approx(rates[weight].mean(), abs=0.02)
    assert np.all(rates[0.02] > 0.2)  # from 0.1, towards the prior's 1/2
    assert np.all(rates[50.0] < 0.05)
    again = px.fit(model, data, method, steps=1, batch_size=64, key=0, init=posterior)
    moved = again.rates["layers.1.weight"] - posterior.rates["layers.1.weight"]
    assert abs(float(moved)) < 0.01  # a start from there, not from 0.1


# -- networks with dropout of their own


class Equinox(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    dropout: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        self.first, self.last = eqx.nn.Linear(3, 8, key=key), eqx.nn.Linear(8, 1, key=key)
        self.norm = eqx.nn.BatchNorm(8, "batch", mode="batch", momentum=0.5)
        self.dropout = eqx.nn.Dropout(P)

    def __call__(self, x, state, *, key=None):
        h, state = self.norm(self.first(x), state)
        return self.last(self.dropout(jax.nn.relu(h), key=key)), state


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(3, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)
        self.norm = nnx.BatchNorm(8, momentum=0.5, rngs=rngs)
        self.dropout = nnx.Dropout(P, rngs=rngs)

    def __call__(self, x):
        return self.last(self.dropout(nnx.relu(self.norm(self.first(x)))))


def plain(params, state, x, *, key, training, dropout):
    h = x @ params["first"]
    if training:
        state = {"mean": 0.5 * state["mean"] + 0.5 * h.mean(0)}
    h = jax.nn.relu(h - (h.mean(0) if training else state["mean"]))
    if dropout:
        h = h * jax.random.bernoulli(key, 1 - P, h.shape) / (1 - P)
    return h @ params["last"], state


def one_switch(params, state, x, *, key, training):
    return plain(params, state, x, key=key, training=training, dropout=training)


WEIGHTS = {"first": normal(3, 8), "last": normal(8, 1)}
OWN = {
    "equinox": lambda: eqx.nn.make_with_state(Equinox)(KEY),
    "flax": Flax,
    "plain": lambda: (WEIGHTS, {"mean": jnp.zeros(8)}, plain),
}
X = np.random.default_rng(2).normal(1.0, 2.0, size=(24, 3)).astype("float32")
Y = np.tanh(X[:, 0])


@pytest.fixture(scope="module", params=OWN)
def fitted(request):
    model = px.Model(OWN[request.param](), None, px.likelihoods.Gaussian(0.3))
    posterior = px.fit(model, (X, Y), px.MCDropout(), steps=10, batch_size=12, key=0)
    return model, posterior


def test_only_dropout_is_on_at_prediction(fitted):
    model, posterior = fitted
    assert has_dropout(model, X)
    assert not posterior.rates

    @jax.jit
    def apply(x, key):
        return posterior.model.apply(
            posterior.point, posterior.state, x, key, training=False, dropout=True
        )

    @jax.jit
    def without(x):
        return posterior.model.apply(posterior.point, posterior.state, x, None, training=False)[0]

    outputs, state = apply(X, KEY)
    for before, after in zip(*map(jax.tree.leaves, (posterior.state, state)), strict=True):
        np.testing.assert_array_equal(before, after)
    # a row does not see the others, as it would by the statistics of the batch
    others = X.copy()
    others[1:] += 5.0
    np.testing.assert_allclose(outputs[0], apply(others, KEY)[0][0], rtol=1e-5)
    assert np.abs(np.asarray(outputs - apply(X, jax.random.key(1))[0])).max() > 1e-3
    # the last layer is linear in what is dropped: the mean is the network without dropout
    rows = jnp.repeat(X[:1], DRAWS, 0)
    dropped = np.asarray(apply(rows, KEY)[0][:, 0], np.float64)
    error = dropped.std() / np.sqrt(DRAWS)
    assert error > 0
    assert abs(dropped.mean() - float(without(X)[0, 0])) < Z * error


def test_draws_with_own_layers_are_functions(fitted, tmp_path):
    model, posterior = fitted
    predictive = posterior.predict(X, samples=20, key=1)
    assert np.all(predictive.epistemic > 0)
    # equal rows have equal outputs in every draw, whatever the others are
    evaluate = jax.jit(lambda ids, x: posterior.evaluate(ids, x)[0])
    ids = posterior.particles(KEY, 5).ids
    same, other = evaluate(ids, X[[0, 0, 0]]), evaluate(ids, X[:3])
    np.testing.assert_allclose(same, same[:, :1].repeat(3, 1), rtol=1e-5)
    np.testing.assert_allclose(other[:, 0], same[:, 0], rtol=1e-5)
    assert np.std(same[:, 0]) > 0
    # weights do not know of such masks
    sample = jax.tree.leaves(posterior.sample(0, 2))
    for draws, w in zip(sample, jax.tree.leaves(posterior.point), strict=True):
        np.testing.assert_array_equal(draws[1], w)
    posterior.save(tmp_path / "own.px")
    loaded = px.load(tmp_path / "own.px", model=model)
    np.testing.assert_array_equal(loaded.predict(X, samples=20, key=1).mean, predictive.mean)


# -- bad input


def scale_only(p, x):
    return x * p["w"]


@pytest.mark.parametrize(
    ("network", "method", "message"),
    [
        (({"w": normal(3, 1)}, matrix), px.MCDropout(), r"where='\*' drops them too; px.BayesByBa"),
        (({"w": normal(3)}, scale_only), px.MCDropout(), "no place for dropout.*px.DeepEnsemble"),
        (px.networks.MLP(3, 1, (4,), key=0), px.MCDropout(where="*.bias"),
         r"chooses no weight .* those are layers.0.weight, layers.1.weight"),
        (Flax(), px.MCDropout(rate=0.2), "rate: the network has dropout of its own"),
        (Flax(), px.MCDropout(where="*"), "where: the network has dropout of its own"),
        ((WEIGHTS, {"mean": jnp.zeros(8)}, one_switch), px.MCDropout(), "let it take dropout"),
    ],
)  # fmt: skip
def test_no_place_for_dropout(network, method, message):
    model = px.Model(network, None, px.likelihoods.Gaussian(0.1))
    y = Y if message[0] != "n" else X
    with pytest.raises(ValueError, match=message):
        px.fit(model, (X, y), method, steps=1, key=0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rate": 1.0}, "rate must lie between 0 and 1"),
        ({"rate": "learn"}, "rate must be a number between 0 and 1 or 'learned'"),
        ({"initial_rate": 0.0}, "initial_rate must lie between 0 and 1"),
    ],
)
def test_values(options, message):
    with pytest.raises(ValueError, match=message):
        px.MCDropout(**options)


# -- what it is for


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.1, "learned"])
def test_epistemic_deviation_grows_outside_the_data(rate):
    rng = np.random.default_rng(0)
    x, e = rng.uniform(0, 0.5, (200, 1)), rng.normal(0, 0.02, (200, 1))
    y = x + 0.3 * np.sin(2 * np.pi * (x + e)) + 0.3 * np.sin(4 * np.pi * (x + e)) + e
    z = ((x - 0.25) / 0.15).astype("float32")
    likelihood = px.likelihoods.Gaussian(noise="learned", initial=0.1)
    model = px.Model(px.networks.MLP(1, 1, (50, 50), key=0), px.priors.Gaussian(1.0), likelihood)
    method = px.MCDropout(rate, learning_rate=1e-2)
    posterior = px.fit(model, (z, y[:, 0]), method, epochs=1000, key=0)
    at = ((np.array([[-0.2], [0.1], [0.25], [0.4], [0.8]]) - 0.25) / 0.15).astype("float32")
    deviation = np.sqrt(posterior.predict(at, samples=200, key=1).epistemic)
    assert min(deviation[[0, -1]]) > 2 * max(deviation[1:4])
