"""Pictures show the numbers they claim to show, explain themselves, and survive a grey printer."""

import ast
import dataclasses
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from scipy import stats

import posterax as px
from posterax import likelihoods as lk
from posterax.plot import style
from posterax.posteriors import (
    Draws,
    Evidence,
    LaplaceGaussian,
    MeanFieldGaussian,
    Point,
    Record,
)
from posterax.predictive import Targets
from posterax.selection import Score

ONE, CLASS = Targets((), (1,)), Targets((), ())
X = np.linspace(-1, 1, 8, dtype="float32")[:, None]
RNG = np.random.default_rng(0)


def network(outputs):
    w = jax.random.normal(jax.random.key(7), (2, outputs))
    return {"w": w}, lambda p, x: jnp.concatenate([x[:, :1], jnp.ones_like(x[:, :1])], 1) @ p["w"]


def posterior_of(likelihood, outputs, targets, spread=0.5, prior=None, mu=None, history=None):
    """A mean-field posterior made by hand: no fit is needed to draw it."""
    prior = px.priors.Gaussian(2.0) if prior is None else prior
    model = px.Model(network(outputs), prior, likelihood).for_targets(targets.inner, jnp.float32)
    sigma = np.broadcast_to(spread, (2, outputs)).astype("float32")
    rho = px.Parameters({"w": jnp.log(jnp.expm1(sigma))}, {})
    mu = model.parameters if mu is None else px.Parameters({"w": jnp.asarray(mu)}, {})
    record = None if history is None else Record(terms=history)
    return MeanFieldGaussian(model, model.network.state, targets, mu=mu, rho=rho, record=record)


@pytest.fixture
def axes():
    return Figure().subplots()


@pytest.fixture(scope="module")
def regression():
    return posterior_of(lk.Gaussian(0.3), 1, ONE).predict(X, samples=16, key=0)


@pytest.fixture(scope="module")
def classes():
    return posterior_of(lk.Categorical(), 4, CLASS).predict(X[::2], samples=16, key=0)


def labels(axes):
    axes.legend()  # warns, and so fails, where nothing has a label
    return axes.get_legend_handles_labels()[1]


def artist(axes, start):
    """The artist whose label begins so."""
    handles, names = axes.get_legend_handles_labels()
    found = [h for h, name in zip(handles, names, strict=True) if name.startswith(start)]
    assert len(found) == 1, names
    return found[0]


def band(axes, start):
    """Lower and upper ends of a filled band, by place."""
    corners = artist(axes, start).get_paths()[0].vertices
    places = np.unique(corners[:, 0])
    ends = [(corners[corners[:, 0] == at, 1].min(), corners[corners[:, 0] == at, 1].max())
            for at in places]  # fmt: skip
    return places, np.array(ends).T


# -- bands


def test_regression_band(axes, regression):
    order = RNG.permutation(len(X))
    shuffled = posterior_of(lk.Gaussian(0.3), 1, ONE).predict(X[order], samples=16, key=0)
    assert px.plot.regression_band(axes, X[order], shuffled, title="t") is axes
    places, ends = band(axes, "total")
    np.testing.assert_allclose(places, X[:, 0])
    reach = 2 * np.sqrt(regression.total)
    expected = [regression.mean - reach, regression.mean + reach]
    np.testing.assert_allclose(ends, expected, rtol=1e-4, atol=1e-5)
    _, inner = band(axes, "epistemic")
    np.testing.assert_allclose(inner[1] - inner[0], 4 * np.sqrt(regression.epistemic), rtol=1e-4)
    assert labels(axes) == ["total, ±2 sd", "epistemic, ±2 sd", "mean"]


class Counts(list):
    """The predictive of Poisson counts with known rates."""

    kind = "counts"
    mean = total = property(lambda self: 1.0 * np.array(self))
    epistemic = property(lambda self: 0.1 * np.array(self))

    def interval(self, level):
        return stats.poisson(np.array(self)).interval(level)


