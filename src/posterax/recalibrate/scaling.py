r"""One number for all: the temperature of class probabilities, the spread of a regression.

    p_T(y | x) = E_w[ softmax(f(x, w) / T)_y ],   T = argmin −Σₙ log p_T(yₙ | xₙ)

over held-out data. Every draw's probabilities are raised to 1/T before they are averaged, so T = 1
is the predictive as it was. Or the average itself is: p_T ∝ (E_w softmax(f)_y)^(1/T).

The spread is how wide intervals have to be. For each held-out row and level the *reach* is
(y − mean) / (edge − mean), with the edge of the central interval on y's side: 1 on the edge, below
1 inside. Intervals widened by the reach's quantile at their own level hold that share of the rows
(as in split conformal prediction, Lei et al. 2018). The factor is the geometric mean over four
levels, drawn towards 1 where rows are few.
"""

import dataclasses
import warnings
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize_scalar

from .._util.checks import above_zero, one_of
from ..metrics.inputs import Forecast, class_labels
from ..predictive import Predictive
from .base import Recalibration, probabilities, shown, targets

Of = Literal["draws", "average"]

GRID = np.linspace(np.log(0.05), np.log(20), 13)  # of log T; the middle is T = 1

LEVELS = np.array([0.5, 0.8, 0.9, 0.95])
PRIOR_ROWS = 30  # a factor of 1 counts as much as so many rows
LIMITS = (1 / 3, 3)


