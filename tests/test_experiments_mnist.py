"""The MNIST and pruning experiments: who sees which images, how settings are chosen, the pages."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from typer.testing import CliRunner

import experiments
import posterax as px
from experiments import mnist, mnist_report, pruning, pruning_report
from experiments.__main__ import app
from experiments.data import inputs, load
from experiments.perceptrons import perceptron
from experiments.store import Store
from posterax.posteriors import MeanFieldGaussian
from posterax.predictive import Targets

MIXTURE = "BbB, scale mixture"
RESULTS = Path(__file__).parents[1] / "docs/results"
BOTH = ("SGD", MIXTURE)
TRAINING, TESTING = np.arange(1200), 5000 + np.arange(300)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images in ten classes that differ in where they are bright; two pixels have their number."""
    where, rng, stored = tmp_path_factory.mktemp("sets"), np.random.default_rng(0), {}
    for name, own in (("train", TRAINING), ("test", TESTING)):
        x, y = rng.integers(0, 60, (len(own), 28, 28)), own % 10
        for image, digit in zip(x, y, strict=True):
            image[2 * digit : 2 * digit + 4] += 180
        x[:, 0, 0], x[:, 0, 1] = own % 251, own // 251
        stored |= {f"x_{name}": x.astype(np.uint8), f"y_{name}": y.astype(np.int32)}
    np.savez(where / "mnist.npz", **stored)
    return where


@pytest.fixture
def sets(folder, monkeypatch):
    monkeypatch.setenv("POSTERAX_DATA", str(folder))


def numbers(x):
    codes = np.rint(126 * np.asarray(x)[:, :2]).astype(int)
    return codes[:, 0] + 251 * codes[:, 1]


class Fits:
    """In the place of training and prediction: notes who is shown what, and makes up figures."""

    def __init__(self, monkeypatch):
        self.trained, self.shown = [], []
        monkeypatch.setattr(mnist, "train", self.train)
        monkeypatch.setattr(mnist, "scores", self.scores)

    def train(self, row, settings, data, width, seed):
        self.trained.append((row, settings, numbers(data[0]), width, seed))
        return self.trained[-1]

    def scores(self, posterior, x, y, key):
        self.shown.append((*posterior, numbers(x)))
        error, nll, ece = 0.01 * np.random.default_rng([len(posterior[0]), key]).random(3)
        return {"mean": {"error": error, "nll": nll, "ece": ece}, "draws": {
            "error": error + 0.001, "nll": nll + 0.001, "ece": ece + 0.001,
        }}  # fmt: skip


# -- who sees what


def test_settings_are_chosen_without_test_images_and_tested_networks_see_all_others(
    sets, monkeypatch
):
    fits = Fits(monkeypatch)
    size = mnist.BUDGETS["quick"]._replace(images=1200, held=200, test=300, study_seeds=2)
    monkeypatch.setitem(mnist.BUDGETS, "quick", size)
    mnist.run("quick", 3, lambda settings: Store(None, settings), BOTH)
    studied = [fit for fit in fits.shown if fit[4] >= mnist.STUDY_SEED]
    final = [fit for fit in fits.shown if fit[4] < mnist.STUDY_SEED]
    assert [len(studied), len(final)] == [2 * 2 * 2, 2 * 3]  # rows × candidates or seeds
    for _, settings, own, _, _, shown in studied:
        assert np.array_equal(own, TRAINING[:1000])
        assert np.array_equal(shown, TRAINING[1000:])
        assert settings["epochs"] == size.study * size.epochs
    for _, settings, own, _, _, shown in final:
        assert np.array_equal(own, TRAINING)
        assert np.array_equal(shown, TESTING)
        assert settings["epochs"] == size.epochs
    assert len(fits.trained) == len(fits.shown)  # every network is scored once


def test_the_fewest_errors_are_chosen_then_the_smallest_nll(sets, monkeypatch):
    def study(row, settings, digits, size):
        error, nll = {0.1: (0.015, 0.9), 0.03: (0.015 + 1e-17, 0.8), 0.01: (0.016, 0.1)}.get(
            settings["learning_rate"], (0.02, 0.0)
        )
        return {"error": error, "nll": nll}

    fits = Fits(monkeypatch)
    monkeypatch.setattr(mnist, "study", study)
    monkeypatch.setitem(
        mnist.CANDIDATES, "SGD", tuple({"learning_rate": r} for r in (0.1, 0.01, 0.03, 0.001))
    )
    size = mnist.BUDGETS["quick"]._replace(candidates=9)
    monkeypatch.setitem(mnist.BUDGETS, "quick", size)
    mnist.run("quick", 1, lambda settings: Store(None, settings), ["SGD"])
    assert [fit[1]["learning_rate"] for fit in fits.trained] == [0.03]

    # without a study the first candidate is taken
    monkeypatch.setitem(mnist.BUDGETS, "quick", size._replace(study=0))
    store = mnist.run("quick", 1, lambda settings: Store(None, settings), ["SGD"])
    assert list(store.runs) == ["test/SGD/32/0"]
    assert fits.trained[-1][1]["learning_rate"] == 0.1


