"""The benchmark of time to the posterior: readouts, the judge, the store and the summary."""

import json
import math

import jax
import numpy as np
import pytest

import posterax as px
from benchmarks.convergence import cells, clock, elbo, network, problems, readout, report, summary

CNN = (
    ("conv", 1, 2), ("relu",), ("pool",), ("conv", 2, 3), ("relu",), ("pool",), ("flatten",),
    ("linear", 12, 4),
)  # fmt: skip
NORMED = (("linear", 5, 6), ("layer_norm", 6), ("relu",), ("linear", 6, 1))
PLAIN = problems.perceptron(5, 7, 3)


def shape_of(kind: str, sizes: list[int], array: str) -> tuple[int, ...]:
    if array == "bias" or kind == "layer_norm":
        return (sizes[-1],)
    return (sizes[1], sizes[0]) if kind == "linear" else (sizes[1], sizes[0], 3, 3)


def some_arrays(layers, rng) -> readout.Arrays:
    weighted = [(kind, sizes) for kind, *sizes in layers if sizes]
    return {
        f"layers.{i}.{array}": rng.normal(size=shape_of(kind, sizes, array)).astype("float32")
        for i, (kind, sizes) in enumerate(weighted)
        for array in ("weight", "bias")
    }


def forward(layers, w, x):
    """The network in numpy loops, for one example."""
    i = 0
    for kind, *sizes in layers:
        weight, bias = w.get(f"layers.{i}.weight"), w.get(f"layers.{i}.bias")
        i += bool(sizes)
        if kind == "linear":
            x = weight @ x + bias
        elif kind == "layer_norm":
            x = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * weight + bias
        elif kind == "relu":
            x = np.maximum(x, 0)
        elif kind == "pool":
            c, h, v = x.shape
            x = x.reshape(c, h // 2, 2, v // 2, 2).max((2, 4))
        elif kind == "flatten":
            x = x.reshape(-1)
        else:
            padded = np.pad(x, [(0, 0), (1, 1), (1, 1)])
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
            x = np.einsum("ihwab,oiab->ohw", windows, weight) + bias[:, None, None]
    return x


@pytest.mark.parametrize(("layers", "shape"), [(PLAIN, 5), (NORMED, 5), (CNN, (1, 8, 8))])
def test_arrays_by_name_are_the_weights_of_the_network(layers, shape):
    rng = np.random.default_rng(0)
    arrays = some_arrays(layers, rng)
    model = px.Model(network.make_network(layers, 0), None, px.likelihoods.Gaussian(1.0))
    x = rng.normal(size=(3, *np.atleast_1d(shape))).astype("float32")
    tree = elbo.as_tree(model, arrays)
    ours, _ = model.apply(tree, model.network.state, x, None, False)
    theirs = np.stack([forward(layers, arrays, row) for row in x])
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)
    back = elbo.as_arrays(tree)
    assert all(np.array_equal(back[name], value) for name, value in arrays.items())
    with pytest.raises(ValueError, match="not those of the model"):
        elbo.as_tree(model, dict(list(arrays.items())[1:]))
    with pytest.raises(ValueError, match="has shape"):
        elbo.as_tree(model, arrays | {"layers.0.bias": np.zeros(99, "float32")})


# -- μ and σ of each library, as its state has them


def state_of(peer: str, mu: readout.Arrays, sigma: readout.Arrays, layers) -> dict:
    """What a library would hold for these μ and σ, written out by hand."""
    rho = {name: np.log(np.expm1(value)) for name, value in sigma.items()}
    kinds = [kind for kind, *sizes in layers if sizes]
    state = {}
    for name, m in mu.items():
        layer, array = name.rsplit(".", 1)
        kind = kinds[int(layer.split(".")[1])]
        if peer == "bayesian-torch":
            own = "kernel" if kind == "conv" and array == "weight" else array
            state |= {f"{layer}.mu_{own}": m, f"{layer}.rho_{own}": rho[name]}
        elif peer == "torchbnn":
            state |= {f"{name}_mu": m, f"{name}_log_sigma": np.log(sigma[name])}
        elif peer == "blitz":
            state |= {f"{name}_mu": m, f"{name}_rho": rho[name]}
        elif peer == "pyro":
            state |= {f"locs.{name}": m, f"scales.{name}": sigma[name]}
        else:
            turn = (lambda a: a.T) if (kind, array) == ("linear", "weight") else np.asarray
            state |= {f"{name}_auto_loc": turn(m), f"{name}_auto_scale": turn(sigma[name])}
    return state


