"""Ensembles: mixtures of posteriors, bootstrap and anchors, and how members are laid out."""

import os
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.data import Data, Stream
from posterax.infer.ensembles import ensemble as ensembles
from posterax.infer.ensembles.ensemble_variants import poisson
from posterax.posteriors import Draws, GaussianMixture, MeanFieldGaussian

from .conjugate import NOISE, conjugate

pytestmark = pytest.mark.usefixtures("hasty_module")

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
    assert sorted(mixture.history) == ["all_nll", "elbo", "kl", "nll", "predictive_nll"]
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


# -- members whose distribution is known: the linear model

MANY = 2048


@pytest.fixture(scope="module")
def truth():
    return conjugate(24)


def members_of(truth, data, method, **options):
    """The weights of members trained to the end, (member, weight), and their states."""
    posterior = px.fit(truth.model(), data, method, **{"steps": 800, "key": 0} | options)
    return np.asarray(posterior.draws.network["w"][0], np.float64), posterior.record.final.state


def assert_gaussian(found, mean, covariance):
    """Draws of N(mean, covariance): Hotelling's test, and a χ² test in directions between axes."""
    z = np.linalg.solve(np.linalg.cholesky(covariance), (found - mean).T).T
    n, d = z.shape
    assert stats.chi2.sf(n * np.sum(z.mean(0) ** 2), d) > 1e-4
    axes = np.eye(d)
    pairs = [(axes[i] + sign * axes[j]) / 2**0.5 for i, j in ((0, 1), (0, 2), (1, 2))
             for sign in (1, -1)]  # fmt: skip
    for direction in (*axes, *pairs):
        assert 1e-4 < stats.chi2.cdf(np.sum((z @ direction) ** 2), n) < 1 - 1e-4


@pytest.mark.parametrize("anchored", [True, "targets"])
def test_anchored_members_of_a_linear_model(truth, anchored):
    """With noisy targets each is a draw from the posterior N(m, S), example weights and all.

    With anchors w⁰ ~ N(0, 1) alone, w = S (w⁰ + Xᵀ W y / s²) has covariance S² only.
    """
    weight = np.linspace(0.5, 2.0, len(truth.y))
    precise = truth.x.T * weight / NOISE**2
    covariance = np.linalg.inv(np.eye(3) + precise @ truth.x)
    mean = covariance @ precise @ truth.y
    method = px.DeepEnsemble(MANY, learning_rate=0.1, anchored=anchored)
    found, _ = members_of(truth, (*truth.data, weight), method)
    exact = covariance if anchored == "targets" else covariance @ covariance
    assert_gaussian(found, mean, exact)


def test_bootstrapped_members_of_a_linear_model():
    """Each solves least squares on its own resample; all together they spread as the sandwich

    (XᵀX)⁻¹ Xᵀ diag(e²) X (XᵀX)⁻¹ says, up to a share of about weights / rows.
    """
    n, members, rng = 400, 1024, np.random.default_rng(0)
    truth = conjugate(n)
    x, y = truth.x, truth.y + np.abs(truth.x[:, 0]) * rng.normal(size=n).astype("float32")
    method = px.DeepEnsemble(members, "ml", learning_rate=0.1, bootstrap=True)
    found, state = members_of(truth, (x, y), method, batch_size=n)
    counts = np.asarray(state.own.counts, float)[:, :n]
    np.testing.assert_array_equal(counts.sum(1), n)  # as many draws as rows
    assert stats.chisquare(counts.sum(0)).pvalue > 1e-4  # any row as often as any other
    missing = np.sum(counts == 0, 1)  # of which each row has (1 − 1/n)ⁿ to be none
    assert stats.ttest_1samp(missing, n * (1 - 1 / n) ** n).pvalue > 1e-4
    np.testing.assert_allclose(found, [least_squares(x, y, c) for c in counts], atol=1e-3)
    error = y - x @ least_squares(x, y, np.ones(n))
    bread = np.linalg.inv(x.T @ x)
    sandwich = bread @ (x.T * error**2) @ x @ bread
    ratio = np.diag(np.cov(found.T)) / np.diag(sandwich)
    np.testing.assert_allclose(ratio, 1, atol=4 * np.sqrt(2 / members) + 3 / n)


