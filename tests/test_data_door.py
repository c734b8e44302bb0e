"""Whatever a user hands over becomes numbers that JAX holds as they are, or is refused."""

import ast
import datetime
import fractions
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pandas as pd
import pytest

import posterax as px
from posterax._util.admit import admit, warn_of_rounding
from posterax._util.keys import as_key
from posterax.data import Stream
from posterax.fitting import prepare

# numbers of any size come through the door; that priors are for others is said elsewhere
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*standardise it with"),
    pytest.mark.filterwarnings("ignore:noise=.* is known"),
]

N = 64
X = np.linspace(-1, 1, N, dtype="float32")[:, None]
LARGE = 3_000_000_000  # −1.29e9 as an int32
DAY = 1_700_000_000_000 + np.arange(N) * 1_350_000  # a day in milliseconds


def line(noise=1e3, scale=1e10):
    network = px.networks.MLP(1, 1, (), key=0)
    return px.Model(network, px.priors.Gaussian(scale), px.likelihoods.Gaussian(noise))


def learned(y, x=X, model=None, **options):
    return px.fit(model or line(), (x, y), px.Conjugate(), **options)


# -- what is admitted


@pytest.mark.parametrize(
    ("given", "dtype", "value"),
    [
        ([1, -2], np.int64, [1, -2]),
        (np.array([255], np.uint8), np.uint8, [255]),
        ([True], np.bool_, [1]),
        ([LARGE], np.float64, [LARGE]),
        (np.array([LARGE], np.uint32), np.float64, [LARGE]),
        (np.array([2**64 - 1], np.uint64), np.float64, [2.0**64]),
        ([-(2**40)], np.float64, [-(2.0**40)]),
        ([2**70, 1], np.float64, [2.0**70, 1]),
        ([fractions.Fraction(1, 2)], np.float64, [0.5]),
        (np.array([1.5], np.float16), np.float16, [1.5]),
        (np.array([1.5], ml_dtypes.bfloat16), ml_dtypes.bfloat16, [1.5]),
        (np.array([1.5], np.longdouble), np.float64, [1.5]),
        (np.array([1.5], ">f4"), np.float32, [1.5]),
        (np.array([7], ">i8"), np.int64, [7]),
        (pd.Series([1, LARGE], dtype="Int64"), np.float64, [1, LARGE]),
        (pd.DataFrame({"a": [1], "b": [0.5]}), np.float64, [[1, 0.5]]),
        ([], np.float64, []),
    ],
)
def test_numbers_are_what_they_were(given, dtype, value):
    array = admit(given, "x")
    assert array.dtype == dtype
    np.testing.assert_array_equal(array.astype(np.float64), value)
    np.testing.assert_array_equal(np.asarray(jnp.asarray(array), np.float64), value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["a"], "must be numeric.*encode"),
        ([1, None], r"got None at \(1,\); drop or impute"),
        (np.array([pd.NA, 1], object), r"<NA> at \(0,\); drop or impute"),
        ([1j], "must be real.*complex128.*two columns"),
        (jnp.array([1j]), "must be real.*complex64"),
        (np.array(["2024-01-01"], "datetime64[D]"), "dates or times.*days since"),
        (pd.Series(pd.to_datetime(["2024-01-01"])), "dates or times.*days since"),
        ([datetime.date(2024, 1, 1)], "dates or times.*days since"),
        (pd.DataFrame({"a": [1], "t": pd.to_datetime(["2024-01-01"])}), "dates or times"),
        (np.array(["1"], "timedelta64[s]"), "dates or times"),
        (np.ma.masked_array([1.0, 2.0], [False, True]), "masked entries.*impute"),
        ([2**2000], "beyond float64"),
        (np.array([1e39]), r"holds 1e\+39 at \(0,\).*beyond float32: scale"),
        ([[1.0], [1.0, 2.0]], "must be an array"),
    ],
)
def test_what_is_no_number_here_is_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=f"^y .*{message}"):
        admit(given, "y", np.float32)


def test_arrays_on_the_device_stay_there():
    array = jnp.arange(3)
    assert admit(array, "x", jnp.float32) is array


def test_with_x64_whole_numbers_stay_whole():
    with jax.enable_x64(True):
        array = admit([2**40 + 1], "x", jnp.float64)
        assert int(jnp.asarray(array)[0]) == 2**40 + 1


# -- through every door


