"""Every method against an answer that is known exactly: the figures of docs/calibration.md.

The problem is the linear model of ``tests/conjugate.py``, three correlated weights and 20 rows.
What a method should find there has a closed form: the posterior itself, the best independent
Gaussians, the mode, or what the method's own objective has as its optimum.
"""

import itertools
import json
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

import posterax as px
from posterax._methods import METHODS
from tests.conjugate import NOISE, conjugate
from tools.calibration import page

TRUTH = conjugate()
PRECISION = np.linalg.inv(TRUTH.covariance)
DEVIATION = np.sqrt(np.diag(TRUTH.covariance))
DROPPED = 0.2  # the rate of dropout


class Answer(NamedTuple):
    what: str
    mean: np.ndarray
    deviation: np.ndarray | None  # None: a single point


def dropout_optimum() -> Answer:
    """Of E over masks: the loss has p/(1−p) Σ w² Σ x² more, the prior 1/(1−p) of its precision."""
    ratio = DROPPED / (1 - DROPPED)
    x, y = TRUTH.x.astype(float), TRUTH.y.astype(float)
    gram = x.T @ x / NOISE**2
    left = gram + ratio * np.diag(np.diag(gram)) + np.eye(3) / (1 - DROPPED)
    w = np.linalg.solve(left, x.T @ y / NOISE**2)
    return Answer("the optimum of dropout's objective", w, np.sqrt(ratio) * np.abs(w))


POSTERIOR = Answer("the posterior", TRUTH.mean, DEVIATION)
INDEPENDENT = Answer("the best independent Gaussians", TRUTH.mean, 1 / np.sqrt(np.diag(PRECISION)))
MODE = Answer("the mode", TRUTH.mean, None)
LEAST_SQUARES = Answer("least squares", np.linalg.lstsq(TRUTH.x, TRUTH.y)[0], None)
MANY = {"chains": 64}


class Row(NamedTuple):
    method: str
    settings: px.infer.Method
    answer: Answer
    options: dict
    mean: float  # the most that the mean may be off, in deviations of the answer
    deviation: float = 0.0  # the most that a deviation may be off, as a share of the exact one


