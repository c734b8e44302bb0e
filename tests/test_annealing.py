"""Simulated annealing: schedules by their formulas, and a mode that gradients do not find."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import posterax as px


def wave(params, x):
    return params["a"] * jnp.sin(params["w"] * x) + params["b"] * jnp.cos(params["w"] * x)


def frequency():
    """A wave of unknown frequency through a sum of two waves: dozens of local modes.

    Given the frequency w the amplitudes are a linear model, so the energy's least value for each w
    is known; the global mode is where that is least. Its mirror image −w has the same energy.
    """
    rng = np.random.default_rng(3)
    x = np.sort(rng.uniform(-4, 4, 40))
    y = np.sin(4 * x + 0.5) + 0.8 * np.sin(6.5 * x) + 0.2 * rng.normal(size=40)
    prior = px.priors.ByPart({"w": px.priors.Gaussian(5.0)}, px.priors.Gaussian(1.0))
    start = {"a": jnp.zeros(()), "b": jnp.zeros(()), "w": jnp.ones(())}
    model = px.Model((start, wave), prior, px.likelihoods.Gaussian(noise=0.5))
    w = np.linspace(0, 60, 20_001)
    features = np.stack([np.sin(np.outer(w, x)), np.cos(np.outer(w, x))], axis=-1)
    precision = np.einsum("wni,wnj->wij", features, features) / 0.25 + np.eye(2)
    best = np.linalg.solve(precision, np.einsum("wni,n->wi", features, y / 0.25)[..., None])
    misfit = y - (features @ best)[..., 0]
    energy = 0.5 * (np.sum(misfit**2, 1) / 0.25 + np.sum(best[..., 0] ** 2, 1) + w**2 / 25)
    modes = np.flatnonzero((energy[1:-1] < energy[:-2]) & (energy[1:-1] < energy[2:])) + 1
    modes = modes[np.argsort(energy[modes])]
    return model, (x[:, None].astype("float32"), y.astype("float32")), w[modes], energy[modes]


def found(posterior, mode):
    return abs(abs(float(posterior.point.network["w"])) - mode) < 0.02


@pytest.mark.parametrize("schedule", ["geometric", "adaptive"])
def test_finds_the_global_mode(schedule):
    model, data, modes, energy = frequency()
    assert len(modes) > 30
    assert energy[1] > energy[0] + 3
    method = px.SimulatedAnnealing(schedule=schedule)
    hits = [found(px.fit(model, data, method, steps=4000, key=k), modes[0]) for k in range(20)]
    assert sum(hits) >= 19


def test_gradient_ascent_does_not():
    model, data, modes, _ = frequency()
    rng = np.random.default_rng(7)
    hits = []
    for _ in range(20):  # starts from the prior
        start = {"a": rng.normal(), "b": rng.normal(), "w": 5 * rng.normal()}
        init = px.Parameters({k: jnp.asarray(v, "float32") for k, v in start.items()}, {})
        method = px.MaximumAPosteriori(learning_rate=0.05)
        hits.append(found(px.fit(model, data, method, epochs=1000, init=init), modes[0]))
    assert 0 < sum(hits) < 10


@pytest.mark.usefixtures("hasty_compiler")
def test_best_point_and_path():
    model, (x, y), *_ = frequency()
    method = px.SimulatedAnnealing()
    posterior = px.fit(model, (x, y), method, steps=4000, key=0)
    best = posterior.history["best_energy"]
    assert np.all(np.diff(best) <= 0)
    np.testing.assert_allclose(-model.log_joint(posterior.point, x, y), best[-1], rtol=1e-5)
    path = posterior.path
    np.testing.assert_array_equal(path["step"], np.arange(0, 4000, 40))
    np.testing.assert_array_equal(
        path["temperature"], posterior.history["temperature"][path["step"]]
    )
    again = jax.vmap(lambda w: -model.log_joint(w, x, y))(path["parameters"])
    np.testing.assert_allclose(again, path["energy"], rtol=1e-4)
    assert np.min(path["energy"]) >= best[-1]
    # the step shrinks as √T, and so the chains go on moving
    late = slice(2000, None)
    assert abs(np.mean(posterior.history["acceptance"][late]) - 0.234) < 0.1
    # a start for others
    draws = px.fit(model, (x, y), px.NUTS(chains=2, warmup=50), steps=50, init=posterior, key=1)
    w = np.asarray(draws.draws.network["w"])
    assert np.all(np.abs(w - float(posterior.point.network["w"])) < 0.5)


def quick(schedule, steps=50, **options):
    model, data, *_ = frequency()
    method = px.SimulatedAnnealing(chains=2, schedule=schedule, path=10, **options)
    return px.fit(model, data, method, steps=steps, key=0)


@pytest.mark.usefixtures("hasty_compiler")
def test_schedules_follow_their_formulas():
    t = np.arange(50)
    found = quick("geometric", start_temperature=10.0, end_temperature=0.1).history["temperature"]
    np.testing.assert_allclose(found, 10 * (0.1 / 10) ** (t / 49), rtol=1e-5)
    found = quick("logarithmic", start_temperature=10.0).history["temperature"]
    np.testing.assert_allclose(found, 10 * np.log(2) / np.log(t + 2), rtol=1e-5)
    # adaptive: geometric while no variance is known, then of another pace, never outside
    options = {"start_temperature": 10.0, "end_temperature": 0.1}
    posterior = quick("adaptive", steps=400, **options)
    found = posterior.history["temperature"]
    np.testing.assert_allclose(found[:50], 10 * (0.1 / 10) ** (t / 399), rtol=1e-4)
    assert np.all(np.diff(found) < 0)
    rates = np.diff(np.log(found)) * np.arange(399, 0, -1) / np.log(0.1 / found[:-1])
    assert np.all((rates[:-5] > 0.19) & (rates[:-5] < 5.01))
    assert np.std(rates[60:-5]) > 0.01
    assert 0.1 * (1 - 1e-5) <= found[-1] < 0.2


@pytest.mark.usefixtures("hasty_compiler")
def test_default_temperatures():
    """Hot: the energy's deviation over the prior. Cold: 0.02 over the number of weights."""
    model, data, *_ = frequency()
    ready = model.for_targets((1,), jnp.float32)
    energies = [
        -float(ready.log_joint(ready.sample_prior(jax.random.key(k)), *data)) for k in range(100)
    ]
    low, high = np.quantile(energies, [0.25, 0.75])
    found = quick("geometric").history["temperature"]
    assert 0.5 < found[0] / ((high - low) / 1.349) < 2  # quartiles of 64 and of 100 draws
    np.testing.assert_allclose(found[-1], 0.02 / 3, rtol=1e-4)


