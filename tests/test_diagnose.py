"""Posteriors without chains: each finding on records made to fit, every method, files, warnings."""

import dataclasses
import json
import warnings

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px
from posterax.diagnostics.bound import Bound, held
from posterax.diagnostics.climb import climb
from posterax.diagnostics.diagnosis import warn_of
from posterax.diagnostics.measures import constant_nll, measure
from posterax.diagnostics.points import measure_points, points_findings
from posterax.diagnostics.variational import variational_findings
from posterax.posteriors import LowRankGaussian, MeanFieldGaussian, Point, Record
from posterax.predictive import Targets

pytestmark = pytest.mark.usefixtures("hasty_module")

RNG = np.random.default_rng(0)
X = np.linspace(-1, 1, 40)[:, None].astype("float32")
Y = (np.sin(3 * X[:, 0]) + 0.1 * RNG.normal(size=40)).astype("float32")
MODEL = px.Model(
    px.networks.MLP(1, 1, (6,), activation="tanh", key=0),
    px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.2),
)  # fmt: skip
READY = MODEL.for_targets((1,), np.dtype("float32"))
ONE = Targets((), (1,))
MARKS = np.array([500, 1000, 2000, 4000, 6000, 8000])
SETTLED = np.array([-900.0, -500, -480, -478, -477, -477])


def record(values=SETTLED, steps=8000, rows=100.0, **reports) -> Record:
    told = {"elbo": (MARKS, np.asarray(values))} | reports
    return Record("BayesByBackprop", {"steps": steps, "examples": rows}, reports=told)


def bound(value=-477.0, nll=4.0, predictive=3.9, k_hat=0.5) -> Bound:
    return Bound(value, 1.0, nll, predictive, 77.0, k_hat, 100)


FINE = {
    "constant_nll": 9.0, "weights": 100, "prior_scale": 1.0, "target_scale": 1.0,
    "prior_gain": 1.0, "classes": False, "active": {"network.w": 0.5},
    "active_units": {"layers.0.weight": 0.6}, "kl_per_active": 2.0, "sigma_change": 1.0,
}  # fmt: skip


def kinds(found) -> list[str]:
    return [finding.kind for finding in found if finding.serious]


# -- convergence


def test_a_settled_fit_has_nothing_serious():
    found = variational_findings(record(), bound(), FINE)
    assert kinds(found) == []
    assert "has settled" in found[0].text


def test_an_elbo_that_still_rises():
    rising = [-900.0, -800, -600, -420, -350, -330]
    first = variational_findings(record(rising), bound(-330.0), FINE)[0]
    assert (first.kind, first.serious) == ("not converged", True)
    assert "by 90 nats (0.9 a row)" in first.text
    assert "no end is in sight" in first.text  # 200 nats, then 180
    slower = [-900.0, -800, -600, -500, -440, -420]
    words = variational_findings(record(slower), bound(-420.0), FINE)[0].text
    assert "nats are left to gain, which would take about" in words


def test_the_extrapolation_is_a_geometric_series():
    """Gains 160, 80, 40, … halve: from T/2 on 40 are left, at T those of 0.585 doublings less."""
    doublings = np.log2(MARKS / 500.0)
    effective = np.array([0, 1, 2, 3, 3 + np.log2(1.375), 3 + np.log2(1.5)])
    values = -320 * 0.5**effective
    assert doublings[3] == 3
    found = climb(MARKS, values, rows=1.0)
    left = 320 * 0.5 ** (3 + np.log2(1.5))
    assert found.state == "rising"
    assert found.to_go == pytest.approx(left, rel=0.1)
    # until the tolerance, 0.1 + 2 nats, is left
    needed = 8000 * 2 ** np.log2(found.to_go / found.tolerance)
    assert found.steps == pytest.approx(needed, rel=1e-3)


def test_tolerance_is_the_smaller_of_a_share_and_nats_a_row_beyond_the_error():
    """A fit of 10,000 rows with 150 nats to go: 2 % of a gain of 2,000 is less than it."""
    values = -2000 * 0.5 ** np.array([0, 1, 2, 3, 3.46, 3.585])
    assert climb(MARKS, values, rows=10_000.0).state == "rising"
    assert climb(MARKS, values, rows=10_000.0, error=100.0).state == "level"
    assert climb(MARKS, values, rows=10_000.0, start=-1e6).state == "level"


def test_too_short_and_not_finite():
    short = Record("IVON", {"steps": 50, "examples": 40.0})
    found = variational_findings(short, None, {})
    assert kinds(found) == ["not converged"]
    assert "50 steps are too few" in found[0].text
    broken = variational_findings(record(), bound(value=float("nan")), FINE)
    assert "not finite" in broken[0].text


