"""Choosing a model: scores against closed forms and by hand, and what is refused."""

import jax.numpy as jnp
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import optimize, stats
from scipy.special import logsumexp

import posterax as px
from posterax import selection
from posterax.diagnostics.bound import mean_of_pairs
from posterax.likelihoods import Categorical, Gaussian
from posterax.posteriors import (
    Draws,
    Enumerated,
    Evidence,
    FullGaussian,
    LaplaceGaussian,
    Point,
    Record,
)
from posterax.predictive import Targets
from posterax.selection import Score, pointwise
from posterax.selection.checks import STATISTICS
from posterax.selection.pointwise import _Likelihoods, _relative_efficiency
from posterax.selection.score import standard_error
from tests.conjugate import NOISE, conjugate

pytestmark = pytest.mark.usefixtures("hasty_module")

TRUTH = conjugate(rows=40, weights=3)
S = 2000  # draws wherever it may be: one size, one program
ONE = Targets((), (1,))
MODEL = TRUTH.model().for_targets((1,), jnp.float32)


def weights_of(w):
    return px.Parameters({"w": jnp.asarray(w, jnp.float32)}, {})


def exact(mean=TRUTH.mean, covariance=TRUTH.covariance, **options):
    """The posterior itself, or another Gaussian, without a fit."""
    root = jnp.asarray(np.linalg.cholesky(covariance), jnp.float32)
    return FullGaussian(
        MODEL, MODEL.network.state, ONE, mu=weights_of(mean), cholesky=root, **options
    )


def laplace(model, mean, covariance, **options):
    """What ``px.Laplace`` returns, without a fit."""
    values, basis = np.linalg.eigh(np.atleast_2d(covariance))
    block = {"scale": np.ones(len(values)), "basis": basis, "deviation": np.sqrt(values)}
    block = {name: jnp.asarray(a, jnp.float32) for name, a in block.items()}
    options = {"linearised": True, "prior_factors": {}} | options
    return LaplaceGaussian(
        model, model.network.state, ONE, mu=weights_of(mean),
        blocks={"all": block | {"leaves": "network.w"}}, **options,
    )  # fmt: skip


def draws_of(w, **options):
    """Draws (chain, draw, weight) made by hand."""
    return Draws(MODEL, MODEL.network.state, ONE, draws=weights_of(w), **options)


def log_likelihoods(w, x=TRUTH.x, y=TRUTH.y):
    f = w.reshape(-1, 3).astype("float32") @ x.T
    return stats.norm(f, NOISE).logpdf(y)


TWICE = np.ones(40)  # how often examples count: two of them twice, two not at all
TWICE[[3, 17]], TWICE[[5, 8]] = 2, 0

RNG = np.random.default_rng(1)
W = RNG.multivariate_normal(TRUTH.mean, TRUTH.covariance, size=(1, S))
SAMPLED = draws_of(W)


def exact_leave_one_out():
    """log p(yₙ | D₋ₙ) in closed form."""
    found = []
    for n in range(len(TRUTH.y)):
        x, y = np.delete(TRUTH.x, n, 0).astype(float), np.delete(TRUTH.y, n).astype(float)
        covariance = np.linalg.inv(np.eye(3) + x.T @ x / NOISE**2)
        mean, row = covariance @ x.T @ y / NOISE**2, TRUTH.x[n].astype(float)
        deviation = np.sqrt(NOISE**2 + row @ covariance @ row)
        found.append(stats.norm(row @ mean, deviation).logpdf(TRUTH.y[n]))
    return np.array(found)


def within_error(found, values, log_weights=0.0):
    """Five standard errors of −log mean(1/p), the delta method, beside the exact values."""
    ratios = np.exp(log_weights - values)
    share = ratios / ratios.sum(0)
    # of the self-normalised average of p under these weights
    p = np.exp(values)
    mean = (share * p).sum(0)
    error = np.sqrt((np.square(share) * np.square(p - mean)).sum(0)) / mean
    assert np.all(np.abs(found - exact_leave_one_out()) < 5 * error)
    assert error.max() < 0.1  # or this would say little