@pytest.mark.parametrize("value", [LARGE, 2**40, 2**64])
def test_targets_beyond_int32_are_learned(value):
    posterior = learned([value] * N)
    predictive = posterior.predict(X)
    np.testing.assert_allclose(predictive.mean, float(value), rtol=1e-3)
    as_float = np.full(N, value, np.float64)
    np.testing.assert_array_equal(predictive.log_prob([value] * N), predictive.log_prob(as_float))
    np.testing.assert_array_equal(predictive.cdf([value] * N), predictive.cdf(as_float))
    assert px.metrics.root_mean_squared_error(predictive, [value] * N) < 1e-3 * value


def test_inputs_beyond_int32_are_what_they_are():
    x = (LARGE + 10_000_000 * np.arange(N))[:, None]
    model, y = line(1.0, 1e-6), np.arange(N)
    whole, floats = learned(y, x, model), learned(y, x.astype(np.float64), model)
    weight = lambda q: q.moments()[0].network.layers[0].weight  # noqa: E731
    assert weight(whole) == weight(floats) != 0
    np.testing.assert_array_equal(whole.predict(x).mean, whole.predict(x.astype(float)).mean)
    params = px.Parameters(whole.moments()[0].network, {})
    at = [model.log_likelihood(params, a, y) for a in (x, x.astype(np.float64))]
    assert at[0] == at[1]


def test_validation_streams_padding_and_scores_agree_with_floats():
    y = np.linspace(0, LARGE, N).astype(np.int64)
    wide, floats = (
        px.fit(
            line(), px.data.Padded((X, t), 80), px.MaximumAPosteriori(1e6),
            steps=4, validation=(X, t), key=0,
        )
        for t in (y, y.astype(np.float64))
    )  # fmt: skip
    for name in ("nll", "validation_nll"):
        np.testing.assert_array_equal(wide.history[name], floats.history[name])
    scores = [str(px.compare({"a": wide}, (X, t), by="heldout")) for t in (y, y.astype(float))]
    assert scores[0] == scores[1]
    means = [px.selection.predictive_check(wide, (X, t), "mean") for t in (y, y.astype(float))]
    assert means[0].observed == means[1].observed == pytest.approx(LARGE / 2)


def test_batches_of_a_stream_have_one_type():
    """The first batch fits 32 bits, the second does not."""
    both = [(X[:4], np.arange(4)), (X[:3], np.array([1, 2, LARGE]))]
    stream = Stream(both)
    assert stream.example[1].dtype == np.float64
    y = stream.window(0, 2, 2, (), np.float32).y
    assert y.dtype == np.float32
    assert float(y[1].max()) == LARGE
    posteriors = [
        px.fit(line(), [(x, y.astype(t)) for x, y in both], px.MaximumAPosteriori(), steps=2, key=0)
        for t in (np.int64, np.float64)
    ]
    np.testing.assert_array_equal(*(p.history["nll"] for p in posteriors))


def test_bandits_active_learning_and_losses_take_large_numbers():
    agent = px.bandits.Agent(px.bandits.LinearThompson(), features=1, actions=2, key=0)
    agent.update([LARGE], 0, 2**40)
    with pytest.raises(ValueError, match=r"reward.*1e.39.*beyond float32"):
        agent.update([1.0], 0, 1e39)
    with pytest.raises(ValueError, match=r"context.*1e.39.*beyond float32"):
        agent.choose([1e39])
    with pytest.raises(ValueError, match=r"rewards holds 1e.39"):
        px.bandits.from_table(X, X[:, 0] > 0, rewards=[[0, 1], [1e39, 0]])
    learner = px.active.Learner(line(), px.Conjugate(), X[:2], [LARGE, LARGE])
    learner.teach(X[2:4], [LARGE, LARGE])
    curve = px.active.run(learner, X, [LARGE] * N, rounds=1, n=1, test=(X, [LARGE] * N))
    assert curve.scores[-1] < 1e-2 * LARGE
    assert px.metrics.root_mean_squared_error([LARGE, 0], [LARGE, 1]) == pytest.approx(0.5**0.5)


def test_labels_and_tokens_beyond_int32_are_refused():
    classes = px.Model(px.networks.MLP(1, 2, (), key=0), None, px.likelihoods.Categorical())
    with pytest.raises(ValueError, match=r"y must hold labels 0 … 1.*at \(0,\)"):
        px.fit(classes, (X, [2**32] * N), px.MaximumAPosteriori(), steps=1)
    with pytest.raises(ValueError, match="y must hold labels 0 to 1"):
        px.metrics.accuracy([[0.5, 0.5]], [2**32])
    reader = px.networks.Transformer(None, 1, vocabulary=5, length=4, key=0)
    tokens = np.full((N, 3), 2**32 + 1)
    model = px.Model(reader, None, px.likelihoods.Gaussian(1.0))
    with pytest.raises(ValueError, match="whole-number tokens below"):
        px.fit(model, (tokens, X[:, 0]), px.MaximumAPosteriori(), steps=1)
    with pytest.raises(ValueError, match="whole-number tokens below"):
        reader(tokens[0])