def test_deviations_that_never_moved():
    still = variational_findings(record(), bound(), FINE | {"sigma_change": 0.01})
    assert "hardly moved" in still[0].text
    assert kinds(still) == ["not converged"]
    moved = variational_findings(record(), bound(), FINE | {"sigma_change": 0.5})
    assert kinds(moved) == []
    # a q that is the prior has nowhere to go
    prior = FINE | {"sigma_change": 0.01, "kl_per_active": None}
    assert kinds(variational_findings(record(), bound(), prior)) == []


def test_without_evaluations_the_objective_of_the_steps_is_judged():
    step = np.arange(4000)
    settings = {"steps": 4000, "examples": 100.0}
    kl = (step[::16], np.full(250, 1.0))
    noise = 0.3 * np.random.default_rng(1).normal(size=4000)
    for nll, wrong in ((np.exp(-step / 100), []), (3 - step / 2000, ["not converged"])):
        told = Record("IVON", settings, {"nll": nll + noise}, reports={"kl": kl})
        assert kinds(variational_findings(told, bound(), FINE)) == wrong


# -- collapse, prior, approximation


def test_units_that_are_off():
    off = FINE | {"active_units": {"layers.1.weight": 0.01}}
    harmless = variational_findings(record(), bound(), off)
    assert kinds(harmless) == []
    assert any("narrower network would do" in finding.text for finding in harmless)
    useless = variational_findings(record(), bound(predictive=9.0), off)
    assert kinds(useless) == ["collapsed"]
    assert "1.0% of the units behind layers.1.weight" in useless[0].text


def test_predictions_that_were_better_on_the_way():
    way = {"predictive_nll": (MARKS, np.array([5.0, 3.0, 2.0, 4.0, 4.5, 4.6]))}
    assert kinds(variational_findings(record(**way), bound(), FINE)) == ["collapsed"]
    way = {"predictive_nll": (MARKS, np.array([5.0, 3.0, 2.0, 2.1, 2.1, 2.1]))}
    assert kinds(variational_findings(record(**way), bound(), FINE)) == []


@pytest.mark.parametrize(
    ("changed", "wrong"),
    [
        ({"prior_scale": 500.0}, True),
        ({"prior_scale": 0.001}, True),
        ({"prior_scale": 50.0}, False),
        ({"prior_scale": 500.0, "classes": True, "prior_gain": 20.0}, False),  # wide layers
        ({"prior_scale": 500.0, "classes": True, "prior_gain": 1000.0}, True),
        ({"kl_per_active": 80.0}, True),
        ({"constant_nll": 4.0}, True),  # 400 nats, and the ELBO is −477
        ({"constant_nll": 4.7}, False),
    ],
)
def test_prior_against_data(changed, wrong):
    found = variational_findings(record(), bound(), FINE | changed)
    assert kinds(found) == ["prior against data"] * wrong


@pytest.mark.parametrize(("free", "rows", "wrong"), [(1.0, 200.0, True), (1.0, 199.0, False),
                                                     (2.0, 200.0, False)])  # fmt: skip
def test_known_noise_that_costs_a_nat_a_row(free, rows, wrong):
    noise = {"free_noise_nll": free, "noise_share": 0.1, "outputs": 1}
    found = variational_findings(record(rows=rows), bound(nll=0.5), FINE | noise)  # 2.4 a row
    assert kinds(found) == ["prior against data"] * wrong
    assert any("follow what may be noise" in f.text for f in found) == wrong
    # of a fit whose errors are large because it is not at its end, noise is not to blame
    rising = record([-3000.0, -2400.0, -1700.0, -1100.0, -800.0, -477.0], rows=rows)
    found = variational_findings(rising, bound(nll=2.0), FINE | noise)
    assert kinds(found) == ["not converged"]


