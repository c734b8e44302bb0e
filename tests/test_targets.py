"""What kind of number a target is, on simulated ones, and the likelihood and scaling for it."""

import numpy as np
import pytest

import posterax as px
from posterax import likelihoods as lk
from posterax.tables.recognise import recognise
from posterax.tables.targets import CHOICES, choose, likelihood_for, scaling

SEEDS = range(5)


def rounded(values, least=0):
    return np.maximum(np.round(values), least)


def often_zero(share, amounts, rng):
    return amounts * (rng.random(len(amounts)) > share)


def scaled(values):
    return (values - values.min()) / np.ptp(values)


def hourly(rng, n):
    """Rentals of an hour: few at night, hundreds by day."""
    return rng.poisson(rng.gamma(1.1, 170, n)).clip(0, 977)


SIMULATED = {
    # -- real
    "normal": ("real", lambda rng, n: rng.normal(3, 2, n)),
    "normal far above 0": ("real", lambda rng, n: rng.normal(50, 8, n)),
    "heavy tails far above 0": ("real", lambda rng, n: 300 + 20 * rng.standard_t(4, n).clip(-9, 9)),
    "skewed with negative ones": ("real", lambda rng, n: rng.exponential(1, n) - 0.5),
    "large counts": ("real", lambda rng, n: rounded(rng.normal(405, 20, n))),
    "scores of an exam": ("real", lambda rng, n: rounded(rng.normal(62, 15, n)).clip(0, 100)),
    "grades": ("real", lambda rng, n: rounded(rng.normal(5.8, 0.9, n)).clip(3, 9)),
    "rings of shells": ("real", lambda rng, n: rounded(rng.gamma(9.5, 1.05, n), 1)),
    "points from 0 to 10": ("real", lambda rng, n: rng.integers(0, 11, n)),
    "ages": ("real", lambda rng, n: rounded(rng.normal(45, 14, n)).clip(18, 90)),
    "house prices cut at 50": (
        "real", lambda rng, n: (5 + rng.gamma(4.5, 4, n)).clip(5, 50),
    ),
    "uniform": ("real", lambda rng, n: rng.uniform(0, 100, n)),
    "two values": ("real", lambda rng, n: rng.integers(0, 2, n)),
    "efficiencies near 1": ("real", lambda rng, n: rng.uniform(0.95, 1, n)),
    "small deviations": ("real", lambda rng, n: rng.normal(0.5, 0.01, n)),
    "left skew": ("real", lambda rng, n: 100 - rng.exponential(8, n).clip(0, 90)),
    "too few": ("real", lambda rng, n: rng.poisson(2, 20)),
    # -- counts
    "Poisson, mean 1": ("count", lambda rng, n: rng.poisson(1, n)),
    "Poisson, mean 3": ("count", lambda rng, n: rng.poisson(3, n)),
    "rare events": ("count", lambda rng, n: rng.poisson(0.2, n)),
    "claims": ("count", lambda rng, n: rng.poisson(rng.gamma(0.5, 1, n))),
    "hourly rentals": ("count", hourly),
    "geometric": ("count", lambda rng, n: rng.geometric(0.1, n) - 1),
    # -- positive
    "log-normal": ("positive", lambda rng, n: rng.lognormal(0, 1, n)),
    "prices": ("positive", lambda rng, n: rounded(rng.lognormal(12, 0.6, n))),
    "prices in hundreds": ("positive", lambda rng, n: 100 * rounded(rng.lognormal(3, 0.8, n), 1)),
    "times": ("positive", lambda rng, n: rng.exponential(20, n) + 1e-3),
    "gamma": ("positive", lambda rng, n: rng.gamma(2, 3, n)),
    "small rates": ("positive", lambda rng, n: rng.lognormal(-5, 0.8, n).clip(0, 0.49)),
    # -- shares
    "beta": ("share", lambda rng, n: rng.beta(2, 3, n)),
    "beta, narrow": ("share", lambda rng, n: rng.beta(8, 6, n)),
    "beta at both ends": ("share", lambda rng, n: rng.beta(0.5, 0.5, n)),
    "scaled to 0 … 1": ("share", lambda rng, n: scaled(rng.normal(0, 1, n))),
    "shares of 50": ("share", lambda rng, n: rng.binomial(50, rng.beta(3, 3, n)) / 50),
    # -- zeros
    "rain": ("zeros", lambda rng, n: often_zero(0.6, rng.lognormal(1, 1, n), rng)),
    "spending": ("zeros", lambda rng, n: often_zero(0.3, rounded(rng.lognormal(9, 1, n)), rng)),
    "claims in money": ("zeros", lambda rng, n: often_zero(0.8, rng.gamma(1.5, 900, n), rng)),
    "shares, mostly 0": ("zeros", lambda rng, n: often_zero(0.5, rng.beta(1, 6, n), rng)),
}  # fmt: skip