def test_a_stopped_run_goes_on_and_refuses_other_settings(sets, tmp_path, monkeypatch):
    fits = Fits(monkeypatch)
    keep = lambda settings: Store(tmp_path / "mnist.json", settings)  # noqa: E731
    mnist.run("quick", 1, keep, ["SGD"])
    before = len(fits.trained)
    mnist.run("quick", 2, keep, ["SGD"])
    assert len(fits.trained) == before + 1
    changed = tuple(one | {"batch_size": 64} for one in mnist.CANDIDATES["SGD"])
    names = [mnist.label(one) for one in mnist.CANDIDATES["SGD"]]
    monkeypatch.setattr(mnist, "label", lambda one: names[changed.index(one)])
    monkeypatch.setitem(mnist.CANDIDATES, "SGD", changed)
    with pytest.raises(ValueError, match=r"study/SGD/.* was made with .*delete that entry"):
        mnist.run("quick", 2, keep, ["SGD"])


@pytest.mark.parametrize("name", ["mnist", "pruning"])
def test_the_stored_run_is_whole_and_its_choices_are_the_first_candidates(
    name, tmp_path, monkeypatch
):
    """The command, given the file in docs/results, finds nothing left to make."""
    module = {"mnist": mnist, "pruning": pruning}[name]
    shutil.copy(RESULTS / f"{name}.json", tmp_path)
    monkeypatch.setattr(module, "load", lambda name: None)
    for made in ("study", "final"):
        monkeypatch.setattr(module, made, lambda *arguments: pytest.fail("made again"))
    seeds = experiments.EXPERIMENTS[name].seeds
    keep = lambda settings: Store(tmp_path / f"{name}.json", settings)  # noqa: E731
    store, size = module.run("full", seeds, keep), module.BUDGETS["full"]
    rows = mnist.CANDIDATES if name == "mnist" else {MIXTURE: pruning.CANDIDATES}
    for row, tried in rows.items():
        defaults = mnist.DEFAULTS[row] if name == "mnist" else pruning.DEFAULTS
        assert mnist.choose(store, row) == mnist.complete(tried[0], defaults, size)


# -- one network


def test_settings_become_methods_and_priors():
    one = mnist.MIXTURE | {"kl_weights": "blundell", "samples": 2, "sigma2": 0.01}
    method = mnist.method(MIXTURE, one, 1000)
    assert method == px.BayesByBackprop(
        learning_rate=1e-3, kl_weights="blundell", samples=2, initial_rho=-5.0,
        rho_rate=1.0, schedule="cosine", estimator="weight",
    )  # fmt: skip
    prior = mnist.prior(one)
    assert isinstance(prior, px.priors.ScaleMixture)
    assert float(prior.sigma2) == pytest.approx(0.01)
    assert isinstance(mnist.prior(mnist.BBB | {"sigma": 0.5}), px.priors.Gaussian)
    sgd = mnist.DEFAULTS["SGD"] | {"learning_rate": 0.1}
    assert mnist.method("SGD", sgd, 1000).optimizer is not None
    assert mnist.method("SGD", sgd | {"optimizer": "adam"}, 1000).optimizer is None
    for row, tried in mnist.CANDIDATES.items():
        for given in tried:  # every candidate can be trained: no name is misspelt
            known = mnist.DEFAULTS[row].keys() | {"learning_rate", "optimizer", "input_rate"}
            assert given.keys() <= known
            mnist.method(row, mnist.DEFAULTS[row] | given, 1000)


