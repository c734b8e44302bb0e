"""The twelve problems: data, network, prior, likelihood and batch size.

Data are the same for all seeds; a seed decides the network's first weights and the key of the fit.
A network is a list of layers, so that every library can build it: ``("linear", 3, 50)``,
``("conv", 1, 16)`` (3 × 3, with a border of one), ``("layer_norm", 50)``, ``("relu",)``,
``("pool",)`` (2 × 2, the maximum) and ``("flatten",)``. Layers with weights are numbered in order:
``layers.0.weight`` is (outputs, inputs, …) everywhere, ``layers.0.bias`` (outputs,).
"""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Layers = tuple[tuple[Any, ...], ...]


class Problem(NamedTuple):
    """A posterior to find. ``noise`` is known; ``mixture`` is (π, σ₁, σ₂) where N(0, 1) is not."""

    name: str
    x: np.ndarray
    y: np.ndarray
    layers: Layers
    likelihood: str  # "gaussian", "bernoulli" or "categorical"
    noise: float = 1.0
    batch_size: int = 128
    mixture: tuple[float, float, float] | None = None
    samples: int = 1000  # draws for the ELBO

    @property
    def rows(self) -> int:
        """N."""
        return len(self.y)

    def spec(self) -> dict[str, Any]:
        """What a peer's process needs beside the data, as JSON has it."""
        arrays = ("x", "y", "samples")
        return {k: v for k, v in self._asdict().items() if k not in arrays} | {"rows": self.rows}

    def model(self, seed: int, prior: str = "own") -> Any:
        """The model of posterax; ``prior="fan_in"`` scales N(0, 1) by the layers' widths."""
        import posterax as px
        from benchmarks.convergence.network import make_network

        likelihoods = {
            "gaussian": lambda: px.likelihoods.Gaussian(self.noise),
            "bernoulli": px.likelihoods.Bernoulli,
            "categorical": px.likelihoods.Categorical,
        }
        if prior not in PRIORS:
            raise ValueError(f"prior must be one of {PRIORS}, got {prior!r}")
        if prior == "fan_in":
            made = px.priors.Gaussian(1.0, fan_in=True)
        else:
            made = px.priors.ScaleMixture(*self.mixture) if self.mixture else px.priors.Gaussian()
        return px.Model(make_network(self.layers, seed), made, likelihoods[self.likelihood]())


PRIORS = ("own", "fan_in")


def perceptron(*sizes: int) -> Layers:
    """The layers of a fully connected network with ReLU."""
    layers: list[tuple[Any, ...]] = []
    for i, o in itertools.pairwise(sizes):
        layers += [("linear", i, o), ("relu",)]
    return tuple(layers[:-1])


def constant(problem: Problem) -> float:
    """Mean log likelihood of the best constant: the mean of y, or the shares of the classes."""
    y = problem.y.reshape(-1)
    if problem.likelihood == "gaussian":
        z = (y.astype(np.float64) - y.mean(dtype=np.float64)) / problem.noise
        return float(-0.5 * np.mean(z**2) - np.log(problem.noise) - 0.5 * np.log(2 * np.pi))
    shares = np.bincount(y.astype(int)) / len(y)
    shares = shares[shares > 0]
    return float(np.sum(shares * np.log(shares)))


# -- data


def _folder() -> Path:
    folder = os.environ.get("POSTERAX_DATA")
    if not folder:
        raise SystemExit("POSTERAX_DATA must name the directory with uci/*.npz and mnist.npz")
    return Path(folder)


def _standardised(a: np.ndarray) -> np.ndarray:
    scale = a.std(0)
    return ((a - a.mean(0)) / np.where(scale > 0, scale, 1)).astype(np.float32)


def _curve(name: str, low: np.ndarray) -> Problem:
    """y = x + 0.3 sin 2π(x + ε) + 0.3 sin 4π(x + ε) + ε of Blundell et al. (2015)."""
    e = 0.02 * np.random.default_rng(1).standard_normal(len(low))
    y = low + 0.3 * np.sin(2 * np.pi * (low + e)) + 0.3 * np.sin(4 * np.pi * (low + e)) + e
    x = low[:, None].astype(np.float32)
    layers = perceptron(1, 100, 100, 1)
    # single draws are far off where the noise is so small: 1,000 leave an error of 0.1 nats a row
    return Problem(name, x, y.astype(np.float32), layers, "gaussian", 0.05, 100, samples=20_000)


def _curve_gap(name: str) -> Problem:
    rng = np.random.default_rng(0)
    return _curve(name, np.concatenate([rng.uniform(0, 0.2, 150), rng.uniform(0.35, 0.5, 150)]))


def _paper_curve(name: str) -> Problem:
    return _curve(name, np.random.default_rng(0).uniform(0, 0.5, 300))


def _linear(name: str) -> Problem:
    from sklearn.datasets import load_diabetes

    x, y = (_standardised(a) for a in load_diabetes(return_X_y=True))
    return Problem(name, x, y, perceptron(10, 1), "gaussian", 0.7)


def _logistic(name: str) -> Problem:
    from sklearn.datasets import load_breast_cancer

    x, y = load_breast_cancer(return_X_y=True)
    return Problem(name, _standardised(x), y.astype(np.int32), perceptron(30, 1), "bernoulli")


def _uci(file: str, *, normed: bool = False) -> Callable[[str], Problem]:
    def make(name: str) -> Problem:
        stored = np.load(_folder() / "uci" / f"{file}.npz", allow_pickle=False)
        rows = stored["train_idx_00"]
        x, y = _standardised(stored["x"][rows]), _standardised(stored["y"][rows])
        layers = perceptron(x.shape[1], 50, 1)
        if normed:
            layers = (layers[0], ("layer_norm", 50), *layers[1:])
        return Problem(name, x, y, layers, "gaussian", 0.3)

    return make


def _digits(name: str) -> Problem:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    x = (x / 16).astype(np.float32)
    return Problem(name, x, y.astype(np.int32), perceptron(64, 100, 10), "categorical")


def _mixture(name: str) -> Problem:
    return _digits(name)._replace(mixture=(0.5, 1.0, 0.1))


def _cnn(name: str) -> Problem:
    digits = _digits(name)
    layers = (
        ("conv", 1, 16), ("relu",), ("pool",), ("conv", 16, 32), ("relu",), ("pool",),
        ("flatten",), ("linear", 128, 10),
    )  # fmt: skip
    return digits._replace(x=digits.x.reshape(-1, 1, 8, 8), layers=layers, samples=50)


def _mnist(name: str) -> Problem:
    stored = np.load(_folder() / "mnist.npz", allow_pickle=False)
    x = (stored["x_train"].reshape(-1, 784) / np.float32(255)).astype(np.float32)
    y = stored["y_train"].astype(np.int32)
    return Problem(name, x, y, perceptron(784, 400, 400, 10), "categorical", samples=20)


_MAKE: dict[str, Callable[[str], Problem]] = {
    "curve_gap": _curve_gap,
    "paper_curve": _paper_curve,
    "linear": _linear,
    "logistic": _logistic,
    "boston": _uci("bostonHousing"),
    "concrete": _uci("concrete"),
    "yacht": _uci("yacht"),
    "digits": _digits,
    "cnn": _cnn,
    "layer_norm": _uci("concrete", normed=True),
    "mnist": _mnist,
    "mixture": _mixture,
}
NAMES = tuple(_MAKE)


def problem(name: str) -> Problem:
    """One of them, by its name."""
    return _MAKE[name](name)