GRID = np.linspace(-2, 2, 9)
LINE_X = np.linspace(-1, 1, 12)[:, None].astype("float32")
LINE_Y = (0.5 * LINE_X[:, 0] + 0.3 * RNG.normal(size=12)).astype("float32")
LINE = px.Model(
    ({"slope": np.zeros((1, 1), "float32")}, lambda p, x: x @ p["slope"]),
    px.priors.Grid(GRID), Gaussian(0.15),
).for_targets((1,), jnp.float32)  # fmt: skip


def enumerated(y):
    """The probabilities of slopes on a grid, without a fit."""
    each = stats.norm(LINE_X[:, 0] * GRID[:, None], 0.15).logpdf(y).sum(1)
    log_probs = jnp.asarray(each - logsumexp(each), jnp.float32)
    return Enumerated(LINE, LINE.network.state, ONE, log_probs=log_probs)


def line_without(y):
    """log p(yₙ | D₋ₙ) of slopes on a grid."""
    each = stats.norm(LINE_X[:, 0] * GRID[:, None], 0.15).logpdf(y)
    without = each.sum(1, keepdims=True) - each
    return logsumexp(without - logsumexp(without, axis=0) + each, axis=0)


class TestLeaveOneOut:
    def test_against_the_closed_form(self):
        score = selection.loo(SAMPLED, TRUTH.data)
        within_error(score.pointwise, log_likelihoods(W))
        np.testing.assert_allclose(score.elpd, score.pointwise.sum())
        np.testing.assert_allclose(score.se, np.sqrt(40 * score.pointwise.var(ddof=1)))
        assert score.khat.shape == (40,)
        assert score.ok
        assert "can be trusted" in str(score)
        assert 1 < score.p < 4  # three weights

    def test_a_posterior_that_makes_its_draws(self):
        score = selection.loo(exact(), TRUTH.data, samples=S, key=3)
        np.testing.assert_allclose(score.pointwise, exact_leave_one_out(), atol=0.15)
        assert score.draws == S
        assert score.approximate  # for all that it can know
        assert "approximation" in score.verdict

    def test_weighted_draws_count_with_their_weights(self):
        wide = 2 * TRUTH.covariance
        w = RNG.multivariate_normal(TRUTH.mean, wide, size=(1, S))
        target = stats.multivariate_normal(TRUTH.mean, TRUTH.covariance).logpdf(w)
        log_weights = target - stats.multivariate_normal(TRUTH.mean, wide).logpdf(w)
        weighted = draws_of(w, log_weights=jnp.asarray(log_weights, jnp.float32))
        found = selection.loo(weighted, TRUTH.data)
        within_error(found.pointwise, log_likelihoods(w), log_weights[:, None])
        # and a Gaussian that is too wide, corrected to the posterior, is the same story
        corrected = selection.loo(exact(covariance=wide), TRUTH.data, samples=S, corrected=True)
        np.testing.assert_allclose(corrected.elpd, exact_leave_one_out().sum(), atol=0.3)
        assert not corrected.approximate
        raw = selection.loo(exact(covariance=wide), TRUTH.data, samples=S)
        assert abs(raw.elpd - corrected.elpd) > 0.5

    def test_the_correction_is_to_the_network_not_its_linearisation(self):
        """y = exp(w) x + ε, against quadrature over the only weight."""
        x, y = np.linspace(0.5, 2, 8).astype("float32"), np.linspace(0.4, 2.5, 8).astype("float32")
        network = ({"w": jnp.zeros(1)}, lambda p, x: x * jnp.exp(p["w"]))
        model = px.Model(network, px.priors.Gaussian(1.0), Gaussian(NOISE))
        model = model.for_targets((1,), jnp.float32)
        w = np.linspace(-4, 2, 4001)
        each = stats.norm(np.exp(w[:, None]) * x, NOISE).logpdf(y)
        left = each.sum(1, keepdims=True) - each + stats.norm.logpdf(w)[:, None]
        expected = logsumexp(left - logsumexp(left, axis=0) + each, axis=0)
        wide = laplace(model, [0.0], 0.3**2)
        score = selection.loo(wide, (x[:, None], y), samples=S, corrected=True)
        np.testing.assert_allclose(score.pointwise, expected, atol=0.006)

    def test_as_arviz_has_it(self):
        from arviz_stats.base import array_stats

        values = log_likelihoods(W)
        elpd, khat, p = array_stats.loo(values.T[:, None], chain_axis=1, draw_axis=2)
        score = selection.loo(SAMPLED, TRUTH.data)
        np.testing.assert_allclose(score.pointwise, elpd, atol=1e-4)
        np.testing.assert_allclose(score.khat, khat, atol=1e-3)
        np.testing.assert_allclose(score.p, p.sum(), atol=1e-3)

    def test_a_weight_of_two_is_the_row_twice(self):
        rows = np.repeat(np.arange(40), TWICE.astype(int))
        for score in (selection.loo, selection.waic, selection.heldout):
            weighted = score(SAMPLED, (*TRUTH.data, TWICE))
            repeated = score(SAMPLED, (TRUTH.x[rows], TRUTH.y[rows]))
            np.testing.assert_allclose(weighted.elpd, repeated.elpd, rtol=1e-5)
            np.testing.assert_allclose(weighted.se, repeated.se, rtol=1e-5)
            np.testing.assert_allclose(weighted.p, repeated.p, rtol=1e-4)

    def test_batches_are_one_data_set(self):
        x, y = TRUTH.data
        whole = selection.loo(SAMPLED, (x, y))
        parts = selection.loo(SAMPLED, [(x[:20], y[:20]), (x[20:], y[20:])])
        np.testing.assert_allclose(whole.pointwise, parts.pointwise, atol=1e-4)
        np.testing.assert_allclose(px.compare([whole, parts]).differences, 0, atol=1e-3)

    def test_chains_have_fewer_effective_draws(self):
        stuck = np.repeat(W[0, :1000].reshape(4, 250, 3), 4, axis=1)  # every state stays for four
        values = log_likelihoods(stuck)
        like = _Likelihoods(values, np.zeros(4000), np.ones(40), "", (4, 1000), False, False)
        shares = _relative_efficiency(like)
        assert shares.shape == (40,)
        np.testing.assert_allclose(shares.mean(), 1 / 4, rtol=0.15)
        np.testing.assert_array_equal(_relative_efficiency(like._replace(chains=None)), np.ones(40))

    def test_an_outlier_is_named(self):
        y = TRUTH.y.copy()
        y[7] += 40 * NOISE
        score = selection.loo(SAMPLED, (TRUTH.x, y))
        assert score.doubtful.tolist() == [7]
        assert "1 of 40 examples" in score.verdict
        assert "row 7" in score.verdict
        comparison = px.compare({"a": score, "b": score})
        assert "k-hat" in comparison.to_pandas().loc["a", "warning"]

    @pytest.mark.parametrize("far", [0.0, 3.0])
    def test_no_state_is_too_improbable_to_come_back(self, far):
        """A prediction leaves out 1e-12 of the probability; without an outlier that is all."""
        y = LINE_Y + far * (np.arange(12) == 11)
        score = selection.loo(enumerated(y), (LINE_X, y))
        np.testing.assert_allclose(score.pointwise, line_without(y), atol=1e-4)
        assert "exact" in score.verdict

    @pytest.mark.slow
    def test_too_many_states_are_drawn(self, monkeypatch):
        monkeypatch.setattr(pointwise, "STATES", 3)
        score = selection.loo(enumerated(LINE_Y), (LINE_X, LINE_Y))
        np.testing.assert_allclose(score.pointwise, line_without(LINE_Y), atol=0.05)
        assert score.khat is not None
        assert score.draws == 4096
        assert "exact" not in score.verdict