def test_small_whole_numbers_do_not_wrap_either():
    """255 + 1 is 0 as a uint8, and 0 − 1 is 255."""
    model = px.Model(px.networks.MLP(1, 1, (), key=0), None, px.likelihoods.Poisson())
    predictive = px.prior_posterior(model, X).predict(X, key=0)
    y = np.full(N, 255)
    for score in (predictive.log_prob, predictive.cdf):
        np.testing.assert_array_equal(score(y.astype(np.uint8)), score(y))
    nll = [
        px.fit(model, (X, t), px.MaximumAPosteriori(), steps=1, key=0).history["nll"][0]
        for t in (y.astype(np.uint8), y.astype(np.int64))
    ]
    assert nll[0] == nll[1]
    assert px.metrics.inputs.aligned(np.zeros(1, np.uint8), (1,)) - 1 == -1


# -- precision


@pytest.mark.parametrize("form", [np.int64, np.float64])
def test_times_that_float32_cannot_tell_apart_are_told_of(form):
    with pytest.warns(UserWarning, match=r"^x, column 0, .* 1\.7e\+12 .*subtract an origin.*x64"):
        learned(X[:, 0], DAY[:, None].astype(form))
    with pytest.warns(UserWarning, match="^y has values about"):
        learned(DAY.astype(form))
    with pytest.warns(UserWarning, match="^x, column 1, "):
        warn_of_rounding("x", X.astype(float) + np.array([0, 1.7e9]), np.float32)