@pytest.mark.parametrize("layers", [PLAIN, CNN])
@pytest.mark.parametrize("peer", readout.NAMES)
def test_readout_of_every_library(peer, layers, tmp_path):
    rng = np.random.default_rng(1)
    mu = some_arrays(layers, rng)
    sigma = {name: np.exp(value) for name, value in some_arrays(layers, rng).items()}
    found = readout.read(peer, state_of(peer, mu, sigma, layers), layers)
    readout.save(tmp_path / "a.npz", *found)
    for ours, theirs in zip(readout.load(tmp_path / "a.npz"), (mu, sigma), strict=True):
        assert set(ours) == set(theirs)
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, rtol=1e-4)


@pytest.mark.parametrize("peer", ["bayesian-torch", "torchbnn", "blitz"])
def test_readout_of_the_libraries_themselves(peer):
    """A draw with σ → 0 is the network at μ: names and layouts are what the library has."""
    torch = pytest.importorskip("torch")
    pytest.importorskip({"bayesian-torch": "bayesian_torch"}.get(peer, peer))
    from benchmarks.convergence import worker_torch

    torch.manual_seed(0)
    net, kl = worker_torch.LIBRARIES[peer]({"layers": CNN, "mixture": None})
    with torch.no_grad():
        for name, value in net.named_parameters():
            if "rho" in name or "sigma" in name:
                value.fill_(-10.0)
    mu, sigma = readout.read(peer, worker_torch.state_of(net), CNN)
    assert all(np.all(s < 1e-4) for s in sigma.values())
    x = np.random.default_rng(2).normal(size=(4, 1, 8, 8)).astype("float32")
    with torch.no_grad():
        theirs = net(torch.as_tensor(x)).numpy()
    np.testing.assert_allclose(theirs, [forward(CNN, mu, row) for row in x], rtol=0.01, atol=1e-3)
    exact = sum(np.sum(0.5 * (sigma[n] ** 2 + m**2 - 1) - np.log(sigma[n])) for n, m in mu.items())
    sampled = []
    for _ in range(200):  # blitz takes its KL at the draw of the last pass
        net(torch.as_tensor(x))
        sampled.append(float(kl()))
    np.testing.assert_allclose(np.mean(sampled), exact, rtol=1e-3)


def test_numpyro_computes_the_same_network():
    from benchmarks.convergence import worker_numpyro

    for layers, shape in ((CNN, (1, 8, 8)), (NORMED, (5,))):
        w = some_arrays(layers, np.random.default_rng(3))
        kinds = [kind for kind, *sizes in layers if sizes]
        linear = [f"layers.{i}.weight" for i, kind in enumerate(kinds) if kind == "linear"]
        theirs = {name: value.T if name in linear else value for name, value in w.items()}
        shapes = {name: value.shape for name, value in theirs.items()}
        assert shapes == worker_numpyro.shapes_of(layers)
        x = np.random.default_rng(4).normal(size=(2, *shape)).astype("float32")
        found = worker_numpyro.forward(layers, theirs, x)
        wanted = [forward(layers, w, row) for row in x]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


# -- the judge


def test_constant_predictor():
    y = np.array([0.0, 1.0, 5.0], "float32")
    problem = problems.Problem("a", y[:, None], y, problems.perceptron(1, 1), "gaussian", 0.5)
    z = (y - 2) / 0.5
    by_hand = np.mean(-0.5 * z**2 - np.log(0.5 * np.sqrt(2 * np.pi)))
    assert problems.constant(problem) == pytest.approx(by_hand)
    labels = np.array([0, 0, 1, 3])
    classes = problem._replace(y=labels, likelihood="categorical")
    shares = np.array([0.5, 0.5, 0.25, 0.25])  # of each row's class
    assert problems.constant(classes) == pytest.approx(np.log(shares).mean())


