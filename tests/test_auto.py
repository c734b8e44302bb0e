"""``method="auto"``: a portfolio, cross-fitted and weighted, as one estimator."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, make_friedman1

import posterax as px
from posterax.errors import CheckpointError, NonFiniteError
from posterax.files.container import read, write
from posterax.posteriors import Blend, GaussianMixture
from posterax.tables import blending
from posterax.tables import portfolio as portfolios
from posterax.tables.portfolio import portfolio
from posterax.tables.stacking import stack

QUICK = portfolios._Maker.quick


def shortened(patch):
    """A portfolio of one model, a correction of trees, and networks that are not trained far."""
    patch.setattr(portfolios, "STEPS", (300, 1200))
    patch.setattr(portfolios._Maker, "quick", lambda maker: QUICK(maker)[:1])


@pytest.fixture
def brief(monkeypatch):
    shortened(monkeypatch)


@pytest.fixture(scope="module")
def rows():
    x, y = make_friedman1(400, noise=1.0, random_state=0)
    return x[:250], y[:250], x[250:], y[250:]


@pytest.fixture(scope="module")
def regressor(rows):
    x, y, _, _ = rows
    return px.BayesianRegressor(quality="fast", random_state=0, verbose=False).fit(x, y)


@pytest.fixture(scope="module")
def classifier():
    x, y = load_breast_cancer(return_X_y=True)
    made = px.BayesianClassifier(quality="fast", random_state=0, verbose=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(portfolios, "STEPS", (300, 2000))
        return made.fit(x[:300], y[:300]), x[300:], y[300:]


def test_a_blend_is_what_the_default_finds(regressor, rows):
    assert isinstance(regressor.posterior_, Blend)
    assert sum(line["weight"] for line in regressor.tried_) == pytest.approx(1)
    _, y, x, truth = rows
    predictive = regressor.predictive(x)
    error = np.sqrt(np.mean(np.square(predictive.mean - truth)))
    assert error < 0.45 * y.std()
    low, high = predictive.interval(0.9)
    assert 0.8 < np.mean((low <= truth) & (truth <= high)) <= 0.98
    both = predictive.epistemic + predictive.aleatoric
    np.testing.assert_allclose(both, predictive.total, rtol=1e-4)


def test_what_was_said_of_each_model_is_about_rows_it_had_not_seen(regressor, rows):
    # a model that had seen the rows would be far better on them than on new ones
    _, _, x, truth = rows
    new = -np.mean(regressor.predictive(x).log_prob(truth))
    best = min(line["nll"] for line in regressor.tried_)
    assert abs(new - best) < 0.35


def test_the_same_seed_gives_the_same_bits(regressor, rows):
    x, y, new, _ = rows
    again = px.BayesianRegressor(quality="fast", random_state=0, verbose=False).fit(x, y)
    np.testing.assert_array_equal(again.predict(new), regressor.predict(new))


def test_files_hold_blend_and_trees(regressor, classifier, rows, tmp_path):
    x = rows[2]
    regressor.save(tmp_path / "r.px")
    same = px.load(tmp_path / "r.px")
    np.testing.assert_array_equal(same.predict(x), regressor.predict(x))
    assert same.tried_ == regressor.tried_
    assert same.target_ == regressor.target_
    fitted, new, _ = classifier
    fitted.save(tmp_path / "c.px")
    same = px.load(tmp_path / "c.px")
    np.testing.assert_array_equal(same.predict_proba(new), fitted.predict_proba(new))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda h: h["weights"].__setitem__(0, 3.0), "sum to 1"),
        (lambda h: h["widths"].__setitem__(0, 0.0), "width"),
        (lambda h: h.__setitem__("parts", []), "0 parts"),
        (lambda h: h["parts"].__setitem__(0, {"posterior": "Blend"}), "no posterior"),
        (lambda h: h.__setitem__("folds", 10**9), "folds"),
        (lambda h: h.__setitem__("folds", 3), "fold"),
        (lambda h: h.__setitem__("own", 7), "columns of its own|trees"),
        (lambda h: h["based"].__setitem__(0, "yes"), "columns of their own"),
        (lambda h: h["based"].__setitem__(0, not h["based"][0]), "columns of its own|trees|belong"),
        (lambda h: h["widths"].__setitem__(0, 1e-60), "width"),
        (lambda h: h["parts"][0].__setitem__("posterior", "PriorPosterior"), "no posterior"),
    ],
)
def test_a_blend_that_is_none_is_refused(regressor, tmp_path, change, said):
    regressor.save(tmp_path / "r.px")
    arrays, header = read(tmp_path / "r.px")
    change(header)
    write(tmp_path / "changed.px", arrays, header)
    with pytest.raises(CheckpointError, match=said):
        px.load(tmp_path / "changed.px")


@pytest.fixture(scope="module")
def with_trees(rows):
    x, y, _, _ = rows
    with pytest.MonkeyPatch.context() as patch:
        shortened(patch)
        made = px.BayesianRegressor(quality="fast", random_state=1, verbose=False)
        made.fit(x[:120], y[:120])
    return made


@pytest.mark.parametrize(
    ("name", "value"),
    [("feature", 99), ("feature", -1), ("left", 0), ("right", 10**6), ("value", np.nan)],
)
def test_trees_that_lead_nowhere_are_refused(with_trees, tmp_path, name, value):
    with_trees.save(tmp_path / "r.px")
    arrays, header = read(tmp_path / "r.px")
    changed = arrays[f"trees/{name}"].copy()
    inner = np.flatnonzero(arrays["trees/left"] > 0)[0]
    changed[inner] = value
    write(tmp_path / "changed.px", arrays | {f"trees/{name}": changed}, header)
    with pytest.raises(CheckpointError, match="its trees"):
        px.load(tmp_path / "changed.px")


def test_classes(classifier):
    fitted, x, y = classifier
    p = fitted.predict_proba(x)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    assert -np.mean(np.log(p[np.arange(len(y)), y])) < 0.2
    assert np.mean(fitted.predict(x) != y) < 0.06


def test_an_argument_of_one_network_asks_for_one_method(rows):
    x, y, _, _ = rows
    made = px.BayesianRegressor(steps=20, members=2, verbose=False).fit(x, y)
    assert isinstance(made.posterior_, GaussianMixture)


def test_quality_is_checked(rows):
    x, y, _, _ = rows
    with pytest.raises(ValueError, match="quality must be one of 'fast', 'good', 'best'"):
        px.BayesianRegressor(quality="fine").fit(x, y)


def test_partial_fit_learns_by_a_method_that_can(rows):
    x, y, _, _ = rows
    made = px.BayesianRegressor(verbose=False)
    made.steps, made.members = 20, 2
    made.partial_fit(x[:50], y[:50]).partial_fit(x[50:80], y[50:80])
    assert made.updates_ == 1


def no_interval_leaves_the_support(kind):
    random = np.random.default_rng(0)
    x = random.normal(size=(300, 3))
    rate = np.exp(0.5 + 0.8 * x[:, 0])
    y = {
        "count": random.poisson(rate),
        "positive": rate * random.lognormal(0, 0.5, 300),
        "zeros": rate * random.lognormal(0, 0.5, 300) * (random.uniform(size=300) > 0.6),
        "share": random.beta(2 * rate / (1 + rate), 2 / (1 + rate)),
    }[kind].astype(float)
    made = px.BayesianRegressor(quality="fast", random_state=0, verbose=False).fit(x, y)
    assert made.target_.name == kind
    predictive = made.predictive(3 * x)
    low, high = predictive.interval(0.9)
    assert np.all(low >= 0)
    if kind == "share":
        assert np.all(high <= 1)
    held = made.predictive(x)
    assert np.all(held.mean > 0)
    low, high = held.interval(0.9)
    assert 0.85 < np.mean((low <= y) & (y <= high)) <= 1
    assert abs(held.mean.mean() / y.mean() - 1) < 0.15


KINDS = ["count", "positive", "zeros", "share"]


@pytest.mark.usefixtures("brief", "hasty_compiler")
@pytest.mark.parametrize("kind", KINDS)
def test_no_interval_leaves_the_targets_support(kind):
    no_interval_leaves_the_support(kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_interval_of_several_models_leaves_the_targets_support(kind):
    no_interval_leaves_the_support(kind)


@pytest.mark.usefixtures("brief", "hasty_compiler")
def test_text_gaps_weights_and_several_targets(monkeypatch):
    random = np.random.default_rng(0)
    frame = pd.DataFrame({"a": random.normal(size=120), "town": random.choice(list("xyz"), 120)})
    frame.loc[::7, "a"] = np.nan
    y = (frame["town"] == "x").to_numpy() + 0.1 * random.normal(size=120)
    made = px.BayesianRegressor(quality="fast", columns="auto", random_state=0, verbose=False)
    made.fit(frame, y, sample_weight=random.uniform(0.5, 1.5, 120))
    assert np.sqrt(np.mean(np.square(made.predict(frame) - y))) < 0.3
    monkeypatch.setattr(portfolios._Maker, "quick", QUICK)  # the one without trees is left
    two = px.BayesianRegressor(quality="fast", random_state=0, verbose=False)
    two.fit(random.normal(size=(60, 2)), random.normal(size=(60, 2)))
    assert two.predict(np.zeros((3, 2))).shape == (3, 2)
    assert two.forests_ is None


def test_a_limit_of_time_leaves_models_out(rows):
    x, y, new, _ = rows
    made = px.BayesianRegressor(time_limit=2, random_state=0, verbose=False)
    with pytest.warns(UserWarning, match="time_limit"):
        made.fit(x, y)
    assert len(made.tried_) < 5
    assert np.all(np.isfinite(made.predict(new)))


def test_portfolios_grow_with_rows():
    few, many = (portfolio(n, classes=0) for n in (500, 50_000))
    assert {part.name for part in few.parts} > {"MCLMC"}
    assert "MCLMC" not in {part.name for part in many.parts}
    assert all(part.method.folds == few.folds for part in few.parts)
    assert not any(p.based for p in portfolio(500, classes=3, trees=False).parts)


def test_stacking_finds_the_mixture():
    random = np.random.default_rng(0)
    from_first = random.uniform(size=4000) < 0.7
    y = np.where(from_first, random.normal(-3, 1, 4000), random.normal(3, 1, 4000))
    log_p = np.stack([-0.5 * np.square(y + 3), -0.5 * np.square(y - 3), -0.5 * np.square(y - 30)])
    v = stack(log_p, np.ones(4000))
    assert v[0] == pytest.approx(0.7, abs=0.03)
    assert v[2] == 0


def test_stacking_keeps_the_only_model_of_a_row():
    log_p = np.zeros((3, 50))
    log_p[1:] = 0.1
    log_p[1:, 0] = -900  # beyond the smallest number there is
    v = stack(log_p, np.ones(50))
    assert np.all(np.isfinite(v))
    assert v[0] > 0


def test_stacking_leaves_out_what_brings_nothing():
    good = np.random.default_rng(0).normal(size=400)
    v = stack(np.stack([good, good - 0.01, good - 0.5]), np.ones(400))
    assert v.tolist() == [1, 0, 0]


def blend_of_two(plain=None):
    """Two ensembles of constant functions, 0 and 1, on a column that went from −1 to 1."""
    network = px.networks.MLP(2, 1, (2,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    x = np.zeros((4, 2), np.float32)
    parts = []
    for value in (0.0, 1.0):
        fitted = px.fit(model, (x, np.zeros(4)), px.DeepEnsemble(3), steps=1, key=0)
        last = fitted.draws.network.layers[-1]
        flat = eqx.tree_at(
            lambda layer: (layer.weight, layer.bias), last,
            (jnp.zeros_like(last.weight), jnp.full_like(last.bias, value)),
        )  # fmt: skip
        parts.append(eqx.tree_at(lambda p: p.draws.network.layers[-1], fitted, flat))
    return Blend.of(parts, [0.8, 0.2], plain=plain, reach=[[-1, 3], [1, 3]])


@pytest.mark.filterwarnings("ignore::posterax.errors.ConvergenceWarning")
def test_beyond_the_data_the_plain_part_answers(tmp_path):
    x = np.array([[0, 3], [1, 3], [1.2, 3], [-9, 3], [0, 4], [1.03, 3]], np.float32)
    np.testing.assert_allclose(blend_of_two().predict(x).mean, 0.2, atol=1e-5)
    blend = blend_of_two(plain=1)
    mean = blend.predict(x).mean
    np.testing.assert_allclose(mean[:5], [0.2, 0.2, 1, 1, 1], atol=1e-5)
    assert 0.2 < mean[5] < 1  # not all at once
    blend.save(tmp_path / "b.px")
    loaded = px.load(tmp_path / "b.px")
    np.testing.assert_array_equal(loaded.predict(x).mean, mean)
    arrays, header = read(tmp_path / "b.px")
    for change in ({"plain": 2}, {"plain": "1"}, {"plain": -1}):
        write(tmp_path / "c.px", arrays, header | change)
        with pytest.raises(CheckpointError):
            px.load(tmp_path / "c.px")
    for reach in (None, arrays["reach"][:, :1], arrays["reach"][::-1], arrays["reach"] * np.nan):
        write(
            tmp_path / "c.px",
            {**arrays, "reach": reach}
            if reach is not None
            else {k: a for k, a in arrays.items() if k != "reach"},
            header,
        )
        with pytest.raises(CheckpointError):
            px.load(tmp_path / "c.px")


def test_a_trend_goes_on():
    """Trees are constant beyond the data: who is shown the past only, must not be sure of that."""
    random = np.random.default_rng(0)
    year = np.sort(random.uniform(0, 10, 300))
    x = np.stack([year, year % 1], axis=1)
    y = 2 * year + np.sin(2 * np.pi * year) + 0.3 * random.normal(size=300)
    past = year < 8
    made = px.BayesianRegressor(random_state=0, verbose=False).fit(x[past], y[past])
    low, high = made.predict_interval(x[~past])
    assert np.mean((low <= y[~past]) & (y[~past] <= high)) > 0.7
    assert np.sqrt(np.mean(np.square(made.predict(x[~past]) - y[~past]))) < 1.5


@pytest.mark.parametrize("labels", [[0] * 20 + [1], [0, 1], [0, 0, 0, 1]])
def test_few_rows_of_a_class_grow_no_trees(labels, brief, monkeypatch):
    monkeypatch.setattr(portfolios._Maker, "quick", QUICK)
    x = np.random.default_rng(0).normal(size=(len(labels), 2))
    made = px.BayesianClassifier(quality="fast", random_state=0, verbose=False).fit(x, labels)
    assert made.forests_ is None
    assert np.all(np.isfinite(made.predict_proba(x)))


def test_a_model_that_fails_is_left_out(rows, brief, monkeypatch):
    x, y, new, _ = rows
    real = blending.fit

    def fit(model, *args, **options):
        if isinstance(model.network.static, px.networks.Tabular):
            raise NonFiniteError("no step is finite", step=1, term="nll", posterior=None)
        return real(model, *args, **options)

    monkeypatch.setattr(portfolios._Maker, "quick", QUICK)
    monkeypatch.setattr(blending, "fit", fit)
    made = px.BayesianRegressor(quality="fast", random_state=0, verbose=False).fit(x, y)
    assert [line["model"] for line in made.tried_] == ["Bayes by Backprop"]
    assert np.all(np.isfinite(made.predict(new)))


def test_ctrl_c_before_a_draw_keeps_the_models_before(rows, brief, monkeypatch):
    x, y, new, _ = rows
    real = blending.fit

    def fit(model, *args, **options):
        if isinstance(model.network.static, px.networks.Tabular):
            return real(model, *args, **options)
        raise KeyboardInterrupt

    monkeypatch.setattr(portfolios._Maker, "quick", QUICK)
    monkeypatch.setattr(blending, "fit", fit)
    made = px.BayesianRegressor(quality="fast", random_state=0, verbose=False).fit(x, y)
    assert [line["model"] for line in made.tried_] == ["trees, Bayes by Backprop"]
    assert made.posterior_.record.interrupted
    assert np.all(np.isfinite(made.predict(new)))


@pytest.mark.parametrize("how", [{"steps": 5}, {"method": "laplace"}])
def test_a_quality_that_means_nothing_is_refused(how, rows):
    with pytest.raises(ValueError, match="quality='best' is of several models"):
        px.BayesianRegressor(quality="best", **how).fit(*rows[:2])


def test_stacking_weighs_rows():
    log_p = np.array([[0.0, -5.0], [-5.0, 0.0]])
    v = stack(log_p, np.array([3.0, 1.0]))
    assert v[0] == pytest.approx(0.75, abs=0.02)