@pytest.mark.parametrize("name", SIMULATED)
@pytest.mark.parametrize("n", [400, 3000])
def test_simulated_targets_are_recognised(name, n):
    kind, simulate = SIMULATED[name]
    for seed in SEEDS:
        y = simulate(np.random.default_rng(seed), n)
        found = recognise(y, np.ones(len(y)))
        assert found.name == kind, (seed, found.why)
        assert isinstance(found.why, str)
        assert found.why


def test_the_reason_has_the_numbers():
    y = np.random.default_rng(0).poisson(1.6, 500)
    assert recognise(y).why == "whole numbers of 0 or more, mean 1.63: counts"
    y = np.random.default_rng(0).lognormal(0, 1, 500) * (np.arange(500) % 2)
    assert recognise(y).why.startswith("50 % are exactly 0, the others have mean ")
    assert recognise(-y).why == f"values down to {(-y).min():.3g}: real numbers"


def test_rows_of_weight_0_do_not_count_and_a_weight_of_2_is_the_row_twice(rng):
    y = np.concatenate([rng.lognormal(0, 1, 300), -np.ones(5)])
    assert recognise(y).name == "real"
    assert recognise(y, (y > 0).astype(float)).name == "positive"
    y, weight = rng.lognormal(0, 0.5, 300), rng.integers(1, 3, 300)
    once, twice = recognise(y, weight.astype(float)), recognise(np.repeat(y, weight))
    assert once == twice


def test_several_targets_are_of_one_kind_or_real(rng):
    counts, amounts = rng.poisson(2, (400, 2)), rng.lognormal(0, 1, (400, 1))
    assert recognise(counts).name == "count"
    both = recognise(np.hstack([counts, amounts]))
    assert both == (
        "real",
        "the targets are of several kinds (count, count, positive): real numbers",
    )


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_amounts_are_recognised_in_every_unit(unit, rng):
    amounts = unit * rng.lognormal(0, 1, 500)
    assert recognise(amounts).name == "positive"
    assert recognise(amounts * (rng.random(500) < 0.5)).name == "zeros"


# -- what the user says


def test_real_targets_that_are_never_below_0_are_kept_there(rng):
    y = rng.uniform(0, 100, 300)
    found = choose("auto", y)
    assert found.name == "non_negative"
    assert found.why.endswith("none of them below 0")
    assert choose("auto", y - 1).name == "real"
    assert choose("auto", y[:20]).name == "real"
    assert choose("student", y).name == "student"
    with pytest.raises(ValueError, match="needs numbers of 0 or more, and y has -1"):
        choose("non_negative", np.array([1.0, -1.0]))


def test_auto_is_what_the_targets_look_like_and_other_words_are_kept(rng):
    y = rng.lognormal(0, 1, 200)
    assert choose("auto", y) == recognise(y)
    for word in CHOICES:
        if CHOICES[word] in ("real", "positive", "zeros"):
            assert choose(word, y).name == word
    with pytest.raises(ValueError, match=r"likelihood must be one of 'auto', .* got 'normal'"):
        choose("normal", y)
    with pytest.raises(ValueError, match="got 3"):
        choose(3, y)


@pytest.mark.parametrize(
    ("word", "y", "expected"),
    [
        ("log_normal", [1.0, 0.0], "numbers above 0, and y has 0.0"),
        ("zero_inflated", [1.0, -2.0], "numbers of 0 or more, and y has -2.0"),
        ("negative_binomial", [1.0, 0.5], "whole numbers of 0 or more, and y has 0.5"),
        ("poisson", [1.0, -1.0], "whole numbers of 0 or more, and y has -1.0"),
        ("beta", [0.5, 1.5], "numbers from 0 to 1, and y has 1.5"),
    ],
)
def test_a_likelihood_that_the_targets_do_not_fit_is_refused(word, y, expected):
    for call in (choose, likelihood_for, scaling):
        with pytest.raises(ValueError, match=expected):
            call(word, np.array(y))


def test_auto_is_no_likelihood():
    for call in (likelihood_for, scaling):
        with pytest.raises(ValueError, match=r"must be one of 'real', .* got 'auto'"):
            call("auto", np.ones(3))


KINDS = {
    "real": lk.StudentT, "student": lk.StudentT, "gaussian": lk.Gaussian,
    "non_negative": lk.StudentT,
    "positive": lk.LogNormal, "log_normal": lk.LogNormal,
    "count": lk.NegativeBinomial, "negative_binomial": lk.NegativeBinomial, "poisson": lk.Poisson,
    "share": lk.Beta, "beta": lk.Beta,
    "zeros": lk.ZeroInflatedLogNormal, "zero_inflated": lk.ZeroInflatedLogNormal,
}  # fmt: skip