@pytest.mark.usefixtures("hasty_compiler")
def test_scores_of_a_hand_made_posterior():
    """Logits are the biases of the last layer; one of them is random."""
    network = perceptron(2, "plain", key=0)
    model = px.Model(network, px.priors.Gaussian(1.0), px.likelihoods.Categorical())
    mu = jax.tree.map(lambda a: np.zeros(a.shape, "float32"), model.parameters)
    rho = jax.tree.map(lambda a: np.full(a.shape, -40, "float32"), mu)  # σ ≈ 0
    mu.network.layers[-1].bias[3], rho.network.layers[-1].bias[3] = 2.0, 4.0
    posterior = MeanFieldGaussian(model, (), Targets((), ()), mu=mu, rho=rho)
    x, y = np.zeros((4, 784), "float32"), np.array([3, 3, 3, 0])
    found = mnist.scores(posterior, x, y, key=0)
    p = np.exp(2.0 * (np.arange(10) == 3))
    p /= p.sum()
    assert found["mean"]["error"] == found["draws"]["error"] == 0.25
    assert found["mean"]["nll"] == pytest.approx(-np.log(p[y]).mean(), rel=1e-5)
    assert found["mean"]["ece"] == pytest.approx(abs(0.75 - p[3]), rel=1e-4)
    mean = posterior.predict(x, samples=50, key=0).mean[0]
    assert found["draws"]["nll"] == pytest.approx(-np.log(mean[y]).mean(), rel=1e-5)
    assert abs(found["draws"]["nll"] - found["mean"]["nll"]) > 0.01


@pytest.mark.usefixtures("hasty_compiler")
def test_dropout_of_pixels():
    """The first layer adds up the pixels: n = 784 of them, 1 / (1 − p) with probability 1 − p."""
    n, p, x = 784, 0.25, np.ones((400, 784), "float32")
    layers = [(np.ones((2, n)), np.zeros(2)), (np.eye(2), np.zeros(2))]

    def sums(**rates):
        network = perceptron(2, "dropout", rate=0.0, key=0, **rates)
        return jax.jit(lambda k: network.apply({"layers": layers}, (), x, k, True)[0])(
            jax.random.key(0)
        )[:, 0]

    np.testing.assert_allclose(sums(), n, rtol=1e-5)
    some = np.asarray(sums(input_rate=p), np.float64)
    variance = n * p / (1 - p)
    assert abs(some.mean() - n) < 4 * np.sqrt(variance / 400)
    assert abs(some.var() / variance - 1) < 4 * np.sqrt(2 / 400)


# -- the pages


