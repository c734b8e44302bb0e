"""Fits made to fail, each called bad by its kind, and sound ones that are not."""

import jax
import numpy as np
import optax
import pytest

import posterax as px

WELL = {"estimator": "local", "learning_rate": 1e-2, "rho_rate": 3.0, "initial_rho": -3.0}
PRIOR = px.priors.Gaussian(1.0, fan_in=True)


def curve(seed: int = 0, rows: int = 60):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (rows, 1)).astype("float32")
    return x, (np.sin(4 * x[:, 0]) + 0.2 * rng.normal(size=rows)).astype("float32")


def table(seed: int = 0, rows: int = 300, columns: int = 8):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, columns)).astype("float32")
    y = x[:, 0] + np.sin(2 * x[:, 1]) + 0.5 * x[:, 2] * x[:, 3] + 0.3 * rng.normal(size=rows)
    return x, ((y - y.mean()) / y.std()).astype("float32")


def line(seed: int = 0, rows: int = 100):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, 4)).astype("float32")
    return x, (x @ rng.normal(size=4) + 0.3 * rng.normal(size=rows)).astype("float32")


def digits(seed: int = 0, rows: int = 400):
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    few = np.random.default_rng(seed).permutation(len(y))[:rows]
    return (x[few] / 8 - 1).astype("float32"), y[few]


# data, hidden layers, likelihood
NOISY = px.likelihoods.Gaussian(0.3)
PROBLEMS = {
    "curve": (curve, (20,), px.likelihoods.Gaussian(0.2)),
    "table": (table, (20,), NOISY),
    "digits": (digits, (20,), px.likelihoods.Categorical()),
    "line": (line, (), NOISY),
    "two layers": (curve, (10, 10), px.likelihoods.Gaussian(0.2)),
}
MORE = {"logistic": (digits, (), px.likelihoods.Categorical())}


def fitted(name: str, *, seed: int = 0, steps: int = 5000, prior=PRIOR, **method):
    data, hidden, likelihood = (PROBLEMS | MORE)[name]
    x, y = data(seed)
    outputs = 10 if isinstance(likelihood, px.likelihoods.Categorical) else 1
    model = px.Model(
        px.networks.MLP(x.shape[1], outputs, hidden, activation="tanh", key=seed),
        prior, likelihood,
    )  # fmt: skip
    return px.fit(model, (x, y), px.BayesByBackprop(**(WELL | method)), steps=steps, key=seed)


def frozen_rho():
    def labels(variational):
        return {part: jax.tree.map(lambda _, p=part: p, t) for part, t in variational.items()}

    return optax.multi_transform({"mu": optax.adam(1e-2), "rho": optax.set_to_zero()}, labels)


BAD = {
    "slow": ({"learning_rate": 1e-5}, "not converged"),
    "short": ({"steps": 50}, "not converged"),
    "frozen": ({"optimizer": frozen_rho()}, "not converged"),
    "wide": ({"prior": px.priors.Gaussian(1000.0, fan_in=True)}, "prior against data"),
}
GOOD = [
    *((name, seed) for name in ("curve", "line", "logistic") for seed in range(5)),
    *(("table", seed) for seed in range(3)),
    *(("digits", seed) for seed in range(2)),
]


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("fault", BAD)
def test_a_bad_fit_is_called_bad_by_its_kind(fault, name):
    settings, kind = BAD[fault]
    with pytest.warns(px.ConvergenceWarning):
        posterior = fitted(name, **settings)
    assert kind in posterior.diagnose().kinds


@pytest.mark.parametrize(("name", "seed"), GOOD)
def test_a_good_fit_is_not(name, seed):
    # N(0, 1/fan-in) holds the logits of the digits back: see below
    prior = px.priors.Gaussian(1.0) if name in ("digits", "logistic") else PRIOR
    steps = {"curve": 40_000, "digits": 20_000}.get(name, 5000)
    found = fitted(name, seed=seed, steps=steps, prior=prior).diagnose()
    assert found.ok, found.verdict


def test_a_prior_that_holds_class_probabilities_flat_is_said():
    """With N(0, 1/fan-in) the classes are right, at a third each: that the ELBO is level is no
    comfort."""
    x, y = digits()
    with pytest.warns(px.ConvergenceWarning, match="probabilities are too flat"):
        flat = fitted("digits")
    assert flat.diagnose().kinds == ("prior against data",)
    mean = flat.predict(x).mean
    assert (mean.argmax(-1) == y).mean() > 0.8
    assert mean.max(-1).mean() < 0.5