def test_exact_optimum_of_the_linear_problem():
    """Its ELBO is by hand that of the closed form, and anything else is lower."""
    mu, sigma = elbo.exact_linear()
    found = elbo.evaluate("linear", mu, sigma)
    problem = elbo.problem("linear")
    posterior = px.fit(problem.model(0), (problem.x, problem.y), px.Conjugate())
    covariance = np.asarray(posterior.covariance(), np.float64)
    precision = np.linalg.inv(covariance)
    # KL(q ‖ p(w | D)) of two Gaussians with one mean: ½ (log det Λ⁻¹ − Σ log σ²)
    gap = 0.5 * (np.linalg.slogdet(covariance)[1] + np.sum(np.log(np.diag(precision))))
    wanted = posterior.log_evidence.value - gap
    assert found["elbo"] == pytest.approx(wanted, abs=5 * found["error_per_row"] * problem.rows)
    assert found["elbo"] == pytest.approx(-found["nll"] - found["kl"])
    for moved in (
        ({name: value + 0.02 for name, value in mu.items()}, sigma),
        (mu, {name: 1.2 * value for name, value in sigma.items()}),
        (mu, {name: value / 1.2 for name, value in sigma.items()}),
    ):
        assert elbo.evaluate("linear", *moved)["elbo"] < found["elbo"]
    broken = {name: np.full_like(value, np.nan) for name, value in mu.items()}
    assert "error" in elbo.evaluate("linear", broken, sigma)


def test_seed_decides_the_weights_and_not_the_data():
    one, two = (elbo.problem("linear").model(seed).parameters for seed in (0, 1))
    assert not np.array_equal(*(jax.tree.leaves(tree)[0] for tree in (one, two)))
    assert np.array_equal(problems.problem("paper_curve").y, problems.problem("paper_curve").y)
    with pytest.raises(ValueError, match="prior must be one of"):
        elbo.problem("linear").model(0, "wide")


# -- runs


def test_a_cell_that_exists_is_not_run_again(tmp_path):
    store, ran = cells.Store(tmp_path / "convergence.json"), []
    asked = [cells.Cell("linear", "IVON", {"steps": 3}, seed) for seed in range(3)]

    def run(cell):
        ran.append(cell.seed)
        if cell.seed == 1 and ran.count(1) == 1:
            return {"error": "no memory"}
        return {"points": [{"seconds": 1.0, "steps": 3, "per_row": -1.0, "error_per_row": 0.0}]}

    store.fill(asked[:2], run)
    assert ran == [0, 1]
    cells.Store(store.path).fill(asked, run)  # goes on, in another process too
    assert ran == [0, 1, 2]
    found = store.fill(asked, run, again=True)  # what failed
    assert ran == [0, 1, 2, 1]
    assert all("points" in cell for cell in found)
    other = asked[0]._replace(settings={"steps": 4})
    store.fill([other], run)
    assert ran[-1] == 0
    assert len(store.cells()) == 4


