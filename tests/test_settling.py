"""Fits that go on until their ELBO has settled, and what they are made of."""

import itertools
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import stats

import posterax as px
from posterax.diagnostics.climb import by_doublings
from posterax.fitting import bounds
from posterax.fitting.bounds import SHARES, Level, Until, first_steps
from posterax.infer.objective import rate_at
from posterax.infer.variational.averaging import averaged, best_of, no_average
from posterax.infer.variational.elbo import _last, _with_variances
from posterax.posteriors.random_weights import has_local
from tests.conjugate import conjugate

LINE = conjugate(rows=60, weights=3, seed=1)
PRECISION = np.linalg.inv(LINE.covariance)
DEVIATIONS = 1 / np.sqrt(np.diag(PRECISION))


def same(one, two):
    return all(np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (one, two)), strict=True))


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(bounds, "FIRST_OF_SMALL", bounds.FIRST)


def curve(rows=80):
    x = np.linspace(-1, 1, rows)[:, None].astype("float32")
    model = px.Model(
        px.networks.MLP(1, 1, (8,), key=0),
        px.priors.Gaussian(1.0, fan_in=True), px.likelihoods.Gaussian(0.1),
    )  # fmt: skip
    return model, (x, np.sin(3 * x[:, 0]))


@pytest.mark.parametrize(
    "method", [px.BayesByBackprop(), px.IVON()], ids=lambda m: type(m).__name__
)
def test_it_ends_where_twice_the_steps_gain_nothing_and_so_many_steps_give_the_same_bits(method):
    model, data = curve()
    posterior = px.fit(model, data, method, batch_size=40, key=3)
    settings = posterior.record.settings
    steps, levels = settings["steps"], settings["levels"]
    assert [level[0] for level in levels] == [steps // 2**k for k in reversed(range(len(levels)))]
    assert len(levels) > 2
    for before, level in itertools.pairwise(levels[-3:]):  # two in a row
        assert level[1] - before[1] <= max(0.02 * 80, np.hypot(level[2], before[2]))
    again = px.fit(model, data, method, steps=steps, batch_size=40, key=3)
    assert same((posterior.mu, posterior.rho), (again.mu, again.rho))
    assert sorted(posterior.history) == sorted(again.history)
    for name, values in posterior.history.items():
        np.testing.assert_array_equal(values, again.history[name])
    assert len(posterior.history["elbo"]) == steps
    where, values = posterior.record.reports["elbo"]
    assert (where + 1).tolist() == [round(share * steps) for share in SHARES]
    found = px.selection.elbo(posterior, data, samples=1000)
    assert abs(posterior.elbo.value - found.value) < 5 * np.hypot(posterior.elbo.error, found.error)
    assert abs(values[-1] - found.value) < 3.0
    assert posterior.diagnose().ok


def test_one_level_stretch_is_no_end():
    """Gains may come back: units of a network wake late."""
    until, stub = Until(), SimpleNamespace
    run = stub(ready=stub(plan=stub(total=100.0), data=None))
    until.constant = 5.0
    for values, settled in [
        ((-300, -299.9), False),  # a single doubling
        ((-300, -299.9, -280), False),
        ((-320, -300, -299.9), False),  # a gain before the level stretch
        ((-300, -299.9, -299.8), True),
        ((-350, -300, -299.9, -299.8), True),
    ]:
        until.levels = [Level(1000 * 2**i, value, 0.01) for i, value in enumerate(values)]
        assert until._settled(run, None) == settled, values


def test_an_ensemble_of_variational_fits_goes_on_until_its_members_have_settled():
    model, data = curve()
    method = px.DeepEnsemble(members=3, inside=px.BayesByBackprop())
    posterior = px.fit(model, data, method, key=3)
    settings = posterior.record.settings
    again = px.fit(model, data, method, steps=settings["steps"], key=3)
    assert len(settings["levels"]) > 2
    assert same((posterior.mu, posterior.rho), (again.mu, again.rho))
    values = posterior.record.reports["elbo"][1]  # the mean over the members
    each = [
        px.selection.elbo(posterior.member(i), data, samples=1000).value for i in range(3)
    ]  # fmt: skip
    assert abs(values[-1] - np.mean(each)) < 3.0
    # members that differ in what they climb have no ELBO in common
    for other in ({"temperatures": (0.1, 0.5, 1.0)}, {"bootstrap": True}):
        apart = px.DeepEnsemble(members=3, inside=px.BayesByBackprop(), **other)
        with pytest.raises(ValueError, match="epochs='auto': DeepEnsemble"):
            px.fit(model, data, apart, epochs="auto")


def test_it_is_taken_up_from_a_checkpoint_in_the_middle_of_a_longer_fit(tmp_path):
    model, data = curve()
    whole = px.fit(model, data, px.BayesByBackprop(), key=1)
    assert len(whole.record.settings["levels"]) > 2

    class Killed(Exception):
        pass

    def kill(event):
        if event.total > first_steps(1, 1) and event.step > 0.8 * event.total:
            raise Killed

    where = px.Checkpoint(tmp_path, every=0)
    with pytest.raises(Killed):
        px.fit(model, data, px.BayesByBackprop(), key=1, checkpoint=where, callbacks=[kill])
    taken = []
    again = px.fit(
        model, data, px.BayesByBackprop(), key=1, checkpoint=where,
        callbacks=[lambda event: taken.append((event.total, event.step))],
    )  # fmt: skip
    assert taken[0][1] > 0.6 * taken[0][0]
    assert same((whole.mu, whole.rho), (again.mu, again.rho))
    assert whole.record.settings["levels"] == again.record.settings["levels"]


def test_a_fit_of_given_length_does_not_take_up_one_without(tmp_path):
    model, data = curve()
    px.fit(model, data, px.BayesByBackprop(), key=1, checkpoint=tmp_path)
    with pytest.raises(px.CheckpointError, match="steps"):
        px.fit(model, data, px.BayesByBackprop(), steps=992, key=1, checkpoint=tmp_path)


def test_a_time_limit_ends_it_and_the_warning_says_so():
    model, data = curve()
    with pytest.warns(px.ConvergenceWarning, match="still rises"):
        posterior = px.fit(
            model, data, px.BayesByBackprop(learning_rate=1e-4), time_limit=1e-3, key=0
        )
    assert posterior.record.settings["steps"] == first_steps(1, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": px.SVGD(), "epochs": "auto"}, "epochs='auto': SVGD does not go by"),
        ({"method": px.MaximumAPosteriori(), "time_limit": -1}, "time_limit must be a finite"),
        ({"method": px.BayesByBackprop(schedule="cosine"), "epochs": "auto"}, "does not go by"),
        ({"epochs": "auto", "steps": 10}, "give epochs or steps, not both"),
        ({"epochs": "long"}, "epochs must be a number or 'auto', got 'long'"),
        ({"time_limit": 10, "steps": 10}, "time_limit goes with epochs='auto'"),
        ({"time_limit": -1}, "time_limit must be a finite number above 0"),
        ({"method": px.NUTS(), "time_limit": 5}, "time_limit goes with epochs='auto': NUTS"),
    ],
)
def test_what_cannot_be_is_refused(options, message):
    model, data = curve()
    method = options.pop("method", px.BayesByBackprop())
    with pytest.raises(ValueError, match=message):
        px.fit(model, data, method, **options)


