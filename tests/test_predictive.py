"""The predictive: uncertainty and its parts against numpy, for every kind of target."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special, stats

import posterax as px
from posterax import likelihoods as lk
from posterax.posteriors import Draws, MeanFieldGaussian, Point
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_module")

X = np.linspace(-1, 1, 11, dtype="float32")[:, None]


def network(outputs):
    w = jax.random.normal(jax.random.key(7), (2, outputs))
    return {"w": w}, lambda p, x: jnp.concatenate([x, jnp.ones_like(x)], 1) @ p["w"]


def posterior_of(likelihood, outputs, targets, spread=0.5):
    """A mean-field posterior made by hand: no fit is needed to look at predictions."""
    model = px.Model(network(outputs), None, likelihood).for_targets(targets.inner, jnp.float32)
    rho = jax.tree.map(lambda a: jnp.full(a.shape, np.log(np.expm1(spread))), model.parameters)
    return MeanFieldGaussian(model, model.network.state, targets, mu=model.parameters, rho=rho)


ONE = Targets((), (1,))
KINDS = {
    "gaussian": (lk.Gaussian(0.3), 1, ONE),
    "learned": (lk.Gaussian("learned"), 1, ONE),
    "predicted": (lk.Gaussian("predicted"), 2, ONE),
    "student": (lk.StudentT(5.0, 0.3), 2, Targets((2,), (2,))),
    "multivariate": (lk.MultivariateGaussian([[1.0, 0.6], [0.6, 0.5]]), 2, Targets((2,), (2,))),
    "poisson": (lk.Poisson(), 1, ONE),
    "bernoulli": (lk.Bernoulli(), 1, ONE),
    "categorical": (lk.Categorical(), 3, Targets((), ())),
}


@pytest.mark.parametrize("name", KINDS)
def test_parts_add_up(name):
    predictive = posterior_of(*KINDS[name]).predict(X, samples=9, key=0)
    np.testing.assert_allclose(
        predictive.epistemic + predictive.aleatoric, predictive.total, rtol=1e-5, atol=1e-6
    )
    assert np.all(predictive.epistemic > 0)
    assert np.all(predictive.aleatoric > 0)
    np.testing.assert_allclose(predictive.std, np.sqrt(predictive.variance))


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_regression_by_hand():
    predictive = posterior_of(*KINDS["gaussian"]).predict(X, samples=5, key=0)
    f = predictive.outputs().astype(np.float64)[..., 0]
    assert f.shape == (5, 11)
    close(predictive.mean, f.mean(0))
    close(predictive.epistemic, f.var(0, ddof=0))  # divided by S, not S − 1
    close(predictive.aleatoric, np.full(11, 0.09))
    close(predictive.variance, f.var(0) + 0.09)

    y = np.sin(3 * X[:, 0])
    each = stats.norm(f, 0.3).logpdf(y)
    close(predictive.log_prob(y), special.logsumexp(each, axis=0) - np.log(5))
    assert np.all(predictive.log_prob(y) > each.mean(0))  # not the mean of logarithms


def test_counts_by_hand():
    predictive = posterior_of(*KINDS["poisson"]).predict(X, samples=5, key=0)
    assert predictive.kind == "counts"
    rate = np.exp(predictive.outputs().astype(np.float64)[..., 0])
    close(predictive.mean, rate.mean(0))
    close(predictive.epistemic, rate.var(0))
    close(predictive.aleatoric, rate.mean(0))
    y = np.arange(11)
    expected = np.log(stats.poisson(rate).pmf(y).mean(0))
    np.testing.assert_allclose(predictive.log_prob(y), expected, rtol=1e-3)
    assert np.all(predictive.sample() == np.floor(predictive.sample()))


@pytest.mark.parametrize("name", ["bernoulli", "categorical"])
def test_classes_by_hand(name):
    predictive = posterior_of(*KINDS[name]).predict(X, samples=5, key=0)
    f = predictive.outputs().astype(np.float64)
    if name == "bernoulli":  # one output, two classes
        f = np.concatenate([np.zeros_like(f), f], axis=-1)
    p = special.softmax(f, -1)
    assert predictive.mean.shape == (11, p.shape[-1])
    close(predictive.mean, p.mean(0))
    close(predictive.variance, p.var(0))
    close(predictive.total, stats.entropy(p.mean(0), axis=-1))
    close(predictive.aleatoric, stats.entropy(p, axis=-1).mean(0))
    np.testing.assert_array_equal(predictive.mode, p.mean(0).argmax(-1))
    y = np.arange(11) % p.shape[-1]
    close(predictive.log_prob(y), np.log(p.mean(0)[np.arange(11), y]))
    low, high = predictive.interval(0.8)
    assert low.shape == p.shape[1:]
    assert np.all((p.min(0) <= low + 1e-6) & (low <= high) & (high <= p.max(0) + 1e-6))


def test_multivariate_log_prob_and_variance():
    likelihood, outputs, targets = KINDS["multivariate"]
    predictive = posterior_of(likelihood, outputs, targets).predict(X, samples=5, key=0)
    f = predictive.outputs().astype(np.float64)
    close(predictive.aleatoric, np.tile([1.0, 0.5], (11, 1)))
    close(predictive.epistemic, f.var(0))
    y = np.concatenate([X, -X], axis=1)
    density = stats.multivariate_normal(np.zeros(2), likelihood.covariance).pdf(y - f)
    close(predictive.log_prob(y), np.log(density.mean(0)))


def point(noise=0.3):
    base = posterior_of(lk.Gaussian(noise), 1, ONE)
    return Point(base.model, base.state, base.targets, point=base.mu)


def test_quantiles_of_a_known_gaussian():
    predictive = point().predict(X, samples=2000, key=0)
    levels = np.array([0.05, 0.5, 0.9])
    found = predictive.quantile(levels)
    assert found.shape == (3, 11)
    expected = stats.norm(predictive.mean, 0.3).ppf(levels[:, None])
    error = np.sqrt(levels * (1 - levels) / 2000) / stats.norm.pdf(stats.norm.ppf(levels)) * 0.3
    assert np.all(np.abs(found - expected) < 5 * error[:, None])
    low, high = predictive.interval(0.8)
    np.testing.assert_allclose((high - low) / (2 * 0.3 * stats.norm.ppf(0.9)), 1, atol=0.15)
    assert predictive.quantile(0.5).shape == (11,)


def test_draws_of_y_have_the_predictives_moments():
    predictive = posterior_of(*KINDS["gaussian"]).predict(X, samples=4000, key=0)
    y = predictive.sample()
    assert y.shape == (4000, 11)
    z = (y.mean(0) - predictive.mean) / (predictive.std / np.sqrt(4000))
    assert np.all(np.abs(z) < 4.5)
    np.testing.assert_allclose(y.var(0), predictive.variance, rtol=0.15)


def weighted(log_weights):
    """Three hand-made lines, f = w₀ x + w₁, with unequal weights."""
    base = posterior_of(lk.Gaussian(0.3), 1, ONE)
    w = jnp.asarray([[[[1.0], [0.0]], [[0.0], [2.0]], [[-1.0], [5.0]]]])  # (chain, draw, 2, 1)
    draws = px.Parameters({"w": w}, {})
    return Draws(
        base.model, base.state, ONE, draws=draws, log_weights=jnp.asarray([log_weights])
    )  # fmt: skip


def test_draws_count_with_their_weights():
    p = np.array([0.7, 0.2, 0.1])
    predictive = weighted(np.log(p) + 100).predict(X)
    f = np.stack([X[:, 0], np.full(11, 2.0), 5 - X[:, 0]])
    close(predictive.mean, p @ f)
    close(predictive.epistemic, p @ np.square(f - p @ f))
    y = np.zeros(11)
    close(predictive.log_prob(y), np.log(p @ stats.norm(f, 0.3).pdf(y)))
    # quantiles of the mixture: 70 % of the mass lies on the first line, 90 % below the third
    close_to = lambda a, b: np.testing.assert_allclose(a, b, atol=0.25)  # noqa: E731
    close_to(predictive.quantile(0.35), f[0])
    close_to(predictive.quantile(0.8), f[1])


def test_a_weighted_draw_of_y_is_one_function_over_all_blocks():
    posterior = weighted(np.log([0.4, 0.3, 0.3]))
    predictive = posterior.predict(X, key=3, block_bytes=1)
    y = predictive.sample()
    f = predictive.outputs()[..., 0]
    nearest = np.abs(y[:, None] - f).argmin(1)  # the lines lie many deviations apart
    assert np.all(nearest == nearest[:, :1])


def test_small_blocks_give_the_same_answer():
    posterior = posterior_of(*KINDS["categorical"])
    whole, blocks = (posterior.predict(X, samples=6, key=0, block_bytes=b) for b in (2**26, 500))
    close(blocks.mean, whole.mean)
    close(blocks.epistemic, whole.epistemic)
    close(blocks.log_prob(np.zeros(11)), whole.log_prob(np.zeros(11)))


def test_inputs_of_similar_number_share_one_program():
    traced = []

    class Counting(lk.Gaussian):
        def distribution(self, outputs, params, side=None):
            traced.append(outputs.shape)
            return super().distribution(outputs, params, side)

    posterior = posterior_of(Counting(0.25), 1, ONE)
    sizes = {}
    for n in (5, 6, 7, 8, 9):
        x = np.zeros((n, 1), "float32")
        assert posterior.predict(x, samples=4, key=n).mean.shape == (n,)
        sizes[n] = len(traced)
    assert sizes[5] > 0
    assert sizes[5] == sizes[8]
    assert sizes[9] > sizes[8]


@pytest.mark.parametrize(("given", "outputs"), [((), 1), ((1,), 1), ((3,), 3)])
def test_shapes_follow_the_targets(given, outputs):
    y = np.zeros((11, *given), "float32")
    model = px.Model(network(outputs), None, lk.Gaussian(0.3))
    posterior = px.fit(model, (X, y), px.MaximumAPosteriori(), steps=1, key=0)
    predictive = posterior.predict(X, samples=2)
    shape = (11, *given)
    for part in ("mean", "variance", "epistemic", "aleatoric", "total", "std"):
        assert getattr(predictive, part).shape == shape
    assert predictive.quantile(0.3).shape == shape
    assert predictive.sample().shape == (2, *shape)
    assert predictive.log_prob(y).shape == (11,)


def test_prior_predictive():
    model = px.Model(network(1), px.priors.Gaussian(2.0), lk.Gaussian(0.3))
    predictive = px.prior_posterior(model, X).predict(X, samples=4000, key=0)
    # f = w₀ x + w₁ with variance 4 x² + 4, and the noise on top
    np.testing.assert_allclose(predictive.variance, 4 * X[:, 0] ** 2 + 4 + 0.09, rtol=0.15)
    assert np.all(np.abs(predictive.mean) < 4.5 * predictive.std / np.sqrt(4000))
    assert predictive.sample().shape == (4000, 11)


def test_the_old_name_of_the_prior_posterior_warns():
    model = px.Model(network(1), px.priors.Gaussian(2.0), lk.Gaussian(0.3))
    with pytest.warns(FutureWarning, match="now called px.prior_posterior"):
        old = px.before_data(model, X)
    means = [p.predict(X, samples=2, key=0).mean for p in (old, px.prior_posterior(model, X))]
    np.testing.assert_array_equal(*means)


# after ten transitions of warm-up some diverge on one processor and none on another
@pytest.mark.filterwarnings("ignore:.*transitions.*diverged")
def test_a_posterior_and_a_model_are_shown_in_a_few_lines():
    mlp = px.networks.MLP(1, 1, (8,), key=0)
    model = px.Model(mlp, px.priors.Gaussian(2.0), lk.Gaussian(0.3))
    assert repr(model) == (
        "Model(MLP of 25 weights, prior=Gaussian(scale=2), likelihood=Gaussian(noise=0.3))"
    )
    posterior = px.fit(model, (X, X[:, 0]), px.BayesByBackprop(), epochs=2, key=0)
    assert repr(posterior) == (
        "MeanFieldGaussian(\n    method=BayesByBackprop, epochs=2, steps=2,\n    weights=25,\n"
        "    network=MLP, targets=(),\n)"
    )
    chains = px.fit(model, (X, X[:, 0]), px.NUTS(warmup=10, chains=2), steps=3, key=0)
    assert "weights=25, chains=2, draws=3," in repr(chains)
    members = px.fit(model, (X, X[:, 0]), px.DeepEnsemble(3), epochs=1, key=0)
    assert "draws=3," in repr(members)
    assert "interrupted" not in repr(members)
    assert repr(px.prior_posterior(model, X)).startswith("PriorPosterior(\n    weights=25,")


def test_same_key_same_bits():
    posterior = posterior_of(*KINDS["gaussian"])
    first, again, other = (posterior.predict(X, samples=4, key=k) for k in (1, 1, 2))
    # (the mean of a linear network would not do: opposite pairs of weights give it exactly)
    for read in (lambda p: p.std, lambda p: p.sample(), lambda p: p.outputs()):
        np.testing.assert_array_equal(read(first), read(again))
        assert np.all(read(first) != read(other))
    as_key = posterior.predict(X, samples=4, key=jax.random.key(1))
    np.testing.assert_array_equal(first.mean, as_key.mean)


class TestUnits:
    """y as people have it is shift + scale · y as the model has it."""

    @pytest.mark.parametrize("kind", ["gaussian", "predicted", "student", "multivariate"])
    def test_everything_but_outputs_changes_units(self, kind):
        likelihood, outputs, targets = KINDS[kind]
        inside = posterior_of(likelihood, outputs, targets).predict(X, samples=40, key=1)
        several = targets.given == (2,)
        shift, scale = (np.array([5.0, -2.0]), np.array([10.0, 0.5])) if several else (5.0, 10.0)
        view = inside.in_units(shift, scale)
        np.testing.assert_allclose(view.mean, shift + scale * inside.mean, rtol=1e-6)
        for part in ("variance", "epistemic", "aleatoric", "total"):
            want = np.square(scale) * getattr(inside, part)
            np.testing.assert_allclose(getattr(view, part), want, rtol=1e-6)
        np.testing.assert_allclose(view.std, scale * inside.std, rtol=1e-6)
        for ours, theirs in zip(view.interval(0.8), inside.interval(0.8), strict=True):
            np.testing.assert_allclose(ours, shift + scale * theirs, rtol=1e-6)
        np.testing.assert_allclose(view.sample(3), shift + scale * inside.sample(3), rtol=1e-6)
        np.testing.assert_array_equal(view.outputs(), inside.outputs())
        y = inside.sample(1)[0]
        density = inside.log_prob(y) - np.sum(np.log(np.broadcast_to(scale, targets.given)))
        np.testing.assert_allclose(view.log_prob(shift + scale * y), density, atol=1e-4)

    @pytest.mark.parametrize("kind", ["gaussian", "student"])
    def test_widened_about_its_mean(self, kind):
        inside = posterior_of(*KINDS[kind]).predict(X, samples=40, key=1).in_units(5.0, 10.0)
        factor, mean = 1.5, inside.mean
        view = inside.widened(factor)
        np.testing.assert_allclose(view.mean, mean, rtol=1e-6)
        for part in ("variance", "epistemic", "aleatoric", "total"):
            want = factor**2 * getattr(inside, part)
            np.testing.assert_allclose(getattr(view, part), want, rtol=1e-6)
        move = lambda y: mean + factor * (y - mean)  # noqa: E731
        for ours, theirs in zip(view.interval(0.8), inside.interval(0.8), strict=True):
            np.testing.assert_allclose(ours, move(theirs), rtol=1e-6)
        np.testing.assert_allclose(view.sample(3), move(inside.sample(3)), rtol=1e-6)
        y = inside.sample(1)[0]
        density = inside.log_prob(y) - np.log(factor) * np.prod(mean.shape[1:])
        np.testing.assert_allclose(view.log_prob(move(y)), density, atol=1e-3)

    def test_at_least_ends_there(self):
        inside = posterior_of(*KINDS["gaussian"]).predict(X, samples=40, key=1).in_units(0.5, 2.0)
        least = float(np.median(inside.mean))
        view = inside.at_least(least)
        assert (inside.interval(0.99)[0] < least).any()
        np.testing.assert_array_equal(view.mean, np.maximum(inside.mean, least))
        np.testing.assert_array_equal(view.std, inside.std)
        for ours, theirs in zip(view.interval(0.99), inside.interval(0.99), strict=True):
            np.testing.assert_array_equal(ours, np.maximum(theirs, least))
        np.testing.assert_array_equal(view.sample(3), np.maximum(inside.sample(3), least))
        y = np.where(np.arange(len(inside)) % 2, *inside.interval(0.99))
        above = y >= least
        assert 0 < above.sum() < above.size
        np.testing.assert_array_equal(
            view.log_prob(y), np.where(above, inside.log_prob(y), -np.inf)
        )
        np.testing.assert_array_equal(view.cdf(y), np.where(above, inside.cdf(y), 0))
        moved = view.in_units(10.0, 3.0).widened(1.5)
        assert moved.interval(0.99)[0].min() == 10 + 3 * least
        # one after the other, in either order
        one, other = inside.widened(1.5).at_least(least), view.widened(1.5)
        np.testing.assert_allclose(other.mean, one.mean)
        np.testing.assert_allclose(other.std, one.std)
        np.testing.assert_allclose(other.quantile(0.9), one.quantile(0.9))
        with pytest.raises(ValueError, match="low must be finite"):
            inside.at_least(np.nan)

    def test_changes_add_up(self):
        inside = posterior_of(*KINDS["gaussian"]).predict(X, samples=10, key=1)
        twice = inside.in_units(1.0, 2.0).in_units(10.0, 3.0)
        np.testing.assert_allclose(twice.mean, inside.in_units(13.0, 6.0).mean)

    def test_bad_input(self):
        inside = posterior_of(*KINDS["gaussian"]).predict(X, samples=10, key=1)
        for shift, scale in ((0.0, 0.0), (0.0, -1.0), (np.nan, 1.0), (np.zeros(3), 1.0)):
            with pytest.raises(ValueError, match="shift and scale must be finite"):
                inside.in_units(shift, scale)
        classes = posterior_of(*KINDS["categorical"]).predict(X, samples=10, key=1)
        with pytest.raises(ValueError, match="in_units is for regression"):
            classes.in_units(0.0, 1.0)


def test_small_calls_share_a_program_where_asked():
    posterior = posterior_of(*KINDS["gaussian"])
    whole = posterior.predict(X, samples=10, key=1, least_rows=32)
    alone = [posterior.predict(x[None], samples=10, key=1, least_rows=32).mean for x in X]
    np.testing.assert_array_equal(np.concatenate(alone), whole.mean)