def test_noise_that_is_too_small_is_told_and_true_noise_is_not():
    x = np.random.default_rng(0).normal(size=(300, 4)).astype("float32")
    for true in (0.1, 1.0):
        y = np.sin(x[:, 0]) + true * np.random.default_rng(1).normal(size=300)
        model = px.Model(
            px.networks.MLP(4, 1, (20,), key=0), likelihood=px.likelihoods.Gaussian(noise=0.1)
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = px.fit(model, (x, y), px.BayesByBackprop(), steps=4000, progress=False)
        assert ("The known noise is" in posterior.diagnose().verdict) == (true == 1.0)


def test_poor_approximation():
    note = variational_findings(record(), bound(k_hat=2.0), FINE)
    assert kinds(note) == []
    assert any("k-hat 2.0" in finding.text for finding in note)
    moved = variational_findings(record(), bound(), FINE | {"shift": 1.5})
    assert kinds(moved) == ["poor approximation"]


# -- measures


def mean_field(mu, sigma) -> MeanFieldGaussian:
    rho = jax.tree.map(lambda s: jnp.log(jnp.expm1(s)), sigma)
    return MeanFieldGaussian(READY, READY.network.state, ONE, mu=mu, rho=rho)


def test_measures_of_the_prior_itself():
    """Nothing is active, and the deviation of the outputs is that of its draws."""
    zero = jax.tree.map(jnp.zeros_like, READY.parameters)
    prior = mean_field(zero, jax.tree.map(jnp.ones_like, zero))
    found = measure(prior, held(prior, X, Y), samples=2, key=0)
    assert set(found["active"].values()) == {0.0}
    assert found["active_units"] == {"layers.0.weight": 0.0}
    assert found["kl_per_active"] is None
    assert 0.5 < found["prior_scale"] < 8
    assert found["target_scale"] == pytest.approx(Y.std(), rel=1e-5)
    assert found["prior_gain"] == pytest.approx(np.sqrt(6))
    json.dumps(found, allow_nan=False)


def test_a_unit_is_on_if_a_weight_that_comes_in_is():
    zero = jax.tree.map(jnp.zeros_like, READY.parameters)
    weight = jnp.zeros((6, 1)).at[:2].set(3.0)
    mu = eqx.tree_at(lambda p: p.network.layers[0].weight, zero, weight)
    q = mean_field(mu, jax.tree.map(jnp.ones_like, zero))
    found = measure(q, held(q, X, Y), samples=2, key=0)
    assert found["active_units"]["layers.0.weight"] == pytest.approx(2 / 6)
    assert found["kl_per_active"] == pytest.approx(4.5)


def test_the_constant_predictor():
    point = Point(READY, READY.network.state, ONE, point=READY.parameters)
    expected = 0.5 * np.mean((Y - Y.mean()) ** 2) / 0.04 + 0.5 * np.log(2 * np.pi * 0.04)
    found = constant_nll(point, X, Y[:, None], np.ones(40))
    assert found == pytest.approx(expected, rel=1e-4)
    labels = (RNG.random(40) < 0.3).astype(int) + (X[:, 0] > 0.5)
    model = px.Model(px.networks.MLP(1, 3, (), key=0), likelihood=px.likelihoods.Categorical())
    model = model.for_targets((), np.dtype("float32"))
    many = Point(model, model.network.state, Targets((), ()), point=model.parameters)
    share = np.bincount(labels, minlength=3) / 40
    entropy = -sum(p * np.log(p) for p in share if p > 0)
    assert constant_nll(many, X, labels, np.ones(40)) == pytest.approx(entropy, abs=1e-3)


def test_a_mode_and_what_is_none():
    line = px.Model(px.networks.MLP(1, 1, (), key=0), None, px.likelihoods.Gaussian(0.2))
    exact = px.fit(line, (X, Y), px.Conjugate())
    mode = Point(exact.model, exact.state, ONE, point=exact.mu)
    assert measure_points(mode, held(mode, X, Y))["pull"] < 1e-4
    away = jax.tree.map(lambda a: a + 1.0, exact.mu)
    off = dataclasses.replace(mode, point=away)
    seen = measure_points(off, held(off, X, Y))
    assert seen["pull"] > 0.1
    assert kinds(points_findings(off, Record(), seen)) == ["not converged"]
    broken = dataclasses.replace(mode, point=jax.tree.map(lambda a: a * np.nan, away))
    assert not broken.diagnose(data=(X, Y)).ok


def test_members_that_are_the_same_or_worse():
    seen = {"finite": True, "nll": 1.0, "member_nll": [1.0, 1.1, 3.0], "diversity": 0.1}
    found = points_findings(Point(READY, None, ONE, point=None), Record("DeepEnsemble"), seen)
    assert kinds(found) == ["not converged"]
    assert "1 of 3 members (2, from 0)" in found[0].text
    seen = {"finite": True, "nll": 1.0, "member_nll": [1.0, 1.0], "diversity": 0.0}
    found = points_findings(Point(READY, None, ONE, point=None), Record("SVGD"), seen)
    assert kinds(found) == ["collapsed"]
    assert "All 2 particles predict the same" in found[0].text


def test_a_gaussian_that_is_worse_than_its_centre():
    centre = px.fit(MODEL, (X, Y), px.MaximumAPosteriori(1e-2), steps=500, key=0).point
    wide = LowRankGaussian(
        READY, READY.network.state, ONE, mu=centre,
        sigma=jax.tree.map(lambda a: jnp.full_like(a, 5.0), READY.parameters),
        factor=jnp.zeros((19, 1)), record=Record("SWAG"),
    )  # fmt: skip
    found = wide.diagnose(data=(X, Y))
    assert found.kinds == ("poor approximation",)
    with pytest.raises(ValueError, match=r"SWAG is .* constant prediction .*low rank"):
        px.selection.elbo(wide, (X, Y), samples=10)


# -- every method


METHODS = {
    "mean field": px.BayesByBackprop(learning_rate=1e-2),
    "full": px.BayesByBackprop(learning_rate=1e-2, family="full"),
    "low rank": px.BayesByBackprop(learning_rate=1e-2, family="low_rank"),
    "radial": px.BayesByBackprop(learning_rate=1e-2, family="radial"),
    "ivon": px.IVON(),
    "black box": px.BlackBoxVI(),
    "mixture": px.DeepEnsemble(2, inside=px.BayesByBackprop(learning_rate=1e-2)),
    "svgd": px.SVGD(particles=3),
    "ensemble": px.DeepEnsemble(2),
    "dropout": px.MCDropout(),
    "swag": px.SWAG(),
    "laplace": px.Laplace(),
    "map": px.MaximumAPosteriori(1e-2),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_has_an_answer(name, tmp_path):
    batch = 4 if name == "swag" else None
    posterior = px.fit(MODEL, (X, Y), METHODS[name], steps=120, batch_size=batch, key=0)
    for found in (posterior.diagnose(), posterior.diagnose(data=(X, Y))):
        assert found.verdict
        assert found.heading in str(found)
        assert found.ok == (not found.kinds)
        assert set(found.table.columns) == {"value"}
        json.dumps(found.to_dict())
    posterior.save(tmp_path / "q.px")
    again = px.load(tmp_path / "q.px")
    assert again.diagnose().verdict == posterior.diagnose().verdict
    variational = name in list(METHODS)[:7]
    assert ("bound" in posterior.record.settings) == variational
    if variational:
        assert again.elbo.kind == "bound"
        assert again.elbo == px.posteriors.Evidence(*posterior.elbo)
    else:
        with pytest.raises(ValueError, match=r"px.selection.elbo\(posterior, data\)"):
            _ = posterior.elbo
    bare = dataclasses.replace(posterior, record=None)
    assert "no record" in bare.diagnose().verdict
    assert "no record" not in bare.diagnose(data=(X, Y)).verdict


def test_exact_ones_and_the_prior():
    line = px.Model(px.networks.MLP(1, 1, (), key=0), None, px.likelihoods.Gaussian(0.2))
    exact = px.fit(line, (X, Y), px.Conjugate()).diagnose()
    assert exact.ok
    assert "exact" in exact.verdict
    assert "prior" in px.prior_posterior(MODEL, X).diagnose().verdict


def test_other_data_are_refused():
    posterior = px.fit(MODEL, (X, Y), px.BayesByBackprop(), steps=5, key=0)
    with pytest.raises(ValueError, match="data: diagnose needs the data of the fit, 40 examples"):
        posterior.diagnose(data=(X[:30], Y[:30]))


# -- warnings


def test_a_fit_warns_once_in_the_words_of_its_diagnosis():
    with pytest.warns(px.ConvergenceWarning, match="5 steps are too few") as caught:
        posterior = px.fit(MODEL, (X, Y), px.BayesByBackprop(), steps=5, key=0)
    assert len([w for w in caught if w.category is px.ConvergenceWarning]) == 1
    assert caught[0].filename == __file__
    assert warn_of(posterior.diagnose()) in str(caught[0].message)
    assert "bound" not in posterior.record.settings


def test_chains_warn_in_the_same_words():
    with pytest.warns(px.ConvergenceWarning, match="chain"):
        px.fit(MODEL, (X, Y), px.HMC(chains=1, warmup=5, leapfrog_steps=2), steps=30, key=0)


# -- ranking


def test_models_that_have_not_converged_are_not_ranked():
    short = px.fit(MODEL, (X, Y), px.BayesByBackprop(), steps=50, key=0)
    with pytest.raises(ValueError, match=r"models: small has not converged.*50 steps are too few"):
        px.compare({"small": short}, (X, Y), by="elbo")
    value = px.selection.elbo(short, (X, Y))
    assert px.compare({"small": value}).best == "small"


def test_a_network_that_the_prior_switched_off_is_called_collapsed():
    """From the prior's own deviations the draws are noise, and the KL wins before the data do."""
    model = px.Model(
        px.networks.MLP(1, 1, (40, 40), activation="tanh", key=0),
        px.priors.Gaussian(3.0), px.likelihoods.Gaussian(1.0),
    )  # fmt: skip
    method = px.BayesByBackprop(learning_rate=1e-2, initial_rho="prior")
    with pytest.warns(px.ConvergenceWarning, match="are off"):
        found = px.fit(model, (X, Y), method, steps=1500, key=0).diagnose()
    assert "collapsed" in found.kinds
