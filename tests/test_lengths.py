"""How long to train what climbs no ELBO: as long as held-out rows ask for."""

import numpy as np
import pytest

import posterax as px
from posterax.fitting import lengths
from posterax.fitting.lengths import Length, best, can_hold_out, choose_length, enough
from tests.test_batch_norm import model_of

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (80, 3)).astype("float32")
Y = (np.sin(3 * X[:, 0]) + 0.5 * rng.normal(size=80)).astype("float32")


# few steps: most of their time is the compiler's
hasty = pytest.mark.usefixtures("hasty_compiler")


def model(width=50):
    network = px.networks.MLP(3, 1, (width,), key=0)
    return px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian("learned"))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(lengths, "FIRST", 100)


def test_the_length_is_that_of_the_best_trial_and_so_many_steps_give_the_same_bits():
    method = px.MaximumAPosteriori(1e-2)
    posterior = px.fit(model(), (X, Y), method, key=0)
    tried = [Length(*length) for length in posterior.record.settings["lengths"]]
    assert [length.steps for length in tried] == [100 * 2**i for i in range(len(tried))]
    assert posterior.record.settings["steps"] == best(tried).steps
    assert len(posterior.history["nll"]) == best(tried).steps
    assert posterior.record.settings["examples"] == 80  # the fit itself is of all rows
    again = px.fit(model(), (X, Y), method, steps=best(tried).steps, key=0)
    np.testing.assert_array_equal(posterior.predict(X).mean, again.predict(X).mean)


def noisy_data(columns, noise):
    x = rng.uniform(-1, 1, (600, columns)).astype("float32")
    return x, (np.sin(3 * x[:, 0]) + noise * rng.normal(size=600)).astype("float32")


@pytest.mark.parametrize(("columns", "noise", "kinds"), [(3, 0.2, ()), (8, 0.5, ("poor",))])
def test_longer_is_not_worse_and_what_follows_the_noise_is_told(columns, noise, kinds):
    """Weights and noise maximised together end with a network that fits every row."""
    x, y = noisy_data(columns, noise)
    network = px.networks.MLP(columns, 1, (50,), key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian("learned"))
    nll = {}
    for name, options in (("long", {"steps": 10_000}), ("as it is", {})):
        posterior = px.fit(model, (x[:150], y[:150]), px.MaximumAPosteriori(1e-2), **options)
        nll[name] = -posterior.predict(x[150:]).log_prob(y[150:]).mean()
    assert nll["long"] > nll["as it is"] + 0.5
    found = posterior.diagnose()
    assert tuple(kind.split()[0] for kind in found.kinds) == kinds
    assert ("follows the noise" in found.verdict) == bool(kinds)
    constant = posterior.record.settings["held_out_constant"]
    assert (nll["as it is"] > constant) == bool(kinds)


@hasty
@pytest.mark.parametrize(
    "method",
    [px.DeepEnsemble(members=2), px.SWAG(), px.MCDropout(), px.Laplace(), px.MaximumLikelihood()],
    ids=lambda method: type(method).__name__,
)
def test_methods_that_train_points_ask_held_out_rows(method, monkeypatch):
    monkeypatch.setattr(lengths, "STEPS", 200)
    monkeypatch.setattr(lengths, "EPOCHS", 1)
    assert can_hold_out((X, Y), method)
    given = {"batch_size": 8, "key": 0}
    settings = px.fit(model(8), (X, Y), method, **given).record.settings
    assert [steps for steps, _ in settings["lengths"]] == [100, 200]
    named = px.fit(model(8), (X, Y), method, epochs="auto", validation=(X, Y), **given)
    assert named.record.settings["lengths"] == settings["lengths"]


@hasty
def test_where_the_user_says_how_long_or_watches_or_too_few_rows_are_there_nothing_is_tried():
    method = px.MaximumAPosteriori()
    watch = px.Validation(X, Y, every=500)
    for options in ({"steps": 10}, {"epochs": 2}, {"validation": watch}):
        assert "lengths" not in px.fit(model(8), (X, Y), method, **options).record.settings
    few = px.fit(model(8), (X[:40], Y[:40]), method)
    assert "lengths" not in few.record.settings
    with pytest.raises(ValueError, match=r"epochs='auto'.*50 rows"):
        px.fit(model(8), (X[:40], Y[:40]), method, epochs="auto")
    for other in (px.BayesByBackprop(), px.SGHMC(), px.DeepEnsemble(inside=px.IVON())):
        assert not can_hold_out((X, Y), other)
    assert not can_hold_out([(X, Y), (X, Y)], method)


@hasty
def test_rows_of_weight_0_choose_nothing_and_held_out_rows_are_not_learned_from():
    seen = []

    def train(data, steps):
        seen.append(data)
        return px.fit(model(8), data, px.MaximumAPosteriori(), steps=10, progress=False)

    weight = np.ones(80)
    weight[:20] = 0
    chosen = choose_length(model(8), (X, Y, weight), 80, train, 0, seconds=1e-9)
    assert chosen.tried[0].steps == 100
    assert len(seen) == 3  # folds, and no time for a longer fit
    held = np.array([left[20:] == 0 for _, _, left in seen])
    assert all((left[:20] == 0).all() for _, _, left in seen)
    assert (held.sum(1) == 12).all()  # a fifth of those that count
    assert held.sum(0).max() == 1  # others each time