def least_squares(x, y, weight, prior=0.0):
    x = x.astype(float)
    return np.linalg.solve((x.T * weight) @ x + prior * np.eye(x.shape[1]), (x.T * weight) @ y)


def test_a_stream_is_bootstrapped_and_anchored(truth):
    """Counts by the example's place, Poisson(1); the prior's weight is that of the member's N."""
    method = px.DeepEnsemble(8, learning_rate=0.1, bootstrap=True, anchored=True)
    found, state = members_of(truth, [truth.data], method)
    for w, anchor, key in zip(found, state.own.anchor.network["w"], state.own.key, strict=True):
        counts = np.asarray(poisson(key, jnp.arange(24)), float)
        moved = least_squares(truth.x, truth.y - truth.x @ anchor, counts, NOISE**2)
        np.testing.assert_allclose(w, anchor + moved, atol=2e-3)


def test_what_is_drawn_by_an_example_s_number():
    index = jnp.arange(20_000)
    counts = np.array([poisson(jax.random.key(i), index) for i in range(2)])
    expected = stats.poisson(1).pmf(np.arange(6)) * index.size
    expected = np.append(expected, index.size - expected.sum())
    for one in counts:
        seen = np.bincount(np.minimum(one, 6), minlength=7)
        assert stats.chisquare(seen, expected).pvalue > 1e-4
    assert abs(np.corrcoef(counts)[0, 1]) < 4 / index.size**0.5


def test_batches_know_which_examples_they_hold():
    data = Data(jnp.zeros((7, 1)), jnp.arange(7.0), jnp.ones(7), jnp.asarray(7))
    seen = []
    for step in range(6):  # two epochs of three batches
        place = data.place(jnp.asarray(step), 3, jnp.asarray(3), jax.random.key(0))
        batch = data.batch(place)
        np.testing.assert_array_equal(batch.y, batch.index)
        seen += batch.index[batch.weight > 0].tolist()
    assert sorted(seen) == sorted(2 * list(range(7)))
    np.testing.assert_array_equal(data.everything().index, np.arange(7))
    stream = Stream([(np.zeros((2, 1)), np.array([2.0 * i, 2.0 * i + 1])) for i in range(3)])
    window = stream.window(0, 6, 6, (), np.float32)
    for step in range(6):
        batch = window.batch(window.place(jnp.asarray(step), 2, jnp.asarray(3), None))
        np.testing.assert_array_equal(batch.y, batch.index)


# -- how members are laid out


POSTERIORS = px.DeepEnsemble(2, px.BayesByBackprop(), (0.1, 1.0), bootstrap=True)


@pytest.mark.parametrize(
    "method",
    [
        px.DeepEnsemble(2, bootstrap=True, anchored=True),
        pytest.param(POSTERIORS, marks=pytest.mark.slow),
    ],
)
def test_members_one_by_one_are_the_same_as_side_by_side(method, monkeypatch, tmp_path):
    """The two forms of the program, with everything that is a member's own; one resumes."""
    found = []
    for unrolled in (False, True):
        monkeypatch.setattr(ensembles, "faster_unrolled", lambda *_, u=unrolled: u)
        kept = {"checkpoint": tmp_path} if unrolled else {}
        for _ in range(1 + unrolled):
            found.append(fit(method, steps=20, batch_size=16, **kept))
            assert isinstance(found[-1].record.final.state, ensembles.Member) != unrolled
    first, *others = (jax.tree.leaves(one.moments()) for one in found)
    for other in others:
        for a, b in zip(first, other, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found[0].history["nll"], found[1].history["nll"], rtol=1e-4)