def test_waic_by_hand():
    values = log_likelihoods(W)
    score = selection.waic(SAMPLED, TRUTH.data)
    p = values.var(0, ddof=1)
    expected = logsumexp(values, axis=0) - np.log(S) - p
    np.testing.assert_allclose(score.pointwise, expected, atol=1e-4)
    np.testing.assert_allclose(score.p, p.sum(), rtol=1e-3)
    # the two estimate the same, with a difference of higher order
    np.testing.assert_allclose(score.elpd, exact_leave_one_out().sum(), atol=0.5)

    v = RNG.dirichlet(np.full(S, 0.1))
    uneven = draws_of(W, log_weights=jnp.log(jnp.asarray(v, jnp.float32))[None])
    score = selection.waic(uneven, TRUTH.data)
    p = v @ np.square(values - v @ values) / (1 - v @ v)
    np.testing.assert_allclose(score.pointwise, np.log(v @ np.exp(values)) - p, rtol=1e-3)


def test_held_out_data():
    x, y = TRUTH.x + 1, TRUTH.y
    score = selection.heldout(SAMPLED, (x, y))
    expected = logsumexp(log_likelihoods(W, x, y), axis=0) - np.log(S)
    np.testing.assert_allclose(score.pointwise, expected, atol=1e-3)
    assert np.isnan(score.p)