def test_clock_stands_still_while_it_writes(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(clock.time, "process_time", lambda: now[0])

    def slow(*_):
        now[0] += 100

    monkeypatch.setattr(clock.readout, "save", slow)
    timer, steps = clock.Clock(tmp_path, 2.0), 0
    while not timer.over:
        now[0] += 0.1
        steps += 1
        if timer.due:
            timer.save({}, {}, steps)
    seconds = [point["seconds"] for point in timer.points]
    np.testing.assert_allclose(  # 0.25 · 1.5ⁱ, when the next step has ended
        seconds, [0.3, 0.4, 0.6, 0.9, 1.3, 1.9, 2.0], atol=1e-6
    )
    assert timer.points[-1]["steps"] == 20


def test_minibatches_are_every_row_once_an_epoch():
    orders = clock.orders(10, 4, 0)
    first = [next(orders) for _ in range(3)]
    assert [len(order) for order in first] == [4, 4, 2]
    assert sorted(np.concatenate(first)) == list(range(10))


# -- the summary


def made(contender, settings, courses, problem="linear"):
    """Cells whose points are (seconds, ELBO a row)."""
    return [
        cells.Cell(problem, contender, settings, seed)._asdict()
        | {
            "points": [
                {"seconds": s, "steps": 1, "per_row": v, "error_per_row": 0.01} for s, v in course
            ],
            "device": "cpu", "date": "2026-01-01", "versions": {"a": "1"},
        }
        for seed, course in enumerate(courses)
    ]  # fmt: skip


def test_reference_arrival_and_seconds():
    found = summary.groups(
        made("BayesByBackprop", {"steps": 10}, [[(2, -1.05)], [(4, -1.02)], [(3, -1.3)]])
        + made("BayesByBackprop", {"steps": 99, "learning_rate": 0.1}, [[(9, -1.04)]])
        + made("pyro", {"learning_rate": 0.1, "limit": 9}, [[(1, -3), (8, -1.0), (9, -1.01)]] * 3)
    )
    best = summary.reference(found)
    assert best.contender == "pyro"
    assert best.median == -1.01
    ours, tuned, _ = found
    assert (ours.default, tuned.default) == (True, False)
    assert ours.seconds_to(-1.11) == 4  # the third seed never comes there
    assert best.seconds_to(-1.11) == 8
    assert math.isinf(best.seconds_to(-0.9))
    assert summary.tolerance(-1.01, -11.01) == 0.1
    assert summary.tolerance(-1.01, -2.01) == pytest.approx(0.02)
    assert not summary.arrived(ours, best.median, -11.01)
    assert summary.arrived(best, best.median, -2.01)
    run = summary.race(found, "linear")
    assert run.ratio == 2
    assert run.tuned[0] == 4  # 9 s with the other setting
    assert summary.geometric_mean([1.0, 4.0]) == pytest.approx(2)


def test_reference_is_the_best_however_few_its_seeds():
    """A single run far above the others moves the goal, and the seeds that follow move it back."""
    ours = made("BayesByBackprop", {"steps": 10}, [[(2, -4.0)]] * 5)
    tried = made("BayesByBackprop", {"steps": 9, "learning_rate": 0.1}, [[(9, -1.0)]])
    assert summary.reference(summary.groups(ours + tried)).median == -1.0
    repeated = made("BayesByBackprop", {"steps": 9, "learning_rate": 0.1}, [[(9, -1.0)], [(9, -2)]])
    second = made("pyro", {"learning_rate": 0.1, "limit": 9}, [[(9, -1.1)]])
    best = summary.reference(summary.groups(ours + repeated + second))
    assert best.median == -1.5
    assert len(best.cells) == 2


def test_page_is_of_the_cells(tmp_path):
    about = {n: {"rows": 442, "weights": 11, "constant": -2.0} for n in problems.NAMES}
    about["linear"]["exact"] = -1.04
    text, short = report.page([], about)
    assert "Not run" in text
    assert "to come" in short
    runs = made("BayesByBackprop", {"steps": 4500}, [[(2, -1.05)], [(4, -1.06)]])
    runs += made("pyro", {"learning_rate": 0.1, "limit": 9}, [[(1, -3), (8, -1.05)]] * 2)
    runs += [cells.Cell("mixture", "torchbnn", {}, 0)._asdict() | {"skipped": "no such prior"}]
    text, short = report.page(runs, about)
    assert "Not run" not in text
    assert short in text
    assert "1 of 1 problems by BayesByBackprop" in short
    assert "2.7 times as long (geometric mean of the 1 where both do)" in short
    assert "- mixture, torchbnn: no such prior" in text
    assert "**-1.055 (lowest -1.060, 3 s)**" in text
    tuned = made("BayesByBackprop", {"steps": 9, "learning_rate": 0.1}, [[(9, -0.5)]])
    far, _ = report.page(runs + tuned, about)
    assert "neither: linear" in far  # the goal moved away from both
    assert "0 of 1 problems by BayesByBackprop" in far
    report.draw(summary.groups(runs), tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_page_of_the_repository_is_as_measured():
    about = json.loads(report.FACTS.read_text())
    text, short = report.page(summary.load(), about)
    assert report.PAGE.read_text() == text
    assert report.LINE.format(short) in report.INDEX.read_text()
