"""Other people's networks, whole: one Flax model by three methods, and LoRA."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px

pytestmark = pytest.mark.usefixtures("hasty_compiler")
rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (40, 1)).astype("float32")
Y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=40).astype("float32")


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.first, self.last = nnx.Linear(1, 8, rngs=rngs), nnx.Linear(8, 1, rngs=rngs)

    def __call__(self, x):
        return self.last(nnx.tanh(self.first(x)))


def test_one_flax_model_by_three_methods():
    """The same model object; what each returns predicts the same curve within its own band."""
    model = px.Model(Flax(), px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    posteriors = {
        "nuts": px.fit(model, (X, Y), px.NUTS(1, warmup=300, max_doublings=6), steps=300, key=0),
        "bayes": px.fit(
            model, (X, Y), px.BayesByBackprop(learning_rate=1e-2), steps=4000, batch_size=40, key=0
        ),
        "ensemble": px.fit(
            model, (X, Y), px.DeepEnsemble(4, learning_rate=1e-2), steps=2000, batch_size=40, key=0
        ),
    }
    x = np.linspace(-0.9, 0.9, 20, dtype="float32")[:, None]
    found = {name: p.predict(x, samples=200, key=1) for name, p in posteriors.items()}
    for name, predictive in found.items():
        error = np.sqrt(np.mean((predictive.mean - np.sin(3 * x[:, 0])) ** 2))
        assert error < 0.12, name
        assert np.all(predictive.epistemic > 0), name
    gap = np.abs(found["bayes"].mean - found["nuts"].mean)
    assert np.mean(gap < 3 * found["nuts"].std) > 0.9


class TestLowRank:
    def network(self, **options):
        self.trained = px.networks.MLP(3, 1, (8,), key=0)
        return px.networks.low_rank(self.trained, **{"rank": 2, "key": 1} | options)

    def test_starts_as_the_network_it_is_added_to(self):
        network, x = self.network(), jnp.ones((5, 3))
        outputs, _ = network.apply(network.params, network.state, x, None, False)
        np.testing.assert_allclose(outputs, self.trained(x), rtol=1e-6)

    def test_only_the_additions_are_learned(self, tmp_path):
        x = rng.normal(size=(40, 3)).astype("float32")
        y = x[:, 0]
        model = px.Model(self.network(), px.priors.Gaussian(0.3), px.likelihoods.Gaussian(0.1))
        assert model.bayesian_size == 2 * (8 + 3 + 1 + 8)
        posterior = px.fit(model, (x, y), px.BayesByBackprop(learning_rate=1e-2), steps=300, key=0)
        before = np.mean((np.asarray(self.trained(x))[:, 0] - y) ** 2)
        predictive = posterior.predict(x, samples=50, key=0)
        assert np.mean((predictive.mean - y) ** 2) < before / 4
        posterior.save(tmp_path / "p.px")
        model = px.Model(self.network(), px.priors.Gaussian(0.3), px.likelihoods.Gaussian(0.1))
        loaded = px.load(tmp_path / "p.px", model=model)
        np.testing.assert_array_equal(loaded.predict(x, samples=50, key=0).mean, predictive.mean)

    def test_by_name(self):
        network = self.network(where="layers.0.weight")
        assert list(network.params) == ["layers.0.weight"]

    def test_for_flax(self):
        network = px.networks.low_rank(Flax(), rank=1, key=0)
        assert all(isinstance(name, str) for name in network.params)
        assert jax.tree.leaves(network.params)

    @pytest.mark.parametrize(
        ("options", "words"),
        [({"rank": 0}, "rank"), ({"where": "*.bias"}, "has one axis: no matrix to add to")],
        ids=str,
    )
    def test_bad_input(self, options, words):
        with pytest.raises(ValueError, match=words):
            self.network(**options)
