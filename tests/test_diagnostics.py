"""Chains diagnosed: numbers against arviz-stats and theory, verdicts against chains made to fit."""

import dataclasses

import arviz_stats
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from scipy import stats

import posterax as px
from posterax.diagnostics import chain_statistics as cs
from posterax.files.container import read, write
from posterax.posteriors import Draws, MeanFieldGaussian, Point
from posterax.predictive import Targets

X = np.linspace(-1, 1, 5)[:, None].astype("float32")
TAILS = (0.05, 0.95)  # Vehtari et al. 2021; ArviZ itself takes the ends of its default interval
GAUSSIAN = px.likelihoods.Gaussian(0.1)


def posterior_of(leaves, hidden=(), outputs=1, likelihood=GAUSSIAN, **more) -> Draws:
    """Chains with these values for the arrays of a small network, (chain, draw, …) each."""
    model = px.Model(px.networks.MLP(1, outputs, hidden, key=0), likelihood=likelihood)
    model = model.for_targets((), np.dtype("float32"))
    draws = jax.tree.unflatten(
        jax.tree.structure(model.parameters), [jnp.asarray(a, jnp.float32) for a in leaves]
    )
    fields = {"chained": True} | more
    return Draws(model, model.network.state, Targets((), (1,)), draws=draws, **fields)


def line(slope, offset, **more) -> Draws:
    """Chains of y = slope · x + offset, (chain, draw) each."""
    return posterior_of([slope[..., None, None], offset[..., None]], **more)


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def autoregressive(chains: int, draws: int, count: int, phi: float, seed: int = 0) -> np.ndarray:
    """Stationary AR(1) chains with mean 0 and variance 1."""
    steps = noise(chains, draws, count, seed=seed)
    values = np.empty_like(steps)
    values[:, 0] = steps[:, 0]
    for t in range(1, draws):
        values[:, t] = phi * values[:, t - 1] + np.sqrt(1 - phi**2) * steps[:, t]
    return values


# -- expectations


def test_expectation_counts_autocorrelation():
    """AR(1), φ = 0.9: Var[mean] = (1 + 2 Σ (1 − k/n) φᵏ) / (C n) exactly, 19 times 1/(C n)."""
    chains, draws, count, phi = 4, 1000, 200, 0.9
    values = autoregressive(chains, draws, count, phi)
    # 200 weights are 200 repetitions of the experiment
    posterior = posterior_of([values[..., :100, None], values[..., 100:]], outputs=100)
    mean, error = posterior.expectation(
        lambda w: jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(w)])
    )
    lag = np.arange(1, draws)
    exact = (1 + 2 * np.sum((1 - lag / draws) * phi**lag)) / (chains * draws)
    np.testing.assert_allclose(mean, values.mean((0, 1)), atol=1e-5)
    # cut off and monotone, the estimate is biased by the order of 19 draws in 500 (half a chain)
    assert np.mean(np.square(error)) == pytest.approx(exact, rel=0.1)
    # z-test: the count of intervals that hold the truth is Binomial(200, 0.95)
    held = int(np.sum(np.abs(mean / error) < stats.norm.ppf(0.975)))
    assert abs(held - 0.95 * count) < 3 * np.sqrt(count * 0.95 * 0.05)
    # without the field the error is that of independent draws, four times too small
    loose = dataclasses.replace(posterior, chained=False)
    _, small = loose.expectation(lambda w: w.network.layers[0].bias)
    np.testing.assert_allclose(small, values[..., 100:].std((0, 1)) / np.sqrt(4000), rtol=1e-3)


def test_expectation_of_few_samples_keeps_chains():
    slope = autoregressive(2, 100, 1, 0.5)[..., 0]
    posterior = line(slope, noise(2, 100))
    mean, error = posterior.expectation(lambda w: w.network.layers[0].weight[0, 0], samples=39)
    some = slope[:, np.linspace(0, 99, 20).round().astype(int)]
    assert mean == pytest.approx(some.mean(), abs=1e-6)
    assert error == pytest.approx(float(cs.mcse(some)), rel=1e-5)
    with pytest.raises(ValueError, match="samples"):
        posterior.expectation(lambda w: w.network.layers[0].bias, samples=0)


def test_expectation_of_weighted_draws_is_the_delta_method():
    slope, log_weights = noise(2, 50), noise(2, 50, seed=1)
    posterior = line(slope, slope, log_weights=jnp.asarray(log_weights))
    mean, error = posterior.expectation(lambda w: w.network.layers[0].bias[0])
    w = np.exp(log_weights) / np.exp(log_weights).sum()
    assert mean == pytest.approx((w * slope).sum(), abs=1e-5)
    assert error == pytest.approx(np.sqrt((w**2 * (slope - mean) ** 2).sum()), rel=1e-4)


