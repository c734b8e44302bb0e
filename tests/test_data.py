"""Data: every example once an epoch in a new random order, and streams that say the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import posterax as px
from posterax.data import Data, Stream, shuffle
from posterax.fitting import loop

pytestmark = pytest.mark.usefixtures("hasty_module")

shuffle_many = jax.jit(jax.vmap(shuffle, in_axes=(None, None, 0)))


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000, 4097])
def test_shuffle_is_a_permutation(n):
    order = shuffle(jnp.arange(n), n, jax.random.key(n))
    assert sorted(order.tolist()) == list(range(n))


@pytest.mark.parametrize("n", [2, 3, 10])
def test_every_index_goes_everywhere_equally_often(n):
    keys = 3000
    orders = np.asarray(shuffle_many(jnp.arange(n), n, jax.random.split(jax.random.key(0), keys)))
    counts = np.stack([np.bincount(column, minlength=n) for column in orders.T])
    # rows and columns of the table both sum to ``keys``: (n − 1)² degrees of freedom
    statistic = np.sum(np.square(counts - keys / n) / (keys / n)) * (n - 1) / n
    assert stats.chi2((n - 1) ** 2).sf(statistic) > 1e-4


def test_all_orders_of_four_are_equally_likely():
    keys = 4800
    orders = np.asarray(shuffle_many(jnp.arange(4), 4, jax.random.split(jax.random.key(2), keys)))
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 24
    assert stats.chisquare(counts).pvalue > 1e-4


def test_neighbours_part_and_places_forget():
    n, keys = 50, 400
    orders = np.asarray(shuffle_many(jnp.arange(n), n, jax.random.split(jax.random.key(3), keys)))
    # adjacent indices stay adjacent (either way round) with chance 2/n
    together = np.sum(np.abs(np.diff(orders, axis=1)) == 1)
    expected = keys * (n - 1) * 2 / n
    assert abs(together - expected) < 4 * np.sqrt(expected)
    # where an example goes says nothing of where its neighbour goes, nor of where it was
    for a, b in [(orders[:, :-1], orders[:, 1:]), (np.tile(np.arange(n), (keys, 1)), orders)]:
        assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1] + 1 / n * (a is not b)) < 0.03


def seen(data, size, batches, steps):
    """What the steps saw with a weight above 0, batch by batch."""
    one = jax.jit(lambda step: data.batch(data.place(step, size, batches, jax.random.key(0))))
    out = []
    for step in steps:
        batch = one(jnp.asarray(step, jnp.int32))
        assert batch.y.shape == (size,)
        assert batch.i == step % batches
        np.testing.assert_array_equal(batch.x[:, 0], batch.y)  # rows stay together
        out.append(np.asarray(batch.y)[np.asarray(batch.weight) > 0].tolist())
    return out


def rows(n, padding=0):
    y = jnp.arange(n + padding)
    # padding has a weight here, so that a batch with a padding row would show it
    return Data(y[:, None], y, jnp.ones(n + padding), jnp.asarray(n, jnp.int32))


@pytest.mark.parametrize("padding", [0, 7])
def test_every_example_once_an_epoch_with_a_ragged_last_batch(padding):
    n, size, batches = 23, 5, 5
    parts = seen(rows(n, padding), size, batches, range(3 * batches))
    assert [len(part) for part in parts] == [5, 5, 5, 5, 3] * 3
    epochs = [np.concatenate(parts[e * batches :][:batches]) for e in range(3)]
    for epoch in epochs:
        assert sorted(epoch) == list(range(n))
    assert len({tuple(epoch) for epoch in epochs}) == 3


def test_weights_travel_with_their_rows():
    y = jnp.arange(10)
    data = Data(y[:, None], y, 1.0 + y, jnp.asarray(10, jnp.int32))
    batch = data.batch(data.place(jnp.asarray(1), 4, jnp.asarray(3), jax.random.key(0)))
    np.testing.assert_array_equal(batch.weight, 1.0 + batch.y)


def batches_of(sizes, n_inputs=2):
    stops = np.cumsum(sizes)
    y = np.arange(stops[-1], dtype="float32")
    x = np.stack([y, -y], axis=1)[:, :n_inputs]
    return [(x[b - a : b], y[b - a : b]) for a, b in zip(sizes, stops, strict=True)]


def test_stream_windows_follow_the_epochs_and_pad_with_weight_zero():
    stream = Stream(batches_of([4, 4, 3]))
    assert (stream.batch_size, stream.batches, stream.total) == (4, 3, 11.0)
    full = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]
    # on through the end of an epoch, on from there, back, and into the middle of a later epoch
    for start, stop in [(0, 2), (2, 5), (5, 6), (1, 3), (7, 12)]:
        window = stream.window(start, stop, 6, (), np.float32)
        assert window.y.shape == (6, 4)
        for step in range(start, stop):
            place = window.place(jnp.asarray(step), 4, jnp.asarray(3), jax.random.key(0))
            batch = window.batch(place)
            real = np.asarray(batch.weight) > 0
            assert np.asarray(batch.y)[real].tolist() == full[step % 3]
            assert batch.i == step % 3
            np.testing.assert_array_equal(batch.x[:, 0], batch.y)


def test_stream_that_cannot_start_anew_is_refused():
    class Once:
        def __init__(self):
            self.left = iter(batches_of([4, 4]))

        def __iter__(self):
            yield from self.left

    stream = Stream(Once())
    with pytest.raises(ValueError, match=r"re-iterable.*2 batches.*0 now"):
        stream.window(0, 2, 2, (), np.float32)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "data is empty"),
        (batches_of([3, 4]), "batch 1 has 4 rows and the first 3"),
        ([batches_of([4])[0], batches_of([4], 1)[0]], r"batch 1 has examples of shapes \[\(1,\)"),
        ([(np.ones((2, 1)), np.array([0.0, np.nan]))], r"y holds 1 NaN.*\(1,\)"),
    ],
)
def test_bad_streams(source, message):
    with pytest.raises(ValueError, match=message):
        Stream(source)


def linear_fit(data, **options):
    network = {"w": jnp.zeros((2, 1))}, lambda p, x: x @ p["w"]
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.5))
    posterior = px.fit(model, data, px.BayesByBackprop(learning_rate=0.02), key=0, **options)
    return posterior.mu.network["w"], posterior.history["nll"]


def test_a_stream_of_one_batch_is_the_arrays(rng):
    x = rng.normal(size=(12, 2))
    y = x @ np.array([1.0, -2.0])
    weight = rng.uniform(0.5, 2, size=12)
    arrays = linear_fit((x, y, weight), batch_size=12, epochs=20)
    stream = linear_fit([(x, y, weight)], epochs=20)
    for a, b in zip(arrays, stream, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
    # a ragged second batch and its padding change the steps, not what is learned
    ragged = linear_fit([(x[:8], y[:8], weight[:8]), (x[8:], y[8:], weight[8:])], epochs=300)
    long = linear_fit((x, y, weight), epochs=600)
    np.testing.assert_allclose(ragged[0], long[0], atol=0.1)


def test_a_stream_carries_the_exposure_too():
    x, y = np.ones((4, 2)), np.array([1, 2, 3, 4])
    network = {"w": jnp.zeros((2, 1))}, lambda p, x: x @ p["w"]
    model = px.Model(network, None, px.likelihoods.Poisson(exposure=True))
    source = [((x, np.ones(4)), y), ((x[:2], np.ones(2)), y[:2])]
    posterior = px.fit(model, source, px.MaximumAPosteriori(), epochs=1, key=0)
    assert posterior.predict((x, np.ones(4))).mean.shape == (4,)


class TestSharedPrograms:
    """Rows are padded, so that data of similar size share one compiled program."""

    @staticmethod
    def fit(n, **options):
        x = np.linspace(-1, 1, n)[:, None].astype("float32")
        model = px.Model(
            px.networks.MLP(1, 1, (4,), key=0),
            px.priors.Gaussian(1.0),
            px.likelihoods.Gaussian(0.1),
        )
        return px.fit(model, (x, x[:, 0]), px.MaximumAPosteriori(1e-2), steps=20, key=0, **options)

    @pytest.mark.parametrize("full", [True, False])
    def test_similar_sizes_compile_once(self, full):
        options = lambda n: {"batch_size": n if full else 16}  # noqa: E731
        self.fit(100, **options(100))
        before = loop.run_chunk.programs()
        for n in (97, 99, 103, 104):
            posterior = self.fit(n, **options(n))
            assert posterior.record.settings["batch_size"] == options(n)["batch_size"]
        assert loop.run_chunk.programs() == before

    def test_padding_changes_nothing(self, monkeypatch):
        padded = self.fit(101, batch_size=101)
        monkeypatch.setattr("posterax.fitting.prepare.SHARED_ROWS", 0)
        exact = self.fit(101, batch_size=101)
        for a, b in zip(jax.tree.leaves(padded.point), jax.tree.leaves(exact.point), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(padded.history["nll"], exact.history["nll"], rtol=1e-4)