def test_which_form_is_taken():
    def unrolled(network, members, batch):
        model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1))
        plan = type("Plan", (), {"batch_size": batch})
        return ensembles.faster_unrolled(model, plan, members)

    small, large = px.networks.MLP(1, 1, (8,), key=0), px.networks.MLP(1, 1, (100, 100), key=0)
    assert unrolled(large, 8, 100)
    assert not unrolled(small, 8, 100)
    assert not unrolled(large, 8, 10)
    assert not unrolled(large, 100, 100)  # a program that would take long to compile
    assert not unrolled(px.networks.LeNet5(out_size=1, key=0), 2, 100)


def test_members_over_two_devices_are_the_same(tmp_path):
    script = textwrap.dedent(
        """
        import sys, numpy as np, jax
        from posterax.fitting import loop
        from tests.test_ensemble import over_devices_case
        on, chunk = [], loop.run_chunk
        def watched(fixed, state, buffers):
            result = chunk(fixed, state, buffers)
            on.extend(len(a.sharding.device_set) for a in jax.tree.leaves(result.state))
            return result
        loop.run_chunk = watched
        np.save(sys.argv[1], over_devices_case())
        print(min(on))
        """
    )
    out = tmp_path / "two.npy"
    environment = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    found = subprocess.run(
        [sys.executable, "-c", script, out], capture_output=True, text=True, check=False,
        env=os.environ | environment,
    )  # fmt: skip
    assert found.stdout.split() == ["2"], found.stderr
    np.testing.assert_allclose(np.load(out), over_devices_case(), rtol=1e-4, atol=1e-5)


def over_devices_case():
    posterior = fit(px.DeepEnsemble(4, bootstrap=True), steps=5, batch_size=16)
    return np.asarray(posterior.draws.network.layers[0].weight)


# -- bad input

BAD = {
    "a method that samples": (lambda: px.DeepEnsemble(2, px.NUTS()), "inside must be .*got NUTS"),
    "another family": (
        lambda: px.DeepEnsemble(2, px.BayesByBackprop(family="full")),
        "inside must be .* a method whose posteriors can be mixed",
    ),
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
    "a number of resamples": (lambda: px.DeepEnsemble(bootstrap=3), "bootstrap must be True or"),
    "an unknown anchor": (
        lambda: px.DeepEnsemble(anchored="weights"),
        "anchored must be True, False or 'targets', got 'weights'",
    ),
    "anchors without a prior": (
        lambda: px.DeepEnsemble(2, "ml", anchored=True),
        "anchored members are maxima a posteriori.*inside='map', or bootstrap=True",
    ),
    "anchored posteriors": (
        lambda: px.DeepEnsemble(2, px.BayesByBackprop(), anchored=True),
        "anchored members are maxima a posteriori",
    ),
    "random data twice": (
        lambda: px.DeepEnsemble(2, bootstrap=True, anchored="targets"),
        "anchored='targets' and bootstrap=True both",
    ),
    "anchors of a Laplace prior": (
        lambda: fit_model(px.priors.Laplace(1.0), px.likelihoods.Gaussian(0.1), True),
        "anchored: the prior of network.layers.0.weight is Laplace.*use bootstrap=True",
    ),
    "targets of learned noise": (
        lambda: fit_model(None, px.likelihoods.Gaussian("learned"), "targets"),
        r"anchored='targets' adds noise.*px.likelihoods.Gaussian\(noise=a number\)",
    ),
    "targets that are labels": (
        lambda: fit_model(None, px.likelihoods.Bernoulli(), "targets"),
        "anchored='targets' adds noise",
    ),
    "no prior": (
        lambda: fit_model(px.priors.Flat(), px.likelihoods.Gaussian(0.1), True),
        "anchored: this model has no weights with a prior",
    ),
}


def fit_model(prior, likelihood, anchored):
    model = px.Model(px.networks.MLP(1, 1, (8,), key=0), prior, likelihood)
    px.fit(model, (X, (Y > 0).astype("float32")), px.DeepEnsemble(2, anchored=anchored), steps=1)


@pytest.mark.parametrize("case", BAD)
def test_bad_input(case):
    call, match = BAD[case]
    with pytest.raises((TypeError, ValueError), match=match):
        call()
