"""Which weights are Bayesian: parts chosen by name, the rest a point or frozen."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import posterax as px

pytestmark = pytest.mark.usefixtures("hasty_compiler")
rng = np.random.default_rng(0)
X = rng.normal(size=(48, 3)).astype("float32")
Y = (X[:, 0] + 0.1 * rng.normal(size=48)).astype("float32")
LAST = "layers.1.*"


class Flax(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.body, self.head = nnx.Linear(3, 4, rngs=rngs), nnx.Linear(4, 1, rngs=rngs)

    def __call__(self, x):
        return self.head(nnx.tanh(self.body(x)))


def plain():
    params = {"body": jnp.full((3, 4), 0.3), "head": jnp.full((4, 1), 0.2)}
    return params, lambda p, x: jnp.tanh(x @ p["body"]) @ p["head"]


NETWORKS = {
    "equinox": (lambda: px.networks.MLP(3, 1, (4,), key=0), LAST, 5),
    "flax": (Flax, "head.*", 5),
    "plain": (plain, "head", 4),
}


def model_of(name="equinox", prior=None, likelihood=None, **options):
    make, where, _ = NETWORKS[name]
    prior = px.priors.Gaussian(1.0) if prior is None else prior
    likelihood = px.likelihoods.Gaussian(0.1) if likelihood is None else likelihood
    return px.Model(make(), prior, likelihood, **{"where": where} | options)


def changed(before, after):
    return [
        not np.array_equal(a, b)
        for a, b in zip(*map(jax.tree.leaves, (before, after)), strict=True)
    ]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("rest", ["point", "frozen"])
class TestRest:
    def test_every_adapter(self, name, rest, tmp_path):
        model = model_of(name, rest=rest)
        assert model.bayesian_size == NETWORKS[name][2]
        posterior = px.fit(model, (X, Y), px.BayesByBackprop(learning_rate=1e-2), steps=20, key=0)
        assert len(jax.tree.leaves(posterior.rho)) == len(
            jax.tree.leaves(model.bayesian(posterior.mu))
        )
        predictive = posterior.predict(X, samples=8, key=0)
        assert np.all(predictive.epistemic > 0)
        posterior.save(tmp_path / "p.px")
        loaded = px.load(tmp_path / "p.px", model=model_of(name, rest=rest))
        np.testing.assert_array_equal(loaded.predict(X, samples=8, key=0).mean, predictive.mean)

    def test_draws_differ_where_bayesian_only(self, name, rest):
        posterior = px.fit(model_of(name, rest=rest), (X, Y), px.BayesByBackprop(), steps=2, key=0)
        draws = posterior.sample(0, 4)
        spread = [float(np.ptp(np.asarray(leaf), axis=0).max()) for leaf in jax.tree.leaves(draws)]
        priors = jax.tree.leaves(posterior.model.priors, is_leaf=px.priors.is_prior)
        assert [s > 0 for s in spread] == [not px.priors.is_flat(p) for p in priors]


def test_points_are_trained_and_frozen_ones_are_not():
    point = px.fit(model_of(), (X, Y), px.BayesByBackprop(learning_rate=1e-2), steps=20, key=0)
    assert all(changed(point.model.parameters.network, point.mu.network))
    frozen = model_of(rest="frozen")
    posterior = px.fit(frozen, (X, Y), px.BayesByBackprop(learning_rate=1e-2), steps=20, key=0)
    assert len(jax.tree.leaves(posterior.mu.network)) == 2
    assert not any(changed(frozen.network.fixed, posterior.model.network.fixed))


def test_kl_counts_the_bayesian_ones():
    model = model_of()
    posterior = px.fit(model, (X, Y), px.BayesByBackprop(learning_rate=1e-9), steps=1, key=0)
    prior = px.priors.Gaussian(1.0)
    layer, sigma = model.parameters.network.layers[1], np.log1p(np.exp(-5.0))
    by_hand = sum(
        float(prior.kl_from_gaussian(w, sigma * jnp.ones_like(w)).sum())
        for w in (layer.weight, layer.bias)
    )
    assert posterior.history["kl"][0] * len(X) == pytest.approx(by_hand, rel=1e-5)


@pytest.mark.parametrize("estimator", ["weight", "local", "flipout"])
def test_every_estimator_agrees_where_nothing_is_random(estimator):
    """With deviations of almost zero, all give the deterministic gradient."""
    method = px.BayesByBackprop(
        estimator, initial_rho=-30.0, temperature=0.0, learning_rate=1e-2, schedule="cosine"
    )
    posterior = px.fit(model_of(), (X, Y), method, steps=5, key=0)
    exact = px.fit(model_of(where=None), (X, Y), px.MaximumLikelihood(1e-2), steps=5, key=0)
    for a, b in zip(
        jax.tree.leaves(posterior.mu), jax.tree.leaves(exact.moments()[0]), strict=True
    ):
        np.testing.assert_allclose(a, b, atol=1e-5)


def test_only_weights_of_products():
    model = model_of(where=lambda name, w: w.ndim > 1)
    assert model.bayesian_size == 3 * 4 + 4


def test_the_rest_of_a_last_layer_by_exact_regression():
    """Frozen features and known noise: the posterior of the last layer is a conjugate Gaussian."""
    model = model_of(rest="frozen")
    method = px.BayesByBackprop(learning_rate=3e-3, samples=8, antithetic=True)
    posterior = px.fit(model, (X, Y), method, steps=4000, batch_size=48, key=0)
    layer = model.network.fixed.layers[0]
    features = np.maximum(X @ np.asarray(layer.weight).T + np.asarray(layer.bias), 0)
    design = np.column_stack([features, np.ones(len(X))]).astype(float)
    precision = np.eye(5) + design.T @ design / 0.1**2
    mean = np.linalg.solve(precision, design.T @ Y / 0.1**2)
    own = posterior.mu.network.layers[1]
    np.testing.assert_allclose(np.append(own.weight, own.bias), mean, atol=0.02)
    sigma = posterior.sigma().network.layers[1]
    # mean field: the deviations are those of each weight given the others
    np.testing.assert_allclose(
        np.append(sigma.weight, sigma.bias), np.diag(precision) ** -0.5, rtol=0.1
    )


@pytest.mark.filterwarnings("ignore:.*candidates count")
@pytest.mark.parametrize(
    "method",
    [px.NUTS(1, warmup=20), px.ImportanceSampling(), px.DeepEnsemble(2)],
    ids=["nuts", "importance", "ensemble"],
)
def test_frozen_for_every_method(method):
    posterior = px.fit(model_of(rest="frozen"), (X, Y), method, steps=10, key=0)
    assert posterior.predict(X, key=0).mean.shape == (48,)


@pytest.mark.parametrize(
    "method",
    [px.MaximumAPosteriori(), px.DeepEnsemble(2), px.DeepEnsemble(2, px.BayesByBackprop())],
    ids=["map", "ensemble", "of posteriors"],
)
def test_points_for_methods_that_optimise(method, tmp_path):
    posterior = px.fit(model_of(), (X, Y), method, steps=10, key=0)
    posterior.save(tmp_path / "p.px")
    mean = posterior.predict(X, key=0).mean
    np.testing.assert_array_equal(px.load(tmp_path / "p.px").predict(X, key=0).mean, mean)


@pytest.mark.parametrize("method", [px.NUTS(), px.ImportanceSampling()], ids=["nuts", "importance"])
def test_samplers_refuse_points(method):
    with pytest.raises(ValueError, match="rest='frozen'"):
        px.fit(model_of(), (X, Y), method, steps=10)


def test_by_part_with_a_flat_prior_is_the_same():
    prior = px.priors.ByPart({LAST: px.priors.Gaussian(1.0)}, px.priors.Flat())
    one, two = (
        px.fit(model, (X, Y), px.BayesByBackprop(), steps=5, key=0)
        for model in (model_of(), model_of(prior=prior, where=None))
    )
    for a, b in zip(jax.tree.leaves(one.mu), jax.tree.leaves(two.mu), strict=True):
        np.testing.assert_array_equal(a, b)


def test_sequential_updating_keeps_points():
    likelihood = px.likelihoods.Gaussian("learned")
    first = px.fit(model_of(likelihood=likelihood), (X, Y), px.BayesByBackprop(), steps=5, key=0)
    model = px.Model(first.model.network, first.as_prior(), likelihood)
    assert model.bayesian_size == 5
    second = px.fit(model, (X, Y), px.BayesByBackprop(), steps=5, key=0, init=first)
    assert second.rho.network.layers[0].weight is None


def test_points_of_the_prior_are_what_they_are():
    model = model_of()
    draws = px.prior_posterior(model, X).sample(0, 3)
    weight = draws.network.layers[0].weight
    np.testing.assert_array_equal(weight[0], model.parameters.network.layers[0].weight)
    assert np.ptp(np.asarray(draws.network.layers[1].weight), axis=0).min() > 0


class TestTrained:
    def test_prior_and_start(self, tmp_path):
        trained = px.networks.MLP(3, 1, (4,), key=0)
        model = px.Model(trained, px.priors.Trained(0.2, 0.05), px.likelihoods.Gaussian("learned"))
        method = px.BayesByBackprop(initial_rho="prior", learning_rate=1e-9)
        posterior = px.fit(model, (X, Y), method, steps=1, key=0)
        w = trained.layers[0].weight
        np.testing.assert_allclose(posterior.mu.network.layers[0].weight, w, atol=1e-6)
        sigma = posterior.sigma().network.layers[0].weight
        np.testing.assert_allclose(sigma, np.maximum(0.2 * np.abs(w), 0.05), rtol=1e-4)
        # q is p where every prior is around the start (the noise has a prior of its own)
        assert posterior.history["kl"][0] * len(X) < 5
        posterior.save(tmp_path / "p.px")
        loaded = px.load(tmp_path / "p.px")
        loc = loaded.model.priors.network.layers[0].weight.loc
        np.testing.assert_array_equal(loc, w)

    def test_with_where(self, tmp_path):
        network = px.networks.MLP(3, 1, (4,), key=0)
        model = px.Model(network, px.priors.Trained(), px.likelihoods.Gaussian(0.1), where=LAST)
        posterior = px.fit(model, (X, Y), px.BayesByBackprop(initial_rho="prior"), steps=2, key=0)
        posterior.save(tmp_path / "p.px")
        loaded = px.load(tmp_path / "p.px")
        np.testing.assert_array_equal(
            loaded.predict(X, key=0).mean, posterior.predict(X, key=0).mean
        )

    def test_needs_a_deviation(self):
        model = model_of(prior=px.priors.Hierarchical())
        with pytest.raises(ValueError, match="initial_rho='prior': Hierarchical has no deviation"):
            px.fit(model, (X, Y), px.BayesByBackprop(initial_rho="prior"), steps=1)


class TestBadInput:
    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"where": "nothing.*"}, "matches no weight; the weights are layers.0.weight"),
            ({"where": 3}, "where must be a pattern"),
            ({"where": []}, "where must be a pattern"),
            ({"rest": "thawed"}, "rest must be one of 'point', 'frozen'"),
        ],
        ids=str,
    )
    def test_model(self, options, words):
        with pytest.raises((TypeError, ValueError), match=words):
            model_of(**options)

    def test_initial_rho(self):
        with pytest.raises(ValueError, match="initial_rho must be one of 'prior'"):
            px.BayesByBackprop(initial_rho="small")


def test_a_module_of_ones_own_may_be_frozen_in_part():
    network = eqx.nn.MLP(3, "scalar", 4, 1, key=jax.random.key(0))
    model = px.Model(network, None, px.likelihoods.Gaussian(0.1), where="layers.1.*", rest="frozen")
    assert px.fit(model, (X, Y), px.BayesByBackprop(), steps=2).predict(X).mean.shape == (48,)
