"""Folds within one fit: members and chains that leave rows out, trees, and blends of them."""

import jax
import numpy as np
import pytest
from sklearn.datasets import load_iris, make_friedman1
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingClassifier

import posterax as px
from posterax.posteriors import Blend
from posterax.tables.folds import arrange, together
from posterax.tables.standardise import Rows, distinct
from posterax.tables.trees import Forests, Growth, _binned, _exact, from_arrays, grow, to_arrays

pytestmark = pytest.mark.usefixtures("hasty_module")
METHODS = {
    "map": px.DeepEnsemble(4, learning_rate=1e-2, folds=4),
    "bbb": px.DeepEnsemble(4, px.BayesByBackprop(), folds=4),
    "mclmc": px.MCLMC(chains=4, warmup=30, ensemble_steps=150, folds=4),
    "adjusted": px.MCLMC(chains=4, warmup=30, ensemble_steps=150, adjusted=True, folds=4),
}


def model():
    network = px.networks.MLP(1, 1, (8,), key=0)
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))


def data(shift=0.0):
    x = np.linspace(-1, 1, 64, dtype="float32")[:, None]
    y = np.sin(3 * x[:, 0]).astype("float32")
    y[0::4] += shift  # the rows of fold 0
    return x, y


@pytest.mark.parametrize("name", METHODS)
def test_a_member_knows_nothing_of_the_fold_that_it_leaves_out(name):
    method = METHODS[name]
    steps = {"steps": 5 if "mclmc" in name or name == "adjusted" else 60}
    one, two = (px.fit(model(), data(shift), method, key=0, **steps) for shift in (0.0, 3.0))
    x = data()[0]
    means = [[p.fold(k, 4).predict(x, samples=8, key=1).mean for k in range(4)] for p in (one, two)]
    # metric and step size are tuned for all chains together, so that chains alone may differ
    if "mclmc" not in name and name != "adjusted":
        np.testing.assert_array_equal(means[0][0], means[1][0])
    moved = [np.abs(a - b).mean() for a, b in zip(*means, strict=True)]
    assert moved[0] < 0.3
    assert min(moved[1:]) > 0.4


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: px.DeepEnsemble(6, folds=4), "divide members=6"),
        (lambda: px.DeepEnsemble(4, folds=1), "above 1"),
        (lambda: px.MCLMC(chains=3, folds=2), "divide chains=3"),
        (lambda: px.MCLMC(folds=-1), "folds"),
        (lambda: px.DeepEnsemble(folds=True), "folds"),
    ],
)
def test_folds_are_checked(make, said):
    with pytest.raises(ValueError, match=said):
        make()


def test_classes_lie_in_every_fold_in_proportion():
    random = np.random.default_rng(0)
    x = random.normal(size=(200, 1))
    y = (x[:, 0] > 0.8).astype(int)
    rows = arrange(Rows(x, y, np.ones(200)), 5, seed=0, classes=True).rows
    used = rows.weight > 0
    np.testing.assert_array_equal(np.sort(rows.x[used], axis=0), np.sort(x, axis=0))
    count = [rows.y[k::5][used[k::5]].sum() for k in range(5)]
    assert np.ptp(count) <= 1


def test_copies_of_a_row_are_dealt_out_one_by_one():
    """A row given three times, and a row of weight 3, are predicted by those who saw the others."""
    x = np.concatenate([np.repeat(np.arange(20.0), 3), np.arange(20.0, 100)])[:, None]
    one = distinct(Rows(x, x[:, 0], np.ones(140)))
    other = distinct(
        Rows(x[np.r_[0:60:3, 60:140]], np.arange(100.0), np.repeat([3.0, 1.0], [20, 80]))
    )
    arranged = [arrange(rows, 5, seed=0) for rows in (one, other)]
    for a, b in zip(*(own.rows for own in arranged), strict=True):
        np.testing.assert_array_equal(a, b)
    rows, fold = arranged[0].rows, arranged[0].fold
    places = [len(set(fold[(rows.weight > 0) & (rows.x[:, 0] == v)])) for v in range(20)]
    assert np.mean(places) > 2
    assert set(rows.weight) == {0, 1}


def test_a_small_table_of_many_copies_is_dealt_out_too():
    x = np.arange(8.0)[:, None]
    rows = arrange(Rows(x, x[:, 0], np.arange(50.0, 58)), 5, seed=0).rows
    places = [np.flatnonzero((rows.x[:, 0] == v) & (rows.weight > 0)) % 5 for v in range(8)]
    assert np.mean([len(set(place)) for place in places]) > 2
    assert rows.weight.sum() == pytest.approx(np.arange(50.0, 58).sum())


def test_what_a_class_counts_makes_no_copies():
    """With class_weight={0: 1, 1: 10} a row of class 1 is still one row, in one fold."""
    x = np.arange(50.0)[:, None]
    y = (np.arange(50) % 10 == 0).astype(int)
    rows = arrange(Rows(x, y, np.where(y == 1, 10.0, 1.0), np.ones(50)), 5, seed=0).rows
    assert len(np.unique(rows.x[rows.weight > 0])) == (rows.weight > 0).sum() == 50
    assert set(rows.weight) == {0, 1, 10}


def test_weights_that_tell_how_much_a_row_matters_leave_it_in_one_fold():
    x = np.arange(50.0)[:, None]
    for weight in (np.full(50, 2.5), np.full(50, 300.0)):
        rows = arrange(Rows(x, x[:, 0], weight), 5, seed=0).rows
        assert len(np.unique(rows.x[rows.weight > 0])) == (rows.weight > 0).sum() == 50