def test_standard_errors_where_chains_are_short_or_still():
    values = noise(4, 3, 2)
    means = values.mean(1)
    np.testing.assert_allclose(cs.mcse(values), means.std(0, ddof=1) / 2, rtol=1e-12)
    np.testing.assert_allclose(
        cs.mcse(values[:1]), values[0].std(0, ddof=1) / np.sqrt(3), rtol=1e-12
    )
    assert np.isnan(cs.mcse(np.ones((1, 1, 2)))).all()  # of one draw nothing is known
    assert cs.mcse(np.full((4, 50), 3.3)) == 0
    broken = noise(4, 50, 2)
    broken[0, 0, 1] = np.inf
    assert np.isnan(cs.mcse(broken)).tolist() == [False, True]
    # in any units
    np.testing.assert_allclose(cs.mcse(1e-18 * noise(4, 50)), 1e-18 * cs.mcse(noise(4, 50)))


# -- estimators


def test_estimators_are_those_of_arviz():
    values = autoregressive(4, 101, 3, 0.7)
    values[0, :, 1] += 1
    found = cs.convergence(values)
    labelled = xr.Dataset({"v": (("chain", "draw", "i"), values)})
    np.testing.assert_allclose(found.rhat, arviz_stats.rhat(labelled)["v"], rtol=1e-12)
    np.testing.assert_allclose(found.bulk, arviz_stats.ess(labelled)["v"], rtol=1e-12)
    tail = arviz_stats.ess(labelled, method="tail", prob=TAILS)["v"]
    np.testing.assert_allclose(found.tail, tail, rtol=1e-12)
    np.testing.assert_allclose(
        cs.mcse(values), arviz_stats.mcse(labelled, method="mean")["v"], rtol=1e-10
    )


def test_estimators_of_what_does_not_move_or_is_not_finite():
    values = noise(4, 50, 4)
    values[..., 1] = 0.3  # never moves
    values[..., 2] = np.arange(4)[:, None]  # each chain stays elsewhere
    values[2, 7, 3] = np.nan
    found = cs.convergence(values)
    assert found.rhat[0] < 1.1
    assert np.isnan([part[1] for part in found]).all()
    assert found.rhat[2] == np.inf
    assert found.bulk[2] < 10
    assert (found.rhat[3], found.bulk[3], found.tail[3]) == (np.inf, 0, 0)
    # weights that are one of two values have ties for ranks, and are like any other
    signs = cs.convergence(np.sign(noise(4, 500, 3)).astype(int))
    assert (signs.rhat < 1.02).all()
    assert (signs.bulk > 1000).all()
    # rounding of a program that evaluates draws in groups is no movement
    flicker = np.float32(0.3) * (1 + np.float32(1e-7) * np.sign(noise(4, 50, 1))).astype("float32")
    assert np.isnan(cs.convergence(flicker).rhat).all()


def test_energy_fractions_are_betancourts():
    energy = np.stack([noise(200), np.cumsum(noise(200)), np.ones(200)])
    want = np.sum(np.diff(energy[:2]) ** 2, 1) / 199 / energy[:2].var(1, ddof=1)
    np.testing.assert_allclose(cs.energy_fractions(energy), [*want, 0], rtol=1e-10)


# -- diagnoses


def sampler_stats(shape, *, divergences=0, energy=None, deep=0):
    diverging, reached = np.zeros(shape, bool), np.zeros(shape, bool)
    diverging.flat[:divergences], reached.flat[:deep] = True, True
    return {
        "diverging": diverging,
        "energy": noise(*shape, seed=9) if energy is None else energy,
        "acceptance_rate": np.full(shape, 0.8),
        "lp": noise(*shape, seed=8),
        "reached_max_treedepth": reached,
    }


@pytest.fixture(scope="module")
def good() -> Draws:
    shape = (4, 500)
    return line(noise(*shape), noise(*shape, seed=1), stats=sampler_stats(shape))