@pytest.mark.usefixtures("hasty_compiler")
def test_discrete_weights():
    """The best of 3^6 states, by enumeration."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=(10, 6)).astype("float32")
    y = (x @ [1, 0, -1, 1, 1, 0] + rng.normal(size=10)).astype("float32")
    states = np.array(np.meshgrid(*[[-1.0, 0.0, 1.0]] * 6)).reshape(6, -1).T
    best = states[np.argmin(np.sum((y - states @ x.T) ** 2, axis=1))]
    network = ({"w": jnp.zeros((6, 1))}, lambda params, x: x @ params["w"])
    prior = px.priors.Grid([-1.0, 0.0, 1.0])
    model = px.Model(network, prior, px.likelihoods.Gaussian(noise=0.5))
    for key in range(3):
        posterior = px.fit(model, (x, y), px.SimulatedAnnealing(), steps=500, key=key)
        np.testing.assert_array_equal(posterior.point.network["w"][:, 0], best)


@pytest.mark.usefixtures("hasty_compiler")
def test_save_and_load_the_path(tmp_path):
    posterior = quick("geometric")
    posterior.save(tmp_path / "annealed.px")
    same = px.load(tmp_path / "annealed.px", model=posterior.model)
    for one, other in zip(
        jax.tree.leaves((posterior.point, posterior.path)),
        jax.tree.leaves((same.point, same.path)),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)
    assert len(same.path["energy"]) == 10


@pytest.mark.usefixtures("hasty_compiler")
def test_bad_settings_and_bad_starts():
    with pytest.raises(ValueError, match="schedule must be one of 'geometric'"):
        px.SimulatedAnnealing(schedule="linear")
    with pytest.raises(ValueError, match="end_temperature: the logarithmic schedule has none"):
        px.SimulatedAnnealing(schedule="logarithmic", end_temperature=0.1)
    with pytest.raises(ValueError, match=r"start_temperature=0.1 must not be below"):
        px.SimulatedAnnealing(start_temperature=0.1, end_temperature=1.0)
    with pytest.raises(ValueError, match="start_temperature must be a finite number above 0"):
        px.SimulatedAnnealing(start_temperature=0.0)
    x = np.ones((4, 1), "float32")
    network = ({"w": jnp.ones(())}, lambda params, x: jnp.log(params["w"] - 2) * x)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Gaussian(0.1))
    with pytest.raises(px.NonFiniteError, match="energy is not finite"):
        px.fit(model, (x, x[:, 0]), px.SimulatedAnnealing(), steps=50)
