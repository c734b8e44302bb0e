"""Numbers as fillings of bins and as waves: what the networks compute, and that fits take them."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.networks import as_network
from posterax.tables.portfolio import MOST_WAVES, numbers_in, portfolio

pytestmark = pytest.mark.usefixtures("hasty_compiler")

RNG = np.random.default_rng(0)
box = px.networks
BINS = ((0.0, 1.0, 3.0, 4.0), (0.0, 1.0))


def test_bins_are_filled_one_after_another():
    network = box.PiecewiseLinear(BINS, 1, (4,), key=0)
    x = jnp.array([[0.5, 1.0], [2.0, 0.0], [3.25, 1.0], [-1.0, 2.0], [6.0, -1.0]])
    expected = [
        [0.5, 0.0, 0.0, 1.0],
        [1.0, 0.5, 0.0, 0.0],
        [1.0, 1.0, 0.25, 1.0],
        [-1.0, 0.0, 0.0, 2.0],  # beyond the outermost edges the same slope goes on
        [1.0, 1.0, 3.0, -1.0],
    ]
    np.testing.assert_allclose(network.encode(x), expected)


def test_bins_lose_nothing():
    x = RNG.normal(size=(200, 3)).astype("float32")
    bins = box.quantile_bins(x[:100], 7)
    network = box.PiecewiseLinear(bins, 1, (4,), key=0)
    filled = np.split(network.encode(jnp.asarray(x)), 3, axis=1)
    for edges, e, column in zip(bins, filled, x.T, strict=True):
        np.testing.assert_allclose(edges[0] + e @ np.diff(edges), column, atol=1e-5)


def test_bins_hold_as_many_rows_each_and_are_few_where_values_are():
    x = np.stack([RNG.exponential(size=1000), np.arange(1000) % 2, np.full(1000, -7.0)], axis=1)
    many, two, one = box.quantile_bins(x, 10)
    counts, _ = np.histogram(x[:, 0], np.array(many) + np.array([-1e-6, *[0] * 9, 1e-6]))
    assert set(counts) <= {99, 100, 101}
    assert two == (0.0, 1.0)
    assert one == (-7.0, 0.0)


@pytest.mark.parametrize(
    "bins", [(), [(0.0,)], [(1.0, 0.0)], [(0.0, 0.0)], [(0.0, np.nan)], 3, [(1.0, 1.0 + 1e-12)]]
)
def test_bins_that_are_none_are_refused(bins):
    with pytest.raises(ValueError, match="bins must have two or more increasing edges"):
        box.PiecewiseLinear(bins, 1, key=0)


def test_other_tables_do_not_fit_the_bins():
    network = box.PiecewiseLinear(BINS, 1, (4,), key=0)
    with pytest.raises(ValueError, match="must have 2 columns"):
        network(np.ones((5, 3), "float32"))
    with pytest.raises(ValueError, match="table of finite numbers"):
        box.quantile_bins(np.array([[1.0], [np.nan]]))


def test_waves_are_those_of_the_paper():
    network = box.Periodic(
        3, 1, (4,), numbers=(2, 0), frequencies=5, width=6, scale=0.7, activation="tanh", key=0
    )
    x = RNG.normal(size=(7, 3)).astype("float32")
    h = [np.asarray(layer.weight) for layer in network.layers]
    v, c = np.asarray(network.embedding.weight), np.asarray(network.frequency)
    parts = []
    for row, column in enumerate((2, 0)):
        angle = 2 * np.pi * 0.7 * np.outer(x[:, column], c[row])
        parts.append(np.tanh(np.hstack([np.cos(angle), np.sin(angle)]) @ v.T))
    inputs = np.hstack([*parts, x[:, [1]]])  # biases start at 0
    expected = np.tanh(inputs @ h[0].T) @ h[1].T
    np.testing.assert_allclose(network(x), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(network(x[0]), expected[0], rtol=1e-4, atol=1e-5)
    assert as_network(network).fan_in(c.shape, "frequency") == 1


def test_all_columns_are_numbers_unless_said():
    network = box.Periodic(2, 1, (4,), key=0)
    assert network.numbers == (0, 1)
    assert network.layers[0].weight.shape == (4, 16)


@pytest.mark.parametrize("numbers", [(), (3,), (-1,), (0, 0), (0.5,), "0", 1])
def test_columns_that_are_none_are_refused(numbers):
    with pytest.raises(ValueError, match="numbers must be"):
        box.Periodic(3, 1, numbers=numbers, key=0)
    with pytest.raises(ValueError, match="scale must"):
        box.Periodic(3, 1, scale=0.0, key=0)


METHODS = {
    "local": px.BayesByBackprop(estimator="local"),
    "ensemble": px.DeepEnsemble(2),
}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", ["Periodic", "PiecewiseLinear"])
def test_methods_fit_them_and_files_keep_them(kind, name, tmp_path):
    x = RNG.normal(size=(20, 70)).astype("float32")  # more columns than a file may have layers
    y = np.sin(x[:, :1])
    columns = range(66)
    network = (
        box.Periodic(70, 1, (4,), numbers=columns, frequencies=2, width=2, key=0)
        if kind == "Periodic"
        else box.PiecewiseLinear(box.quantile_bins(x, 2), 1, (4,), key=0)
    )
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    posterior = px.fit(model, (x, y), METHODS[name], steps=3, key=0, progress=False)
    posterior.save(tmp_path / "p.px")
    loaded = px.load(tmp_path / "p.px")
    a, b = (p.predict(x, samples=2, key=0).mean for p in (posterior, loaded))
    np.testing.assert_array_equal(a, b)


def test_a_ragged_function_is_within_their_reach():
    x = np.linspace(-2, 2, 256, dtype="float32")[:, None]
    y = np.sign(np.sin(12 * x)) * (1 + x)
    networks = {
        "MLP": box.MLP(1, 1, (32,), key=0),
        "waves": box.Periodic(1, 1, (32,), key=0),
        "bins": box.PiecewiseLinear(box.quantile_bins(x, 48), 1, (32,), key=0),
    }
    error = {}
    for name, network in networks.items():
        model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
        method = px.MaximumAPosteriori(learning_rate=1e-2)
        posterior = px.fit(model, (x, y), method, steps=600, key=0, progress=False)
        error[name] = float(np.mean((posterior.predict(x).mean - y) ** 2))
    assert error["waves"] < 0.5 * error["MLP"]
    assert error["bins"] < 0.5 * error["MLP"]


def test_waves_in_the_portfolio_of_many_rows():
    parts = {part.name: part for part in portfolio(10_000, classes=0).parts}
    x = np.stack([np.arange(9.0), np.arange(9) % 2, np.arange(9) % 3], axis=1)
    assert numbers_in(x) == (0, 2)

    def kind(name, numbers, inputs=3):
        network = eqx.filter_eval_shape(parts[name].network, inputs, 2, 0, 0, numbers)
        return type(network).__name__, getattr(network, "numbers", None)

    assert kind("deep ensemble", (0, 2)) == ("Periodic", (0, 2))
    assert kind("deep ensemble", ()) == ("MLP", None)
    assert kind("deep ensemble", tuple(range(MOST_WAVES + 1)), 100) == ("MLP", None)
    assert kind("Bayes by Backprop", (0, 2)) == ("MLP", None)