def test_good_chains(good):
    found = good.diagnose(X)
    assert found.ok
    assert found.verdict.startswith("The chains agree on the predictions (R-hat at most 1.0")
    assert found.divergences == 0
    assert found.depth_hits == 0
    assert found.acceptance == pytest.approx(0.8)
    assert found.frozen == ()
    values = good.predict(X).outputs().reshape(4, 500, 5)
    want = xr.Dataset({"v": (("chain", "draw", "i"), values.astype(float))})
    np.testing.assert_allclose(found.predictions.rhat, arviz_stats.rhat(want)["v"], rtol=1e-6)
    names = ["network.layers.0.weight[0, 0]", "network.layers.0.bias[0]"]
    assert found.weights.names == names
    tree = good.to_arviz()
    assert set(arviz_stats.summary(tree).index) == set(names)
    draws = tree.posterior.to_dataset().astype(float)
    for got, want in (
        (found.weights.rhat, arviz_stats.rhat(draws)),
        (found.weights.bulk, arviz_stats.ess(draws)),
        (found.weights.tail, arviz_stats.ess(draws, method="tail", prob=TAILS)),
    ):
        each = [np.ravel(want[f"network.layers.0.{leaf}"]) for leaf in ("weight", "bias")]
        np.testing.assert_allclose(got, np.concatenate(each), rtol=1e-6)


def test_the_page_the_table_and_the_dictionary(good):
    found = good.diagnose(X)
    page = str(found)
    for part in ("4 chains × 500 draws", "bulk ESS", "divergences 0 of 2,000", "E-BFMI", "f(x["):
        assert part in page
    assert all(len(row) <= 110 for row in page.splitlines())
    table = found.table
    assert list(table.index) == ["weights", "predictions"]
    assert table.loc["weights", "rhat_max"] == pytest.approx(found.weights.rhat.max())
    told = found.to_dict()
    assert told["ok"] is True
    assert told["predictions"]["worst"] in found.predictions.names
    assert len(told["energy"]) == 4
    without = good.diagnose()
    assert without.ok
    assert without.predictions is None
    assert "posterior.diagnose(x)" in without.verdict


def test_chains_in_two_modes():
    side = np.array([1, 1, -1, 1])[:, None]
    found = line(5 * side + noise(4, 500), noise(4, 500, seed=1)).diagnose(X)
    assert not found.ok
    assert "disagree on the predictions (R-hat" in found.verdict
    assert "init=" in found.verdict
    assert "steps=5000" in found.verdict  # ten times: 4 effective draws are far from 400
    assert found.divergences is None  # this sampler tells of none


def test_hidden_units_that_change_places():
    """Each chain has the hidden units in another order: other weights, the same functions."""
    base = [np.array([[1.0], [-2.0], [0.5]]), np.array([0.3, -1.0, 0.0])]
    base += [np.array([[1.0, 0.5, -1.5]]), np.array([0.1])]
    leaves = [a + 0.1 * noise(4, 500, *a.shape, seed=i) for i, a in enumerate(base)]
    for chain, order in enumerate(([0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 2, 1])):
        leaves[0][chain] = leaves[0][chain][:, order]
        leaves[1][chain] = leaves[1][chain][:, order]
        leaves[2][chain] = leaves[2][chain][:, :, order]
    posterior = posterior_of(leaves, hidden=(3,))
    found = posterior.diagnose(X)
    assert found.weights.rhat.max() > 1.5
    assert found.predictions.rhat.max() < 1.01
    assert found.ok
    assert "agree on the predictions" in found.verdict
    assert "is expected: hidden units" in found.verdict
    blind = posterior.diagnose()
    assert not blind.ok
    assert "may be harmless" in blind.verdict
    assert "posterior.diagnose(x)" in blind.verdict


def test_divergences():
    shape = (4, 500)
    many = line(noise(*shape), noise(*shape, seed=1), stats=sampler_stats(shape, divergences=12))
    assert not many.diagnose(X).ok
    verdict = many.diagnose(X).verdict
    assert verdict.startswith("12 divergences (0.6% of transitions)")
    assert "target_acceptance" in verdict
    one = line(noise(*shape), noise(*shape, seed=1), stats=sampler_stats(shape, divergences=1))
    assert one.diagnose(X).ok
    assert "1 divergence (" in one.diagnose(X).verdict


def test_frozen_chains():
    still = np.broadcast_to(np.arange(4.0)[:, None], (4, 50))
    for place in (still, np.ones((4, 50))):  # each elsewhere, or all at one point
        found = line(place, place).diagnose(X)
        assert not found.ok
        assert found.frozen == (0, 1, 2, 3)
        assert found.verdict.startswith("No chain ever moved")
        assert "nan" not in str(found)
    partly = noise(4, 200)
    partly[2] = 0.4
    found = line(partly, partly).diagnose(X)
    assert not found.ok
    assert found.frozen == (2,)
    assert "1 of 4 chains never moved (number 2" in found.verdict
    # one weight that stays while the others move is left out, and that is said
    found = line(noise(4, 500), np.ones((4, 500))).diagnose(X[1:2])
    assert found.ok
    assert "weights: 1 never change and are left out" in str(found)
    assert found.to_dict()["weights"]["still"] == 1