def test_regression_band_of_counts_by_level(axes):
    predictive = Counts([0.5, 1.0, 3.0])
    px.plot.regression_band(axes, [0, 1, 2], predictive, level=0.9)
    _, ends = band(axes, "total, 90 %")
    np.testing.assert_allclose(ends, predictive.interval(0.9))
    assert np.all(ends >= 0)  # two deviations below the mean would not be


# -- calibration


def probabilities(n=400, classes=3):
    p = RNG.dirichlet(np.full(classes, 0.6), n)
    y = np.array([RNG.choice(classes, p=row) for row in p])
    return p, np.where(RNG.uniform(size=n) < 0.2, RNG.integers(classes, size=n), y)


@pytest.mark.parametrize("adaptive", [False, True])
def test_reliability(axes, adaptive):
    p, y = probabilities()
    assert px.plot.reliability(axes, p, y, bins=8, adaptive=adaptive, title="t") is axes
    found = px.metrics.reliability(p, y, bins=8, adaptive=adaptive)
    used = found.count > 0
    dots = artist(axes, "accuracy")
    np.testing.assert_allclose(
        dots[0].get_xydata().T, [found.confidence[used], found.accuracy[used]]
    )
    # Wilson's interval by its formula
    z, a, n = stats.norm.ppf(0.975), found.accuracy[used], found.count[used]
    middle = (a + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * np.sqrt(a * (1 - a) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    ends = np.array([segment[:, 1] for segment in dots[2][0].get_segments()]).T
    np.testing.assert_allclose(ends, [middle - half, middle + half], atol=1e-9)
    # each gap is a bar from the confidence to the accuracy
    over = artist(axes, "over-confident")
    chosen = used & (found.accuracy < found.confidence)
    np.testing.assert_allclose([b.get_height() for b in over], found.gap[chosen])
    np.testing.assert_allclose([b.get_y() for b in over], found.confidence[chosen])
    assert all(bar.get_hatch() for bar in over)
    error = np.nansum(found.count * np.abs(found.gap)) / len(y)
    name = "ACE" if adaptive else "ECE"
    assert f"accuracy, 95 % ({name} {error:.3f})" in labels(axes)
    if not adaptive:
        assert error == pytest.approx(px.metrics.expected_calibration_error(p, y, bins=8))
        np.testing.assert_allclose([b.get_x() for b in over], np.arange(8)[chosen] / 8)
    # the strip below zero has bins of equal width
    strip = np.array([b.get_height() for b in artist(axes, "examples")])
    counts, _ = np.histogram(p.max(1), np.linspace(0, 1, 9))
    np.testing.assert_allclose(strip / strip.max(), counts / counts.max())
    assert f"up to {100 * counts.max() / len(y):.0f} % a bin" in labels(axes)[-1]
    np.testing.assert_array_less([axes.get_ylim()[0], 1], [0, axes.get_ylim()[1]])
    assert (axes.get_xlabel(), axes.get_ylabel(), axes.get_title()) == (
        "confidence",
        "accuracy",
        "t",
    )


def calibrated(n, scale=1.0, kind="regression"):
    """What has the distribution function of N(0, scale²), or of Poisson(3)."""
    known = stats.norm(0, scale) if kind == "regression" else stats.poisson(3)
    return SimpleNamespace(kind=kind, mean=np.zeros(n), cdf=known.cdf)


def test_quantile_calibration(axes):
    y = stats.norm.ppf((np.arange(200) + 0.5) / 200)  # the quantiles themselves
    assert px.plot.quantile_calibration(axes, calibrated(200), y, level=0.9) is axes
    levels, observed = artist(axes, "observed").get_data()
    np.testing.assert_allclose(observed, levels, atol=0.5 / 200 + 1e-9)
    assert "observed, up to 0.00 away" in labels(axes)
    half = stats.kstwo.ppf(0.9, 200)  # 90 % of lines of 200 uniform draws stay inside everywhere
    _, ends = band(axes, "where 90 %")
    np.testing.assert_allclose(ends[1][:100] - levels[:100], half)
    np.testing.assert_allclose(ends[0], np.maximum(levels - half, 0), atol=1e-9)
    heights = [bar.get_height() for bar in artist(axes, "histogram")]
    np.testing.assert_allclose(heights, np.full(20, heights[0]))


def test_quantile_calibration_shows_intervals_that_are_too_narrow(axes):
    y = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    px.plot.quantile_calibration(axes, calibrated(200, scale=0.5), y)
    levels, observed = artist(axes, "observed").get_data()
    # P(Z ≤ 0.5 Φ⁻¹(q)) is above q on the left and below on the right
    expected = stats.norm.cdf(0.5 * stats.norm.ppf(levels))
    np.testing.assert_allclose(observed[1:-1], expected[1:-1], atol=1 / 200)


def test_quantile_calibration_of_counts_and_of_several_outputs(axes):
    y = stats.poisson(3).rvs(500, random_state=1)
    px.plot.quantile_calibration(axes, calibrated(500, kind="counts"), y)
    levels, observed = artist(axes, "observed").get_data()
    # without randomisation the smallest u would be P(Y = 0) = 0.05, and jumps 0.2 high
    assert np.max(np.abs(observed - levels)) < stats.kstwo.ppf(0.999, 500)
    axes.clear()
    both = SimpleNamespace(kind="regression", mean=np.zeros((50, 2)), cdf=stats.norm.cdf)
    px.plot.quantile_calibration(axes, both, np.stack([np.zeros(50), RNG.normal(size=50)], 1))
    assert artist(axes, "output 0").get_ydata()[99] == 0  # all u are 1/2
    assert artist(axes, "output 0").get_ydata()[100] == 1
    assert artist(axes, "output 1").get_linestyle() != artist(axes, "output 0").get_linestyle()


def test_quantile_calibration_of_a_predictive(axes, regression):
    y = np.sin(3 * X[:, 0])
    px.plot.quantile_calibration(axes, regression, y)
    u = stats.norm(regression.outputs()[..., 0], 0.3).cdf(y).mean(0)
    levels, observed = artist(axes, "observed").get_data()
    np.testing.assert_allclose(observed, (u <= levels[:, None]).mean(1))


# -- weights


def test_weights_are_drawn_by_their_formula(axes):
    posterior = posterior_of(lk.Gaussian(0.3), 1, ONE, [[0.5], [0.1]], mu=[[1.0], [-2.0]])
    assert px.plot.weights(axes, posterior, ["w[1, 0]", "network.w[0, 0]"], title="t") is axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["w\n[1, 0]", "w\n[0, 0]"]
    rows = [c for c in axes.collections if c.get_zorder() == 2]
    for base, fill, known in zip(
        (1, 0), rows, (stats.norm(-2, 0.1), stats.norm(1, 0.5)), strict=True
    ):
        corners = fill.get_paths()[0].vertices
        upper = corners[corners[:, 1] > base + 1e-3]
        expected = base + 0.85 * known.pdf(upper[:, 0]) / known.pdf(known.mean())
        np.testing.assert_allclose(upper[:, 1], expected, atol=2e-3)
    at, prior = artist(axes, "prior").get_data()
    known = stats.norm(0, 2).pdf(at)
    np.testing.assert_allclose(prior, 1 + 0.85 * known / known.max(), rtol=1e-4)
    assert labels(axes) == ["posterior", "prior", "zero"]


def test_weights_by_default_go_from_strong_to_weak(axes):
    mu = np.arange(1.0, 9.0).reshape(2, 4)
    posterior = posterior_of(lk.Categorical(), 4, CLASS, 0.5, mu=mu)
    px.plot.weights(axes, posterior, where="w")
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert (names[0], names[-1], len(names)) == ("w\n[1, 3]", "w\n[0, 0]", 5)


def test_weights_of_draws_grids_and_points(axes):
    base = posterior_of(lk.Gaussian(0.3), 1, ONE)
    draws = px.Parameters({"w": jnp.asarray(RNG.normal(1, 0.2, (2, 500, 2, 1)))}, {})
    chain = Draws(base.model, base.state, ONE, draws=draws)
    px.plot.weights(axes, chain, ["w[0, 0]"])
    corners = axes.collections[0].get_paths()[0].vertices
    peak = corners[corners[:, 1].argmax()]
    # the mode of a kernel density is within a few standard errors of the mean's 0.2 / √1000
    assert abs(peak[0] - 1) < 0.1
    np.testing.assert_allclose(peak[1], 0.85)

    axes.clear()
    grid = px.Model(network(1), px.priors.Grid([-1, 0, 1], [0.25, 0.5, 0.25]), lk.Gaussian(0.3))
    px.plot.weights(axes, px.prior_posterior(grid, X), ["w[0, 0]"])
    heights = np.array([bar.get_height() for bar in artist(axes, "posterior")]) / 0.85
    # 4,000 draws of a share 1/4 relative to 1/2: a standard error of 0.02
    np.testing.assert_allclose(heights, [0.5, 1, 0.5], atol=0.08)
    np.testing.assert_allclose(artist(axes, "prior").get_data(), [[-1, 0, 1], [0.425, 0.85, 0.425]])

    axes.clear()
    point = Point(base.model, base.state, ONE, point=base.mu)
    px.plot.weights(axes, point, ["w[1, 0]"])
    (line,) = artist(axes, "posterior").get_segments()
    np.testing.assert_allclose(line[:, 0], float(base.mu.network["w"][1, 0]))


def test_weights_beside_priors_of_their_own(axes):
    before = posterior_of(lk.Gaussian(0.3), 1, ONE, [[0.5], [0.1]], mu=[[1.0], [-2.0]])
    after = posterior_of(lk.Gaussian(0.3), 1, ONE, 0.05, before.as_prior(), mu=[[1.0], [-2.0]])
    px.plot.weights(axes, after, ["w[1, 0]"])
    at, prior = artist(axes, "prior").get_data()
    expected = stats.norm(-2, 0.1).pdf(at)
    np.testing.assert_allclose(prior, 0.85 * expected / expected.max(), rtol=1e-2, atol=1e-4)
    axes.clear()
    shared = px.priors.Hierarchical(2.0, 3.0)  # a weight alone is Student's t, 4 degrees
    px.plot.weights(axes, posterior_of(lk.Gaussian(0.3), 1, ONE, prior=shared), ["w[1, 0]"])
    at, prior = artist(axes, "prior").get_data()
    fan_in = 2  # the rate of a matrix is divided by it
    known = stats.t(4, scale=np.sqrt(3 / (2 * fan_in))).pdf(at)
    np.testing.assert_allclose(prior, 0.85 * known / known.max(), rtol=1e-3)


def test_weights_beside_the_prior_that_laplace_tuned(axes):
    base = posterior_of(lk.Gaussian(0.3), 1, ONE)
    block = {"leaves": "network.w", "deviation": jnp.ones((2, 1))}
    tuned = LaplaceGaussian(
        base.model, base.state, ONE, mu=base.mu, blocks={"w": block}, linearised=True,
        prior_factors={"all": jnp.asarray(16.0)},
    )  # fmt: skip
    px.plot.weights(axes, tuned, ["w[1, 0]"])
    at, prior = artist(axes, "prior").get_data()
    known = stats.norm(0, 2 / 4).pdf(at)
    np.testing.assert_allclose(prior, 0.85 * known / known.max(), rtol=1e-3, atol=1e-6)


def test_signal_to_noise(axes):
    mu = np.concatenate([RNG.normal(size=398), [0.0, 1e-30]]).reshape(2, 200)
    sigma = RNG.uniform(0.1, 1, (2, 200))
    posterior = posterior_of(lk.Categorical(), 200, CLASS, sigma, mu=mu)
    assert px.plot.signal_to_noise(axes, posterior, bins=20) is axes
    ratio = 10 * np.log10(np.abs(mu.ravel()[:398]) / sigma.ravel()[:398])
    values, edges, _ = artist(axes, "density of 400").get_data()
    assert np.sum(values * np.diff(edges)) == pytest.approx(398 / 400)
    counts, expected = np.histogram(ratio, 20)
    np.testing.assert_allclose(edges, expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(values * np.diff(edges) * 400, counts, atol=1.01)  # float32 σ
    at, line = artist(axes, "share below (2 below −100 dB)").get_data()
    share = axes.child_axes[0]._functions[0](line)
    np.testing.assert_allclose(at, np.sort(ratio), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(share, np.arange(3, 401) / 400)
    assert axes.get_ylim()[1] == pytest.approx(line[-1])


# -- uncertainty


def test_entropy_histogram(axes):
    inside, outside = RNG.dirichlet([0.1] * 3, 300), RNG.dirichlet([2.0] * 3, 200)
    names = ("digits", "letters")
    assert px.plot.entropy_histogram(axes, inside, outside, names=names, bins=12) is axes
    area = px.metrics.detection(inside, outside, score="total").auroc
    assert labels(axes) == ["digits", f"letters (AUROC {area:.3f})"]
    for name, p in zip(names, (inside, outside), strict=True):
        shares, edges, _ = artist(axes, name).get_data()
        counts, _ = np.histogram(stats.entropy(p, axis=-1), edges)
        np.testing.assert_allclose(shares, counts / len(p))
        assert shares.sum() == pytest.approx(1)
    assert artist(axes, "letters").get_hatch()
    assert not artist(axes, "digits").get_hatch()
    assert axes.get_xlabel() == "entropy of the mean probabilities (nats)"


def test_entropy_histogram_of_predictives_and_scores(axes, classes, regression):
    px.plot.entropy_histogram(axes, classes, classes, score="epistemic")
    assert axes.get_xlabel() == "mutual information (nats)"
    assert labels(axes)[1] == "outside (AUROC 0.500)"
    axes.clear()
    px.plot.entropy_histogram(axes, regression, regression, score="epistemic")
    assert axes.get_xlabel() == "epistemic variance"
    axes.clear()
    px.plot.entropy_histogram(axes, [-1.0, 0.0], [1.0, 2.0])
    assert (axes.get_xlabel(), axes.get_xlim()) == ("score", (-1, 2))
    axes.clear()
    px.plot.entropy_histogram(axes, np.zeros(3), np.zeros(2))  # no spread at all
    assert artist(axes, "inside").get_data().values.sum() == 1


def test_accuracy_rejection(axes):
    (p, y), worse = probabilities(), RNG.dirichlet([0.5] * 3, 400)
    assert px.plot.accuracy_rejection(axes, {"good": p, "bad": worse}, y) is axes
    for name, given in (("good", p), ("bad", worse)):
        curve = px.metrics.accuracy_rejection(given, y)
        line = artist(axes, f"{name} (mean {curve.area:.3f})")
        np.testing.assert_allclose(line.get_xydata().T, curve)
    accuracy = np.mean(p.argmax(1) == y)
    oracle = artist(axes, "mistakes first (good)").get_ydata()
    np.testing.assert_allclose(oracle, px.metrics.accuracy_rejection(p, y, p.argmax(1) != y)[1])
    np.testing.assert_allclose(artist(axes, "at random (good)").get_ydata(), accuracy)
    low, high = axes.get_ylim()
    assert low < min(np.mean(worse.argmax(1) == y), accuracy)
    assert high > 1
    axes.clear()
    px.plot.accuracy_rejection(axes, p, y, score="confidence")
    assert labels(axes)[0] == "mistakes first"
    assert axes.get_xlabel() == "share rejected, by 1 − largest probability"


# -- training


HISTORY = {
    "nll": np.linspace(2, 1, 200) + 0.1 * RNG.normal(size=200),
    "kl": np.linspace(30, 10, 200),
    "validation_nll": np.array([1.5, 1.2]),
    "validation_step": np.array([100, 200]),
}


def with_history(**history):
    return posterior_of(lk.Gaussian(0.3), 1, ONE, history=history)


def test_training_on_two_scales(axes):
    assert px.plot.training(axes, with_history(**HISTORY), title="t") is axes
    assert labels(axes) == ["NLL", "validation NLL", "KL / N (right)"]
    raw = axes.get_lines()[0]
    np.testing.assert_allclose(raw.get_ydata(), HISTORY["nll"])
    when, middle = artist(axes, "NLL").get_data()
    assert len(middle) == 197  # a moving average of four
    np.testing.assert_allclose(
        middle[[0, -1]], [HISTORY["nll"][:4].mean(), HISTORY["nll"][-4:].mean()]
    )
    np.testing.assert_allclose(when[[0, -1]], [2.5, 198.5])  # amid the steps, which begin at 1
    np.testing.assert_allclose(artist(axes, "validation").get_xydata(), [[100, 1.5], [200, 1.2]])
    (right,) = [other for other in axes.figure.axes if other is not axes]
    np.testing.assert_allclose(
        artist(right, "KL").get_ydata()[[0, -1]], [30 - 3 * 20 / 398, 10 + 3 * 20 / 398]
    )
    assert right.get_ylabel() == "KL / N (nats an example), dashed"
    assert artist(right, "KL").get_linestyle() != artist(axes, "NLL").get_linestyle()
    low, high = right.get_ylim()
    assert low < 10.2
    assert high > 29.8


def test_training_of_several_on_two_axes():
    pair = Figure().subplots(1, 2)
    fits = {
        "variational": with_history(**HISTORY),
        "point": with_history(**{"optimising/nll": np.ones(50), "nll": np.ones(3)}),
    }
    assert px.plot.training(pair, fits) is pair
    assert labels(pair[0]) == ["variational: NLL", "variational: validation NLL", "point: NLL"]
    assert labels(pair[1]) == ["variational: KL / N"]
    assert len(artist(pair[0], "point").get_xdata()) == 50  # the longest phase
    assert pair[1].get_ylabel() == "KL / N (nats an example)"


def test_training_cuts_off_a_start_that_flattens_the_rest(axes):
    steep = np.concatenate([[1e6, 1e5, 10], np.linspace(2, 1, 197)])
    px.plot.training(axes, with_history(nll=steep))
    assert len(axes.figure.axes) == 1  # no KL, no second scale
    assert 2 < axes.get_ylim()[1] < 10


# -- images


def test_images(axes, classes):
    pictures = RNG.uniform(size=(4, 6, 6))
    y = classes.mode.copy()
    y[3] = (y[3] + 1) % 4
    names = ["ant", "bee", "cat", "dog"]
    assert px.plot.images(axes, pictures, classes, y, classes=names, level=0.8, title="t") is axes
    low, high = classes.interval(0.8)
    cells = list(zip(axes.child_axes[::2], axes.child_axes[1::2], strict=True))
    assert len(cells) == 4
    for i, (above, below) in enumerate(cells):
        np.testing.assert_allclose(above.images[0].get_array(), pictures[i])
        best = np.argsort(-classes.mean[i])[:3]
        np.testing.assert_allclose([b.get_width() for b in below.patches], classes.mean[i, best])
        whiskers = np.array([s[:, 0] for s in below.collections[0].get_segments()])
        np.testing.assert_allclose(whiskers, np.stack([low[i], high[i]], 1)[best])
        assert [t.get_text() for t in below.get_yticklabels()] == [names[k] for k in best]
        wrong = i == 3
        said = f"✗ {names[best[0]]}, is {names[y[3]]}" if wrong else f"✓ {names[best[0]]}"
        assert above.get_title() == said
        assert all(bool(bar.get_hatch()) == wrong for bar in below.patches)
        assert (above.spines["top"].get_linewidth() > 1) == wrong


def test_images_of_every_shape(classes):
    flat = RNG.uniform(size=(4, 12))
    place = px.plot.images(Figure(), flat, classes, shape=(3, 4), top=9, columns=3)
    assert place.child_axes[0].images[0].get_array().shape == (3, 4)
    assert place.child_axes[0].get_title() == str(classes.mode[0])  # no labels, no verdict
    assert len(place.child_axes[1].patches) == 4  # all classes, where fewer were asked for
    first, fourth = (place.child_axes[i].get_position().x0 for i in (0, 6))
    assert first == pytest.approx(fourth)  # a row has three
    for shape, shown in (((4, 1, 5, 5), (5, 5)), ((4, 5, 5, 1), (5, 5)), ((4, 3, 5, 5), (5, 5, 3))):
        pictures = px.plot.images(Figure(), RNG.uniform(size=shape), classes).child_axes[::2]
        assert pictures[0].images[0].get_array().shape == shown


# -- comparison


def test_comparison_of_repeats_and_errors(axes):
    table = {"a": {"NLL": [0.2, 0.3, 0.4], "ECE": 0.1}, "b": {"NLL": (0.5, 0.02)}}
    assert px.plot.comparison(axes, table, title="t") is axes
    assert labels(axes) == ["repeats", "mean", "± 2 standard errors"]
    nll, ece = axes.child_axes
    np.testing.assert_allclose(artist(nll, "mean").get_xydata(), [[0.3, 1], [0.5, 0]])
    (bars,) = artist(nll, "± 2")[2]
    ends = [segment[:, 0] for segment in bars.get_segments()]
    half = 2 * 0.1 / np.sqrt(3)
    np.testing.assert_allclose(ends, [[0.3 - half, 0.3 + half], [0.46, 0.54]])
    np.testing.assert_allclose(artist(nll, "repeats").get_xdata(), [0.2, 0.3, 0.4])
    assert [t.get_text() for t in nll.get_yticklabels()] == ["a", "b"]
    np.testing.assert_allclose(artist(ece, "value").get_xydata(), [[0.1, 1]])
    assert ece.get_xlabel() == "ECE"


def test_comparison_of_frames_and_of_models(axes):
    frame = pd.DataFrame(
        {"NLL": [0.2, 0.4, 0.5], "note": ["", "", "x"], "time": [1.0, 3.0, 9.0]},
        index=["a", "a", "b"],
    )
    px.plot.comparison(axes, frame, scores=["NLL"])
    np.testing.assert_allclose(artist(axes, "mean").get_xydata(), [[0.3, 1], [0.5, 0]])
    axes.clear()
    px.plot.comparison(axes, pd.DataFrame({"s": [1.0], "s_se": [0.25]}, index=["a"]))
    (bars,) = artist(axes, "± 2")[2]
    np.testing.assert_allclose(bars.get_segments()[0][:, 0], [0.5, 1.5])
    models = px.compare({"line": Evidence(-9.0, 0.3), "cube": Evidence(-2.0, 0.4)})
    pair = Figure().subplots(1, 2)
    px.plot.comparison(pair, models)
    assert [panel.get_xlabel() for panel in pair] == ["evidence", "difference"]
    np.testing.assert_allclose(artist(pair[1], "value").get_xydata(), [[0, 1], [-7, 0]])
    (bars,) = artist(pair[1], "± 2")[2]
    np.testing.assert_allclose(bars.get_segments()[0][:, 0], [-8, -6])  # √(0.3² + 0.4²) = 0.5
    for by in ("loo", "waic", "heldout"):
        each = [Score(by, np.array(v), np.ones(2), np.zeros(2)) for v in ([-1, -3.0], [-2, -4.0])]
        for table in (px.compare(each), px.compare(each).to_pandas()):
            pair = Figure().subplots(1, 2)
            px.plot.comparison(pair, table)
            assert [panel.get_xlabel() for panel in pair] == [by, "difference"]
            np.testing.assert_allclose(artist(pair[0], "value").get_xydata(), [[-4, 1], [-6, 0]])
            (bars,) = artist(pair[0], "± 2")[2]
            # √(2 · 2) twice to each side
            np.testing.assert_allclose(bars.get_segments()[0][:, 0], [-8, 0])


# -- what cannot be drawn


def test_refusals(axes, regression, classes):
    p, y = probabilities(20)
    silent = posterior_of(lk.Gaussian(0.3), 1, ONE)
    point = Point(silent.model, silent.state, ONE, point=silent.mu)
    pictures = np.zeros((4, 5, 5))
    plot = px.plot
    for why, call in {
        "not class probabilities": lambda: plot.regression_band(axes, X, classes),
        "x must have shape": lambda: plot.regression_band(axes, X[:3], regression),
        "level must lie": lambda: plot.regression_band(axes, X, regression, level=90),
        "for classification": lambda: plot.reliability(axes, regression, y),
        "y must have shape": lambda: plot.reliability(axes, p, y[:3]),
        "bins must be": lambda: plot.reliability(axes, p, y, bins=0),
        "regression or counts": lambda: plot.quantile_calibration(axes, classes, y),
        r"y must have shape \(8,\)": lambda: plot.quantile_calibration(axes, regression, y),
        "no weight 'w'": lambda: plot.weights(axes, silent, ["w"]),
        r"no weight 'v\[0\]'": lambda: plot.weights(axes, silent, ["v[0]"]),
        "of is empty": lambda: plot.weights(axes, silent, []),
        "without a deviation": lambda: plot.signal_to_noise(axes, point),
        "all means are 0": lambda: plot.signal_to_noise(
            axes, dataclasses.replace(silent, mu=jax.tree.map(jnp.zeros_like, silent.mu))
        ),
        "outside holds no examples": lambda: plot.entropy_histogram(axes, [1.0], []),
        "the score must be one of": lambda: plot.entropy_histogram(axes, p, p, score="doubt"),
        "predictives is empty": lambda: plot.accuracy_rejection(axes, {}, y),
        "no NLL in its history": lambda: plot.training(axes, silent),
        "posteriors is empty": lambda: plot.training(axes, {}),
        "has a KL": lambda: plot.training([axes, axes], with_history(nll=np.ones(3))),
        r"two of them \(NLL, KL\), got 3": lambda: plot.training(
            [axes] * 3, with_history(**HISTORY)
        ),
        "Predictive of classes": lambda: plot.images(axes, pictures, regression),
        "the 4 pictures": lambda: plot.images(axes, pictures[:2], classes),
        "say shape": lambda: plot.images(axes, np.zeros((4, 7)), classes),
        "one channel or three": lambda: plot.images(axes, np.zeros((4, 2, 5, 5)), classes),
        "classes must be 4 names": lambda: plot.images(axes, pictures, classes, classes=["a"]),
        "labels 0 to 3": lambda: plot.images(axes, pictures, classes, np.full(4, 9)),
        "not empty": lambda: plot.comparison(axes, {}),
        "its scores by name": lambda: plot.comparison(axes, {"a": 3.0}),
        r"a, NLL must be a number": lambda: plot.comparison(axes, {"a": {"NLL": "low"}}),
        "must be finite": lambda: plot.comparison(axes, {"a": {"NLL": np.nan}}),
        r"not \['ECE'\]": lambda: plot.comparison(axes, {"a": {"NLL": 1.0}}, scores=["ECE"]),
        "one for each of 1 scores": lambda: plot.comparison([axes] * 2, {"a": {"NLL": 1.0}}),
    }.items():
        with pytest.raises((ValueError, TypeError), match=why):
            call()


# -- grey printers and fast imports


def lightness(colour):
    """L* of the CIE, from 0 to 100."""
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in to_rgb(colour)]
    y = np.dot([0.2126, 0.7152, 0.0722], linear)
    return 116 * np.cbrt(y) - 16 if y > 0.008856 else 903.3 * y


def test_grey_prints_stay_clear():
    fills = (style.EPISTEMIC_FILL, style.TOTAL_FILL)
    assert abs(lightness(fills[0]) - lightness(fills[1])) > 15
    for edge, fill in ((style.EPISTEMIC, fills[0]), (style.TOTAL, fills[1])):
        assert lightness(fill) - lightness(edge) > 15
    methods = [style.method_style(i) for i in range(12)]
    for one, other in combinations(methods, 2):
        assert (one["linestyle"], one["marker"]) != (other["linestyle"], other["marker"])


def test_matplotlib_is_imported_only_to_draw():
    files = list(Path(style.__file__).parent.glob("*.py"))
    assert len(files) > 9
    for file in files:
        for node in ast.parse(file.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.startswith(("matplotlib", "scipy")) for name in names), file