class TestElbo:
    def test_the_posterior_itself_has_the_evidence(self):
        bound = selection.elbo(exact(), TRUTH.data, samples=S)
        np.testing.assert_allclose(bound.value, TRUTH.log_evidence, atol=1e-3)
        assert bound.kind == "bound"
        assert bound.error < 1e-3

    def test_another_falls_short_by_its_divergence(self):
        deviation = 1.5 * np.sqrt(np.diag(TRUTH.covariance))
        mean = TRUTH.mean + 0.5 * deviation
        precision, square = np.linalg.inv(TRUTH.covariance), np.square(deviation)
        other = exact(mean, np.diag(square))
        away = mean - TRUTH.mean
        divergence = 0.5 * (
            np.trace(precision @ np.diag(square)) + away @ precision @ away - 3
            + np.linalg.slogdet(TRUTH.covariance)[1] - np.log(square).sum()
        )  # fmt: skip
        each = [selection.elbo(other, TRUTH.data, samples=S, key=k) for k in range(50)]
        values, errors = (np.array([bound[i] for bound in each]) for i in (0, 1))
        told = np.sqrt(np.mean(np.square(errors)))
        short = TRUTH.log_evidence - divergence
        assert abs(values.mean() - short) < 4.5 * told / np.sqrt(50)
        assert values.mean() < TRUTH.log_evidence - 5 * told
        # draws come in opposite pairs, and still the error is that of repetitions: χ² with 49
        # degrees of freedom, more than three deviations
        assert 0.65 < values.std(ddof=1) / told < 1.4

    def test_the_error_is_that_of_pairs(self):
        """Neighbours that undo one another have no error, and those that agree count once."""
        quarter = np.full(4, 0.25)
        assert mean_of_pairs(np.array([3.0, 1.0, 3.0, 1.0]), quarter) == (2.0, 0.0)
        np.testing.assert_allclose(mean_of_pairs(np.array([1.0, 1, -1, -1]), quarter), (0, 1))

    def test_the_prior_is_that_which_laplace_tuned(self):
        x, y = (np.asarray(a, np.float64) for a in TRUTH.data)
        covariance = np.linalg.inv(4 * np.eye(3) + x.T @ x / NOISE**2)
        mean = covariance @ x.T @ y / NOISE**2
        evidence = stats.multivariate_normal(None, x @ x.T / 4 + NOISE**2 * np.eye(40)).logpdf(y)
        tuned = laplace(MODEL, mean, covariance, prior_factors={"all": jnp.asarray(4.0)})
        bound = selection.elbo(tuned, TRUTH.data, samples=S)
        np.testing.assert_allclose(bound.value, evidence, atol=1e-3)
        assert bound.error < 1e-3

    def test_batches_and_weights(self):
        x, y = TRUTH.data

        def value(data):
            return selection.elbo(exact(), data, samples=S).value

        first = np.arange(40) < 20
        halves = [(x, y, 1.0 * first), (x, y, 1.0 * ~first)]
        np.testing.assert_allclose(value(halves), value((x, y)), rtol=1e-5)
        rows = np.repeat(np.arange(40), TWICE.astype(int))
        np.testing.assert_allclose(value((x, y, TWICE)), value((x[rows], y[rows])), rtol=1e-5)

    def test_what_has_no_density_is_refused(self):
        point = Point(MODEL, MODEL.network.state, ONE, point=weights_of(TRUTH.mean))
        for posterior in (SAMPLED, point):
            with pytest.raises(ValueError, match=r"without a density.*px.BayesByBackprop"):
                selection.elbo(posterior, TRUTH.data)


def score(pointwise, by="loo", weight=None):
    pointwise = np.asarray(pointwise, float)
    weight = np.ones(len(pointwise)) if weight is None else weight
    return Score(by, pointwise, weight, np.zeros(len(pointwise)), draws=1000)