def test_slow_chains_are_told_to_run_longer():
    slow = autoregressive(4, 2000, 2, 0.97)
    found = line(slow[..., 0], slow[..., 1]).diagnose(X)
    assert not found.ok
    assert "steps=" in found.verdict
    enough = dataclasses.replace(found.predictions, rhat=np.full(5, 1.005), bulk=np.full(5, 90.0))
    found = dataclasses.replace(found, predictions=enough)
    assert not found.ok
    assert "As few as 90 effective draws of 8,000" in found.verdict
    assert "steps=8900" in found.verdict  # 2,000 · 400 / 90, rounded up


def test_energy_and_depth():
    shape = (4, 500)
    energy = noise(*shape, seed=9)
    energy[1] = np.cumsum(energy[1])
    told = sampler_stats(shape, energy=energy, deep=1000)
    found = line(noise(*shape), noise(*shape, seed=1), stats=told).diagnose(X)
    assert not found.ok
    assert "energy of chain 1 changes too little" in found.verdict
    assert "50% of trajectories were cut off" in found.verdict


def test_one_chain_and_short_chains():
    found = line(noise(1, 400), noise(1, 400, seed=1)).diagnose(X)
    assert not found.ok
    assert np.isfinite(found.predictions.rhat).all()
    assert found.verdict.startswith("One chain alone")
    drifting = np.linspace(0, 9, 400)[None] + noise(1, 400)
    assert line(drifting, noise(1, 400)).diagnose(X[:1]).predictions.rhat.max() > 1.5
    with pytest.raises(ValueError, match="3 draws of 4 chains say nothing"):
        line(noise(4, 3), noise(4, 3)).diagnose(X)


def test_at_most_so_many_quantities():
    values = noise(2, 20, 40)
    posterior = posterior_of([values[..., :20, None], values[..., 20:]], outputs=20)
    found = posterior.diagnose(X, most=10)
    assert len(found.weights.names) == len(found.predictions.names) == 10
    assert (found.weights.total, found.predictions.total) == (40, 100)
    assert "weights: 10 of 40, evenly chosen" in str(found)
    place = found.predictions.names.index("f(x[0])[19]")
    whole = posterior.diagnose(X)
    other = whole.predictions.names.index("f(x[0])[19]")
    assert found.predictions.rhat[place] == pytest.approx(whole.predictions.rhat[other], rel=1e-6)
    with pytest.raises(ValueError, match="most"):
        posterior.diagnose(X, most=0)


def test_what_all_classes_share_does_not_count():
    """A number added to all logits changes no probability: chains may disagree about it."""
    values = noise(4, 200, 6)
    shift = 10 * np.arange(4)[:, None, None]
    leaves = [values[..., :3, None], values[..., 3:] + shift]
    found = posterior_of(leaves, outputs=3, likelihood=px.likelihoods.Categorical()).diagnose(X)
    assert found.weights.rhat.max() > 1.5
    assert found.predictions.rhat.max() < 1.05


def test_weighted_draws():
    equal = noise(1, 400)
    mild = line(equal, equal, chained=False, log_weights=jnp.asarray(0.3 * noise(1, 400, seed=2)))
    found = mild.diagnose()
    assert found.ok
    assert 300 < found.ess < 400
    assert "tail is harmless" in found.verdict
    heavy = line(equal, equal, chained=False, log_weights=jnp.asarray(6 * noise(1, 400, seed=2)))
    found = heavy.diagnose()
    assert not found.ok
    assert found.k_hat > 0.7
    assert "too heavy a tail" in found.verdict
    assert "k-hat" in str(found)
    assert found.table.loc["weighted", "k_hat"] == found.k_hat
    assert found.to_dict()["weights"] is None


def test_posteriors_without_chains_have_an_answer_too(good):
    model, targets = good.model, good.targets
    mu = model.parameters
    others = [
        Point(model, None, targets, point=mu),
        MeanFieldGaussian(model, None, targets, mu=mu, rho=mu),
        dataclasses.replace(good, chained=False),
    ]
    for posterior in others:
        found = posterior.diagnose(X)
        assert (found.chains, found.weights) == (0, None)
        assert "no record of its fit" in found.verdict