def test_streams_and_resumed_fits_have_a_length():
    model, (x, y) = curve()
    with pytest.raises(ValueError, match="a source of batches is not evaluated"):
        px.fit(model, [(x, y), (x, y)], px.BayesByBackprop(), epochs="auto")
    short = px.fit(model, (x, y), px.BayesByBackprop(), steps=10)
    with pytest.raises(ValueError, match="resume= goes on with a fit of a given length"):
        px.fit(model, (x, y), px.BayesByBackprop(), epochs="auto", resume=short)


def test_levels_tell_whether_a_fit_has_settled():
    assert by_doublings([[1000, -500, 1.0], [2000, -499, 1.0]], rows=100).state == "level"
    found = by_doublings([[1000, -900, 1.0], [2000, -600, 1.0], [4000, -450, 1.0]], rows=100)
    assert found.state == "rising"
    assert found.last == 150
    assert found.steps > 8000


# -- what it is made of


def test_the_optimum_of_the_linear_model_by_defaults():
    posterior = px.fit(LINE.model(), LINE.data, px.BayesByBackprop(), steps=20_000, key=0)
    mean, std = (np.asarray(m.network["w"]) for m in posterior.moments())
    np.testing.assert_allclose(std / DEVIATIONS, 1, atol=0.02)
    np.testing.assert_allclose(mean, LINE.mean, atol=0.05 * DEVIATIONS.max())


@pytest.mark.parametrize("estimator", ["weight", "flipout"])
def test_the_other_estimators_take_longer(estimator):
    method = px.BayesByBackprop(estimator=estimator)
    posterior = px.fit(LINE.model(), LINE.data, method, steps=60_000, key=0)
    std = np.asarray(posterior.moments()[1].network["w"])
    np.testing.assert_allclose(std / DEVIATIONS, 1, atol=0.03)


def test_local_noise_where_rows_are_examples_and_nowhere_else():
    x = jnp.ones((6, 1, 8, 8))
    pool = eqx.nn.AvgPool2d(8)

    class Convolutions(eqx.Module):
        layer: eqx.nn.Conv2d

        def __call__(self, x):
            return pool(jax.nn.relu(self.layer(x))).reshape(-1)

    class Headed(Convolutions):
        head: eqx.nn.Linear

        def __call__(self, x):
            return self.head(super().__call__(x))

    key = jax.random.key(0)
    layer = eqx.nn.Conv2d(1, 10, 3, padding=1, key=key)
    plain = px.Model(Convolutions(layer), likelihood=px.likelihoods.Categorical())
    headed = px.Model(
        Headed(layer, eqx.nn.Linear(10, 10, key=key)), likelihood=px.likelihoods.Categorical()
    )
    assert not has_local(plain, x)
    assert has_local(headed, x)


