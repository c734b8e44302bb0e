"""Experiments: what they are shown, how figures are paired, and that a stopped run goes on."""

import contextlib
import json
import os
import re
import signal
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import experiments
from experiments import bandit, letters, overconfidence
from experiments import data as image_sets
from experiments.__main__ import app
from experiments.arms import ARMS
from experiments.data import Images, inputs, load, rotated
from experiments.pairs import differences, estimate
from experiments.perceptrons import perceptron
from experiments.store import Store
from posterax._util.interrupts import interruptible
from posterax._util.progress import Shown, Watch

RNG = np.random.default_rng(0)


def drawn(n):
    """Images in ten classes that differ in where they are bright."""
    y = np.arange(n) % 10
    x = RNG.integers(0, 60, (n, 28, 28))
    for i, digit in enumerate(y):
        x[i, 2 * digit : 2 * digit + 4] += 180
    return x.astype(np.uint8), y.astype(np.int32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """All three sets, small, where the experiments look for them."""
    where = tmp_path_factory.mktemp("sets")
    for name, n in (("mnist", 1200), ("fashion_mnist", 300), ("notmnist_test", 0)):
        x, y = drawn(n)
        x_test, y_test = drawn(200)
        stored = {"x_test": 255 - x_test if name != "mnist" else x_test, "y_test": y_test}
        if n:
            stored |= {"x_train": x, "y_train": y}
        np.savez(where / f"{name}.npz", **stored)
    return where


@pytest.fixture
def sets(folder, monkeypatch):
    monkeypatch.setenv("POSTERAX_DATA", str(folder))
    return folder


# -- data


def test_sets_are_found_in_the_folder_that_is_named_then_in_the_cache(sets, monkeypatch):
    assert load("mnist").x.shape == (1200, 28, 28)
    assert len(load("notmnist_test").x) == 0
    assert len(load("notmnist_test").x_test) == 200
    cache = sets / "cache/posterax"
    cache.mkdir(parents=True)
    (sets / "notmnist_test.npz").rename(cache / "notmnist_test.npz")
    monkeypatch.setenv("XDG_CACHE_HOME", str(sets / "cache"))
    try:
        assert len(load("notmnist_test").x_test) == 200
    finally:
        (cache / "notmnist_test.npz").rename(sets / "notmnist_test.npz")


def test_a_set_that_is_nowhere_says_where_it_was_looked_for(tmp_path, monkeypatch):
    monkeypatch.setenv("POSTERAX_DATA", str(tmp_path / "here"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "there"))
    with pytest.raises(FileNotFoundError, match=r"notmnist_test.npz .*here.*there.*POSTERAX_DATA"):
        load("notmnist_test")

    def unreachable(name):
        raise OSError("no route")

    monkeypatch.setattr(image_sets, "_fetch", unreachable)
    with pytest.raises(FileNotFoundError, match=r"mnist.npz .*OpenML.*no route.*POSTERAX_DATA"):
        load("mnist")


def test_what_was_fetched_is_kept(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTERAX_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def fetch(name):
        calls.append(name)
        (x, y), (x_test, y_test) = drawn(30), drawn(10)
        return {"x_train": x, "y_train": y, "x_test": x_test, "y_test": y_test}

    monkeypatch.setattr(image_sets, "_fetch", fetch)
    first, second = load("mnist"), load("mnist")
    assert calls == ["mnist"]
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def test_half_a_turn_twice_is_none():
    x, _ = drawn(5)
    assert np.array_equal(rotated(rotated(x, 180), 180), x)
    assert np.array_equal(rotated(x, 90), np.rot90(x, axes=(1, 2)))


def test_half_a_fit_is_no_result(ctrl_c):
    def make():
        with interruptible() as interrupted:  # as px.fit is
            signal.raise_signal(signal.SIGINT)
            return {"interrupted": interrupted()}

    def deaf():
        with contextlib.suppress(KeyboardInterrupt):  # as Python does in a destructor
            signal.raise_signal(signal.SIGINT)
        return {}

    assert make() == {"interrupted": True}
    store, before = Store(None, {}), signal.getsignal(signal.SIGINT)
    for one in (make, deaf):
        with pytest.raises(KeyboardInterrupt):
            store.get("a", one)
    assert store.runs == {}
    assert signal.getsignal(signal.SIGINT) is before


def test_whoever_watches_knows_how_far_a_run_is(capsys):
    store = Store(None, {}, Shown())
    store.get("a", lambda: {})
    store.expect(["a", "b", "c"])
    store.get("b", lambda: {})
    store.get("b", lambda: {})  # there already
    told = capsys.readouterr().err.splitlines()
    assert [line.split(",")[0] for line in told] == ["1: a", "2 of 3: b"]


# -- what networks are trained on


@pytest.mark.parametrize("training", overconfidence.TRAININGS)
def test_trainings_have_equally_many_images_and_keep_validation_apart(training):
    x, y = drawn(3000)
    x[:, 0, 0] = np.arange(3000) % 251  # tells images apart, together with the next
    x[:, 0, 1] = np.arange(3000) // 251
    size = overconfidence.BUDGETS["quick"]._replace(images=900, validation=400)
    (x_in, y_in), (x_held, y_held) = overconfidence.split(
        Images(x, y, x[:0], y[:0]), training, 3, size
    )

    def numbers(images):
        codes = np.rint(255 * images[:, :2]).astype(int)
        return codes[:, 0] + 251 * codes[:, 1]

    own, held = numbers(x_in), numbers(x_held)
    assert len(set(own)) == len(own) == 900
    assert own.max() < 2600 <= held.min()
    assert np.array_equal(y[own], y_in)
    assert np.array_equal(y[held], y_held)
    counts, watched = np.bincount(y_in, minlength=10), np.bincount(y_held, minlength=10)
    if training == "unseen digits":
        assert not counts[[8, 9]].any()
        assert not watched[[8, 9]].any()
    elif training == "imbalanced":
        share = counts[[2, 5, 8]] / counts[[1, 3, 4, 6, 7, 9]].mean()
        assert np.allclose(share, 0.02, atol=0.005)
        assert np.all(watched[[2, 5, 8]] == 1)  # 2 % of 40
    else:
        assert np.ptp(counts) == 0


# -- networks


def test_layer_norm_and_dropout_against_numpy():
    x = RNG.normal(size=(6, 784)).astype("float32")
    network = perceptron(8, "layer_norm", key=0)
    weights = network.params
    h = x.astype(np.float64)
    for i in range(2):
        w, b = (np.asarray(a, np.float64) for a in weights["layers"][i])
        h = h @ w.T + b
        h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
        h = np.maximum(h, 0)
    w, b = (np.asarray(a, np.float64) for a in weights["layers"][2])
    found, _ = network.apply(weights, (), x, None, False)
    np.testing.assert_allclose(found, h @ w.T + b, atol=1e-4)

    plain, dropped = perceptron(8, "plain", key=0), perceptron(8, "dropout", rate=0.5, key=0)
    at_rest = dropped.apply(dropped.params, (), x, jax.random.key(1), False)[0]
    np.testing.assert_allclose(at_rest, plain.apply(plain.params, (), x, None, False)[0], atol=1e-5)
    on = dropped.apply(dropped.params, (), x, jax.random.key(1), True)[0]
    assert np.abs(np.asarray(on - at_rest)).max() > 0.1


def test_batch_norm_uses_the_batch_in_training_and_running_averages_after():
    network = perceptron(8, "batch_norm", key=0)
    x = jnp.asarray(RNG.normal(2.0, 1.0, size=(50, 784)), jnp.float32)
    state = network.state
    for _ in range(200):  # 0.9²⁰⁰ of the start is left
        trained, state = network.apply(network.params, state, x, None, True)
    rested, same = network.apply(network.params, state, x, None, False)
    np.testing.assert_allclose(rested, trained, atol=1e-4)
    assert all(
        np.array_equal(a, b) for a, b in zip(*map(jax.tree.leaves, (state, same)), strict=True)
    )
    w, b = network.params["layers"][0]
    np.testing.assert_allclose(state[0][0], (x @ w.T + b).mean(0), rtol=1e-4, atol=1e-4)


# -- figures


def test_differences_are_paired():
    base = RNG.normal(size=6)
    values = {
        "point": base,
        "worse point": base + 1,
        "bayes": base - 0.5 + 0.01 * RNG.normal(size=6),
    }
    found = differences(values, ["bayes"], ["point", "worse point"], sign=-1)["bayes"]
    reference = stats.ttest_rel(values["bayes"], values["point"])
    low, high = reference.confidence_interval(0.95)
    assert found["best"] == found["point"]
    assert found["best"].mean == pytest.approx((low + high) / 2)
    assert found["best"].half == pytest.approx((high - low) / 2)
    assert found["best"].clear
    assert (
        differences(values, ["bayes"], ["point", "worse point"], 1)["bayes"]["best"]
        == (found["worse point"])
    )
    assert np.isnan(estimate([1.0]).half)
    assert not estimate([1.0]).clear


def test_scores_of_hand_made_predictions():
    p = np.array([[0.95, 0.05], [0.95, 0.05], [0.05, 0.95], [0.6, 0.4]])
    y = np.array([0, 1, 1, 0])
    entropy = -(p * np.log(p)).sum(-1)
    seen = overconfidence.Seen(p, entropy, 0 * entropy, np.log(p[np.arange(4), y]))
    found = overconfidence.fits(seen, y)
    assert found["accuracy"] == 0.75
    assert found["confident"] == 0.75
    assert found["confidently wrong"] == 0.25
    assert found["nll"] == pytest.approx(-np.log([0.95, 0.05, 0.95, 0.6]).mean())
    apart = overconfidence.away(seen.rows(np.array([0, 1, 2])), seen.rows(np.array([3])))
    assert apart["auroc total"] == apart["auroc confidence"] == 1.0
    assert apart["auroc epistemic"] is None  # a point network has none
    assert apart["confident"] == 0.0


# -- the whole


class Stub:
    """A posterior that says something about every input, without a fit."""

    def __init__(self, arm, data, held, settings, seed, **size):
        rng = np.random.default_rng([len(arm.name), seed])
        self.weights = rng.normal(size=(1 if arm.point else 3, 784, 10))
        self.settings = settings

    def predict(self, x, *, key, samples=None):
        p = np.exp(np.einsum("ni,sik->snk", x, self.weights) / 4)
        p /= p.sum(-1, keepdims=True)
        mean = p.mean(0)
        total = -(mean * np.log(mean)).sum(-1)
        inner = -(p * np.log(p)).sum(-1).mean(0)
        log_prob = lambda y: np.log(mean[np.arange(len(y)), y])  # noqa: E731
        return SimpleNamespace(
            mean=mean, total=total, epistemic=total - inner, aleatoric=inner, log_prob=log_prob
        )


def test_overconfidence_by_one_command(sets, tmp_path, monkeypatch):
    monkeypatch.setattr(overconfidence, "train", Stub)
    command = ["overconfidence", "--budget", "quick", "--seeds", "2"]
    (tmp_path / "overconfidence.md").write_text(
        "# kept\n<!-- overconfidence -->old<!-- /overconfidence -->\nkept too\n"
    )
    done = CliRunner().invoke(app, [*command, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    page = (tmp_path / "overconfidence.md").read_text()
    assert page.startswith("# kept")
    assert page.endswith("kept too\n")
    assert "old" not in page
    assert (tmp_path / "overconfidence.png").stat().st_size > 10_000
    found = json.loads((tmp_path / "overconfidence.json").read_text())
    assert len(found["runs"]) == len(ARMS) * 3 * 2
    nll = found["summary"]["NLL"]
    own = [found["runs"][f"deep ensemble/all digits/{s}"]["test"]["nll"] for s in (0, 1)]
    assert nll["means"]["deep ensemble"]["mean"] == pytest.approx(np.mean(own))
    point = nll["means"]["BatchNorm"]["mean"]
    assert nll["differences"]["deep ensemble"]["BatchNorm"]["mean"] == pytest.approx(
        np.mean(own) - point
    )

    # one result lost: only that is made again
    del found["runs"]["BatchNorm/imbalanced/1"]
    (tmp_path / "overconfidence.json").write_text(json.dumps(found))
    fresh = []
    real = overconfidence.one
    monkeypatch.setattr(overconfidence, "one", lambda *a: fresh.append(a[:3]) or real(*a))
    experiments.reproduce("overconfidence", tmp_path, budget="quick", seeds=2)
    assert [(arm.name, *rest) for arm, *rest in fresh] == [("BatchNorm", "imbalanced", 1)]


def test_results_of_other_settings_are_refused(tmp_path):
    store = Store(tmp_path / "a.json", {"epochs": 3})
    store.get("a", dict)
    assert Store(tmp_path / "a.json", {"epochs": 3}).runs.keys() == {"a"}
    with pytest.raises(ValueError, match=r"a\.json has results of other settings"):
        Store(tmp_path / "a.json", {"epochs": 4})


def test_a_result_of_other_settings_is_refused_by_its_name(tmp_path):
    path = tmp_path / "a.json"
    made = Store(path, {}).get("bbb/0", lambda: {"nll": 0.5}, {"rates": (0.1, 0.2)})
    assert made["settings"] == {"rates": (0.1, 0.2)}
    again = Store(path, {})
    assert again.get("bbb/0", dict, {"rates": (0.1, 0.2)})["nll"] == 0.5
    with pytest.raises(ValueError, match=r"'bbb/0' in .*a\.json was made with .*delete that entry"):
        again.get("bbb/0", dict, {"rates": (0.1, 0.3)})
    again.get("map/0", dict)
    with pytest.raises(ValueError, match=r"'map/0' in .* was made with None"):
        again.get("map/0", dict, {"rates": (0.1, 0.2)})


class Fake:
    """An experiment of three results that is stopped, or fails, where a test says so."""

    def __init__(self, monkeypatch):
        self.made, self.stop = [], None
        place = SimpleNamespace(
            run=self.run, summary=lambda store: {}, page=lambda store: "all there",
            draw=lambda store, path: path.write_bytes(b""),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "experiments.fake", place)
        monkeypatch.setitem(
            experiments.EXPERIMENTS, "fake", experiments.Experiment("", "fake", "fake", seeds=3)
        )

    def run(self, budget, seeds, keep):
        store = keep({"budget": budget})
        store.expect(str(seed) for seed in range(seeds))
        for seed in range(seeds):
            store.get(str(seed), lambda seed=seed: self.one(seed))
        return store

    def one(self, seed):
        if seed == self.stop:
            raise KeyboardInterrupt
        self.made.append(seed)
        return {"seed": seed}


def command(out):
    return CliRunner().invoke(app, ["fake", "--out", str(out)])


def test_ctrl_c_ends_with_130_and_the_same_command_goes_on(tmp_path, monkeypatch):
    fake = Fake(monkeypatch)
    fake.stop = 1
    stopped = command(tmp_path / "[out]")
    assert stopped.exit_code == 130
    assert "the same command goes on from" in stopped.stderr
    assert "[out]" in stopped.stderr  # brackets are no markup
    assert fake.made == [0]
    fake.stop = None
    done = command(tmp_path / "[out]")
    assert done.exit_code == 0
    assert "all there" in done.stdout
    assert fake.made == [0, 1, 2]
    assert list(json.loads((tmp_path / "[out]/fake.json").read_text())["runs"]) == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b'{"settings": {', r"fake\.json is no JSON"),
        (b"\xff\xfe\x00", r"fake\.json is no JSON"),
        (b"{}", r"fake\.json has no settings, facts, runs"),
        (b"[1]", r"fake\.json has no settings, facts, runs"),
        (b'{"settings": {}, "facts": {}, "runs": 7}', r"fake\.json has no settings, facts, runs"),
        ("folder", r"fake\.json cannot be read \(Is a directory\)"),
        ("file", r"out is a file: take another directory"),
        ("below", r"below cannot be made \(Not a directory\)"),
    ],
)
def test_what_cannot_go_on_says_so_in_a_line_and_makes_nothing(
    content, told, tmp_path, monkeypatch
):
    fake, out = Fake(monkeypatch), tmp_path / "out"
    if content in ("file", "below"):
        out.write_text("")
        out = out / "below" if content == "below" else out
    elif content == "folder":
        (out / "fake.json").mkdir(parents=True)
    else:
        out.mkdir()
        (out / "fake.json").write_bytes(content)
    failed = command(out)
    assert failed.exit_code == 1
    assert len(failed.stderr.splitlines()) == 1
    assert re.search(rf"^error: out: .*{told}", failed.stderr)
    assert "take another directory" in failed.stderr
    assert fake.made == []


def test_a_folder_that_cannot_be_written_to_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may do anything
    with pytest.raises(PermissionError, match=r"out: .* cannot be written to: take another"):
        Store(tmp_path / "a.json", {})


class Counted(Watch):
    total = None

    def expect(self, total, done):
        self.total = total


def test_all_results_are_expected(sets, monkeypatch):
    monkeypatch.setattr(letters, "one", lambda *arguments: {})
    monkeypatch.setattr(overconfidence, "one", lambda *arguments: {})
    monkeypatch.setattr(overconfidence, "train", Stub)
    monkeypatch.setattr(letters, "HELD", 200)
    size = overconfidence.BUDGETS["quick"]._replace(choose=True)
    monkeypatch.setitem(overconfidence.BUDGETS, "quick", size)
    for run, budget in ((letters.run, "full"), (overconfidence.run, "quick")):
        watch = Counted()
        store = run(budget, 2, lambda settings, watch=watch: Store(None, settings, watch))
        assert watch.total == len(store.runs) > 2


def test_tables_that_are_missing_are_told_before_anything_is_trained(monkeypatch):
    def table(name):
        if name == "covertype":
            raise FileNotFoundError("covertype.csv is not in …")

    monkeypatch.setattr(bandit, "table", table)
    monkeypatch.setattr(bandit, "one", lambda *arguments: pytest.fail("trained"))
    with pytest.raises(FileNotFoundError, match=r"covertype\.csv"):
        bandit.run("cpu", 1, lambda settings: Store(None, settings))


def test_unknown_names_and_budgets_are_refused():
    with pytest.raises(ValueError, match="name must be one of overconfidence"):
        experiments.reproduce("overconfident", None)
    with pytest.raises(ValueError, match="budget must be one of quick"):
        experiments.reproduce("letters", None, budget="huge")
    assert CliRunner().invoke(app, ["overconfident"]).exit_code == 1


def test_settings_are_those_with_the_best_likelihood_of_validation_digits(sets, monkeypatch):
    class Favourite(Stub):
        def predict(self, x, **options):
            nll = abs(self.settings["learning_rate"] - 1e-3)
            return SimpleNamespace(log_prob=lambda y: np.full(len(y), -nll))

    monkeypatch.setattr(overconfidence, "train", Favourite)
    store = Store(None, {})
    size = overconfidence.BUDGETS["quick"]._replace(choose=True)
    chosen = overconfidence.choose(ARMS[0], load("mnist"), size, store)
    assert chosen == {"learning_rate": 1e-3}
    assert store.runs["nothing/settings"]["nll"] == pytest.approx([7e-4, 0, 2e-3, 9e-3])


@pytest.mark.usefixtures("hasty_compiler")
def test_a_network_with_a_state_and_early_stopping_is_trained(sets):
    digits, size = load("mnist"), overconfidence.BUDGETS["quick"]
    arm = next(arm for arm in ARMS if arm.name == "BatchNorm")._replace(patience=1)
    data, held = overconfidence.split(digits, "all digits", 0, size)
    posterior = overconfidence.train(
        arm, data, held, {"learning_rate": 1e-2}, 0, width=8, epochs=4, batch_size=100
    )
    seen = posterior.predict(held[0], key=0)
    assert np.mean(seen.mode == held[1]) > 0.3  # a tenth by chance
    assert np.ptp(seen.epistemic) < 1e-5


@pytest.mark.slow
def test_every_arm_trains(sets, tmp_path):
    store = experiments.reproduce("overconfidence", tmp_path, budget="quick", seeds=1)
    assert len(store.runs) == len(ARMS) * 3
    assert all(np.isfinite(m["mean"]) for m in store.content["summary"]["NLL"]["means"].values())


@pytest.mark.slow
@pytest.mark.usefixtures("hasty_compiler")
def test_anchored_members_disagree_where_no_digit_is_bright():
    """Weights of pixels that are dark in all images: at the anchors, so far apart; else small."""
    x, y = drawn(300)
    x[:, :, 20:] = 0
    away = x[:100].copy()
    away[:, :, 20:] = 255
    size = letters.BUDGETS["quick"]._replace(epochs=20)
    data = (inputs(x), y)
    others = {"bright": inputs(away)}
    known = (data[0][:100], y[:100])
    anchored = letters.one(data, known, others, size, 0.5, 0)
    plain = letters.one(data, known, others, size, None, 0)
    assert anchored["accuracy"] > 0.95
    assert anchored["bright"]["auroc epistemic"] > 0.95
    assert anchored["bright"]["entropy"] > 2 * plain["bright"]["entropy"]


@pytest.mark.slow
def test_letters_are_told_from_digits(data_dir):
    """A smaller ensemble on 10,000 digits; docs/results/letters.md has the full one."""
    digits, others = load("mnist"), load("notmnist_test")
    size = letters.BUDGETS["cpu"]._replace(images=10_000, members=5)
    data = (inputs(digits.x[:10_000]), digits.y[:10_000])
    known = (inputs(digits.x_test[::5]), digits.y_test[::5])
    found = letters.one(data, known, {"notMNIST": inputs(others.x_test[::5])}, size, size.scale, 0)
    assert found["notMNIST"]["auroc epistemic"] >= 0.95
    assert found["accuracy"] > 0.925  # of a linear classifier that has all 60,000
