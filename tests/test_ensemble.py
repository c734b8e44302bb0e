"""Ensembles whose members are posteriors, and the mixture they make."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.posteriors import Draws, GaussianMixture, MeanFieldGaussian

X = np.linspace(-1, 1, 40)[:, None].astype("float32")
Y = np.sin(3 * X[:, 0])


def model():
    return px.Model(
        px.networks.MLP(1, 1, (8,), key=0),
        px.priors.Gaussian(1.0),
        px.likelihoods.Gaussian(noise=0.1),
    )


def fit(method, **options):
    return px.fit(model(), (X, Y), method, **{"steps": 200, "key": 0} | options)


@pytest.fixture(scope="module")
def mixture():
    return fit(px.DeepEnsemble(3, px.BayesByBackprop(learning_rate=1e-2)))


def test_members_are_posteriors_at_different_places(mixture):
    assert isinstance(mixture, GaussianMixture)
    assert mixture.members == 3
    assert sorted(mixture.history) == ["kl", "nll"]
    parts = [mixture.component(i) for i in range(3)]
    assert all(isinstance(part, MeanFieldGaussian) for part in parts)
    first = [np.asarray(part.mu.network.layers[0].weight) for part in parts]
    assert np.abs(first[0] - first[1]).max() > 0.1


def test_the_mixture_averages_its_components(mixture):
    together = mixture.predict(X, samples=600, key=1)
    apart = [mixture.component(i).predict(X, samples=400, key=i) for i in range(3)]
    mean = np.mean([p.mean for p in apart], axis=0)
    error = np.sqrt(np.max(together.epistemic) / 600)
    np.testing.assert_allclose(together.mean, mean, atol=6 * error)
    # Var = mean of variances + variance of means
    spread = np.mean([p.epistemic for p in apart], axis=0) + np.var([p.mean for p in apart], axis=0)
    np.testing.assert_allclose(together.epistemic, spread, rtol=0.25, atol=1e-4)


@pytest.mark.parametrize("samples", [1, 2, 4, 5, 7, 100])
def test_components_weigh_the_same_whatever_the_number_of_draws(mixture, samples):
    for ids, weights in (
        mixture.particles(jax.random.key(0), samples),
        mixture.antithetic(jax.random.key(0), samples),
    ):
        assert len(weights) == samples
        mass = np.bincount(np.asarray(ids.component), np.asarray(weights), 3)
        present = min(samples, 3)
        np.testing.assert_allclose(np.sort(mass)[-present:], 1 / present, rtol=1e-5)


def test_moments_are_the_mixture_s(mixture):
    mean, std = mixture.moments()
    drawn = mixture.sample(0, 3000)
    for m, s, d in zip(*map(jax.tree.leaves, (mean, std, drawn)), strict=True):
        np.testing.assert_allclose(d.mean(0), m, atol=6 * float(np.max(s)) / 3000**0.5)
        np.testing.assert_allclose(d.std(0), s, rtol=0.15, atol=1e-3)


def test_a_mixture_is_no_gaussian_prior(mixture):
    with pytest.raises(ValueError, match=r"3 components.*component\(i\)"):
        mixture.as_prior()
    assert isinstance(mixture.component(0).as_prior(), px.priors.PerWeight)


def test_save_and_load(mixture, tmp_path):
    mixture.save(tmp_path / "mixture.px")
    same = px.load(tmp_path / "mixture.px")
    np.testing.assert_array_equal(same.predict(X, key=1).mean, mixture.predict(X, key=1).mean)


def test_one_member_is_the_method_inside():
    """Starts differ, so the weights do; what they predict does not."""
    inside = px.BayesByBackprop(learning_rate=1e-2)
    ensemble = fit(px.DeepEnsemble(1, inside), steps=2000)
    alone = fit(inside, steps=2000)
    ours, theirs = ensemble.predict(X, samples=400, key=1), alone.predict(X, samples=400, key=1)
    # the kinks of the curve lie elsewhere, so single points may differ by more
    assert np.sqrt(np.mean((ours.mean - theirs.mean) ** 2)) < 0.05
    assert np.mean(ours.log_prob(Y)) == pytest.approx(np.mean(theirs.log_prob(Y)), abs=0.1)


def test_a_ladder_of_temperatures():
    """Cold members are surer of their weights than warm ones; equal temperatures change nothing."""
    inside = px.BayesByBackprop(learning_rate=1e-2)
    ladder = fit(px.DeepEnsemble(3, inside, (0.01, 0.1, 1.0)), steps=2000)
    # the median: weights that nothing uses are as wide as the prior at any temperature
    widths = [float(np.median(jnp.concatenate(_widths(ladder, i)))) for i in range(3)]
    assert widths[0] < widths[1] < widths[2]
    one = px.BayesByBackprop(learning_rate=1e-2, temperature=0.3)
    same, other = fit(px.DeepEnsemble(2, inside, (0.3, 0.3))), fit(px.DeepEnsemble(2, one))
    for a, b in zip(jax.tree.leaves(same.mu), jax.tree.leaves(other.mu), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def _widths(mixture, index):
    return [jnp.ravel(leaf) for leaf in jax.tree.leaves(mixture.component(index).sigma())]


@pytest.mark.parametrize("inside", ["map", px.BayesByBackprop(learning_rate=1e-2)])
def test_an_ensemble_goes_on_from_an_ensemble(inside):
    method = px.DeepEnsemble(2, inside)
    first = fit(method, steps=300)
    assert isinstance(first, Draws | GaussianMixture)
    second = fit(method, steps=5, init=first)
    assert second.history["nll"][0] < first.history["nll"][:5].mean()
    for start in (fit(px.DeepEnsemble(3, inside), steps=2), fit(px.MaximumLikelihood(), steps=2)):
        with pytest.raises(ValueError, match="init: an ensemble of 2 members starts from"):
            fit(method, steps=2, init=start)


BAD = {
    "a method that samples": (lambda: px.DeepEnsemble(2, px.NUTS()), "inside must be .*got NUTS"),
    "rate beside a method": (
        lambda: px.DeepEnsemble(2, px.BayesByBackprop(), learning_rate=0.1),
        r"belong to the method inside: give them to BayesByBackprop\(…\)",
    ),
    "temperatures of points": (
        lambda: px.DeepEnsemble(2, "map", (0.1, 1.0)),
        "temperatures are for inside=px.BayesByBackprop",
    ),
    "too few temperatures": (
        lambda: px.DeepEnsemble(3, px.BayesByBackprop(), (0.1, 1.0)),
        "temperatures must be 3 numbers",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, match = BAD[case]
    with pytest.raises((TypeError, ValueError), match=match):
        call()