def test_what_folds_say_comes_back_in_the_order_of_rows():
    rows = np.arange(20)
    np.testing.assert_array_equal(together([rows[k::4] for k in range(4)]), rows)


# -- trees


def test_kept_trees_say_what_scikit_learn_says():
    x, y = make_friedman1(300, random_state=0)
    x = x.astype(np.float32).astype(np.float64)
    growth = Growth(30, 3, 0.1)
    forest = _exact(x, y, np.ones(300), 0, 0, growth)
    same = GradientBoostingRegressor(
        learning_rate=0.1, n_estimators=30, max_depth=3, subsample=growth.rows,
        max_features=growth.columns, random_state=0, min_samples_leaf=3,
    ).fit(x, y)  # fmt: skip
    np.testing.assert_allclose(forest(x)[:, 0], same.predict(x), rtol=1e-5)
    x, y = load_iris(return_X_y=True)
    forest = _binned(x, y, np.ones(150), 3, 0, growth)
    same = HistGradientBoostingClassifier(
        learning_rate=0.1, max_iter=30, max_features=growth.columns, max_leaf_nodes=7,
        l2_regularization=1.0, early_stopping=False, random_state=0,
    ).fit(x, y)  # fmt: skip
    np.testing.assert_allclose(forest(x), same._raw_predict(x), rtol=1e-5)


def test_a_row_is_answered_by_trees_that_left_it_out():
    random = np.random.default_rng(0)
    x, y = random.normal(size=(120, 3)), random.normal(size=120)  # nothing to learn
    fold = np.arange(120) % 4
    forests, loss = grow(x, y, np.ones(120), fold, seed=0, options=(Growth(60, 4, 0.3),))
    assert loss > 0.9 * y.var()
    own = forests.out_of_fold(x, fold)[:, 0]
    every = forests(x)
    assert every.shape == (120, 4)
    np.testing.assert_allclose(own, every[np.arange(120), fold], rtol=1e-6)


@pytest.mark.parametrize("classes", [2, 4])
def test_trees_of_classes_that_a_fold_may_lack(classes):
    x = np.random.default_rng(0).normal(size=(80, 2))
    y = (x[:, 0] > 0).astype(int)
    y[:2] = classes - 1  # a class of two rows, for more than two
    fold = np.arange(80) % 4
    forests, _ = grow(x, y, np.ones(80), fold, classes=classes, seed=0, options=(Growth(10, 2),))
    said = forests(x)
    assert said.shape == (80, 4 * classes)
    assert np.all(np.isfinite(said))
    arrays = to_arrays(forests)
    same = from_arrays(arrays, 2, True)
    assert isinstance(same, Forests)
    np.testing.assert_array_equal(same(x), said)


# -- blends


def test_a_blend_weighs_densities():
    x, y = data()
    parts = [px.fit(model(), (x, y), METHODS["map"], steps=s, key=0) for s in (5, 60)]
    blend = Blend.of(parts, [0.3, 0.7])
    each = [p.predict(x).log_prob(y) for p in parts]
    expected = np.logaddexp(np.log(0.3) + each[0], np.log(0.7) + each[1])
    np.testing.assert_allclose(blend.predict(x).log_prob(y), expected, rtol=1e-4)
    with pytest.raises(ValueError, match="no weights in common"):
        blend.moments()
    with pytest.raises(ValueError, match="no weights in common"):
        px.prune(blend, fraction=0.5)


def test_a_width_scales_the_noise_alone():
    x, y = data()
    network = px.networks.MLP(1, 2, (8,), key=0)
    noisy = px.Model(network, likelihood=px.likelihoods.Gaussian("predicted"))
    part = px.fit(noisy, (x, y), METHODS["map"], steps=30, key=0)
    plain, wide = (Blend.of([part], [1.0], widths=[w]).predict(x) for w in (1.0, 2.0))
    np.testing.assert_allclose(plain.mean, wide.mean, rtol=1e-5)
    np.testing.assert_allclose(2 * np.sqrt(plain.aleatoric), np.sqrt(wide.aleatoric), rtol=1e-2)
    np.testing.assert_allclose(plain.epistemic, wide.epistemic, rtol=1e-3)


def test_columns_of_their_own_reach_the_members_of_their_fold():
    network = px.networks.Tabular(1, 1, (4,), offsets=1, key=0)
    based = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    x, y = data()
    offset = np.zeros((64, 1), "float32")
    part = px.fit(based, (np.hstack([x, offset]), y), METHODS["map"], steps=5, key=0)
    blend = Blend.of([part], [1.0], based=[True], own=1, folds=4)
    own = np.tile(np.array([10.0, 20, 30, 40], "float32"), (64, 1))
    said = blend.predict(np.hstack([x, own])).conditional_means()
    for k in range(4):
        alone = part.member(k).predict(np.hstack([x, own[:, k : k + 1]])).mean
        np.testing.assert_allclose(said[k], alone, rtol=1e-5)
        fold = blend.fold(k, 4).predict(np.hstack([x, own[:, k : k + 1]])).mean
        np.testing.assert_allclose(fold, alone, rtol=1e-5)


def test_a_correction_starts_near_what_it_corrects():
    network = px.networks.Tabular(2, 2, (16,), offsets=1, key=0)
    x = jax.random.normal(jax.random.key(0), (50, 3))
    f = network(x)
    assert float(np.abs(f[:, 0] - x[:, 2]).max()) < 1
    with pytest.raises(ValueError, match="at most out_size=2"):
        px.networks.Tabular(2, 2, (16,), offsets=3, key=0)