@dataclasses.dataclass(frozen=True)
class Temperature(Recalibration):
    r"""Temperature scaling of class probabilities (Guo et al. 2017).

    Where draws disagree their average is vague however sure each of them is, and a temperature of
    the draws barely helps; ``of="average"`` tempers the average (Rahaman and Thiery 2021).

    Args:
        value: T; above 1 the predictive was too sure, below 1 not sure enough.
        n: held-out rows that it was fitted on.
        before: their mean negative log likelihood at T = 1.
        after: and at T, which is never higher.
        of: what is raised to 1/T: the probabilities of the ``"draws"``, or their ``"average"``.

    Example:
        Probabilities that are too sure by a factor of 3, found and mended:

        >>> import numpy as np
        >>> import posterax as px
        >>> rng = np.random.default_rng(0)
        >>> logits = rng.normal(size=(4000, 3))
        >>> y = np.argmax(logits + rng.gumbel(size=logits.shape), axis=1)
        >>> p = np.exp(3 * logits) / np.exp(3 * logits).sum(1, keepdims=True)
        >>> temperature = px.recalibrate.Temperature.fit(p, y)
        >>> round(temperature.value)
        3
        >>> temperature(p).shape
        (4000, 3)

    Reference:
        Guo, Pleiss, Sun and Weinberger, *On calibration of modern neural networks*, ICML 2017;
        Rahaman and Thiery, *Uncertainty quantification and deep ensembles*, NeurIPS 2021.
    """

    kinds, instead = ("classification",), "px.recalibrate.Spread or Isotonic"

    value: float
    n: int
    before: float
    after: float
    of: Of = "draws"

    def __post_init__(self) -> None:
        super().__post_init__()
        above_zero("value", self.value)
        one_of("of", self.of, get_args(Of))

    def __repr__(self) -> str:
        change = f"NLL {self.before:.4g} → {self.after:.4g}"
        of = " of the average" if self.of == "average" else ""
        return f"Temperature({self.value:.4g}{of}, from {self.n} rows: {change})"

    @classmethod
    def fit(cls, predictive: Forecast, y: ArrayLike, *, of: Of = "draws") -> "Temperature":
        """The temperature between 0.05 and 20 at which held-out labels are most probable.

        Averages of several draws can have more than one minimum: a grid finds the lowest, and a
        bounded search goes on from there. About 30 passes over the held-out data.

        Args:
            predictive: of held-out inputs, or class probabilities (N, K).
            y: their labels.
            of: temper each of the ``"draws"``, which gives a predictive with all its parts, or
                their ``"average"``, which gives class probabilities (N, K).
        """
        cls.check_kind(predictive)
        one_of("of", of, get_args(Of))
        by_draw = of == "draws" and hasattr(predictive, "tempered")
        if not by_draw:
            p = probabilities(predictive)
            own = np.arange(len(p)), class_labels(y, p)
        losses: dict[float, float] = {}

        def loss(log_t: float) -> float:
            t = np.exp(log_t)
            tempered: Any = predictive.tempered(t) if by_draw else None  # type: ignore[union-attr]
            log_prob = tempered.log_prob(y) if by_draw else _tempered(p, t)[own]
            losses[float(log_t)] = nll = -float(np.mean(np.asarray(log_prob, np.float64)))
            return nll if np.isfinite(nll) else 1e30  # a search cannot go on from infinity

        lowest = int(np.argmin([loss(log_t) for log_t in GRID]))
        around = GRID[[max(lowest - 1, 0), min(lowest + 1, len(GRID) - 1)]]
        minimize_scalar(loss, bounds=tuple(around), method="bounded", options={"xatol": 1e-3})
        best = min(losses, key=lambda t: (losses[t], abs(t)))
        if not np.isfinite(losses[best]):
            raise ValueError("y holds labels of probability 0, which no temperature changes")
        if abs(best) > GRID[-1] - 0.01:
            sure = "almost every held-out label is the most probable one"
            reason = sure if best < 0 else "the probabilities say nothing about the held-out labels"
            bound = f"the temperature stands at its bound, {np.exp(best):.3g}: {reason}"
            warnings.warn(f"{bound}; more held-out rows would tell more", stacklevel=2)
        before = losses[float(GRID[len(GRID) // 2])]
        return cls(float(np.exp(best)), np.shape(y)[0], before, losses[best], of)

    def __call__(self, predictive: Forecast) -> Any:
        """The predictive at this temperature; class probabilities where the average is tempered."""
        self.check_kind(predictive)
        if self.of == "draws" and hasattr(predictive, "tempered"):
            return predictive.tempered(self.value)
        return np.exp(_tempered(probabilities(predictive), self.value))


def _tempered(p: np.ndarray, temperature: float) -> np.ndarray:
    """Logarithms of class probabilities (N, K) at a temperature."""
    with np.errstate(divide="ignore"):
        scaled = np.log(p) / temperature
    return scaled - np.logaddexp.reduce(scaled, axis=1, keepdims=True)


@dataclasses.dataclass(frozen=True)
class Spread(Recalibration):
    r"""One factor by which a regression's deviations from its mean are widened or narrowed.

    The mean, the shape and the parts of the variance stay; each deviation is ``value`` times what
    it was, so the result is a predictive like any other. ``px.BayesianRegressor`` does this by
    itself (``calibrate=True``).

    Args:
        value: the factor, between 1/3 and 3; one for each output where there are several.
        n: held-out rows that it was fitted on.

    Example:
        >>> import numpy as np
        >>> import posterax as px
        >>> network = px.networks.MLP(1, 1, (4,), key=0)
        >>> model = px.Model(network, px.priors.Gaussian(0.01), px.likelihoods.Gaussian(0.1))
        >>> x = np.zeros((400, 1), "float32")
        >>> predictive = px.prior_posterior(model, x).predict(x, samples=20, key=0)  # N(0, 0.1²)
        >>> y = 0.2 * np.random.default_rng(0).normal(size=400)  # twice as wide
        >>> spread = px.recalibrate.Spread.fit(predictive, y)
        >>> bool(1.7 < spread.value < 2.1)
        True
        >>> bool(np.allclose(spread(predictive).std, spread.value * predictive.std))
        True
    """

    kinds = ("regression",)
    instead = "px.recalibrate.Temperature (of classes) or px.recalibrate.Isotonic (of counts)"
    arrays = ("value",)

    value: Any
    n: int

    def __post_init__(self) -> None:
        super().__post_init__()
        value = np.asarray(self.value)
        if not np.all((value > 0) & (value < np.inf)):
            raise ValueError(f"value must be above 0 and finite, got {self.value!r}")

    def __repr__(self) -> str:
        return f"Spread({shown(self.value)}, from {self.n} rows)"

    @classmethod
    def fit(cls, predictive: Predictive, y: ArrayLike) -> "Spread":
        """The factor that makes intervals hold as many held-out rows as they say.

        Args:
            predictive: of held-out inputs.
            y: their targets.
        """
        cls.check_kind(predictive)
        y = targets(y, predictive.mean.shape)
        return cls(measure(predictive, y, np.ones(len(y))), len(y))

    def __call__(self, predictive: Predictive) -> Predictive:
        """The predictive as wide as held-out data ask for."""
        self.check_kind(predictive)
        return predictive.widened(self.value)


def measure(predictive: Predictive, y: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The factor by which deviations from the mean should be wider, shaped like one target.

    Args:
        predictive: of the held-out rows, before any widening.
        y: their targets.
        weight: how often each counts.

    Example:
        See [`Spread`][posterax.recalibrate.Spread], where every row counts once.
    """
    return spread_of(reaches(predictive, y), weight)


def reaches(predictive: Predictive, y: np.ndarray) -> np.ndarray:
    """How far each target lies out, in units of the interval's edge there, for each level.

    Example:
        >>> import posterax as px
        >>> from posterax.demo import curve_model
        >>> from posterax.recalibrate.scaling import reaches
        >>> predictive = px.prior_posterior(curve_model(), [[0.0]]).predict([[0.0]])
        >>> reaches(predictive, predictive.mean).shape  # levels, rows
        (4, 1)
    """
    mean = predictive.mean
    edges = predictive.quantile(np.concatenate([(1 - LEVELS) / 2, (1 + LEVELS) / 2]))
    low, high = edges[: len(LEVELS)], edges[len(LEVELS) :]
    edge = np.where(y > mean, high, low)
    with np.errstate(invalid="ignore", divide="ignore"):
        reach = (y - mean) / (edge - mean)
    # a mean outside its own interval: beyond any edge; no width and no error: as it should be
    return np.where(np.isnan(reach), 1.0, np.where(reach < 0, LIMITS[1], reach))


def spread_of(reach: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The factor by which intervals have to be wider, so that they hold as many as they say.

    Example:
        >>> import numpy as np
        >>> from posterax.recalibrate.scaling import spread_of
        >>> round(float(spread_of(np.full((4, 10_000), 2.0), np.ones(10_000))), 2)
        2.0
    """
    wanted = np.stack([
        np.quantile(r, level, axis=0, weights=weight, method="inverted_cdf")
        for r, level in zip(reach, LEVELS, strict=True)
    ])  # fmt: skip
    rows = weight.sum() ** 2 / np.square(weight).sum()  # as many of equal weight say as much
    factor = np.exp(np.mean(np.log(np.clip(wanted, *LIMITS)), axis=0))
    return np.asarray(factor ** (rows / (rows + PRIOR_ROWS)))