class TestCompare:
    A = np.array([-1.0, -2.0, -0.5, -1.5, -1.0])
    B = np.array([-1.5, -1.9, -0.9, -2.5, -1.1])

    def test_differences_by_hand(self):
        found = px.compare({"b": score(self.B), "a": score(self.A)})
        table = found.to_pandas()
        assert found.names == list(table.index) == ["a", "b"]
        np.testing.assert_allclose(table["score"], [self.A.sum(), self.B.sum()])
        gap = self.B - self.A
        np.testing.assert_allclose(table["difference"], [0, gap.sum()])
        np.testing.assert_allclose(table["difference_se"], [0, np.sqrt(5 * gap.var(ddof=1))])
        np.testing.assert_allclose(table["se"].iloc[0], np.sqrt(5 * self.A.var(ddof=1)))
        assert "may be as good" in str(found)
        clear = px.compare([score(self.A), score(self.A - 3 + 0.1 * self.B)])
        assert "model 0 predicts best" in clear.verdict

    def test_stacking(self):
        rng = np.random.default_rng(0)
        log_densities = rng.normal(size=(50, 2)) - 800  # far below what exp() reaches
        weight = rng.uniform(0, 2, 50)

        def loss(v):
            both = log_densities + np.log([v, 1 - v])
            return -weight @ np.logaddexp(*both.T)

        best = optimize.minimize_scalar(loss, bounds=(1e-9, 1 - 1e-9), method="bounded")
        found = selection.stacking(log_densities, weight)
        np.testing.assert_allclose(found, [best.x, 1 - best.x], atol=1e-3)
        # nothing is gained by a model that is worse everywhere
        worse = np.stack([log_densities[:, 0], log_densities[:, 0] - 1], axis=1)
        np.testing.assert_allclose(selection.stacking(worse), [1, 0], atol=1e-6)
        # one model may rule an example out, not all
        log_densities[7, 0] = -np.inf
        assert selection.stacking(log_densities)[1] > 0
        log_densities[7, 1] = -np.inf
        with pytest.raises(ValueError, match="example 7 has a density of 0 under every model"):
            selection.stacking(log_densities)
        selection.stacking(log_densities, np.arange(50) != 7)
        with pytest.raises(ValueError, match="example 7"):
            px.compare([score(log_densities[:, 0]), score(log_densities[:, 1])])

    def test_by_evidence(self):
        values = {"a": Evidence(-10.0, 0.3, "estimate"), "b": Evidence(-8.0, 0.4, "estimate")}
        found = px.compare(values)
        table = found.to_pandas()
        assert found.best == "b"
        np.testing.assert_allclose(table["probability"], [1 / (1 + np.exp(-2)), 1 / (1 + np.e**2)])
        np.testing.assert_allclose(table["difference_se"], [0, 0.5])
        assert not found.warnings
        mixed = px.compare(values | {"c": Evidence(-12.0, 0.0, "bound")})
        assert mixed.warnings == {"c": "a bound, and its evidence may be higher; the others are "
                                       "estimate"}  # fmt: skip
        assert "c: a bound" in str(mixed)
        assert "<table" in mixed._repr_html_()

    def test_bounds_and_approximations_are_named(self):
        def of(kind):
            return px.compare({"a": Evidence(-10.0, 0.1, kind), "b": Evidence(-7.0, 0.1, kind)})

        bounds = of("bound")
        assert "probability" not in bounds.to_pandas()
        assert list(bounds.to_pandas()["kind"]) == ["bound", "bound"]
        assert "b has the highest bound, 3.0 ± 0.1" in bounds.verdict
        assert "bounds give no probabilities" in str(bounds)
        assert "bounds give no probabilities" in bounds._repr_html_()
        rough = of("approximation")
        assert rough.to_pandas().loc["b", "probability"] > 0.9
        assert "how far an approximation is from its evidence" in str(rough)
        assert not of("exact").note

    def test_examples_must_come_in_one_order(self):
        class Shuffled:
            rng = np.random.default_rng(0)

            def __iter__(self):
                rows = self.rng.permutation(40)
                yield TRUTH.x[rows], TRUTH.y[rows]

        x, y = TRUTH.data
        for by in ("heldout", "waic"):
            with pytest.raises(ValueError, match=r"another order.*does not shuffle"):
                px.compare([SAMPLED, SAMPLED], Shuffled(), by=by)
        one = selection.heldout(SAMPLED, (x, y))
        with pytest.raises(ValueError, match="another order"):
            px.compare([one, selection.heldout(SAMPLED, (x[::-1], y[::-1]))])
        same = px.compare([one, selection.heldout(SAMPLED, (x, y[:, None].astype(float)))])
        np.testing.assert_allclose(same.differences, 0, atol=1e-4)

    @pytest.mark.parametrize("by", ["loo", "waic", "heldout", "elbo"])
    def test_posteriors_of_every_measure(self, by):
        far = exact(mean=TRUTH.mean + 1)
        found = px.compare({"far": far, "near": exact()}, TRUTH.data, by=by, samples=S)
        assert found.best == "near"
        assert found.by == by
        function = getattr(selection, by)
        alone = function(exact(), TRUTH.data, samples=S)
        value = alone.value if by == "elbo" else alone.elpd
        np.testing.assert_allclose(found.to_pandas().loc["near", "score"], value)
        for table in (found, found.to_pandas()):
            panels = Figure().subplots(1, 2)
            px.plot.comparison(panels, table)
            assert [panel.get_xlabel() for panel in panels] == [by, "difference"]
            np.testing.assert_allclose(panels[0].lines[-1].get_xdata()[0], value)
            assert "± 2 standard errors" in panels[0].get_legend_handles_labels()[1]

    def test_refusals(self):
        a, b = score(self.A), score(self.B)
        with pytest.raises(ValueError, match=r"different numbers of examples.*a 5, b 4"):
            px.compare({"a": a, "b": score(self.B[:4])})
        with pytest.raises(ValueError, match="loo and waic; only those of one kind"):
            px.compare([a, score(self.B, by="waic")])
        with pytest.raises(ValueError, match="different weights"):
            px.compare([a, score(self.B, weight=np.arange(5.0))])
        with pytest.raises(TypeError, match=r"posteriors, or scores.*Evidence, Score"):
            px.compare([a, Evidence(0.0, 0.0)])
        with pytest.raises(TypeError, match="models must be a dictionary"):
            px.compare(a)
        with pytest.raises(ValueError, match="nothing to compare"):
            px.compare([])
        with pytest.raises(ValueError, match="by must be one of 'loo'"):
            px.compare([SAMPLED], TRUTH.data, by="aic")
        with pytest.raises(ValueError, match=r"by='heldout' needs data.*not seen"):
            px.compare([SAMPLED], by="heldout")
        with pytest.raises(ValueError, match="log_evidence"):
            px.compare([SAMPLED])
        with pytest.raises(ValueError, match=r"at least 25 draws.*held-out"):
            px.compare([draws_of(W[:, :5])], TRUTH.data)
        with pytest.raises(TypeError, match="data must be"):
            selection.loo(SAMPLED, TRUTH.x)
        assert b.ok

    def test_the_data_must_be_those_of_the_fit(self):
        fitted, other = (
            exact(record=Record(settings={"examples": n}), evidence=Evidence(-9.0, 0.0, "exact"))
            for n in (40.0, 38.0)
        )
        fewer = (*TRUTH.data, np.minimum(TWICE, 1))
        for by in ("loo", "waic", "elbo"):
            with pytest.raises(ValueError, match="40 examples, and got 38; by='heldout'"):
                px.compare([fitted], fewer, by=by, samples=S)
        with pytest.raises(ValueError, match="different numbers of examples"):
            px.compare([fitted, other])
        assert not selection.loo(fitted, TRUTH.data, samples=S).approximate