def test_streams_are_judged_by_all_batches():
    """Each day alone would be blurred; among years it is not."""
    days = [1.7e12 + 1e10 * day + np.arange(8) for day in range(6)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*(standardise it with|is known, and y varies)")
        px.fit(line(), [(t[:, None], X[:8]) for t in days], px.MaximumAPosteriori(), steps=1)
    with pytest.warns(UserWarning, match="^x, column 0"):
        px.fit(
            line(), [(DAY[i : i + 8, None], X[:8]) for i in range(0, N, 8)],
            px.MaximumAPosteriori(), steps=1,
        )  # fmt: skip


@pytest.mark.parametrize(
    "column",
    [
        X[:, 0].astype(float),
        101_325 + 50 * X[:, 0].astype(float),  # pressure
        np.full(N, 0.3) + 1e-17,  # a constant, but for rounding
        np.where(np.arange(N) % 2, 0.1 + 0.2, 0.3),
        np.full(N, LARGE + 1),
        np.arange(N),
        np.arange(N) * 10**6,
        DAY.astype("float32"),
    ],
)
def test_ordinary_columns_are_not_told_of(column):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", ".*(standardise it with|is known, and y varies)")
        warn_of_rounding("x", column, np.float32)


def test_floats_beyond_float32_are_refused_at_every_door():
    message = r"1e\+39 at .*beyond float32"
    for x, y in ((np.full((N, 1), 1e39), X), (X, np.full(N, 1e39)), (X, [2**200] * N)):
        with pytest.raises(ValueError, match=r"at \(0.*beyond float32"):
            learned(y, np.asarray(x))
    posterior = learned(X[:, 0])
    with pytest.raises(ValueError, match=f"^x holds {message}"):
        posterior.predict(np.full((1, 1), 1e39))
    with pytest.raises(ValueError, match=f"^y holds {message}"):
        posterior.predict(X).log_prob(np.full(N, 1e39))
    with pytest.raises(ValueError, match=f"^validation y holds {message}"):
        px.fit(line(), (X, X), px.MaximumAPosteriori(), validation=(X, np.full(N, 1e39)))
    with pytest.raises(ValueError, match=f"^y holds {message}"):
        px.fit(line(), [(X, np.full(N, 1e39))], px.MaximumAPosteriori(), steps=1)


def test_weights_that_float32_makes_zero_are_refused():
    for small in (1e-46, 1e-40):
        weight = np.where(np.arange(N) < 3, small, 1.0)
        with pytest.raises(ValueError, match=f"weight holds {small:g}, which is 0 in float32"):
            px.fit(line(), (X, X, weight), px.Conjugate())
        with pytest.raises(ValueError, match="which is 0 in float32: scale all weights"):
            px.fit(line(), [(X, X, weight)], px.MaximumAPosteriori(), steps=1)
    with pytest.raises(ValueError, match=r"weight sums to 6.4e.38, which is beyond float32"):
        px.fit(line(), (X, X, np.full(N, 1e37)), px.Conjugate())


# -- keys and counters


def test_every_whole_number_of_64_bits_has_its_own_key():
    seeds = [0, 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**40, 2**63 - 1, -1, -(2**31), -(2**63)]
    keys = [tuple(jax.random.key_data(as_key(seed)).tolist()) for seed in seeds]
    assert len(set(keys)) == len(seeds)
    for seed, key in zip(seeds, keys, strict=True):
        with jax.enable_x64(True):
            assert tuple(jax.random.key_data(jax.random.key(seed)).tolist()) == key
        if 0 <= seed < 2**32:  # as they always were
            assert tuple(jax.random.key_data(jax.random.key(seed)).tolist()) == key
    assert as_key(np.int64(-1)) == as_key(-1)
    with pytest.raises(ValueError, match=r"from -2\^63"):
        as_key(2**63)


def test_keys_of_other_kinds_are_told_apart_too():
    with jax.default_prng_impl("rbg"):
        words = [jax.random.key_data(as_key(seed)) for seed in (0, 2**32)]
        assert words[0].shape == (4,)
        assert not jnp.array_equal(*words)


def test_more_steps_than_a_counter_holds_are_refused():
    fit = lambda **o: px.fit(line(), (X, X), px.MaximumAPosteriori(), **o)  # noqa: E731
    with pytest.raises(ValueError, match=r"steps must be below 2\^31"):
        fit(steps=2**31)
    with pytest.raises(ValueError, match=r"epochs=1e\+09 of 8 batches makes 8000000000 steps"):
        fit(epochs=1e9, batch_size=8)


def test_more_rows_than_an_index_holds_are_refused(monkeypatch):
    monkeypatch.setattr(prepare, "MOST", N)
    with pytest.raises(ValueError, match="64 rows are too many for arrays: stream them"):
        learned(X[:, 0])


def test_more_updates_than_a_counter_holds_are_refused():
    policy = px.bandits.Thompson(hidden=(2,), buffer=2**20, updates=2**12)
    with pytest.raises(ValueError, match="updates × buffer makes 4294967296 steps"):
        px.bandits.Agent(policy, features=1, actions=2)


# -- one door

PACKAGE = Path(px.__file__).parent
BY = {"np.asarray", "np.array", "jnp.asarray", "jnp.array"}
MARKS = ("ArrayLike", "Weight", "Forecast", "Band")  # annotations of what users hand over
# what is made an array elsewhere: never numbers for the device
APART = {
    "labels, words or names of any type": {
        "bandits.environments.from_table", "bandits.tables.encode", "commands.scoring.labels",
        "commands.targets.as_labels", "commands.targets.recognise_task",
        "deciding.options._named_actions", "report.subject._labels",
        "tables.explain.importance._targets", "tables.explain.rows.learning_curve",
    },
    "numbers of rows, on the host": {"active.scores.left_of"},
    "let in before, and compared on the host": {
        "model.check", "predictive.predictive.cdf", "predictive.stream._below",
    },
    "settings, on the host": {
        "metrics.baseline.quantile", "metrics.intervals.quantile_calibration",
        "networks.piecewise.quantile_bins",
        "predictive.predictive.in_units", "predictive.predictive.widened",
        "recalibrate.recalibrated.quantile", "tables.settings.layer_sizes",
    },
    "the package's own numbers": {
        "bandits.learner._phases", "diagnostics.climb.climb", "diagnostics.course.rest",
        "information.densities.logs",
        "infer.variational.elbo.minibatch_weight", "information.vectors.plain", "optim.deviation",
        "posteriors.draws.normalised", "recalibrate.base.shown", "recalibrate.recalibrated._map",
        "report.outcome._first",
    },
}  # fmt: skip


def doors() -> set[str]:
    """Functions that make an array of what is handed to them without ``admit``."""
    found = set()
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            arguments = [*function.args.args, *function.args.kwonlyargs]
            given = {a.arg for a in arguments if a.annotation and marked(a.annotation)}
            calls = (call for call in ast.walk(function) if isinstance(call, ast.Call))
            if any(ast.unparse(c.func) in BY and names(c.args[:1]) & given for c in calls):
                found.add(f"{module}.{function.name}")
    return found


def marked(annotation: ast.expr) -> bool:
    return any(mark in ast.unparse(annotation) for mark in MARKS)


def names(arguments: list[ast.expr]) -> set[str]:
    return {a.id for a in arguments if isinstance(a, ast.Name)}


def test_arrays_come_in_through_one_door():
    assert doors() == set().union(*APART.values())