ROWS = {
    "bayes_by_backprop": Row(
        "bayes_by_backprop",
        px.BayesByBackprop(samples=8, learning_rate=0.02), INDEPENDENT, {"steps": 6000}, 0.1, 0.1,
    ),
    "bayes_by_backprop, full": Row(
        "bayes_by_backprop",
        px.BayesByBackprop(family="full", samples=8, learning_rate=0.02),
        POSTERIOR, {"steps": 6000}, 0.1, 0.1,
    ),
    "black_box_vi": Row(
        "black_box_vi",
        px.BlackBoxVI(samples=64, learning_rate=0.02), INDEPENDENT, {"steps": 6000}, 0.1, 0.1,
    ),
    "ivon": Row("ivon", px.IVON(b2=0.9998), INDEPENDENT, {"steps": 25_000}, 0.1, 0.1),
    "svgd": Row(
        "svgd", px.SVGD(particles=64, learning_rate=0.1), POSTERIOR, {"steps": 1500}, 0.05, 0.1
    ),
    "deep_ensemble": Row(
        "deep_ensemble",
        px.DeepEnsemble(2048, learning_rate=0.1, anchored="targets"),
        POSTERIOR, {"steps": 800}, 0.1, 0.06,
    ),
    "mc_dropout": Row(
        "mc_dropout",
        px.MCDropout(DROPPED, "*", learning_rate=0.01), dropout_optimum(),
        {"steps": 20_000}, 0.05, 0.05,
    ),
    "swag": Row(
        "swag",
        px.SWAG(rank=100, learning_rate=1e-2, collect=0.5), MODE,
        {"steps": 8000, "batch_size": 10}, 0.1,
    ),
    "laplace": Row(
        "laplace", px.Laplace("full", prior_precision="fixed", learning_rate=0.1), POSTERIOR,
        {"steps": 4000}, 0.01, 0.01,
    ),
    "nuts": Row("nuts", px.NUTS(32, warmup=200), POSTERIOR, {"steps": 200}, 0.06, 0.06),
    "hmc": Row(
        "hmc", px.HMC(32, warmup=200, leapfrog_steps=8), POSTERIOR, {"steps": 200}, 0.06, 0.06
    ),
    "mclmc": Row("mclmc", px.MCLMC(64, warmup=600), POSTERIOR, {"steps": 300}, 0.1, 0.1),
    "metropolis": Row(
        "metropolis", px.Metropolis(200, warmup=600), POSTERIOR, {"steps": 500}, 0.1, 0.1
    ),
    "sghmc": Row("sghmc", px.SGHMC(0.02, **MANY), POSTERIOR, {"steps": 4000}, 0.1, 0.1),
    "sgld": Row("sgld", px.SGLD(0.02, **MANY), POSTERIOR, {"steps": 4000}, 0.1, 0.1),
    "smc": Row("smc", px.SMC(particles=4000), POSTERIOR, {}, 0.1, 0.1),
    "importance_sampling": Row(
        "importance_sampling",
        px.ImportanceSampling(chains=1000), POSTERIOR, {"steps": 4000}, 0.1, 0.1,
    ),
    "conjugate": Row("conjugate", px.Conjugate(), POSTERIOR, {}, 1e-4, 1e-4),
    "maximum_a_posteriori": Row(
        "maximum_a_posteriori",
        px.MaximumAPosteriori(learning_rate=0.1), MODE, {"steps": 4000}, 0.01,
    ),
    "maximum_likelihood": Row(
        "maximum_likelihood",
        px.MaximumLikelihood(learning_rate=0.1), LEAST_SQUARES, {"steps": 4000}, 0.01,
    ),
    "simulated_annealing": Row(
        "simulated_annealing", px.SimulatedAnnealing(), MODE, {"steps": 4000}, 0.1
    ),
}  # fmt: skip
EVIDENCE = {"laplace": 0.01, "conjugate": 1e-3, "smc": 0.1, "importance_sampling": 0.1}  # nats


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_a_linear_model(name, calibration):
    row = ROWS[name]
    found = px.fit(TRUTH.model(), TRUTH.data, row.settings, key=0, **row.options)
    mean, deviation = (np.asarray(part.network["w"], float) for part in found.moments())
    scale = DEVIATION if row.answer.deviation is None else row.answer.deviation
    note = f" ({name.split(', ')[1]} covariance)" if ", " in name else ""
    calibration(
        row.method,
        f"mean against {row.answer.what}{note}, in its deviations",
        np.abs((mean - row.answer.mean) / scale).max(),
        most=row.mean,
    )
    if row.answer.deviation is not None:
        calibration(
            row.method,
            f"deviation against {row.answer.what}{note}, as a share",
            np.abs(deviation / scale - 1).max(),
            most=row.deviation,
        )
    if name in EVIDENCE:
        calibration(
            row.method,
            "log evidence against the density of the data, in nats",
            abs(float(found.log_evidence[0]) - TRUTH.log_evidence),
            most=EVIDENCE[name],
        )


@pytest.mark.slow
def test_enumeration(calibration):
    values = [-1.0, 0.0, 1.0, 2.0]
    network = ({"w": jnp.zeros(3)}, lambda p, x: (x @ p["w"])[:, None])
    prior, likelihood = px.priors.Grid(values), px.likelihoods.Gaussian(NOISE)
    found = px.fit(px.Model(network, prior, likelihood), TRUTH.data, px.Enumeration())
    states = np.array(list(itertools.product(values, repeat=3)))
    fit = states @ TRUTH.x.T.astype(float)
    log_joint = norm(fit, NOISE).logpdf(TRUTH.y).sum(1) - 3 * np.log(len(values))
    evidence = logsumexp(log_joint)
    mean = np.exp(log_joint - evidence) @ states
    off = np.abs(np.asarray(found.moments()[0].network["w"]) - mean).max()
    calibration("enumeration", "mean against the sum over 64 states by hand", off, most=1e-4)
    off = abs(float(found.log_evidence[0]) - evidence)
    calibration("enumeration", "log evidence against the same sum, in nats", off, most=1e-3)


def test_the_page_is_that_of_its_figures_and_every_method_has_a_row():
    docs = Path(__file__).parents[1] / "docs"
    stored = json.loads((docs / "data" / "calibration.json").read_text())
    assert (docs / "calibration.md").read_text() == page(stored)
    assert {row["method"] for row in stored["rows"]} == set(METHODS)
    # a method that is new in the table of tests is one that the page does not have yet
    assert {row.method for row in ROWS.values()} | {"enumeration"} == set(METHODS)


def test_a_figure_beyond_its_bound_fails(calibration, monkeypatch):
    monkeypatch.delenv("CALIBRATION", raising=False)
    calibration("nuts", "nothing", 0.1, most=0.2)
    with pytest.raises(AssertionError, match=r"nuts: nothing: 0.3, and at most 0.2 is right"):
        calibration("nuts", "nothing", 0.3, most=0.2)
    with pytest.raises(AssertionError, match=r"nuts: nothing: nan"):
        calibration("nuts", "nothing", float("nan"), least=0.2)