@hasty
def test_large_data_are_divided_once():
    rows = 2000
    x, y = np.zeros((rows, 3), "float32"), np.zeros(rows, "float32")
    seen = []

    def train(data, steps):
        seen.append(int((data[2] == 0).sum()))
        return px.fit(model(8), data, px.MaximumAPosteriori(), steps=10, progress=False)

    choose_length(model(8), (x, y), 128, train, 0, seconds=1e-9)
    assert seen == [400]


def test_batch_statistics_do_not_see_held_out_rows():
    network = model_of("equinox")
    x = rng.normal(size=(60, 4)).astype("float32")
    rows = []

    def train(data, steps):
        rows.append(len(data[1]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        choose_length(network, (x, x[:, 0]), 60, train, 0)
    assert rows == [48]


@hasty
def test_a_trial_that_diverges_ends_the_trials():
    def train(data, steps):
        if steps > 100:
            raise px.NonFiniteError("nll is not finite", step=7, term="nll", posterior=None)
        return px.fit(model(8), data, px.MaximumAPosteriori(), steps=10, progress=False)

    assert choose_length(model(8), (X, Y), 80, train, 0).steps == 100


@pytest.mark.parametrize(
    ("nlls", "steps", "ends"),
    [
        ((0.9, 0.5), 200, False),
        ((0.9, 0.5, 0.499), 200, False),
        ((0.9, 0.5, 0.499, 0.498), 200, True),  # two in a row that are no better
        ((0.9, 0.5, 0.51, 0.4), 800, False),
        ((0.9, 0.5, 0.6), 200, True),  # much worse
    ],
)
def test_which_is_best_and_when_it_is_enough(nlls, steps, ends):
    tried = [Length(100 * 2**i, nll) for i, nll in enumerate(nlls)]
    assert best(tried).steps == steps
    assert enough(tried) == ends


@hasty
def test_ctrl_c_in_a_trial_returns_what_there_is_and_says_what_it_is():
    fits = []

    def train(data, steps):
        fits.append(px.fit(model(8), data, px.MaximumAPosteriori(), steps=10, progress=False))
        return fits[-1]

    with pytest.warns(UserWarning, match="a Point, was fitted without 16 of the rows"):
        chosen = choose_length(model(8), (X, Y), 80, train, 0, pressed=lambda: len(fits) == 2)
    assert chosen.interrupted is fits[1]  # no third fold


def test_a_constant_is_fitted_to_other_rows_than_it_is_judged_by():
    """A line that is right is not told to follow the noise."""
    for seed in range(4):
        own = np.random.default_rng(seed)
        x = own.normal(size=(60, 1)).astype("float32")
        y = (0.5 * x[:, 0] + own.normal(size=60)).astype("float32")
        line = px.Model(
            px.networks.MLP(1, 1, (), key=0), px.priors.Gaussian(1.0),
            px.likelihoods.Gaussian("learned"),
        )  # fmt: skip
        posterior = px.fit(line, (x, y), px.MaximumAPosteriori(1e-2))
        assert "follows the noise" not in posterior.diagnose().verdict


@hasty
@pytest.mark.parametrize("method", [px.Laplace(), px.SWAG()], ids=["laplace", "swag"])
def test_methods_of_several_phases_know_their_length(method):
    posterior = px.fit(model(8), (X, Y), method, batch_size=8)
    steps = posterior.record.settings["length"]
    assert f"chose the length: {steps:,} steps" in posterior.diagnose().verdict


@hasty
def test_a_callback_that_ends_the_fit_leaves_another_length():
    def stop(event):
        if event.step >= 50:
            raise px.callbacks.StopFit

    posterior = px.fit(model(8), (X, Y), px.MaximumAPosteriori(), callbacks=[stop])
    assert "chose the length" not in posterior.diagnose().verdict


@hasty
def test_batch_statistics_in_batches_of_all_rows():
    network = model_of("equinox")
    x = rng.normal(size=(60, 3)).astype("float32")
    y = (x[:, 0] > 0).astype("int32")
    settings = px.fit(network, (x, y), px.MaximumAPosteriori(), batch_size=60).record.settings
    assert settings["length"] == settings["steps"]
    assert settings["batch_size"] == 60


def test_what_is_no_good_is_refused_before_anything_is_tried(tmp_path, monkeypatch):
    monkeypatch.setattr("posterax.fitting.fit.choose_length", None)
    with pytest.raises(TypeError, match=r"model must be a px\.Model"):
        px.fit(model(8).network, (X, Y), px.MaximumAPosteriori())
    with pytest.raises(ValueError, match="time_limit: with checkpoint="):
        px.fit(model(8), (X, Y), px.SWAG(), checkpoint=tmp_path / "here", time_limit=5)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="batch_size must be a whole number"):
        px.fit(model(8), (X, Y), px.MaximumAPosteriori(), batch_size="32")


@hasty
def test_a_start_may_know_the_held_out_rows():
    start = px.fit(model(8), (X, Y), px.MaximumAPosteriori(), steps=10)
    settings = px.fit(model(8), (X, Y), px.MaximumAPosteriori(), init=start).record.settings
    assert "lengths" not in settings
