"""Any network: state, dropout, other precisions, and fresh starts without a constructor."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px
from posterax.networks import as_network

pytestmark = pytest.mark.usefixtures("hasty_compiler")
X = np.random.default_rng(0).normal(size=(40, 3)).astype("float32")
Y = (X[:, 0] > 0).astype(int)


class Stateful(eqx.Module):
    first: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    drop: eqx.nn.Dropout
    last: eqx.nn.Linear

    def __init__(self, key):
        a, b = jax.random.split(key)
        self.first, self.last = eqx.nn.Linear(3, 4, key=a), eqx.nn.Linear(4, 2, key=b)
        self.norm, self.drop = eqx.nn.BatchNorm(4, "batch", mode="batch"), eqx.nn.Dropout(0.2)

    def __call__(self, x, state, key=None):
        h, state = self.norm(self.first(x), state)
        return self.last(self.drop(jax.nn.relu(h), key=key)), state


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 2, rngs=rngs)
        self.norm, self.drop = nnx.BatchNorm(4, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)

    def __call__(self, x):
        return self.last(self.drop(nnx.relu(self.norm(self.first(x)))))


NETWORKS = {
    "equinox": lambda: eqx.nn.make_with_state(Stateful)(jax.random.key(0)),
    "flax": Flax,
}
METHODS = [px.BayesByBackprop(samples=2), px.DeepEnsemble(2), px.BayesByBackprop("local")]


@pytest.mark.parametrize("method", METHODS, ids=["weight", "ensemble", "local"])
@pytest.mark.parametrize("name", NETWORKS)
def test_networks_with_state_and_dropout(name, method, tmp_path):
    model = px.Model(NETWORKS[name](), px.priors.Gaussian(1.0), px.likelihoods.Categorical())
    posterior = px.fit(model, (X, Y), method, epochs=2, batch_size=16, key=0)
    before, after = (jax.tree.leaves(s) for s in (model.network.state, posterior.state))
    assert any(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    predictive = posterior.predict(X, samples=4)
    # dropout is off in prediction, and the running averages travel with the posterior
    np.testing.assert_array_equal(predictive.mean, posterior.predict(X, samples=4).mean)
    posterior.save(tmp_path / "p.px")
    loaded = px.load(tmp_path / "p.px", model=model)
    np.testing.assert_array_equal(loaded.predict(X, samples=4).mean, predictive.mean)


@pytest.mark.parametrize("name", NETWORKS)
def test_dropout_has_its_key(name):
    network = as_network(NETWORKS[name]())
    outputs = [
        network.apply(network.params, network.state, X, jax.random.key(k), True)[0]
        for k in (0, 0, 1)
    ]
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert not np.array_equal(outputs[0], outputs[2])


def test_a_fresh_start_permutes_the_entries():
    network = as_network(eqx.nn.Linear(3, 5, key=jax.random.key(0)))
    fresh = network.init(jax.random.key(1))
    assert not np.array_equal(fresh.weight, network.params.weight)
    np.testing.assert_array_equal(np.sort(fresh.weight, None), np.sort(network.params.weight, None))


def test_bfloat16_is_for_computing_only():
    network = px.networks.MLP(3, 2, (8,), key=0)
    likelihood = px.likelihoods.Categorical()
    low = px.Model(network, None, likelihood, compute_dtype="bfloat16")
    full = px.Model(network, None, likelihood)
    a, b = (m.apply(m.parameters, (), jnp.asarray(X), None, False)[0] for m in (low, full))
    assert a.dtype == jnp.float32
    np.testing.assert_allclose(a, b, atol=0.05)
    assert not np.array_equal(a, b)
    posterior = px.fit(low, (X, Y), px.BayesByBackprop(), epochs=1)
    assert posterior.mu.network.layers[0].weight.dtype == jnp.float32


def test_float64_where_the_inputs_are_and_jax_allows():
    model = px.Model(px.networks.MLP(3, 2, (4,), key=0), None, px.likelihoods.Categorical())
    jax.config.update("jax_enable_x64", True)
    try:
        for x, dtype in ((X.astype(float), "float64"), (X, "float32")):
            for method in (px.BayesByBackprop(), px.NUTS(2, warmup=3, max_doublings=2)):
                posterior = px.fit(model, (x, Y), method, steps=2)
                leaf = jax.tree.leaves(posterior.sample(0, 1))[0]
                assert leaf.dtype == dtype
                assert posterior.predict(x, samples=2).mean.dtype == dtype
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(("groups", "channels"), [(1, 3), (4, 16), (3, 3)])
def test_group_norm_is_equinoxs(groups, channels):
    from posterax.networks.images import GroupNorm

    x = 3 * jax.random.normal(jax.random.key(0), (channels, 7, 5)) + 2
    weight, bias = jnp.arange(1.0, channels + 1), jnp.linspace(-1, 1, channels)
    norms = [
        eqx.tree_at(lambda n: (n.weight, n.bias), make(groups, channels), (weight, bias))
        for make in (eqx.nn.GroupNorm, GroupNorm)
    ]
    theirs, ours = (norm(x) for norm in norms)
    np.testing.assert_allclose(theirs, ours, atol=1e-4)
    theirs, ours = (jax.grad(lambda x, norm=norm: jnp.sum(norm(x) ** 3))(x) for norm in norms)
    np.testing.assert_allclose(theirs, ours, atol=1e-3 * float(jnp.abs(theirs).max()))