def test_rows_apart_have_the_same_distribution_each():
    model, (x, y) = curve(rows=4)
    posterior = px.fit(model, (x, y), px.BayesByBackprop(initial_rho=-1.0), steps=5, key=0)
    ids = posterior.particles(jax.random.key(0), 4000).ids
    together = np.asarray(posterior.evaluate(ids, x)[0], np.float64)[..., 0]
    apart = np.asarray(posterior.evaluate_apart(ids, x)[0], np.float64)[..., 0]
    error = np.sqrt((together.var(0) + apart.var(0)) / 4000)
    assert (np.abs(together.mean(0) - apart.mean(0)) < 5 * error).all()
    np.testing.assert_allclose(together.var(0), apart.var(0), rtol=0.15)
    # and their sum varies less: neighbours no longer move together
    assert apart.sum(1).var() < 0.9 * together.sum(1).var()


def test_the_mean_of_the_last_iterates():
    class Steps:
        steps = jnp.asarray(64)

    average = no_average({"w": jnp.zeros(2)})
    assert np.array_equal(best_of(average, {"w": jnp.ones(2)})["w"], [1, 1])
    for step in range(16, 65, 16):
        value = {"w": jnp.full(2, float(step))}
        average = averaged(average, lambda value=value: value, jnp.asarray(step), Steps)
    np.testing.assert_allclose(average.mean["w"], 64)
    Steps.steps = jnp.asarray(128)  # made longer: it begins anew
    average = averaged(average, lambda: {"w": jnp.zeros(2)}, jnp.asarray(65), Steps)
    assert int(average.taken) == 0


def test_it_is_the_variances_whose_mean_is_taken():
    """E[1 − σ²c] = 0 at rest: of deviations 1 and 3 the mean is √5, not √3 or 2."""
    values = [{"mu": jnp.full(2, m), "rho": jnp.log(jnp.expm1(jnp.full(2, s)))}
              for m, s in ((1.0, 1.0), (3.0, 3.0))]  # fmt: skip
    average = no_average(_with_variances(values[0]))

    class Steps:
        steps = jnp.asarray(32)

    for step, value in ((32, values[0]), (48, values[1])):
        average = averaged(average, lambda v=value: _with_variances(v), jnp.asarray(step), Steps)
    last = _last(average, values[1])
    np.testing.assert_allclose(last["mu"], 2.0)
    np.testing.assert_allclose(jax.nn.softplus(last["rho"]), np.sqrt(5), rtol=1e-5)


def test_a_rate_may_be_a_schedule_of_optax():
    model, data = curve()
    constant = px.BayesByBackprop(schedule="constant", learning_rate=0.02)
    given = px.BayesByBackprop(learning_rate=optax.constant_schedule(0.02))
    one, two = (px.fit(model, data, method, steps=20, key=0) for method in (constant, given))
    np.testing.assert_allclose(
        np.ravel(one.mu.network.layers[0].weight), np.ravel(two.mu.network.layers[0].weight),
        rtol=1e-4,
    )  # fmt: skip
    falling = optax.exponential_decay(0.02, 5, 0.5)
    for method in (
        px.MaximumAPosteriori(falling),
        px.IVON(falling),
        px.DeepEnsemble(2, learning_rate=falling),
    ):
        assert np.isfinite(px.fit(model, data, method, steps=20, key=0).history["nll"]).all()


def test_rates_hold_and_then_fall():
    class Plan:
        steps = jnp.asarray(100)

    rates = [float(rate_at(0.5, "hold", Plan, jnp.asarray(t))) for t in (0, 50, 75, 100, 200)]
    np.testing.assert_allclose(rates, [0.5, 0.5, 0.25, 0, 0])


@pytest.mark.slow
def test_ranks_of_settled_fits_follow_the_law_of_independent_gaussians():
    """For parameters of the prior, (w − μ)/σ is N(0, s²/σ²): s the posterior's deviation, σ q's.

    Simulation-based calibration for a family that is known to be too narrow: with σ the optimum of
    the ELBO, ranks are not uniform, and the law that they follow is known.
    """
    rng, noise, rows = np.random.default_rng(0), 0.5, 40
    x = rng.normal(size=(rows, 3)) @ np.array([[1, 0.7, 0], [0, 1, 0.5], [0, 0, 1]])
    precision = x.T @ x / noise**2 + np.eye(3)
    s, sigma = np.sqrt(np.diag(np.linalg.inv(precision))), 1 / np.sqrt(np.diag(precision))
    network = ({"w": jnp.zeros((3, 1))}, lambda p, x: x @ p["w"])
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(noise))
    found = []
    for key in range(80):
        w = rng.normal(size=3)
        y = (x @ w + noise * rng.normal(size=rows)).astype("float32")
        posterior = px.fit(model, (x.astype("float32"), y), px.BayesByBackprop(), key=key)
        assert posterior.diagnose().ok
        mean, std = (np.ravel(m.network["w"]) for m in posterior.moments())
        found.append((w - mean) / std)
    z = np.array(found)
    assert stats.kstest((z * sigma / s).ravel(), "norm").pvalue > 1e-3
    # the test can fail: as if q were the posterior, they are too far out
    assert stats.chi2.sf(np.sum(z**2), z.size) < 1e-3