def test_standard_errors_count_weights():
    values, weight = np.array([1.0, 2.0, 4.0]), np.array([2.0, 1.0, 1.0])
    np.testing.assert_allclose(
        standard_error(values, weight), standard_error(np.array([1.0, 1.0, 2.0, 4.0]), np.ones(4))
    )
    assert np.isnan(standard_error(values[:1], weight[:1] / 2))


@pytest.mark.slow
def test_the_evidence_picks_the_degree_and_the_training_error_does_not():
    rng = np.random.default_rng(0)
    x = np.linspace(-1, 1, 40)
    y = 1 - 2 * x + 4 * x**3 + 0.2 * rng.normal(size=40)
    model = px.Model(px.networks.MLP(5, 1, (), key=0), px.priors.Gaussian(3.0), Gaussian(0.2))
    fits, errors = {}, []
    for degree in range(1, 6):
        # a column of zeros says nothing, and its weight takes no part in the evidence
        powers = x[:, None] ** np.arange(1, 6) * (np.arange(1, 6) <= degree)
        fits[degree] = px.fit(model, (powers.astype("float32"), y), px.Conjugate())
        rows = np.column_stack([np.ones(40), powers])
        errors.append(np.sum(np.square(y - rows @ np.linalg.lstsq(rows, y)[0])))
    assert px.compare(fits).best == "3"
    assert fits[3].record.settings["examples"] == 40
    assert np.all(np.diff(errors) < 0)


