r"""The regression curve of Blundell et al. (2015), section 5.2: does the band widen without data?

y = x + 0.3 sin 2π(x + ε) + 0.3 sin 4π(x + ε) + ε, ε ~ N(0, 0.02²), and training inputs from
[0, 0.5] only. Bayes by Backprop beside Hamiltonian Monte Carlo, which samples the same posterior
without an approximating family, and beside a deep ensemble and a maximum a posteriori.

Inside the data all should give the right noise: the 90 % interval covers 90 % of new points.
Outside of it only the weights' uncertainty can warn, by its epistemic standard deviation.

Settings are those of ``posterax demo``, chosen on points of their own (its seeds are not these).
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from posterax.demo import SAMPLES, Arrays, curve, curve_data, curve_model
from posterax.fitting.fit import fit
from posterax.infer import HMC, BayesByBackprop, DeepEnsemble, MaximumAPosteriori, Method
from posterax.metrics import evaluate
from posterax.posteriors import Point, Posterior

from .methods import bayes_by_backprop
from .store import Store

LEVEL = 0.9
PLACES = (-0.2, 0.1, 0.25, 0.4, 0.75, 1.0)  # on the x axis; the second to fourth are inside
INSIDE = slice(1, 4)
GRID = np.linspace(-0.25, 1.2, 146, dtype=np.float32)
QUANTILES = (0.025, 0.25, 0.5, 0.75, 0.975)
SHOWN = 200  # training points in the picture
FIRST_SEED = 100  # of the reported ones; the demo's seeds chose the settings


class Budget(NamedTuple):
    """How large a run is."""

    points: int
    epochs: int
    batch_size: int
    members: int
    chains: int
    warmup: int
    leapfrog: int
    draws: int


BUDGETS = {
    "quick": Budget(100, 3, 50, 2, 2, 4, 4, 8),
    "cpu": Budget(1000, 600, 128, 5, 4, 200, 48, 60),
    "full": Budget(1000, 600, 128, 5, 8, 1000, 96, 200),
}


class Arm(NamedTuple):
    """A method, and whether a second output predicts the noise."""

    title: str
    predicted: bool
    kind: type[Method]
    options: Callable[[Budget], dict[str, Any]]

    def settings(self, size: Budget) -> dict[str, Any]:
        """What a result is kept with: a file of other methods is refused.

        Example:
            >>> from experiments.regression import ARMS, BUDGETS
            >>> ARMS["ensemble"].settings(BUDGETS["cpu"])
            {'method': 'DeepEnsemble', 'members': 5, 'learning_rate': 0.01}
        """
        return {"method": self.kind.__name__, **self.options(size)}


BBB = {"estimator": "local", "learning_rate": 1e-2}
ARMS = {
    "bbb": Arm("Bayes by Backprop", False, BayesByBackprop, lambda size: BBB),
    "bbb-noise": Arm("Bayes by Backprop, noise predicted", True, BayesByBackprop, lambda size: BBB),
    "hmc": Arm(
        "Hamiltonian Monte Carlo", False, HMC,
        lambda size: {
            "chains": size.chains, "warmup": size.warmup, "leapfrog_steps": size.leapfrog
        },
    ),
    "ensemble": Arm(
        "deep ensemble", False, DeepEnsemble,
        lambda size: {"members": size.members, "learning_rate": 1e-2},
    ),
    "map": Arm(
        "maximum a posteriori", False, MaximumAPosteriori, lambda size: {"learning_rate": 1e-2}
    ),
}  # fmt: skip


def run(budget: str, seeds: int, keep: Callable[[dict[str, Any]], Store]) -> Store:
    """Every method for every seed; a seed draws points, start and order of batches."""
    size = BUDGETS[budget]
    store = keep({"budget": budget, **size._asdict()})
    store.expect(f"{arm}/{seed}" for seed in range(seeds) for arm in ARMS)
    for seed in range(seeds):
        for key, arm in ARMS.items():
            store.get(f"{key}/{seed}", partial(one, arm, size, seed), arm.settings(size))
    return store


def one(arm: Arm, size: Budget, seed: int) -> dict[str, Any]:
    """A fit, its scores on new points inside the data, and its band over a wider range."""
    key = FIRST_SEED + seed
    train, test = (curve_data(size.points, key=2 * key + part) for part in (0, 1))
    posterior = train_arm(arm, train, size, key)
    return figures(posterior, test) | ({"band": band(posterior, train)} if seed == 0 else {})


def train_arm(arm: Arm, data: Arrays, size: Budget, key: int) -> Posterior:
    """The posterior of the curve's network by this method."""
    make = bayes_by_backprop if arm.kind is BayesByBackprop else arm.kind
    method = make(**arm.options(size))
    length: dict[str, Any] = {"epochs": size.epochs, "batch_size": size.batch_size}
    if method.needs.counts == "steps":
        length = {"steps": size.draws}
    model = curve_model(key, heteroscedastic=arm.predicted)
    return fit(model, data, method, key=key, progress=False, **length)


def _predict(posterior: Posterior, x: np.ndarray) -> Any:
    samples = 1 if isinstance(posterior, Point) else SAMPLES
    return posterior.predict(x.reshape(-1, 1), samples=samples, key=1)


def figures(posterior: Posterior, test: Arrays) -> dict[str, Any]:
    """RMSE, NLL and coverage on new points, and the epistemic deviation at some places."""
    x, y = test
    predictive = _predict(posterior, x)
    scored = evaluate(predictive, y, only=("rmse", "nll", "coverage"), resamples=0)
    places = np.resize(np.asarray(PLACES, np.float32), len(x))  # the shape that is compiled already
    deviation = np.sqrt(_predict(posterior, places).epistemic).reshape(-1)[: len(PLACES)]
    outside = np.delete(deviation, np.arange(len(PLACES))[INSIDE])
    return {
        **{name: score.value for name, score in scored.items()},
        "deviation": {f"{p:g}": float(d) for p, d in zip(PLACES, deviation, strict=True)},
        "inside": float(deviation[INSIDE].mean()),
        "outside": float(outside.mean()),
    }


def band(posterior: Posterior, train: Arrays) -> dict[str, Any]:
    """What the picture needs: quantiles over the grid, the curve, some training points."""
    predictive = _predict(posterior, GRID)
    shown = slice(None, None, max(1, len(train[1]) // SHOWN))
    quantiles = predictive.quantile(np.asarray(QUANTILES))
    rounded = lambda values: np.round(np.ravel(values).astype(float), 4).tolist()  # noqa: E731
    return {
        "x": rounded(GRID),
        "truth": rounded(curve(GRID)),
        "quantiles": {f"{q:g}": rounded(at) for q, at in zip(QUANTILES, quantiles, strict=True)},
        "epistemic": rounded(np.sqrt(predictive.epistemic)),
        "points": [rounded(part[shown]) for part in train],
    }