def targets(kind, shape, rng):
    return {
        "real": lambda: np.abs(rng.normal(5, 2, shape)),
        "positive": lambda: 1000 * rng.lognormal(0, 1, shape),
        "count": lambda: rng.poisson(rng.gamma(1, 50, shape)),
        "share": lambda: rng.beta(2, 5, shape),
        "zeros": lambda: 1000 * rng.lognormal(0, 1, shape) * (rng.random(shape) < 0.5),
    }[kind]()


@pytest.mark.parametrize("word", KINDS)
@pytest.mark.parametrize("shape", [(200,), (200, 2)])
def test_likelihood_and_scaling_of_every_word(word, shape, rng):
    y = targets(CHOICES[word], shape, rng).astype(float)
    weight = rng.integers(0, 3, 200).astype(float)
    likelihood, unit = likelihood_for(word, y, weight), scaling(word, y, weight)
    assert type(likelihood) is KINDS[word]
    width = y.size // len(y)
    assert unit.shift.shape == unit.scale.shape == (width,)
    inner = unit(y.reshape(200, -1))
    each = 1 if word == "poisson" else 3 if CHOICES[word] == "zeros" else 2
    assert likelihood.check((200, each * width), inner) in ((width,), ())
    likelihood.check_values(inner, (200, each * width))
    if CHOICES[word] != "real":
        assert (unit.shift == 0).all()
    # of scaled targets it is the same: the unit has been taken out already
    if CHOICES[word] == "positive":
        logs = np.average(np.log(inner[weight > 0]), axis=0, weights=weight[weight > 0])
        np.testing.assert_allclose(logs, 0, atol=1e-12)
        again = likelihood_for(word, inner.reshape(shape), weight)
        np.testing.assert_allclose(again.reach, likelihood.reach)
    else:
        assert CHOICES[word] == "real" or (unit.scale == 1).all()


@pytest.mark.parametrize("kind", ["positive", "count", "zeros"])
def test_an_extrapolating_network_stays_near_the_targets(kind, rng):
    y = targets(kind, (500,), rng).astype(float)
    likelihood, unit = likelihood_for(kind, y), scaling(kind, y)
    wild = np.full((1, 3 if kind == "zeros" else 2), 100.0, "float32")
    wild[:, 1:] = -3.0
    mean = likelihood.distribution(wild, {}).mean[0, 0] * unit.scale[0]
    assert y.max() < mean < 10 * y.max()


def test_the_centre_is_where_a_network_starts(rng):
    y = rng.poisson(rng.gamma(1, 200, 500)).astype(float)
    found = likelihood_for("count", y).distribution(np.zeros((1, 2), "float32"), {}).mean
    np.testing.assert_allclose(found, y.mean(), rtol=1e-5)
    y = rng.beta(1, 9, 500)
    found = likelihood_for("share", y).distribution(np.zeros((1, 2), "float32"), {}).mean
    np.testing.assert_allclose(found, y.mean(), rtol=1e-5)
    amounts = 1000 * rng.lognormal(0, 1, 500)
    for kind, y in (("positive", amounts), ("zeros", amounts * (rng.random(500) < 0.5))):
        around = likelihood_for(kind, y).location(scaling(kind, y)(y)[y > 0])
        assert abs(around.mean()) < 1e-9


def test_columns_of_zeros_alone_have_a_likelihood_too():
    y = np.zeros((50, 2))
    y[:, 0] = np.arange(50)
    for kind in ("zeros", "count"):
        likelihood = likelihood_for(kind, y)
        assert np.isfinite(likelihood.centre).all()
        assert np.isfinite(likelihood.reach).all()


def test_a_predictive_goes_back_to_the_users_unit(rng):
    y = 1000 * rng.lognormal(0, 0.5, 60)
    unit = scaling("positive", y)
    model = px.Model(px.networks.MLP(1, 2, (4,), key=0), likelihood=likelihood_for("positive", y))
    posterior = px.fit(model, (np.ones((60, 1)), unit(y)), px.MaximumAPosteriori(), steps=1, key=0)
    predictive = posterior.predict(np.ones((60, 1)))
    outer = predictive.in_units(unit.shift[0], unit.scale[0])
    np.testing.assert_allclose(outer.mean, unit.scale[0] * predictive.mean, rtol=1e-6)
    expected = predictive.log_prob(unit(y)) - np.log(unit.scale[0])
    np.testing.assert_allclose(outer.log_prob(y), expected, rtol=1e-5)