class TestPredictiveChecks:
    def test_by_hand(self):
        check = selection.Check("mean", np.array(2.0), np.array([1.0, 2.0, 3.0, 4.0]))
        assert check.p_value == 0.625  # two above, and half of the one that is the same
        assert check.ok

    @pytest.mark.slow
    def test_p_values_of_the_prior_are_uniform(self):
        """Data from the prior predictive itself: exactly uniform, but for the steps of 1/64."""
        model = px.Model(
            ({"w": jnp.zeros(3)}, lambda p, x: (x @ p["w"])[:, None]),
            px.priors.Gaussian(1.0), Gaussian(NOISE),
        )  # fmt: skip
        prior = px.prior_posterior(model, TRUTH.x)
        made = prior.predict(TRUTH.x, samples=30, key=5).sample()
        p = [
            float(selection.predictive_check(prior, (TRUTH.x, y), "max", samples=64, key=k).p_value)
            for k, y in enumerate(made)
        ]
        assert stats.kstest(p, "uniform").pvalue > 1e-3
        assert selection.predictive_check(prior, (TRUTH.x, made[0]), samples=64).before

    def test_statistics(self):
        x, y = TRUTH.data

        def trend(y, x):
            return np.array([y @ x[:, 0], y @ x[:, 1]])

        for statistic in ("mean", "std", "min", "max", "median", np.ptp, trend):
            check = selection.predictive_check(exact(), (x, y), statistic, samples=200)
            assert check.ok, statistic
            assert len(check.replicated) == 200
        assert check.statistic == "trend"
        assert check.p_value.shape == (2,)
        wild = y.copy()
        wild[4] = 40.0
        check = selection.predictive_check(exact(), (x, wild), "max", samples=200)
        assert check.p_value == 0
        assert "larger than that of nearly all" in str(check)

    def test_zeros(self):
        assert STATISTICS["zeros"](np.array([0, 3, 0, 1])) == 0.5

    def test_classes(self):
        x = np.ones((60, 1), "float32")
        network = ({"w": jnp.log(jnp.array([[0.5, 0.3, 0.2]]))}, lambda p, x: x @ p["w"])
        model = px.Model(network, None, Categorical()).for_targets((), jnp.float32)
        classes = Point(model, model.network.state, Targets((), ()), point=model.parameters)
        y = np.repeat([0, 1, 2], [30, 18, 12])
        check = selection.predictive_check(classes, (x, y), "frequencies", samples=200)
        np.testing.assert_allclose(check.observed, [0.5, 0.3, 0.2])
        assert check.ok
        assert not selection.predictive_check(classes, (x, y * 0), "frequencies", samples=200).ok
        with pytest.raises(ValueError, match="one of frequencies, got"):
            selection.predictive_check(classes, (x, y), "mean")

    def test_refusals(self):
        with pytest.raises(ValueError, match="statistic must be a function or one of mean, std"):
            selection.predictive_check(exact(), TRUTH.data, "kurtosis", samples=200)
        with pytest.raises(ValueError, match="replications have no weights"):
            selection.predictive_check(exact(), (*TRUTH.data, np.full(40, 2.0)), samples=200)

    def test_picture(self):
        check = selection.predictive_check(exact(), TRUTH.data, "max", samples=200)
        axes = px.plot.predictive_check(Figure().subplots(), check)
        assert sum(bar.get_height() for bar in axes.patches) == 200
        assert axes.lines[0].get_xdata()[0] == check.observed
        vector = selection.Check("both", np.zeros(2), np.zeros((5, 2)))
        with pytest.raises(ValueError, match="draws one number"):
            px.plot.predictive_check(Figure().subplots(), vector)
