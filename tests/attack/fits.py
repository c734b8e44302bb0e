"""Small fits that are saved on the way, one of each kind of data and of phase."""

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

import posterax as px

RNG = np.random.default_rng(0)
X = RNG.normal(size=(24, 2)).astype("float32")
Y = X[:, 0] * X[:, 1] + 0.5 * X[:, 0]
CLASSES = (X[:, 0] > 0).astype(int)


class Stream:
    """Data in batches, as from a disk."""

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        return iter([(X[i : i + 8], Y[i : i + 8]) for i in range(0, 24, 8)])

    def __len__(self) -> int:
        return 3


def model(**options: Any) -> px.Model:
    """A regression of nine weights and the noise."""
    parts = {"prior": px.priors.Gaussian(0.7), "likelihood": px.likelihoods.Gaussian(0.3)}
    network = options.pop("network", None) or px.networks.MLP(2, 1, (2,), activation="tanh", key=0)
    return px.Model(network, **(parts | options))


def _shifted(key: jax.Array, x: jax.Array) -> jax.Array:
    return x + 0.1 * jax.random.normal(key, x.shape)


def _classifier() -> px.Model:
    network = px.networks.MLP(2, 2, (2,), key=0)
    return model(network=network, likelihood=px.likelihoods.Categorical())


VARIATIONAL, POINT = px.BayesByBackprop(learning_rate=0.05), px.MaximumAPosteriori(0.05)
HMC = px.HMC(chains=2, warmup=30, leapfrog_steps=2)
WATCH = px.Validation(X[:6], Y[:6], every=10)
EARLY = px.Validation(X[:6], -Y[:6], every=5, patience=8)
# name: what makes (model, data, method) and the options of fit
FITS: dict[str, Callable[[], tuple[tuple[Any, Any, Any], dict[str, Any]]]] = {
    "variational": lambda: ((model(), (X, Y), VARIATIONAL), {"epochs": 300}),
    "minibatches": lambda: ((model(), (X, Y), VARIATIONAL), {"epochs": 100, "batch_size": 8}),
    "stream": lambda: ((model(), Stream(), VARIATIONAL), {"epochs": 60}),
    "point": lambda: ((model(), (X, Y), POINT), {"epochs": 400}),
    "validation": lambda: ((model(), (X, Y), POINT), {"epochs": 300, "validation": WATCH}),
    "early stopping": lambda: ((model(), (X, Y), POINT), {"epochs": 200, "validation": EARLY}),
    "augmented": lambda: ((model(), (X, Y), POINT), {"epochs": 300, "augment": _shifted}),
    "weighted": lambda: ((model(), (X, Y, np.linspace(0.5, 1.5, 24)), POINT), {"epochs": 300}),
    "classes": lambda: ((_classifier(), (X, CLASSES), VARIATIONAL), {"epochs": 300}),
    "ensemble": lambda: ((model(), (X, Y), px.DeepEnsemble(3)), {"epochs": 300}),
    "laplace": lambda: ((model(), (X, Y), px.Laplace("full")), {"epochs": 300}),
    "swag": lambda: (
        (model(), (X, Y), px.SWAG(rank=2, collect=1)),
        {"epochs": 20, "batch_size": 2},
    ),
    "hmc": lambda: ((model(), (X, Y), HMC), {"steps": 120}),
    "thinned": lambda: ((model(), (X, Y), HMC), {"steps": 120, "thin": 3}),
    "few bytes": lambda: ((model(), (X, Y), HMC), {"steps": 160, "draw_bytes": 4000}),
    "sgld": lambda: ((model(), (X, Y), px.SGLD(chains=2)), {"steps": 300, "batch_size": 8}),
    "sghmc stream": lambda: ((model(), Stream(), px.SGHMC(chains=2)), {"steps": 200}),
    "metropolis": lambda: ((model(), (X, Y), px.Metropolis(chains=2, warmup=60)), {"steps": 300}),
    "smc": lambda: ((model(), (X, Y), px.SMC(particles=32, groups=2, mutation_steps=2)), {}),
}


def fit(
    name: str, folder: Path | None, *, every: float = 1e-6, chunk: float = 0.02, **more: Any
) -> px.Posterior:
    """One of the fits, saved in a folder as often as it can be; ``chunk`` seconds between looks."""
    from posterax.fitting import run

    run.CHUNK_SECONDS = run.LONG_CHUNK = chunk
    given, options = FITS[name]()
    if folder is not None:
        options |= {"checkpoint": px.Checkpoint(folder, every)}
    return px.fit(*given, key=0, progress=False, **(options | more))


def bits(posterior: px.Posterior) -> dict[str, np.ndarray]:
    """All that a fit gives: its history, its weights or draws, and predictions."""
    found = {f"history {name}": np.asarray(v) for name, v in posterior.history.items()}
    leaves = jax.tree.leaves(posterior.particles(jax.random.key(0), 8).ids)
    leaves += [a for a in jax.tree.leaves(posterior) if hasattr(a, "dtype")]
    found |= {f"numbers {i}": _plain(a) for i, a in enumerate(leaves)}
    predictive = posterior.predict(X[:5], samples=6, key=1)
    return found | {"mean": np.asarray(predictive.mean), "std": np.asarray(predictive.std)}


def _plain(leaf: Any) -> np.ndarray:
    is_key = jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def difference(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> str | None:
    """The first name under which two fits are not the same to the bit."""
    if found.keys() != wanted.keys():
        return f"{sorted(found.keys() ^ wanted.keys())}"
    for name, array in wanted.items():
        other = found[name]
        if other.shape != array.shape:
            return f"{name}: {other.shape} where {array.shape} belongs"
        if other.tobytes() != array.tobytes():
            return f"{name} has other bits"
    return None


class Slowly:
    """A callback that takes a moment, so that a fit can be met on its way."""

    def __init__(self, seconds: float):
        self.seconds = seconds

    def __call__(self, event: Any) -> None:
        time.sleep(self.seconds)


class StopAfter:
    """A callback that ends the fit at the so many-th look, as a fault would."""

    def __init__(self, looks: int):
        self.left = itertools.count(looks - 1, -1)

    def __call__(self, event: Any) -> None:
        if next(self.left) <= 0:
            raise Broken


class Broken(Exception):
    """What a callback raises that is broken."""