# -- to other tools


def test_to_arviz(good):
    tree = good.to_arviz()
    weight = tree.posterior["network.layers.0.weight"]
    assert weight.dims[:2] == ("chain", "draw")
    np.testing.assert_array_equal(weight.values, good.draws.network.layers[0].weight)
    assert set(good.stats) <= set(tree.sample_stats)
    assert tree.posterior.attrs["inference_library"] == "posterax"
    weighted = dataclasses.replace(good, chained=False, log_weights=jnp.zeros((4, 500)), stats=None)
    assert list(weighted.to_arviz().sample_stats) == ["log_weights"]
    bare = dataclasses.replace(good, stats=None).to_arviz()
    assert list(bare.children) == ["posterior"]


def test_files_keep_chains(good, tmp_path):
    good.save(tmp_path / "new.px")
    same = px.load(tmp_path / "new.px")
    assert same.chained
    np.testing.assert_array_equal(same.diagnose(X).weights.rhat, good.diagnose(X).weights.rhat)
    arrays, header = read(tmp_path / "new.px")
    del header["family"]["chained"]  # as files were before there was such a field
    write(tmp_path / "old.px", arrays, header)
    assert not px.load(tmp_path / "old.px").chained


# -- pictures


@pytest.fixture
def axes():
    from matplotlib.figure import Figure

    return Figure().subplots()


def test_trace(axes, good):
    drawn = px.plot.trace(axes, good, "network.layers.0.bias[0]", title="an offset")
    assert drawn is axes
    labels = [row.get_label() for row in axes.get_lines()]
    assert [text for text in labels if text.startswith("chain")] == [f"chain {c}" for c in range(4)]
    assert axes.get_ylabel() == "network.layers.0.bias[0]"
    np.testing.assert_allclose(
        axes.get_lines()[0].get_ydata(), good.draws.network.layers[0].bias[0, :, 0], rtol=1e-6
    )


def test_trace_finds_the_worst_and_marks_divergences(axes):
    shape = (4, 100)
    side = 3.0 * np.arange(4)[:, None]
    posterior = line(noise(*shape), noise(*shape) + side, stats=sampler_stats(shape, divergences=3))
    px.plot.trace(axes, posterior)
    assert axes.get_ylabel() == "network.layers.0.bias[0]"
    assert "divergence" in [row.get_label() for row in axes.get_lines()]


def test_ranks(axes, good):
    px.plot.ranks(axes, good, x=X)
    # 5 % of 80 bars are outside by chance: Binomial(80, 0.05) is above 12 once in 1,000 times
    assert sum(bar.get_hatch() is not None for bar in axes.patches) <= 12
    assert sum(bar.get_height() > 0 for bar in axes.patches) == 80
    axes.clear()
    side = np.array([1, 1, -1, 1])[:, None]
    px.plot.ranks(axes, line(5 * side + noise(4, 500), noise(4, 500)), x=X)
    assert sum(bar.get_hatch() is not None for bar in axes.patches) > 40


def test_energy(axes, good):
    assert px.plot.energy(axes, good) is axes
    _, labels = axes.get_legend_handles_labels()
    assert labels[0] == "energy"
    assert f"E-BFMI {cs.energy_fractions(good.stats['energy']).min():.2f}" in labels[1]


def test_pictures_of_what_is_not_there(axes, good):
    loose = dataclasses.replace(good, chained=False)
    silent = dataclasses.replace(good, stats=None)
    for picture in (px.plot.trace, px.plot.ranks, px.plot.energy):
        with pytest.raises(ValueError, match="draws Markov chains"):
            picture(axes, loose)
    with pytest.raises(ValueError, match="reports none"):
        px.plot.energy(axes, silent)
    for of, why in (
        ("layers.9[0]", "no weight .*Statistics"),
        ("network.layers.0.bias[7]", "no weight"),
    ):
        with pytest.raises(ValueError, match=why):
            px.plot.trace(axes, good, of)
    for of in ("f(x[9])", "slope"):
        with pytest.raises(ValueError, match=r"from f\(x\[0\]\) to f\(x\[4\]\)"):
            px.plot.trace(axes, good, of, x=X)
    with pytest.raises(ValueError, match="each input has 1 outputs"):
        px.plot.trace(axes, good, "f(x[1])[3]", x=X)
    assert px.plot.trace(axes, good, "lp").get_ylabel() == "lp"
    assert px.plot.trace(axes, good, "f(x[1])", x=X).get_ylabel() == "f(x[1])"
