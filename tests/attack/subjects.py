"""What is attacked: a small saved file of every kind, how it is read, and what it then says."""

import shutil
import warnings
from pathlib import Path
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np

import posterax as px
from posterax._methods import METHODS
from tests.data import make_format1 as first

FILE = "a file.px"
LINE = px.networks.MLP(2, 1, (), key=0)
# what keeps a method small
SMALL: dict[str, dict[str, Any]] = {
    "black_box_vi": {"samples": 2},
    "svgd": {"particles": 3},
    "deep_ensemble": {"members": 2},
    "swag": {"rank": 2, "collect": 1},
    "nuts": {"chains": 2, "warmup": 4, "max_doublings": 2},
    "hmc": {"chains": 2, "warmup": 4, "leapfrog_steps": 2},
    "mclmc": {"chains": 2, "warmup": 8, "ensemble_steps": 4},
    "metropolis": {"chains": 2, "warmup": 8},
    "sghmc": {"chains": 2},
    "sgld": {"chains": 2},
    "smc": {"particles": 16, "groups": 2, "mutation_steps": 2},
    "importance_sampling": {"chains": 2},
    "simulated_annealing": {"chains": 2, "path": 5},
}
OLD = tuple(sorted(file.stem for file in first.HERE.glob("*.px")))
ESTIMATORS = ("BayesianRegressor", "BayesianClassifier", "columns")
BUILT = ("own network", "learner")
RECALIBRATIONS = {
    "Temperature": lambda: px.recalibrate.Temperature(1.5, n=100, before=0.4, after=0.3),
    "Spread": lambda: px.recalibrate.Spread(1.25, n=100),
    "Isotonic": lambda: px.recalibrate.Isotonic([0.0, 0.4, 1.0], [0.0, 0.5, 1.0], n=100),
    "ConformalInterval": lambda: px.recalibrate.ConformalInterval("scaled", 0.9, 1.7, n=100),
    "ConformalSet": lambda: px.recalibrate.ConformalSet("probability", 0.9, 0.6, n=100),
}


class Own(eqx.Module):
    """A network that is none of posterax's."""

    weight: jnp.ndarray

    def __call__(self, x: Any) -> Any:
        return jnp.tanh(self.weight @ x)


def own_model() -> px.Model:
    """A model whose network needs ``model=`` to load."""
    return first.model(network=Own(jnp.array([[0.5, -0.5]])))


def names(wide: bool) -> tuple[str, ...]:
    """All subjects; the files of every method only where there is time to fit them."""
    methods = tuple(f"method {name}" for name in METHODS) if wide else ()
    return (*OLD, *BUILT, *methods)


def build(name: str, scratch: Path) -> Path:
    """The folder that holds a subject as it was saved; made when missing."""
    folder = scratch / "subjects" / name
    if not folder.exists():
        half = folder.with_name(f"{name}.half")
        half.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few steps are enough for a file
            _save(name, half)
        half.rename(folder)
    return folder


def _save(name: str, folder: Path) -> None:
    if name in OLD:
        shutil.copy(first.HERE / f"{name}.px", folder / FILE)
    elif name in RECALIBRATIONS:
        RECALIBRATIONS[name]().save(folder / FILE)
    elif name == "learner":
        model = px.Model(LINE, first.NORMAL, px.likelihoods.Gaussian(0.3))
        px.active.Learner(model, px.Conjugate(), first.X, first.Y).save(folder / "learner")
    elif name == "own network":
        first.fit(px.MaximumAPosteriori(), own_model()).save(folder / FILE)
    else:
        _fitted(name.removeprefix("method ")).save(folder / FILE)


def _fitted(name: str) -> Any:
    method = getattr(px, METHODS[name][0])(**SMALL.get(name, {}))
    model = first.model()
    if name == "enumeration":
        model = first.small_on_a_grid()
    if name == "conjugate":
        model = px.Model(LINE, first.NORMAL, px.likelihoods.Gaussian(0.3))
    options: dict[str, Any] = {"steps": 12} if method.needs.counts == "steps" else {}
    if method.needs.counts == "epochs":
        options = {"epochs": 4, "batch_size": 1 if name == "swag" else None}
    return px.fit(model, (first.X, first.Y), method, key=0, progress=False, **options)


def load(name: str, folder: Path) -> Any:
    """Read a subject from a folder laid out as ``build`` does."""
    path = folder / FILE
    if name in RECALIBRATIONS:
        return px.recalibrate.load(path)
    if name == "learner":
        model = px.Model(LINE, first.NORMAL, px.likelihoods.Gaussian(0.3))
        return px.active.Learner.load(folder / "learner", model, px.Conjugate())
    if name == "own":
        return px.bandits.load(path, policy=first.own_policy())
    if name in first.AGENTS:
        return px.bandits.load(path)
    return px.load(path, model=own_model()) if name == "own network" else px.load(path)


def numbers(name: str, loaded: Any) -> np.ndarray:
    """What it says: the same numbers from the same keys."""
    if name in RECALIBRATIONS:
        return np.asarray(_recalibrated(name, loaded), np.float64)
    if name == "learner":
        asked = loaded.query(first.X, 2)
        return np.concatenate([asked, loaded.posterior.predict(first.X[:3], samples=4, key=1).mean])
    if name in ESTIMATORS and isinstance(loaded, px.Posterior):
        return np.zeros(1)  # without what made it an estimator it is a posterior, and a sound one
    return np.asarray(first.numbers(name, loaded))


def _recalibrated(name: str, loaded: Any) -> Any:
    """A recalibration acts on one regressor and one classifier of the files."""
    classes = name in ("Temperature", "ConformalSet")
    posterior = px.load(first.HERE / ("classes.px" if classes else "Point.px"))
    predictive = posterior.predict(first.X[:3], samples=4, key=1)
    if name == "ConformalInterval":
        return np.stack(loaded.interval(predictive))
    return loaded.sets(predictive) if name == "ConformalSet" else loaded(predictive).mean