def test_mnist_by_one_command(sets, tmp_path, monkeypatch):
    Fits(monkeypatch)
    (tmp_path / "mnist.md").write_text("# kept\n<!-- mnist -->old<!-- /mnist -->\n")
    command = ["mnist", "--budget", "quick", "--seeds", "2", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    page = (tmp_path / "mnist.md").read_text()
    assert page.startswith("# kept")
    assert "| learning_rate 0.001, input_rate 0.2 |" in page  # what was tried is listed
    assert "The others of their settings: rate 0.5, sigma 10, epochs 20" in page
    assert (tmp_path / "mnist.png").stat().st_size > 5_000


def hand_made(errors, **settings):
    size = mnist.BUDGETS["full"]._asdict() | {"budget": "full", "widths": [1200]} | settings
    store = Store(None, size)
    for row, values in errors.items():
        for seed, error in enumerate(values):
            other = {"error": error / 200, "nll": 0.04, "ece": 0.001}
            own = other | {"error": error / 100}
            by = {"mean": own, "draws": other}
            if mnist.HEADLINE[row] == "draws":
                by = {"mean": other, "draws": own}
            run = {"settings": mnist.DEFAULTS[row]} | by
            run |= {"seconds to train": 40.0, "seconds to predict": 1.0}
            store.get(f"test/{row}/1200/{seed}", lambda run=run: run)
    return store


def test_what_is_reached_and_what_is_missed_is_said():
    store = hand_made({MIXTURE: [1.2, 1.3, 1.4], "dropout": [1.4, 1.5, 1.6]})
    page = mnist_report.page(store)
    row = "Bayes by Backprop, scale mixture, temperature 1"
    assert f"1200 units: {row} with 1.30 % against 1.32 %" in page
    assert "**Missed**: dropout (Adam) with 1.50 % against 1.36 %" in page
    assert f"| {row} | 1.32 | **1.30 ± 0.06** | 0.65 ± 0.03 |" in page
    assert "cold" not in page
    for name, run in store.runs.items():
        if MIXTURE in name:
            run["settings"] = run["settings"] | {"temperature": 0.1}
    page = mnist_report.page(store)
    assert "| Bayes by Backprop, scale mixture, temperature 0.1 | 1.32 |" in page
    assert page.count("scale mixture: KL × 0.1") == 2  # in the verdict and below the table
    found = mnist_report.summary(store)[MIXTURE]["1200"]["draws"]["error"]
    assert found["mean"] == pytest.approx(0.013)
    assert found["error"] == pytest.approx(0.001 / np.sqrt(3))  # s/√n of 1.2, 1.3, 1.4 %


# -- pruning


def pruned_store(errors):
    store = Store(None, pruning.BUDGETS["full"]._asdict() | {"budget": "full"})
    for seed, own in enumerate(errors):
        fractions = {}
        for name, error in zip(pruning_report.PUBLISHED, own, strict=True):
            scores = {"error": error / 100, "nll": 0.05, "ece": 0.002}
            both = {"mean": scores, "draws": scores}
            costs = {"bytes": 1_000_000, "seconds to predict": 0.5}
            fractions[name] = both | costs | {
                "tuned": both, "compact": costs | {"units": [300, 40]},
            }  # fmt: skip
        ratios = {
            "edges": [-20.0, 0.0, 10.0], "density": [0.04, 0.02], "weights": 100,
            "at": {"0.5": -5.0, "0.75": 0.0, "0.95": 5.0, "0.98": 8.0},
        }  # fmt: skip
        run = {"settings": pruning.DEFAULTS, "fractions": fractions, "ratios": ratios}
        run |= {"seconds to train": 40.0}
        store.get(f"test/{seed}", lambda run=run: run)
    return store


def test_the_line_of_pruning_is_held_or_missed(tmp_path):
    good = pruned_store([[1.2, 1.2, 1.2, 1.25, 1.3], [1.3, 1.3, 1.3, 1.3, 1.4]])
    page = pruning_report.page(good)
    assert "is held: 1.25 %, +0.00 / +0.03 / +0.10." in page
    assert "not reached at 0, 50, 75 %" in page
    assert "| 98 % | 1.39 | **1.35 ± 0.05** | 0.10 ± 0.00 |" in page
    assert "| 98 % | 1.00 | 0.50 | 300 + 40 | 1.00 | 0.50 |" in page
    pruning_report.draw(good, tmp_path / "pruning.png")
    assert (tmp_path / "pruning.png").stat().st_size > 10_000
    late = pruned_store([[1.2, 1.2, 1.2, 1.25, 1.5]] * 2)
    assert "is **missed**: 1.20 %, +0.00 / +0.05 / +0.30." in pruning_report.page(late)


def test_pruning_candidates_are_judged_after_pruning(sets, monkeypatch):
    fits = Fits(monkeypatch)
    error = {0.0: 0.011, 0.5: 0.012, 0.75: 0.013, 0.95: 0.02, 0.98: 0.04}
    monkeypatch.setattr(mnist, "train", lambda row, s, data, *_: (numbers(data[0]), 0.0))
    monkeypatch.setattr(pruning, "prune", lambda p, fraction: (p[0], fraction))

    def scores(posterior, x, y, key):
        fits.shown.append((*posterior, numbers(x)))
        return {"draws": {"error": error[posterior[1]], "nll": 0.1, "ece": 0.0}}

    monkeypatch.setattr(mnist, "scores", scores)
    size = pruning.BUDGETS["quick"]._replace(images=1200, held=200, study=0.5, study_seeds=1)
    found = pruning.study(pruning.DEFAULTS, load("mnist"), size)
    assert found["error"] == pytest.approx(0.03)
    assert found["by fraction"]["0.98"]["error"] == 0.04
    assert len(fits.shown) == 3  # whole, and at the two fractions that judge
    for own, _, shown in fits.shown:
        assert np.array_equal(own, TRAINING[:1000])
        assert np.array_equal(shown, TRAINING[1000:])


@pytest.mark.slow
@pytest.mark.usefixtures("hasty_compiler")
def test_digits_are_learned_and_pruned(data_dir, tmp_path, monkeypatch):
    """1,000 real digits and a small network: three quarters of its weights can go."""
    monkeypatch.setattr(pruning, "FRACTIONS", (0.75,))
    digits = load("mnist")
    size = pruning.BUDGETS["quick"]
    settings = mnist.complete({"learning_rate": 3e-3}, pruning.DEFAULTS, size)
    found = pruning.final(settings, digits, size, seed=0)
    whole, left = found["fractions"]["0"], found["fractions"]["0.75"]
    # a guess errs in 90 %; the nearest class mean of the same images is no hard rival
    x, y = inputs(digits.x[:1000]), digits.y[:1000]
    centres = np.stack([x[y == c].mean(0) for c in range(10)])
    some = np.arange(250) * 40
    x_test, y_test = inputs(digits.x_test[some]), digits.y_test[some]
    nearest = ((x_test[:, None] - centres) ** 2).sum(-1).argmin(1)
    assert whole["draws"]["error"] <= np.mean(nearest != y_test) + 0.03
    assert left["draws"]["error"] <= whole["draws"]["error"] + 0.1
    assert left["bytes"] < 0.4 * whole["bytes"]
    density, edges = found["ratios"]["density"], found["ratios"]["edges"]
    assert np.sum(density * np.diff(edges)) == pytest.approx(0.999, abs=1e-3)


def test_both_are_experiments():
    assert {"mnist", "pruning"} <= experiments.EXPERIMENTS.keys()
